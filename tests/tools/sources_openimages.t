#!/usr/bin/env bash
# kolo-pack --source openimages-csv: images, boxes with flags, image labels as tags.
. "$(dirname "$0")/../lib.sh"
. "$(dirname "$0")/sources.sh"
need kolo-pack kolo-shards h5dump
small_images 3
A=$ROOM/set/annotations
tree() {
    rm -rf "$ROOM/set" && mkdir -p "$ROOM/set/train" "$A"
    cp "$ROOM/images/0.jpg" "$ROOM/set/train/0001eeaf4aed83f9.jpg"
    cp "$ROOM/images/1.jpg" "$ROOM/set/train/fe9fea4a7a9b1c00.jpg"
    cp "$ROOM/images/2.jpg" "$ROOM/set/train/000595fe6fee6369.jpg"
    printf '/m/011k07,Tortoise\n/m/011q46kg,"Container, with ""lid"""\n/m/02y6n,Bow\n/m/0w7s,Bow\n' > \
        "$A/class-descriptions-boxable.csv"
    printf '%s\n' \
        'ImageID,Source,LabelName,Confidence,XMin,XMax,YMin,YMax,IsOccluded,IsTruncated,IsGroupOf,IsDepiction,IsInside' \
        '0001eeaf4aed83f9,xclick,/m/011q46kg,1,0.0226,0.9642005,0.071,0.8005,0,0,0,0,0' \
        'fe9fea4a7a9b1c00,xclick,/m/0w7s,1,0.25,0.5,0.125,0.75,1,1,1,1,1' \
        '00075905539074f2,xclick,/m/011k07,1,0.1,0.2,0.1,0.2,0,0,0,0,0' \
        'fe9fea4a7a9b1c00,activemil,/m/02y6n,1,0,1,0,1,-1,-1,-1,0,0' > "$A/train-annotations-bbox.csv"
    printf '%s\r\n' 'ImageID,Source,LabelName,Confidence' '000595fe6fee6369,verification,/m/011k07,1' \
        '000595fe6fee6369,verification,/m/02y6n,0' \
        'fe9fea4a7a9b1c00,machine,/m/011k07,0.25' > "$A/train-annotations-human-imagelabels-boxable.csv"
}
row() { echo "$1" >> "$A/train-annotations-bbox.csv"; }
OPEN=(--source openimages-csv --in "$ROOM/set" --shuffle-seed 0)

tree
packs "a small set" "${OPEN[@]}"
is "$(paths)" "0001eeaf4aed83f9.jpg 000595fe6fee6369.jpg fe9fea4a7a9b1c00.jpg" "images of the folder"
is "$(boxes)" "0001eeaf4aed83f9.jpg 1 0 0.0226 0.071 0.9642005 0.8005
fe9fea4a7a9b1c00.jpg 3 124 0.25 0.125 0.5 0.75
fe9fea4a7a9b1c00.jpg 2 0 0 0 1 1" "boxes with classes and flags"
is "$(table tag_offset) $(table tag) $(table tag_value)" "0 0 2 3 0 2 0 1 0 0.25" \
    "image labels are tags with their confidence"
is "$(h5 -d /classes/name | sed 's/\\000//g')" '"Tortoise" "Container with "lid"" "Bow" "Bow (/m/0w7s)"' \
    "classes in the order of their file; two of one name are told apart"
is "$(attribute box_form) $(attribute task)" "norm_xyxy detection,multilabel" "the shard says what they are"
is "$(table id)" "$((16#0001eeaf4aed83f9)) $((16#000595fe6fee6369)) $((16#fe9fea4a7a9b1c00))" \
    "ids are those of the images, as 64 bits"
like "$ROOM/log" '1 of 7 rows are of images that are not in' "rows of other images are told"
mv "$A" "$ROOM/elsewhere"
fails 2 'no \*train-annotations-bbox.csv' "no annotations" "${OPEN[@]}"
packs "annotations elsewhere" --source openimages-csv --in "$ROOM/set/train" --annotations \
    "$ROOM/elsewhere/train-annotations-bbox.csv" --annotations \
    "$ROOM/elsewhere/class-descriptions-boxable.csv"
is "$(attribute task) $(table box_class | wc -w)" "detection 3" \
    "annotations elsewhere: only those that are named"
rm -r "$ROOM/elsewhere"
tree && { echo LabelName,DisplayName &&
    cat "$A/class-descriptions-boxable.csv"; } > "$A/oidv7-class-descriptions.csv" &&
    rm "$A/class-descriptions-boxable.csv"
packs "classes with a first line of names" "${OPEN[@]}"
is "$(table box_class)" "1 3 2" "classes with a first line of names: are the same"
rm "$A/train-annotations-bbox.csv"
packs "image labels only" "${OPEN[@]}"
is "$(attribute task)" "multilabel" "make a set of tags"

wrong() { # PATTERN TEXT ROW
    tree && row "$3"
    fails 2 "train-annotations-bbox.csv:6: $1" "$2" "${OPEN[@]}"
}
wrong '12 columns, the first line has 13' "a column too few" 'fe9fea4a7a9b1c00,x,/m/02y6n,1,0,1,0,1,0,0,0,0'
left_out 1 "is left out with --on-error skip" "${OPEN[@]}"
wrong 'XMin: `nan` is no number' "NaN" 'fe9fea4a7a9b1c00,x,/m/02y6n,1,nan,1,0,1,0,0,0,0,0'
wrong 'YMax: -0.1 is outside of 0 .. 1' "a negative number" \
    'fe9fea4a7a9b1c00,x,/m/02y6n,1,0,1,0,-0.1,0,0,0,0,0'
wrong 'XMax: 640 is outside of 0 .. 1' "pixels" 'fe9fea4a7a9b1c00,x,/m/02y6n,1,0,640,0,1,0,0,0,0,0'
wrong 'a box from \(0.5, 0\) to \(0.25, 1\)' "corners the wrong way round" \
    'fe9fea4a7a9b1c00,x,/m/02y6n,1,.5,.25,0,1,0,0,0,0,0'
wrong 'IsGroupOf: `2` is neither' "a flag that is 2" 'fe9fea4a7a9b1c00,x,/m/02y6n,1,0,1,0,1,0,0,2,0,0'
wrong 'the files of classes do not have `/m/zzz`' "an unknown class" \
    'fe9fea4a7a9b1c00,x,/m/zzz,1,0,1,0,1,0,0,0,0,0'
wrong 'a quote is not closed' "a quote" 'fe9fea4a7a9b1c00,"x,/m/02y6n,1,0,1,0,1,0,0,0,0,0'
tree && echo 'a,b,c' > "$A/class-descriptions-boxable.csv"
fails 2 'boxable.csv:1: neither boxes nor image labels nor classes' "another file" "${OPEN[@]}"
tree && echo '/m/0w7x' >> "$A/class-descriptions-boxable.csv"
fails 2 'boxable.csv:5: `LABEL,NAME` is expected' "a class without name" "${OPEN[@]}"
tree && rm "$A/class-descriptions-boxable.csv"
fails 2 'no file of classes' "no classes" "${OPEN[@]}"
tree && : > "$A/class-descriptions-boxable.csv"
fails 2 'empty' "an empty file" "${OPEN[@]}"
tree && rm "$ROOM/set/train/"* && cp "$ROOM/images/0.jpg" "$ROOM/set/train/0000000000000000.jpg"
fails 2 'not one of its images is in the annotations' "images of another split" "${OPEN[@]}"
tree && rm "$ROOM/set/train/"*
fails 2 'set/train: no images' "no images" "${OPEN[@]}"
done_testing
