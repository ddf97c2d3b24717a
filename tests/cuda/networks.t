#!/usr/bin/env bash
# Whole networks with device=cuda on the stand-in for a GPU, beside the CPU's figures: a detector trains, is
# judged and predicts; with ALL=1 (long/networks.t) ConvNeXt, Swin and EfficientNet train, too.
# shellcheck source=tests/lib.sh
. "$(dirname "$0")/../lib.sh"
# shellcheck source=tests/tools/sources.sh
. "$(dirname "$0")/../tools/sources.sh"
standin_gpu
need kolo kolo-pack
export KOLO_CACHE=$ROOM/cache OMP_NUM_THREADS=1
coco_of_four '{"id": 1, "image_id": 1, "category_id": 9, "bbox": [2, 2, 12, 14], "area": 168, "iscrowd": 0},
     {"id": 2, "image_id": 2, "category_id": 20, "bbox": [4, 3, 15, 10.5], "area": 150, "iscrowd": 0}' 1 2 3 4
packs "four images with boxes" --source coco-json --in "$ROOM/set"
figures() { # RUN: losses
    sed -n 's/.*"event":"step","step":\([0-9]*\),.*"loss":\([0-9.e+-]*\),.*/\1 \2/p' "$ROOM/$1/events.jsonl"
}
both() { # NAME OPTION...
    local device
    for device in cpu cuda; do
        kolo train val=none run="$ROOM/$1-$device" device=$device threads=1 deterministic=true lr=1e-5 \
            warmup=0 schedule=constant progress=0 "${@:2}" > "$ROOM/log" 2>&1
        ok $? "$1 trains with device=$device" "$ROOM/log"
    done
    # a small batch norm makes more of a rounding at every step
    paste <(figures "$1-cuda") <(figures "$1-cpu") |
        awk '{ d = $2 / $4 - 1; if ($1 != $3 || d * d > 4e-6) bad = 1; n++ } END { exit bad || n < 2 }'
    ok $? "$1: the CPU's losses to two in a thousand" || paste <(figures "$1-cuda") <(figures "$1-cpu") |
        sed 's/^/#   /'
}
boxes=(size=64 batch=4 epochs=2 mosaic=.5 close_mosaic=1 multi_scale=64-96 ema=.9 data="$ROOM/out")
both yolox_nano model=yolox_nano "${boxes[@]}" val="$ROOM/out" eval_epochs=2
for device in cpu cuda; do
    kolo eval run="$ROOM/yolox_nano-cpu" threads=1 conf=0.001 device=$device results="$ROOM/$device.json" 2> \
        "$ROOM/log" | sed 's/  (4 images.*//' > "$ROOM/$device.eval"
    kolo predict run="$ROOM/yolox_nano-cpu" threads=1 box_threshold=0 device=$device "$ROOM/images/0.jpg" 2> \
        "$ROOM/log" | awk '{printf "%.2f %s\n", $1, $2}' | sort -r | head -n 20 > "$ROOM/$device.boxes"
done
is "$(cat "$ROOM/cuda.eval")" "$(cat "$ROOM/cpu.eval")" "a detector is judged as on the CPU"
is "$(cat "$ROOM/cuda.boxes")" "$(cat "$ROOM/cpu.boxes")" "a detector predicts the boxes of the CPU"
[ "${ALL:-0}" = 1 ] || done_testing
shapes_data 16 8
for model in convnext_tiny swin_t efficientnet_b0; do
    both $model model=$model size=32 batch=16 steps=2 data="$ROOM/data/train"
done
done_testing
