#!/usr/bin/env bash
# LMDB, by kolo-pack --source lmdb and kolo-shards convert: image files as LSUN has them, Caffe's
# Datum, labels, damage.
. "$(dirname "$0")/../lib.sh"
. "$(dirname "$0")/sources.sh"
need kolo-pack kolo-shards h5dump perl
MAKE=$BUILD/tests/lmdb_make
[ -x "$MAKE" ] || skip_all "no $MAKE"
mkdir "$ROOM/none"
"$MAKE" "$ROOM/none" < /dev/null > "$ROOM/log" 2>&1
[ $? != 77 ] || skip_all "built without liblmdb, which writes what is read here"
small_images 6
make() { # NAME < rows
    rm -rf "${ROOM:?}/$1"
    mkdir "$ROOM/$1"
    "$MAKE" "$ROOM/$1" > "$ROOM/log" 2>&1
    [ $? = 0 ] || sed "s|^|# |" "$ROOM/log"
}
P=$ROOM/images
samples() { h5dump -d "/$1" -b LE -o "$ROOM/stored" "$ROOM"/out/*.h5 > /dev/null && cat "$ROOM/stored"; }

# images
printf '%s\t%s\n' "c/2.jpg" "$P/2.jpg" "a/0.jpg" "$P/0.jpg" "b/1.jpg" "$P/1.jpg" "__len__" "$ROOM/log" |
    make folders
packs "image files, class folders in the keys" --source lmdb --in "$ROOM/folders" --no-shuffle
is "$(paths) $(table label) $(classes)" "a/0.jpg b/1.jpg c/2.jpg 0 1 2 a b c" \
    "image files, class folders in the keys: in the order of the keys; bookkeeping is passed over"
samples bytes | cmp -s - <(cat "$P/0.jpg" "$P/1.jpg" "$P/2.jpg")
ok $? "image files, class folders in the keys: with their bytes"
printf '%s\t%s\n' 00ab "$P/0.jpg" 00cd "$P/1.jpg" 00ef "$P/2.jpg" | make bedroom_train_lmdb
printf '%s\t%s\n' 11ab "$P/3.jpg" | make kitchen_train_lmdb
packs "one --in a class" --source lmdb --in "$ROOM/kitchen_train_lmdb/" --in "$ROOM/bedroom_train_lmdb" \
    --no-shuffle
is "$(paths) $(table label) $(classes)" \
    "kitchen/11ab bedroom/00ab bedroom/00cd bedroom/00ef 1 0 0 0 bedroom kitchen" \
        "one --in a class: is called like its folder"
packs "without labels" --source lmdb --in "$ROOM/bedroom_train_lmdb/data.mdb"
is "$(table label)" "-1 -1 -1" "images have none"
printf '00ab\tdog\n00cd cat\n00ef\tdog\n' > "$ROOM/rows"
packs "rows of labels" --source lmdb --in "$ROOM/bedroom_train_lmdb" --annotations "$ROOM/rows" --no-shuffle
is "$(table label) $(classes)" "1 0 1 cat dog" "rows of labels: matched by key"
printf '00ab 1\n00cd 0\n00ef 1\n' > "$ROOM/rows"
packs "rows of numbers, and their names" --source lmdb --in "$ROOM/bedroom_train_lmdb" --annotations \
    "$ROOM/rows" --annotations <(printf 'x\ny\n') --no-shuffle
is "$(table label) $(classes)" "1 0 1 x y" "give both"
printf '00ab 1\nalone\n00cd 0\n' > "$ROOM/rows"
fails 2 'rows:2: .key TAB label. is expected' "a row without label" --source lmdb --in \
    "$ROOM/bedroom_train_lmdb" --annotations "$ROOM/rows"
left_out 2 "it, and the key without row, are left out with --on-error skip" --source lmdb --in \
    "$ROOM/bedroom_train_lmdb" --annotations "$ROOM/rows"
is "$(tail -n 1 "$ROOM"/out/*.rejects)" "00ef	$ROOM/rows has no row for this key" \
    "a key without row: among the rejects, with the cause"

# Datum
perl -e 'print map { chr } 0 .. 23' > "$ROOM/planes"
perl -e 'my @p = map { chr } 0 .. 23; print map { my $i = $_; map { $p[$i + 8 * (2 - $_)] } 0 .. 2 } 0 .. 7' \
    > "$ROOM/rgb"
printf '%s\tpixels 3 2 4 %d %s\n' 00000000_a 2 "$ROOM/planes" 00000001_b 0 "$ROOM/planes" | make datum
kolo-shards convert "$ROOM/datum" --out "$ROOM/out2" > "$ROOM/log" 2>&1
ok $? "convert: Datums of pixels"
rm -rf "$ROOM/out" && mv "$ROOM/out2" "$ROOM/out"
is "$(table label) $(classes) $(table images | wc -w)" "2 0 0 1 2 48" "labels, and raw images of one size"
samples images | cmp -s - <(cat "$ROOM/rgb" "$ROOM/rgb")
ok $? "planes blue, green, red become RGB"
kolo-shards verify "$ROOM/out" --decode > "$ROOM/log" 2>&1
ok $? "LMDB of image files: verify --decode exits 0"
is "$(cd "$ROOM/out" && find . -type f | sort |
    tr '\n' ' ')" "./converted-train-00000-of-00001.h5 ./converted-train.index " "and nothing else is there"
packs "planes red, green, blue" --source lmdb-rgb --in "$ROOM/datum" --no-shuffle --encoding raw
[ "$(samples images | od -An -tu1 -N6 | tr -s ' ')" = " 0 8 16 1 9 17" ]
ok $? "planes red, green, blue: are taken as such"
printf 'cat\ndog\nbee\n' > "$ROOM/names"
head -c 8 "$ROOM/planes" > "$ROOM/gray"
printf '%s\t%s\n' 0 "encoded 3 0 0 1 $P/0.jpg" 1 "encoded 3 0 0 2 $P/1.jpg" 2 "pixels 1 4 2 0 $ROOM/gray" |
    make digits
kolo-shards convert "$ROOM/digits" --labels "$ROOM/names" --shards 2 --reshuffle 4 --name d --split val \
    --json --out "$ROOM/d" > "$ROOM/log" 2>&1
ok $? "convert: encoded ones and pixels, of several sizes"
like "$ROOM/log" '"event":"done","split":"val","samples":3,.*"shards":2' "the result as JSON"
kolo-shards info "$ROOM/d" > "$ROOM/info"
like "$ROOM/info" '^encoding +mixed' "JPEG files keep their bytes, pixels are pixels"
like "$ROOM/info" '^ +2 +bee +1 ' "labels have names"
kolo-shards verify "$ROOM/d" --decode > "$ROOM/log" 2>&1
ok $? "LMDB of Datum: verify --decode exits 0"
packs "packed and resized by several threads" --source lmdb --in "$ROOM/digits" --size 16 --threads 3 \
    --encoding jpeg

if ranks_start; then
    kolo-pack --source lmdb --in "$ROOM/digits" --shards 2 --out "$ROOM/one" > "$ROOM/log" 2>&1
    mpiexec -n 2 kolo-pack --source lmdb --in "$ROOM/digits" --shards 2 --name digits --out "$ROOM/two" > \
        "$ROOM/log" 2>&1
    is "$(cat "$ROOM/two"/* | cksum)" "$(cat "$ROOM/one"/* | cksum)" "two ranks write the same bytes"
else
    skip "no mpiexec"
fi

# what is wrong is an error with file and key
one() { # PATTERN TEXT VALUE
    printf '%s\t%s\n' 0 "encoded 3 0 0 1 $P/0.jpg" bad "$3" | make broken
    fails 2 "broken/bad: $1" "$2" --source lmdb --in "$ROOM/broken"
    left_out 1 "is left out with --on-error skip" --source lmdb --in "$ROOM/broken"
}
one 'is a Datum of fractions' "fractions" "floats 3 2 4 1 $ROOM/planes"
one 'is a Datum of 3 x 2 x 5 with 24 bytes' "too few pixels" "pixels 3 2 5 1 $ROOM/planes"
one 'is a Datum of 2 channels, 4 x 3' "two channels" "pixels 2 3 4 1 $ROOM/planes"
one 'has the label -1' "a negative label" "pixels 3 2 4 -1 $ROOM/planes"
one 'is a Datum of 70000 channels' "a size beyond all" "pixels 3 70000 4 1 $ROOM/planes"
one 'is a Datum that says it is encoded, but its data is not an image' "encoded nonsense" \
    "encoded 3 2 4 1 $ROOM/planes"
one 'is not a Datum: ' "nonsense" "$ROOM/names"
printf 'x\t%s\n' "$ROOM/names" | make broken
fails 2 'broken/x: neither an image nor a Datum of Caffe' "values of another kind" --source lmdb --in \
    "$ROOM/broken"
kolo-shards convert "$ROOM/broken" --out "$ROOM/no" > "$ROOM/log" 2>&1
is $? 2 "convert refuses them too: exit 2"
[ ! -e "$ROOM/no" ] && [ ! -e "$ROOM/no.partial" ]
ok $? "convert refuses them too: leaves nothing"
printf '%s\t%s\n' 0 "$P/0.jpg" 1 "$ROOM/cut.jpg" | { head -c 600 "$P/1.jpg" > "$ROOM/cut.jpg" && make cut; }
fails 2 'cut/1: ' "an image that is cut off" --source lmdb --in "$ROOM/cut"
: > "$ROOM/empty.jpg"
printf '%s\t%s\n' 0 "$P/0.jpg" 1 "$ROOM/empty.jpg" | make cut
fails 2 'cut/1: is empty' "an empty value" --source lmdb --in "$ROOM/cut"
size=$(stat -c %s "$ROOM/folders/data.mdb") failed=0
for part in 0 10 151 4096 8191 8192 $((size / 2)) $((size - 1)); do
    head -c "$part" "$ROOM/folders/data.mdb" > "$ROOM/part.mdb"
    kolo-pack --source lmdb --in "$ROOM/part.mdb" --dry-run > "$ROOM/log" 2>&1
    [ $? = 2 ] && grep -qE 'part.mdb: (no LMDB|truncated)' "$ROOM/log" || failed=1
done
ok $failed "a file that is cut off: exit 2, and said so"
kolo-pack --source lmdb --in "$ROOM/nowhere" --dry-run > "$ROOM/log" 2>&1
is $? 2 "a folder that is not there: exit 2"
kolo-shards convert "$ROOM/datum" --images x --out "$ROOM/no" > "$ROOM/log" 2>&1
is $? 78 "convert: an option that is not for LMDB: exit 78"
done_testing
