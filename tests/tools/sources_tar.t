#!/usr/bin/env bash
# kolo-pack --source webdataset-tar: samples in tar files, of every kind that tar(1) makes; and
# what is no whole tar.
. "$(dirname "$0")/../lib.sh"
. "$(dirname "$0")/sources.sh"
need kolo-pack kolo-shards h5dump tar
small_images 4
mkdir -p "$ROOM/in/sub" && cd "$ROOM/in" || exit 1
for i in 0 1 2 3; do cp "../images/$i.jpg" "k$i.jpg" && echo $((i % 2 + 1)) > "k$i.cls"; done
archive() { rm -f ../set.tar && tar -c -f ../set.tar --sort=name --owner=0 --group=0 "$@"; }
WDS=(--source webdataset-tar --in "$ROOM/set.tar" --shuffle-seed 0)
same() { # the first bytes of every sample are those of its image: TEXT
    rm -f "$ROOM/out/"*.ppm
    local i good=0
    for i in 0 1 2 3; do
        kolo-shards show "$ROOM/out" --index $i --out "$ROOM/shown.jpg" > /dev/null &&
            cmp -s "$ROOM/shown.jpg" "$ROOM/images/$i.jpg" || good=1
    done
    ok $good "$1"
}

for format in v7 ustar gnu pax posix; do
    archive --format=$format .
    packs "a tar of format $format" "${WDS[@]}"
    is "$(paths) $(table label) $(classes)" "k0.jpg k1.jpg k2.jpg k3.jpg 1 2 1 2 0 1 2" \
        "a tar of format $format: has its samples"
done
same "the bytes are those of the images"
long=$(printf 'x%.0s' {1..120})/$(printf 'y%.0s' {1..150})
mkdir -p "$long" && mv k0.* "$long/"
for format in gnu pax; do
    archive --format=$format .
    packs "a path of 270 letters in format $format" "${WDS[@]}"
    is "$(paths)" "k1.jpg k2.jpg k3.jpg $long/k0.jpg" "a path of 270 letters in format $format: read whole"
done
mv "$long"/k0.* . && rm -r "${long%%/*}"
archive --format=pax --pax-option='globexthdr.name=g,comment=hello,exthdr.name=%d/%f' \
    --pax-option=comment:=x .
