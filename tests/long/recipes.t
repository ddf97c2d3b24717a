#!/usr/bin/env bash
# Every recipe for a desk begins to train as it stands: its own batch, sizes, augmentations, optimizer,
# three steps of them.
# shellcheck source=tests/lib.sh
. "${BASH_SOURCE[0]%/*}/../lib.sh"
need kolo kolo-pack mpiexec
export OMP_NUM_THREADS=1
BOXES=$KOLO_SHARED/data/detection/coco-json
shapes_data 512 64
kolo-pack --source shapes --count 512 --size 28 --color gray --encoding raw --out "$ROOM/gray" > "$ROOM/log" \
    2>&1
ok $? "grey images are packed" "$ROOM/log"
kolo-pack --source shapes --count 512 --size 32 --encoding raw --out "$ROOM/even" > "$ROOM/log" 2>&1
ok $? "so are images of one size" "$ROOM/log"
[ ! -d "$BOXES" ] || kolo-pack --source coco-json --in "$BOXES" --split train --limit 32 --out "$ROOM/boxes" \
    > "$ROOM/log" 2>&1
for recipe in $(sed -n 's/^# small: *//p' share/recipes/*.yaml | sort -u); do
    data=$ROOM/data/train
    case $recipe in
    lenet5_mnist*) data=$ROOM/gray ;;
    *cifar* | *_lfw_* | *_lars_* | *_lamb_* | *_adasum_*) data=$ROOM/even ;;
    yolo* | *_openimages_*) data=$ROOM/boxes ;;
    esac
    ranks=1 more=()
    case $recipe in
    *_pipedream* | *_two_buffered* | *_backup*) ranks=2 ;;
    *_tournament*) more=("tournament_data=$data") ;;
    esac
    [ -d "$data" ] || { skip "$recipe: no photos with boxes here" && continue; }
    mpiexec -n "$ranks" kolo train "share/recipes/$recipe.yaml" data="$data" val=none threads=1 \
        deterministic=true tail=pad stop_step=3 progress=0 run="$ROOM/$recipe" "${more[@]}" > "$ROOM/log" 2>&1
    is $? 75 "$recipe trains, as far as it is told" || tail -n 3 "$ROOM/log" | sed 's/^/# /'
    is "$(losses "$ROOM/$recipe" | grep -cE ' [0-9.]+$')" 3 "$recipe: three losses"
done
done_testing
