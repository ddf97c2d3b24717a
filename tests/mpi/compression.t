#!/usr/bin/env bash
# Training with compressed sums of gradients: LeNet-5 on handwritten digits, each of two ranks
# as a node of its own.
# shellcheck source=tests/lib.sh
. "$(dirname "$0")/../lib.sh"
need mpiexec kolo kolo-pack
[ -e "$KOLO_SHARED/data/mnist/train-images-idx3-ubyte.gz" ] || skip_all "no MNIST in $KOLO_SHARED/data"
for variable in $(compgen -e | grep -E '^(SLURM|PMI|PMIX)_'); do unset "$variable"; done
kolo-pack --source mnist-idx --in "$KOLO_SHARED/data/mnist" --split train --limit 6400 --out "$ROOM/data" > \
    "$ROOM/pack.log" 2>&1 || skip_all "packing failed"
train() { # RUN RANKS ARGS...
    local run=$ROOM/$1 ranks=$2
    shift 2
    mpiexec -n "$ranks" kolo train lenet5_mnist data="$ROOM/data" val=none run="$run" threads=1 steps=100 \
        warmup=0 "$@" > "$run.log" 2>&1
}
tail_loss() { losses "$1" | tail -n 20 | awk '{ s += $2 } END { printf "%.4f\n", s / NR }'; }
within() { awk -v a="$1" -v b="$2" -v m="$3" 'BEGIN { exit !(a != "" && a <= b + m) }'; }

declare -A args=([bf16]="compression=bf16" [fp16]="compression=fp16" [int8]="compression=int8" \
    [powersgd]="compression=powersgd"
    [topk]="compression=topk compression_density=0.05"
    [dgc]="compression=topk compression_density=0.01 compression_momentum=0.9 compression_clip=4 momentum=0 \
lr=0.15")
for name in "${!args[@]}"; do args[$name]+=" compression_within=true"; done
train dense 2 compression=none
dense=$(tail_loss "$ROOM/dense")
for kind in bf16:0.05 fp16:0.05 int8:0.05 powersgd:0.15 topk:0.3 dgc:0.3; do
    name=${kind%:*} margin=${kind#*:}
    # shellcheck disable=SC2086
    train "$name" 2 ${args[$name]}
    within "$(tail_loss "$ROOM/$name")" "$dense" "$margin"
    ok $? "$name: the loss of the last 20 of 100 steps is $(tail_loss \
        "$ROOM/$name"), at most $margin above $dense of f32"
done
is "$(for name in dense "${!args[@]}"; do losses "$ROOM/$name" | tail -n 1; done | sort -u |
    wc -l)" 7 "each goes a way of its own"

for name in int8 powersgd dgc; do
    # shellcheck disable=SC2086
    train "cut_$name" 2 ${args[$name]} stop_step=37
    is $? 75 "$name: stopped after 37 steps"
    # shellcheck disable=SC2086
    train "cut_$name" 2 ${args[$name]}
    is "$(losses "$ROOM/cut_$name" | cksum) $(weights_sum "$ROOM/cut_$name")" "$(losses "$ROOM/$name" |
        cksum) $(weights_sum "$ROOM/$name")" \
        "$name: resumed, the same losses and weights, bit for bit"
done
# shellcheck disable=SC2086
train other 2 ${args[dgc]} stop_step=10
# shellcheck disable=SC2086
train other 1 ${args[dgc]} stop_step=12
# shellcheck disable=SC2086
train other 4 ${args[dgc]} stop_step=20
is $? 75 "resumed on other numbers of ranks"
like "$ROOM/other.log" "residuals of compression are lost" \
    "resumed on other ranks: a warning names the lost residuals"

checkpoint=$(find "$ROOM/cut_int8/checkpoints" -name 'step-*' | sort | tail -n 1)
like <(head -c 8 "$checkpoint/carried") kolocar1 "what ranks carry lies beside the weights"
cp -r "$ROOM/other" "$ROOM/damaged"
for file in "$ROOM"/damaged/checkpoints/step-*/carried; do printf x |
    dd of="$file" bs=1 seek=5000 conv=notrunc 2> /dev/null; done
# shellcheck disable=SC2086
train damaged 4 ${args[dgc]} stop_step=22
is $? 75 "damaged: the run goes on from a checkpoint that is whole"
like "$ROOM/damaged.log" "carried: damaged: crc32c" "damaged rank-local state: the message names the part"

train one_node 2 compression=int8 compression_within=false steps=1
like "$ROOM/one_node.log" "nothing is compressed; compression_within=true" \
    "compression on one node: the log says that nothing is compressed"

train wrong 2 compression=int8 reduce=canonical micro_batch=8 bn=ghost
is $? 78 "reduce=canonical and compression contradict each other: exit 78"
train wrong 2 compression=topk compression_momentum=0.9
is $? 78 "two momenta: exit 78"
noise() { kolo plan lenet5_mnist data="$ROOM/data" ranks=4 noise_scale=true "compression=$1" > \
    "$ROOM/noise.log" 2>&1; }
for kind in int8 topk powersgd; do
    noise $kind
    is $? 78 "the noise scale beside compression=$kind would be wrong: exit 78"
    like "$ROOM/noise.log" "of which compression=$kind sends only a part" \
        "noise_scale with compression=$kind: the message says why"
done
noise bf16
is $? 0 "rounding to bf16 lets it be"
kolo plan lenet5_mnist data="$ROOM/data" ranks=4 compression=int8 > "$ROOM/plan" 2>&1
like "$ROOM/plan" \
    "^compression=int8: [0-9]+ bytes a node and step between 4 nodes, [0-9]+ without \(3\.[0-9] times" \
    "kolo plan says what is sent"
done_testing
