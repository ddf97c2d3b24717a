#!/usr/bin/env bash
# kolo-pack --source imagenet-tar: a tar of class tars, a tar of validation images, and
# what tells their labels.
. "$(dirname "$0")/../lib.sh"
. "$(dirname "$0")/sources.sh"
need kolo-pack kolo-shards h5dump tar
small_images 5
cd "$ROOM" || exit 1
mkdir in class
class() { # SYNSET IMAGE...
    local synset=$1 i
    shift
    rm -rf c && mkdir c
    for i; do cp "images/$i.jpg" "c/${synset}_$i.JPEG"; done
    tar -C c -c -f "class/$synset.tar" --sort=name .
}
# not in the order of the classes
class n02000000 3 4 && class n01440764 0 1 && class n01440765 2
tar -C class -c -f in/ILSVRC2012_img_train.tar n02000000.tar n01440764.tar n01440765.tar
mkdir v && for i in 0 1 2; do cp "images/$i.jpg" "v/ILSVRC2012_val_0000000$((i + 1)).JPEG"; done
tar -C v -c -f in/ILSVRC2012_img_val.tar --sort=name .
NET=(--source imagenet-tar --in "$ROOM/in" --shuffle-seed 0)
VAL=("${NET[@]}" --split val)

packs "a tar of class tars" "${NET[@]}"
is "$(classes)" "n01440764 n01440765 n02000000" "classes are synsets in byte order"
is "$(table label)" "2 2 0 0 1" "labels follow"
is "$(paths)" "n02000000_3.JPEG n02000000_4.JPEG n01440764_0.JPEG n01440764_1.JPEG n01440765_2.JPEG" \
    "samples are in the order of the tar"
good=0 n=0
for i in 3 4 0 1 2; do
    kolo-shards show out --index $((n++)) --out shown.jpg > log && cmp -s shown.jpg images/$i.jpg || good=1
