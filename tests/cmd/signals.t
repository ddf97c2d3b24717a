#!/usr/bin/env bash
# Signals in the middle of a matrix product: its numbers are not written over. oneDNN keeps them further below
# the stack pointer than a signal's frame leaves alone, so Kolo's handlers have a stack of their own.
# shellcheck source=tests/lib.sh
. "${BASH_SOURCE[0]%/*}/../lib.sh"
need kolo kolo-pack
export OMP_NUM_THREADS=1
shapes_data 64 32
T=(kolo train shapes data="$ROOM/data/train" val="$ROOM/data/val" model=lenet5 size=28 batch=8 micro_batch=2
    threads=1 epochs=100 lr=0.02 deterministic=true)
weights() { cksum < "$(ls -d "$1"/checkpoints/step-* | sort | tail -1)/tensors.safetensors"; }

"${T[@]}" run="$ROOM/quiet" > "$ROOM/log" 2>&1
ok $? "a training" "$ROOM/log"
for run in 1 2 3; do
    LD_PRELOAD=$BUILD/tests/preload/many_signals.so timeout -s KILL 60 "${T[@]}" run="$ROOM/loud" \
        > "$ROOM/log" 2>&1
    ok $? "  with a signal every half millisecond, run $run: it ends" "$ROOM/log"
    is "$(weights "$ROOM/loud")" "$(weights "$ROOM/quiet")" "  with the same weights"
    rm -rf "$ROOM/loud"
done
done_testing
