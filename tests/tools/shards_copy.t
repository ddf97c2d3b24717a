#!/usr/bin/env bash
# kolo-shards reshard, merge, subset: the same samples with all that belongs to them, whole or not at all.
. "$(dirname "$0")/../lib.sh"
need kolo-pack kolo-shards
TARGETS=$BUILD/tests/targets
[ -x "$TARGETS" ] || skip_all "no $TARGETS"
sums() { (cd "$1" && sha256sum -- *); }
# every sample with its boxes on one line, without its number: what must not change with the order
loose() { "$TARGETS" "$1" | awk \
    '{ $2 = "" } $1 == "sample" { if (line) print line; line = $0; next } { line = line " " $0 }
      END { print line }' \
    |
    sort; }
kolo-pack --source scenes --count 60 --shards 3 --out "$ROOM/a" > "$ROOM/log" 2>&1 || exit 1
kolo-pack --source scenes --count 40 --shards 1 --shuffle-seed 3 --out "$ROOM/b" > "$ROOM/log" 2>&1 || exit 1
kolo-pack --source shapes --count 50 --size 16 --shards 2 --out "$ROOM/raw" > "$ROOM/log" 2>&1 || exit 1

kolo-shards reshard "$ROOM/a" --out "$ROOM/a7" --shards 7 --threads 3 > "$ROOM/log" 2>&1
ok $? "reshard"
like "$ROOM/log" '60 samples, 10 classes, .* in 7 shards' "says what was written"
is "$("$TARGETS" "$ROOM/a7" | cksum)" "$("$TARGETS" "$ROOM/a" |
    cksum)" "samples, boxes and transforms are the same, in the same order"
kolo-shards verify "$ROOM/a7" > "$ROOM/log" 2>&1
ok $? "reshard into 7: verify exits 0"
kolo-shards reshard "$ROOM/a" --out "$ROOM/a7b" --shards 7 --threads 1 > "$ROOM/log" 2>&1
is "$(sums "$ROOM/a7b")" "$(sums "$ROOM/a7")" "one thread writes the same bytes as three"
kolo-shards reshard "$ROOM/a" --out "$ROOM/mixed" --shards 2 --reshuffle 9 > "$ROOM/log" 2>&1
is "$(loose "$ROOM/mixed" | cksum)" "$(loose "$ROOM/a" |
    cksum)" "--reshuffle: every sample is there with its boxes"
[ "$("$TARGETS" "$ROOM/mixed" | head -n 40)" != "$("$TARGETS" "$ROOM/a" | head -n 40)" ]
ok $? "--reshuffle: another order"
kolo-shards reshard "$ROOM/raw" --out "$ROOM/raw1" --shards 1 > "$ROOM/log" 2>&1 &&
    kolo-shards verify "$ROOM/raw1" > "$ROOM/log" 2>&1
ok $? "raw images too"

kolo-shards merge "$ROOM/a" "$ROOM/b" --out "$ROOM/ab" --name both --shards 3 > "$ROOM/log" 2>&1
ok $? "merge"
is "$(loose "$ROOM/ab" | cksum)" "$({ loose "$ROOM/a" && loose "$ROOM/b"; } | sort |
    cksum)" "has the samples of both"
kolo-shards verify "$ROOM/ab" > "$ROOM/log" 2>&1
ok $? "merge: verify exits 0"
kolo-shards merge "$ROOM/a" "$ROOM/raw" --out "$ROOM/no" > "$ROOM/log" 2>&1
is $? 2 "JPEG and raw: exit 2"
like "$ROOM/log" 'raw, 16 x 16.*do not go into one split' "JPEG and raw: the message has the difference"

# background: the images of scenes once more, as a folder, which has no boxes
kolo-pack --source scenes --count 12 --no-shuffle --out "$ROOM/twelve" > "$ROOM/log" 2>&1
mkdir -p "$ROOM/folder/nothing"
for i in 0 1 2 3 4 5 6 7 8 9 10 11; do kolo-shards show "$ROOM/twelve" --index $i --plain --out \
    "$ROOM/folder/nothing/$(printf %02d $i).jpg"; done > "$ROOM/log" 2>&1
