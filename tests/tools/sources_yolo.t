#!/usr/bin/env bash
# kolo-pack --source yolo-txt: data.yaml, images and text files of boxes.
. "$(dirname "$0")/../lib.sh"
. "$(dirname "$0")/sources.sh"
need kolo-pack kolo-shards h5dump
small_images 4
tree() {
    rm -rf "$ROOM/set" && mkdir -p "$ROOM/set/images/train/deep" "$ROOM/set/labels/train/deep"
    cp "$ROOM/images/0.jpg" "$ROOM/set/images/train/a.jpg"
    cp "$ROOM/images/1.jpg" "$ROOM/set/images/train/b.c.jpg"
    cp "$ROOM/images/2.jpg" "$ROOM/set/images/train/deep/d.jpg"
    printf 'train: images/train\nval: images/val\nnames: [cat, dog]\nnc: 2\n' > "$ROOM/set/data.yaml"
    printf '1 0.5 0.5 0.25 0.125\n\n0 .25 .25 5e-1 .5\r\n' > "$ROOM/set/labels/train/a.txt"
    printf '0 0.5 0.25 0.75 0.5 0.25 1\n' > "$ROOM/set/labels/train/deep/d.txt"
}
row() { printf '%s\n' "$@" > "$ROOM/set/labels/train/a.txt"; }
YOLO=(--source yolo-txt --in "$ROOM/set" --shuffle-seed 0)

tree
packs "a small set" "${YOLO[@]}"
is "$(paths)" "images/train/a.jpg images/train/b.c.jpg images/train/deep/d.jpg" \
    "images of folders within folders, too"
is "$(boxes)" "images/train/a.jpg 1 0 0.5 0.5 0.25 0.125
images/train/a.jpg 0 0 0.25 0.25 0.5 0.5
images/train/deep/d.jpg 0 0 0.5 0.625 0.5 0.75" \
    "boxes are kept as they are written; of a polygon its box; background is kept"
is "$(table box_offset)" "0 2 2 3" "each with its image"
read -r height width _ <<< "$(table orig_size)"
is "$(table box | cut -d ' ' -f 1-4)" \
    "$(awk -v h="$height" -v w="$width" 'BEGIN { print w * .375, h * .4375, w * .625, h * .5625 }')" \
    "boxes: stored in pixels"
is "$(attribute box_form) $(attribute task)" "cxcywh detection" "the shard says what they are"
is "$(classes) $(table classes/source_id)" "cat dog 0 1" "classes are those of data.yaml"
packs "data.yaml as --in" --source yolo-txt --in "$ROOM/set/data.yaml"
mkdir "$ROOM/elsewhere" && mv "$ROOM/set/data.yaml" "$ROOM/elsewhere/my.yaml"
fails 2 'set: no data.yaml' "no data.yaml" "${YOLO[@]}"
packs "data.yaml elsewhere" "${YOLO[@]}" --annotations "$ROOM/elsewhere/my.yaml"

tree && printf 'path: ../set\ntrain:\n  - images/train/deep\n  - list.txt\nnames:\n  7: cat\n  0: dog\n' > \
    "$ROOM/set/data.yaml"
printf './images/train/a.jpg\nimages/train/b.c.jpg\n' > "$ROOM/set/list.txt" && row '7 .5 .5 .1 .1'
printf '0 .5 .5 .1 .1\n' > "$ROOM/set/labels/train/deep/d.txt"
packs "folders, lists, numbers with gaps" "${YOLO[@]}"
is "$(classes) $(table classes/source_id)" "dog cat 0 7" "gaps are closed, the numbers kept"
is "$(table box_class)" "0 1" "labels follow"
tree && printf 'path: /no/such/place\ntrain: ../images/train\nval: x\nnames: {1: dog, 0: cat}\n' > \
    "$ROOM/set/data.yaml"
packs "paths of another machine" "${YOLO[@]}"

