#!/usr/bin/env bash
# kolo-pack: which images are packed (--holdout, --group, --limit, --subset, --classes), and in which order.
. "$(dirname "$0")/../lib.sh"
need kolo-pack kolo-shards
TARGETS=$BUILD/tests/targets
[ -x "$TARGETS" ] || skip_all "no $TARGETS"
# photos of three classes: 60 + 40 + 20, of 12 patients; patient 11 has only a few
kolo-pack --source shapes --count 1 --out "$ROOM/one" > "$ROOM/log" 2>&1 &&
    kolo-shards show "$ROOM/one" --out "$ROOM/one.jpg" > /dev/null
photo() { mkdir -p "$ROOM/photos/$1" && cp "$ROOM/one.jpg" "$ROOM/photos/$1/$2"; }
like "$ROOM/log" '9 of 10 classes have no images in this split: [a-z]+, [a-z]+, [a-z]+, \.\.\.$' \
    "classes without images are told in one line"
for i in $(seq 60); do photo a "patient$((i % 11))_$i.jpg"; done
for i in $(seq 40); do photo b "patient$((i % 11))_$i.jpg"; done
for i in $(seq 20); do photo c "patient11_$i.jpg"; done
PHOTOS=(--source imagefolder --in "$ROOM/photos")
pack() { kolo-pack "${PHOTOS[@]}" "$@" > "$ROOM/log" 2>&1; }
paths() { "$TARGETS" "$1" | awk '$1 == "sample" { print $3 }'; } # in the order of the split
per_class() { paths "$1" | cut -d/ -f 1 | sort | uniq -c | tr -s ' \n' ' '; }
patients() { paths "$1" | sed 's|.*/||; s/_.*//' | sort -u; }
sums() { (cd "$1" && sha256sum -- *); }
all=$(cd "$ROOM/photos" && find . -name '*.jpg' | sed 's|./||' | LC_ALL=C sort)

pack --holdout val=0.1 --out "$ROOM/both"
ok $? "--holdout packs two splits at once"
is "$(per_class "$ROOM/both/val")" " 6 a 4 b 2 c " "a tenth of every class is held out"
is "$(paths "$ROOM/both/train" "$ROOM/both/val" | wc -l)" 108 "the rest is for training"
is "$({ paths "$ROOM/both/train" && paths "$ROOM/both/val"; } |
    LC_ALL=C sort)" "$all" "together they are all, and none twice"
is "$(sed -n 's/.* mean=//p' "$ROOM/both/val"/*.index)" "$(sed -n 's/.* mean=//p' \
    "$ROOM/both/train"/*.index)" "mean and deviation are the training split's"
pack --holdout val=0.1 --split train --out "$ROOM/train"
pack --holdout val=0.1 --split val --stats-from "$ROOM/train" --out "$ROOM/val"
is "$(sums "$ROOM/train")
$(sums "$ROOM/val")" "$(sums "$ROOM/both/train")
$(sums "$ROOM/both/val")" "two runs with --split make the same two"
mkdir -p "$ROOM/parts/validation" && cp -r "$ROOM/photos" "$ROOM/parts/train" &&
    cp -r "$ROOM/photos/a" "$ROOM/photos/b" "$ROOM/parts/validation"
kolo-pack data="$ROOM/parts" out="$ROOM/data" on_error=skip > "$ROOM/log" 2>&1
ok $? "data= packs the train and val of a folder in one command" "$ROOM/log"
is "$(per_class "$ROOM/data/train")/$(per_class "$ROOM/data/val")" " 60 a 40 b 20 c / 60 a 40 b " \
    "  each its own"
is "$(kolo-shards info "$ROOM/data/val" | awk '$1 == "classes" {print $2}')" 3 \
    "  val has the classes of train"
mv "$ROOM/parts/validation" "$ROOM/parts/other"
kolo-pack data="$ROOM/parts" out="$ROOM/none" > "$ROOM/log" 2>&1
is "$? $(grep -c 'no folder val in it.*--holdout' "$ROOM/log") $([ -e "$ROOM/none" ] || echo nothing)" \
    "2 1 nothing" "  without a val: refused with the cure, before anything is packed"
