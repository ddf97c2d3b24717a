#!/usr/bin/env bash
# What kolo eval, predict and export make of a run: its own options, the checkpoint that was asked for,
# nothing of its machine.
# shellcheck source=tests/lib.sh
. "${BASH_SOURCE[0]%/*}/../lib.sh"
need kolo kolo-pack
export OMP_NUM_THREADS=1 KOLO_CACHE=$ROOM/cache
shapes_data 128 50
mkdir "$ROOM/run" && seq 10 > "$ROOM/run/classes.txt" # what a start with other data left that came to nothing
kolo train shapes model=lenet5 data="$ROOM/data/train" val="$ROOM/data/val" run="$ROOM/run" batch=32 \
    epochs=3 ema=0.9 warmup=0 conv=direct deterministic=true threads=1 \
    reducer=nonsense > "$ROOM/log" 2>&1
is $? 0 "a run with averaged weights"
figures() { sed -n 's/^loss \([0-9.]*\)  top-1 \([0-9.]*\) .*/\1 \2/p' "$ROOM/eval"; }
told() { # STEP: what training said of this step, rounded as kolo eval does
    sed -n 's/.*"event":"eval","step":'"$1"',.*"loss":\([0-9.e-]*\),"top1":\([0-9.e-]*\),.*/\1 \2/p' \
        "$ROOM/run/events.jsonl" | xargs printf '%.6f %.4f\n'
}
score() { kolo eval "$@" threads=1 > "$ROOM/eval" 2> "$ROOM/log"; }
score run="$ROOM/run"
is "$(figures)" "$(told 12)" \
    "kolo eval run= scores what training scored, the averaged weights, by the run's own options"
score shapes run="$ROOM/run"
is "$(figures)" "$(told 12)" "a recipe beside run=: the run's own options are used"
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
mv "$ROOM/run/recipe.yaml" "$ROOM/recipe.yaml"
score "$ROOM/run"
is "$? $(grep -c 'run/recipe.yaml is missing.*put it back' "$ROOM/log")" "2 1" \
    "a run whose recipe.yaml is gone: exit 2, the message names the file"
mv "$ROOM/recipe.yaml" "$ROOM/run/recipe.yaml"
score run="$ROOM/run:8"
like "$ROOM/log" 'run:8 holds no checkpoint.*checkpoint=best, or =STEP' \
    "run=RUN:8: the message names checkpoint="
score "$ROOM/run"
is "$(figures)" "$(told 12)" "kolo eval RUN is kolo eval run=RUN"
score "$ROOM/run" run="$ROOM/nowhere"
is $? 78 "two runs: exit 78"
score shapes model=lenet5 weights="$ROOM/run" val="$ROOM/data/val"
is "$(figures)" "$(told 12)" "weights=RUN: those of its newest checkpoint, averaged"
score shapes model=lenet5 weights="$ROOM/run:8" val="$ROOM/data/val"
is "$(figures)" "$(told 8)" "weights=RUN:8: of that step's"
score shapes model=lenet5 weights="$ROOM/data" val="$ROOM/data/val"
is "$? $(grep -c "data: a folder that holds no checkpoint; give a file" "$ROOM/log")" "2 1" \
    "a folder that is no run's: exit 2"
first=(model=lenet5 data="$ROOM/data/train" val="$ROOM/data/val" batch=32 steps=1 lr=1e-9 deterministic=true \
    threads=1 reducer=nonsense)
kolo train shapes "${first[@]}" run="$ROOM/from_run" init="$ROOM/run" > "$ROOM/log" 2>&1 &&
    kolo train shapes "${first[@]}" run="$ROOM/from_best" init="$ROOM/run:best" > "$ROOM/log" 2>&1 &&
    kolo export "$ROOM/run" "$ROOM/run.safetensors" > "$ROOM/log" 2>&1 &&
    kolo train shapes "${first[@]}" run="$ROOM/from_file" init="$ROOM/run.safetensors" > "$ROOM/log" 2>&1