bad() { # PATTERN TEXT ROW...
    local pattern=$1 text=$2
    shift 2
    tree && row "$@"
    fails 2 "a.txt:$pattern" "$text" "${YOLO[@]}"
}
bad '1: 4 columns; a box has 5' "a column too few" '0 .5 .5 .1'
bad '2: 6 columns; a box has 5' "a column too many" '0 .5 .5 .1 .1' '0 .5 .5 .1 .1 .9'
bad '1: 8 columns' "a point without y" '0 .1 .1 .2 .2 .3 .3 .4'
bad '1: `nan` is no number' "NaN" '0 .5 .5 nan .1'
bad '1: `x` is no number' "a word" '0 .5 x .1 .1'
bad '1: -.5 is outside of 0 .. 1' "a negative coordinate" '0 -.5 .5 .1 .1'
bad '1: 320 is outside of 0 .. 1; coordinates are parts' "pixels" '0 320 200 20 20'
bad '1: a box without area: width 0' "no width" '0 .5 .5 0 .1'
bad '1: class 2, but `names` has the numbers 0 to 1' "an unknown class" '2 .5 .5 .1 .1'
bad '1: class -1' "a negative class" '-1 .5 .5 .1 .1'
bad '1: `0.5` is no class number' "half a class" '0.5 .5 .5 .1 .1'
tree && row '0 .5 .5 .1 .1' '0 .5 .5 .1' '1 .5 .5 .1 .1' '3 .5 .5 .1 .1'
left_out 2 "wrong rows are left out with --on-error skip" "${YOLO[@]}"
is "$(table box_class)" "0 1 0" "wrong rows are left out with --on-error skip: no others are left out"
fails 2 'more than --max-bad 1' "--max-bad counts them" "${YOLO[@]}" --on-error skip --max-bad 1
tree && row '0 .5 .5 .1 .1' '1 .5 .5 .1 .1' '0 .5 .50 .1 .1'
packs "a row that is there twice" "${YOLO[@]}"
like "$ROOM/log" '1 rows that repeat' "a row that is there twice: the log says so"
is "$(table box_class)" "0 1 0" "a row that is there twice: kept once"
tree && row '0 .02 .02 .04 .01'
packs "a box that is less than a pixel high" "${YOLO[@]}"
is "$(table box_flags)" "128 0" "a box that is less than a pixel high: is flagged"

config() { # STATUS PATTERN TEXT YAML
    tree && printf "$4" > "$ROOM/set/data.yaml"
    fails "$1" "$2" "$3" "${YOLO[@]}"
}
config 2 'data.yaml: no `train`' "no folder for the split" 'val: images/train\nnames: [a]\n'
config 2 'data.yaml: no `names`' "no names" 'train: images/train\nnc: 2\n'
config 2 'data.yaml:3: nc is another number' "nc and names" 'train: images/train\nnames: [a, b]\nnc: 3\n'
config 2 'data.yaml:2: two classes have the same number' "a number twice" \
    'train: images/train\nnames: {0: a, 0: b}\n'
config 2 'two classes have the name `a`' "a name twice" 'train: images/train\nnames: [a, a]\n'
config 2 'data.yaml:[12]: not YAML' "no YAML" 'train: [images\nnames: }\n'
config 2 'data.yaml:1: a single value' "a folder that is none" 'train: {a: b}\nnames: [a, b]\n'
config 2 'images/test: no such folder' "a folder that is not there" 'train: images/test\nnames: [a, b]\n'
config 2 'no keys' "no keys" 'images/train\n'
tree && rm -r "$ROOM/set/labels"
fails 2 'no labels for any image of --split train; .*/set/labels/train/a.txt' "no labels at all" \
    "${YOLO[@]}"
tree && cp "$ROOM/set/data.yaml" "$ROOM/set/x.yaml" && mv "$ROOM/set/data.yaml" "$ROOM/set/y.yml"
fails 2 'several .yaml files' "two files that could be data.yaml" "${YOLO[@]}"

COCO=$KOLO_SHARED/data/detection/coco-yolo
if [ -d "$COCO" ]; then
    for part in train:32 val:12; do
        split=${part%:*}
        packs "44 photos of COCO, $split" --source yolo-txt --in "$COCO" --split "$split" --shuffle-seed 7
        (cd "$COCO" && for file in images/"$split"2017/*.jpg; do
            label=labels/${file#images/} && label=${label%.jpg}.txt
            [ -e "$label" ] && awk -v f="$file" 'NF { print f, $1, 0, $2 + 0, $3 + 0, $4 + 0, $5 + 0 }' \
                "$label"
        done) | sort > "$ROOM/want"
        boxes | sort > "$ROOM/got"
        cmp -s "$ROOM/want" "$ROOM/got"
        ok $? "every box is in the shard as it is in the labels"
        count=$((${count:-0} + $(wc -l < "$ROOM/got")))
        is "$(paths | wc -w)" "${part#*:}" "every image too"
    done
    is "$count" 304 "304 boxes in all"
    kolo-shards verify "$ROOM/out" > "$ROOM/log"
    ok $? "the shard verifies"
else
    skip "no photos here"
fi
done_testing
