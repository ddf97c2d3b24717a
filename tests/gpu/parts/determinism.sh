# deterministic=true: two runs, the same bits
# shellcheck shell=bash
need_data
twice() { # NAME TEXT ARGS
    local name=$1 text=$2
    shift 2
    train "$name.one" 60 "$@" seed=3 device=cuda && train "$name.two" 60 "$@" seed=3 device=cuda &&
        same_bits "$name.one" "$name.two" "$text"
}
if [ -n "$DRY" ]; then
    twice small "ResNet-20, bf16, twice" resnet20_cifar data="$DATA/small/train" batch=8 steps=4 \
        precision=bf16 deterministic=true
else
    twice small "ResNet-20, bf16, twice" resnet20_cifar data="$DATA/small/train" batch=256 steps=30 \
        precision=bf16 deterministic=true
    twice half "ResNet-20, fp16, twice" resnet20_cifar data="$DATA/small/train" batch=256 steps=30 \
        precision=fp16 deterministic=true
    twice photos "ResNet-50 at 224 pixels, bf16, twice" resnet50_imagenet data="$DATA/photos/train" batch=64 \
        steps=10 precision=bf16 deterministic=true
    twice tf32 "ResNet-50 at 128 pixels, TF32, twice" resnet50_imagenet data="$DATA/photos/train" batch=64 \
        size=128 steps=6 precision=tf32 deterministic=true
    # without deterministic=true nobody promises it; so it is only told what came of it
    for run in one two; do train "free.$run" 60 resnet20_cifar data="$DATA/small/train" batch=256 steps=10 \
        precision=bf16 seed=3 device=cuda || break; done
    if [ -n "$SHOW" ] || [ ! -e "$ROOM/free.two/events.jsonl" ]; then :
    elif [ "$(losses free.one)" = "$(losses free.two)" ]; then note \
        "deterministic=false gave the same losses too"
    else note "deterministic=false gave other losses, as it may"; fi
fi
