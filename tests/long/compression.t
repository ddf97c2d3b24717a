#!/usr/bin/env bash
# Two nodes of two ranks train LeNet-5 on all of MNIST with every compression: the validation accuracy of the plain run, within what is stated.
# shellcheck source=tests/lib.sh
. "$(dirname "$0")/../lib.sh"
need kolo kolo-pack
mnist=$KOLO_SHARED/data/mnist
[ -e "$mnist/train-images-idx3-ubyte.gz" ] || skip_all "no MNIST in $KOLO_SHARED/data"
cluster 2 2
{ kolo-pack --source mnist-idx --in "$mnist" --split train --out "$ROOM/train" &&
    kolo-pack --source mnist-idx --in "$mnist" --split val --out "$ROOM/val" --stats-from "$ROOM/train"; } > "$ROOM/pack.log" 2>&1 || skip_all "packing failed"
top1() { # NAME ARGS...: validation top-1 after two epochs
    local run=$ROOM/$1
    shift
    srun --mpi=pmix --kill-on-bad-exit=1 -N 2 -n 4 kolo train lenet5_mnist data="$ROOM/train" val="$ROOM/val" run="$run" threads=1 epochs=2 "$@" > "$run.log" 2>&1 ||
        tail -n 5 "$run.log" | sed 's/^/# /' >&2
    sed -n 's/.*"top1": *\([0-9.]*\).*/\1/p' "$run/summary.json" | head -n 1
}
dense=$(top1 dense)
check() { # NAME MARGIN ARGS...
    local name=$1 margin=$2 got
    shift 2
    got=$(top1 "$name" "$@")
    awk -v a="$got" -v b="$dense" -v m="$margin" 'BEGIN { exit !(a != "" && a >= b - m) }'
    ok $? "$name: top-1 $got, at most $margin below $dense of f32"
}
awk -v b="$dense" 'BEGIN { exit !(b > 0.98) }'
ok $? "f32: top-1 $dense"
check bf16 0.004 compression=bf16
check fp16 0.004 compression=fp16
check int8 0.004 compression=int8
check powersgd 0.006 compression=powersgd compression_rank=4
check topk 0.008 compression=topk compression_density=0.01
check dgc 0.01 compression=topk compression_density=0.01 compression_momentum=0.9 momentum=0 lr=0.15 compression_clip=4 compression_warmup=1
check within 0.004 compression=int8 compression_within=true
done_testing
