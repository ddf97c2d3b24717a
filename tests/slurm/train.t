#!/usr/bin/env bash
# Training on a real Slurm: the same bits on any number of ranks, and sync and local norm equal to the same
# arithmetic on one rank.
# shellcheck source=tests/lib.sh
. "$(dirname "$0")/../lib.sh"
cluster 4 1
shapes_data 384 96
train() { # RUN RANKS ARGS...: one rank needs no srun
    local run=$ROOM/$1 ranks=$2 start=()
    shift 2
    [ "$ranks" = 1 ] || start=(srun --mpi=pmix --kill-on-bad-exit=1 -N "$ranks" -n "$ranks")
    "${start[@]}" kolo train shapes data="$ROOM/data/train" val=none run="$run" threads=1 "$@" > "$run.log" \
        2>&1 ||
        { tail -n 5 "$run.log" | sed 's/^/# /'; return 1; }
}

# --- reduce=canonical, ghost norm: the global batch, not the ranks, decides the bits
for ranks in 1 2 4; do
    train "canonical$ranks" $ranks batch=32 micro_batch=8 bn=ghost reduce=canonical steps=16
    ok $? "canonical: 16 steps on $ranks ranks of $ranks nodes"
done
for ranks in 2 4; do
    is "$(losses "$ROOM/canonical$ranks")" "$(losses "$ROOM/canonical1")" \
        "canonical: the same 16 losses on $ranks ranks as on one"
    is "$(weights_sum "$ROOM/canonical$ranks")" "$(weights_sum "$ROOM/canonical1")" \
        "canonical: the same weights on $ranks ranks as on one"
done
is "$(losses "$ROOM/canonical1" | wc -l)" 16 "every step has one event"

# --- sync and local: step 1 against the same arithmetic on one rank. With lr=1 and no momentum the change of
# a weight is its gradient.
one=(steps=1 lr=1 momentum=0 weight_decay=0 schedule=constant warmup=0 batch=24 conv=direct \
    deterministic=true)
train start 1 "${one[@]}" lr=0
train sync1 1 "${one[@]}" bn=local
for ranks in 1 2 3 4; do
    train "syncs$ranks" $ranks "${one[@]}" bn=sync
    ok $? "sync norm on $ranks ranks"
    "$BUILD/tests/compare" "$ROOM/start" "$ROOM/syncs$ranks" "$ROOM/sync1" 1e-5 1e-4 > "$ROOM/compare"
    ok $? "sync norm on $ranks ranks: $(tail -n 1 "$ROOM/compare")"
    train "local1of$ranks" 1 "${one[@]}" bn=ghost micro_batch=$((24 / ranks))
    train "local$ranks" $ranks "${one[@]}" bn=local
    "$BUILD/tests/compare" "$ROOM/start" "$ROOM/local$ranks" "$ROOM/local1of$ranks" 1e-5 1e-4 > \
        "$ROOM/compare"
    ok $? "local norm on $ranks ranks: $(tail -n 1 "$ROOM/compare")"
done

# --- two identical runs, the same bits, in every mode
for mode in "bn=local" "bn=sync" "bn=local precision=bf16" "bn=local micro_batch=8"; do
    name=${mode//[ =]/_}
    # shellcheck disable=SC2086
    train "a_$name" 2 batch=32 steps=10 $mode && train "b_$name" 2 batch=32 steps=10 $mode
    ok $? "two runs: $mode"
    is "$(losses "$ROOM/a_$name") $(weights_sum "$ROOM/a_$name")" "$(losses "$ROOM/b_$name") $(weights_sum \
        "$ROOM/b_$name")" "two runs, the same bits: $mode"
done

# --- bad starts
srun --mpi=none -N 2 -n 2 kolo train shapes data="$ROOM/data/train" run="$ROOM/none" steps=1 > \
    "$ROOM/none.log" 2>&1
is $? 69 "srun without PMIx: exit 69, not two runs of one rank"
like "$ROOM/none.log" "mpi=pmix" "srun without PMIx: the message names --mpi=pmix"
srun --mpi=pmix -K0 -N 3 -n 3 kolo train shapes data="$ROOM/data/train" run="$ROOM/odd" batch=32 steps=1 > \
    "$ROOM/odd.log" 2>&1
is $? 78 "a batch that the ranks do not divide: exit 78"
is "$(grep -c 'nearest' "$ROOM/odd.log")" 1 \
    "a batch that the ranks do not divide: one message, with the nearest"
done_testing
