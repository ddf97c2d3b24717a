#!/usr/bin/env bash
# The templates of pipelines on a real Slurm: stages over nodes, stages within nodes, a requeue in the
# middle, one run that goes from one layout to the other. The weights are those of one rank, byte for byte.
# shellcheck source=tests/lib.sh
. "$(dirname "$0")/../lib.sh"
cluster 2 2 2
shapes_data 256 64
recipe=(epochs=3 batch=32 threads=1 checkpoint_steps=1000 eval_epochs=1)
export KOLO_RECIPE=shapes KOLO_DATASET=$ROOM/data KOLO_MICRO_BATCH=8 KOLO_ARGS="${recipe[*]}"
submit() { # RUN TEMPLATE: job id
    KOLO_RUN=$ROOM/$1 sbatch --parsable --time=00:20:00 --output="$ROOM/$1.out" "$TOP/jobs/$2"
}
await_step() { # RUN STEP: until that step's event is there
    local i
    for ((i = 0; i < 600; i++)); do
        [ "$(losses "$ROOM/$1" 2> /dev/null | tail -n 1 | cut -d' ' -f1)0" -ge "${2}0" ] 2> /dev/null &&
            return 0
        sleep 0.1
    done
    return 1
}
# what depends on the numbers alone: losses of the steps, of the validations, the weights
result() {
    echo "$(losses "$ROOM/$1" | cksum) $(sed -n 's/"event":"eval"\(.*"top1":[^,}]*\).*/\1/p' \
        "$ROOM/$1/events.jsonl" | cksum) $(weights_sum "$ROOM/$1")"
}

# --- stages over nodes, warned of the time limit in the middle; then the same with stages within nodes
job=$(submit pipeline resnet_pipeline.sh)
await_step pipeline 5
scancel --batch --signal=USR1 "$job"
kolo train shapes data="$ROOM/data/train" val="$ROOM/data/val" run="$ROOM/plain" "${recipe[@]}" \
    micro_batch=8 bn=ghost reduce=canonical > "$ROOM/plain.log" 2>&1
ok $? "one rank computes the whole network" "$ROOM/plain.log"
is "$(await "$job")" COMPLETED "resnet_pipeline.sh, warned in the middle: requeued, and ends with 0"
like "$ROOM/pipeline.out" "kolo train shapes .* stages=2 stages_in_node=false micro_batch=8 " \
    "two nodes of one task: a stage on each"
like "$ROOM/pipeline.out" "requeued \(warned\); it goes on from step [1-9]" "the log says so"
like "$ROOM/pipeline.out" "resuming .* after step [1-9]" "it went on from its checkpoint"
is "$(result pipeline)" "$(result plain)" "losses, validations and weights are those of one rank"

job=$(KOLO_ARGS="$KOLO_ARGS stop_step=7" submit hybrid resnet_hybrid.sh)
is "$(await "$job")" FAILED "resnet_hybrid.sh is stopped after step 7"
like "$ROOM/hybrid.out" "kolo train shapes .* stages=2 stages_in_node=true micro_batch=8 " \
    "two nodes of two tasks: two stages on each"
like "$ROOM/hybrid.out" "4 ranks on 2 nodes|\"ranks\": 4" "on four ranks"
mv "$ROOM/hybrid.out" "$ROOM/hybrid.first"
is "$(await "$(KOLO_ARGS="$KOLO_ARGS pipeline=gpipe" submit hybrid resnet_pipeline.sh)")" COMPLETED \
    "resnet_pipeline.sh goes on with its run, in another order"
is "$(result hybrid)" "$(result plain)" "losses, validations and weights are those of one rank again"

# --- on GPUs by flags of sbatch alone; the stand-in is the GPU. Two steps, as that is slow
if [ -e "$BUILD/standin/libkolo_cuda.so" ]; then
    export KOLO_CUDA_LIBRARY=$BUILD/standin/libkolo_cuda.so STANDIN_DEVICES=2
    job=$(KOLO_ARGS="steps=2 batch=16 threads=1" KOLO_RUN=$ROOM/gpus sbatch --parsable --nodes=1 \
        --gpus-per-node=2 --ntasks-per-node=2 --output="$ROOM/gpus.out" "$TOP/jobs/resnet_hybrid.sh")
    is "$(await "$job")" COMPLETED "resnet_hybrid.sh on two GPUs of a node"
    like "$ROOM/gpus.out" "computing on Stand-in GPU" "and it computes on them"
    unset KOLO_CUDA_LIBRARY
else
    skip "the stand-in for a GPU is not built (make tests, with CUDA's headers)"
fi

# --- refused before a rank starts
is "$(await "$(KOLO_STAGES=1 submit one resnet_pipeline.sh)")" FAILED "one stage is no pipeline"
like "$ROOM/one.out" "ERROR: KOLO_STAGES=1 is no pipeline: sbatch --nodes=2" "and what to do is said"
done_testing