pack --holdout val=0.1 --shuffle-seed 7 --split val --out "$ROOM/other"
[ "$(paths "$ROOM/other" | sort)" != "$(paths "$ROOM/val" | sort)" ]
ok $? "another seed holds out others"
pack --holdout test=0.5 --out "$ROOM/test"
is "$(per_class "$ROOM/test/test")" " 30 a 20 b 10 c " "the other part may be called test"
pack --holdout val=0.25 --group '/(patient[0-9]+)_' --out "$ROOM/groups"
ok $? "--group"
is "$(comm -12 <(patients "$ROOM/groups/train") <(patients "$ROOM/groups/val"))" "" "no patient is in both"
is "$({ paths "$ROOM/groups/train" && paths "$ROOM/groups/val"; } |
    LC_ALL=C sort)" "$all" "and still nobody is missing"
n=$(paths "$ROOM/groups/val" | wc -l)
[ "$n" -ge 20 ] && [ "$n" -le 36 ]
ok $? "about a quarter is held out ($n of 120)"
if ranks_start; then
    mpiexec -n 3 kolo-pack "${PHOTOS[@]}" --holdout val=0.25 --group '/(patient[0-9]+)_' --out \
        "$ROOM/groups3" > "$ROOM/log" 2>&1
    is "$(sums "$ROOM/groups3/train")$(sums "$ROOM/groups3/val")" "$(sums "$ROOM/groups/train")$(sums \
        "$ROOM/groups/val")" "3 ranks choose the same"
else
    skip "no mpiexec"
fi
refuses() { # STATUS PATTERN TEXT ARGUMENTS...
    local status=$1 pattern=$2 text=$3
    shift 3
    pack "$@" --out "$ROOM/no"
    is $? "$status" "$text: exit $status"
    like "$ROOM/log" "$pattern" "$text: the message"
}
refuses 2 'does not match the path .a/patient' "a path that no group fits" --holdout val=0.1 --group \
    'doctor([0-9]+)'
refuses 78 '--group \(: ' "a broken expression" --holdout val=0.1 --group '('
refuses 78 'makes the splits train and val' "a split that the holdout does not make" --holdout val=0.1 \
    --split test
refuses 78 'part between 0 and 1' "all held out" --holdout val=1
refuses 78 'belongs to --holdout' "--group without --holdout" --group x

pack --limit 12 --no-shuffle --out "$ROOM/limit"
is "$(per_class "$ROOM/limit")" " 6 a 4 b 2 c " "--limit takes its part of every class"
pack --limit 1000 --no-shuffle --out "$ROOM/limit2"
is "$(paths "$ROOM/limit2")" "$all" "--limit beyond the end takes all; --no-shuffle: in the source's order"
printf 'c/patient11_7.jpg\r\na/patient5_5.jpg\n\n' > "$ROOM/list"
pack --subset "$ROOM/list" --no-shuffle --out "$ROOM/subset"
is "$(paths "$ROOM/subset" | tr '\n' ' ')" "a/patient5_5.jpg c/patient11_7.jpg " \
    "--subset takes what its file names"
echo 'c/patient99_1.jpg' >> "$ROOM/list"
refuses 2 'no image .c/patient99_1.jpg' "--subset with an image that is not there" --subset "$ROOM/list"
printf 'c\na\n' > "$ROOM/classes"
pack --classes "$ROOM/classes" --no-shuffle --out "$ROOM/classes-out"
is "$("$TARGETS" "$ROOM/classes-out" | awk '{ print substr($3, 1, 1), $8 }' | sort | uniq -c |
    tr -s ' \n' ' ')" " 60 a 1 20 c 0 " \
    "--classes takes those classes and numbers them as in its file"
