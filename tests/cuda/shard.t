#!/usr/bin/env bash
# Sharded optimizer, gradients and parameters with device=cuda on the stand-in for a GPU, through host memory
# and by NCCL: the bytes of the run without shards.
# shellcheck source=tests/lib.sh
. "$(dirname "$0")/../lib.sh"
standin_gpu
ranks_start || skip_all "no mpiexec"
export KOLO_CACHE=$ROOM/cache
shapes_data 48 16
common=(resnet20_cifar_small data="$ROOM/data/train" val="$ROOM/data/val" size=8 batch=16 micro_batch=4 \
    steps=3 lr=0.0005 threads=1 device=cuda deterministic=true bn=ghost bucket_mb=0.1)
train() { # RANKS NAME OPTIONS...
    local name=$2
    STANDIN_REPORT="$ROOM/$name.report.%p" timeout -k 5 120 mpiexec -n "$1" kolo train "${common[@]}" \
        run="$ROOM/$name" "${@:3}" > "$ROOM/$name.log" 2>&1
    is $? 0 "$1 ranks, ${*:3}" "$ROOM/$name.log"
}
weights() { cksum < "$ROOM/$1/checkpoints/step-0000000003/tensors.safetensors"; }
same() { # NAME NAME: weights and losses
    is "$(weights "$1") $(losses "$ROOM/$1")" "$(weights "$2") $(losses "$ROOM/$2")" "$1 has the bytes of $2"
    is "$(cat "$ROOM/$1".report.* 2>&1 | grep -E '^(defect|leak) |No such' | head -n 5)" "" \
        "$1: nothing that a GPU would not forgive, nothing left behind"
}
how=(precision=fp16 optimizer=lamb clip_norm=0.5 ema=0.9)
train 1 one reduce=canonical "${how[@]}"
STANDIN_DEVICES=2 train 2 two reducer=nccl reduce=fast "${how[@]}"
# tests/long/shard_nodes.t has all levels both ways
for shard in ${STAGED-gradients parameters}; do
    train 2 "staged_$shard" reducer=staged share_gpu=true reduce=canonical "${how[@]}" shard="$shard"
    same "staged_$shard" one
done
for shard in ${NCCL-optimizer parameters}; do
    STANDIN_DEVICES=2 train 2 "nccl_$shard" reducer=nccl reduce=fast "${how[@]}" shard="$shard"
    same "nccl_$shard" two
done
done_testing
