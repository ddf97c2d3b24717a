#!/usr/bin/env bash
# A detector learns: YOLOX-nano on eight photos of COCO, judged on them, by kolo and by
# pycocotools. Some minutes.
#   PYTHON=python with pycocotools [that of `make peers`]
# shellcheck source=tests/lib.sh
. "${BASH_SOURCE[0]%/*}/../lib.sh"
need kolo kolo-pack
DATA=$KOLO_SHARED/data/detection/coco-json
[ -d "$DATA" ] || skip_all "no photos with boxes here"
kolo-pack --source coco-json --in "$DATA" --split train --limit 8 --out "$ROOM/set" > "$ROOM/log" 2>&1
ok $? "eight photos are packed"
kolo train share/recipes/yolox_nano_few.yaml data="$ROOM/set" val="$ROOM/set" run="$ROOM/run" > "$ROOM/log" \
    2>&1
ok $? "trained"
kolo eval share/recipes/yolox_nano_few.yaml val="$ROOM/set" run="$ROOM/run" conf=.001 \
    results="$ROOM/results.json" > "$ROOM/eval" 2>&1
ok $? "evaluated"
read -r ap ap50 < <(sed -n 's/^AP \([-0-9.]*\)  AP50 \([-0-9.]*\) .*/\1 \2/p' "$ROOM/eval")
awk -v x="$ap50" 'BEGIN { exit !(x >= .9) }'
ok $? "AP50 is $ap50: at least .9"
# shellcheck source=tests/peers/python.sh
. tests/peers/python.sh
if peers_have pycocotools.cocoeval; then
    "$PYTHON" - "$DATA/annotations/instances_train2017.json" "$ROOM/results.json" "$ap" "$ap50" > \
        "$ROOM/log" 2>&1 <<'PY'
import json, sys
from pycocotools.coco import COCO
from pycocotools.cocoeval import COCOeval
coco = COCO(sys.argv[1])
run = COCOeval(coco, coco.loadRes(sys.argv[2]), "bbox")
run.params.imgIds = sorted({r["image_id"] for r in json.load(open(sys.argv[2]))})
run.evaluate()
run.accumulate()
run.summarize()
far = max(abs(run.stats[0] - float(sys.argv[3])), abs(run.stats[1] - float(sys.argv[4])))
print("apart", far)
sys.exit(1 if len(run.params.imgIds) != 8 or far > 1e-9 else 0)
PY
    ok $? "pycocotools finds the same in the results: $(tail -n 1 "$ROOM/log")"
else
    skip "no pycocotools to compare with: make peers"
fi
done_testing
