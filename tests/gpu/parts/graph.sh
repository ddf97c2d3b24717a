# a step replayed as a CUDA graph gives the bits of the same step launched kernel by kernel
# shellcheck shell=bash
need_data
fixed=(deterministic=true schedule=constant warmup=0 seed=2 device=cuda)
eager_and_replayed() { # NAME TEXT ARGS
    local name=$1 text=$2
    shift 2
    train "$name.replayed" 60 "$@" "${fixed[@]}" replay=true &&
        train "$name.eager" 60 "$@" "${fixed[@]}" replay=false &&
        same_bits "$name.replayed" "$name.eager" "$text"
}
if [ -n "$DRY" ]; then
    eager_and_replayed small "ResNet-20, bf16" resnet20_cifar data="$DATA/small/train" batch=8 steps=5 \
        precision=bf16
else
    eager_and_replayed small "ResNet-20, bf16" resnet20_cifar data="$DATA/small/train" batch=128 steps=20 \
        precision=bf16
    eager_and_replayed scaled "ResNet-20, fp16 with loss scaling, clipping, averages" resnet20_cifar \
        data="$DATA/small/train" batch=128 steps=20 \
        precision=fp16 clip_norm=1 ema=0.99
    eager_and_replayed folded "ResNet-20, f32, four micro-batches" resnet20_cifar data="$DATA/small/train" \
        batch=128 micro_batch=32 steps=10 precision=f32
    eager_and_replayed photos "ResNet-50 at 128 pixels, bf16" resnet50_imagenet data="$DATA/photos/train" \
        batch=64 size=128 steps=10 precision=bf16
fi
