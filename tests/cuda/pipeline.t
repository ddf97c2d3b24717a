#!/usr/bin/env bash
# Pipelines with device=cuda on the stand-in for a GPU, through host memory and by NCCL: what is decided of
# the norm of all gradients, batch norm over replicas, images of several sizes, late weights; the bytes of one
# rank, or of as many as replicas.
# shellcheck source=tests/lib.sh
. "$(dirname "$0")/../lib.sh"
standin_gpu
ranks_start || skip_all "no mpiexec"
export KOLO_CACHE=$ROOM/cache
shapes_data 48 16
common=(resnet20_cifar_small data="$ROOM/data/train" val="$ROOM/data/val" size=8 batch=16 micro_batch=4 \
    steps=3 lr=0.0005 threads=1 device=cuda deterministic=true bn=ghost)
train() { # RANKS NAME OPTIONS...; ENDS: with this status
    local name=$2
    STANDIN_REPORT="$ROOM/$name.report.%p" timeout -k 5 120 mpiexec -n "$1" kolo train "${common[@]}" \
        run="$ROOM/$name" "${@:3}" > "$ROOM/$name.log" 2>&1
    is $? "${ENDS:-0}" "$1 ranks, ${*:3}" "$ROOM/$name.log"
}
weights() { cksum < "$ROOM/$1/checkpoints/step-0000000003/tensors.safetensors"; }
same() { # NAME NAME: weights and losses
    is "$(weights "$1") $(losses "$ROOM/$1")" "$(weights "$2") $(losses "$ROOM/$2")" "$1 has the bytes of $2"
    is "$(cat "$ROOM/$1".report.* 2>&1 | grep -E '^(defect|leak) |No such' | head -n 5)" "" \
        "$1: nothing that a GPU would not forgive, nothing left behind"
}
staged=(reducer=staged share_gpu=true reduce=canonical)

train 1 sizes reduce=canonical clip_norm=0.5 multi_scale=8-16:4:1
train 2 sizes_staged "${staged[@]}" clip_norm=0.5 multi_scale=8-16:4:1 stages=2
same sizes_staged sizes
train 1 half reduce=canonical precision=fp16 noise_scale=true
train 2 half_staged "${staged[@]}" precision=fp16 noise_scale=true stages=2 cut=layer2.0
same half_staged half
train 2 sync "${staged[@]}" bn=sync clip_norm=0.5
train 4 sync_staged "${staged[@]}" bn=sync clip_norm=0.5 stages=2 cut=layer2.0
same sync_staged sync
STANDIN_DEVICES=2 train 2 sync_nccl2 reducer=nccl reduce=fast bn=sync clip_norm=0.5
STANDIN_DEVICES=4 train 4 sync_nccl reducer=nccl reduce=fast bn=sync clip_norm=0.5 stages=2 cut=layer2.0
same sync_nccl sync_nccl2
# weights that are late: the losses of the CPU, and the same bytes where the run is stopped in between
near() { # NAME NAME: losses, step by step
    paste -d ' ' <(losses "$ROOM/$1") <(losses "$ROOM/$2") > "$ROOM/near"
    awk '{d = $2 - $4; if (d < 0) d = -d; if (d < 1e-4 * $4) n++} END {exit n != 3 || NR != 3}' "$ROOM/near"
    is $? 0 "$1 has the losses of $2 within 1e-4" "$ROOM/near"
}
late=(precision=f32 stages=2 cut=layer2.0 pipeline=pipedream)
train 2 late_cpu "${late[@]}" device=cpu
train 2 late_staged share_gpu=true reducer=staged "${late[@]}"
near late_staged late_cpu
STANDIN_DEVICES=2 train 2 late_nccl reducer=nccl "${late[@]}"
same late_nccl late_staged
ENDS=75 train 2 late_again share_gpu=true reducer=staged "${late[@]}" stop_step=2
train 2 late_again share_gpu=true reducer=staged "${late[@]}"
same late_again late_staged
parts=(batch=8 precision=bf16 spatial=2x1) # many small operations: half the micro-batches
train 1 parts reduce=canonical "${parts[@]}"
train 2 parts_staged "${staged[@]}" "${parts[@]}"
same parts_staged parts
parts=(batch=8 precision=fp16 "spatial=2x2,layer3:tensor" halo=wide size=24)
train 1 parts4 reduce=canonical "${parts[@]}"
train 2 parts4_staged "${staged[@]}" "${parts[@]}"
same parts4_staged parts4
done_testing
