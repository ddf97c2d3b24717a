#!/usr/bin/env bash
# ConvNeXt-T and Swin-T on Imagenette for an epoch, in kolo and in torchvision (tests/peers/reduced.py) from the same first weights. Some minutes of two cores.
#   PYTHON=python with torch, torchvision, safetensors, yaml [that of `make peers`]; EPOCHS=1
# shellcheck source=tests/lib.sh
. "${BASH_SOURCE[0]%/*}/../lib.sh"
need kolo kolo-pack
# shellcheck source=tests/peers/python.sh
. tests/peers/python.sh
PHOTOS=${PHOTOS:-$KOLO_SHARED/data/imagenette224}
peers_have torch torchvision safetensors yaml || skip_all "no torchvision to compare with: make peers"
[ -d "$PHOTOS/train" ] || skip_all "no photos here"
export KOLO_CACHE=$ROOM/cache
for split in train val; do
    from=()
    [ $split = train ] || from=(--stats-from "$ROOM/train")
    kolo-pack --source imagefolder --in "$PHOTOS/$split" --split $split "${from[@]}" --out "$ROOM/$split" > "$ROOM/log" 2>&1
    ok $? "packed: $split"
done
beside() { # RECIPE SIZE
    local recipe=$ROOM/$1.yaml model
    { grep -vE '^(epochs|size|warmup):' "share/recipes/$1.yaml" && printf 'epochs: %s\nsize: %s\nwarmup: 0.1\nmean: [0.485, 0.456, 0.406]\nstd: [0.229, 0.224, 0.225]\n' "${EPOCHS:-1}" "$2"; } > "$recipe"
    model=$(sed -n 's/^model: *//p' "$recipe")
    kolo export "model=$model" classes=10 "size=$2" seed=1 "$ROOM/first.safetensors" > "$ROOM/log" 2>&1
    # a thread each, side by side
    "$PYTHON" tests/peers/reduced.py "$recipe" "$PHOTOS" "$ROOM/first.safetensors" 1 > "$ROOM/theirs" 2>&1 &
    kolo train "$recipe" data="$ROOM/train" val="$ROOM/val" init="$ROOM/first.safetensors" threads=1 run="$ROOM/$1" > "$ROOM/log" 2>&1
    ok $? "$1 at $2 pixels" "$ROOM/log"
    wait $!
    ok $? "$1 in torchvision: $(tail -n 1 "$ROOM/theirs")"
    read -r loss top1 < <(sed -n 's/.*"event":"eval".*"loss":\([0-9.e-]*\),"top1":\([0-9.]*\).*/\1 \2/p' "$ROOM/$1/events.jsonl" | tail -n 1)
    read -r their_loss their_top1 < <(sed -n 's/.*validation \([0-9.]*\), top-1 \([0-9.]*\)$/\1 \2/p' "$ROOM/theirs" | tail -n 1)
    # two runs of one program with other seeds are some .03 apart in either; chance is 2.303 and .1
    awk -v a="${top1:-0}" -v b="${their_top1:-0}" 'BEGIN { exit !(a > .2 && b > .2 && a - b < .08 && b - a < .08) }'
    ok $? "$1: top-1 ${top1:-none}, torchvision's ${their_top1:-none}: within .08"
    awk -v a="${loss:-9}" -v b="${their_loss:-0}" 'BEGIN { exit !(a - b < .1 && b - a < .1) }'
    ok $? "$1: validation loss ${loss:-none}, torchvision's ${their_loss:-none}: within .1"
}
beside convnext_tiny_imagenette 32
beside swin_tiny_imagenette 56 # the smallest at which windows are shifted
done_testing
