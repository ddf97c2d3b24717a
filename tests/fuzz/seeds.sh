#!/usr/bin/env bash
# Small inputs for the harnesses: seeds.sh FOLDER makes FOLDER/NAME/*, by the programs on the PATH. With
# KOLO_SHARED (real data sets, may be absent) and a second word `real` also some of its files.
set -eu
TO=$1 REAL=${2:-}
WORK=$(mktemp -d "${TMPDIR:-/tmp}/kolo-seeds-XXXXXX")
trap 'rm -rf "$WORK"' EXIT
for name in shard manifest idx cifar tar json coco voc text list yolo lfw openimages webdataset imagenet \
    cityscapes yfcc beton datum lmdb safetensors pth darknet_weights darknet_cfg recipe image exif; do \
    mkdir -p "$TO/$name"; done
pack() { # NAME ARGUMENTS...
    kolo-pack --out "$WORK/$1" --count 3 --threads 1 "${@:2}" > "$WORK/log" 2>&1 || { cat "$WORK/log" >&2 &&
        exit 1; }
}

pack raw --source shapes --size 8 --encoding raw --shards 1
pack jpeg --source scenes --size 16 --encoding jpeg --shards 1
pack mixed --source scenes --size 16 --encoding mixed --color gray --shards 1
for kind in raw jpeg mixed; do
    cp "$WORK/$kind"/*.h5 "$TO/shard/$kind"
    cp "$WORK/$kind"/*.index "$TO/manifest/$kind"
done
pack two --source shapes --size 8 --encoding raw --shards 2
cp "$WORK/two"/*.index "$TO/manifest/two"

perl -e 'print pack("C4N3", 0, 0, 8, 3, 16, 4, 4), map { chr($_ % 256) } 1 .. 256' > "$TO/idx/images"
perl -e 'print pack("C4N", 0, 0, 8, 1, 16), map { chr($_ % 10) } 1 .. 16' > "$TO/idx/labels"
gzip -nc "$TO/idx/images" > "$TO/idx/images.gz"
perl -e 'print chr(3), "x" x 3072' > "$TO/cifar/ten"
perl -e 'print chr(3), chr(77), "x" x 3072' > "$TO/cifar/hundred"

folder=$(printf 'l%.0s' {1..60})/$(printf 'm%.0s' {1..60})
mkdir -p "$WORK/tree/$folder"
echo one > "$WORK/tree/one.txt"
echo two > "$WORK/tree/$folder/two.txt"
tar -C "$WORK/tree" --format=gnu -cf "$WORK/tree/$folder/inner.tar" one.txt
for format in gnu ustar pax; do tar -C "$WORK/tree" --format=$format -cf "$TO/tar/$format" one.txt \
    "$folder"; done
ln -s one.txt "$WORK/tree/link" && tar -C "$WORK/tree" -cf "$TO/tar/link" link one.txt

cat > "$TO/coco/a" << 'END'
{"images": [{"id": 9, "file_name": "0.jpg", "height": 480, "width": 640}, {"id": 10, "file_name": "x\u00e9\ud83d\ude00.jpg"}],
 "annotations": [{"id": 1, "image_id": 9, "category_id": 17, "bbox": [1.5, 2, 30.25, 4e1], "area": 12.5, "iscrowd": 0,
   "segmentation": [[1, 2, 3, 4, 5, 6]]}], "categories": [{"id": 17, "name": "cat"}, {"id": 90, "name": "tooth brush"}]}
END
sed 's/"images"/"info": {"a": [true, false, null, -1.5e-7]}, "images"/' "$TO/coco/a" > "$TO/coco/b"
cp "$TO/coco/a" "$TO/json/coco"
printf '[[[1, -2.5E+3, "\\n\\u0041\\"", {}, []], {"a": {"b": [null, true, false]}}]]\n' > "$TO/json/values"
cat > "$TO/voc/a" << 'END'
<?xml version="1.0"?>
<!-- one --><annotation><filename>a.jpg</filename><size><width>640</width><height>480</height><depth>3</depth></size>
<object><name>dog &amp; cat&#x41;</name><difficult>1</difficult><truncated>0</truncated><pose a="b"/>
<bndbox><xmin>1</xmin><ymin>2.5</ymin><xmax>30</xmax><ymax>40</ymax></bndbox></object></annotation>
END
printf 'a,b,c\r\n"q ""u"", x",1.5e3,-7\n  two words\t3\n\xc3\xa9\n' > "$TO/text/rows"
gzip -nc "$TO/text/rows" > "$TO/text/rows.gz"
printf 'a/0.jpg\tcat\nb/1.jpg\tdog\n' > "$TO/list/names"
printf 'a/0.jpg\t0\n/b/1.jpg\t1\n' > "$TO/list/numbers"
printf '0 0.5 0.5 0.25 0.125\n7 .1 .1 .9 .1 .9 .9\n' > "$TO/yolo/labels"
printf \
    'path: .\ntrain: [images/train, images/train]\nval: images/val\nnc: 2\nnames:\n  0: cat\n  1: "dog"\n' > \
    "$TO/yolo/map"
printf 'train: images/train\nnc: 2\nnames: [cat, dog]\n' > "$TO/yolo/row"

printf '1\nA\t1\t2\nA\t1\tB\t2\n' > "$TO/lfw/plain"
printf '2\t1\nA\t1\t2\nA\t1\tB\t2\nB\t1\t2\nB\t1\tA\t2\n' > "$TO/lfw/folds"
printf \
    'ImageID,Source,LabelName,Confidence,XMin,XMax,YMin,YMax,IsOccluded,IsTruncated,IsGroupOf,IsDepiction,IsInside
0,xclick,/m/a,1,0.1,0.9,0.25,0.75,1,0,-1,0,0\n' > "$TO/openimages/boxes"
printf 'ImageID,Source,LabelName,Confidence\n0,verification,/m/b,0.5\n1,verification,/m/a,1\n' > \
    "$TO/openimages/labels"
printf 'LabelName,DisplayName\n/m/a,"Cat, tame"\n/m/b,Dog\n' > "$TO/openimages/classes"
mkdir "$WORK/web"
echo 7 > "$WORK/web/a.cls"
echo '{"label": "dog", "x": [1]}' > "$WORK/web/b.json"
cp "$TO/cifar/ten" "$WORK/web/a.jpg"
cp "$TO/cifar/ten" "$WORK/web/b.png"
tar -C "$WORK/web" -cf "$TO/webdataset/two" a.cls a.jpg b.json b.png
tar -C "$WORK/web" --format=pax -cf "$TO/webdataset/pax" ./a.cls ./a.jpg

mkdir "$WORK/net"
cp "$TO/cifar/ten" "$WORK/net/n01440764_1.JPEG"
cp "$TO/cifar/ten" "$WORK/net/ILSVRC2012_val_00000001.JPEG"
tar -C "$WORK/net" -cf "$TO/imagenet/class" n01440764_1.JPEG
tar -C "$WORK/net" -cf "$TO/imagenet/flat" ILSVRC2012_val_00000001.JPEG
cp "$TO/imagenet/class" "$WORK/net/n01440764.tar"
cp "$TO/imagenet/class" "$WORK/net/n01443537.tar"
tar -C "$WORK/net" -cf "$TO/imagenet/outer" n01440764.tar n01443537.tar
printf 'ImageId,PredictionString\nILSVRC2012_val_00000001,n01440764 1 2 3 4\n' > "$TO/imagenet/map"
printf 'ILSVRC2012_val_00000001.JPEG n01443537\n2 n01443537 goldfish\n1861 n00001740\n' > "$TO/imagenet/ids"

cat > "$TO/cityscapes/a" << 'END'
{"imgHeight": 1024, "imgWidth": 2048, "objects": [{"label": "road", "polygon": [[0, 769], [290, 574], [528, 445]]},
 {"label": "cargroup", "polygon": [[1, 2], [3.5, 2], [3, 4], [-1, 2]], "deleted": 0, "id": 7, "user": null},
 {"label": "person", "polygon": [[5, 5], [9, 5], [9, 9]], "draw": true, "verified": 1}]}
END
tr ' \n' '\t\r' < "$TO/cityscapes/a" > "$TO/cityscapes/b"
row=$'user\tnick\t2012-01-01\t1\tCanon\ttitle\ttext\tnew+york%2C,red%20car,,red+car\tm%41\t-1.5\t2\t16\thttp://a/p/1/\thttp://a/1.jpg\tCC\thttp://c\t1\t2\tse\tso\tjpg'
printf '1\t%s\t0\n' "$row" > "$TO/yfcc/first"
printf '0\t1\tabcdef1234\t%s\t0\n\n1\t2\tx\t%s\t1\n' "$row" "$row" > "$TO/yfcc/second"
printf '1\tpeople:0.876,portrait:0.61\n2\tx:1\n' > "$TO/yfcc/autotags"

perl -e \
    'my $h = q({"__metadata__":{"format":"pt"},"a.weight":{"dtype":"F32","shape":[2,2],"data_offsets":[0,16]},) .
    q("b":{"dtype":"BF16","shape":[4],"data_offsets":[16,24]},"n":{"dtype":"I64","shape":[],"data_offsets":[24,32]}});
    $h .= " " while length($h) % 8; print pack("Q<", length $h), $h, map { chr } 1 .. 32' > \
        "$TO/safetensors/three"
# torch.save: what it pickles, as an archive stored and deflated, and the older form; a transposed
# matrix and a whole number
perl -MIO::Compress::Zip=:constants -e '
    sub text { pack("CL<a*", 0x58, length $_[0], $_[0]) }
    sub storage { "(" . text("storage") . "ctorch\n$_[0]\n" . text($_[1]) . text("cpu") . "K" . chr($_[2]) . "tQ" }
    sub tensor { "ctorch._utils\n_rebuild_tensor_v2\n(" . storage($_[0], $_[1], $_[2]) . "K\0$_[3]$_[4]\x89ccollections\nOrderedDict\n)RtR" }
    my $w = tensor("FloatStorage", "0", 6, "K\2K\3\x86", "K\1K\2\x86"); my $n = tensor("LongStorage", "1", 1, ")", ")");
    my $b = tensor("BFloat16Storage", "2", 3, "K\3\x85", "K\1\x85");
    my $state = "\x80\2ccollections\nOrderedDict\nq\0)Rq\1(" . text("module.w") . "q\2" . $w . text("module.n") . $n . text("module.b") . $b . "u}" . text("_metadata") . "h\1sb.";
    my $nested = "\x80\2}(" . text("epoch") . "K\3" . text("lr") . "G" . pack("d>", .5) . text("list") . "](NK\1\x88\x8a\2\xff\x7fe" . text("model") . substr($state, 2, -1) . "u.";
    my @data = (pack("f<6", 1 .. 6), pack("q<", 7), pack("S<3", 0x3F80, 0xC000, 0));
    sub archive {
        my ($path, $pickle, $method) = @_; my $out = ""; my $z;
        for (["a/data.pkl", $pickle], ["a/byteorder", "little"], ["a/version", "3\n"], map {
            ["a/data/$_", $data[$_]] } 0 .. 2) {
            if ($z) { $z->newStream(Name => $_->[0], Method => $method) } else {
                $z = IO::Compress::Zip->new(\$out, Name => $_->[0], Method => $method) }
            $z->print($_->[1]);
        }
        $z->close; open my $f, ">:raw", $path; print $f $out; close $f;
    }
    archive("$ARGV[0]/stored", $state, ZIP_CM_STORE); archive("$ARGV[0]/deflated", $nested, ZIP_CM_DEFLATE);
    open my $f, ">:raw", "$ARGV[0]/old"; my $q = sub { $_[0] =~ s/K(.)tQ/K$1NtQ/gsr };
    print $f "\x80\2\x8a\x0a\x6c\xfc\x9c\x46\xf9\x20\x6a\xa8\x50\x19.\x80\2M\xe9\3.\x80\2}(",
        text("protocol_version"), "M\xe9\3", text("little_endian"), "\x88u.",
        $q->($nested), "\x80\2](", text("0"), text("1"), text("2"), "e.", map { pack("q<", (6, 1, 3)[$_]) . $data[$_] } 0 .. 2' \
            "$TO/pth"
# darknet: version 0.2.0, images seen, then 2 + 2 + 2 + 2 + 18, 2 + 36, 3 + 6 numbers; and the first layer
# alone, version 0.1.0
perl -e 'print pack("l<3q<f<*", 0, 2, 0, 64, map { $_ / 8 } 1 .. 73)' > "$TO/darknet_weights/whole"
perl -e 'print pack("l<4f<*", 0, 1, 0, 64, map { $_ / 8 } 1 .. 26)' > "$TO/darknet_weights/part"
cat > "$TO/darknet_cfg/detector" << 'END'
[net]
width=64 # and height
height=64
channels=3
learning_rate=0.001

[convolutional]
batch_normalize=1
filters=8
size=3
stride=2
pad=1
activation=leaky
[maxpool]
size=2
stride=2
[convolutional]
filters=8
size=1
activation=linear
[shortcut]
from=-2
activation=linear
[convolutional]
filters=21
size=1
activation=linear
[yolo]
mask=3,4,5
anchors=10,14, 23,27, 37,58, 81,82, 135,169, 344,319
classes=2
num=6
ignore_thresh=.7
[route]
layers=-3
[upsample]
stride=2
[route]
layers=-1, 0
[convolutional]
filters=21
activation=linear
[yolo]
mask=0,1,2
anchors=10,14, 23,27, 37,58, 81,82, 135,169, 344,319
classes=2
END
printf \
    '[net]\nwidth=32\nheight=32\n[convolutional]\nbatch_normalize=1\nfilters=8\nsize=3\nstride=2\npad=1\nactivation=leaky\n[avgpool]\n[convolutional]\nfilters=10\nactivation=linear\n[softmax]\ngroups=1\n' \
    > \
    "$TO/darknet_cfg/classifier"
printf \
    '[net]\n[conv]\nfilters=16\nactivation=swish\n[route]\nlayers=-1\ngroups=2\ngroup_id=1\n[maxpool]\nsize=5\nstride=1\n[avgpool]\n[cost]\n' \
    > \
    "$TO/darknet_cfg/small"
printf 'model: resnet18\nbatch: 64 # words\nlr: 0.1\nepochs: 3\ndata: "a b"\n' > "$TO/recipe/plain"
printf '{model: resnet20, lr: 1e-3, seed: 7}\n' > "$TO/recipe/flow"

kolo-shards show "$WORK/jpeg" --plain --out "$TO/image/jpeg.jpg" > /dev/null
kolo-shards show "$WORK/raw" --plain --out "$TO/image/png.png" > /dev/null
# FFCV: an image of JPEG and one of pixels, with labels
perl -e 'local $/; open my $f, "<", $ARGV[0]; my $jpeg = <$f>; my $pixels = "\1\2\3" x 4;
    my $field = sub { pack("Ca16x1024", @_) };
    my $begin = 24 + 2 * 1041 + 2 * 24;
    my $record = sub { pack("CvvQ<x3q<", @_) };
    print pack("vvVQ<Q<", 2, 2, 1 << 21, 2, $begin + length "$jpeg$pixels"), $field->(2, "image"),
        $field->(1, "label"),
        $record->(0, 16, 16, $begin, 3), $record->(1, 2, 2, $begin + length $jpeg, 0), $jpeg, $pixels,
        pack("Q<3Q<3", 0, $begin, length $jpeg, 1, $begin + length $jpeg, length $pixels)' \
            "$TO/image/jpeg.jpg" > "$TO/beton/two"
# Caffe's Datum, and LMDB of such and of images: heads, a branch of two leaves, a value on pages of its own
perl -e 'print "\x08\3\x10\2\x18\2\x22\x0c", "abcdefghijkl", "\x28\7\x38\0"' > "$TO/datum/pixels"
perl -e \
    'local $/; open my $f, "<", $ARGV[0]; my $jpeg = <$f>;
      print "\x38\1\x22", chr(length($jpeg) % 128 | 128), chr(length($jpeg) >> 7), $jpeg,
    "\x28\1\x52\1x"' "$TO/image/jpeg.jpg" > "$TO/datum/encoded"
lmdb() { # KEY FILE KEY FILE
    perl -e 'my $page = 512; my @nodes; my @more; local $/;
        while (my ($key, $file) = splice @ARGV, 0, 2) {
            open my $f, "<", $file; my $data = <$f>; my $n = length $data; my $own = $n > 300;
            if ($own) { my $run = int(($n + 15) / $page) + 1;
                push @more, [$n + 16, pack("Q<vvV", 5 + $used, 0, 4, $run) . $data]; $data = pack("Q<", 5 + $used); $used += $run }
            push @nodes, pack("vvvv", $n & 65535, $n >> 16, $own, length $key) . $key . $data }
        sub tree { my ($number, $kind, @n) = @_; my ($at, $body, @place) = ($page, "");
            for (@n) { $_ .= "\0" x (length() % 2); $at -= length; push @place, $at; $body = $_ . $body }
            my $top = pack("Q<vvvv", $number, 0, $kind, 16 + 2 * @n, $at) . pack("v*", @place);
            return $top . "\0" x ($at - length $top) . $body }
        sub head { my $h = pack("Q<vvV", $_[0], 0, 8, 0) . pack("VVQ<2", 0xBEEFC0DE, 1, 0, 1 << 20) . pack("VvvQ<5", $page, 0, 0, 0, 0, 0, 0, -1) .
            pack("VvvQ<5", 0, 0, 2, 1, 2, $used, 2, 2) . pack("Q<2", 4 + $used, $_[0]); return $h . "\0" x ($page - length $h) }
        print head(0), head(1), tree(2, 1, pack("vvvv", 3, 0, 0, 0), pack("vvvv", 4, 0, 0, 1) . "b"),
            tree(3, 2, $nodes[0]), tree(4, 2, $nodes[1]);
        print $_->[1], "\0" x (-$_->[0] % $page) for @more' "$@"
}
lmdb a/0.jpg "$TO/image/jpeg.jpg" b/1.png "$TO/image/png.png" > "$TO/lmdb/images"
lmdb a/0.jpg "$TO/image/jpeg.jpg" b/1.jpg /dev/null > "$TO/lmdb/empty"
lmdb 0 "$TO/datum/pixels" c "$TO/datum/encoded" > "$TO/lmdb/datums"
perl -e \
    'print "BM", pack("VvvVVVVvvVVVVVV", 54 + 24, 0, 0, 54, 40, 2, 3, 1, 24, 0, 24, 0, 0, 0, 0), "x" x 24' > \
    "$TO/image/bmp"
perl -e \
    'print "BM", pack("VvvVVVVvvVVVVVV", 62 + 4, 0, 0, 62, 40, 2, 1, 1, 8, 0, 4, 0, 0, 2, 0),
      pack("V2", 7, 0xFFFFFF), "\0\1\0\0"' \
    > \
    "$TO/image/bmp8"
printf 'P6\n# a\n2 2\n255\nabcdefghijkl' > "$TO/image/ppm"
printf 'P5 2 2 255\nabcd' > "$TO/image/pgm"
head -c 2 "$TO/image/jpeg.jpg" > "$TO/exif/big"
printf '\xff\xe1\0\x22Exif\0\0MM\0*\0\0\0\x08\0\x01\x01\x12\0\x03\0\0\0\x01\0\x06\0\0\0\0\0\0' >> \
    "$TO/exif/big"
printf \
    '\xff\xd8\xff\xe0\0\x04ab\xff\xe1\0\x22Exif\0\0II*\0\x08\0\0\0\x01\0\x12\x01\x03\0\x01\0\0\0\x08\0\0\0\0\0\0\0' \
    > \
    "$TO/exif/little"
# WebP of one pixel without loss and with; TIFF: pixels as they are, and packed, big-endian
printf 'RIFF\x1a\0\0\0WEBPVP8L\x0d\0\0\0\x2f\0\0\0\x10\x07\x10\x11\x11\x88\x88\xfe\x07\0' > "$TO/image/webp"
base64 -d <<< 'UklGRiIAAABXRUJQVlA4IBYAAAAwAQCdASoBAAEADsD+JaQAA3AAAAAA' > "$TO/image/webp-lossy"
tiff() { # PACK LETTERS OF 2 AND 4 BYTES, ORDER, COMPRESSION, PIXELS
    perl -e 'my ($s, $l, $order, $packed, $pixels) = @ARGV; $pixels = pack "H*", $pixels;
        my @tags = ([256, 4, 2], [257, 4, 2], [258, 3, 8], [259, 3, $packed], [262, 3, 1], [273, 4, 8], [277, 3, 1], [278, 4, 2],
            [279, 4, length $pixels]);
        my $rows = join "", map { pack("$s$s$l", $_->[0], $_->[1], 1) . ($_->[1] == 3 ? pack("$s$s", $_->[2], 0) : pack($l, $_->[2])) } @tags;
        my $pad = "\0" x (length($pixels) % 2);
        print $order, pack("$s$l", 42, 8 + length "$pixels$pad"), $pixels, $pad, pack($s, scalar @tags),
            $rows, pack($l, 0)' \
            "$@"
}
tiff v V II 1 0a40c0ff > "$TO/image/tiff"
tiff n N MM 32773 010a40ffc0 > "$TO/image/tiff-packed"
{ cat "$TO/exif/big" && tail -c +3 "$TO/image/jpeg.jpg"; } > "$TO/image/turned.jpg"

[ "$REAL" = real ] && [ -n "${KOLO_SHARED:-}" ] && [ -d "$KOLO_SHARED/data" ] || exit 0
find "$KOLO_SHARED/data/odd-images" -type f -size -40k \( -name '*.jpg' -o -name '*.png' \) -exec cp {} \
    "$TO/image" \;
cp "$TO"/image/* "$TO/exif"
find "$KOLO_SHARED/data/detection" -name '*.xml' -size -4k | sort | head -n 8 |
    while read -r file; do cp "$file" "$TO/voc"; done
find "$KOLO_SHARED/data/detection" -path '*labels*' -name '*.txt' -size -2k | sort | head -n 8 |
    while read -r file; do cp "$file" "$TO/yolo"; done
find "$KOLO_SHARED/data/detection" -name '*.yaml' | while read -r file; do cp "$file" "$TO/yolo"; done
