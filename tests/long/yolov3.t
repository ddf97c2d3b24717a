#!/usr/bin/env bash
# YOLOv3-tiny from darknet's weights of 80 classes to three kinds of blood cells: eight photos are begun to
# be learnt, judged, drawn. Some minutes.
# shellcheck source=tests/lib.sh
. "${BASH_SOURCE[0]%/*}/../lib.sh"
need kolo kolo-pack kolo-shards
CELLS=$KOLO_SHARED/data/detection/voc-bccd COCO=$KOLO_SHARED/data/detection/coco-json
if [ ! -d "$CELLS" ] || [ ! -d "$COCO" ]; then skip_all "no photos with boxes here"; fi
export KOLO_CACHE=$ROOM/cache
recipe=(share/recipes/yolov3_small.yaml batch=4 optimizer=adamw lr=0.001 hsv=0)
kolo-pack --source coco-json --in "$COCO" --split train --size 160 --resize longer --encoding jpeg --out \
    "$ROOM/coco" > "$ROOM/log" 2>&1
ok $? "photos of 80 classes are packed"
kolo-pack --source voc-xml --in "$CELLS" --split train --limit 8 --size 160 --resize longer --encoding jpeg \
    --out "$ROOM/cells" > "$ROOM/log" 2>&1
ok $? "eight photos of cells"
kolo train "${recipe[@]}" data="$ROOM/coco" val=none epochs=1 run="$ROOM/first" > "$ROOM/log" 2>&1
ok $? "an epoch of 80 classes" || tail -n 3 "$ROOM/log"
kolo export "$ROOM/first" "$ROOM/first.weights" > "$ROOM/log" 2>&1
is "$(stat -c %s "$ROOM/first.weights")" 35434956 "the exported .weights is as long as the published file"
kolo train "${recipe[@]}" data="$ROOM/cells" val="$ROOM/cells" epochs=100 eval_epochs=0 \
    init="$ROOM/first.weights" run="$ROOM/run" > "$ROOM/log" 2>&1
ok $? "three classes are learnt from init=FILE.weights: exit 0"
like "$ROOM/log" 'begins anew: 4 tensors' "the heads begin anew"
kolo eval run="$ROOM/run" > "$ROOM/eval" 2>&1
ok $? "evaluated"
ap50=$(sed -n 's/^AP [-0-9.]*  AP50 \([-0-9.]*\) .*/\1/p' "$ROOM/eval")
# A beginning only: twenty small cells a photo, and statistics that follow by a hundredth a step. What it
# finds is far from what its loss asks for: 0.033 and 0.100 were measured, and 0.300 of the latter with
# all sizes put back to the anchors'. So this says that boxes come out where cells are; the loss is judged
# by how far it falls.
awk -v x="$ap50" 'BEGIN { exit !(x >= .02) }'
ok $? "AP50 is $ap50: at least .02"
losses "$ROOM/run" | awk \
    'NR == 1 { first = $2 } { last = $2 }
      END { print "# loss " first " to " last; exit !(last < first / 10) }'
ok $? "the loss falls to less than a tenth (a twelfth and a thirteenth were measured)"
kolo export "$ROOM/run" "$ROOM/cells.weights" > "$ROOM/log" 2>&1
kolo-shards extract "$ROOM/cells" --out "$ROOM/photos" > "$ROOM/log" 2>&1
photo=$(find "$ROOM/photos" -name '*.jpg' | sort | head -n 1)
kolo predict model=yolov3_tiny size=160 classes=3 box_threshold=0.02 weights="$ROOM/cells.weights" \
    out="$ROOM/drawn" \
    "$photo" > "$ROOM/told" 2>&1
ok $? "kolo predict of a photo: exit 0"
like "$ROOM/told" '^  0\.[0-9]+  [0-2]  ' "kolo predict of a photo: boxes are printed"
is "$(find "$ROOM/drawn" -name '*.png' | wc -l)" 1 "kolo predict of a photo: a PNG is written"
done_testing
