#!/usr/bin/env bash
# Image labels and boxes of Open Images' form, made of real photos, learned by the small recipes to
# figures well above chance.
# shellcheck source=tests/lib.sh
. "${BASH_SOURCE[0]%/*}/../lib.sh"
need kolo kolo-pack python3
I=$KOLO_SHARED/data/imagenette224
C=$KOLO_SHARED/data/detection/coco-yolo
if [ ! -d "$I" ] || [ ! -d "$C" ]; then skip_all "no photos here"; fi
O=$ROOM/open
mkdir -p "$O"

# Imagenette's photos with what people might have verified: the class and its kind are there, three others
# drawn at random are not.
python3 - "$I" "$O" << 'END'
import os, random, sys
source, out = sys.argv[1:]
kinds = {"n01440764": ("tench", "animal"), "n02102040": ("springer", "animal"),
         "n02979186": ("cassette player", "instrument"),
         "n03000684": ("chain saw", "tool"),
         "n03028079": ("church", "building"), "n03394916": ("French horn", "instrument"),
         "n03417042": ("garbage truck", "vehicle"),
         "n03425413": ("gas pump", "building"),
         "n03445777": ("golf ball", "sport"), "n03888257": ("parachute", "sport")}
names = sorted({n for pair in kinds.values() for n in pair})
mid = {n: "/m/%02d" % i for i, n in enumerate(names)}
random.seed(5)
os.mkdir(out + "/annotations")
with open(out + "/annotations/class-descriptions-boxable.csv", "w") as f:
    f.writelines("%s,%s\n" % (mid[n], n) for n in names)
number = 0
for split, long in ("train", "train"), ("val", "validation"):
    os.mkdir(out + "/" + long)
    with open("%s/annotations/%s-annotations-human-imagelabels-boxable.csv" % (out, long), "w") as f:
        f.write("ImageID,Source,LabelName,Confidence\n")
        for synset, there in kinds.items():
            for file in sorted(os.listdir("%s/%s/%s" % (source, split, synset))):
                number += 1
                os.symlink(os.path.abspath("%s/%s/%s/%s" % (source, split, synset, file)),
                           "%s/%s/%016x.jpg" % (out, long, number))
                f.writelines("%016x,verification,%s,1\n" % (number, mid[n]) for n in there)
                f.writelines("%016x,verification,%s,0\n" % (number, mid[n])
                             for n in random.sample([n for n in names if n not in there], 3))
END
kolo-pack --source openimages-csv --in "$O" --split train --size 80 --encoding raw --out "$ROOM/train" > \
    "$ROOM/log" 2>&1
ok $? "2,500 photos with verified labels are packed" "$ROOM/log"
kolo-pack --source openimages-csv --in "$O" --split val --size 80 --encoding raw --stats-from "$ROOM/train" \
    --out "$ROOM/val" > "$ROOM/log" 2>&1
ok $? "and 600 of validation" "$ROOM/log"
kolo train share/recipes/resnet18_openimages_small.yaml data="$ROOM/train" val="$ROOM/val" run="$ROOM/run" \
    progress=0 > "$ROOM/log" 2>&1
ok $? "resnet18_openimages_small" "$ROOM/log"
# RUN FIGURE
last() { grep '"eval"' "$ROOM/$1/events.jsonl" | tail -n 1 | sed "s/.*\"$2\":\([0-9.]*\).*/\1/"; }
map=$(last run map) micro=$(last run ap_micro)
# two of five labels of an image are positive: by chance .4
is "$(awk "BEGIN { print ($map > .6) ($micro > .6) }")" 11 \
    "mean AP $map, micro AP $micro of verified labels: above .6, by chance .4"

# Eight COCO photos as Open Images has them, the boxes of one class as groups.
python3 - "$C" "$ROOM/boxes" << 'END'
import os, sys
source, out = sys.argv[1:]
os.makedirs(out + "/train"), os.makedirs(out + "/annotations")
found, classes = [], set()
for folder, _, files in os.walk(source + "/labels"):
    found += [os.path.join(folder, f) for f in files if f.endswith(".txt")]
with open(out + "/annotations/train-annotations-bbox.csv", "w") as f:
    f.write("ImageID,Source,LabelName,Confidence,XMin,XMax,YMin,YMax,"
            "IsOccluded,IsTruncated,IsGroupOf,IsDepiction,IsInside\n")
    for i, label in enumerate(sorted(found)[:8]):
        image = label.replace("/labels/", "/images/").replace(".txt", ".jpg")
        os.symlink(os.path.abspath(image), "%s/train/%016x.jpg" % (out, i))
        for row in open(label):
            c, x, y, w, h = map(float, row.split()[:5])
            classes.add(int(c))
            f.write("%016x,x,/m/%02d,1,%f,%f,%f,%f,0,0,%d,0,0\n" %
                    (i, c, max(x - w / 2, 0), min(x + w / 2, 1), max(y - h / 2, 0), min(y + h / 2, 1),
                     w * h > .5))
with open(out + "/annotations/class-descriptions-boxable.csv", "w") as f:
    f.writelines("/m/%02d,class %d\n" % (c, c) for c in sorted(classes))
END
kolo-pack --source openimages-csv --in "$ROOM/boxes" --split train --out "$ROOM/packed" > "$ROOM/log" 2>&1
ok $? "eight photos with boxes and groups are packed" "$ROOM/log"
kolo train share/recipes/yolox_nano_openimages_small.yaml data="$ROOM/packed" val="$ROOM/packed" \
    run="$ROOM/few" progress=0 > "$ROOM/log" 2>&1
ok $? "yolox_nano_openimages_small" "$ROOM/log"
map=$(last few map_openimages)
is "$(awk "BEGIN { print ($map > .5) }")" 1 "Open Images mAP $map of the boxes it was shown: above .5"
done_testing
