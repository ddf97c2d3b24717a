#!/usr/bin/env bash
# kolo-shards verify and manifest in their details; boxes in show; shards without any tool of kolo.
. "$(dirname "$0")/../lib.sh"
need kolo-pack kolo-shards
kolo-pack --source scenes --count 60 --shards 3 --out "$ROOM/s" > "$ROOM/log" 2>&1 || exit 1
kolo-shards verify "$ROOM/s" --decode --json > "$ROOM/log" 2>&1
ok $? "verify --decode"
like "$ROOM/log" '"whole":true,"samples":60,"of":60,"bad":0,.*"decoded":true' "--json says what was done"
kolo-shards verify "$ROOM/s" --sample 9 > "$ROOM/log" 2>&1
like "$ROOM/log" ': 9 of 60 samples ' "--sample looks at so many"
kolo-shards verify "$ROOM/s" --sample 9 --full > "$ROOM/log" 2>&1
is $? 78 "--sample and --full contradict each other: exit 78"

# files that were kept are those of the source
kolo-shards show "$ROOM/s" --help > "$ROOM/log" && mkdir -p "$ROOM/files/a" "$ROOM/files/b"
for i in 0 1 2 3; do
    kolo-shards show "$ROOM/s" --index $i --plain --out "$ROOM/files/a/$i.jpg" &&
        kolo-shards show "$ROOM/s" --index $((i + 4)) --plain --out "$ROOM/files/b/$i.jpg"
done > "$ROOM/log" 2>&1
kolo-pack --source imagefolder --in "$ROOM/files" --out "$ROOM/kept" > "$ROOM/log" 2>&1
kolo-shards verify "$ROOM/kept" --against "$ROOM/files" > "$ROOM/log" 2>&1
ok $? "verify --against the source"
like "$ROOM/log" '; 8 are the source.s files, 0 were made anew' "all of them kept their bytes"
printf 'x' >> "$ROOM/files/b/2.jpg"
kolo-shards verify "$ROOM/kept" --against "$ROOM/files" > "$ROOM/log" 2>&1
is $? 2 "a file that differs: exit 2"
like "$ROOM/log" 'made from b/2.jpg\): is not the file of this name' \
    "a file that differs: the message names it"

# a box outside of its image, written by somebody else: the table's checksum tells, and
# without it the box itself
cp -r "$ROOM/s" "$ROOM/box"
at=$(h5dump -H -p -d /box "$ROOM/box/scenes-train-00000-of-00003.h5" 2> /dev/null |
    sed -n 's/.*OFFSET \([0-9]*\).*/\1/p')
if [ -n "$at" ]; then
    # -12288
    printf '\000\000\100\306' | dd of="$ROOM/box/scenes-train-00000-of-00003.h5" bs=1 seek="$at" \
        conv=notrunc 2> /dev/null
    kolo-shards verify "$ROOM/box" > "$ROOM/log" 2>&1
    is $? 2 "a changed table: exit 2"
    like "$ROOM/log" 'box/scenes-train-00000-of-00003.h5: its tables and attributes have checksum' \
        "a changed table: found by the shard's checksum"
    "$BUILD/tests/shard_seal" "$ROOM/box/scenes-train-00000-of-00003.h5" &&
        kolo-shards verify "$ROOM/box" > "$ROOM/log" 2>&1
    is $? 2 "a changed table with a checksum of its own: exit 2"
    like "$ROOM/log" 'tables do not have the manifest.s checksum' \
        "a changed table with a new checksum: found by the manifest's"
    kolo-shards manifest "$ROOM/box" --force > "$ROOM/log" 2>&1 &&
        kolo-shards verify "$ROOM/box" > "$ROOM/log" 2>&1
    is $? 2 "a box that leaves its image: exit 2"
    like "$ROOM/log" 'box 0 \(-12288.00 .*\) leaves an image of' "box and image are named"
else
    skip "no h5dump"
fi

# shards of before: read, and said to be without the checksum
kolo-shards info "$ROOM/s" > "$ROOM/log" 2>&1
like "$ROOM/log" '^checksums   of every sample, and of all tables and attributes$' \
    "info: which checksums there are"
kolo-shards verify "$ROOM/s" > "$ROOM/log" 2>&1
! grep -q without "$ROOM/log"
ok $? "verify has nothing to say of shards with a checksum of their tables"
cp -r "$ROOM/s" "$ROOM/old" && "$BUILD/tests/shard_seal" "$ROOM/old/scenes-train-00001-of-00003.h5" old
kolo-shards verify "$ROOM/old" > "$ROOM/log" 2>&1
ok $? "verify: a shard of format 1.1 is read"
like "$ROOM/log" '; 1 of 3 shards without a checksum of its tables' \
    "verify: a shard of format 1.1 is reported as without a checksum of its tables"
kolo-shards info "$ROOM/old" > "$ROOM/log" 2>&1
like "$ROOM/log" '^checksums   of every sample; 1 of 3 shards without one of its tables' "info says so too"
kolo-shards reshard "$ROOM/old" --shards 2 --out "$ROOM/new" > "$ROOM/log" 2>&1 &&
    kolo-shards info "$ROOM/new" > "$ROOM/log" 2>&1
