#!/usr/bin/env bash
# kolo-pack --source coco-json: images, categories and annotations of one JSON file.
. "$(dirname "$0")/../lib.sh"
. "$(dirname "$0")/sources.sh"
need kolo-pack kolo-shards h5dump perl
small_images 3
mkdir -p "$ROOM/set/annotations" "$ROOM/set/train2017"
for i in 0 1 2; do cp "$ROOM/images/$i.jpg" "$ROOM/set/train2017/$i.jpg"; done
FILE=$ROOM/set/annotations/instances_train2017.json
IMAGES='{"id": 30, "file_name": "0.jpg"}, {"file_name": "1.jpg", "id": 10, "license": null}'
IMAGES+=', {"id": 20, "file_name": "2.jpg"}'
CATEGORIES='{"id": 9, "name": "ant", "supercategory": "animal"}, {"id": 2, "name": "caf\u00e9 \ud83d\ude00"}'
ANNOTATIONS='{"id": 5, "image_id": 20, "category_id": 9, "bbox": [1.5, 2, 3.25, 4e0], "area": 7.5,'
ANNOTATIONS+=' "iscrowd": 0, "segmentation": [[1, 2, 3]]},
  {"id": 6, "image_id": 30, "category_id": 2, "bbox": [0, 0, 10, 10], "area": 50, "iscrowd": 1,
   "segmentation": {"counts": "a\"b\\", "size": [1, 2]}},'
ANNOTATIONS+=' {"id": 7, "image_id": 20, "category_id": 2, "bbox": [1, 1, 0, 5]}'
json() { printf '%s' "$1" > "$FILE"; }
whole() { json \
    "{\"info\": {}, \"images\": [$1], \"annotations\": [$2], \"categories\": [$3], \"licenses\": []}"; }
COCO=(--source coco-json --in "$ROOM/set" --shuffle-seed 0)

whole "$IMAGES" "$ANNOTATIONS" "$CATEGORIES"
packs "three images" "${COCO[@]}"
is "$(paths) $(table id)" "0.jpg 1.jpg 2.jpg 30 10 20" \
    "three images: in the order of the file, with their ids"
is "$(boxes)" "0.jpg 0 1 0 0 10 10
2.jpg 1 0 1.5 2 3.25 4
2.jpg 0 128 1 1 0 5" \
    "boxes with their images, numbers and crowd flag; one without width is flagged; no boxes: background"
is "$(table box_id) $(table box_area)" "6 5 7 50 7.5 0" "ids and areas of annotations"
is "$(table classes/source_id)" "2 9" "categories by ascending id"
kolo-shards info "$ROOM/out" > "$ROOM/info"
like "$ROOM/info" '^ +0 +café 😀 ' "with their names"
first=$(boxes)
is "$(attribute box_form)" "xywh" "the shard says what the numbers are"
json "{\"categories\": [$CATEGORIES], \"annotations\": [$ANNOTATIONS], \"images\": [$IMAGES]}"
packs "annotations before images" "${COCO[@]}"
is "$(boxes)" "$first" "make the same boxes"
whole "$IMAGES" "$(printf '%s' "$ANNOTATIONS" | tr '\n' ' ' | sed 's/, /,\n\t/g')" "$CATEGORIES"
packs "many lines" "${COCO[@]}"
json "{\"images\": [$IMAGES], \"categories\": [$CATEGORIES]}"
packs "no annotations (images of a test)" "${COCO[@]}"
like "$ROOM/log" 'no annotations' "no annotations (images of a test): the log says so"
whole "$IMAGES" "$ANNOTATIONS" "$CATEGORIES" && mkdir "$ROOM/flat" &&
    cp "$ROOM/set/train2017/"*.jpg "$ROOM/flat" && cp "$FILE" "$ROOM/flat/my.json"
packs "images and file in one folder" --source coco-json --in "$ROOM/flat" --annotations \
    "$ROOM/flat/my.json"
packs "some classes" "${COCO[@]}" --classes <(echo ant)
is "$(table box_class)" "0" "leave the others' boxes out"

whole "${IMAGES/\"id\": 20/\"id\": 20, \"width\": 1, \"height\": 1}" "" "$CATEGORIES"
kolo-pack "${COCO[@]}" --out "$ROOM/no" > "$ROOM/size" 2>&1
bad() { # PATTERN TEXT IMAGES ANNOTATIONS CATEGORIES
    whole "$3" "$4" "$5"
    fails 2 "$1" "$2" "${COCO[@]}"
}
wrong() { bad "instances_train2017.json:3, byte [0-9]+: $1" "$2" "$IMAGES" "$ANNOTATIONS, $3" "$CATEGORIES"; }
wrong 'annotation 8: there is no category with id 7' "an unknown category" \
    '{"id": 8, "image_id": 20, "category_id": 7, "bbox": [1, 1, 2, 2]}'
