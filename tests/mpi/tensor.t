#!/usr/bin/env bash
# Channels that are cut into parts (tensor=): ranks that compute a part each train to the bytes of one rank
# that computes them all; the file is that of a network in one piece; what they send is what the formula says;
# what cannot be is refused. tests/long/tensor.t has networks and grids.
# shellcheck source=tests/lib.sh
. "$(dirname "$0")/../lib.sh"
# shellcheck source=tests/pipeline.sh
. tests/pipeline.sh
# shellcheck source=tests/tensor.sh
. tests/tensor.sh
args=(shapes model=resnet20 size=8 data="$ROOM/data/train" val="$ROOM/data/val" batch=32 micro_batch=16
    epochs=1 warmup=0 reduce=canonical bn=ghost conv=direct deterministic=true threads=1)

# --- one rank, two, clipped and averaged
alone clipped tensor=2 clip_norm=0.5 ema=0.9
same 2 tensor=2 clip_norm=0.5 ema=0.9
alone lamb tensor=2 spatial=1x2 optimizer=lamb lr=0.01
same 4 tensor=2 spatial=1x2 optimizer=lamb lr=0.01
alone parts tensor=2

# --- interrupted on two ranks, gone on with on one
first=$ROOM/parts
mpiexec -n 2 kolo train "${args[@]}" tensor=2 run="$ROOM/chain" stop_step=1 > "$ROOM/log" 2>&1
is $? 75 "the first step by 2 ranks" "$ROOM/log"
kolo train "${args[@]}" tensor=2 run="$ROOM/chain" > "$ROOM/log" 2>&1
is $? 0 "the others by one" "$ROOM/log"
cmp "$(tensors_of "$first")" "$(tensors_of "$ROOM/chain")" > "$ROOM/log" 2>&1
ok $? "the bytes of the run that was never interrupted" "$ROOM/log"
for ranks in 1 2; do
    mpiexec -n $ranks kolo eval run="$ROOM/chain" threads=1 deterministic=true > "$ROOM/eval.$ranks" 2> \
        "$ROOM/log"
    is "$? $(cut -d'(' -f1 "$ROOM/eval.$ranks")" "0 $(cut -d'(' -f1 "$ROOM/eval.1")" "kolo eval by $ranks" \
        "$ROOM/log"
done

# --- weights of a network in one piece, and back
kolo export model=resnet20 classes=10 seed=5 "$ROOM/whole.safetensors" > "$ROOM/log" 2>&1
is $? 0 "weights of a whole network" "$ROOM/log"
mpiexec -n 2 kolo train model=resnet20 data=synthetic val=none classes=10 size=8 batch=4 steps=1 lr=0 \
    threads=1 tensor=2 init="$ROOM/whole.safetensors" run="$ROOM/init" > "$ROOM/log" 2>&1
is $? 0 "taken by two parts" "$ROOM/log"
kolo train model=resnet20 data=synthetic val=none classes=10 size=8 batch=4 steps=1 lr=0 threads=1 \
    init="$ROOM/whole.safetensors" run="$ROOM/plain" > "$ROOM/log" 2>&1
for run in init plain; do
    kolo export "$ROOM/$run" "$ROOM/$run.safetensors" > "$ROOM/log" 2>&1
    is $? 0 "exported from $run" "$ROOM/log"
done
is "$(head -c 4096 "$ROOM/init.safetensors" | cksum)" "$(head -c 4096 "$ROOM/plain.safetensors" | cksum)" \
    "the same names and places"

# --- a factor of a tensor is of all its parts: one step of LARS and of LAMB is, up to rounding, that of a
# network in one piece
numbers() { # FILE: what stands in it behind its header, one a line
    od -An -v -tf4 -w4 -j $((8 + $(od -An -tu8 -N8 "$1"))) "$1"
}
flat() { # RUN: its weights
    kolo export "$1" "$ROOM/flat.safetensors" > "$ROOM/log" 2>&1
    numbers "$ROOM/flat.safetensors"
}
kolo export model=resnet20 classes=10 seed=0 "$ROOM/begin.safetensors" > "$ROOM/log" 2>&1
step=(model=resnet20 data=synthetic val=none classes=10 size=8 batch=4 steps=1 lr=0.01 warmup=0 threads=1
    deterministic=true conv=direct init="$ROOM/begin.safetensors")
for optimizer in lars lamb; do
    for parts in 1 2; do
        kolo train "${step[@]}" optimizer=$optimizer tensor=$parts run="$ROOM/$optimizer.$parts" > \
            "$ROOM/log" 2>&1
        is $? 0 "$optimizer in $parts parts" "$ROOM/log"
        flat "$ROOM/$optimizer.$parts" > "$ROOM/weights.$parts"
    done
    far=$(numbers "$ROOM/begin.safetensors" | paste - "$ROOM/weights.1" "$ROOM/weights.2" |
        awk '{ moved += ($2 - $1) ^ 2; apart += ($3 - $2) ^ 2 } END { print sqrt(apart / moved) }')
    awk -v far="$far" 'BEGIN { exit !(far > 0 && far < 1e-3) }'
    ok $? "$optimizer: what two parts move differs by $far of it"
done

# --- channels that fill no block of the CPU's vectors find fast code
kolo plan model=resnet20 data=synthetic classes=10 size=32 batch=8 tensor=4 threads=1 deterministic=true > \
    "$ROOM/log" 2> /dev/null
is "$? $(grep -c 'conv.* ref' "$ROOM/log")" "0 0" "no convolution of 4 channels is left to reference code"

# --- what crosses of a ConvNeXt-T, 2 images of 64 pixels on 2 ranks, in messages and bytes: of a
# block's pair its input and the other part's product, forward, and the gradients of both, backward
is "$(sent_by convnext_tiny)" \
    "$(formula 18 $((96 * 256 * 3 + 192 * 64 * 3 + 384 * 16 * 9 + 768 * 4 * 3)))" \
    "ConvNeXt-T: one allreduce a block each way, of its map"

# --- refused
refused() { # RANKS PATTERN TEXT OPTIONS...
    timeout 60 mpiexec -n "$1" kolo train "${args[@]}" val=none run="$ROOM/no" "${@:4}" > "$ROOM/log" 2>&1
    is $? 78 "$3: 78" "$ROOM/log"
    like "$ROOM/log" "$2" "  and why"
}
refused 1 'cut into 3 parts: .* possible: 1, 2, 4, 5, 8, 10, 16' "a number that divides nothing" tensor=3
refused 3 'tensor=2: 3 ranks cannot be divided evenly among 2 parts' \
    "ranks that parts cannot be divided among" tensor=2
refused 1 'spatial=4x1 with tensor=8 are 32 parts; up to 16 are possible in all' \
    "too many parts of both kinds" tensor=8 spatial=4x1
refused 1 'reduce=adasum combines whole tensors' "a sum of whole tensors" tensor=2 reduce=adasum
kolo train "${args[@]}" epochs=3 run="$ROOM/chain" tensor=4 > "$ROOM/log" 2>&1
is $? 78 "other parts than a run began with: 78" "$ROOM/log"
like "$ROOM/log" 'tensor' "  by the name of the key"
done_testing
