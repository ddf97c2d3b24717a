#!/usr/bin/env bash
# stash= and offload= with device=cuda on the stand-in for a GPU: what is made again, or comes back from the
# host's memory, gives the plain run's bytes, replayed too; what needs encoders or a file is refused by name.
# shellcheck source=tests/lib.sh
. "$(dirname "$0")/../lib.sh"
standin_gpu
export KOLO_CACHE=$ROOM/cache OMP_NUM_THREADS=1
shapes_data 48 16
common=(resnet20_cifar_small data="$ROOM/data/train" val=none size=8 batch=16 micro_batch=8 steps=4 epochs=0
    lr=0.0005 threads=1 device=cuda deterministic=true)
train() { # NAME OPTIONS...
    STANDIN_REPORT="$ROOM/$1.report.%p" timeout -k 5 120 kolo train "${common[@]}" run="$ROOM/$1" "${@:2}" \
        > "$ROOM/log" 2>&1
}
weights() { cksum < "$ROOM/$1/checkpoints/step-0000000004/tensors.safetensors"; }
for precision in f32 fp16; do
    train "plain$precision" precision=$precision
    is $? 0 "$precision, plain" "$ROOM/log"
    for how in stash=lossless offload=activations "offload=activations replay=false"; do
        read -ra words <<< "$how"
        name=${how// /_}$precision
        train "$name" precision=$precision "${words[@]}"
        is $? 0 "$precision, $how" "$ROOM/log"
        like "$ROOM/log" ' [1-9][0-9]* (made again|offloaded), .* \(0\.' "activations are not kept"
        is "$(weights "$name") $(losses "$ROOM/$name")" \
            "$(weights plain$precision) $(losses "$ROOM/plain$precision")" "the plain run's bytes"
        is "$(cat "$ROOM/$name".report.* 2>&1 | grep -E '^(defect|leak) |No such' | head -n 5)" "" \
            "nothing that a GPU would not forgive, nothing left behind"
    done
done
for how in stash=bf16 stash=fp8 offload=all; do
    train refused "$how"
    is "$? $(grep -c "$how is for CPUs" "$ROOM/log")" "78 1" "$how: refused by name" "$ROOM/log"
done
done_testing
