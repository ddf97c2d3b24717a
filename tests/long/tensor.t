#!/usr/bin/env bash
# Networks whose channels are cut into parts: the bytes of one rank that computes all of them, ten steps, odd
# sides, batches of one image, grids; and golden cases, cut. 6 minutes.
# shellcheck source=tests/lib.sh
. "$(dirname "$0")/../lib.sh"
# shellcheck source=tests/pipeline.sh
. tests/pipeline.sh
# shellcheck source=tests/tensor.sh
. tests/tensor.sh
# shellcheck source=tests/parts.sh
. tests/parts.sh
alone four tensor=4 clip_norm=0.5 ema=0.9
same 4 tensor=4 clip_norm=0.5 ema=0.9
alone two tensor=2 optimizer=adamw lr=0.001
same 4 tensor=2 optimizer=adamw lr=0.001 stages=2
alone parts tensor=4
same 8 tensor=4
same 8 tensor=4 stages=2 shard=parameters recompute=blocks
same 8 tensor=4 stages=2 pipeline=interleaved chunks=2
same 4 tensor=4 shard=gradients stash=lossless
held sync 4 bn=sync tensor=2
same 8 bn=sync tensor=2 stages=2

# factors of whole tensors, and of all gradients
for optimizer in lars lamb novograd; do
    alone "$optimizer" tensor=4 optimizer=$optimizer lr=0.01 clip_norm=0.5
    same 4 tensor=4 optimizer=$optimizer lr=0.01 clip_norm=0.5
    same 8 tensor=4 optimizer=$optimizer lr=0.01 clip_norm=0.5 stages=2 shard=optimizer
done

# a short last batch; of channels and of pixels
alone short tensor=2 batch=25 micro_batch=5
same 2 tensor=2 batch=25 micro_batch=5
for what in "tensor=2 spatial=2x1" "tensor=4 spatial=1x2,layer3:1x1" \
    "tensor=2 spatial=2x2 optimizer=lamb lr=0.01"; do
    read -ra words <<< "$what"
    alone both "${words[@]}"
    same 2 "${words[@]}"
    same 4 "${words[@]}" shard=gradients
    same 8 "${words[@]}" stages=2
    rm -rf "$first"
done

odd_images
network "resnet20 $noise batch=4 micro_batch=2" tensor=4 2 4
network "resnet20 $noise batch=4 micro_batch=2" "tensor=2 spatial=2x1" 2 4
network "resnet20 size=45 batch=4 micro_batch=4" tensor=2 2
network "resnet20 size=16 batch=1 micro_batch=1" tensor=4 2 4
network "resnet50 size=64 batch=2 micro_batch=2" tensor=2 2
network "resnet50 size=64 batch=2 micro_batch=2" tensor=4 4
network "convnext_tiny $noise batch=1 micro_batch=1" tensor=2 2
network "convnext_tiny size=64 batch=1 micro_batch=1" tensor=4 2 4
network "convnext_tiny size=64 batch=1 micro_batch=1" "tensor=2 spatial=1x2" 4
network "vgg11 size=61 batch=2 micro_batch=2" tensor=2 2
network "vgg11 $noise batch=1 micro_batch=1" tensor=4 4
network "swin_t size=64 batch=2 micro_batch=2" tensor=3 3
network "swin_t size=61 batch=1 micro_batch=1" tensor=2 2
network "swin_t size=75 batch=1 micro_batch=1" tensor=4 2 4
network "swin_t size=64 batch=1 micro_batch=1" "tensor=3 spatial=2x1" 2 3
network "yolox_nano size=64 batch=2 micro_batch=2" tensor=2 2
network "yolox_nano size=64 batch=1 micro_batch=1" tensor=4 4
network "yolox_nano size=64 batch=2 micro_batch=2" "tensor=2 spatial=2x1" 4
network "efficientnet_b0 size=64 batch=2 micro_batch=2" tensor=2 2
network "efficientnet_b0 size=64 batch=2 micro_batch=2" tensor=8 2 # of some maps one channel a part

for parts in 2 4 "2 spatial=2x1"; do
    read -ra words <<< "tensor=$parts"
    for case in resnet20_cifar_a resnet20_cifar_b resnet18_96 resnet50_64_bias resnet50_96 convnext_tiny_96 \
        resnext50_32x4d_96 swin_t_160; do
        "$BUILD/tests/golden" "${words[@]}" tests/golden/models/$case.json > "$ROOM/out" 2>&1
        none "$case in $parts parts is as near to PyTorch's f64 as whole" "$(grep -A 1 '^not ok' "$ROOM/out")"
        like "$ROOM/out" '^ok .* gradients: [1-9]' "  its gradients too"
    done
done

# --- what crosses of a Swin-T, 2 images of 64 pixels on 2 ranks, in messages and bytes: of a
# block's pair its input and the other part's product, forward, and the gradients of both, backward
# attention: of maps padded to windows of 7; in the first blocks, of 3 heads, it is whole
is "$(sent_by swin_t)" "$(formula 22 $((96 * 256 * 2 + 192 * (196 + 64) * 2 + 384 * (49 + 16) * 6 +
    768 * (49 + 4) * 2)))" "Swin-T: two a block each way, of its maps"
done_testing
