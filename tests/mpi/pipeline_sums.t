#!/usr/bin/env bash
# Pipelines whose replicas sum within a step: each holds to the bytes of the same run without stages on as
# many ranks as replicas.
# shellcheck source=tests/lib.sh
. "$(dirname "$0")/../lib.sh"
# shellcheck source=tests/pipeline.sh
. tests/pipeline.sh

# --- batch norm over the replicas
alone sync1 bn=sync
held sync2 2 bn=sync
cmp -s "$(tensors_of "$ROOM/sync1")" "$(tensors_of "$ROOM/sync2")"
is $? 1 "its statistics are of all ranks: two give other bytes than one"
same 6 bn=sync stages=3 pipeline=zero_bubble
held sizes 2 bn=sync multi_scale=16-32:8:1 clip_norm=0.5
same 4 bn=sync multi_scale=16-32:8:1 clip_norm=0.5 stages=2 pipeline=interleaved chunks=2

# --- steps instead of gradients, each replica with an optimizer's state of its own
ada=(reduce=adasum bn=local optimizer=adamw lr=0.01 clip_norm=1 ema=0.9)
held adasum 2 "${ada[@]}"
same 4 "${ada[@]}" stages=2 pipeline=zero_bubble
carried=$(cksum < "$(dirname "$(tensors_of "$first")")/carried")
step=0
for grid in "4 stages=2" "2" "6 stages=3"; do
    read -r ranks stages <<< "$grid"
    step=$((step + 1))
    timeout 60 mpiexec -n "$ranks" kolo train "${args[@]}" "${ada[@]}" run="$ROOM/grids" stop_step=$step \
        ${stages:+"$stages"} > "$ROOM/log" 2>&1
    is $? $((step < 3 ? 75 : 0)) "$ranks ranks $stages go on with it" "$ROOM/log"
done
cmp "$(tensors_of "$first")" "$(tensors_of "$ROOM/grids")" > "$ROOM/log" 2>&1
ok $? "to the same bytes" "$ROOM/log"
is "$(cksum < "$(dirname "$(tensors_of "$ROOM/grids")")/carried")" "$carried" \
    "and the same state of every replica"
held lamb 3 "${ada[@]}" batch=48 optimizer=lamb
same 6 "${ada[@]}" batch=48 optimizer=lamb stages=2

# --- compressed gradients: what rounds element by element has the bytes of the run without stages, what
# works on the slices of buckets, which stages cut elsewhere, is near it
loss_of() { losses "$1" | awk '$1 == 2 { print $2 }'; }
held dense 2 reduce=fast
dense=$(loss_of "$first")
packed=(reduce=fast compression=bf16 compression_within=true)
held bf16 2 "${packed[@]}"
same 4 "${packed[@]}" stages=2
for kind in int8 powersgd topk; do
    packed=(reduce=fast compression="$kind" compression_within=true cut=layer2.0 stages=2)
    first=$ROOM/$kind
    timeout 60 mpiexec -n 4 kolo train "${args[@]}" "${packed[@]}" run="$first" > "$ROOM/log" 2>&1
    is $? 0 "4 ranks, ${packed[*]}" "$ROOM/log"
    awk -v a="$(loss_of "$first")" -v b="$dense" \
        'BEGIN { d = a - b; exit !(d * d > 0 && d * d < (0.1 * b) ^ 2) }'
    ok $? "$kind: behind the first update the loss is near that without compression, and another"
    [ $kind != int8 ] || continue # tests/long/pipeline_grids.t
    timeout 60 mpiexec -n 4 kolo train "${args[@]}" "${packed[@]}" run="$ROOM/$kind.cut" \
        stop_step=2 > "$ROOM/log" 2>&1
    is $? 75 "$kind: stopped" "$ROOM/log"
    timeout 60 mpiexec -n 4 kolo train "${args[@]}" "${packed[@]}" run="$ROOM/$kind.cut" > "$ROOM/log" 2>&1
    cmp "$(tensors_of "$first")" "$(tensors_of "$ROOM/$kind.cut")" >> "$ROOM/log" 2>&1
    ok $? "$kind: what was held back is taken up again, to the same bytes" "$ROOM/log"
done
rm -rf "$ROOM/topk.cut/checkpoints/step-0000000003"
timeout 60 mpiexec -n 2 kolo train "${args[@]}" "${packed[@]}" run="$ROOM/topk.cut" > "$ROOM/log" 2>&1
is $? 0 "one replica goes on from there" "$ROOM/log"
done_testing
