#!/usr/bin/env bash
# data= and run= that name the wrong folder, and shards that verify rejects: each is said
# by name at the start.
# shellcheck source=tests/lib.sh
. "${BASH_SOURCE[0]%/*}/../lib.sh"
need kolo kolo-pack kolo-shards
export OMP_NUM_THREADS=1
shapes_data 64 16
train() { # WORDS...: its status; what it says is in $ROOM/log
    kolo train val=none model=mlp size=8 batch=16 steps=2 deterministic=true run="$ROOM/run" \
        data="$ROOM/data/train" "$@" > "$ROOM/log" 2>&1
}
train data="$ROOM/data"
is $? 2 "data= names the parent of the splits: exit 2"
like "$ROOM/log" "did you mean data=$ROOM/data/train val=$ROOM/data/val\\?" "both are offered"
mkdir -p "$ROOM/one" && cp -r "$ROOM/data/val" "$ROOM/one/test"
train data="$ROOM/one"
like "$ROOM/log" "$ROOM/one is no data set, but $ROOM/one/test is one" "the only split in it is offered"
mkdir -p "$ROOM/raw/train/cat" && cp share/doc/shapes.jpg "$ROOM/raw/train/cat/1.jpg"
for folder in "$ROOM/raw" "$ROOM/raw/train" "$ROOM/raw/train/cat"; do
    train data="$folder"
    is $? 2 "data= names images, ${folder#"$ROOM/"}: exit 2"
    like "$ROOM/log" \
        "$folder is a folder of images, not a data set; pack it by .kolo-pack --source imagefolder --in $folder --out FOLDER" \
        "a folder of images: the message has the kolo-pack line"
done
mkdir -p "$ROOM/begun/.pack"
train data="$ROOM/begun"
like "$ROOM/log" "packing has not finished; run the same kolo-pack with --resume" \
    "a packing that has not finished is told from that"

for run in "$ROOM/data/train" "$ROOM/data/train/run" "$ROOM/data/val/a/b"; do
    train run="$run"
    is $? 78 "run=${run#"$ROOM/"} is in a split: exit 78"
    like "$ROOM/log" "run=$run lies in the data set $ROOM/data/(train|val), " \
        "run= within a split: the message names both folders"
done
(cd "$ROOM/data/train" && train run=here)
is $? 78 "a relative path into a split, too"
is "$(find "$ROOM/data" -type d | wc -l)" 3 "run= within a split: no folder is created"

# --- shards that verify rejects
cp -r "$ROOM/data/train" "$ROOM/hurt"
shard=$(find "$ROOM/hurt" -name '*.h5')
train data="$ROOM/hurt"
is $? 0 "a whole split: exit 0"
! grep -q warning "$ROOM/log"
ok $? "a whole split: no warning"
mkdir "$ROOM/hurt/.pack" && touch "$ROOM/hurt/.pack/journal"
train run="$ROOM/run2" data="$ROOM/hurt"
like "$ROOM/log" "warning: $ROOM/hurt: a packing into this folder has not finished" \
    "a packing that goes on beside it: a warning"
rm -r "$ROOM/hurt/.pack"
# the last byte of the samples, which end where the file's tables begin or end; found by looking for
# one that verify misses
at=$(($(stat -c %s "$shard") - 40000))
while kolo-shards verify "$ROOM/hurt" > "$ROOM/verify" 2>&1; do
    printf '\377\0\377\0' | dd of="$shard" bs=1 seek=$at conv=notrunc 2> "$ROOM/dd"
    at=$((at - 1000))
    [ $at -gt 0 ] || break
done
like "$ROOM/verify" "checksum .* the bytes were changed" "a sample was changed"
train run="$ROOM/run3" data="$ROOM/hurt"
like "$ROOM/log" "warning: $shard: sample [0-9]+ does not have its checksum" "training warns of it by name"
train run="$ROOM/run5" data="$ROOM/hurt" steps=4
is $? 2 "an epoch that comes to it: exit 2"
like "$ROOM/log" \
    "sample [0-9]+ \\(number [0-9]+ of $shard, made from .*: its bytes have crc32c [0-9a-f]{8}, stored is" \
    "a damaged sample in training: the message names sample and shard"
train run="$ROOM/run6" data="$ROOM/hurt" epochs=1 steps=0 max_bad=1
is $? 0 "max_bad=1: exit 0"
like "$ROOM/run6/events.jsonl" '"bad_samples":1[,}]' "max_bad=1: events count one bad sample"
kolo eval val="$ROOM/hurt" run="$ROOM/run6" max_bad=1 > "$ROOM/log" 2>&1
is $? 2 "an evaluation of it: exit 2, whatever max_bad is"
like "$ROOM/log" "number [0-9]+ of $shard, .*: its bytes have crc32c" \
    "a damaged sample in validation: the message names sample and shard"
train run="$ROOM/run7" data="$ROOM/hurt" data_cache=ram
is $? 2 "data_cache=ram: exit 2"
cp "$ROOM/data/train/"*.h5 "$shard"
truncate -s -1000 "$shard"
train run="$ROOM/run4" data="$ROOM/hurt"
is $? 2 "a shard that was cut off: exit 2"
like "$ROOM/log" "$shard: HDF5 cannot open it: truncated" "a truncated shard: the message names it"
done_testing
