# whole networks on the GPU beside the CPU, operation by operation, forward and backward
# shellcheck shell=bash
# MODEL BATCH SIDE CLASSES PRECISION...: real shapes, the batch small enough that the CPU
# keeps up; then odd ones
if [ -n "$DRY" ]; then
    cases=("lenet5 3 28 10 f32" "resnet20 3 9 10 bf16 valid=2" "resnet20 2 8 10 fp16 deterministic=true")
else
    # engines chosen by rule start at once; those chosen by a clock, as a training does, have to be tried
    # first. Small and odd images first, which take two seconds each; the processors need twenty for a
    # ResNet-50 of four images at 224 pixels.
    cases=()
    for precision in bf16 fp16 f32; do
        for network in "swin_t 3 75 13" "convnext_tiny 3 71 13" "efficientnet_b0 3 65 13" "lenet5 3 28 10" \
            "mlp 5 28 13"; do cases+=("$network $precision deterministic=true"); done
        for network in "resnet18 3 71 13 $precision valid=2" "resnet20 7 29 10 $precision valid=5"; do
            cases+=("$network deterministic=true")
        done
    done
    for precision in bf16 fp16 tf32 f32; do
        for network in "resnet20 32 32 10" "swin_t 2 224 1000" "resnet50 2 224 1000" \
            "convnext_tiny 2 224 1000"; do
            cases+=("$network $precision deterministic=true")
        done
    done
    cases+=("resnet20 32 32 10 bf16" "resnet50 2 224 1000 bf16" "lenet5 3 28 10 tf32")
fi
for case in "${cases[@]}"; do
    read -r -a words <<< "$case"
    tap "${case// /.}" 60 parity "${words[@]}"
done
