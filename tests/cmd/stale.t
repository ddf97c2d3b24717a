#!/usr/bin/env bash
# sync=stale: gradients that are applied late. A run that stops goes on with the bits of one that never did,
# with the steps that were under way; the grid changes nothing that it does not change without.
# shellcheck source=tests/lib.sh
. "${BASH_SOURCE[0]%/*}/../lib.sh"
need kolo kolo-pack mpiexec
cd "$ROOM" || exit 1
shapes_data 96 32
export OMP_NUM_THREADS=1
T=(kolo train shapes data=data/train val=data/val model=resnet20 size=16 batch=32 threads=1 lr=0.02
    deterministic=true epochs=3)
ranks() { # NUMBER RUN WORDS...
    timeout 100 mpiexec -n "$1" "${T[@]}" run="$2" "${@:3}" > log 2>&1
}
newest() { find "$1/checkpoints" -maxdepth 1 -name 'step-*' | sort | tail -n 1; }
alike() { # RUN RUN TEXT: all tensors of the newest checkpoints
    cmp -s "$(newest "$1")/tensors.safetensors" "$(newest "$2")/tensors.safetensors"
    ok $? "$3"
}
losses() { # RUN: STEP LOSS
    sed -n 's/.*"event":"step","step":\([0-9]*\),.*"loss":\([0-9.e+-]*\).*/\1 \2/p' "$1/events.jsonl"
}

ranks 2 whole sync=stale staleness=2
ok $? "staleness=2 on two ranks" log
is "$(losses whole | wc -l)" 9 "the losses of all 9 steps are reported"
ranks 2 parts sync=stale staleness=2 stop_step=5
is $? 75 "the same, stopped after step 5"
ranks 2 parts sync=stale staleness=2
alike parts whole "  and taken up again: the same bits"
none "  no step is said to have taken a minute" \
    "$(sed -n 's/.*"event":"step".*"seconds":\([0-9.e+-]*\).*/\1/p' parts/events.jsonl | awk '$1 > 60')"
is "$(losses parts)" "$(losses whole)" "  and the losses of all steps, each once"
ranks 2 lost sync=stale staleness=2
newest lost | xargs rm -rf
ranks 2 lost sync=stale staleness=2
like log 'resuming lost after step' "taken up where later steps were reported already"
alike lost whole "  the same bits"
is "$(losses lost)" "$(losses whole)" "  and the losses of all steps, each once"
ranks 2 blind sync=stale staleness=2 eval_epochs=3 checkpoint_steps=9
alike blind whole "a run with fewer validations and checkpoints: the same bits"
ranks 2 other sync=stale staleness=1
! cmp -s "$(newest other)/tensors.safetensors" "$(newest whole)/tensors.safetensors"
ok $? "staleness=1: others"

G=(reduce=canonical bn=ghost micro_batch=8 sync=stale staleness=1)
ranks 2 two "${G[@]}"
ranks 1 one "${G[@]}"
alike one two "reduce=canonical: the same bits on one rank and on two"
ranks 2 moved "${G[@]}" stop_step=4
ranks 1 moved "${G[@]}"
alike moved one "  and on one from where two have stopped"

kolo compare whole other > log 2>&1
is "$(grep -c 'gradients lack [12] updates* (sync=stale)' log)" 2 "kolo compare says so of each run"
kolo plan shapes data=data/train batch=32 ranks=2 epochs=2 sync=stale staleness=2 > log 2>&1
like log 'gradients are applied 2 steps late: .* 3 copies' "kolo plan says how late"
refused() { # PATTERN WORDS...
    kolo plan shapes data=data/train batch=32 ranks=2 epochs=2 "${@:2}" > log 2>&1
    is "$? $(grep -cE -- "$1" log)" "78 1" "${*:2}: refused, $1" || sed 's/^/# /' log
}
refused 'sync=stale does not go with reduce=adasum' sync=stale staleness=1 reduce=adasum
refused 'sync=stale does not go with bn=sync: ranks wait' sync=stale staleness=1 bn=sync
refused 'sync=stale does not go with local_steps=' sync=stale staleness=1 local_steps=4
refused 'sync=stale does not go with compression=' sync=stale staleness=1 compression=bf16
refused 'sync=stale does not go with shard=' sync=stale staleness=1 shard=optimizer
refused 'sync=stale does not go with stages=' sync=stale staleness=1 stages=2
refused 'sync=stale: by how many updates' sync=stale
refused 'staleness=1: with sync=synchronous' staleness=1
done_testing
