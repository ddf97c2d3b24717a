#!/usr/bin/env bash
# kolo train, eval and bench with device=cuda, on the stand-in for a GPU: the CPU's figures, refusals. The
# same bits, replayed or not, stopped or not: resnet.t.
# shellcheck source=tests/lib.sh
. "$(dirname "$0")/../lib.sh"
standin_gpu
export KOLO_CACHE=$ROOM/cache
shapes_data 96 40
common=(shapes model=mlp "data=$ROOM/data/train" "val=$ROOM/data/val" batch=16 epochs=2 lr=0.02 ema=0.9 \
    clip_norm=1 threads=1 deterministic=true)
train() { kolo train "${common[@]}" "$@" > "$ROOM/log" 2>&1; }
figures() { # RUN DIGITS: losses and validation figures
    sed -n 's/.*"event":"\(step\|eval\)","step":\([0-9]*\),.*"loss":\([0-9.e+-]*\),.*/\1 \2 \3/p' \
        "$ROOM/$1/events.jsonl" | awk -v d="$2" '{printf "%s %s %.*g\n", $1, $2, d, $3}'
}

train device=cpu run="$ROOM/cpu"
is $? 0 "on the CPU"
train device=cuda run="$ROOM/gpu"
is $? 0 "on the GPU"
like "$ROOM/log" "computing on Stand-in GPU .*, f32" "device=cuda: the GPU is named"
is "$(figures gpu 5)" "$(figures cpu 5)" \
    "losses of every step and validation of the averages, on the whole set, to five digits"
is "$(grep -c '"event":"step"' "$ROOM/gpu/events.jsonl")" 12 "every step is told once"
kolo eval shapes model=mlp val="$ROOM/data/val" run="$ROOM/gpu" ema=0.9 batch=16 threads=1 device=cpu > \
    "$ROOM/one" 2> "$ROOM/log"
kolo eval shapes model=mlp val="$ROOM/data/val" run="$ROOM/gpu" ema=0.9 batch=16 threads=1 device=cuda \
    precision=bf16 > "$ROOM/two" 2> "$ROOM/log"
is $? 0 "evaluation in bf16, whose weights are a copy"
is "$(grep -o '([0-9]* images' "$ROOM/two")" "$(grep -o '([0-9]* images' "$ROOM/one")" \
    "over the same images"

train device=cuda precision=fp16 run="$ROOM/fp16"
is $? 0 "fp16"
like "$ROOM/fp16/events.jsonl" '"event":"loss_scale".*"scale":65536' "fp16: events have the loss scale"
manifest=$(find "$ROOM/fp16/checkpoints" -name manifest.json | sort | tail -n 1)
like "$manifest" '"loss_scale": \{"scale": 65536, "good": 12, "skipped": 0\}' \
    "fp16: the manifest has the loss scale"
is "$(figures fp16 2)" "$(figures cpu 2)" "losses to two digits"

# --- refusals
kolo plan shapes precision=fp16 device=cpu > "$ROOM/log" 2>&1
is $? 78 "fp16 on a CPU: exit 78"
like "$ROOM/log" "precision=bf16" "fp16 on a CPU: the message names precision=bf16"
kolo plan shapes precision=tf32 device=cpu > "$ROOM/log" 2>&1
is $? 78 "tf32 on a CPU: exit 78"
STANDIN_DRIVER=0 kolo plan shapes device=cuda > "$ROOM/log" 2>&1
is $? 69 "no driver: exit 69"
like "$ROOM/log" "node .*device=cpu" "naming the node and the cure"
STANDIN_DRIVER=0 SLURM_GPUS_ON_NODE=1 kolo plan shapes > "$ROOM/log" 2>&1
is $? 69 "device=auto where the job was given GPUs: exit 69"
STANDIN_DRIVER=0 kolo plan shapes > "$ROOM/log" 2>&1
is $? 0 "device=auto where it was given none computes on the CPU"
STANDIN_MEMORY=1074000000 train device=cuda run="$ROOM/large"
is $? 78 "a plan that does not fit: exit 78"
like "$ROOM/log" "needs [0-9]+ bytes.* are free, [0-9]+ bytes short; lower micro_batch" \
    "a plan that does not fit: the message has the shortfall and micro_batch"
if ranks_start; then
    mpiexec -n 2 kolo bench train model=mlp size=8 batch=8 steps=3 threads=1 deterministic=true device=cuda \
        > "$ROOM/log" 2>&1
    is $? 69 "two ranks on one GPU: exit 69"
    like "$ROOM/log" "ranks 0 and 1 of node .* share_gpu=true" "both are named"
    mpiexec -n 2 kolo bench train model=mlp size=8 batch=8 steps=3 threads=1 deterministic=true device=cuda \
        share_gpu=true > "$ROOM/log" 2>&1
    is $? 0 "unless share_gpu=true"
    like "$ROOM/log" "img/s$" "share_gpu=true: the bench prints its rate"
else
    skip "no mpiexec"
fi
STANDIN_REPORT=$ROOM/report kolo bench train model=mlp size=8 batch=8 steps=6 threads=1 deterministic=true \
    device=cuda > "$ROOM/log" 2>&1
like "$ROOM/log" " f32, 1 x Stand-in GPU, .* host [0-9.]+\), peak .*img/s$" \
    "bench tells the GPU and what a step costs the host"
like "$ROOM/report" "^defects 0$" "the stand-in counted no defects"
like "$ROOM/report" "^leaks 0$" "the stand-in counted no leaks"
is "$(grep '^step 6 ' "$ROOM/report" | sed 's/queries=[0-9]* awaited=[0-9]* //')" \
    "step 6 allocations=0 synchronisations=0 launches=0 copies=5 pageable=0 events=4 creations=0 captures=0 graph_launches=1 host_functions=0" \
    "a step is one graph, five copies and four events: no allocation, no synchronisation"
done_testing
