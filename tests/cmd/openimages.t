#!/usr/bin/env bash
# A detector of Open Images' boxes: groups in training and in the Challenge's average precision, verified
# labels, the hierarchy.
# shellcheck source=tests/lib.sh
. "${BASH_SOURCE[0]%/*}/../lib.sh"
# shellcheck source=tests/tools/sources.sh
. "${BASH_SOURCE[0]%/*}/../tools/sources.sh"
need kolo kolo-pack kolo-shards
export OMP_NUM_THREADS=1 KOLO_CACHE=$ROOM/cache
small_images 4
O=$ROOM/set/annotations
mkdir -p "$ROOM/set/train" "$O"
for i in 0 1 2 3; do cp "$ROOM/images/$i.jpg" "$ROOM/set/train/000000000000000$i.jpg"; done
printf '/m/animal,Animal\n/m/cat,Cat\n/m/dog,Dog\n' > "$O/class-descriptions-boxable.csv"
printf '%s\n' \
    'ImageID,Source,LabelName,Confidence,XMin,XMax,YMin,YMax,IsOccluded,IsTruncated,IsGroupOf,IsDepiction,IsInside' \
    0000000000000000,x,/m/cat,1,0,1,0,1,0,0,1,0,0 0000000000000001,x,/m/dog,1,.1,.9,.1,.9,0,0,0,0,0 \
    0000000000000002,x,/m/cat,1,.2,.8,.1,.9,0,0,0,0,0 > "$O/train-annotations-bbox.csv"
printf '%s\n' ImageID,Source,LabelName,Confidence 0000000000000003,verification,/m/animal,0 > \
    "$O/train-annotations-human-imagelabels-boxable.csv"
packs "four images, three boxes, one a group" --source openimages-csv --in "$ROOM/set" --shuffle-seed 0
D=(model=yolox_nano size=64 batch=4 threads=1 readers=1 deterministic=true conv=direct data="$ROOM/out" \
    val="$ROOM/out" lr=.001)
for crowd in ignore background object; do
    kolo train "${D[@]}" crowd=$crowd epochs=1 run="$ROOM/$crowd" > "$ROOM/log" 2>&1
    ok $? "crowd=$crowd trains" "$ROOM/log"
done
loss() { losses "$ROOM/$1" | cut -d' ' -f2; }
[ "$(loss ignore)" != "$(loss background)" ] && [ "$(loss object)" != "$(loss background)" ] &&
    [ "$(loss object)" != "$(loss ignore)" ]
ok $? "three losses: $(loss ignore), $(loss background), $(loss object)"
is "$(awk "BEGIN { print ($(loss ignore) < $(loss background)) }")" 1 \
    "what lies in a group is not counted as background"
like "$ROOM/ignore/events.jsonl" '"ap50":.*"map_openimages":[0-9]' \
    "the Challenge's figure is among the events"
R=(run="$ROOM/object" threads=1 conf=0)
kolo eval "${R[@]}" results="$ROOM/found.json" > "$ROOM/eval" 2> "$ROOM/log"
ok $? "evaluation" "$ROOM/log"
like "$ROOM/eval" 'Open Images Challenge mean AP @\[ IoU=0.50 \] = [0-9.]+$' "tells the Challenge's mean AP"
is "$(kolo eval "${R[@]}" ap=coco 2> "$ROOM/log" | grep -c 'Open Images')" 0 "ap=coco does not"
cat > "$ROOM/tree.json" <<'END'
{"LabelName": "/m/0bl9f", "Subcategory": [
  {"LabelName": "/m/animal", "Subcategory": [{"LabelName": "/m/cat"}, {"LabelName": "/m/dog"}]}]}
END
kolo eval "${R[@]}" hierarchy="$ROOM/tree.json" hierarchy_names="$O/class-descriptions-boxable.csv" > \
    "$ROOM/with" 2> "$ROOM/log"
ok $? "with the hierarchy" "$ROOM/log"
like "$ROOM/with" 'Open Images Challenge mean AP' "with hierarchy=: prints the Challenge mean AP, too"
kolo eval "${R[@]}" hierarchy="$ROOM/tree.json" > "$ROOM/log" 2>&1
is $? 2 "labels that nothing names"
like "$ROOM/log" 'not one of its labels is a class of the data set; hierarchy_names=' \
    "hierarchy= without names of its labels: the message names hierarchy_names="
kolo eval "${R[@]}" hierarchy="$ROOM/none.json" > "$ROOM/log" 2>&1
is $? 2 "a hierarchy that is not there"
# the same boxes and labels as image labels of a classifier
for targets in tags boxes; do
    kolo train model=resnet20 size=32 crop=resized data="$ROOM/out" val="$ROOM/out" loss=bce \
        targets=$targets batch=4 epochs=1 threads=1 run="$ROOM/$targets" > "$ROOM/log" 2>&1
    ok $? "a classifier learns its $targets" "$ROOM/log"
done
like "$ROOM/boxes/events.jsonl" '"map":[0-9.]+,"ap_micro":[0-9.]+' "judged by mean AP"
done_testing