ok $? "init=RUN and init=RUN:best begin a training" "$ROOM/log"
[ -n "$(weights_sum "$ROOM/from_run")" ] &&
    [ "$(weights_sum "$ROOM/from_run")" = "$(weights_sum "$ROOM/from_file")" ]
ok $? "training from init=RUN and from an exported file: the same weights"

# from another folder
(cd "$ROOM" && cp 8.safetensors net.safetensors 2> /dev/null
    kolo export run net.safetensors > log 2>&1
    kolo train shapes model=lenet5 data=data/train val=./data/val run=away init=./net.safetensors batch=32 \
        steps=2 lr=1e-5 \
        comm_timeout=300 weight_decay=5e-4 deterministic=true threads=1 > log 2>&1)
is $? 0 "a run by paths that are relative" "$ROOM/log"
is "$(grep -cE "^(data: $ROOM/data/train|val: $ROOM/data/val|init: $ROOM/net.safetensors|model: lenet5)$" \
    "$ROOM/away/recipe.yaml")" 4 \
    "its record names them from the root"
mkdir "$ROOM/elsewhere" && (cd "$ROOM/elsewhere" && kolo eval ../away threads=1 > log 2>&1)
is $? 0 "it is evaluated from another folder" "$ROOM/elsewhere/log"
(cd "$ROOM" && kolo train shapes model=lenet5 data=data/train val=data/val run=away init=./net.safetensors \
    batch=32 steps=2 lr=1e-5 \
    weight_decay=5e-4 deterministic=true threads=1 > log 2>&1)
is $? 0 "the same words go on with it" "$ROOM/log"
mv "$ROOM/data/val" "$ROOM/data/moved" && score "$ROOM/away"
is $? 2 "its data are gone: exit 2"
like "$ROOM/log" "val=$ROOM/data/val, as $ROOM/away/recipe.yaml has it: no such folder; give val=DIR" \
    "a run whose val= is gone: the message names the folder and the record"
mv "$ROOM/data/moved" "$ROOM/data/val"

# what else reads YAML
like "$ROOM/away/recipe.yaml" '^comm_timeout: 300$' "numbers are written as YAML 1.1 reads them: 300"
like "$ROOM/away/recipe.yaml" '^lr: 1\.0e-05$' "1.0e-05"
if python3 -c 'import yaml' 2> /dev/null; then
    python3 - "$ROOM/away/recipe.yaml" > "$ROOM/log" 2>&1 << 'END'
import re, sys, yaml
read = yaml.safe_load(open(sys.argv[1]))
for line in open(sys.argv[1]):
    key, text = line.rstrip("\n").split(": ", 1)
    try: want = float(text)
    except ValueError: want = {"true": True, "false": False}.get(text, text.strip('"'))
    if read[key] != want or isinstance(read[key], str) != isinstance(want, str):
        sys.exit(f"{key}: {text}: {read[key]!r}")
print(len(read))
END
    ok $? "PyYAML reads every number as that number, every text as a text" "$ROOM/log"
else
    skip "no PyYAML"
fi
score run="$ROOM/run" val=synthetic
is $? 78 "val=synthetic: exit 78"
like "$ROOM/log" 'val=synthetic.*val=DIR' "noise has no classes to be found"
kolo export "$ROOM/run" checkpoint=8 "$ROOM/8.safetensors" > "$ROOM/log" 2>&1 &&
    kolo export "$ROOM/run" "$ROOM/12.safetensors" >> "$ROOM/log" 2>&1
! cmp -s "$ROOM/8.safetensors" "$ROOM/12.safetensors"
ok $? "kolo export takes checkpoint= too"
score run="$ROOM/run" weights="$ROOM/8.safetensors"
is "$(figures)" "$(told 8)" "weights=FILE by the options of a run"
kolo-shards extract "$ROOM/data/val" --out "$ROOM/renamed" > "$ROOM/log" 2>&1 &&
    mv "$ROOM/renamed/circle" "$ROOM/renamed/zebra"
