#!/usr/bin/env bash
# Two ranks go on with a run whose newest checkpoint is not whole, or not its own: from the one
# before, to the same bytes.
# shellcheck source=tests/lib.sh
. "$(dirname "$0")/../lib.sh"
need mpiexec kolo kolo-pack
for variable in $(compgen -e | grep -E '^(SLURM|PMI|PMIX)_'); do unset "$variable"; done
export OMP_NUM_THREADS=1 KOLO_CACHE=$ROOM/cache
shapes_data 128 32
train() { # RUN ARGS...: one of 12 steps, with a checkpoint every second
    local run=$ROOM/$1
    shift
    timeout 100 mpiexec -n 2 kolo train shapes model=lenet5 data="$ROOM/data/train" val="$ROOM/data/val" \
        run="$run" batch=32 epochs=3 warmup=0 \
        conv=direct deterministic=true threads=1 compression=int8 compression_within=true checkpoint_steps=2 \
        eval_epochs=3 "$@" > "$ROOM/log" 2>&1
}
newest() { find "$ROOM/$1/checkpoints" -maxdepth 1 -name 'step-*' | sort | tail -n 1; }
train whole
is $? 0 "a run that nothing befalls" || diag < "$ROOM/log"
wanted=$(weights_sum "$ROOM/whole")
train begun stop_step=7
is $? 75 "another stops after 7 steps"
id=$(head -n 1 "$ROOM/begun/run_id" | cut -d' ' -f1)
like "$(newest begun)/manifest.json" "\"run\": \"$id\"" "the manifest names the run"
like "$ROOM/begun/summary.json" "\"run_id\": \"$id\"" "the summary names the run"
like "$(newest begun)/manifest.json" '"carried": \{"bytes": [0-9]+, "crc32c": "[0-9a-f]{8}"' \
    "the manifest has bytes and checksum of the rank-local state"

goes_on() { # WHAT COMMAND: damages the newest checkpoint by COMMAND
    rm -rf "$ROOM/hurt" && cp -r "$ROOM/begun" "$ROOM/hurt"
    (cd "$(newest hurt)" && eval "$2")
    train hurt
    is "$? $(weights_sum "$ROOM/hurt")" "0 $wanted" \
        "$1: the run goes on from the one before, to the same bytes" || diag < "$ROOM/log"
    is "$(grep -c 'passed over for the one before' "$ROOM/log")" 1 \
        "two ranks skip a damaged checkpoint: one warning"
}
flip() { "$BUILD/tests/flip_bit" "$@" > "$ROOM/bit"; }
goes_on "what ranks carry is gone" "rm carried"
goes_on "a bit of it is flipped" "flip carried 300"
goes_on "it is torn" "truncate -s -100 carried"
goes_on "a bit of the manifest is flipped" "flip manifest.json 4711"

train other seed=9 stop_step=9
is $? 75 "a run of the same data with another seed"
rm -rf "$ROOM/hurt" && cp -r "$ROOM/begun" "$ROOM/hurt" && cp -r "$(newest other)" "$ROOM/hurt/checkpoints"
train hurt
is "$? $(weights_sum "$ROOM/hurt")" "0 $wanted" \
    "its checkpoint in this folder: the run goes on with its own" || diag < "$ROOM/log"
like "$ROOM/log" "step-0000000009: a checkpoint of another run" "another run's checkpoint: a warning names it"
[ -d "$ROOM/hurt/checkpoints/step-0000000009" ]
ok $? "another run's checkpoint: it stays in its folder"
rm -rf "$ROOM/hurt" && cp -r "$ROOM/begun" "$ROOM/hurt" && rm -r "$ROOM"/hurt/checkpoints/step-* &&
    cp -r "$(newest other)" "$ROOM/hurt/checkpoints"
train hurt
is $? 2 "where it is the only one: exit 2"
like "$ROOM/log" "none of the 1 checkpoints is whole and of this run; restore one, or move this folder away" \
    "no usable checkpoint: the message has the cure"

cp -r "$ROOM/begun" "$ROOM/asked" && newest=$(newest asked) &&
    before=$(find "$ROOM/asked/checkpoints" -name 'step-*' | sort | tail -n 2 | head -n 1)
mpiexec -n 2 kolo eval run="$ROOM/asked" threads=1 checkpoint="$((10#${before##*-}))" 2> "$ROOM/log" |
    cut -d'(' -f1 > "$ROOM/wanted"
flip "$newest/tensors.safetensors" 1000000
mpiexec -n 2 kolo eval run="$ROOM/asked" threads=1 2> "$ROOM/log" | cut -d'(' -f1 > "$ROOM/got"
is "$(cat "$ROOM/got")" "$(cat "$ROOM/wanted")" "eval run= takes the one before a damaged one"
is "$(grep -c 'passed over' "$ROOM/log")" 1 "eval of a run with a damaged checkpoint: one warning"
kolo export "$ROOM/asked" "$ROOM/out.safetensors" > "$ROOM/log" 2>&1
is "$? $(grep -c 'passed over' "$ROOM/log")" "0 1" \
    "export of a run with a damaged checkpoint: exit 0, one warning"
kolo predict weights="$newest/tensors.safetensors" model=lenet5 classes=4 size=32 channels=3 \
    "$TOP/share/doc/shapes.jpg" > "$ROOM/log" 2>&1
is $? 2 "its tensors named as weights=FILE: exit 2"
like "$ROOM/log" "damaged: its checksum is not that of its manifest" \
    "damaged tensors as weights=FILE: the message names the manifest"
train fresh init="$newest/tensors.safetensors" stop_step=1
is $? 2 "and as init=: exit 2"
done_testing
