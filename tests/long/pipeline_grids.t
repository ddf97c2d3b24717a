#!/usr/bin/env bash
# Short runs of a pipeline on every grid, in every order, with all that is decided of all gradients: the bytes
# of one rank, or of as many ranks as replicas. tests/mpi/pipeline*.t have each behaviour once. 2 minutes.
# shellcheck source=tests/lib.sh
. "$(dirname "$0")/../lib.sh"
# shellcheck source=tests/pipeline.sh
. tests/pipeline.sh
orders=(pipeline=gpipe pipeline=1f1b "pipeline=interleaved chunks=2" pipeline=zero_bubble)
grids=("2 stages=2" "3 stages=3" "4 stages=2")

every() { # OPTIONS...: on every grid in every order
    local grid order ranks stages words
    for grid in "${grids[@]}"; do
        read -r ranks stages <<< "$grid"
        for order in "${orders[@]}"; do
            read -ra words <<< "$order"
            same "$ranks" "$@" "$stages" "${words[@]}"
        done
    done
}
alone all
every
grids=("2 stages=2" "3 stages=3") # as many micro-batches as there are, in one pipeline
for m in "micro_batch=16" "micro_batch=32" "batch=25 micro_batch=5"; do
    read -ra words <<< "$m"
    alone "${words[-1]}" "${words[@]}"
    every "${words[@]}"
done
grids=("3 stages=3" "4 stages=2") # three replicas have no power of two of the micro-batches
orders=(pipeline=1f1b pipeline=zero_bubble)
for what in "clip_norm=0.5 ema=0.9" "noise_scale=true layer_decay=0.8" "optimizer=lamb lr=0.01" \
    "multi_scale=16-32:8:1"; do
    read -ra words <<< "$what"
    alone "${words[0]}" "${words[@]}"
    every "${words[@]}"
done

# --- sums over replicas within a step, by all grids that have two of them
grids=("4 stages=2" "6 stages=3")
orders=(pipeline=1f1b "pipeline=interleaved chunks=2" pipeline=zero_bubble)
for what in "bn=sync" "bn=sync clip_norm=0.5 multi_scale=16-32:8:1" \
    "bn=local reduce=adasum optimizer=adamw lr=0.01 clip_norm=1 ema=0.9" \
    "reduce=fast compression=bf16 compression_within=true" \
    "reduce=fast compression=fp16 compression_within=true"; do
    read -ra words <<< "$what"
    held "held" 2 "${words[@]}"
    every "${words[@]}"
    rm -rf "$first"
done

# --- what compression holds back is taken up again by the same grid
for kind in int8 powersgd topk; do
    packed=(reduce=fast compression="$kind" compression_within=true cut=layer2.0 stages=2)
    held "$kind" 4 "${packed[@]}"
    for stop in stop_step=2 stop_step=0; do
        timeout 60 mpiexec -n 4 kolo train "${args[@]}" "${packed[@]}" run="$ROOM/again" $stop > \
            "$ROOM/log" 2>&1
    done
    cmp "$(tensors_of "$first")" "$(tensors_of "$ROOM/again")" > "$ROOM/log" 2>&1
    ok $? "$kind, 4 ranks of 2 stages, stopped at step 2 and resumed: the same bytes" "$ROOM/log"
    rm -rf "$ROOM/again"
done
done_testing
