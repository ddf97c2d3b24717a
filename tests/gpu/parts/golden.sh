# operations, and networks on the GPU against PyTorch's figures
# shellcheck shell=bash
if [ -n "$DRY" ]; then
    tap lenet5 60 golden device=cuda "$GOLDEN/models/lenet5.json"
    tap resnet20_cifar_a_16 120 golden device=cuda "$GOLDEN/models/resnet20_cifar_a_16.json"
    tap yolox_nano_128 120 golden device=cuda "$GOLDEN/models/yolox_nano_128.json"
    tap "single operations" 120 golden device=cuda "$GOLDEN/ops"
else
    tap "single operations" 30 golden device=cuda "$GOLDEN/ops"
    for model in resnet50 convnext_tiny swin_t yolox resnet20 resnext50_32x4d resnet18 lenet5; do
        found=0
        for file in "$GOLDEN/models/$model"_*.json "$GOLDEN/models/$model.json"; do
            [ ! -f "$file" ] || { found=1 && tap "$(basename "$file" .json)" 30 golden device=cuda "$file"; }
        done
        [ $found = 1 ] || skip "no figures of $model here"
    done
    for optimizer in sgd_momentum sgd_nesterov_decay sgd_smooth sgd_ema sgd_ema_ramp sgd_clip_norm; do
        tap "ten steps of resnet20, $optimizer" 20 golden device=cuda "$GOLDEN/train/resnet20_$optimizer.json"
    done
fi
