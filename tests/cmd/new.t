#!/usr/bin/env bash
# kolo new: what it writes for a folder of shards trains as it is.
# shellcheck source=tests/lib.sh
. "${BASH_SOURCE[0]%/*}/../lib.sh"
need kolo kolo-pack
export OMP_NUM_THREADS=1
HERE=$ROOM/here
mkdir "$HERE" && shapes_data 48 16
kolo_here() { (cd "$HERE" && kolo "$@"); }
value() { sed -n "s/^$2: *\"\{0,1\}\([^\"]*\)\"\{0,1\}\$/\1/p" "$HERE/$1.yaml"; }

kolo_here new first data="$ROOM/data" > "$ROOM/log" 2>&1
ok $? "kolo new first data=DIR, which holds train and val: exit 0" "$ROOM/log"
is "$(value first data) $(value first val)" \
    "$(realpath "$ROOM/data/train" "$ROOM/data/val" | paste -sd ' ')" \
    "the recipe names both splits from the root"
like "$HERE/first.yaml" '^# .*48 images for classification, 10 classes' "it counts images and classes"
for key in model size batch epochs lr; do
    like "$HERE/first.yaml" "^$key: " "it proposes $key="
    grep -B 3 "^$key: " "$HERE/first.yaml" > "$ROOM/near"
    like "$ROOM/near" '^# ' "  and says why"
done
kolo_here train first.yaml stop_step=3 threads=1 > "$ROOM/log" 2>&1
is $? 75 "the recipe trains as it is, from the folder it was written to: three steps" || diag < "$ROOM/log"
kolo_here train first stop_step=3 threads=1 > "$ROOM/log" 2>&1
is $? 78 "its name without .yaml is no recipe: 78"
like "$ROOM/log" 'did you mean the file first.yaml' "  and the file is offered"
kolo_here report runs/first > "$ROOM/log" 2>&1
ok $? "kolo report of its run: exit 0" "$ROOM/log"

KOLO_DRY_RUN=1 bash "$HERE/first.sh" > "$ROOM/log" 2>&1
ok $? "the job script finds its frame and dry-runs: exit 0" "$ROOM/log"
like "$ROOM/log" "kolo train $HERE/first.yaml run=$HERE/runs/first" "  with the recipe and its run folder"
[ -x "$HERE/first.sh" ]
ok $? "the job script may be executed"

before=$(cat "$HERE/first.yaml" "$HERE/first.sh")
kolo_here new first data="$ROOM/data" > "$ROOM/log" 2>&1
is $? 78 "the same name again: 78"
like "$ROOM/log" 'first.yaml is there already' "  by the name of the file"
is "$(cat "$HERE/first.yaml" "$HERE/first.sh")" "$before" "  and both files are as they were"
rm "$HERE/first.yaml"
kolo_here new first data="$ROOM/data" > "$ROOM/log" 2>&1
is $? 78 "only the job script is there: 78"
[ ! -e "$HERE/first.yaml" ]
ok $? "  and no recipe is written"

kolo_here new second data="$ROOM/data/train" lr=0.25 ema=0.99 val=none > "$ROOM/log" 2>&1
is "$? $(value second lr) $(value second ema) $(value second val)" "0 0.25 0.99 none" \
    "data= a split, lr=, ema= and val=none given: they stand in the recipe, once"
kolo_here new third data="$ROOM/data/train" > "$ROOM/log" 2>&1
is "$? $(value third val)" "0 $(realpath "$ROOM/data/val")" "the split val beside the split train is found"
rm -f "$HERE"/third.*
kolo_here new third data="$ROOM/data" model=vit_s_16 batch=16 epochs=2 > "$ROOM/log" 2>&1
is "$? $(value third optimizer) $(value third lr) $(value third warmup)" "0 adamw 1.56e-05 0" \
    "model=, batch= and epochs= given: optimizer, lr and warm-up follow from them"
rm -f "$HERE"/third.*
for wrong in "third data=$ROOM/data model=nosuch" "third data=$ROOM/data model=yolox_nano" "" "third" \
    "a/b data=$ROOM/data" "third data=$ROOM"; do
    # shellcheck disable=SC2086 # words
    kolo_here new $wrong > "$ROOM/log" 2>&1
    status=$?
    [ "$status" = 78 ] || [ "$status" = 2 ]
    ok $? "kolo new $wrong: refused ($status)" "$ROOM/log"
done
is "$(ls "$HERE")" "$(printf 'first.sh\nruns\nsecond.sh\nsecond.yaml')" "what is refused writes nothing"

kolo-pack --source scenes --split train --count 40 --out "$ROOM/boxes/train" > "$ROOM/log" 2>&1 &&
    kolo_here new boxes data="$ROOM/boxes" >> "$ROOM/log" 2>&1
ok $? "images with boxes: exit 0" "$ROOM/log"
is "$(value boxes model)" yolox_nano "  and a detector is proposed"
kolo_here plan boxes.yaml deterministic=true conv=direct threads=1 > "$ROOM/log" 2>&1
like "$ROOM/log" '^checked: ' "  whose plan passes the checker"
kolo_here train boxes.yaml stop_step=1 threads=1 > "$ROOM/log" 2>&1
is $? 75 "  and which trains as it is" || diag < "$ROOM/log"
done_testing
