#!/usr/bin/env bash
# kolo-pack and bad input: a message with path and cause, the documented exit code, nothing left behind.
. "$(dirname "$0")/../lib.sh"
need kolo-pack kolo-shards
fails() { # STATUS PATTERN TEXT ARGUMENTS...
    local status=$1 pattern=$2 text=$3
    shift 3
    rm -rf "$ROOM/out"
    kolo-pack "$@" --out "$ROOM/out" > "$ROOM/log" 2>&1
    is $? "$status" "$text: exit $status"
    like "$ROOM/log" "$pattern" "$text: the message"
}
# a folder of good images, taken from shapes
kolo-pack --source shapes --count 20 --out "$ROOM/shapes" > "$ROOM/log" 2>&1
mkdir -p "$ROOM/good/a" "$ROOM/good/b"
for i in 0 1 2 3 4 5; do
    kolo-shards show "$ROOM/shapes" --index $i --out "$ROOM/good/$([ $i -lt 3 ] && echo a ||
        echo b)/$i.jpg" > /dev/null
done
IN=(--source imagefolder --in "$ROOM/bad")
bad() { rm -rf "$ROOM/bad" && cp -r "$ROOM/good" "$ROOM/bad"; }

kolo-pack --source imagefolder --in "$ROOM/good" --out "$ROOM/fine" > "$ROOM/log" 2>&1
ok $? "the good folder packs"
bad && : > "$ROOM/bad/a/empty.jpg"
fails 2 'bad/a/empty.jpg: is empty' "a file of 0 bytes" "${IN[@]}"
[ ! -e "$ROOM/out/.pack" ]
ok $? "a refused packing: no work folder is left"
kolo-pack "${IN[@]}" --out "$ROOM/out" --on-error skip > "$ROOM/log" 2>&1
is $? 0 "--on-error skip leaves it out"
is "$(cat "$ROOM"/out/*.rejects)" "a/empty.jpg	is empty (0 bytes)" "--on-error skip leaves it out: lists it"
bad && ln -s "$ROOM/nowhere.jpg" "$ROOM/bad/a/link.jpg"
fails 2 'bad/a/link.jpg: .*a link to a file that is not there' "a link to nowhere" "${IN[@]}"
kolo-pack "${IN[@]}" --out "$ROOM/out" --on-error skip > "$ROOM/log" 2>&1
is $? 0 "--on-error skip leaves it out too"
bad && : > "$ROOM/bad/a/empty.jpg"
kolo-shards info "$ROOM/out" > "$ROOM/info"
like "$ROOM/info" '^samples +6 in' "six are left"
fails 2 'max-bad 0 .*empty.jpg' "--max-bad 0" "${IN[@]}" --on-error skip --max-bad 0
bad && head -c 1500 "$ROOM/good/a/1.jpg" > "$ROOM/bad/a/1.jpg"
fails 2 'bad/a/1.jpg: Premature end.*; repair or remove it, or use --on-error skip' \
    "an image that is cut off" "${IN[@]}"
bad && echo "this is text" > "$ROOM/bad/b/text.png"
fails 2 'b/text.png: is not an image' "text with an image's name" "${IN[@]}"
bad && mkdir "$ROOM/bad/c"
fails 2 'bad/c: a class folder without images' "an empty class" "${IN[@]}"
bad && : > "$ROOM/bad/a/x" && echo hello > "$ROOM/bad/README.txt" && : > "$ROOM/bad/.hidden"
kolo-pack "${IN[@]}" --out "$ROOM/out2" > "$ROOM/log" 2>&1
ok $? "other files beside the images are passed over"
bad && cp "$ROOM/good/a/1.jpg" "$ROOM/bad/b/copy.jpg" && cp "$ROOM/good/a/1.jpg" "$ROOM/bad/a/other.jpg"
kolo-pack "${IN[@]}" --out "$ROOM/duplicates" > "$ROOM/log" 2>&1
is $? 0 "an image that is there twice is packed twice"
like "$ROOM/log" \
    '2 images are in this split twice, 1 of them with two classes: for example (a/1|a/other|b/copy).jpg and ' \
    "an image that is there twice is packed twice: the log says so"
