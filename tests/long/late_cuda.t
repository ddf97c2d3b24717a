#!/usr/bin/env bash
# Local steps, SWAP and late gradients with device=cuda on the stand-in for a GPU, through host memory and by
# NCCL: steps that are recorded and replayed make the bits of those that are not, and a run that is taken up
# again those of one that never stopped.
# shellcheck source=tests/lib.sh
. "$(dirname "$0")/../lib.sh"
standin_gpu
ranks_start || skip_all "no mpiexec"
export KOLO_CACHE=$ROOM/cache
shapes_data 48 16
common=(resnet20_cifar_small data="$ROOM/data/train" val="$ROOM/data/val" size=8 batch=16 steps=9 lr=0.0005 \
    threads=1 device=cuda deterministic=true bucket_mb=0.1 eval_epochs=1)
train() { # RUN STATUS OPTIONS...
    STANDIN_REPORT="$ROOM/$1.report.%p" timeout -k 5 120 mpiexec -n 2 kolo train "${common[@]}" \
        run="$ROOM/$1" "${@:3}" > "$ROOM/$1.log" 2>&1
    is $? "$2" "$1: ${*:3}" || tail -n 3 "$ROOM/$1.log" | sed 's/^/# /'
}
same() { # RUN RUN TEXT: all that the last checkpoints hold, and the losses; and nothing amiss in the first
    local last=checkpoints/step-0000000009
    is "$(cat "$ROOM/$1/$last"/{tensors.safetensors,carried} | cksum) $(losses "$ROOM/$1")" \
        "$(cat "$ROOM/$2/$last"/{tensors.safetensors,carried} | cksum) $(losses "$ROOM/$2")" "$3"
    is "$(cat "$ROOM/$1".report.* 2>&1 | grep -E '^(defect|leak) |No such' | head -n 5)" "" \
        "$1: nothing that a GPU would not forgive, nothing left behind"
}
for mode in local_steps=2 swap=4 "sync=stale staleness=1"; do
    # shellcheck disable=SC2206 # words
    words=($mode) name=${mode%%=*}
    train "$name" 0 "${words[@]}" share_gpu=true reducer=staged
    train "$name-plain" 0 "${words[@]}" share_gpu=true reducer=staged replay=false
    same "$name" "$name-plain" "$mode: replayed or not, the same bits"
    train "$name-parts" 75 "${words[@]}" share_gpu=true reducer=staged stop_step=5
    train "$name-parts" 0 "${words[@]}" share_gpu=true reducer=staged
    same "$name-parts" "$name" "$mode: stopped and taken up again: the same bits"
    STANDIN_DEVICES=2 train "$name-nccl" 0 "${words[@]}" reducer=nccl
    same "$name-nccl" "$name" "$mode: two ranks by NCCL: the same bits"
done
done_testing
