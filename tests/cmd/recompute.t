#!/usr/bin/env bash
# recompute=: the bytes of the run that keeps all its activations, whatever is computed again, in every mode;
# a plan within memory= where one is there, and refused with the least that would do where none is.
# shellcheck source=tests/lib.sh
. "${BASH_SOURCE[0]%/*}/../lib.sh"
# shellcheck source=tests/forms.sh
. tests/forms.sh
forms='recompute=.*; [1-9][0-9]* operations run again'
planned() { # OPTIONS...: bytes of a rank's plan, with stages of the largest
    kolo plan "${args[@]}" "$@" 2> "$ROOM/log" | awk '/^  peak/ { if (!stages) print $2 }
        /^stage  ranks/ { stages = 1 }
        stages && /^ +[0-9]/ { if ($5 > most) most = $5; next }
        stages && most && !said { print most; said = 1 }'
}
plainly all
whole=$(planned val=none)
least=$(planned val=none recompute=all)
ok $((least < whole ? 0 : 1)) "recompute=all plans $least bytes of $whole"
some=$(((whole + least) / 2))
same recompute=blocks
same recompute=all
same recompute=auto memory=$some val=none
plainly folded clip_norm=0.5 ema=0.9 micro_batch=8 optimizer=lamb lr=0.01
same recompute=all clip_norm=0.5 ema=0.9 micro_batch=8 optimizer=lamb lr=0.01
plainly swa swa=1 epochs=2
same recompute=all swa=1 epochs=2
plainly scales multi_scale=16-48:16:1 steps=4 epochs=0
same recompute=all multi_scale=16-48:16:1 steps=4 epochs=0
if ranks_start; then
    start=(mpiexec -n 2)
    plainly sync bn=sync reduce=fast micro_batch=0 model=mobilenet_v3_small dropout=0.2
    same recompute=all bn=sync reduce=fast micro_batch=0 model=mobilenet_v3_small dropout=0.2
    plain=$ROOM/all
    same recompute=blocks
    same recompute=all stages=2 micro_batch=16
    same recompute=blocks stages=2 pipeline=zero_bubble
    same recompute=all stages=2 pipeline=interleaved chunks=2
    same recompute=auto stages=2 memory="$(planned stages=2 ranks=2 recompute=all val=none)" val=none
    plain=$ROOM/scales
    same recompute=all multi_scale=16-48:16:1 steps=4 epochs=0 stages=2
    start=()
else
    skip "no mpiexec"
fi

# --- memory=
for share in 100 75 50 25 0; do
    budget=$((least + (whole - least) * share / 100))
    bytes=$(planned val=none recompute=auto memory=$budget)
    ok $((${bytes:-0} > 0 && bytes <= budget ? 0 : 1)) "memory=$budget: a plan of $bytes bytes"
done
# the fastest cut is a clock's, but one that keeps to memory= is taken where there is one
for cut in layer1.1 layer3.1; do
    budget=$(planned val=none stages=2 ranks=2 cut=$cut)
    bytes=$(planned val=none stages=2 ranks=2 memory="$budget")
    ok $((${bytes:-0} > 0 && bytes <= budget ? 0 : 1)) "cut=$cut needs $budget bytes: a cut of $bytes" \
        "$ROOM/log"
done
kolo plan "${args[@]}" val=none recompute=auto memory=$some > "$ROOM/plan" 2>&1
is $? 0 "kolo plan recompute=auto"
like "$ROOM/plan" \
    "^recompute=auto: [0-9]+ of [0-9]+ activations kept, .* MiB; [0-9]+ operations run again, [0-9.]+ ms" \
    "says what is kept, and the time"
like "$ROOM/plan" "none could take less than [0-9.]+ ms" "and a bound of it"
like "$ROOM/plan" "^checked" "and is checked"
refused "memory=$some: a rank needs [0-9]+ bytes, .* short; use recompute=auto \(down to [0-9]+\)" \
    memory=$some
refused "memory=64KiB: a rank needs .* short; recompute=all would need [0-9]+" memory=64KiB
refused "memory=64KiB: a rank needs .* short; that is the least of recompute=, lower micro_batch" \
    memory=64KiB recompute=auto
refused "memory=lots: give a number of bytes" memory=lots recompute=auto
refused "memory=120%: give a number of bytes" memory=120% recompute=auto
[ ! -e "$ROOM/refused" ]
ok $? "none of them made a run folder"
run auto batch=auto micro_batch=0 bn=local reduce=fast recompute=auto memory=$((whole * 2)) epochs=1
is $? 0 "batch=auto and recompute=auto together" "$ROOM/log"
done_testing