for case in "none" "letterbox --resize letterbox --size 40" "crop --size 32" \
    "exact --resize exact --size 40 --encoding jpeg"; do
    read -r name options <<< "$case"
    # shellcheck disable=SC2086
    kolo-pack --source scenes --count 12 --no-shuffle --out "$ROOM/boxed-$name" $options > "$ROOM/log" 2>&1
    # shellcheck disable=SC2086
    kolo-pack --source imagefolder --in "$ROOM/folder" --no-shuffle --shards 2 --out "$ROOM/plain-$name" \
        $options > "$ROOM/log" 2>&1
    kolo-shards merge "$ROOM/plain-$name" "$ROOM/boxed-$name" --out "$ROOM/background-$name" > "$ROOM/log" \
        2>&1
    ok $? "merge of boxed and unboxed images, $name"
    "$TARGETS" "$ROOM/background-$name" > "$ROOM/both"
    is "$(awk '$1 == "box" { print $3, $4, $5, $6, $7, $8 }' "$ROOM/both")" "$("$TARGETS" \
        "$ROOM/boxed-$name" | awk '$1 == "box" { print $3, $4, $5, $6, $7, $8 }')" \
        "all boxes are those of the boxed ones"
    is "$(awk '$1 == "sample" && $2 < 12 { print $8, $10, $11, $12, $13 }' "$ROOM/both")" "$(awk \
        '$1 == "sample" && $2 >= 12 { print $8, $10, $11, $12, $13 }' "$ROOM/both")" \
        "the others are unlabelled, with the same places of the same images"
    kolo-shards verify "$ROOM/background-$name" > "$ROOM/log" 2>&1
    ok $? "background-$name: verify exits 0"
done
kolo-shards info "$ROOM/background-none" > "$ROOM/info"
is "$(grep -c ' nothing ' "$ROOM/info")" 0 "the folder's class is left aside"
kolo-shards merge "$ROOM/plain-crop" "$ROOM/plain-crop" --out "$ROOM/twice" > "$ROOM/log" 2>&1
kolo-shards merge "$ROOM/twice" "$ROOM/boxed-crop" --out "$ROOM/no" > "$ROOM/log" 2>&1
is $? 2 "cropped images of which it is not known how: exit 2"
like "$ROOM/log" 'not come straight from kolo-pack: it cannot be background' \
    "cropped images of which it is not known how: the message says so"

kolo-shards subset "$ROOM/raw" --classes star,circle --out "$ROOM/two" --json > "$ROOM/log" 2>&1
like "$ROOM/log" '"samples":10,' "subset by classes"
kolo-shards info "$ROOM/two" > "$ROOM/log" &&
    like "$ROOM/log" '0 +star +5 ' "subset of two classes: numbered in the order that was given"
kolo-shards subset "$ROOM/a" --classes ring,star --out "$ROOM/boxes" > "$ROOM/log" 2>&1
ok $? "subset by classes of boxes"
kolo-shards info "$ROOM/a" > "$ROOM/log"
want=$(awk '$2 == "ring" || $2 == "star" { n += $3 } END { print n }' "$ROOM/log")
is "$("$TARGETS" "$ROOM/boxes" | grep -c '^box')" "$want" "subset of two classes: only their boxes are left"
is "$("$TARGETS" "$ROOM/boxes" | awk \
    '$1 == "sample" && seen && !n { empty++ } $1 == "sample" { seen = 1; n = 0 } $1 == "box" { n++ }
      END { print empty + 0 }')" \
    0 \
    "and only samples that have one"
kolo-shards subset "$ROOM/a" --limit 7 --out "$ROOM/seven" > "$ROOM/log" 2>&1
is "$("$TARGETS" "$ROOM/seven" | grep -c '^sample')" 7 "subset by number"
"$TARGETS" "$ROOM/seven" | awk '$1 == "sample" { print $3 }' > "$ROOM/list"
kolo-shards subset "$ROOM/a" --list "$ROOM/list" --out "$ROOM/listed" > "$ROOM/log" 2>&1
is "$("$TARGETS" "$ROOM/listed" | cksum)" "$("$TARGETS" "$ROOM/seven" | cksum)" "subset by list"
echo scene/none.jpg >> "$ROOM/list"
kolo-shards subset "$ROOM/a" --list "$ROOM/list" --out "$ROOM/no" > "$ROOM/log" 2>&1
is $? 2 "a listed image that is not there: exit 2"
like "$ROOM/log" 'first scene/none.jpg' "a listed image that is not there: the message names it"
kolo-shards subset "$ROOM/a" --classes rung --out "$ROOM/no" > "$ROOM/log" 2>&1
is $? 78 "an unknown class: exit 78"

