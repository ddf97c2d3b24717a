#!/usr/bin/env bash
# sync=async: gradients are pushed to the ranks that serve the weights, none waits. What is promised of it:
# one rank is plain SGD, staleness bounded and reported, checkpoints that go on. The arithmetic, and kills:
# tests/unit/exec_async.c; a slow rank, and two nodes: tests/long/async.t.
# shellcheck source=tests/lib.sh
. "${BASH_SOURCE[0]%/*}/../lib.sh"
need kolo kolo-pack mpiexec
cd "$ROOM" || exit 1
shapes_data 96 32
export OMP_NUM_THREADS=1
T=(kolo train shapes data=data/train val=data/val model=lenet5 size=28 batch=24 threads=1 lr=0.02
    deterministic=true epochs=3 bind=none)
ranks() { # N RUN WORDS...
    timeout 60 mpiexec -n "$1" "${T[@]}" run="$2" "${@:3}" > log 2>&1
}
staleness() { # RUN: the largest; how many are told of
    sed -n 's/.*"event":"step".*"staleness":\[\([^]]*\)\].*/\1/p' "$1/events.jsonl" | tr , '\n' |
        awk '$1 > most { most = $1 } END { print most + 0, NR }'
}

"${T[@]}" run=plain > log 2>&1
"${T[@]}" run=alone sync=async > log 2>&1
is "$? $(weights_sum alone)" "0 $(weights_sum plain)" "one rank alone: the bytes of plain SGD"
ranks 3 three sync=async ema=0.9 clip_norm=5
ok $? "three ranks" log
is "$(staleness three | cut -d' ' -f2)" 36 "  the staleness of every gradient is told of"
is "$(losses three | wc -l)" 12 "  and the loss of every step"
is "$(sed -n 's/.*"counts": \[\(.*\)\].*/\1/p' three/summary.json | tr , '\n' |
    awk '{ n += $1 } END { print n }')" 36 "  summary.json counts them"
kolo report three > log 2>&1
like three/report.html 'Updates that gradients lacked: mean' "  and so does the report"
ranks 3 bound sync=async staleness=2 optimizer=adamw staleness_lr=true lr=0.001
ok $? "staleness=2, adamw, rates by staleness" log
is "$(staleness bound)" "2 36" "  no gradient lacks more than 2 updates"
ranks 3 tight sync=async staleness=1 optimizer=lars
is "$? $(staleness tight)" "0 1 36" "staleness=1 of three ranks: a third waits for its turn"
ranks 2 parts sync=async momentum=0.9 stop_step=5
is $? 75 "stopped behind step 5" log
cp -r parts more
ranks 2 parts sync=async momentum=0.9
ok $? "  and taken up again" log
is "$(staleness parts | cut -d' ' -f2)" 24 "  every gradient is told of once"
ranks 3 more sync=async momentum=0.9
ok $? "  or on three ranks" log

# servers of their own
ranks 3 served sync=async servers=2
is "$? $(weights_sum served)" "0 $(weights_sum plain)" "one rank trains, two serve: plain SGD's bytes" log
is "$(losses served)" "$(losses plain)" "  and its losses"
ranks 3 apart sync=async servers=1 optimizer=adamw lr=0.001 ema=0.9 stop_step=5
is $? 75 "two train, one serves; stopped behind step 5" log
cp -r apart others
ranks 3 apart sync=async servers=1 optimizer=adamw lr=0.001 ema=0.9
is "$? $(staleness apart | cut -d' ' -f2)" "0 24" "  and taken up again: every gradient is told of once" log
ranks 4 others sync=async servers=2 optimizer=adamw lr=0.001 ema=0.9
is "$? $(losses others | wc -l)" "0 12" "  or by two that train and two that serve" log
ranks 3 refused sync=async servers=1 batch=25
is $? 78 "a batch is divided among those that train"
like log 'batch=25 cannot be divided over 2 ranks that train' "  which 25 cannot be"

kolo compare three plain out=both.svg > log 2>&1
like both.svg 'three.*(sync=async)' "the drawing of kolo compare says which weights are late"
like log 'ranks push gradients as they come, and lack any number of updates \(sync=async\)' \
    "kolo compare says so"
kolo plan shapes data=data/train batch=32 ranks=4 epochs=2 sync=async staleness=6 > log 2>&1
like log 'asynchronous: 4 ranks push gradients and pull weights.*a gradient lacks at most 6 updates' \
    "kolo plan says what is late"
kolo plan shapes data=data/train batch=32 ranks=6 epochs=2 sync=async servers=2 > log 2>&1
like log 'servers: ranks 4 to 5 serve the weights, a part each, and do not' "  and who serves"
like log 'asynchronous: 4 ranks push gradients.* 3 where all ranks are alike' "  and who trains"
kolo plan shapes data=data/train batch=32 ranks=6 epochs=2 sync=async servers=2 --json > log 2>&1
is "$(sed -n 's/.*"communication":{"bytes":\([0-9]\{7\}\),.*/\1/p' log | cut -c1-2)" 86 \
    "  and what is sent: by four workers 1.08 MB of gradients, and to them as much of weights"
refused() { # PATTERN WORDS...
    kolo plan shapes data=data/train batch=32 ranks=2 epochs=2 "${@:2}" > log 2>&1
    is "$? $(grep -cE -- "$1" log)" "78 1" "${*:2}: refused, $1" || sed 's/^/# /' log
}
for with in reduce=adasum bn=sync local_steps=4 compression=bf16 shard=optimizer stages=2 reduce=canonical \
    noise_scale=true loss_scale=8 swa=1 shuffle=local data_server=s offload=optimizer; do
    refused "sync=async does not go with (${with%%=*}|loss scaling)" sync=async $with
done
refused 'staleness_lr=true: with sync=stale' sync=stale staleness=1 staleness_lr=true
refused 'staleness=9: sync=stale keeps as many copies' sync=stale staleness=9
refused 'backup=: with sync=async' sync=async backup=1
refused 'servers=2 of 2 ranks: servers do not train' sync=async servers=2
refused 'servers=1: with sync=synchronous no rank serves' servers=1
done_testing
