#!/usr/bin/env bash
# make bench-checkpoint: how long RANKS ranks, each with parts of everything, take to write a checkpoint of a
# wide residual network of a billion parameters together, and to read it, on this machine. With SGD it has
# 8 bytes a parameter, and the ranks together need 12 and some windows.
#
#   tests/peers/checkpoint.sh      RANKS=4 BLOCKS=12 FOLDER=build/checkpoint; BLOCKS: of the last stage,
#                                  75 million parameters each: 1 is a quick look
set -u
cd "$(dirname "$0")/../.." || exit 1
BUILD=${KOLO_BUILD:-build}
PATH=$BUILD/bin:$PATH
RANKS=${RANKS:-4} BLOCKS=${BLOCKS:-12} FOLDER=${FOLDER:-$BUILD/checkpoint}
rm -rf "$FOLDER"
mkdir -p "$FOLDER" || exit 1
trap 'rm -rf "$FOLDER"' EXIT

layer() { # FILTERS STRIDE ACTIVATION
    printf '[convolutional]\nbatch_normalize=1\nfilters=%d\nsize=3\nstride=%d\npad=1\nactivation=%s\n\n' "$@"
}
stage() { # FILTERS STRIDE BLOCKS: Zagoruyko & Komodakis, arXiv:1605.07146; no shortcut where sides halve
    local i
    layer "$1" "$2" leaky
    for ((i = 0; i < $3; i++)); do
        layer "$1" 1 leaky
        layer "$1" 1 linear
        printf '[shortcut]\nfrom=-3\nactivation=linear\n\n'
    done
}
{
    printf '[net]\nheight=32\nwidth=32\nchannels=3\n\n'
    stage 256 2 2
    stage 512 2 2
    stage 1024 2 4
    stage 2048 2 "$BLOCKS"
    printf '[convolutional]\nfilters=1000\nsize=1\nstride=1\npad=1\nactivation=linear\n\n[avgpool]\n\n[softmax]\n'
} > "$FOLDER/wide.cfg"
train() { # STEPS
    mpiexec -n "$RANKS" kolo train model="$FOLDER/wide.cfg" data=synthetic classes=1000 channels=3 size=32 \
        batch="$RANKS" optimizer=sgd shard=parameters threads=1 val=none epochs=0 steps=2 stop_step="$1" \
        run="$FOLDER/run" > "$FOLDER/log" 2>&1
    local status=$?
    [ $status = 0 ] || [ $status = 75 ] || { cat "$FOLDER/log" && exit 1; }
}
number() { sed -n "s/.*\"event\":\"$1\".*\"$2\":\([0-9.]*\).*/\1/p" "$FOLDER/run/events.jsonl" | tail -n 1; }

train 1
saved=$(number checkpoint seconds)
bytes=$(find "$FOLDER/run/checkpoints" -name tensors.safetensors -printf '%s\n' | tail -n 1)
train 2
awk -v bytes="$bytes" -v ranks="$RANKS" -v save="$saved" -v load="$(number start load_seconds)" 'BEGIN {
    printf "%.0f million parameters, %.2f GB, %d ranks: save %.2f s (%.2f GB/s), load %.2f s (%.2f GB/s)\n",
        bytes / 8e6, bytes / 1e9, ranks, save, bytes / 1e9 / save, load, bytes / 1e9 / load }'
