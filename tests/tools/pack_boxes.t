#!/usr/bin/env bash
# kolo-pack and boxes: they follow their image through resize, crop and letterbox, in any number of
# ranks, and after a kill.
. "$(dirname "$0")/../lib.sh"
need kolo-pack kolo-shards
TARGETS=$BUILD/tests/targets
[ -x "$TARGETS" ] || skip_all "no $TARGETS"
pack() { kolo-pack --source scenes "$@" > "$ROOM/log" 2>&1; }
sums() { (cd "$1" && sha256sum -- *); }

# the geometry again, from the source's numbers (x y width height in source pixels): prints what differs,
# then how much there was
geometry() { # MODE SIZE < lines of targets
    awk -v mode="$1" -v size="$2" '
        function near(a, b) { return a - b < .002 && b - a < .002 }
        function cut(v, low, high) { return v < low ? low : v > high ? high : v }
        $1 == "sample" {
            h = $6; w = $7; full_h = h; full_w = w; dx = dy = 0; left = top = 0; samples++
            if (mode == "crop") {
                if (h > w) { full_w = size; full_h = int(size * h / w) }
                else { full_h = size; full_w = int(size * w / h) }
                dx = -int((full_w - size) / 2); dy = -int((full_h - size) / 2); right = bottom = size
            } else if (mode == "letterbox") {
                if (h > w) { full_h = size; full_w = int(size * w / h) }
                else { full_w = size; full_h = int(size * h / w) }
                left = dx = int((size - full_w) / 2); top = dy = int((size - full_h) / 2)
                right = left + full_w; bottom = top + full_h
            } else if (mode == "exact") { full_h = full_w = right = bottom = size
            } else { right = w; bottom = h }
            sx = full_w / w; sy = full_h / h
            if (!(near($10, sx) && near($11, sy) && near($12, dx) && near($13, dy))) print "transform of", $2
        }
        $1 == "box" {
            boxes++
            x0 = cut($11 * sx + dx, left, right); y0 = cut($12 * sy + dy, top, bottom)
            x1 = cut(($11 + $13) * sx + dx, left, right); y1 = cut(($12 + $14) * sy + dy, top, bottom)
            gone = x1 - x0 < 1 || y1 - y0 < 1
            if (gone) outside++
            if (gone != ($4 >= 128)) print "flags of a box of", $2
            if (!gone && !(near($5, x0) && near($6, y0) && near($7, x1) && near($8, y1)))
                print "a box of", $2, x0, y0, x1, y1
            if (gone && ($7 > $5 || $8 > $6 || $9 != 0)) print "something left of a box of", $2
        }
        END { print samples + 0, boxes + 0, outside + 0 }'
}
for case in "none 0" "crop 96 --size 96" "letterbox 120 --resize letterbox --size 120" \
    "exact 100 --resize exact --size 100 --filter area"; do
    read -r mode size options <<< "$case"
    # shellcheck disable=SC2086
    pack --count 120 --shards 2 --out "$ROOM/$mode" $options
    ok $? "$mode: packs"
    "$TARGETS" "$ROOM/$mode" > "$ROOM/$mode.txt"
    geometry "$mode" "$size" < "$ROOM/$mode.txt" > "$ROOM/seen"
    like "$ROOM/seen" "^120 3[0-9][0-9] $([ "$mode" = crop ] && echo '[1-9]' ||
        echo 0)" "$mode: every box is where the image's pixels went"
    is "$(grep -vc '^[0-9 ]*$' "$ROOM/seen")" 0 "$mode: nothing differs"
    kolo-shards verify "$ROOM/$mode" > "$ROOM/log"
    ok $? "$mode: verifies"
done
is "$(awk '$1 == "box" { print $10, $11, $12, $13, $14, $3 }' "$ROOM/crop.txt" | sort)" \
    "$(awk '$1 == "box" { print $10, $11, $12, $13, $14, $3 }' "$ROOM/none.txt" |
    sort)" "classes, numbers of the source and ids are the same in all of them"
like "$ROOM/none.txt" '^sample [0-9]+ scene/.* -1 ' "samples have no label"
pack --count 120 --size 96 --out "$ROOM/crop1"
like "$ROOM/log" '120 samples.* 3[0-9][0-9] boxes \([1-9][0-9]* of them outside' \
    "the report counts boxes that the crop cut off"
