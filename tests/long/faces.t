#!/usr/bin/env bash
# Faces: people of fold 2 of LFW's View 2 are learnt as classes, then pairs of the others,
# fold 1, are verified.
. "$(dirname "$0")/../lib.sh"
need kolo kolo-pack awk
LFW=$KOLO_SHARED/data/lfw
[ -d "$LFW/crop150" ] || skip_all "no images of LFW in $LFW"

# fold 1 as development test, fold 2 as development training pairs; the people of fold 2 of whom there are
# three images or more
half() { # FILE FIRST: 600 pairs from line FIRST on
    echo 300 > "$1" && tail -n "+$2" "$LFW/pairs_folds1-2.txt" | head -n 600 >> "$1"
}
half "$ROOM/pairsDevTest.txt" 2
half "$ROOM/pairsDevTrain.txt" 602
awk -F '\t' 'NR > 1 { print $1; if (NF == 4) print $3 }' "$ROOM/pairsDevTrain.txt" | sort -u |
    while read -r name; do
    set -- "$LFW/crop150/$name"/*.jpg
    [ $# -ge 3 ] && echo "$name"
done > "$ROOM/people.txt"
people=$(wc -l < "$ROOM/people.txt")
pack() { kolo-pack --source lfw --in "$LFW/crop150" --encoding raw --size 48 "$@" > "$ROOM/log" 2>&1; }
pack --classes "$ROOM/people.txt" --out "$ROOM/people" --name people
ok $? "$people people are packed"
pack --annotations "$ROOM/pairsDevTest.txt" --annotations "$ROOM/pairsDevTrain.txt" --annotations \
    "$LFW/pairs_folds1-2.txt" \
    --split val --out "$ROOM/pairs" --name pairs
ok $? "pairs are packed"
for head in softmax arcface; do
    run=$ROOM/$head
    args=(share/recipes/resnet_lfw_small.yaml "head=$head" "run=$run"
        "classes=$people" device=cpu)
    LIMIT=500 timeout 500 kolo train "${args[@]}" "data=$ROOM/people" val=none > "$ROOM/log" 2>&1
    ok $? "head=$head: people are learnt" || tail -n 5 "$ROOM/log"
    for pairs in dev_test view2; do
        kolo eval "${args[@]}" "val=$ROOM/pairs" pairs=$pairs "roc=$ROOM/$head.svg" > "$ROOM/$pairs" 2>&1
        ok $? "head=$head: $pairs is verified"
        sed 's/^/# /' "$ROOM/$pairs"
    done
    awk '/^dev_test: accuracy/ { e = $5 - sqrt($3 * (1 - $3) / 600); found = 1; exit }
        END { exit !(found && e * e < 1e-8) }' \
        "$ROOM/dev_test"
    ok $? "head=$head: of one fold the error is that of 600 answers"
    # chance is .5 with a standard error of .0204 over 600 pairs of people never seen
    awk '/^dev_test: accuracy/ { exit !($3 > 0.5 + 4 * 0.0204) }' "$ROOM/dev_test"
    ok $? "head=$head: people never seen are told apart above chance by four standard errors"
    like "$ROOM/view2" '1200 pairs, folds: 2' "head=$head: two folds, each with the other's threshold"
    grep -q '</svg>' "$ROOM/$head.svg"
    ok $? "head=$head: the curve is drawn"
done
kolo eval "${args[@]}" "val=$ROOM/pairs" pairs=view3 > "$ROOM/log" 2>&1
is $? 2 "pairs that are not there are an error"
like "$ROOM/log" 'dev_test' "pairs that are missing: the message lists those there"
done_testing
