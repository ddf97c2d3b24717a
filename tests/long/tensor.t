#!/usr/bin/env bash
# Networks whose channels are cut into parts: the bytes of one rank that computes all of them, ten steps, odd
# sides, batches of one image, grids; and golden cases, cut. 6 minutes.
# shellcheck source=tests/lib.sh
. "$(dirname "$0")/../lib.sh"
# shellcheck source=tests/pipeline.sh
. tests/pipeline.sh
# shellcheck source=tests/tensor.sh
. tests/tensor.sh
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

common=(data=synthetic val=none classes=10 channels=3 steps=10 lr=0.01 warmup=0
    reduce=canonical bn=ghost conv=direct deterministic=true threads=1)
network() { # MODEL SIZE BATCH PARTS RANKS...
    local ranks
    rm -rf "$ROOM/one"
    kolo train "${common[@]}" model="$1" size="$2" batch="$3" micro_batch="$3" tensor="$4" run="$ROOM/one" \
        > "$ROOM/log" 2>&1
    is $? 0 "$1, $2 pixels, batch $3, $4 parts on one rank" "$ROOM/log"
    for ranks in "${@:5}"; do
        rm -rf "$ROOM/several"
        timeout 300 mpiexec -n "$ranks" kolo train "${common[@]}" model="$1" size="$2" batch="$3" \
            micro_batch="$3" tensor="$4" run="$ROOM/several" > "$ROOM/log" 2>&1
        is $? 0 "  on $ranks ranks" "$ROOM/log"
        cmp "$(tensors_of "$ROOM/one")" "$(tensors_of "$ROOM/several")" > "$ROOM/log" 2>&1
        ok $? "  the same bytes after ten steps" "$ROOM/log"
    done
}
network resnet20 45 4 2 2
network resnet20 16 1 4 2 4
network resnet50 64 2 2 2
network resnet50 64 2 4 4
network convnext_tiny 64 1 4 2 4
network vgg11 61 2 2 2
network swin_t 64 2 3 3
network swin_t 75 1 4 2 4
network yolox_nano 64 2 2 2
network yolox_nano 64 1 4 4
network efficientnet_b0 64 2 2 2

for parts in 2 4; do
    for case in resnet20_cifar_a resnet20_cifar_b resnet18_96 resnet50_64_bias resnet50_96 convnext_tiny_96 \
        resnext50_32x4d_96 swin_t_160; do
        "$BUILD/tests/golden" tensor=$parts tests/golden/models/$case.json > "$ROOM/out" 2>&1
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
