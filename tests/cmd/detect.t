#!/usr/bin/env bash
# A detector from packing to drawn boxes: what each command says, stops and goes on, refuses. Whether it
# learns is long/detect.t.
# shellcheck source=tests/lib.sh
. "${BASH_SOURCE[0]%/*}/../lib.sh"
# shellcheck source=tests/tools/sources.sh
. "${BASH_SOURCE[0]%/*}/../tools/sources.sh"
need kolo kolo-pack kolo-shards
export OMP_NUM_THREADS=1 KOLO_CACHE=$ROOM/cache
coco_of_four '{"id": 1, "image_id": 30, "category_id": 9, "bbox": [2, 2, 12, 14], "area": 168, "iscrowd": 0},
     {"id": 2, "image_id": 10, "category_id": 20, "bbox": [4, 3, 15, 10.5], "area": 150, "iscrowd": 0},
     {"id": 3, "image_id": 20, "category_id": 9, "bbox": [1, 1, 18, 18], "area": 300, "iscrowd": 1}' 30 10 \
         20 5
packs "four images, three boxes" --source coco-json --in "$ROOM/set"
common="model=yolox_nano size=64 batch=2 lr=.01 mosaic=1 mosaic_mixup=1 hsv=1 flip=true close_mosaic=1"
common+=" deterministic=true conv=direct threads=1 readers=2 data=$ROOM/out val=$ROOM/out"
# shellcheck disable=SC2086
kolo train $common epochs=2 run="$ROOM/a" > "$ROOM/log" 2>&1
ok $? "two epochs of mosaics, the last without"
like "$ROOM/log" 'AP [0-9.]*, AP50 ' "the average precision after each"
none "the first of them has mosaics" "$(grep 'none has mosaics' "$ROOM/log")"
# shellcheck disable=SC2086
kolo train $common epochs=1 val=none run="$ROOM/plain" > "$ROOM/log" 2>&1
like "$ROOM/log" 'close_mosaic=1: the run has no more epochs than that, so none has mosaics' \
    "one epoch: that mosaics are closed from the first on is said"
like "$ROOM"/a/events.jsonl '"ap50":' "events.jsonl has the average precision, too"
is "$(sed -n 's/^  "loss": \([0-9.]*\),/\1/p' "$ROOM/a/summary.json" | cut -c1-5)" "$(losses "$ROOM/a" |
    tail -n 1 | cut -d' ' -f2 | cut -c1-5)" "the summary has the last loss: detectors are judged by none"
# shellcheck disable=SC2086
kolo train $common epochs=2 stop_step=3 run="$ROOM/b" > "$ROOM/log" 2>&1
is $? 75 "stopped within the last"
manifest=$(find "$ROOM/b/checkpoints" -name manifest.json | sort | tail -n 1)
like "$manifest" '"metrics": {"metric": "ap", "best_ap": [0-9]' \
    "a checkpoint tells the best average precision by its name"
# as they were written before they had names
sed -i \
    's/"metric": "ap", "best_ap": [0-9.]*/"best_top1": 0.75/; /^  "run":/,/^  },$/d; s/^  "crc32c": .*/  "none": 0/' \
    "$manifest"
# shellcheck disable=SC2086
kolo train $common epochs=2 readers=1 run="$ROOM/b" > "$ROOM/log" 2>&1
ok $? "the same run resumed with readers=1: exit 0"
is "$(sed -n 's/^  "\(metric\|top1\|top5\|best_top1\|best_ap\|map\)": \(.*\)/\1 \2/p' "$ROOM/b/summary.json" |
    tr -d '",\n')" \
    "top1 nulltop5 nullbest_top1 nullbest_ap 0.75map nullmetric ap" \
    "where the best was written as a top-1, it is taken for what it was"
grep -qE '"(ap|ap50)": [0-9]' "$ROOM/a/summary.json" && ! grep -q '"top1":' "$ROOM/a/events.jsonl"
ok $? "the summary has AP and AP50, and no event a top-1"
kolo export "$ROOM/a" "$ROOM/a.safetensors" > /dev/null 2>&1 &&
    kolo export "$ROOM/b" "$ROOM/b.safetensors" > /dev/null 2>&1 &&
    cmp -s "$ROOM/a.safetensors" "$ROOM/b.safetensors"
