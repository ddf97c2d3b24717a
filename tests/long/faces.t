#!/usr/bin/env bash
# Faces: people of fold 2 of LFW's View 2 are learnt as classes, then pairs of the others, fold 1, are verified; those of six pictures and more are
# told apart on pictures that were held out. Some minutes of one core.
. "$(dirname "$0")/../lib.sh"
need kolo kolo-pack awk
LFW=$KOLO_SHARED/data/lfw
[ -d "$LFW/crop150" ] || skip_all "no pictures of LFW in $LFW"

# fold 1 as development test, fold 2 as development training pairs; the people of fold 2 of whom there are three pictures or more
half() { # FILE FIRST: 600 pairs from line FIRST on
    echo 300 > "$1" && tail -n "+$2" "$LFW/pairs_folds1-2.txt" | head -n 600 >> "$1"
}
half "$ROOM/pairsDevTest.txt" 2
half "$ROOM/pairsDevTrain.txt" 602
awk -F '\t' 'NR > 1 { print $1; if (NF == 4) print $3 }' "$ROOM/pairsDevTrain.txt" | sort -u | while read -r name; do
    set -- "$LFW/crop150/$name"/*.jpg
    [ $# -ge 3 ] && echo "$name"
done > "$ROOM/people.txt"
people=$(wc -l < "$ROOM/people.txt")
pack() { kolo-pack --source lfw --in "$LFW/crop150" --encoding raw --size 48 "$@" > "$ROOM/log" 2>&1; }
pack --classes "$ROOM/people.txt" --out "$ROOM/people" --name people
ok $? "$people people are packed"
pack --annotations "$ROOM/pairsDevTest.txt" --annotations "$ROOM/pairsDevTrain.txt" --annotations "$LFW/pairs_folds1-2.txt" \
    --split val --out "$ROOM/pairs" --name pairs
ok $? "pairs are packed"
for head in softmax arcface; do
    run=$ROOM/$head
    args=(share/recipes/resnet_lfw_small.yaml "head=$head" "run=$run"
        "classes=$people" device=cpu threads=1)
    kolo train "${args[@]}" "data=$ROOM/people" val=none > "$ROOM/log" 2>&1
    ok $? "head=$head: people are learnt" || tail -n 5 "$ROOM/log"
    for pairs in dev_test view2; do
        kolo eval "${args[@]}" "val=$ROOM/pairs" pairs=$pairs "roc=$ROOM/$head.svg" > "$ROOM/$pairs" 2>&1
        ok $? "head=$head: $pairs is verified"
        sed 's/^/# /' "$ROOM/$pairs"
    done
    awk '/^dev_test: accuracy/ { e = $5 - sqrt($3 * (1 - $3) / 600); found = 1; exit } END { exit !(found && e * e < 1e-8) }' "$ROOM/dev_test"
    ok $? "head=$head: of one fold the error is that of 600 answers"
    # chance is .5 with a standard error of .0204 over 600 pairs of people never seen
    awk '/^dev_test: accuracy/ { exit !($3 > 0.5 + 4 * 0.0204) }' "$ROOM/dev_test"
    ok $? "head=$head: people never seen are told apart above chance by four standard errors"
    like "$ROOM/view2" '1200 pairs, folds: 2' "head=$head: two folds, each with the other's threshold"
    grep -q '</svg>' "$ROOM/$head.svg"
    ok $? "head=$head: the curve is drawn"
done

# identification: 342 pictures of 43 people, 96 of them held out; who always names the most frequent person is right .04 of the time
pack --min-faces 6 --holdout val=0.25 --out "$ROOM/named"
ok $? "people of six pictures and more are packed, a quarter of their pictures held out"
kolo train share/recipes/resnet_lfw_small.yaml head=softmax epochs=60 batch=16 eval_epochs=0 device=cpu threads=1 deterministic=true \
    "data=$ROOM/named/train" "val=$ROOM/named/val" "run=$ROOM/names" > "$ROOM/log" 2>&1
ok $? "they are learnt" "$ROOM/log"
top1=$(sed -n 's/.*"top1": *\([0-9.]*\).*/\1/p' "$ROOM/names/summary.json" | head -n 1)
# of 96 answers the standard error at .04 is .02
awk -v a="$top1" 'BEGIN { exit !(a > 0.04 + 4 * 0.02) }'
ok $? "top-1 of pictures held out is $top1: above the most frequent person's by four standard errors"
kolo eval "${args[@]}" "val=$ROOM/pairs" pairs=view3 > "$ROOM/log" 2>&1
is $? 2 "pairs that are not there are an error"
like "$ROOM/log" 'dev_test' "which names those that are"
done_testing
