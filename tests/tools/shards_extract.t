#!/usr/bin/env bash
# kolo-shards extract: what goes out and is packed again is what was there; numbers of the source
# come back as they were.
. "$(dirname "$0")/../lib.sh"
need kolo-pack kolo-shards
TARGETS=$BUILD/tests/targets
[ -x "$TARGETS" ] || skip_all "no $TARGETS"
pack() { kolo-pack "$@" > "$ROOM/log" 2>&1; }
pack --source scenes --count 40 --shards 3 --out "$ROOM/s" || exit 1
pack --source shapes --count 40 --size 20 --shards 2 --out "$ROOM/raw" || exit 1
# boxes by image, in the order of their numbers, without what only this source knows
boxes() { "$TARGETS" "$1" | awk \
    '$1 == "sample" { n = split($3, part, "/"); name = part[n] }
      $1 == "box" { print name, $3, $5, $6, $7, $8 }' \
    |
    sort; }

kolo-shards extract "$ROOM/s" --out "$ROOM/coco" > "$ROOM/log" 2>&1
ok $? "boxes as COCO"
is "$(find "$ROOM/coco" -name '*.jpg' | wc -l)" 40 "all images are there"
for i in 0 7 39; do
    kolo-shards show "$ROOM/s" --index $i --plain --out "$ROOM/one.jpg" > "$ROOM/log" &&
        name=$(sed -n 's/.*from scene\/\(.*\)$/\1/p' "$ROOM/log") &&
        cmp "$ROOM/one.jpg" "$ROOM/coco/images/$name"
done > "$ROOM/log2" 2>&1
is "$(cat "$ROOM/log2")" "" "extract: files with the stored bytes"
if kolo-pack --help | grep -q '^  coco-json'; then
    mkdir -p "$ROOM/again/annotations" "$ROOM/again/train2017" &&
        mv "$ROOM/coco/images"/* "$ROOM/again/train2017/" &&
        sed 's/"images\//"/' "$ROOM/coco/annotations.json" > \
        "$ROOM/again/annotations/instances_train2017.json"
    pack --source coco-json --in "$ROOM/again" --split train --out "$ROOM/packed"
    ok $? "extracted COCO packs again: exit 0"
    is "$(boxes "$ROOM/packed" | cksum)" "$(boxes "$ROOM/s" | cksum)" \
        "extracted COCO packs again: the same boxes"
else
    skip "no source coco-json"
fi
kolo-shards extract "$ROOM/s" --out "$ROOM/yolo" --boxes yolo > "$ROOM/log" 2>&1
ok $? "boxes as YOLO"
is "$(cat "$ROOM/yolo/labels"/*.txt | wc -l)" "$("$TARGETS" "$ROOM/s" | grep -c '^box')" "a line a box"
like "$ROOM/yolo/data.yaml" "^  1: 'circle'" "class names in data.yaml"

REAL=$KOLO_SHARED/data/detection
if [ -d "$REAL/coco-json" ] && kolo-pack --help | grep -q '^  coco-json' &&
    command -v python3 > /dev/null; then
    pack --source coco-json --in "$REAL/coco-json" --split train --shards 2 --out "$ROOM/c" &&
        kolo-shards extract "$ROOM/c" --out "$ROOM/cx" > "$ROOM/log" 2>&1
    python3 - "$REAL/coco-json/annotations/instances_train2017.json" "$ROOM/cx/annotations.json" > \
        "$ROOM/log" << 'END'
import json, sys
a, b = (json.load(open(f)) for f in sys.argv[1:])
key = lambda d: sorted((x["id"], x["image_id"], x["category_id"], x["iscrowd"], tuple(x["bbox"]))
                       for x in d["annotations"])
print(len(a["annotations"]) > 100, key(a) == key(b),
      sorted(i["id"] for i in a["images"]) == sorted(i["id"] for i in b["images"]),
      {c["id"]: c["name"] for c in a["categories"]} == {c["id"]: c["name"] for c in b["categories"]})
END
    is "$(cat "$ROOM/log")" "True True True True" "COCO: every number of the source comes back exactly"
    for file in "$ROOM/cx/images"/*; do cmp "$file" "$REAL/coco-json/images/train2017/${file##*/}"; done > \
        "$ROOM/log" 2>&1
    is "$(cat "$ROOM/log")" "" "COCO: every file comes back exactly"
