#!/usr/bin/env bash
# recompute=: the bytes of the run that keeps all its activations, whatever is computed again, in every mode;
# a process within memory= where its plan can be, and refused with the least that would do where it cannot.
# shellcheck source=tests/lib.sh
. "${BASH_SOURCE[0]%/*}/../lib.sh"
# shellcheck source=tests/forms.sh
. tests/forms.sh
forms='recompute=.*; [1-9][0-9]* operations run again'
planned() { # OPTIONS...: bytes of a rank, with stages of the largest
    kolo plan "${args[@]}" "$@" 2> "$ROOM/log" | sed -n 's/^memory of a rank: \([0-9]*\) bytes.*/\1/p'
}
number_of() { sed -n "s/.*\"$1\": *\([0-9]*\).*/\1/p" "$ROOM/again/summary.json"; }
plainly all
same recompute=blocks
same recompute=all
# What a process holds beside its plan is planned for in steps of 4 MiB: the activations are larger than that.
large=(size=32 batch=64 micro_batch=32 val=none)
whole=$(planned "${large[@]}")
least=$(planned "${large[@]}" recompute=all)
ok $((least < whole - (16 << 20) ? 0 : 1)) "recompute=all plans $least bytes of $whole"
some=$(((whole + least) / 2))
plainly large "${large[@]}"
same recompute=auto memory=$some "${large[@]}"
ok $(($(number_of peak_bytes) <= some ? 0 : 1)) "memory=$some: the process took $(number_of peak_bytes)"
like "$ROOM/log" 'a copy of what is saved does not fit: training waits' \
    "the checkpoint, whose bytes are those of a copy, was written from where things are"
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
    plain=$ROOM/large
    budget=$(planned stages=2 ranks=2 recompute=all "${large[@]}")
    same recompute=auto stages=2 memory="$budget" "${large[@]}"
    # adamw, an average and running statistics, of two ranks: a budget that all but the copy fits into
    saved=(optimizer=adamw ema=0.9 "${large[@]}")
    plainly copied "${saved[@]}"
    is "$(grep -c 'a copy of what is saved' "$ROOM/log")" 0 "the plain run copies what it saves"
    rm -rf "$ROOM/again" && run again "${saved[@]}" recompute=auto memory=$((whole - (4 << 20)))
    is $? 0 "2 ranks within $((whole - (4 << 20))) bytes" "$ROOM/log"
    like "$ROOM/log" 'a copy of what is saved does not fit' "which have no room for a copy"
    cmp "$(tensors_of "$plain")" "$(tensors_of "$ROOM/again")" > "$ROOM/cmp" 2>&1
    ok $? "the checkpoint has the same bytes" "$ROOM/cmp"
    plain=$ROOM/scales
    same recompute=all multi_scale=16-48:16:1 steps=4 epochs=0 stages=2
    start=()
else
    skip "no mpiexec"
fi

# --- memory=
for share in 100 75 50 30; do
    budget=$((least + (whole - least) * share / 100))
    bytes=$(planned "${large[@]}" recompute=auto memory=$budget)
    ok $((${bytes:-0} > 0 && bytes <= budget ? 0 : 1)) "memory=$budget: a rank of $bytes bytes"
done
# the fastest cut is a clock's, but one that keeps to memory= is taken where there is one
for cut in layer1.1 layer3.1; do
    budget=$(($(planned "${large[@]}" stages=2 ranks=2 cut=$cut) + (4 << 20))) # a process is rounded to 4 MiB
    bytes=$(planned "${large[@]}" stages=2 ranks=2 memory="$budget")
    ok $((${bytes:-0} > 0 && bytes <= budget ? 0 : 1)) "what cut=$cut needs, $budget bytes: a cut of $bytes" \
        "$ROOM/log"
done
kolo plan "${args[@]}" "${large[@]}" recompute=auto memory=$some > "$ROOM/plan" 2>&1
is $? 0 "kolo plan recompute=auto"
like "$ROOM/plan" '^  beside its plan: [0-9]+ bytes of batches, [0-9]+ .* about [0-9]+ of the process' \
    "says what a rank holds beside its plan, and where that is known from"
like "$ROOM/plan" \
    "^recompute=auto: [0-9]+ of [0-9]+ activations kept, .* MiB; [0-9]+ operations run again, [0-9.]+ ms" \
    "says what is kept, and the time"
like "$ROOM/plan" "none could take less than [0-9.]+ ms" "and a bound of it"
like "$ROOM/plan" "^checked" "and is checked"
refused "memory=$some: a rank needs [0-9]+ bytes, .* short; use recompute=auto \(down to [0-9]+\)" \
    memory=$some "${large[@]}"
refused "memory=64KiB: a rank needs .* short; recompute=all would need [0-9]+" memory=64KiB
refused "memory=64KiB: a rank needs .* short; that is the least of recompute=, lower micro_batch" \
    memory=64KiB recompute=auto
refused "memory=lots: give a number of bytes" memory=lots recompute=auto
refused "memory=120%: give a number of bytes" memory=120% recompute=auto
[ ! -e "$ROOM/refused" ]
ok $? "none of them made a run folder"
run auto batch=auto micro_batch=0 bn=local reduce=fast recompute=auto memory=$((whole * 2)) epochs=1
is $? 0 "batch=auto and recompute=auto together" "$ROOM/log"
# most of so little memory is the process, which the search has to know of, too
little=(shapes data=synthetic val=none model=resnet20 size=16 threads=1 deterministic=true)
bytes=$(kolo plan "${little[@]}" batch=16 | sed -n 's/^memory of a rank: \([0-9]*\) .*/\1/p')
kolo plan "${little[@]}" batch=auto memory="$bytes" > "$ROOM/log" 2>&1
is "$(grep -o 'batch=auto: [0-9]* images' "$ROOM/log")" "batch=auto: 16 images" \
    "batch=auto with the memory that 16 images take: 16 images, said once" || diag < "$ROOM/log"
kolo plan "${little[@]}" batch=auto memory=20MiB recompute=auto > "$ROOM/log" 2>&1
is "$? $(grep -c . "$ROOM/log") $(grep -c 'not even 8 images' "$ROOM/log")" "78 1 1" \
    "with less than the process takes: refused in one line" || diag < "$ROOM/log"
done_testing