packs "pax headers of other kinds" "${WDS[@]}"
is "$(table label)" "1 2 1 2" "pax headers of other kinds: are passed over"
mkdir folder && mv k2.* folder/
archive ./k0.cls ./k0.jpg ./folder k1.cls k1.jpg ./k3.jpg ./k3.cls
packs "members in another order" "${WDS[@]}"
is "$(paths)" "k0.jpg folder/k2.jpg k1.jpg k3.jpg" "stay in it"
mv folder/* . && rmdir folder
perl -e \
    'print pack("a100a8a8a8a12a12a8a1a100a8", "k0.bin", "0000644", "", "", "\x80" . "\0" x 6 . "\0\0\0\2\0",
      "", " " x 8, "0", "", "ustar  ")' \
    > \
    "$ROOM/header"
perl -0777 -pe '$_ .= "\0" x (512 - length); substr($_, 148, 8) = sprintf("%06o\0 ", unpack("%32C*", $_))' \
    "$ROOM/header" > "$ROOM/whole"
archive . && { cat "$ROOM/whole" && head -c 512 /dev/zero && cat ../set.tar; } > ../two.tar &&
    mv ../two.tar ../set.tar
packs "a size in binary" "${WDS[@]}"
is "$(table label)" "1 2 1 2" "a size in binary: is understood"

for i in 0 1 2 3; do printf '{"width": 3, "cls": "%s", "more": {"label": 9}}' "$([ $i = 2 ] && echo dog ||
    echo cat)" > k$i.json && rm k$i.cls; done
archive .
packs "labels in JSON" "${WDS[@]}"
is "$(classes) $(table label)" "cat dog 0 0 1 0" "labels in JSON: names or numbers"
for i in 0 1 2 3; do printf '{"label": 1}' > k$i.json; done
printf 'no\nyes\n' > ../names && archive .
packs "names for numbers" "${WDS[@]}" --annotations ../names
is "$(classes) $(table label)" "no yes 1 1 1 1" "come from --annotations"
cp k0.jpg k0.mask.png && echo 'a caption' > k1.txt && archive .
packs "other members of a sample" "${WDS[@]}"
is "$(paths)" "k0.jpg k1.jpg k2.jpg k3.jpg" "other members of a sample: are passed over"
rm k0.mask.png k1.txt
mkdir ../shards && tar -c -f ../shards/s-08.tar k0.* k1.* && tar -c -f ../shards/s-09.tar k2.* &&
    tar -c -f ../shards/s-10.tar k3.*
packs "a folder of tar files" --source webdataset-tar --in ../shards --shuffle-seed 0
is "$(paths)" "k0.jpg k1.jpg k2.jpg k3.jpg" "a folder of tar files: is one split"
same "images come from several files"
packs "{08..10}" --source webdataset-tar --in '../shards/s-{08..10}.tar' --shuffle-seed 0
is "$(paths)" "k0.jpg k1.jpg k2.jpg k3.jpg" "{08..10}: one split"
fails 2 's-11.tar: no such file' "one file too many" --source webdataset-tar --in '../shards/s-{08..11}.tar'
fails 78 'FIRST..LAST' "other braces" --source webdataset-tar --in '../shards/s-{08,09}.tar'

bad() { # PATTERN TEXT
    archive .
    fails 2 "$1" "$2" "${WDS[@]}"
}
rm k2.jpg && bad 'set.tar:k2: a sample without an image' "no image"
left_out 1 "leaves it out with --on-error skip" "${WDS[@]}"
is "$(paths)" "k0.jpg k1.jpg k3.jpg" "leaves it out with --on-error skip: no other is left out"
cp k1.jpg k2.jpg && rm k3.json && bad 'set.tar:k3: a sample without a label' "no label"
echo x > k3.cls && printf '{"label": 1}' > k3.json &&
    bad 'k3.json: label .1., but another member of the sample says .x.' "labels that differ"
rm k3.cls && printf '{"label": 1.5}' > k3.json &&
    bad 'k3.json:1, byte [0-9]+: 1.5 where a whole number' "half a label"
printf '{"label": 1' > k3.json && bad 'k3.json:1, byte 11: the file ends' "JSON that is cut off"
printf '{"label": 1}' > k3.json && cp k3.jpg k3.png &&
    bad 'k3.png: a second image of one sample' "two images"
rm k3.png && ln -s k3.jpg k4.jpg && cp k3.json k4.json &&
    bad 'set.tar:k4.jpg: a link to k3.jpg' "a symbolic link"
left_out 1 "leaves it out with --on-error skip" "${WDS[@]}"
rm k4.jpg && ln k3.jpg k4.jpg && bad 'k4.jpg: a link to (./)?k3.jpg.*hard-dereference' "a hard link"
archive --hard-dereference .
packs "without links as the message says" "${WDS[@]}"
rm k4.* && archive . && cp ../set.tar ../good.tar
failed=0 size=$(stat -c %s ../good.tar)
end=$(tar -t -R -f ../good.tar | tail -n 1 | sed 's/block \([0-9]*\):.*/\1/')
for ((at = 100; at < end * 512; at += 613)); do
    head -c "$at" ../good.tar > ../set.tar
    kolo-pack "${WDS[@]}" --dry-run > ../log 2>&1
    status=$?
    # between two members nothing is missing but the end, and perhaps a part of the last sample
    { [ $status = 2 ] && grep -q 'cut off\|sample without' ../log; } || grep -q 'ends without' ../log ||
        { failed=1 && echo "# at $at: $status $(cat ../log)"; }
done
ok $failed "cut off at any byte is told"
head -c $((end * 512)) ../good.tar > ../set.tar
packs "without the blocks at the end" "${WDS[@]}"
like ../log 'ends without the blocks of zeros' "without the blocks at the end: the log says so"
cp ../good.tar ../set.tar && printf 'z' | dd of=../set.tar bs=1 seek=520 conv=notrunc status=none
head -c 512 ../good.tar | grep -q 'ustar' &&
    fails 2 'no tar header .its checksum is wrong' "a damaged header" "${WDS[@]}"
gzip -k ../good.tar && fails 2 'good.tar.gz: compressed by gzip; uncompress' "a tar packed by gzip" --source \
    webdataset-tar --in ../good.tar.gz
: > ../set.tar && fails 2 'set.tar, byte 0: empty' "an empty file" "${WDS[@]}"
cp k0.jpg ../set.tar && fails 2 'no tar header' "another file" "${WDS[@]}"
head -c 10240 /dev/zero > ../set.tar && fails 2 'no samples' "a tar of nothing" "${WDS[@]}"
if truncate -s 1M sparse 2> /dev/null && archive -S . && tar -tvf ../set.tar > /dev/null; then
    fails 2 'a sparse file' "a sparse file" "${WDS[@]}"
fi
done_testing
