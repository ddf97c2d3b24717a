#!/usr/bin/env bash
# sync=backup: the last ranks of a step are dropped. What was is recorded, and a record gives the same bits
# again, also where a run stops. The arithmetic: tests/unit/exec_backup.c; ranks that are slow, and two nodes:
# tests/long/backup.t.
# shellcheck source=tests/lib.sh
. "${BASH_SOURCE[0]%/*}/../lib.sh"
need kolo kolo-pack mpiexec
cd "$ROOM" || exit 1
shapes_data 96 32
export OMP_NUM_THREADS=1
T=(kolo train shapes data=data/train val=data/val model=lenet5 size=28 batch=24 threads=1 lr=0.02
    deterministic=true epochs=3 bind=none)
ranks() { # RUN WORDS...
    timeout 60 mpiexec -n 3 "${T[@]}" run="$1" "${@:2}" > log 2>&1
}
alike() { is "$(weights_sum "$1")" "$(weights_sum "$2")" "$3"; } # RUN RUN TEXT
drops() { # RUN: how many ranks were dropped in how many steps
    grep '"event":"step"' "$1/events.jsonl" | sed -n 's/.*"dropped":\[\([^]]*\)\].*/\1/p' |
        awk -F, '{ n[NF]++ } END { for (k in n) print n[k] " x " k }'
}

ranks plain
ranks none sync=backup
ok $? "backup=0 on three ranks" log
alike none plain "  the bits of a run without"
is "$(drops none)" "12 x 0" "  nobody was dropped"
ranks one sync=backup backup=1
ok $? "backup=1" log
is "$(drops one)" "12 x 1" "one rank was dropped in each step"
is "$(sed -n 's/.*"dropped_by_rank": \[\(.*\)\].*/\1/p' one/summary.json | tr , '\n' |
    awk '{ n += $1 } END { print n, NR }')" "12 3" "  summary.json says how often each of three"
ranks again sync=backup backup=1 backup_replay=one staleness=1
ok $? "replayed" log
alike again one "  the same bits"
is "$(losses again)" "$(losses one)" "  and losses"
ranks again2 sync=backup backup=1 backup_replay=one epochs=4
is "$? $(grep -c 'has recorded 12 steps, this run has 16; give steps=12' log)" "78 1" \
    "a record of fewer steps is refused"
ranks again2 sync=backup backup=2 backup_replay=one
is "$? $(grep -c 'that run has backup= 1, this one 2' log)" "78 1" "a record of other backup= is refused"
timeout 60 mpiexec -n 2 "${T[@]}" run=again2 sync=backup backup=1 backup_replay=one > log 2>&1
is "$? $(grep -c 'that run has ranks: 3, this one 2' log)" "78 1" "a record of other ranks is refused"
ranks again2 sync=backup backup=1 backup_replay=plain
is "$? $(grep -c 'does not say which gradients counted in step 1' log)" "2 1" \
    "a run without a record is refused"

ranks parts sync=backup backup=1 stop_step=5
is $? 75 "stopped behind step 5" log
ranks parts sync=backup backup=1
ok $? "  and taken up again" log
is "$(drops parts)" "12 x 1" "  the record has every step once"
ranks whole sync=backup backup=1 backup_replay=parts
alike whole parts "  one run that goes by it: the same bits"

kolo compare one plain > log 2>&1
like log 'the last 1 rank of a step are dropped \(sync=backup\)' "kolo compare says so"
kolo plan shapes data=data/train batch=32 ranks=4 epochs=2 sync=backup backup=1 staleness=2 > log 2>&1
like log 'backup ranks: the first 3 gradients .* of 1 rank are dropped; others go 2 steps on .* 3 copies' \
    "kolo plan says what is dropped"
refused() { # PATTERN WORDS...
    kolo plan shapes data=data/train batch=32 ranks=2 epochs=2 "${@:2}" > log 2>&1
    is "$? $(grep -cE -- "$1" log)" "78 1" "${*:2}: refused, $1" || sed 's/^/# /' log
}
for with in reduce=adasum bn=sync local_steps=4 compression=bf16 shard=optimizer stages=2 reduce=canonical \
    noise_scale=true loss_scale=8 swa=1; do
    refused "sync=backup does not go with (${with%%=*}|loss scaling)" sync=backup backup=1 $with
done
refused 'backup=2 of 2 ranks: .* give backup=1 or less' sync=backup backup=2
refused 'backup=: with sync=synchronous' backup=1
refused 'backup_replay=: with sync=stale' sync=stale staleness=1 backup_replay=runs/first
done_testing
