#!/usr/bin/env bash
# Orders, cache and staging in runs: the same numbers where they promise them, nothing left
# behind, one event an epoch.
. "$(dirname "$0")/../lib.sh"
shapes_data 600 64
train() { # RUN OPTION...
    local run=$1
    shift
    kolo train model=lenet5 size=32 data="$ROOM/data/train" run="$ROOM/$run" epochs=3 batch=96 lr=0.02 \
        bn=ghost micro_batch=24 \
        reduce=canonical conv=direct threads=1 "$@" > "$ROOM/$run.log" 2>&1
}
losses() { sed -n 's/.*"event":"step".*"loss":\([^,]*\),.*/\1/p' "$ROOM/$1/events.jsonl"; }
field() { sed -n 's/.*"event":"data".*"'"$2"'":\([^,}]*\)[,}].*/\1/p' "$ROOM/$1/events.jsonl"; }
segments() { find /dev/shm -maxdepth 1 -name "kolo-data-$(id -u)-*" | wc -l; }
before=$(segments)

train plain
is "$(losses plain | wc -l)" 18 "three epochs of six steps"
is "$(field plain step | xargs)" "6 12 18" "one event of data an epoch"
is "$(field plain samples | xargs) $(field plain cache_hits |
    xargs)" "576 576 576 0 0 0" "it counts samples, none of them from a cache"
is "$(field plain busy | awk '$1 >= 0 && $1 <= 1' | wc -l)" 3 \
    "one event of data an epoch: says how busy the rank was"

train cached data_cache=ram
is "$(losses cached)" "$(losses plain)" "data_cache=ram changes no number"
is "$(field cached cache_hits | xargs)" "576 576 576" "every sample is a hit"
like "$ROOM/cached/summary.json" '"cache_hits": 1728' "the summary adds them up"
is "$(segments)" "$before" "the segment is gone"

mkdir "$ROOM/disk"
train staged staging="$ROOM/disk"
is "$(losses staged)" "$(losses plain)" "staging= changes no number"
like "$ROOM/staged.log" 'of 1 shards 1 copied' "the shard is copied"
TMPDIR=$ROOM/disk train again staging=tmpdir staging_keep=false
like "$ROOM/again.log" 'of 1 shards 0 copied .* 1 there already' "stage again: the copy is used"
is "$(find "$ROOM/disk" -name '*.h5*' | wc -l)" 0 "staging_keep=false: the copy is removed"

train block shuffle=block:16:2
[ "$(losses block)" != "$(losses plain)" ]
ok $? "shuffle=block:16:2 is another order"
if ranks_start; then
    mpiexec -n 2 kolo train model=lenet5 size=32 data="$ROOM/data/train" run="$ROOM/two" epochs=3 batch=96 \
        lr=0.02 bn=ghost micro_batch=24 \
        reduce=canonical conv=direct threads=1 shuffle=block:16:2 data_cache=ram > "$ROOM/two.log" 2>&1
    is "$(losses two)" "$(losses block)" "two ranks with data_cache=ram: the same losses"
    is "$(field two samples | xargs) $(field two cache_hits |
        xargs)" "576 576 576 576 576 576" "their samples are added up"
else
    skip "no mpiexec" && skip "no mpiexec"
fi
train local shuffle=local:0.25
is "$(field local samples | xargs)" "576 576 576" "shuffle=local:0.25"

train stopped shuffle=block:16:2 stop_step=8
train stopped shuffle=block:16:2 stop_step=0
is "$(losses stopped)" "$(losses block)" "a run that stops in an epoch and goes on sees the same order"
is "$(field stopped steps | xargs)" "6 2 4 6" "its events cover each part"
train stopped shuffle=full
is $? 78 "another order is refused"
like "$ROOM/stopped.log" 'shuffle' "another order is refused: the message names it"
train wrong shuffle=block:x
is $? 78 "a rule that is none"
done_testing