ok $? "a resumed run with one reader: the weights of an uninterrupted one"
kolo eval run="$ROOM/a" threads=1 conf=0 results="$ROOM/results.json" > "$ROOM/eval" 2>&1
ok $? "evaluation"
is "$(grep -c 'maxDets=' "$ROOM/eval") $(grep -c VOC "$ROOM/eval")" "12 0" \
    "prints COCO's twelve lines, and of its boxes no others"
like "$ROOM/results.json" '"image_id":30,"category_id":(9|20),"bbox":' \
    "results have the source's numbers of images and categories"
printf 'ant\nbee\n' > "$ROOM/names"
kolo predict model=yolox_nano classes=2 size=64 weights="$ROOM/a.safetensors" box_threshold=0 \
    out="$ROOM/drawn" \
    labels="$ROOM/names" "$ROOM/images/0.jpg" > "$ROOM/log" 2>&1
ok $? "kolo predict"
like "$ROOM/log" '^  [01]\.[0-9]+  [01]  (ant|bee)  [0-9.]+ [0-9.]+ [0-9.]+ [0-9.]+$' \
    "tells boxes with the names of their classes"
is "$(head -c 4 "$ROOM/drawn/0.png" | tail -c 3)" PNG "kolo predict out=: a PNG with the boxes"
mkdir "$ROOM/mixed" && cp "$ROOM/images/1.jpg" "$ROOM/mixed" &&
    head -c 300 "$ROOM/images/0.jpg" > "$ROOM/mixed/0.jpg"
kolo predict model=yolox_nano classes=2 size=64 weights="$ROOM/a.safetensors" out="$ROOM/half" "$ROOM/mixed" \
    > "$ROOM/log" 2>&1
is "$? $(ls "$ROOM/half")" "2 1.png" "a folder with a bad image: the good one is drawn, exit 2" "$ROOM/log"
like "$ROOM/log" 'mixed/0.jpg: .*; it is left out' "an unreadable image among others: a warning names it"
# darknet's file of five classes, a head of which stands in its middle, for the two of these images
head='[convolutional]\nfilters=30\nactivation=linear\n[yolo]\nmask=0,1,2\nanchors=4,4,8,8,16,16\nclasses=5\n'
layer='[convolutional]\nbatch_normalize=1\nfilters=8\nsize=3\nstride=2\npad=1\nactivation=leaky\n'
# shellcheck disable=SC2059
printf "[net]\nwidth=64\nheight=64\n${layer}${head}[route]\nlayers=0\n$layer$head" > "$ROOM/five.cfg"
kolo export model="$ROOM/five.cfg" seed=1 "$ROOM/five.weights" > "$ROOM/log" 2>&1
# shellcheck disable=SC2086
kolo train $common model="$ROOM/five.cfg" mosaic=0 mosaic_mixup=0 epochs=1 run="$ROOM/d" \
    init="$ROOM/five.weights" > "$ROOM/log" 2>&1
ok $? "weights of another class count are a start"
like "$ROOM/log" 'begins anew: 4 tensors.*module_list.1.conv.weight.*module_list.5.conv.weight' \
    "both heads begin anew"
mkdir "$ROOM/more" && cp "$ROOM/images/0.jpg" "$ROOM/more/0.jpeg"
kolo predict model=yolox_nano classes=2 size=64 weights="$ROOM/a.safetensors" out="$ROOM/twice" \
    "$ROOM/images/0.jpg" "$ROOM/images/1.jpg" "$ROOM/more/0.jpeg" > "$ROOM/log" 2>&1
is $? 78 "two images that would be drawn to one file"
like "$ROOM/log" 'images/0.jpg and .*more/0.jpeg would both become 0.png' \
    "two images that would be drawn to one file: the message names both"
kolo train model=yolox_nano data="$ROOM/shapes" val=none size=64 batch=2 epochs=1 run="$ROOM/c" > \
    "$ROOM/log" 2>&1
is $? 2 "images without boxes are refused"
like "$ROOM/log" 'boxes' "images without boxes: the message says so"
# shellcheck disable=SC2086
kolo train $common epochs=1 run="$ROOM/c" augment=randaugment > "$ROOM/log" 2>&1
is $? 78 "augment= with a detector: exit 78"
# shellcheck disable=SC2086
kolo train $common epochs=1 run="$ROOM/c" size=72 > "$ROOM/log" 2>&1
is $? 78 "size=72, not a multiple of 32: exit 78"
done_testing