left_out 1 "is left out with --on-error skip" "${COCO[@]}"
is "$(table box_id)" "6 5 7" "is left out with --on-error skip: no other is left out"
is "$(cat "$ROOM"/out/*.rejects)" "annotations/instances_train2017.json:3, byte $(sed -n \
    's/.*:3, byte \([0-9]*\):.*/\1/p' "$ROOM/log")	annotation 8: there is no category with id 7" \
    "is left out with --on-error skip: with file, place and cause"
is "$(cmp -s <(h5dump -d /provenance/rejects -b -o "$ROOM/listed" "$ROOM"/out/*.h5 > "$ROOM/dump.log" &&
    cat "$ROOM/listed") "$ROOM"/out/*.rejects; echo $?)" 0 "in the shard too"
SIZED=${IMAGES/\"id\": 20/\"id\": 20, \"width\": $(sed -n 's/.*has \([0-9]*\) x.*/\1/p' \
    "$ROOM/size"), \"height\": $(sed -n 's/.*has [0-9]* x \([0-9]*\).*/\1/p' "$ROOM/size")}
whole "$SIZED" "$ANNOTATIONS, {\"id\": 8, \"image_id\": 20, \"category_id\": 9, \"bbox\": [1, 4000, 2, 2]}" \
    "$CATEGORIES"
fails 2 'annotation 8: a box from \(1, 4000\) to \(3, 4002\) outside of its image of' \
    "a box outside of its image" "${COCO[@]}"
left_out 1 "is left out with --on-error skip" "${COCO[@]}" --json
like "$ROOM/log" '"event":"done".*"annotations_rejected":1,"boxes":3,' \
    "is left out with --on-error skip: counted"
fails 2 'more than --max-bad 0 annotations are wrong, the last: .*annotation 8: a box' \
    "unless --max-bad forbids it" "${COCO[@]}" --on-error skip --max-bad 0
wrong 'annotation 8: there is no image with id 21' "an unknown image" \
    '{"id": 8, "image_id": 21, "category_id": 9, "bbox": [1, 1, 2, 2]}'
wrong 'annotation 8: bbox has 3 numbers' "a box of three numbers" \
    '{"id": 8, "image_id": 20, "category_id": 9, "bbox": [1, 1, 2]}'
wrong 'annotation 8: bbox with width -2' "a negative width" \
    '{"id": 8, "image_id": 20, "category_id": 9, "bbox": [1, 1, -2, 2]}'
wrong 'annotation 8 lacks image_id, category_id or bbox' "no box" \
    '{"id": 8, "image_id": 20, "category_id": 9, "caption": "x"}'
wrong 'NaN' "NaN" '{"id": 8, "image_id": 20, "category_id": 9, "bbox": [NaN, 1, 2, 2]}'
wrong '1e999 is larger' "a number that is too large" \
    '{"id": 8, "image_id": 20, "category_id": 9, "bbox": [1e999, 1, 2, 2]}'
wrong '3.5 where a whole number' "half an id" \
    '{"id": 8, "image_id": 3.5, "category_id": 9, "bbox": [1, 1, 2, 2]}'
wrong '`t` where a number is expected' "a truth as a number" '{"id": 8, "image_id": true}'
wrong 'objects and arrays nest deeper than 63' "deep nesting" "{\"segmentation\": $(printf '[%.0s' \
    {1..100000})"
bad 'two images have the id 30' "an id twice" "$IMAGES, {\"id\": 30, \"file_name\": \"3.jpg\"}" '' \
    "$CATEGORIES"
bad 'two categories have the id 9' "a category twice" "$IMAGES" '' \
    "$CATEGORIES, {\"id\": 9, \"name\": \"bee\"}"
bad 'two classes have the name `ant`' "a name twice" "$IMAGES" '' \
    "$CATEGORIES, {\"id\": 10, \"name\": \"ant\"}"
bad 'an image without id or file_name' "an image without a file" "$IMAGES, {\"id\": 31}" '' "$CATEGORIES"
bad '/x.jpg.; it must be seen' "an absolute path" '{"id": 31, "file_name": "/x.jpg"}' '' "$CATEGORIES"
cp "$ROOM/images/0.jpg" "$ROOM/private.jpg"
bad '../../private.jpg.; it must be seen from the folder of images, and lie in it' \
    "a path out of the folder" \
    '{"id": 31, "file_name": "../../private.jpg"}' '' "$CATEGORIES"
bad 'a/../../x.jpg.; it must' "a path out of the folder by another one" \
    '{"id": 31, "file_name": "a/../../x.jpg"}' '' "$CATEGORIES"
