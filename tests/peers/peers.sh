#!/usr/bin/env bash
# make bench-peers: Kolo and PyTorch on this machine, alternating in one run; prints images/s, memory and
# ratios. PyTorch is installed into build/peers (a virtual environment; some GB). It runs "tuned":
# channels_last, and glibc told to keep large blocks (without that, page faults cost it 20 to 40 %).
#
#   tests/peers/peers.sh [CASE ...]      CASE: MODEL:BATCH:SIZE:PRECISION:STEPS, default: the table below
#   ROUNDS=2 THREADS=2 PYTHON=python     PYTHON: one that has torch already
set -u
cd "$(dirname "$0")/../.." || exit 1
BUILD=${KOLO_BUILD:-build}
PATH=$BUILD/bin:$PATH
ROUNDS=${ROUNDS:-2}
THREADS=${THREADS:-$(nproc)}
cases=("$@")
if [ ${#cases[@]} = 0 ]; then
    cases=(resnet50:16:224:f32:4 resnet50:16:224:bf16:4 resnet18:32:224:f32:4 resnet20:128:32:f32:25 \
        resnet20:128:32:bf16:25 lenet5:64:28:f32:300
           convnext_tiny:16:224:f32:3 convnext_tiny:16:224:bf16:3 swin_t:16:224:f32:3 swin_t:16:224:bf16:3)
fi
# shellcheck source=tests/peers/python.sh
. tests/peers/python.sh
peers_install torch torchvision || { echo "no PyTorch here" && exit 1; }
export MALLOC_MMAP_MAX_=0 MALLOC_TRIM_THRESHOLD_=17179869184
peer() { # MODEL BATCH SIZE PRECISION STEPS
    "$PYTHON" tests/peers/pytorch_train.py "$1" "$2" "$3" "$4" "$THREADS" "$5" 2> "$BUILD/peers.log" && return
    # some virtual machines show AMX but fault on it: the next best instruction set
    ONEDNN_MAX_CPU_ISA=AVX512_CORE_BF16 "$PYTHON" tests/peers/pytorch_train.py "$1" "$2" "$3" "$4" \
        "$THREADS" "$5" 2> "$BUILD/peers.log"
}
own() {
    local channels=3
    [ "$1" = lenet5 ] && channels=1
    env -u MALLOC_MMAP_MAX_ -u MALLOC_TRIM_THRESHOLD_ kolo bench train model="$1" batch="$2" size="$3" \
        precision="$4" steps="$5" threads="$THREADS" channels=$channels
}
rate() { sed -n 's/.*: \([0-9.]*\) img\/s$/\1/p' | tail -n 1; }
memory() { sed -n 's/.*peak \([0-9]*\) MiB.*/\1/p' | tail -n 1; }
best() { awk -v a="${1:-0}" -v b="${2:-0}" 'BEGIN {print (a + 0 > b + 0) ? a : b}'; }

printf '%-28s %12s %12s %8s %10s %10s %8s\n' "case" "kolo img/s" "torch img/s" "ratio" "kolo MiB" \
    "torch MiB" "ratio"
for case in "${cases[@]}"; do
    IFS=: read -r model batch size precision steps <<< "$case"
    a=0 b=0
    for ((round = 0; round < ROUNDS; round++)); do
        mine=$(own "$model" "$batch" "$size" "$precision" "$steps")
        theirs=$(peer "$model" "$batch" "$size" "$precision" "$steps")
        a=$(best "$a" "$(rate <<< "$mine")")
        b=$(best "$b" "$(rate <<< "$theirs")")
    done
    m=$(memory <<< "$mine")
    n=$(memory <<< "$theirs")
    awk -v c="$model b$batch ${size}px $precision" -v a="$a" -v b="$b" -v m="${m:-0}" -v n="${n:-0}" 'BEGIN {
        printf "%-28s %12.1f %12.1f %8.2f %10.0f %10.0f %8.2f\n", c, a, b, (b > 0) ? a / b : 0, m, n,
            (n > 0) ? m / n : 0}'
done

[ $# = 0 ] || exit 0
ROUNDS=$ROUNDS THREADS=$THREADS tests/peers/onednn.sh # both versions of oneDNN
# two ranks of one thread beside one rank of two threads, same global batch
if [ "$THREADS" -ge 2 ] && command -v mpiexec > /dev/null; then
    one=$(own resnet50 16 224 f32 4 | rate)
    two=$(mpiexec -n 2 kolo bench train model=resnet50 batch=16 size=224 steps=4 threads=$((THREADS / 2)) |
        rate)
    awk -v a="$two" -v b="$one" \
        'BEGIN {printf "resnet50 b16, 2 ranks x half the threads: %.1f img/s, 1 rank: %.1f img/s, ratio %.2f\n", a, b, (b > 0) ? a / b : 0}'
    # two stages, cut at the same module, 8 micro-batches, beside torch.distributed.pipelining over gloo
    for order in gpipe 1f1b; do
        a=0 b=0
        for ((round = 0; round < ROUNDS; round++)); do
            mine=$(env -u MALLOC_MMAP_MAX_ -u MALLOC_TRIM_THRESHOLD_ mpiexec -n 2 kolo bench train \
                model=resnet50 batch=32 micro_batch=4 size=64 stages=2 cut=layer3.0 pipeline=$order steps=6 \
                threads=$((THREADS / 2)))
            theirs=$("$PYTHON" tests/peers/pipeline.py resnet50 32 64 8 layer3.0 $order $((THREADS / 2)) 6 \
                2> "$BUILD/peers.log")
            a=$(best "$a" "$(rate <<< "$mine")")
            b=$(best "$b" "$(rate <<< "$theirs")")
        done
        awk -v o="$order" -v a="$a" -v b="$b" \
            'BEGIN {printf "resnet50 b32 64px, 2 stages, %s: %.1f img/s, PyTorch %.1f img/s, ratio %.2f\n", o, a, b, (b > 0) ? a / b : 0}'
    done
fi
# parts of parameters, optimizer, gradients on two ranks, beside FSDP, ZeroRedundancyOptimizer and DeepSpeed
if [ "$THREADS" -ge 2 ] && command -v mpiexec > /dev/null; then
    peers_install deepspeed > /dev/null
    for pair in parameters:fsdp optimizer:zero gradients:deepspeed; do
        IFS=: read -r shard how <<< "$pair"
        a=0 b=0
        for ((round = 0; round < ROUNDS; round++)); do
            mine=$(env -u MALLOC_MMAP_MAX_ -u MALLOC_TRIM_THRESHOLD_ mpiexec -n 2 kolo bench train \
                model=resnet50 batch=16 size=224 shard="$shard" optimizer=adamw steps=4 \
                threads=$((THREADS / 2)))
            theirs=$("$PYTHON" tests/peers/shard.py resnet50 16 224 "$how" $((THREADS / 2)) 4 \
                2> "$BUILD/peers.log")
            a=$(best "$a" "$(rate <<< "$mine")")
            b=$(best "$b" "$(rate <<< "$theirs")")
        done
        awk -v s="$shard" -v h="$how" -v a="$a" -v b="$b" -v m="$(memory <<< "$mine")" \
            -v n="$(memory <<< "$theirs")" \
            'BEGIN {printf "resnet50 b16, 2 ranks, shard=%s: %.1f img/s, %s %.1f img/s, ratio %.2f; %.0f MiB, %.0f MiB, ratio %.2f\n", s, a, h, b, (b > 0) ? a / b : 0, m, n, (n > 0) ? m / n : 0}'
    done
fi
# from the command to the end of the fourth step of LeNet-5, best of three
seconds() {
    local best=999 i begin end
    for ((i = 0; i < 3; i++)); do
        begin=$(date +%s.%N)
        "$@" > /dev/null
        end=$(date +%s.%N)
        best=$(awk -v a="$begin" -v b="$end" -v m="$best" 'BEGIN {d = b - a; print (d < m) ? d : m}')
    done
    echo "$best"
}
a=$(seconds own lenet5 64 28 f32 1)
b=$(seconds peer lenet5 64 28 f32 1)
awk -v a="$a" -v b="$b" \
    'BEGIN {printf "lenet5, command to end: %.2f s, PyTorch %.2f s, ratio %.1f\n", a, b, (a > 0) ? b / a : 0}'