bad && mv "$ROOM/bad/a" "$ROOM/bad/$(printf 'caf\351')"
fails 2 'its name is not UTF-8' "a class whose name is not UTF-8" "${IN[@]}"
fails 2 'no such folder' "a folder that is not there" --source imagefolder --in "$ROOM/nowhere"
mkdir "$ROOM/void"
fails 2 'no class folders' "an empty folder" --source imagefolder --in "$ROOM/void"
fails 2 'all of one size, add --size' "raw images of several sizes" --source imagefolder --in "$ROOM/good" \
    --encoding raw
bad && mv "$ROOM/bad/b" "$ROOM/bad/z"
fails 2 'has no class `z`' "a class that the training split lacks" "${IN[@]}" --split val --stats-from \
    "$ROOM/fine"

printf '\0\0\10\3\0\0\0\2\0\0\0\2\0\0\0\2abcdefgh' > "$ROOM/images" &&
    printf '\0\0\10\1\0\0\0\2\0\1' > "$ROOM/labels"
IDX=(--source mnist-idx --in "$ROOM/images" --in "$ROOM/labels")
kolo-pack "${IDX[@]}" --out "$ROOM/idx" > "$ROOM/log" 2>&1
ok $? "a tiny IDX pair packs"
printf '\0\0\10\1\0\0\0\3\0\1\1' > "$ROOM/labels"
fails 2 '2 images, .* 3 labels' "IDX counts that differ" "${IDX[@]}"
printf '\0\0\10\1\0\0\0\2\0' > "$ROOM/labels"
fails 2 'labels: 9 bytes, the header promises 10' "an IDX file that is cut off" "${IDX[@]}"
printf '\0\0\10\1\0\0\0\2\0\1' > "$ROOM/labels"
{ cat "$ROOM/images" && head -c 300000000 /dev/zero; } | gzip -1 > "$ROOM/bomb.gz"
(ulimit -v 4000000 -t 20 && exec kolo-pack --source mnist-idx --in "$ROOM/bomb.gz" --in "$ROOM/labels" --out \
    "$ROOM/out") > "$ROOM/log" 2>&1
is $? 2 "a .gz with 300 MB behind what its header promises: exit 2"
like "$ROOM/log" 'bomb.gz: more than 24 bytes, the header promises 24' \
    "a .gz with too many bytes: refused behind the promised ones"
printf '\0\0\10\3\0\17\377\377\0\0\377\377\0\0\0\17' > "$ROOM/claims"
fails 2 'claims: the header promises 1[0-9]* bytes, which do not fit' "an IDX file that claims a terabyte" \
    --source mnist-idx --in "$ROOM/claims" --in "$ROOM/labels"
gzip -c "$ROOM/images" | head -c 30 > "$ROOM/cut.gz"
fails 2 'cut.gz' "a .gz that is cut off" --source mnist-idx --in "$ROOM/cut.gz" --in "$ROOM/labels"
head -c 3000 /dev/zero > "$ROOM/part.bin"
fails 2 'part.bin: 3000 bytes are no whole number' "a CIFAR file that is cut off" --source cifar-bin --in \
    "$ROOM/part.bin"
head -c 3073 /dev/zero | tr '\0' '\40' > "$ROOM/label.bin"
fails 2 'record 0 has label 32' "a CIFAR label out of range" --source cifar-bin --in "$ROOM/label.bin"

fails 78 'did you mean --source' "an unknown option" --sorce shapes
fails 78 'raw|jpeg' "an unknown encoding" --source shapes --encoding png
fails 78 'number from 1' "a number out of range" --source shapes --quality 101
fails 78 '--in is missing' "no --in" --source imagefolder
fails 78 'use fewer' "more shards than samples" --source shapes --count 3 --shards 5
[ ! -e "$ROOM/out" ]
ok $? "more shards than samples: nothing is written"
kolo-pack --source shapes > "$ROOM/log" 2>&1
is $? 78 "no --out: exit 78"
kolo-pack --source imagefolder --in "$ROOM/good" --out "$ROOM/dry" --dry-run > "$ROOM/log" 2>&1
ok $? "--dry-run"
like "$ROOM/log" '^6 images, 2 classes: a, b' "says what is there"
[ ! -e "$ROOM/dry" ]
ok $? "--dry-run: writes nothing"
if [ "$(id -u)" != 0 ]; then
    mkdir "$ROOM/locked" && chmod 500 "$ROOM/locked"
    kolo-pack --source shapes --count 10 --out "$ROOM/locked/x" > "$ROOM/log" 2>&1
    is $? 3 "a folder that cannot be written: exit 3"