pack --classes "$ROOM/classes" --holdout val=0.1 --out "$ROOM/classes-both"
is "$(per_class "$ROOM/classes-both/val")" " 6 a 2 c " "--classes and --holdout together"
echo 'zebra' >> "$ROOM/classes"
refuses 2 'names .zebra., which the source does not have' "--classes with a class that is not there" \
    --classes "$ROOM/classes"
refuses 78 'leave --classes out' "--classes and --stats-from" --classes "$ROOM/classes" --stats-from \
    "$ROOM/train"
refuses 78 'takes no --annotations' "--annotations for a source without" --annotations "$ROOM/list"

# pairs name images; a pair of which one image is rejected or not chosen goes too
mkdir -p "$ROOM/lfw/Al" "$ROOM/lfw/Bo" &&
    for file in Al/Al_0001 Al/Al_0002 Bo/Bo_0001; do cp "$ROOM/one.jpg" "$ROOM/lfw/$file.jpg"; done
printf '1\nAl\t1\t2\nAl\t1\tBo\t1\n' > "$ROOM/pairsDevTest.txt"
LFW=(--source lfw --in "$ROOM/lfw" --annotations "$ROOM/pairsDevTest.txt")
kolo-pack "${LFW[@]}" --shuffle-seed 9 --out "$ROOM/pairs" > "$ROOM/log" 2>&1
is "$("$TARGETS" "$ROOM/pairs" | grep '^pair')" "pair dev_test Al/Al_0001.jpg Al/Al_0002.jpg 1 0
pair dev_test Al/Al_0001.jpg Bo/Bo_0001.jpg 0 0" "pairs follow their images through the shuffle"
: > "$ROOM/lfw/Bo/Bo_0001.jpg"
kolo-pack "${LFW[@]}" --out "$ROOM/pairs-bad" > "$ROOM/log" 2>&1
is $? 2 "an image of a pair that is bad stops the packing"
like "$ROOM/log" 'Bo/Bo_0001.jpg: is empty' \
    "an image of a pair that is bad stops the packing: the message names it"
kolo-pack "${LFW[@]}" --on-error skip --out "$ROOM/pairs-skip" > "$ROOM/log" 2>&1
like "$ROOM/log" '; 1 pairs \(1 dropped: one of the two images is not here\); 1 rejected' \
    "--on-error skip: the bad image and its pairs are left out and counted"
is "$("$TARGETS" "$ROOM/pairs-skip" |
    grep '^pair')" "pair dev_test Al/Al_0001.jpg Al/Al_0002.jpg 1 0" "the other pair stays"
kolo-pack "${LFW[@]}" --min-faces 2 --out "$ROOM/pairs-two" > "$ROOM/log" 2>&1
ok $? "--min-faces 2: a person of one image is not looked at"
is "$(kolo-shards info "$ROOM/pairs-two" |
    awk '$1 ~ /^[0-9]$/ { printf "%s ", $2 }') $("$TARGETS" "$ROOM/pairs-two" |
    grep -c '^pair')" "Al  1" "one class, one pair"
kolo-pack "${LFW[@]}" --min-faces 3 --out "$ROOM/pairs-three" > "$ROOM/log" 2>&1
is $? 2 "--min-faces 3: nobody is left"
refuses 78 'no people' "--min-faces elsewhere" --min-faces 2

kolo-pack "${PHOTOS[@]}" --dry-run --limit 30 --json > "$ROOM/log" 2>&1
like "$ROOM/log" '"event":"plan","split":"train","samples":30,"of":120,"classes":3,.*"source_bytes":' \
    "--dry-run --json"
kolo-pack "${PHOTOS[@]}" --dry-run --size 64 --holdout val=0.1 > "$ROOM/log" 2>&1
is "$(grep -c 'samples of 64 x 64 x 3 bytes' "$ROOM/log")" 2 "--dry-run of two splits tells both"
like "$ROOM/log" '^12 images of 120, 3 classes: a, b, c$' \
    "--dry-run of two splits: images and classes of each"
done_testing
