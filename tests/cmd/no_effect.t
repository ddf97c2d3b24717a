#!/usr/bin/env bash
# What a user gives to train with works, or is refused: options that only say how another one works, and those
# of layers that the network does not have. A recipe may keep the former for later.
# shellcheck source=tests/lib.sh
. "${BASH_SOURCE[0]%/*}/../lib.sh"
need kolo
plan=(kolo plan data=synthetic val=none classes=10 batch=4 ranks=1 deterministic=true)
refused() { # MESSAGE WORDS...
    "${plan[@]}" "${@:2}" > "$ROOM/log" 2>&1
    is $? 78 "${*:2}: exit 78"
    like "$ROOM/log" "$1" "  $1"
}
taken() { # WORDS...
    "${plan[@]}" "$@" > "$ROOM/log" 2>&1
    ok $? "$*: accepted" "$ROOM/log"
}
small=(model=resnet20 size=32)
refused 'mix=pair has no effect without mixup= or cutmix=: give that, or leave mix= out' "${small[@]}" \
    mix=pair
taken "${small[@]}" mix=pair cutmix=1
refused 'cutmix_share=0.2 has no effect without cutmix=' "${small[@]}" mixup=1 --cutmix-share 0.2
taken "${small[@]}" mixup=1 cutmix=1 --cutmix-share 0.2
printf '%s\n' 'model: resnet20' 'size: 32' 'mixup: 0.2' 'mix: pair' 'schedule: step' 'step_every: 2' > \
    "$ROOM/recipe.yaml"
taken "$ROOM/recipe.yaml" mixup=0 schedule=cosine
refused 'step_every=3 has no effect without schedule=step' "$ROOM/recipe.yaml" schedule=cosine step_every=3
refused 'model=resnet20 has no dropout; give dropout=0' "${small[@]}" dropout=0.1
taken "${small[@]}" dropout=0
taken model=vgg11 size=32 dropout=0.1
refused 'model=resnet20 has no stochastic depth; give drop_path=0' "${small[@]}" drop_path=0.1
taken model=convnext_tiny size=32 drop_path=0.3
refused 'model=vgg11 has no residual block that ends in a norm' model=vgg11 size=32 zero_init_residual=true
taken "${small[@]}" zero_init_residual=true
refused "model=resnet18 has no choice of shortcuts; give shortcut=" model=resnet18 size=32 shortcut=b
taken "${small[@]}" shortcut=b
refused 'mosaic=, .* are of detectors, and model=resnet20 finds no boxes' "${small[@]}" mosaic=1
refused 'label_smoothing=, .* are of classifiers, and model=yolox_nano finds boxes' model=yolox_nano size=64 \
    label_smoothing=0.1
refused 'no augmentation `cutuot`, did you mean `cutout`' "${small[@]}" augment=cutuot
refused 'shuffle=blok: it is full, block:K' "${small[@]}" shuffle=blok
refused 'no algorithm "rign"; did you mean "ring"' "${small[@]}" comm_algorithm=rign
refused 'algorithm bruck is none of allreduce' "${small[@]}" comm_algorithm=bruck
taken "${small[@]}" 'augment=cutout,rotate(10)' shuffle=block:8 comm_algorithm=ring
done_testing