mkfifo "$ROOM/set/train2017/pipe.jpg"
whole "$IMAGES, {\"id\": 31, \"file_name\": \"pipe.jpg\"}" '' "$CATEGORIES"
timeout 60 kolo-pack "${COCO[@]}" --out "$ROOM/out" > "$ROOM/log" 2>&1
is $? 2 "a pipe as an image: exit 2, without waiting for a writer"
like "$ROOM/log" 'train2017/pipe.jpg: is not a file' "a pipe as an image: the message says so"
rm "$ROOM/set/train2017/pipe.jpg"
whole "$IMAGES, {\"id\": 31, \"file_name\": \"\\u001b]0;title\\u0007x.jpg\"}" '' "$CATEGORIES"
kolo-pack "${COCO[@]}" --out "$ROOM/out" > "$ROOM/log" 2>&1
is $? 2 "an escape sequence in a name: exit 2"
! grep -q "$(printf '[\033\007]')" "$ROOM/log"
ok $? "it does not reach the terminal" "$ROOM/log"
bad 'the name of class [0-9] ' "a line break in a name of a class" "$IMAGES" '' \
    "$CATEGORIES, {\"id\": 11, \"name\": \"new\\nline\"}"
bad 'no images' "no images" '' '' "$CATEGORIES"
bad 'set/train2017/9.jpg: no such file' "an image that is not there" \
    "$IMAGES, {\"id\": 31, \"file_name\": \"9.jpg\"}" '' "$CATEGORIES"
bad 'no 9.jpg in it' "no folder of images" '{"id": 31, "file_name": "9.jpg"}' '' "$CATEGORIES"
bad '0.jpg: has .* pixels, its annotation says 5 x 4' "an image of another size" \
    '{"id": 30, "file_name": "0.jpg", "width": 5, "height": 4}' '' "$CATEGORIES"
json '{"images": [], "annotations": []}'
fails 2 'no list of categories' "no categories" "${COCO[@]}"
json '[1, 2]'
fails 2 'byte 0: `\[` where an object is expected' "an array" "${COCO[@]}"
whole "$IMAGES" "$ANNOTATIONS" "$CATEGORIES" && cp "$FILE" "$ROOM/good.json"
size=$(stat -c %s "$ROOM/good.json") failed=0
for ((at = 0; at < size; at += 7)); do
    head -c "$at" "$ROOM/good.json" > "$FILE"
    kolo-pack "${COCO[@]}" --dry-run > "$ROOM/log" 2>&1
    [ $? = 2 ] && grep -q 'cut off' "$ROOM/log" || failed=1
done
ok $failed "cut off at any byte: exit 2, and said so"
cp "$ROOM/good.json" "$FILE" && echo ', {}' >> "$FILE"
fails 2 'where the end of the file is expected' "something after the end" "${COCO[@]}"
cp "$ROOM/good.json" "$FILE" && cp "$FILE" "$ROOM/set/annotations/instances_train_old.json"
fails 2 'both .* are there' "two files" "${COCO[@]}"
fails 2 'no annotations/instances_val' "no file" "${COCO[@]}" --split val

SMALL=$KOLO_SHARED/data/detection/coco-json
if [ -d "$SMALL" ] && perl -MJSON::PP -e 1 2> /dev/null; then
    for part in train:32:288:4 val:6:136:1; do
        IFS=: read -r split images annotations crowds <<< "$part"
        packs "COCO's own annotations, $split" --source coco-json --in "$SMALL" --split "$split" \
            --shuffle-seed 11
        perl -MJSON::PP -e 'local $/; my $d = decode_json(<STDIN>); my $k = 0;
            my %c = map { $_->{id} => $k++ } sort { $a->{id} <=> $b->{id} } @{$d->{categories}};
            my %f = map { $_->{id} => $_->{file_name} } @{$d->{images}};
            print join(" ", $f{$_->{image_id}}, $c{$_->{category_id}}, $_->{iscrowd}, map {
                0 + $_ } @{$_->{bbox}}), "\n"
                for @{$d->{annotations}}' < "$SMALL/annotations/instances_${split}2017.json" |
                    sort > "$ROOM/want"
        boxes | sort > "$ROOM/got"
        cmp -s "$ROOM/want" "$ROOM/got"
        ok $? "every annotation is in the shard as it is in the file"
        is "$(wc -l < "$ROOM/got") $(paths |
            wc -w)" "$annotations $images" "$annotations of $images images"
        is "$(awk '$3 == 1' "$ROOM/got" | wc -l)" "$crowds" "$crowds crowds"
        is "$(table classes/source_id | wc -w) $(table classes/source_id |
            cut -d ' ' -f 11-13,80)" "80 11 13 14 90" "gaps in the ids of categories are closed"
    done
    kolo-shards verify "$ROOM/out" > "$ROOM/log"
    ok $? "the shard verifies"
else
    skip "no photos, or no JSON::PP, here"
fi
done_testing
