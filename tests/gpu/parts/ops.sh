# every operation forward and backward, on the GPU beside the CPU
# shellcheck shell=bash
# MODEL BATCH SIDE CLASSES PRECISION...: real shapes, the batch small enough that the CPU keeps up; then odd ones
if [ -n "$DRY" ]; then
    cases=("lenet5 3 28 10 f32" "resnet20 3 9 10 bf16 valid=2" "resnet20 2 8 10 fp16 deterministic=true")
else
    cases=()
    for precision in bf16 f32 tf32 fp16; do cases+=("resnet50 4 224 1000 $precision" "resnet20 32 32 10 $precision"); done
    for precision in bf16 f32; do cases+=("resnet18 4 224 1000 $precision"); done
    for precision in bf16 f32 fp16; do
        cases+=("lenet5 3 28 10 $precision" "mlp 5 28 13 $precision" "resnet18 3 71 13 $precision valid=2" "resnet20 7 29 10 $precision valid=5")
    done
    cases+=("resnet50 4 224 1000 bf16 deterministic=true" "resnet18 4 96 10 f32 deterministic=true" "resnet20 32 32 10 fp16 deterministic=true")
fi
for case in "${cases[@]}"; do
    read -r -a words <<< "$case"
    tap "${case// /.}" 40 parity "${words[@]}"
done
# the tests that compare one thing at a time, here with the library for GPUs instead of the stand-in
if [ -z "$DRY" ]; then
    for unit in $UNITS; do tap "unit.$unit" 30 "$unit"; done
fi
