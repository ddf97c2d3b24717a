#!/usr/bin/env bash
# All real data that is here: packed, verified, and read back by others (h5py, h5dump, Pillow), sample by
# sample. Then what a packing meets: a disk that is full, a folder that is read-only. Kills are pack_kills.t,
# quotas tools/pack_full.t, the soak unit/data_soak.
#   PYTHON=python with h5py, numpy and Pillow [that of `make peers`]
# shellcheck source=tests/lib.sh
. "$(dirname "$0")/../lib.sh"
need kolo-pack kolo-shards
DATA=$KOLO_SHARED/data
[ -d "$DATA" ] || skip_all "no real data here"
# shellcheck source=tests/peers/python.sh
. tests/peers/python.sh
sums() { (cd "$1" && sha256sum -- *); }
comparisons=()
# KIND TEXT SOURCE[:MORE] NAME KOLO-PACK'S OPTIONS...: what data_acceptance.py compares it with
packs() {
    local kind=$1 text=$2 source=$3 name=$4
    shift 4
    kolo-pack "$@" --out "$ROOM/$name" > "$ROOM/log" 2>&1 &&
        kolo-shards verify "$ROOM/$name" --decode >> "$ROOM/log" 2>&1
    local status=$?
    ok $status "$text: packed and verified"
    if [ $status = 0 ]; then comparisons+=("$kind:$text:$ROOM/$name:$source"); else tail -n 3 "$ROOM/log" |
        sed 's/^/# /'; fi
}
# flat folders as a list, each file a class of its own
list() { find "$1" -maxdepth 1 -name '*.[jJpP][pPnN]*[gG]' | LC_ALL=C sort |
    awk -F / '{ print $0 "\t" $NF }'; }

for split in train val; do
    part=$([ $split = train ] && echo train || echo t10k)
    [ -d "$DATA/mnist" ] && packs idx "MNIST $split" \
        "$DATA/mnist/$part-images-idx3-ubyte.gz:$DATA/mnist/$part-labels-idx1-ubyte.gz" mnist-$split \
        --source mnist-idx --in "$DATA/mnist" --split $split --shards 2
    [ -d "$DATA/imagenette224" ] && packs kept "imagenette $split, its bytes" "$DATA/imagenette224/$split" \
        nette-$split \
        --source imagefolder --in "$DATA/imagenette224" --split $split --shards 3
    [ -d "$DATA/imagenette224" ] && packs pixels "imagenette $split, 160 px" "$DATA/imagenette224/$split" \
        nette160-$split \
        --source imagefolder --in "$DATA/imagenette224" --split $split --encoding raw --size 160
    [ -d "$DATA/detection" ] || continue
    packs coco "COCO $split" \
        "$DATA/detection/coco-json/images/${split}2017:$DATA/detection/coco-json/annotations/instances_${split}2017.json" \
        coco-$split --source coco-json --in "$DATA/detection/coco-json" --split $split
    packs coco "two of COCO $split" \
        "$DATA/detection/mini-coco-voc/coco/images/${split}2017:$DATA/detection/mini-coco-voc/coco/annotations/instances_${split}2017.json" \
        mini-$split --source coco-json --in "$DATA/detection/mini-coco-voc/coco" --split $split
    packs voc "VOC $split" "$DATA/detection/voc-bccd" voc-$split --source voc-xml --in \
        "$DATA/detection/voc-bccd" --split $split --on-error skip
    packs yolo "YOLO $split" "$DATA/detection/coco-yolo" yolo-$split --source yolo-txt --in \
        "$DATA/detection/coco-yolo" --split $split \
        --annotations "$DATA/detection/coco-yolo/config.yaml"