like "$ROOM/log" 'all tables and attributes$' "reshard gives it one"

# a file that damage has reached passes nothing on
cp -r "$ROOM/s" "$ROOM/mean"
at=$(h5dump -H -p -d /stats/mean "$ROOM/mean/scenes-train-00000-of-00003.h5" 2> /dev/null |
    sed -n 's/.*OFFSET \([0-9]*\).*/\1/p')
if [ -n "$at" ]; then
    "$BUILD/tests/flip_bit" "$ROOM/mean/scenes-train-00000-of-00003.h5" $((at * 8 + 52)) > "$ROOM/log"
    kolo-pack --source scenes --count 9 --stats-from "$ROOM/mean" --out "$ROOM/val" > "$ROOM/log" 2>&1
    is $? 2 "kolo-pack --stats-from a split with damaged statistics: exit 2"
    like "$ROOM/log" 'tables and attributes have checksum' \
        "kolo-pack --stats-from a split with damaged statistics: the message says why"
    rm "$ROOM/mean/scenes-train.index"
    kolo-shards manifest "$ROOM/mean" > "$ROOM/log" 2>&1
    is $? 2 "kolo-shards manifest of damaged shards: exit 2"
else
    skip "no h5dump"
fi

cp -r "$ROOM/s" "$ROOM/m" && sed -i '3s/ ok$/ no/' "$ROOM/m/scenes-train.index"
kolo-shards info "$ROOM/m" > "$ROOM/log" 2>&1
is $? 2 "an edited manifest: exit 2"
like "$ROOM/log" "checksum differs.*kolo-shards manifest $ROOM/m --force" \
    "an edited manifest: the message has the cure"
kolo-shards manifest "$ROOM/m" --force > "$ROOM/log" 2>&1 &&
    cmp "$ROOM/m/scenes-train.index" "$ROOM/s/scenes-train.index" > "$ROOM/log" 2>&1
ok $? "which makes the same bytes anew"
rm "$ROOM/m/scenes-train.index"
kolo-shards info "$ROOM/m" > "$ROOM/log" 2>&1
is "$? $(grep -c "kolo-shards manifest $ROOM/m" "$ROOM/log")" "2 1" "no manifest: exit 2, and the cure"
kolo-shards manifest "$ROOM/m" > "$ROOM/log" 2>&1
ok $? "manifest"
cmp "$ROOM/m/scenes-train.index" "$ROOM/s/scenes-train.index" > "$ROOM/log" 2>&1
ok $? "makes the same bytes anew"
kolo-shards manifest "$ROOM/m" > "$ROOM/log" 2>&1
is $? 78 "does not replace one unasked: exit 78"
mv "$ROOM/m/scenes-train-00001-of-00003.h5" "$ROOM/kept/"
kolo-shards manifest "$ROOM/m" --force > "$ROOM/log" 2>&1
is $? 2 "a missing shard: exit 2"
like "$ROOM/log" 'shard 1 of 3 is missing' "a missing shard: the message names it"
kolo-shards manifest "$ROOM/kept" --force > "$ROOM/log" 2>&1
is $? 2 "a shard of another packing: exit 2"

kolo-shards show "$ROOM/s" --index 3 --out "$ROOM/drawn.png" > "$ROOM/log" &&
    kolo-shards show "$ROOM/s" --index 3 --plain --out "$ROOM/plain.png" > "$ROOM/log2"
! cmp -s "$ROOM/drawn.png" "$ROOM/plain.png"
ok $? "show draws boxes"
like "$ROOM/log" '^  box [a-z]+: [0-9.]+ [0-9.]+ to [0-9.]+ [0-9.]+$' "show draws boxes: lists them"
for command in info verify show stats extract subset merge reshard manifest convert bench; do
    kolo-shards $command --help > "$ROOM/log" 2>&1 && grep -q "^usage: kolo-shards $command " "$ROOM/log" ||
        echo "$command"
done > "$ROOM/log2"
is "$(cat "$ROOM/log2")" "" "every command has --help"

FILE=$ROOM/s/scenes-train-00000-of-00003.h5
if command -v h5ls > /dev/null && command -v h5dump > /dev/null; then
    h5ls -r "$FILE" > "$ROOM/log" 2>&1
    ok $? "h5ls"
    like "$ROOM/log" '^/box_offset +Dataset \{21\}' "lists the tables"
    h5dump -d /classes/name "$FILE" > "$ROOM/log" 2>&1
    ok $? "h5dump"
    like "$ROOM/log" '"stripes\\000", "triangle"' "reads the classes"
else
    skip "no h5ls, h5dump"
fi
if python3 -c 'import h5py' 2> /dev/null; then
    is "$(python3 -c \
        'import h5py, sys; f = h5py.File(sys.argv[1]);
print(len(f["label"]), f["box"].shape[1], f["bytes"][0], f["bytes"][1], f.attrs["encoding"].decode())' \
        "$FILE")" \
        "20 4 255 216 jpeg" "h5py"
else
    skip "no h5py"
fi
done_testing
