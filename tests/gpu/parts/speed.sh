# speed of the rest: other batches and precisions, packed images, no replay, ResNet-20,
# ConvNeXt, Swin, EfficientNet
# shellcheck shell=bash
need_data
# depthwise LOG: the rates of its 7 x 7 depthwise convolutions, of the bytes that they cannot but move, as
# shares of what a copy moves
depthwise() {
    measure_ceilings
    awk -v copy="$(ceiling copy)" '/; own depthwise/ && $4 ~ /^[0-9.]+$/ {ms[$1] += $2; bytes[$1] += $2 * $4}
        END {for (op in ms) printf "%s %.1f %.3f\n", op, bytes[op] / ms[op],
            copy > 0 ? bytes[op] / ms[op] / copy : 0}' \
            "$1" | sort > "$ROOM/depthwise"
    while read -r op rate share; do
        note "depthwise $op: $rate GB/s, $share of a copy"
        record depthwise "name=$op" "gb_s=$rate" "of_copy=$share"
        goal "depthwise $op, share of a copy" "$share" 0.6
    done < "$ROOM/depthwise"
}
if [ -z "$DRY" ]; then
    for model in convnext_tiny swin_t efficientnet_b0; do
        bench "$model.128" model=$model size=224 steps=20 precision=bf16 batch=128 &&
            bench $model.profile model=$model size=224 steps=20 precision=bf16 batch=128 --profile &&
            [ -z "$SHOW" ] && record_profile "$LOGS/bench.$model.profile"
    done
    [ ! -s "$LOGS/bench.convnext_tiny.profile" ] || depthwise "$LOGS/bench.convnext_tiny.profile"
fi
rate_of synthetic.256 bench_big synthetic.256 256 precision=bf16
base=$rate
bench_big synthetic.512 512 precision=bf16
if bench_big packed 256 precision=bf16 data="$DATA/photos/train"; then note "packed images: $(ratio \
    "$rate" "$base") of the synthetic speed"; fi
bench_small resnet20.bf16 precision=bf16
bench_small resnet20.f32 precision=f32
if bench_big eager 256 precision=bf16 replay=false; then note "launched kernel by kernel: $(ratio "$rate" \
    "$base") of the replayed speed"; fi
bench_big tf32.128 128 precision=tf32
# as few images as a GPU of a large job has: how far short kernels are from the rates that kolo plan goes by
if bench_big few.50 50 precision=fp16; then
    few=$rate
    rate_of fp16.256 bench_big fp16.256 256 precision=fp16
    note "50 images in fp16: $(ratio "$few" "$rate") of the speed of 256"
    [ -z "$DRY$SHOW" ] && bench_big profile.few 50 precision=fp16 --profile &&
        record_profile "$LOGS/bench.profile.few"
fi
bench_big synthetic.128 128 precision=bf16