done
if [ -d "$DATA/cifar10" ]; then
    for file in data_batch_1_first4000 test_2000_from_jpeg; do
        packs cifar "CIFAR $file" "$DATA/cifar10/$file.bin" $file --source cifar-bin --in \
            "$DATA/cifar10/$file.bin" --shards 2
    done
    for split in train test; do
        mkdir -p "$ROOM/cifar" && tar -xJf "$DATA/cifar10/jpeg/$split.tar.xz" -C "$ROOM/cifar"
        packs kept "CIFAR $split, JPEG files" "$ROOM/cifar/$split" cifar-$split --source imagefolder --in \
            "$ROOM/cifar/$split" --shards 2
    done
fi
if [ -d "$DATA/imagenet-sample" ]; then
    list "$DATA/imagenet-sample" > "$ROOM/photos.txt"
    packs kept "ImageNet's photos, their bytes" / photos --source list --in "$ROOM/photos.txt"
    packs pixels "ImageNet's photos, 256 px" / photos256 --source list --in "$ROOM/photos.txt" --encoding \
        raw --size 256
fi
if [ -d "$DATA/lfw" ]; then
    packs kept "LFW" "$DATA/lfw/crop150" lfw --source lfw --in "$DATA/lfw/crop150" --annotations \
        "$DATA/lfw/pairs_folds1-2.txt"
    packs kept "LFW's original files" "$DATA/lfw/original250" lfw250 --source imagefolder --in \
        "$DATA/lfw/original250"
fi
if [ -d "$DATA/odd-images" ]; then
    list "$DATA/odd-images" > "$ROOM/odd.txt"
    packs kept "odd files, what can be read of them" / odd --source list --in "$ROOM/odd.txt" --encoding \
        mixed --on-error skip --check decode
    echo "# rejected: $(sed 's/\t.*//; s/.*\///' "$ROOM"/odd/*.rejects | tr '\n' ' ')"
fi
if peers_have h5py numpy PIL; then
    "$PYTHON" tests/long/data_acceptance.py "$tap_count" "${comparisons[@]}" > "$ROOM/compared" 2> \
        "$ROOM/error"
    status=$?
    cat "$ROOM/compared"
    tap_count=$((tap_count + ${#comparisons[@]}))
    [ $status != 0 ] && tail -n 5 "$ROOM/error" | sed 's/^/# /'
    [ "$(grep -c '^ok' "$ROOM/compared")" = "${#comparisons[@]}" ] || tap_failed=1
else
    skip "no h5py, numpy and Pillow to compare with: make peers"
fi

# a file system of its own, too small, then larger
DISK=$ROOM/disk
ARGS=(--source shapes --count 3000 --encoding raw --size 64 --shards 2 --threads 2)
kolo-pack "${ARGS[@]}" --out "$ROOM/shapes" > "$ROOM/log" 2>&1
mkdir "$DISK"
if mount -t tmpfs -o size=12m kolo-test "$DISK" 2> /dev/null; then
    at_end "umount '$DISK'"
    kolo-pack "${ARGS[@]}" --out "$DISK/shapes" > "$ROOM/log" 2>&1
    is $? 3 "a disk that is full: exit 3"
    like "$ROOM/log" 'MB' "a full disk: the message has the MB needed and free"
    mount -o remount,size=200m "$DISK"
    kolo-pack "${ARGS[@]}" --out "$DISK/shapes" --resume > "$ROOM/log" 2>&1 ||
        kolo-pack "${ARGS[@]}" --out "$DISK/shapes" > "$ROOM/log" 2>&1
    is "$(sums "$DISK/shapes")" "$(sums "$ROOM/shapes")" "packed again with room: the same bytes"
    mount -o remount,ro "$DISK"
    kolo-pack "${ARGS[@]}" --out "$DISK/more" > "$ROOM/log" 2>&1
    is $? 3 "a folder that is read-only: exit 3"
    like "$ROOM/log" 'Read-only file system' "a read-only folder: the message has the cause"
    kolo-shards extract "$DISK/shapes" --out "$ROOM/images" --limit 20 > "$ROOM/log" 2>&1 &&
        kolo-shards verify "$DISK/shapes" > "$ROOM/log" 2>&1
    is $? 0 "what lies there is read and verified"
else
    skip "no tmpfs can be mounted here"
fi
done_testing
