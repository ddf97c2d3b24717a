#!/usr/bin/env bash
# Training at several sizes: a ramp, and YOLOX-nano on photos whose size changes from step to step; stopped
# and resumed they have the bytes of one that was not. What does not fit in a later phase is said before the
# first step. More of ramps is long/phases.t.
# shellcheck source=tests/lib.sh
. "${BASH_SOURCE[0]%/*}/../lib.sh"
need kolo kolo-pack
shapes_data 48 8
export OMP_NUM_THREADS=1 KOLO_CACHE=$ROOM/cache
common="deterministic=true conv=direct threads=1 progress=0"
ramp="share/recipes/shapes.yaml data=$ROOM/data/train val=none epochs=2 size=24 warmup=0 lr=.02 batch=16"
ramp+=" batch_ramp=1:24 size_ramp=0:16,1:24 $common"
train() { # RUN KEY=VALUE...
    kolo train "${@:2}" run="$ROOM/$1" > "$ROOM/$1.log" 2>&1
}
same() { [ -d "$ROOM/$1/checkpoints" ] && [ "$(weights_sum "$ROOM/$1")" = "$(weights_sum "$ROOM/$2")" ]; }

# shellcheck disable=SC2086
{
    SLURM_MEM_PER_NODE=128 train whole $ramp
    is $? 0 "a ramp of batch and image size"
    like "$ROOM/whole/events.jsonl" '"event":"phase","step":3,"epoch":1,"batch":24,"width":24,"height":24' \
        "changes at its border"
    train cut $ramp stop_step=4
    is $? 75 "stopped in its second phase"
    train cut $ramp
    is $? 0 "the interrupted run with size_ramp resumes: exit 0"
    same whole cut
    ok $? "interrupted and whole run with size_ramp: the same weights"
    SLURM_MEM_PER_NODE=128 train large $ramp size_ramp=0:16,1:512
    is $? 78 "a later phase that does not fit"
    like "$ROOM/large.log" 'cannot hold the job' "a later phase that does not fit: the message says so"
    ok "$([ -e "$ROOM/large/events.jsonl" ] && echo 1 || echo 0)" \
        "a later phase that does not fit: no step was done"
    SLURM_MEM_PER_NODE=96 train auto share/recipes/shapes.yaml data=synthetic val=none batch=auto threads=1 \
        steps=1 progress=0
    is $? 0 "batch=auto takes no batch that is refused, whatever algorithms a clock chooses" "$ROOM/auto.log"
    train neither $ramp size_ramp= multi_scale=24-16
    is $? 78 "sides that are none"
    like "$ROOM/neither.log" 'multi_scale=24-16 is not LOW-HIGH' "multi_scale=24-16: the message has the form"
    train both $ramp multi_scale=16-48
    like "$ROOM/both.log" 'multi_scale=16-48 and size_ramp=0:16,1:24: give one' "a ramp and drawn sides"
}
# shellcheck disable=SC2086
kolo plan share/recipes/shapes.yaml data=synthetic batch=8 multi_scale=16-32:8 $common > "$ROOM/plan" 2>&1
like "$ROOM/plan" '^epoch 0 on: batch 8, images of 16 to 32 in steps of 8, drawn every 10 steps' \
    "kolo plan tells the phase"
is "$(grep -c '^plan [012]: 1 x 8 images of' "$ROOM/plan")" 3 "kolo plan with three sizes: three plans"

DATA=$KOLO_SHARED/data/detection/coco-json
if [ -d "$DATA" ]; then
    kolo-pack --source coco-json --in "$DATA" --split train --limit 4 --out "$ROOM/photos" > "$ROOM/log" 2>&1
    photos="model=yolox_nano size=32 multi_scale=32-64:32:1 batch=2 lr=.01 mosaic=1 mosaic_mixup=1 hsv=1"
    photos+=" flip=true close_mosaic=1 epochs=3 data=$ROOM/photos val=none $common"
    # shellcheck disable=SC2086
    {
        train yolox $photos
        is $? 0 "YOLOX-nano on photos of sides that are drawn"
        train yolox_cut $photos readers=1 stop_step=3
        is $? 75 "stopped"
        train yolox_cut $photos readers=2
        same yolox yolox_cut
        ok $? "a detector with multi_scale resumed with other readers: the same weights"
        train yolox_one $photos multi_scale= && ! same yolox yolox_one
        ok $? "a detector without multi_scale: other weights"
    }
else
    skip "no photos with boxes here"
fi
done_testing
