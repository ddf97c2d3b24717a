#!/usr/bin/env bash
# kolo models: the figures of PyTorch's inventory, one network by maps, cfg files, clear errors.
# shellcheck source=tests/lib.sh
. "${BASH_SOURCE[0]%/*}/../lib.sh"
kolo models > "$ROOM/all"
ok $? "kolo models"
rows=$(grep -c '^MODEL(' src/models/models.def)
is "$(tail -n +2 "$ROOM/all" | wc -l)" "$rows" "a line a network"
while read -r name figures; do
    is "$(awk -v n="$name" -v f="$figures" '$1 == n {print(split(f, a) == 1 ? $2 : $2 " " $3 " " $4)}' \
        "$ROOM/all")" "$figures" "$name as published"
done << 'END'
resnet50 25557032 4.089 320
wide_resnet101_2 126886696 22.753 626
resnet50d 25576264 4.329 332
resnet101d 44568392
vgg11 132863336
vgg13 133047848
vgg16 138357544
vgg19 143667240
vgg11_bn 132868840
vgg13_bn 133053736
vgg16_bn 138365992 15.470 97
vgg19_bn 143678248
efficientnet_b0 5288548
efficientnet_b1 7794184
efficientnet_b2 9109994
efficientnet_b3 12233232
efficientnet_b4 19341616 4.394 706
vit_b_16 86567656 17.564 152
vit_s_16 22050664 4.599 152
inception_v3 27161264 5.713 580
mobilenet_v2 3504872 0.301 314
mobilenet_v3_small 2542856 0.0565 244
mobilenet_v3_large 5483032 0.217 312
convnext_base 88591464 15.355 344
swin_s 49606258 8.741 353
yolox_x 99071455 140.705 894
yolox_darknet53 63724767
darknet53 41609928
yolov3 61949149 32.932 438
END
is "$(awk '$1 == "lenet5" {print $3}' "$ROOM/all") $(kolo models lenet5 |
    grep -cE ' [1-9][0-9]* +0\.000 |0\.000 GMACs')" "0.000417 0" "small ones with three digits that matter"
kolo models size=160 > "$ROOM/wrong" 2>&1
is $? 78 "options of no network are refused"
kolo models swin_t size=160 classes=7 > "$ROOM/swin"
ok $? "kolo models swin_t size=160 classes=7: exit 0"
grep -q '^  7 classes' "$ROOM/swin" && grep -q '768x5x5' "$ROOM/swin"
ok $? "kolo models swin_t size=160 classes=7: maps end at 768x5x5"
printf \
    '[net]\nwidth=32\nheight=32\n[convolutional]\nfilters=10\nsize=3\npad=1\nactivation=leaky\n[avgpool]\n[softmax]\n' \
    > \
    "$ROOM/small.cfg"
kolo models "$ROOM/small.cfg" | grep -q '3x32x32: 280 parameters'
ok $? "a cfg file of darknet"
kolo plan share/recipes/shapes.yaml model="$ROOM/small.cfg" data=synthetic batch=4 > "$ROOM/plan" 2>&1
ok $? "kolo plan with a cfg file as model=: exit 0"
kolo models resnet5O > "$ROOM/wrong" 2>&1
status=$?
[ $status = 78 ] && grep -q 'did you mean "resnet50"' "$ROOM/wrong"
ok $? "an unknown name: exit 78, the nearest is offered"
kolo models vgg16 size=161 > "$ROOM/vgg"
like "$ROOM/vgg" '512x7x7' "VGG takes any size of 32 pixels or more"
kolo models inception_v3 auxiliary=0 > "$ROOM/plain"
like "$ROOM/plain" ' 23834568 parameters, 5.713 GMACs' \
    "Inception without its auxiliary head: torchvision's figure"
kolo models resnet18 auxiliary=0.4 > "$ROOM/wrong" 2>&1
is "$? $(grep -c 'no auxiliary head' "$ROOM/wrong")" "78 1" \
    "auxiliary= of a network without such a head is refused"
kolo plan model=inception_v3 size=224 batch=2 data=synthetic val=none > "$ROOM/wrong" 2>&1
is "$? $(grep -c 'size=299 or more, or auxiliary=0' "$ROOM/wrong")" "78 1" \
    "images too small for the auxiliary head are refused with both cures"
kolo models yolox_s size=100 > "$ROOM/wrong" 2>&1
status=$?
[ $status = 78 ] && grep -q 'size=' "$ROOM/wrong"
ok $? "a size that a network cannot take: exit 78, with the cure"
done_testing