else
    skip "no COCO here"
fi
if [ -d "$REAL/coco-yolo/labels" ] && kolo-pack --help | grep -q '^  yolo-txt'; then
    pack --source yolo-txt --in "$REAL/coco-yolo" --split train --out "$ROOM/y" &&
        kolo-shards extract "$ROOM/y" --boxes yolo --out "$ROOM/yx" > "$ROOM/log" 2>&1
    seen=0
    for file in "$ROOM/yx/labels"/*.txt; do
        from=$(find "$REAL/coco-yolo/labels/" -name "${file##*/}" | head -n 1)
        seen=$((seen + 1))
        [ -z "$from" ] || diff -wB <(sort "$from") <(sort "$file")
    done > "$ROOM/log" 2>&1
    [ "$seen" -gt 10 ]
    ok $? "YOLO: real labels"
    is "$(cat "$ROOM/log")" "" "every number of the source comes back exactly"
else
    skip "no YOLO set here"
fi

kolo-shards extract "$ROOM/raw" --out "$ROOM/files" > "$ROOM/log" 2>&1
ok $? "pixels as PNG"
is "$(find "$ROOM/files" -name '*.png' -path '*/circle/*' | wc -l)" 4 \
    "pixels as PNG: in folders of their classes"
like "$ROOM/files/list.tsv" '^circle/[^/]*\.png	circle$' "pixels as PNG: with a list of labels"
pack --source imagefolder --in "$ROOM/files" --size 20 --no-shuffle --out "$ROOM/raw2"
ok $? "extracted PNG pack again: exit 0"
crcs() { h5dump -d /crc32c "$1"/*.h5 2> /dev/null | grep '([0-9]*):' | sed 's/([0-9]*)://' | tr -d ' ' |
    tr ',' '\n' | grep . | sort; }
if command -v h5dump > /dev/null; then
    for shard in "$ROOM/raw"/*.h5; do mkdir -p "$ROOM/each" && cp "$shard" "$ROOM/each/" &&
        crcs "$ROOM/each" && rm "$ROOM/each"/*; done | sort > "$ROOM/was"
    crcs "$ROOM/raw2" > "$ROOM/now"
    is "$(wc -l < "$ROOM/now")" 40 "40 images"
    cmp -s "$ROOM/was" "$ROOM/now"
    ok $? "40 images: to the same pixels"
else
    skip "no h5dump"
fi
kolo-shards extract "$ROOM/raw" --out "$ROOM/files" > "$ROOM/log" 2>&1
is $? 78 "--out is there already: exit 78"
kolo-shards extract "$ROOM/raw" --out "$ROOM/few" --limit 5 --json > "$ROOM/log" 2>&1
like "$ROOM/log" '"samples":5,' "--limit"
kolo-shards merge "$ROOM/raw" "$ROOM/raw2" --out "$ROOM/double" > "$ROOM/log" 2>&1 &&
    kolo-shards extract "$ROOM/double" --out "$ROOM/duplicates" > "$ROOM/log" 2>&1
is "$(find "$ROOM/duplicates" -name '*.png' | wc -l)" 80 "two samples of one name become two files"
if command -v h5dump > /dev/null; then
    printf '\000\377\001' | dd of="$ROOM/raw2/$(basename "$ROOM/raw2"/*.h5)" bs=1 seek="$(h5dump -H -p -d \
        /images "$ROOM/raw2"/*.h5 2> /dev/null |
        sed -n 's/.*OFFSET \([0-9]*\).*/\1/p')" conv=notrunc 2> /dev/null
    kolo-shards extract "$ROOM/raw2" --out "$ROOM/no" > "$ROOM/log" 2>&1
    is $? 2 "a changed byte: exit 2"
    [ ! -e "$ROOM/no" ] && [ ! -e "$ROOM/no.partial" ]
    ok $? "a changed byte: no files"
else
    skip "no h5dump"
fi
done_testing
