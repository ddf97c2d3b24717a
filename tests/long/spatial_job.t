#!/usr/bin/env bash
# The template of large images on a real Slurm: four parts on the ranks of two nodes, warned in the middle and
# requeued; the losses and weights of one rank that computes all parts.
# shellcheck source=tests/lib.sh
. "$(dirname "$0")/../lib.sh"
cluster 2 2 2
for split in train val; do
    kolo-pack --source shapes --split $split --count 64 --size 40 --resize exact --out "$ROOM/data/$split" > \
        "$ROOM/pack.log" 2>&1
    is $? 0 "images of 40 x 40 pixels, $split" "$ROOM/pack.log"
done
recipe=(epochs=2 threads=1 checkpoint_steps=1000 eval_epochs=1)
export KOLO_RECIPE=shapes KOLO_DATASET=$ROOM/data KOLO_BATCH=4 KOLO_ARGS="${recipe[*]}"
job=$(KOLO_RUN=$ROOM/parts sbatch --parsable --nodes=2 --ntasks-per-node=2 --time=00:20:00 \
    --output="$ROOM/parts.out" "$TOP/jobs/highres_spatial.sh")
for ((i = 0; i < 600; i++)); do
    [ "$(losses "$ROOM/parts" 2> /dev/null | wc -l)" -ge 3 ] && break
    sleep 0.1
done
scancel --batch --signal=USR1 "$job"
kolo train shapes data="$ROOM/data/train" val="$ROOM/data/val" run="$ROOM/alone" spatial=2x2 batch=4 \
    micro_batch=1 crop=none size=0 val_size=0 val_resize=0 bn=ghost reduce=canonical "${recipe[@]}" > \
    "$ROOM/log" 2>&1
is $? 0 "one rank computes all parts" "$ROOM/log"
is "$(await "$job")" COMPLETED "highres_spatial.sh, warned in the middle: requeued, and ends with 0"
like "$ROOM/parts.out" "kolo train shapes .* spatial=2x2 batch=4 micro_batch=1 " "two nodes of two tasks"
like "$ROOM/parts.out" "requeued \(warned\); it goes on from step [1-9]" "the log says so"
is "$(losses "$ROOM/parts" | cksum) $(weights_sum "$ROOM/parts")" \
    "$(losses "$ROOM/alone" | cksum) $(weights_sum "$ROOM/alone")" "losses and weights are those of one rank"
done_testing
