#!/usr/bin/env bash
# Pipelines whose batches change their shape: every stage has a plan for each, and one rank's bytes.
# shellcheck source=tests/lib.sh
. "$(dirname "$0")/../lib.sh"
# shellcheck source=tests/pipeline.sh
. tests/pipeline.sh

alone drawn multi_scale=16-32:8:1
is "$(losses "$first" | wc -l)" 3 "three steps, each of a side of its own"
same 3 multi_scale=16-32:8:1 stages=3 pipeline=interleaved chunks=2
same 4 multi_scale=16-32:8:1 stages=2 pipeline=zero_bubble
alone parts multi_scale=8-16:8:1 spatial=1x3 # the last maps of 8 pixels have two columns: norms in one part
same 2 multi_scale=8-16:8:1 spatial=1x3 stages=2 pipeline=zero_bubble
ramps=(epochs=3 "batch_ramp=0:16,1:32" "size_ramp=0:24,2:16")
alone ramps "${ramps[@]}"
same 4 "${ramps[@]}" stages=2
rm -rf "$ROOM/chain"
for stop in 5 7; do
    timeout 60 mpiexec -n 3 kolo train "${args[@]}" "${ramps[@]}" run="$ROOM/chain" stages=3 \
        stop_step=$stop > "$ROOM/log" 2>&1
    is $? 75 "a stop at step $stop, in the first phase or behind its end" "$ROOM/log"
done
timeout 60 mpiexec -n 2 kolo train "${args[@]}" "${ramps[@]}" run="$ROOM/chain" stages=2 > "$ROOM/log" 2>&1
is $? 0 "other stages go on from there" "$ROOM/log"
cmp "$(tensors_of "$first")" "$(tensors_of "$ROOM/chain")" > "$ROOM/log" 2>&1
ok $? "to the same bytes" "$ROOM/log"

# --- the networks that draw sizes by default
kolo-pack --source scenes --split train --count 8 --out "$ROOM/scenes" > "$ROOM/log" 2>&1
is $? 0 "images with boxes" "$ROOM/log"
args=(yolox_nano_small data="$ROOM/scenes" size=64 multi_scale=64-96:32:1 val=none epochs=1 batch=4
    micro_batch=2 reduce=canonical bn=ghost conv=direct deterministic=true threads=1)
alone yolox
same 2 stages=2
done_testing
