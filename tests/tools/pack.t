#!/usr/bin/env bash
# kolo-pack: what the sources hold is what the shards hold, whoever packs them.
. "$(dirname "$0")/../lib.sh"
need kolo-pack kolo-shards
DATA=$KOLO_SHARED/data
pack() { kolo-pack "$@" > "$ROOM/log" 2>&1; }
images() { h5dump -d /images -b LE -o "$ROOM/pixels" "$1"/*.h5 > /dev/null 2>&1; } # DIR: to $ROOM/pixels
sums() { (cd "$1" && sha256sum -- *); }

if [ -e "$DATA/mnist/train-images-idx3-ubyte.gz" ]; then
    pack --source mnist-idx --in "$DATA/mnist" --split train --shuffle-seed 0 --out "$ROOM/mnist"
    ok $? "MNIST packs from .gz"
    kolo-shards info "$ROOM/mnist" > "$ROOM/info"
    like "$ROOM/info" '^samples +60000 in 1 shard, 47.0 MB' "60,000 images"
    like "$ROOM/info" '^mean +0.130660' "mean .1307, as everybody has it"
    like "$ROOM/info" '^std +0.308108' "standard deviation .3081"
    if command -v h5dump > /dev/null; then
        images "$ROOM/mnist"
        gzip -dc "$DATA/mnist/train-images-idx3-ubyte.gz" | tail -c +17 | cmp -s - "$ROOM/pixels"
        ok $? "read by HDF5's own tool: every pixel of the IDX file"
    else
        skip "no h5dump"
    fi
    gzip -dc "$DATA/mnist/t10k-images-idx3-ubyte.gz" > "$ROOM/images" &&
        gzip -dc "$DATA/mnist/t10k-labels-idx1-ubyte.gz" > "$ROOM/labels"
    pack --source mnist-idx --in "$ROOM/labels" --in "$ROOM/images" --split val --out "$ROOM/a" --name m \
        --stats-from "$ROOM/mnist" &&
        pack --source mnist-idx --in "$DATA/mnist" --split val --out "$ROOM/b" --name m --stats-from \
        "$ROOM/mnist" &&
        kolo-shards show "$ROOM/a" --index 9999 > "$ROOM/a.txt" &&
        kolo-shards show "$ROOM/b" --index 9999 > "$ROOM/b.txt"
    is "$(sed "\$d" "$ROOM/a.txt")" "$(sed "\$d" "$ROOM/b.txt")" \
        "two unpacked files, in either order, are as good as the folder"
    kolo-shards info "$ROOM/b" > "$ROOM/info"
    like "$ROOM/info" '^mean +0.130660' "--stats-from: the validation split has the training split's mean"
else
    skip "no MNIST here"
fi

if [ -e "$DATA/cifar10/data_batch_1_first4000.bin" ]; then
    pack --source cifar-bin --in "$DATA/cifar10/data_batch_1_first4000.bin" --shuffle-seed 0 --out \
        "$ROOM/cifar"
    ok $? "CIFAR records pack from a file"
    is "$(kolo-shards info "$ROOM/cifar" | awk '$1 ~ /^[0-9]$/ { printf "%s ", $3 }')" \
        "396 366 420 384 422 393 414 385 407 413 " "class counts of the first 4000"
    if command -v h5dump > /dev/null; then
        images "$ROOM/cifar"
        is "$(od -An -tu1 -N 9 "$ROOM/pixels" |
            tr -s ' ')" " 59 62 63 43 46 45 50 48 43" "planes became pixels"
        is "$(h5dump -d /label -c 10 -y -w 99 "$ROOM"/cifar/*.h5 | grep -E '^ +[0-9]' |
            tr -d ' ')" "6,9,9,4,1,1,2,7,8,3" "the first labels"
    else
        skip "no h5dump"
    fi
else
    skip "no CIFAR here"
fi

PHOTOS=$DATA/imagenette224
if [ -d "$PHOTOS/val" ]; then
    pack --source imagefolder --in "$PHOTOS" --split val --out "$ROOM/photos"
    ok $? "an image folder packs"
    kolo-shards show "$ROOM/photos" --index 77 --out "$ROOM/one.jpg" > "$ROOM/one.txt"
    cmp -s "$ROOM/one.jpg" "$PHOTOS/val/$(sed 's/.* from //' "$ROOM/one.txt")"
    ok $? "a JPEG source file is kept byte for byte"
    is "$(kolo-shards info "$ROOM/photos" | awk '$1 ~ /^[0-9]$/ { printf "%s:%s ", $2, $3 }')" \
        "$(cd "$PHOTOS/val" && for class in *; do printf '%s:%s ' "$class" "$(find "$class" -type f |
        wc -l)"; done)" \
        "classes are the folders in byte order, with all their files"
    cp -r "$PHOTOS/val/n01440764" "$ROOM/flat" && mkdir "$ROOM/tree" && mv "$ROOM/flat" "$ROOM/tree/fish"
    pack --source imagefolder --in "$ROOM/tree" --split train --out "$ROOM/flatout"
    ok $? "PATH/CLASS without a split folder is taken too"
else
    skip "no photos here"
fi

shapes() { pack --source shapes --count 300 --shards 3 "$@"; }
shapes --out "$ROOM/r0" --threads 1
want=$(sums "$ROOM/r0")
shapes --out "$ROOM/t4" --threads 4
is "$(sums "$ROOM/t4")" "$want" "4 threads write the same bytes as one"
if ranks_start; then
    for ranks in 2 3 4; do
        mpiexec -n $ranks kolo-pack --source shapes --count 300 --shards 3 --out "$ROOM/r$ranks" > \
            "$ROOM/log" 2>&1
        is "$(sums "$ROOM/r$ranks")" "$want" "$ranks ranks write the same bytes as one"
    done
    mpiexec -n 3 kolo-pack --source shapes --count 200 --encoding raw --size 40 --out "$ROOM/raw3" > \
        "$ROOM/log" 2>&1
    pack --source shapes --count 200 --encoding raw --size 40 --out "$ROOM/raw1"
    is "$(sums "$ROOM/raw3")" "$(sums "$ROOM/raw1")" "raw samples too"
else
    skip "no mpiexec"
fi
# images within tar files, which are read where they lie
mkdir "$ROOM/loose" "$ROOM/tars"
for i in $(seq 100 139); do
    kolo-shards show "$ROOM/r0" --index "$i" --out "$ROOM/loose/$i.jpg" > /dev/null &&
        echo $((i % 4)) > "$ROOM/loose/$i.cls"
done
(cd "$ROOM/loose" && tar -cf ../tars/a-0.tar 10* 11* && tar -cf ../tars/a-1.tar 12* 13*)
tars() { pack --source webdataset-tar --in "$ROOM/tars" --shards 2 "$@"; }
tars --out "$ROOM/tar1"
ok $? "tar files pack"
kolo-shards show "$ROOM/tar1" --index 7 --out "$ROOM/one.jpg" > "$ROOM/one.txt"
cmp -s "$ROOM/one.jpg" "$ROOM/loose/$(sed 's|.*[/ :]||; s/\.jpg$//' "$ROOM/one.txt").jpg"
ok $? "an image of a tar file is kept byte for byte"
if ranks_start; then
    for ranks in 2 3 5; do
        mpiexec -n $ranks kolo-pack --source webdataset-tar --in "$ROOM/tars" --shards 2 --out \
            "$ROOM/tar$ranks" > "$ROOM/log" 2>&1
        is "$(sums "$ROOM/tar$ranks")" "$(sums "$ROOM/tar1")" "$ranks ranks make the same of tar files"
    done
else
    skip "no mpiexec"
fi
tars --size 40 --threads 1 --out "$ROOM/tar-raw1" && tars --size 40 --threads 3 --out "$ROOM/tar-raw3"
is "$(sums "$ROOM/tar-raw3")" "$(sums "$ROOM/tar-raw1")" "resized too, on three threads or one"
truncate -s 30000 "$ROOM/tars/a-1.tar"
pack --source webdataset-tar --in "$ROOM/tars" --out "$ROOM/tar-cut"
is $? 2 "a tar file that is cut off: exit 2"

shapes --out "$ROOM/later" --shuffle-seed 43
[ "$(sums "$ROOM/later")" != "$want" ]
ok $? "another seed gives another order"
for dir in r0 t4 raw1; do [ ! -d "$ROOM/$dir" ] || kolo-shards verify "$ROOM/$dir" > "$ROOM/log" ||
    break; done
ok $? "all of that verifies"
is "$(kolo-shards info "$ROOM/r0" | awk '$1 ~ /^[0-9]$/ { printf "%s ", $2 }')" \
    "checks circle cross dots ring square star stripes triangle waves " "ten classes of shapes"

pack --source shapes --count 100 --size 32 --color gray --out "$ROOM/gray" &&
    kolo-shards info "$ROOM/gray" > "$ROOM/info"
like "$ROOM/info" 'raw, 32 x 32 x 1' "--size and --color gray"
pack --source shapes --count 40 --size 48 --resize longer --encoding jpeg --out "$ROOM/longer" &&
    kolo-shards show "$ROOM/longer" > "$ROOM/info"
like "$ROOM/info" '(48 x [0-9]+|[0-9]+ x 48), ' "--resize longer with JPEG"
done_testing
