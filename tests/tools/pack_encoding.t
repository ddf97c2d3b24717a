#!/usr/bin/env bash
# kolo-pack: raw, jpeg and mixed; what is looked at of a JPEG file that keeps its bytes; colour;
# images that are turned.
. "$(dirname "$0")/../lib.sh"
need kolo-pack kolo-shards
TARGETS=$BUILD/tests/targets
[ -x "$TARGETS" ] || skip_all "no $TARGETS"
pack() { kolo-pack --source imagefolder "$@" > "$ROOM/log" 2>&1; }
kolo-pack --source shapes --count 30 --no-shuffle --out "$ROOM/shapes" > "$ROOM/log" 2>&1
mkdir -p "$ROOM/in/jpeg" "$ROOM/in/plain" "$ROOM/many/all"
for i in 0 1 2; do
    kolo-shards show "$ROOM/shapes" --index $i --out "$ROOM/in/jpeg/$i.jpg" > /dev/null
    kolo-shards show "$ROOM/shapes" --index $((i + 3)) --out "$ROOM/in/plain/$i.png" > /dev/null
done
printf 'P6 3 2 255\n0123456789abcdefgh' > "$ROOM/in/plain/tiny.ppm"
cp "$ROOM/in/plain/0.png" "$ROOM/in/jpeg/wrong.jpg"
number() { "$TARGETS" "$1" | awk -v path="$2" '$3 == path { print $2 }'; } # DIR PATH: which sample it became
kept() { # DIR PATH: do the stored bytes equal the file's?
    kolo-shards show "$1" --index "$(number "$1" "$2")" --out "$ROOM/kept.jpg" > /dev/null
    cmp -s "$ROOM/kept.jpg" "$ROOM/in/$2" && echo yes || echo no
}
pixels() { # DIR PATH: are the pixels those of the PNG file, as one PNG writer puts them down?
    kolo-shards show "$1" --index "$(number "$1" "$2")" --out "$ROOM/pixels.png" > /dev/null
    cmp -s "$ROOM/pixels.png" "$ROOM/in/$2" && echo yes || echo no
}

pack --in "$ROOM/in" --encoding mixed --out "$ROOM/mixed"
ok $? "mixed packs"
kolo-shards info "$ROOM/mixed" > "$ROOM/info"
like "$ROOM/info" '^encoding +mixed, rgb' "--encoding mixed: info prints it"
is "$(kept "$ROOM/mixed" jpeg/1.jpg) $(pixels "$ROOM/mixed" plain/1.png)" "yes yes" \
    "JPEG files keep their bytes, others their pixels"
is "$(pixels "$ROOM/mixed" jpeg/wrong.jpg)" yes "(the name of a file says nothing)"
kolo-shards verify "$ROOM/mixed" > "$ROOM/log"
ok $? "mixed verifies"
kolo-shards show "$ROOM/mixed" --index "$(number "$ROOM/mixed" plain/tiny.ppm)" > "$ROOM/log"
like "$ROOM/log" ' 3 x 2, 18 bytes' "pixels have the image's own size"
pack --in "$ROOM/in" --encoding jpeg --out "$ROOM/jpeg"
is "$(kept "$ROOM/jpeg" jpeg/1.jpg) $(pixels "$ROOM/jpeg" plain/1.png)" "yes no" \
    "jpeg: files of other kinds are encoded"
pack --in "$ROOM/in" --encoding jpeg --quality 30 --out "$ROOM/jpeg30"
is "$(kept "$ROOM/jpeg30" jpeg/1.jpg)" yes "--quality leaves kept bytes alone"
[ "$(kolo-shards info "$ROOM/jpeg30" --json |
    sed 's/.*"bytes":\([0-9]*\).*/\1/')" -lt "$(kolo-shards info "$ROOM/jpeg" --json |
    sed 's/.*"bytes":\([0-9]*\).*/\1/')" ]
ok $? "--quality: images that are encoded again are smaller"
pack --in "$ROOM/in" --encoding jpeg --color gray --out "$ROOM/gray"
is "$(kept "$ROOM/gray" jpeg/1.jpg)" no "--color gray: a colour JPEG is made anew"
if ranks_start; then
    mpiexec -n 3 kolo-pack --source imagefolder --in "$ROOM/in" --encoding mixed --out "$ROOM/mixed3" > \
        "$ROOM/log" 2>&1
    is "$(cd "$ROOM/mixed3" && sha256sum -- *)" "$(cd "$ROOM/mixed" &&
        sha256sum -- *)" "3 ranks write the same bytes"
else
    skip "no mpiexec"
fi
# --color keep: gray as long as all images are
kolo-pack --source shapes --count 3 --color gray --encoding jpeg --size 40 --out "$ROOM/grays" > "$ROOM/log" \
    2>&1
mkdir -p "$ROOM/keep/a" && for i in 0 1 2; do kolo-shards show "$ROOM/grays" --index $i --out \
    "$ROOM/keep/a/$i.jpg" > /dev/null; done
