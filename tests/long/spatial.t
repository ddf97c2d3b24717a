#!/usr/bin/env bash
# Networks whose images are cut into parts: the bytes of one rank that computes all of them, ten steps, odd
# sides, grids with stages, replicas, shards and what is dropped; and golden cases, cut. 5 minutes.
# shellcheck source=tests/lib.sh
. "$(dirname "$0")/../lib.sh"
# shellcheck source=tests/pipeline.sh
. tests/pipeline.sh
# shellcheck source=tests/parts.sh
. tests/parts.sh
alone parts spatial=2x2
same 4 spatial=2x2
same 2 spatial=2x2
same 4 spatial=2x2 stages=2 pipeline=zero_bubble
kolo train "${args[@]}" run="$ROOM/uncut" > "$ROOM/log" 2>&1
cmp -s "$(tensors_of "$first")" "$(tensors_of "$ROOM/uncut")"
is $? 1 "other sums than those of whole images: other last bits"
same 8 spatial=2x2
same 8 spatial=2x2 stages=2 shard=parameters recompute=blocks
same 8 spatial=2x2 stages=2 pipeline=interleaved chunks=2
same 8 spatial=2x2 shard=gradients stash=lossless
held sync 4 bn=sync spatial=1x2
same 8 bn=sync spatial=1x2 stages=2

# sides that parts do not divide, rows and columns unlike, batches that micro-batches do not
odd=(spatial=3x1 size=23 batch=25 micro_batch=5)
alone odd "${odd[@]}"
same 3 "${odd[@]}"
norms=(spatial=1x2 clip_norm=0.5 ema=0.9 noise_scale=true optimizer=lamb lr=0.01)
alone norms "${norms[@]}"
same 4 "${norms[@]}"

# one run on one number of ranks after the other
first=$ROOM/parts
step=0
for ranks in 4 1; do
    step=$((step + 1))
    mpiexec -n $ranks kolo train "${args[@]}" spatial=2x2 run="$ROOM/chain" stop_step=$step > "$ROOM/log" 2>&1
    is $? 75 "step $step by $ranks ranks" "$ROOM/log"
done
mpiexec -n 2 kolo train "${args[@]}" spatial=2x2 run="$ROOM/chain" > "$ROOM/log" 2>&1
is $? 0 "the last step by 2" "$ROOM/log"
cmp "$(tensors_of "$first")" "$(tensors_of "$ROOM/chain")" > "$ROOM/log" 2>&1
ok $? "the bytes of the run that was never interrupted" "$ROOM/log"
for run in parts chain; do kolo export "$ROOM/$run" "$ROOM/$run.safetensors" > "$ROOM/log" 2>&1; done
cmp "$ROOM/parts.safetensors" "$ROOM/chain.safetensors" > "$ROOM/log" 2>&1
ok $? "kolo export gives the same file" "$ROOM/log"
kolo export "$ROOM/chain" "$ROOM/chain.onnx" > "$ROOM/log" 2>&1
is $? 0 "and ONNX of the network in one piece" "$ROOM/log"

killed 8 4 spatial=2x2 # with -9, of two replicas; one goes on

odd_images
network "resnet20 $noise batch=4 micro_batch=2" spatial=2x2 2 4
network "resnet20 $noise batch=4 micro_batch=4" spatial=2x1 2
network "resnet20 $noise batch=4 micro_batch=4" spatial=1x2 2
network "convnext_tiny $noise batch=1 micro_batch=1" spatial=2x2 4
network "vgg11 $noise batch=1 micro_batch=1" spatial=2x2 2
network "resnet20 size=61 batch=4 micro_batch=4" spatial=1x2 2
network "resnet50 size=64 batch=4 micro_batch=4" spatial=2x2 4
network "resnet50 size=75 batch=4 micro_batch=4" spatial=2x1 2
network "convnext_tiny size=64 batch=4 micro_batch=4" spatial=2x2 4
network "vgg11 size=64 batch=4 micro_batch=4" spatial=1x2 2
network "swin_t size=64 batch=4 micro_batch=4" spatial=2x2 4
network "swin_t size=160 batch=4 micro_batch=4" spatial=1x2,features.5:1x1 2
network "resnet20 size=45 batch=4 micro_batch=4" spatial=2x2,layer2:1x2,layer3:1x1 2 4
network "yolox_nano size=64 batch=4 micro_batch=4" spatial=2x2 2 4
network "yolox_nano size=96 batch=1 micro_batch=1" spatial=1x2 2
network "efficientnet_b0 size=64 batch=4 micro_batch=4" spatial=2x1 2