kolo-pack --source imagefolder --in "$ROOM/renamed" --split val --out "$ROOM/zebras" > "$ROOM/log" 2>&1
score run="$ROOM/run" val="$ROOM/zebras"
is "$? $(grep -c 'class 1 is `circle` in .*, but `cross` in .*zebras; .*--stats-from' "$ROOM/log")" "2 1" \
    "validation images of other classes, as many: exit 2"
kolo train shapes data="$ROOM/data/train" val="$ROOM/zebras" run="$ROOM/x" steps=1 > "$ROOM/log" 2>&1
is "$? $(grep -c 'class 1 is `circle`' "$ROOM/log")" "2 1" \
    "validation classes in another order: kolo train exits 2, too"
score shapes run="$ROOM/run" init="$ROOM/8.safetensors"
is $? 78 "run= and init= on one command line: exit 78"
kolo-shards extract "$ROOM/data/val" --limit 1 --out "$ROOM/images" > "$ROOM/log" 2>&1
image=$(find "$ROOM/images" -type f -name '*.[jp][pn]g' | head -n 1)
kolo predict run="$ROOM/run" "$image" top=10 2> "$ROOM/log" | awk '$2 == "%" { print $4 }' | sort |
    tr '\n' ' ' > "$ROOM/names"
is "$(cat "$ROOM/names")" "$(tr '\n' ' ' < "$ROOM/run/classes.txt")" \
    "kolo predict names classes as the run's data set does"
is "$(wc -w < "$ROOM/names") $(grep -c circle "$ROOM/names")" "10 1" "all of them"
cp -r "$ROOM/run" "$ROOM/begun"
sed -i "s#^init:.*#init: $ROOM/8.safetensors#" "$ROOM/begun/recipe.yaml"
score run="$ROOM/begun"
is $? 2 "a recipe that has changed since the run began: exit 2"
like "$ROOM/log" "begun/recipe.yaml has changed since the run began .* remove $ROOM/begun/run_id" \
    "a changed recipe.yaml: the message names the cure"
rm "$ROOM/begun/run_id"
score run="$ROOM/begun"
is "$(figures)" "$(told 12)" "what a run began with is not taken for what it has become"
# a bit of what a run wrote beside its checkpoints
damaged() { # FILE COMMAND...: 2, and the file's name
    rm -rf "$ROOM/bit" && cp -r "$ROOM/run" "$ROOM/bit"
    "$BUILD/tests/flip_bit" "$ROOM/bit/$1" 100 > "$ROOM/log"
    "${@:2}" > "$ROOM/log" 2>&1
    is "$? $(grep -c "bit/$1 has changed since the run began" "$ROOM/log")" "2 1" \
        "a flipped bit of RUN/$1: ${*:2:2}: exit 2, it is named" "$ROOM/log"
}
again=(kolo train shapes data="$ROOM/data/train" val="$ROOM/data/val" run="$ROOM/bit")
damaged recipe.yaml kolo eval run="$ROOM/bit" threads=1
damaged recipe.yaml kolo predict run="$ROOM/bit" "$image"
damaged recipe.yaml kolo export "$ROOM/bit" "$ROOM/bit.safetensors"
damaged recipe.yaml "${again[@]}"
damaged classes.txt kolo eval run="$ROOM/bit" threads=1
damaged classes.txt kolo predict run="$ROOM/bit" "$image"
damaged classes.txt "${again[@]}"
sed -i 2,4d "$ROOM/bit/run_id" # as an older version wrote it
kolo predict run="$ROOM/bit" "$image" > "$ROOM/log" 2>&1
is $? 0 "a run of a version that noted no checksums is read as before" "$ROOM/log"
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