done
ok $good "their bytes are those of the images"
sum=$(cksum < "$(ls out/*.h5)")
packs "with four threads" "${NET[@]}" --threads 4
is "$(cksum < "$(ls out/*.h5)")" "$sum" "with four threads: the same bytes"
packs "the class tars in a folder" --source imagenet-tar --in class --shuffle-seed 0
is "$(table label)" "0 0 1 2 2" "the class tars in a folder: the same labels"
cp -r out train

truth() { for ((i = 0; i < 50000; i++)); do echo "$((i % 1000 + 1))"; done; }
ids() { for ((i = 1; i <= 1000; i++)); do printf '%d n%08d word, word\n' $i $((90000000 - i)); done; }
printf \
    'ILSVRC2012_val_00000002.JPEG n01440764\nILSVRC2012_val_00000001 n02000000\nILSVRC2012_val_00000003.JPEG\tn01440764\n' \
    > map
packs "validation by a map" "${VAL[@]}" --annotations map
is "$(table label) $(classes)" "1 0 0 n01440764 n02000000" "validation by a map: has its labels"
packs "with the training split's classes" "${VAL[@]}" --annotations map --stats-from train
is "$(table label)" "2 0 0" "with the training split's classes: has their labels"
printf \
    'ImageId,PredictionString\nILSVRC2012_val_00000003,n01440764 1 2 3 4 n01440764 5 6 7 8 \nILSVRC2012_val_00000001,n02000000 1 2 3 4\nILSVRC2012_val_00000002,n01440765 1 2 3 4\n' \
    > map.csv
packs "a map with commas, heading and boxes" "${VAL[@]}" --annotations map.csv
is "$(table label)" "2 1 0" "a map with commas, heading and boxes: the labels"
truth > truth && ids > ids && for i in 1001 1860; do printf '%d n00001740 entity\n' $i >> ids; done
packs "the ground truth and the table of IDs" "${VAL[@]}" --annotations truth --annotations ids
is "$(table label) $(classes | wc -w)" "999 998 997 1000" "IDs are not the order of the synsets"
rm -r v && mkdir -p v/val/n01440765 && cp images/0.jpg v/val/n01440765/x.JPEG &&
    cp images/1.jpg v/n02000000_5.JPEG
tar -C v -c -f in/ILSVRC2012_img_val.tar --sort=name .
packs "synsets in names or folders" "${VAL[@]}"
is "$(table label) $(classes)" "1 0 n01440765 n02000000" "need no annotations"
rm -r v && mkdir v && cp images/0.jpg v/ILSVRC2012_val_00000001.JPEG &&
    tar -C v -c -f in/ILSVRC2012_img_val.tar .

fails 2 'img_val.tar:ILSVRC2012_val_00000001.JPEG: no label; --annotations takes' "no labels" "${VAL[@]}"
fails 2 'in ILSVRC2012_IDs, of which 0 of 1000 have a synset' "the ground truth alone" "${VAL[@]}" \
    --annotations truth
head -n 49999 truth > short
fails 2 '49999 lines, not 50000' "a ground truth that is cut off" "${VAL[@]}" --annotations short \
    --annotations ids
awk '{ print $2 }' ids > sorted
fails 2 'sorted:1: a list of synsets alone' "synsets without their IDs" "${VAL[@]}" --annotations truth \
    --annotations sorted
head -n 500 ids > half
fails 2 'of which 500 of 1000' "half the IDs" "${VAL[@]}" --annotations truth --annotations half
echo 'ILSVRC2012_val_00000001.JPEG 65' > numbers
fails 2 'numbers:1: neither' "a map to numbers" "${VAL[@]}" --annotations numbers
printf 'ILSVRC2012_val_00000001 n01440764\nILSVRC2012_val_00000001 n01440765\n' > twice
fails 2 'twice:2: ILSVRC2012_val_00000001 has two synsets' "an image twice" "${VAL[@]}" --annotations twice
echo 0 > zero
fails 2 'zero:1: .0. is no ILSVRC2012_ID' "a number out of range" "${VAL[@]}" --annotations zero
cp in/ILSVRC2012_img_train.tar whole.tar
failed=0 size=$(stat -c %s whole.tar)
for ((at = 3000; at < size - 11000; at += 2111)); do
    head -c "$at" whole.tar > in/ILSVRC2012_img_train.tar
    kolo-pack "${NET[@]}" --dry-run > log 2>&1
    [ $? = 2 ] && grep -q 'cut off' log || failed=1
done
ok $failed "a training tar that is cut off anywhere is told"
tar -C class -c -f in/ILSVRC2012_img_train.tar n02000000.tar &&
    head -c 3000 class/n01440764.tar > n01440764.tar && tar -r -f in/ILSVRC2012_img_train.tar n01440764.tar
fails 2 'img_train.tar:n01440764.tar is cut off' "a class tar that is cut off" "${NET[@]}"
mkdir -p folders/n01440764
fails 2 '.--source imagefolder packs them' "folders of classes" --source imagenet-tar --in folders
mkdir void
fails 2 'neither ILSVRC2012_img_train.tar nor tar files of classes' "an empty folder" --source imagenet-tar \
    --in void

# photos in a tar of tars, and in folders
PHOTOS=$KOLO_SHARED/data/imagenette224
if [ -d "$PHOTOS" ]; then
    mkdir -p photos && for folder in "$PHOTOS"/val/n*; do
        synset=${folder##*/}
        (cd "$folder" && LC_ALL=C && for file in *; do printf '%s\n' "$file"; done |
            tar -c -f "$ROOM/photos/$synset.tar" -T -)
    done
    tar -C photos -c -f photos.tar --sort=name .
    packs "600 photos in a tar of tars" --source imagenet-tar --in photos.tar
    cp out/*.h5 tar.h5
    kolo-shards verify out > log
    ok $? "verify"
    packs "the same in folders" --source imagefolder --in "$PHOTOS" --split val --shuffle-seed 42
    is "$(h5dump -d /label -d /crc32c tar.h5 | tail -n +2 | cksum)" "$(h5dump -d /label -d /crc32c out/*.h5 |
        tail -n +2 | cksum)" "gives the same samples in the same order"
else
    skip "no photos here"
fi
done_testing