network "resnet20 size=45 batch=4 micro_batch=4" "spatial=2x2,layer2:1x2 halo=wide" 2 4
network "resnet50 size=97 batch=2 micro_batch=2" "spatial=2x2 halo=wide" 2 4
network "vgg11 size=96 batch=2 micro_batch=2" "spatial=2x1 halo=wide" 2
network "yolox_nano size=128 batch=2 micro_batch=2" "spatial=2x2 halo=wide" 4
network "convnext_tiny size=96 batch=1 micro_batch=1" "spatial=1x2 halo=wide" 2
network "resnet50 size=64 batch=4 micro_batch=4" spatial=2x2,layer4:tensor 2 4
network "resnet20 size=45 batch=4 micro_batch=2" spatial=2x2,layer2:tensor=2,layer3:tensor=4 2 4
network "resnet20 size=32 batch=4 micro_batch=4" spatial=1x1,layer3:tensor=4 4
network "vgg11 size=64 batch=1 micro_batch=1" spatial=2x2,features.18:tensor 2 4
network "vgg11 size=64 batch=1 micro_batch=1" spatial=2x1,features.18:tensor=4 4
network "swin_t size=64 batch=2 micro_batch=2" spatial=2x2,features.5:tensor 2 4
network "convnext_tiny size=64 batch=2 micro_batch=2" spatial=2x1,features.5:tensor 2

for case in resnet20_cifar_a:layer3 resnet18_96:layer4 swin_t_160:features.5 convnext_tiny_96:features.5 \
    resnet20_cifar_a:layer2; do
    "$BUILD/tests/golden" spatial=2x2,${case#*:}:tensor tests/golden/models/${case%:*}.json > \
        "$ROOM/out" 2>&1
    none "${case%:*}, channels from ${case#*:} on: as near to f64 as whole" \
        "$(grep -A 1 '^not ok' "$ROOM/out")"
    like "$ROOM/out" '^ok .* gradients: [1-9]' "  its gradients too"
done
"$BUILD/tests/golden" spatial=2x2 tests/golden/models/inception_v3_299_bias.json > "$ROOM/out" 2>&1
none "inception_v3_299_bias in 2x2 parts" "$(grep -A 1 '^not ok' "$ROOM/out")"
for parts in 2x1 1x2 2x2; do
    for case in resnet20_cifar_a resnet20_cifar_b resnet18_96 resnet50_64_bias resnet50_96 convnext_tiny_96 \
        resnext50_32x4d_96 swin_t_160 lenet5; do
        "$BUILD/tests/golden" spatial=$parts tests/golden/models/$case.json > "$ROOM/out" 2>&1
        none "$case in $parts parts is as near to PyTorch's f64 as whole" "$(grep -A 1 '^not ok' "$ROOM/out")"
        like "$ROOM/out" '^ok .* gradients: [1-9]' "  its gradients too"
    done
done

# --- what a rank holds: its part of every map that is kept, and the halos that it receives, to the byte
for rank in 1 2 3; do recounted 2x2 512 $rank; done
recounted 2x2 333 1
recounted 1x3 500 2
whole_bytes=$(awk -v rows=1 -v columns=1 -v size=512 -v part=0 -f tests/recount.awk)
quarter_bytes=$(awk -v rows=2 -v columns=2 -v size=512 -v part=3 -f tests/recount.awk)
is "${quarter_bytes% *}" $((${whole_bytes% *} / 4)) "and of 512 x 512 pixels that is a quarter, and halos"
big=(plan model=resnet50 data=synthetic classes=10 size=512 batch=1 micro_batch=1 threads=1 memory_limit=0.45)
kolo "${big[@]}" ranks=1 > "$ROOM/log" 2>&1
is $? 78 "it is too large for 0.45 GiB" "$ROOM/log"
kolo "${big[@]}" ranks=4 spatial=2x2 > "$ROOM/log" 2>&1
is $? 0 "four ranks hold it" "$ROOM/log"
done_testing
