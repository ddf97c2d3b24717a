#!/usr/bin/env bash
# ResNet-20 with small images, device=cuda on the stand-in for a GPU: the CPU's losses in every precision;
# the same bits replayed, launched one by one, in any order that a GPU may choose, after a resume, and on two
# ranks; what a step costs; an overflow in fp16.
# shellcheck source=tests/lib.sh
. "$(dirname "$0")/../lib.sh"
standin_gpu
export KOLO_CACHE=$ROOM/cache
shapes_data 96 16
common=(resnet20_cifar_small "data=$ROOM/data/train" "val=$ROOM/data/val" size=8 batch=8 steps=10 lr=0.0005 \
    ema=0.9 checkpoint_steps=5 threads=1)
RANKS=()
train() { # NAME ...: status in $?, words in $ROOM/NAME.log, the stand-in's report in $ROOM/NAME.report.*
    local name=$1
    shift
    STANDIN_REPORT="$ROOM/$name.report.%p" timeout -k 5 120 "${RANKS[@]}" kolo train "${common[@]}" \
        run="$ROOM/$name" "$@" > "$ROOM/$name.log" 2>&1
}
weights() { # NAME: after five steps
    local file=$ROOM/$1/checkpoints/step-0000000005/tensors.safetensors
    if [ -e "$file" ]; then cksum < "$file"; else echo "none of $1"; fi
}
told() { [ -e "$ROOM/$1/events.jsonl" ] && losses "$ROOM/$1" || echo "none of $1"; } # NAME: its losses
near() { # NAME NAME TOLERANCE TEXT: losses of all steps, relative
    paste -d ' ' <(told "$1") <(told "$2") |
        awk -v t="$3" \
            '{ d = $2 > $4 ? $2 - $4 : $4 - $2; if (!(d <= t * $4)) bad = bad " step " $1 ": " $2 " and " $4;
              n++ }
            END { if (n != 10 || bad) { print n " steps;" bad; exit 1 } }' > "$ROOM/far"
    ok $? "$4"
    [ ! -s "$ROOM/far" ] || sed 's/^/# /' "$ROOM/far"
}
watched() { # NAME TEXT: nothing in the stand-in's reports
    is "$(cat "$ROOM/$1".report.* 2>&1 | grep -E '^(defect|leak) |No such' |
        head -n 5)" "" "$2: nothing that a GPU would not forgive, nothing left behind"
}

# --- losses
train cpu device=cpu deterministic=true
is $? 0 "on the CPU"
train gpu device=cuda deterministic=true
is $? 0 "on the GPU" || tail -n 5 "$ROOM/gpu.log" | sed 's/^/# /'
near gpu cpu 2e-5 "f32: ten losses are the CPU's"
for precision in tf32 bf16 fp16; do
    train $precision device=cuda deterministic=true precision=$precision
    near $precision cpu 0.05 "$precision: ten losses are near the CPU's"
done
watched gpu "f32"
watched fp16 "fp16"
none "fp16: no engine forms sums, whose bits are other ones every time" \
    "$(grep -hE '^kernel .*(statistics|sums of a norm) [1-9]' "$ROOM"/fp16.report.*)"

# --- the same bits
train eager device=cuda deterministic=true replay=false stop_step=5
is "$(weights eager)" "$(weights gpu)" "every kernel launched for itself: the bits of the replayed step"
watched eager "launched one by one"
for seed in 2 3; do
    STANDIN_SEED=$seed train seed$seed device=cuda deterministic=true stop_step=5
    is "$(weights seed$seed)" "$(weights gpu)" \
        "work, blocks and threads in another order ($seed): the same bits"
done
STANDIN_SEED=4 STANDIN_GRACE=0 train hasty device=cuda deterministic=true replay=false stop_step=5
is "$(weights hasty)" "$(weights gpu)" "a GPU that never waits: the same bits"
train half device=cuda deterministic=true precision=fp16 stop_step=3
is $? 75 "fp16, stopped after three steps"
train half device=cuda deterministic=true precision=fp16 stop_step=5
is "$(weights half)" "$(weights fp16)" "fp16 stopped at step 5 and resumed: the same weights"

# --- choices by the clock
train timed device=cuda
is $? 0 "algorithms chosen by a clock"
near timed cpu 1e-3 "give the same losses"
is "$(grep -c '^call cudaEventElapsedTime' "$ROOM"/timed.report.*)" 1 "the first run times them"
train again device=cuda stop_step=2
is "$(grep -c '^call cudaEventElapsedTime' "$ROOM"/again.report.*)" 0 "the next one has them from the cache"

# --- what a step costs
costs() { sed -n 's/queries=[0-9]* awaited=[0-9]* //; s/^step [12] //p' "$ROOM"/"$1".report.* | sort -u; }
step="allocations=0 synchronisations=0 launches=0 copies=5 pageable=0 events=4 creations=0 captures=0"
step+=" graph_launches=1 host_functions=0"
is "$(costs gpu)" "$step" "a step: one graph and five copies, no allocation, no synchronisation"
is "$(sed -n 's/^step [12] .* awaited=\([0-9]*\) .*/\1/p' "$ROOM"/gpu.report.* | sort -n |
    tail -n 1)" 2 "the host waits for the upload, and for a step before"

# --- a gradient that is too large for fp16
train overflow device=cuda deterministic=true precision=fp16 std=0.001,0.001,0.001 model=mlp batch=1
is $? 0 "fp16 with images that make gradients overflow"
like "$ROOM/overflow/events.jsonl" '"event":"loss_scale".*"scale":32768' "the scale is halved"
manifest=$(find "$ROOM/overflow/checkpoints" -name manifest.json | sort | tail -n 1)
like "$manifest" '"skipped": [1-9]' "updates are left out"
is "$(told overflow | grep -cE ' [0-9.e+-]+$')" 10 "no loss is spoiled by it"

# --- two ranks
ranks_start || { skip "no mpiexec" && done_testing; }
ghost=(device=cuda deterministic=true bn=ghost micro_batch=4)
train one "${ghost[@]}" reduce=canonical stop_step=5
RANKS=(mpiexec -n 2)
STANDIN_DEVICES=2 train nccl "${ghost[@]}" reducer=nccl stop_step=5
is $? 75 "two ranks by NCCL" || tail -n 5 "$ROOM/nccl.log" | sed 's/^/# /'
is "$(told nccl)" "$(told one)" "the losses of one rank"
is "$(costs nccl)" "$step" "the sum is part of the graph"
watched nccl "two ranks by NCCL"
STANDIN_DEVICES=2 train split "${ghost[@]}" reducer=nccl replay=false stop_step=5
is "$(weights split)" "$(weights nccl)" "launched one by one: the same bits"
train staged "${ghost[@]}" reducer=staged share_gpu=true reduce=canonical stop_step=5
is $? 75 "two ranks that share a GPU" || tail -n 5 "$ROOM/staged.log" | sed 's/^/# /'
is "$(told staged)" "$(told one)" "the losses of one rank"
watched staged "through host memory"
STANDIN_DEVICES=2 train sync device=cuda deterministic=true bn=sync reducer=nccl
near sync cpu 2e-4 "batch norm over both ranks: the losses of one"
STANDIN_DEVICES=2 train sync16 device=cuda deterministic=true precision=fp16 bn=sync reducer=nccl
near sync16 cpu 0.05 "fp16, whose sums come with the gradients: near those of one"
done_testing