else
    skip "root may write everywhere"
fi

ODD=$KOLO_SHARED/data/odd-images
if [ -d "$ODD" ]; then
    mkdir -p "$ROOM/odd/all" && cp "$ODD"/*.jpg "$ODD"/*.png "$ROOM/odd/all/"
    kolo-pack --source imagefolder --in "$ROOM/odd" --on-error skip --out "$ROOM/odd-out" > "$ROOM/log" 2>&1
    is $? 0 "a zoo of odd images packs with --on-error skip"
    is "$(cut -f 1 "$ROOM"/odd-out/*.rejects | sed 's|all/||' | tr '\n' ' ')" \
        "$(awk -F'|' '$6 ~ /FAIL/ { gsub(/ /, "", $2); print $2 }' "$ODD/TABLE.md" | LC_ALL=C sort |
        tr '\n' ' ')" \
        "rejected are those that Pillow cannot load, and no others"
    kolo-shards verify "$ROOM/odd-out" --decode > "$ROOM/log"
    ok $? "the others verify"
    # what libjpeg's own djpeg says of them, where it says more than that there is an error
    cat > "$ROOM/causes" << 'END'
jd-32d08f4a5eb10332506ebedbb9bc7257.jpg	Premature end of JPEG file
jd-40bb78b1ac031125a6d8466b374962a8.jpg	Unsupported marker type 0xf7
jd-empty.jpg	is empty (0 bytes)
jd-jpeg_lossless_sel1.jpg	Unsupported JPEG process: SOF type 0xc3
jd-max_size.jpg	Maximum supported image dimension is 65500 pixels
jd-missing-sof.jpg	Premature end of JPEG file
jd-missing-sos.jpg	Invalid JPEG file structure: missing SOS marker
jd-null_height.jpg	Empty JPEG image (DNL not supported)
ljt-monkey12.jpg	Unsupported JPEG data precision 12
pil-truncated_image.png	PNG: truncated
pil-truncated_jpeg.jpg	Premature end of JPEG file
END
    is "$(sed 's|^all/||' "$ROOM"/odd-out/*.rejects)" "$(cat "$ROOM/causes")" "each with its cause"
    kolo-shards extract "$ROOM/odd-out" --out "$ROOM/odd-files" > "$ROOM/log" 2>&1
    kept=0 same=0
    for file in "$ROOM/odd-files/all"/*.jpg; do
        cmp -s "$file" "$ODD/${file##*/}" && same=$((same + 1))
        kept=$((kept + 1))
    done
    is "$kept $same $(find "$ODD" -name '*.jpg' -o -name '*.png' |
        wc -l)" "19 17 30" "all others are there, JPEG files byte for byte; two PNGs became JPEG"
    alone=0
    while IFS=$'\t' read -r file cause; do
        rm -rf "$ROOM/trio" "$ROOM/out" && mkdir -p "$ROOM/trio/x"
        cp "$ODD/$file" "$ROOM/trio/x/b.${file##*.}" && cp "$ODD/jd-jpg-gray.jpg" "$ROOM/trio/x/a.jpg" &&
            cp "$ODD/jd-restarts.jpg" "$ROOM/trio/x/c.jpg"
        kolo-pack --source imagefolder --in "$ROOM/trio" --out "$ROOM/out" > "$ROOM/log" 2>&1
        [ $? = 2 ] && grep -qF "trio/x/b.${file##*.}: $cause" "$ROOM/log" || { alone=1 &&
            echo "# $file is not refused as it should be"; }
        kolo-pack --source imagefolder --in "$ROOM/trio" --on-error skip --out "$ROOM/out" > "$ROOM/log" \
            2>&1 &&
            [ "$(kolo-shards info "$ROOM/out" | awk '$1 == "samples" { print $2 }')" = 2 ] || { alone=1 &&
            echo "# $file takes a neighbour with it"; }
    done < "$ROOM/causes"
    ok $alone "each between two good ones: refused by name and cause, or left out alone"
else
    skip "no odd images here"
fi
done_testing
