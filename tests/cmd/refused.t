#!/usr/bin/env bash
# A start that is refused, or fails before its first step, touches nothing of a finished run.
# shellcheck source=tests/lib.sh
. "${BASH_SOURCE[0]%/*}/../lib.sh"
need kolo kolo-pack
export OMP_NUM_THREADS=1
shapes_data 64 16
kolo-pack --source shapes --split train --count 48 --out "$ROOM/other" > "$ROOM/log" 2>&1
small=(data="$ROOM/data/train" val="$ROOM/data/val" run="$ROOM/run" model=mlp size=8 batch=16 epochs=2 \
    deterministic=true)
kolo train "${small[@]}" > "$ROOM/log" 2>&1
is $? 0 "a run is done"
sums() { (cd "$ROOM/run" && find . -type f ! -name lock -exec cksum {} + | sort -k3); }
sums > "$ROOM/was"
refused() { # STATUS TEXT WORDS...
    local status=$1 text=$2
    shift 2
    kolo train "${small[@]}" "$@" > "$ROOM/log" 2>&1
    is $? "$status" "$text: exit $status"
    is "$(sums)" "$(cat "$ROOM/was")" "$text: every file of the finished run is as it was"
}
refused 78 "another learning rate" lr=0.5
like "$ROOM/log" 'numbers: lr: was [0-9.]+, now 0\.5\. Give the old' "what differs is said, in one line"
refused 78 "other data" data="$ROOM/other"
refused 2 "no such data" data="$ROOM/nowhere"
refused 78 "another network" model=lenet5
refused 78 "a mean of one channel" mean=.5 std=.5
like "$ROOM/log" 'has 1 numbers, the images have 3 channels: give as many' \
    "one mean for three channels: the message has both numbers"
refused 0 "the same again"
like "$ROOM/log" 'nothing to do' "a complete run started again: nothing to do"
# the checkpoints were moved away; summary and recipe are all that is left of the result
mv "$ROOM/run/checkpoints" "$ROOM/kept"
mkdir "$ROOM/run/checkpoints"
sums > "$ROOM/was"
refused 2 "without checkpoints, weights that are not there" lr=0.5 init="$ROOM/nowhere.safetensors"
# a recipe that never comes, and one that takes long to read
mkfifo "$ROOM/pipe.yaml"
timeout 60 kolo train "$ROOM/pipe.yaml" > "$ROOM/log" 2>&1
is $? 78 "a pipe as recipe into which nobody writes: exit 78"
like "$ROOM/log" "pipe.yaml: a pipe into which nobody has written for 5 s; give a file" \
    "a pipe as recipe that nobody writes: the message says after 5 s"
kolo train <(echo 'no_such_key: 1') > "$ROOM/log" 2>&1
like "$ROOM/log" 'unknown option "no_such_key"' "a pipe as recipe with an unknown key: the key is reported"
echo "mean: [$(seq -s ', ' 0.5 0.00001 1.49999)]" > "$ROOM/long.yaml"
(ulimit -t 5 && exec kolo train "$ROOM/long.yaml") > "$ROOM/log" 2>&1
is $? 78 "a list of 100,000 numbers: refused within 5 s of the CPU"
done_testing