colour() { # of the split that the folder becomes
    rm -rf "$ROOM/kept"
    pack --in "$ROOM/keep" --color keep --encoding jpeg --out "$ROOM/kept" &&
        kolo-shards verify "$ROOM/kept" > "$ROOM/log" 2>&1 &&
        sed -n 's/.* color=\([a-z]*\) .*/\1/p' "$ROOM/kept"/*.index
}
is "$(colour)" "gray" "--color keep: gray files stay gray"
cp "$ROOM/in/jpeg/0.jpg" "$ROOM/keep/a/colour.jpg"
is "$(colour)" "rgb" "one in colour, and all are; gray files keep their bytes all the same"
pack --in "$ROOM/keep" --color keep --size 24 --out "$ROOM/keep24"
like <(kolo-shards info "$ROOM/keep24") 'raw, 24 x 24 x 3' "pixels become colour"
# The memory for what a probe keeps (a quarter of the job's, 256 KiB here) is enough for one gray image of
# 160 KB and for none in colour.
mkdir -p "$ROOM/large/a" && for i in 0 1 2; do (printf 'P5 400 400 255\n' && head -c 160000 /dev/zero |
    tr '\0' "$i") > "$ROOM/large/a/$i.pgm"; done
(printf 'P6 400 400 255\n' && head -c 480000 /dev/zero | tr '\0' 7) > "$ROOM/large/a/colour.ppm"
large() { pack --in "$ROOM/large" --color keep --size 400 --threads 1 --out "$ROOM/$1" --name x &&
    sha256sum < "$ROOM/$1/x-train-00000-of-00001.h5"; }
plenty=$(large plenty) little=$(SLURM_MEM_PER_NODE=1 large little)
is "$little" "$plenty" "--color keep with little memory: the same split"
for filter in bilinear bicubic lanczos3 area; do
    pack --in "$ROOM/in" --size 24 --filter $filter --out "$ROOM/$filter" --name x &&
        h5sum=$(sha256sum < "$ROOM/$filter"/x-train-00000-of-00001.h5) &&
        echo "$h5sum"
done | sort -u > "$ROOM/filters"
is "$(wc -l < "$ROOM/filters")" 4 "four filters, four results"

# 600 files: every second one is decoded for the statistics. One of the others is damaged in the middle: a
# second frame in its scan.
for i in $(seq 0 19); do kolo-shards show "$ROOM/shapes" --index "$i" --out "$ROOM/$i.jpg" > /dev/null ||
    break; done
for i in $(seq 0 599); do cp "$ROOM/$((i % 20)).jpg" "$ROOM/many/all/$(printf %03d "$i").jpg"; done
pack --in "$ROOM/many" --no-shuffle --out "$ROOM/sampled" &&
    pack --in "$ROOM/many" --no-shuffle --check decode --out "$ROOM/exact"
ok $? "headers, or all decoded"
mean() { sed -n 's/.* mean=\([0-9.]*\),.*/\1/p' "$1"/*.index; }
[ "$(mean "$ROOM/sampled")" != "$(mean "$ROOM/exact")" ]
ok $? "the mean is taken from a part, or from all ($(mean "$ROOM/sampled"), $(mean "$ROOM/exact"))"
for i in $(seq 0 2 599); do printf 'all/%03d.jpg\n' "$i"; done > "$ROOM/even"
pack --in "$ROOM/many" --no-shuffle --subset "$ROOM/even" --check decode --out "$ROOM/half"
is "$(mean "$ROOM/sampled")" "$(mean "$ROOM/half")" "the part is every second one of 600"
kolo-pack --source shapes --count 20 --no-shuffle --out "$ROOM/twenty" > "$ROOM/log" 2>&1
is "$(mean "$ROOM/exact")" "$(mean "$ROOM/twenty")" "all decoded: the mean of all"
file=$ROOM/many/all/301.jpg
printf '\377\300\0\021\010\0\100\0\100\003\001\042\0\002\021\001\003\021\001' |
    dd of="$file" bs=1 seek=$(($(stat -c %s "$file") - 400)) conv=notrunc 2> /dev/null
pack --in "$ROOM/many" --no-shuffle --check decode --out "$ROOM/damaged"
is $? 2 "--check decode finds damage within a file"
like "$ROOM/log" 'all/301.jpg: ' "--check decode finds damage within a file: the message names it"
truncate -s -2 "$ROOM/many/all/303.jpg"
pack --in "$ROOM/many" --no-shuffle --out "$ROOM/cut"
is $? 2 "a file without its end is found by a look at it"
like "$ROOM/log" 'all/303.jpg: Premature end' \
    "a file without its end is found by a look at it: the message names it"
pack --in "$ROOM/many" --no-shuffle --on-error skip --out "$ROOM/skipped"
is "$(cut -f 1 "$ROOM/skipped"/*.rejects)" "all/303.jpg" "--on-error skip: the truncated image is a reject"
is "$(kolo-shards info "$ROOM/skipped" --json | sed 's/.*"samples":\([0-9]*\).*/\1/')" 599 \
    "--on-error skip: 599 of 600 images are packed"

TURNED=$KOLO_SHARED/data/odd-images/exif-Portrait_8.jpg
if [ -e "$TURNED" ]; then
    mkdir -p "$ROOM/turned/a" && cp "$TURNED" "$ROOM/turned/a/"
    pack --in "$ROOM/turned" --out "$ROOM/upright" &&
        pack --in "$ROOM/turned" --size 64 --out "$ROOM/upright64"
    like <("$TARGETS" "$ROOM/upright") '^sample 0 a/exif-Portrait_8.jpg 1800 1200 1800 1200' \
        "sizes are those of the upright image, though its bytes are kept"
    like <("$TARGETS" "$ROOM/upright64") '^sample 0 a/exif-Portrait_8.jpg 64 64 1800 1200' \
        "sizes are those of the upright image, encoded again"
else
    skip "no turned image here"
fi
done_testing