kolo-shards reshard "$ROOM/a" --out "$ROOM/b" --shards 2 > "$ROOM/log" 2>&1
is $? 78 "--out is there already: exit 78"
kolo-shards reshard "$ROOM/a" --out "$ROOM/no" --shars 2 > "$ROOM/log" 2>&1
is $? 78 "an unknown option: exit 78"
like "$ROOM/log" 'did you mean --shards' "the nearest is offered"
kolo-shards reshard "$ROOM/a" --out "$ROOM/no" --shards 61 > "$ROOM/log" 2>&1
is $? 78 "more shards than samples: exit 78"
mkdir "$ROOM/no.partial" && touch "$ROOM/no.partial/letter"
kolo-shards reshard "$ROOM/a" --out "$ROOM/no" --shards 2 > "$ROOM/log" 2>&1
is $? 78 "a folder of another in the way: exit 78"
[ -e "$ROOM/no.partial/letter" ]
ok $? "a folder of another in the way: is left alone"
rm -r "$ROOM/no.partial" && mkdir "$ROOM/no.partial" &&
    touch "$ROOM/no.partial/lock" "$ROOM/no.partial/scenes-train-00000-of-00009.h5"
kolo-shards reshard "$ROOM/a" --out "$ROOM/again" --shards 2 > "$ROOM/log" 2>&1 &&
    mv "$ROOM/no.partial" "$ROOM/again2.partial" &&
    kolo-shards reshard "$ROOM/a" --out "$ROOM/again2" --shards 2 > "$ROOM/log" 2>&1
is "$(sums "$ROOM/again2")" "$(sums "$ROOM/again")" "what a killed run left is begun again"
if [ -w /dev/full ] && [ -d /dev/shm ] && mkdir -p "$ROOM/small" &&
    mount -t tmpfs -o size=1m none "$ROOM/small" 2> /dev/null; then
    at_end "umount '$ROOM/small'"
    kolo-shards merge "$ROOM/a" "$ROOM/b" "$ROOM/ab" --out "$ROOM/small/x" > "$ROOM/log" 2>&1
    is $? 3 "no room: exit 3"
    is "$(ls "$ROOM/small")" "" "no room: nothing is left there"
else
    skip "no file system of a given size can be mounted"
fi
LFW=$KOLO_SHARED/data/lfw
if [ -e "$LFW/pairs_folds1-2.txt" ] && kolo-pack --help | grep -q '^  lfw'; then
    kolo-pack --source lfw --in "$LFW/crop150" --annotations "$LFW/pairs_folds1-2.txt" --shards 3 --out \
        "$ROOM/lfw" > "$ROOM/log" 2>&1
    kolo-shards reshard "$ROOM/lfw" --shards 2 --reshuffle 5 --out "$ROOM/lfw2" > "$ROOM/log" 2>&1
    ok $? "pairs of real faces in another order"
    kolo-shards extract "$ROOM/lfw" --out "$ROOM/lfw.files" > "$ROOM/log" 2>&1 &&
        kolo-shards extract "$ROOM/lfw2" --out "$ROOM/lfw2.files" > "$ROOM/log" 2>&1
    is "$(cksum < "$ROOM/lfw2.files/pairs-view2.tsv")" "$(cksum < "$ROOM/lfw.files/pairs-view2.tsv")" \
        "resharded pairs: the same images"
    is "$(wc -l < "$ROOM/lfw2.files/pairs-view2.tsv")" 1200 "all 1200 of them"
    kolo-shards subset "$ROOM/lfw" --limit 300 --out "$ROOM/few" > "$ROOM/log" 2>&1 &&
        kolo-shards extract "$ROOM/few" --out "$ROOM/few.files" > "$ROOM/log" 2>&1
    find "$ROOM/few.files" -name '*.jpg' | sed "s|^$ROOM/few.files/||" | sort > "$ROOM/list"
    is "$(sort "$ROOM/few.files/pairs-view2.tsv" | cksum)" \
        "$(awk -F '\t' 'NR == FNR { have[$1]; next } $1 in have && $2 in have' "$ROOM/list" \
        "$ROOM/lfw.files/pairs-view2.tsv" | sort | cksum)" \
        "a subset keeps the pairs of which both images are there"
else
    skip "no LFW here"
fi
FILE=$ROOM/a/scenes-train-00001-of-00003.h5
at=$(grep -abo -m 1 JFIF "$FILE" | head -n 1 | cut -d: -f 1)
printf '\377\377' | dd of="$FILE" bs=1 seek=$((at + 20000)) conv=notrunc 2> /dev/null
kolo-shards reshard "$ROOM/a" --out "$ROOM/no" --shards 2 > "$ROOM/log" 2>&1
is $? 2 "a changed byte in the input: exit 2"
like "$ROOM/log" '00001-of-00003.h5: sample [0-9]+: checksum' "shard and sample are named"
[ ! -e "$ROOM/no" ] && [ ! -e "$ROOM/no.partial" ]
ok $? "shard and sample are named: nothing is left of the output"
done_testing