like <("$TARGETS" "$ROOM/none" | awk \
    '$1 == "sample" { if (n == 0 && seen) empty++; seen = 1; n = 0 } $1 == "box" { n++ }
      END { print "empty", empty }') \
    'empty [1-9]' "images without boxes are kept"

# letterbox bars are gray 114, outside of what the transform says is image
if command -v python3 > /dev/null; then
    kolo-shards show "$ROOM/letterbox" --plain --index 0 --out "$ROOM/bars.png" > /dev/null &&
        python3 - "$ROOM/bars.png" "$ROOM/letterbox.txt" > "$ROOM/bars" << 'EOF'
import struct, sys, zlib
data = open(sys.argv[1], "rb").read()
at, idat = 8, b""
while at < len(data):
    n, kind = struct.unpack(">I4s", data[at:at + 8])
    if kind == b"IHDR": w, h, depth, color = struct.unpack(">IIBB", data[at + 8:at + 18])
    if kind == b"IDAT": idat += data[at + 8:at + 8 + n]
    at += 12 + n
raw, stride, rows = zlib.decompress(idat), 3 * w, []
for y in range(h):
    kind, line = raw[y * (stride + 1)], bytearray(raw[y * (stride + 1) + 1:(y + 1) * (stride + 1)])
    for i in range(stride):
        a = line[i - 3] if i >= 3 else 0
        b = rows[-1][i] if rows else 0
        c = rows[-1][i - 3] if rows and i >= 3 else 0
        p = a + b - c
        best = min((abs(p - a), 0, a), (abs(p - b), 1, b), (abs(p - c), 2, c))[2]
        line[i] = (line[i] + (0, a, b, (a + b) // 2, best)[kind]) & 255
    rows.append(line)
word = next(l for l in open(sys.argv[2]) if l.startswith("sample 0 ")).split()
sh, sw, (sx, sy, dx, dy) = int(word[5]), int(word[6]), map(float, word[9:13])
inside = lambda x, y: dx <= x < dx + sw * sx - .5 and dy <= y < dy + sh * sy - .5
bars = [rows[y][3 * x:3 * x + 3] == b"\x72\x72\x72" for y in range(h) for x in range(w) if not inside(x, y)]
gray = [rows[y][3 * x:3 * x + 3] == b"\x72\x72\x72" for y in range(h) for x in range(w) if inside(x, y)]
print(w, h, all(bars), sum(gray) < len(gray) / 10)
EOF
    is "$(cat "$ROOM/bars")" "120 120 True True" "bars are gray, and only they"
else
    skip "no python3"
fi

want=$(sums "$ROOM/letterbox")
LETTERBOX=(--count 120 --shards 2 --resize letterbox --size 120)
pack "${LETTERBOX[@]}" --out "$ROOM/t3" --threads 3
is "$(sums "$ROOM/t3")" "$want" "3 threads write the same bytes"
if ranks_start; then
    for ranks in 2 3 5; do
        mpiexec -n $ranks kolo-pack --source scenes "${LETTERBOX[@]}" --out "$ROOM/r$ranks" > "$ROOM/log" 2>&1
        is "$(sums "$ROOM/r$ranks")" "$want" "$ranks ranks write the same bytes"
    done
else
    skip "no mpiexec"
fi
for encoding in raw jpeg; do
    MORE=(--count 240 --shards 3 --encoding "$encoding")
    [ $encoding = raw ] && MORE+=(--size 64)
    pack "${MORE[@]}" --out "$ROOM/whole-$encoding"
    kolo-pack --source scenes "${MORE[@]}" --threads 1 --out "$ROOM/killed-$encoding" > "$ROOM/log" 2>&1 &
    pid=$!
    journalled "$ROOM/killed-$encoding" $pid
    ok $? "$encoding: some samples are noted" "$ROOM/log"
    kill -KILL $pid
    wait $pid 2> /dev/null
    is $? 137 "$encoding: killed while it works"
    pack "${MORE[@]}" --out "$ROOM/killed-$encoding" --resume
    like "$ROOM/log" '[1-9][0-9]* kept' "$encoding: what was finished is kept"
    is "$(sums "$ROOM/killed-$encoding")" "$(sums "$ROOM/whole-$encoding")" \
        "$encoding: resumed, the same bytes"
done
if command -v kolo > /dev/null; then
    kolo train shapes data="$ROOM/none" val="$ROOM/none" run="$ROOM/run" > "$ROOM/log" 2>&1
    is $? 2 "kolo train, which wants a class for each sample, refuses them"
    like "$ROOM/log" 'packed for detection and has no class' \
        "kolo train, which wants a class for each sample, refuses them: the message says why"
else
    skip "no kolo"
fi
printf 'ring\nstar\n' > "$ROOM/two"
pack --count 120 --classes "$ROOM/two" --out "$ROOM/some"
like "$ROOM/log" '2 classes.* boxes of other classes left out' \
    "--classes leaves out boxes of other classes, and says so"
is "$("$TARGETS" "$ROOM/some" | awk '$1 == "box" { print $10, $3 }' | sort)" \
    "$(awk '$1 == "box" && ($3 == 4 || $3 == 6) { print $10, $3 == 6 }' "$ROOM/none.txt" |
    sort)" "the boxes of the two, numbered as in the file"

# boxes of an image that EXIF turns: 1800 x 1200 as stored, upright 1200 x 1800 for orientations 5 to 8
TURNED=$KOLO_SHARED/data/odd-images/exif-Portrait_8.jpg
if [ -e "$TURNED" ] && command -v perl > /dev/null; then
    mkdir -p "$ROOM/voc/Annotations" "$ROOM/voc/JPEGImages" "$ROOM/voc/ImageSets/Main"
    echo turned > "$ROOM/voc/ImageSets/Main/train.txt"
    turned() { # ORIENTATION WIDTH HEIGHT (as the annotation says): x0 y0 x1 y1 of its box, or the message
        perl -0777 -pe \
            "s/\x12\x01\x03\x00\x01\x00\x00\x00\x08/\x12\x01\x03\x00\x01\x00\x00\x00\x0$1/; s/\x01\x12\x00\x03\x00\x00\x00\x01\x00\x08/\x01\x12\x00\x03\x00\x00\x00\x01\x00\x0$1/" \
            "$TURNED" > "$ROOM/voc/JPEGImages/turned.jpg"
        echo "<annotation><filename>turned.jpg</filename>
            <size><width>$2</width><height>$3</height><depth>3</depth></size>
            <object><name>dog</name><difficult>0</difficult>
            <bndbox><xmin>101</xmin><ymin>51</ymin><xmax>300</xmax><ymax>250</ymax></bndbox></object>
            </annotation>" > "$ROOM/voc/Annotations/turned.xml"
        rm -rf "$ROOM/turned"
        kolo-pack --source voc-xml --in "$ROOM/voc" --out "$ROOM/turned" > "$ROOM/log" 2>&1 ||
            { tail -n 1 "$ROOM/log" && return; }
        "$TARGETS" "$ROOM/turned" | awk '$1 == "box" { print $5, $6, $7, $8 }'
    }
    is "$(turned 1 1800 1200)" "100 50 300 250" "an image that is not turned"
    is "$(turned 3 1800 1200)" "100 50 300 250" \
        "half a turn leaves the size: boxes belong to the upright image"
    is "$(turned 5 1800 1200)" "50 100 250 300" "annotated before the turn: boxes are turned with it (5)"
    is "$(turned 6 1800 1200)" "950 100 1150 300" "annotated before the turn (6)"
    is "$(turned 7 1800 1200)" "950 1500 1150 1700" "annotated before the turn (7)"
    is "$(turned 8 1800 1200)" "50 1500 250 1700" "annotated before the turn (8)"
    is "$(turned 8 1200 1800)" "100 50 300 250" "annotated upright"
    like <(turned 8 900 600) 'turned.jpg: has 1200 x 1800 pixels, its annotation says 900 x 600' \
        "annotated for an image of another size: refused"
else
    skip "no turned image here"
fi

# and of a PNG: 3 x 2 as stored, 2 x 3 as its eXIf chunk turns it (orientation 6)
mkdir -p "$ROOM/png/Annotations" "$ROOM/png/JPEGImages" "$ROOM/png/ImageSets/Main"
echo turned > "$ROOM/png/ImageSets/Main/train.txt"
base64 -d > "$ROOM/png/JPEGImages/turned.png" << END
iVBORw0KGgoAAAANSUhEUgAAAAMAAAACCAIAAAASFvFNAAAAGmVYSWZNTQAqAAAACAABARIAAwAAAAEABgAAAAAAAN
ZnS2kAAAAYSURBVHicY/jPwMAAwVwichpGNr9+/wEAN20GwX8pTdoAAAAASUVORK5CYII=
END
echo "<annotation><filename>turned.png</filename><size><width>3</width><height>2</height></size><object>
    <name>dog</name><bndbox><xmin>1</xmin><ymin>1</ymin><xmax>2</xmax><ymax>1</ymax></bndbox></object>
    </annotation>" > "$ROOM/png/Annotations/turned.xml"
kolo-pack --source voc-xml --in "$ROOM/png" --out "$ROOM/turned-png" > "$ROOM/log" 2>&1
ok $? "a PNG annotated before the turn is packed" "$ROOM/log"
is "$("$TARGETS" "$ROOM/turned-png" | awk '$1 == "box" { print $5, $6, $7, $8 }')" "1 0 2 2" \
    "and its box is turned with it"
done_testing
