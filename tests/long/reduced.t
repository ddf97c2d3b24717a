#!/usr/bin/env bash
# ConvNeXt-T and Swin-T on Imagenette for an epoch, in kolo and in torchvision (tests/peers/reduced.py) from
# the same first weights. A quarter of an hour and more.
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
    kolo-pack --source imagefolder --in "$PHOTOS/$split" --split $split "${from[@]}" --out "$ROOM/$split" > \
        "$ROOM/log" 2>&1
    ok $? "packed: $split"
done
beside() { # RECIPE SIZE
    local recipe=$ROOM/$1.yaml model
    { grep -vE '^(epochs|size|warmup):' "share/recipes/$1.yaml" &&
        printf \
            'epochs: %s\nsize: %s\nwarmup: 0.1\nmean: [0.485, 0.456, 0.406]\nstd: [0.229, 0.224, 0.225]\n' \
            "${EPOCHS:-1}" "$2"; } > "$recipe"
    model=$(sed -n 's/^model: *//p' "$recipe")
    kolo export "model=$model" classes=10 "size=$2" seed=1 "$ROOM/first.safetensors" > "$ROOM/log" 2>&1
    kolo train "$recipe" data="$ROOM/train" val="$ROOM/val" init="$ROOM/first.safetensors" run="$ROOM/$1" > \
        "$ROOM/log" 2>&1
    ok $? "$1 at $2 pixels"
    "$PYTHON" tests/peers/reduced.py "$recipe" "$PHOTOS" "$ROOM/first.safetensors" 2 > "$ROOM/theirs" 2>&1
    ok $? "$1 in torchvision: $(tail -n 1 "$ROOM/theirs")"
    ours=$(sed -n 's/.*"event":"eval".*"top1":\([0-9.]*\).*/\1/p' "$ROOM/$1/events.jsonl" | tail -n 1)
    theirs=$(sed -n 's/.*top-1 \([0-9.]*\)$/\1/p' "$ROOM/theirs" | tail -n 1)
    # two runs of one program with other seeds are some .03 apart
    awk -v a="$ours" -v b="$theirs" 'BEGIN { exit !(a > 0 && b > 0 && a > b - .08) }'
    ok $? "$1: top-1 ${ours:-none}, torchvision's ${theirs:-none}: not behind by .08"
}
beside convnext_tiny_imagenette 32
beside swin_tiny_imagenette 56 # the smallest at which windows are shifted
done_testing
