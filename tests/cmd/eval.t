#!/usr/bin/env bash
# What kolo eval, predict and export make of a run: its own options, the checkpoint that was asked for, nothing of its machine.
# shellcheck source=tests/lib.sh
. "${BASH_SOURCE[0]%/*}/../lib.sh"
need kolo kolo-pack
export OMP_NUM_THREADS=1 KOLO_CACHE=$ROOM/cache
shapes_data 128 50
mkdir "$ROOM/run" && seq 10 > "$ROOM/run/classes.txt" # what a start with other data left that came to nothing
kolo train shapes model=lenet5 data="$ROOM/data/train" val="$ROOM/data/val" run="$ROOM/run" batch=32 epochs=3 ema=0.9 warmup=0 conv=direct deterministic=true threads=1 \
    reducer=nonsense > "$ROOM/log" 2>&1
is $? 0 "a run with averaged weights"
figures() { sed -n 's/^loss \([0-9.]*\)  top-1 \([0-9.]*\) .*/\1 \2/p' "$ROOM/eval"; }
told() { # STEP: what training said of this step, rounded as kolo eval does
    sed -n 's/.*"event":"eval","step":'"$1"',.*"loss":\([0-9.e-]*\),"top1":\([0-9.e-]*\),.*/\1 \2/p' "$ROOM/run/events.jsonl" | xargs printf '%.6f %.4f\n'
}
score() { kolo eval "$@" threads=1 > "$ROOM/eval" 2> "$ROOM/log"; }
score run="$ROOM/run"
is "$(figures)" "$(told 12)" "kolo eval run= scores what training scored, the averaged weights, by the run's own options"
score shapes run="$ROOM/run"
is "$(figures)" "$(told 12)" "so it does beside a recipe that says nothing of an average"
score run="$ROOM/run" checkpoint=8
is "$(figures)" "$(told 8)" "checkpoint=8 is another"
best=$(sed 's/step-0*//' "$ROOM/run/best")
score run="$ROOM/run" checkpoint=best
is "$(figures)" "$(told "$best")" "checkpoint=best is the one of step $best"
score run="$ROOM/run" checkpoint=3
is $? 2 "one that is not there: exit 2"
like "$ROOM/log" 'step 3; .*there are:.* 12' "those that are there are told"
score run="$ROOM/run" checkpoint=nearest
is $? 78 "checkpoint=nearest: exit 78"
score run="$ROOM/nowhere"
is $? 2 "no run folder: exit 2"
score shapes weights="$ROOM/run" val="$ROOM/data/val"
is "$? $(grep -c 'a folder, not a file of weights; those of a run come by run=' "$ROOM/log")" "2 1" "a run folder is no file of weights"
score run="$ROOM/run" val=synthetic
is $? 78 "val=synthetic: exit 78"
like "$ROOM/log" 'val=synthetic.*val=DIR' "noise has no classes to be found"
kolo export "$ROOM/run" checkpoint=8 "$ROOM/8.safetensors" > "$ROOM/log" 2>&1 && kolo export "$ROOM/run" "$ROOM/12.safetensors" >> "$ROOM/log" 2>&1
! cmp -s "$ROOM/8.safetensors" "$ROOM/12.safetensors"
ok $? "kolo export takes checkpoint= too"
score run="$ROOM/run" weights="$ROOM/8.safetensors"
is "$(figures)" "$(told 8)" "weights=FILE by the options of a run"
kolo-shards extract "$ROOM/data/val" --out "$ROOM/renamed" > "$ROOM/log" 2>&1 && mv "$ROOM/renamed/circle" "$ROOM/renamed/zebra"
kolo-pack --source imagefolder --in "$ROOM/renamed" --split val --out "$ROOM/zebras" > "$ROOM/log" 2>&1
score run="$ROOM/run" val="$ROOM/zebras"
is "$? $(grep -c 'class 1 is `circle` in .*, but `cross` in .*zebras: .*--stats-from' "$ROOM/log")" "2 1" "validation pictures of other classes, as many: exit 2"
kolo train shapes data="$ROOM/data/train" val="$ROOM/zebras" run="$ROOM/x" steps=1 > "$ROOM/log" 2>&1
is "$? $(grep -c 'class 1 is `circle`' "$ROOM/log")" "2 1" "so it is before a training"
score shapes run="$ROOM/run" init="$ROOM/8.safetensors"
is $? 78 "run= and init= on one command line: exit 78"
kolo-shards extract "$ROOM/data/val" --limit 1 --out "$ROOM/pictures" > "$ROOM/log" 2>&1
picture=$(find "$ROOM/pictures" -type f -name '*.[jp][pn]g' | head -n 1)
kolo predict run="$ROOM/run" "$picture" top=10 2> "$ROOM/log" | awk '$2 == "%" { print $4 }' | sort | tr '\n' ' ' > "$ROOM/names"
is "$(cat "$ROOM/names")" "$(tr '\n' ' ' < "$ROOM/run/classes.txt")" "kolo predict names classes as the run's data set does"
is "$(wc -w < "$ROOM/names") $(grep -c circle "$ROOM/names")" "10 1" "all of them"
cp -r "$ROOM/run" "$ROOM/begun"
sed -i "s#^init:.*#init: $ROOM/8.safetensors#" "$ROOM/begun/recipe.yaml"
score run="$ROOM/begun"
is "$(figures)" "$(told 12)" "what a run began with is not taken for what it has become"
printf 'threads: many\n' > "$ROOM/site.yaml"
for command in "eval run=$ROOM/run" "predict model=lenet5 weights=x y" "export model=lenet5 y"; do
    # shellcheck disable=SC2086
    KOLO_SITE=$ROOM/site.yaml kolo $command > "$ROOM/log" 2>&1
    like "$ROOM/log" 'KOLO_SITE.*site.yaml:1' "kolo ${command%% *} reads the site file"
done
kolo train shapes run="$ROOM/x" --help > "$ROOM/log" 2>&1
is $? 0 "--help behind other words"
like "$ROOM/log" '^kolo train RECIPE' "tells how to use the command"
done_testing
