#!/usr/bin/env bash
# What users get wrong, and what machines do: a clear message, the documented exit code, nothing lost.
# shellcheck source=tests/lib.sh
. "$(dirname "$0")/../lib.sh"
shapes_data 256 64
small=(data="$ROOM/data/train" val="$ROOM/data/val" size=16 batch=32 epochs=2 threads=1)
expect() { # STATUS PATTERN TEXT COMMAND...
    local status=$1 pattern=$2 text=$3
    shift 3
    "$@" > "$ROOM/log" 2>&1
    is $? "$status" "$text: exit $status"
    like "$ROOM/log" "$pattern" "$text: the message helps"
}

# --- configuration
expect 78 "momentum" "unknown key" kolo train shapes "${small[@]}" run="$ROOM/x" momentun=0.9
expect 78 "lr" "wrong type" kolo train shapes "${small[@]}" run="$ROOM/x" lr=fast
expect 78 "recipe.yaml:2" "bad recipe, with its line" bash -c \
    "printf 'model: resnet20\nmodell: lenet5\n' > '$ROOM/recipe.yaml'; kolo train '$ROOM/recipe.yaml' data='$ROOM/data/train' run='$ROOM/x'"
expect 78 "resnet20" "unknown network" kolo train shapes "${small[@]}" run="$ROOM/x" model=resnet21
expect 78 "run=DIR" "no run folder" kolo train shapes "${small[@]}"
expect 78 "did you mean .train" "unknown command" kolo trian shapes
expect 78 "micro_batch" "ghost norm without its block" kolo train shapes "${small[@]}" run="$ROOM/x" bn=ghost
expect 78 "classes" "fewer classes than the data has" kolo train shapes "${small[@]}" run="$ROOM/x" classes=3
expect 78 "channels" "fewer channels than the data has" kolo train shapes "${small[@]}" run="$ROOM/x" \
    channels=1
expect 78 "micro_batch|memory" "a job that cannot fit" kolo train resnet50_imagenet data=synthetic val=none \
    run="$ROOM/x" batch=100000 epochs=1 classes=10
expect 2 "nowhere" "missing data" kolo train shapes data="$ROOM/nowhere" val=none run="$ROOM/x"

# --- shards
cp -r "$ROOM/data/train" "$ROOM/cut"
shard=$(find "$ROOM/cut" -name '*.h5' | sort | head -n 1)
truncate -s -100000 "$shard"
expect 2 "$(basename "$shard")" "truncated shard" kolo train shapes data="$ROOM/cut" val=none run="$ROOM/x" \
    epochs=1
echo "not HDF5" > "$shard"
expect 2 "$(basename "$shard")" "foreign shard" kolo train shapes data="$ROOM/cut" val=none run="$ROOM/x" \
    epochs=1
cp -r "$ROOM/data/train" "$ROOM/rot"
shard=$(find "$ROOM/rot" -name '*.h5' | sort | head -n 1)
printf 'rotten rotten rotten' | dd of="$shard" bs=1 seek=$((1048576 + 5000)) conv=notrunc 2> /dev/null
expect 2 "FAIL|sample|crc" "kolo-shards verify finds a rotten sample" kolo-shards verify "$ROOM/rot"

# --- a run, its checkpoints, and what may befall them
kolo train shapes "${small[@]}" run="$ROOM/run" stop_step=5 > "$ROOM/log" 2>&1
is $? 75 "stopped after a step: exit 75"
expect 78 "weight_decay: was" "changed recipe" kolo train shapes "${small[@]}" run="$ROOM/run" weight_decay=0
newest=$(find "$ROOM/run/checkpoints" -maxdepth 1 -name 'step-*' | sort | tail -n 1)
cp -r "$ROOM/run" "$ROOM/torn"
truncate -s 1000 "$ROOM/torn/checkpoints/$(basename "$newest")/tensors.safetensors"
expect 2 "none of the 1 checkpoints is whole" "no whole checkpoint: nothing is begun over it" kolo train \
    shapes "${small[@]}" run="$ROOM/torn"
cp -r "$ROOM/run" "$ROOM/half"
kolo train shapes "${small[@]}" run="$ROOM/half" stop_step=7 > "$ROOM/log" 2>&1
truncate -s 1000 "$(find "$ROOM/half/checkpoints" -maxdepth 1 -name 'step-*' | sort |
    tail -n 1)/tensors.safetensors"
kolo train shapes "${small[@]}" run="$ROOM/half" > "$ROOM/log" 2>&1
is $? 0 "a half-written checkpoint is passed over for the one before"
like "$ROOM/log" "warn" "a half-written checkpoint: a warning"
expect 78 "diverged" "a loss that is no number" kolo train shapes "${small[@]}" run="$ROOM/diverged" lr=1e5 \
    momentum=0
cp -r "$ROOM/run" "$ROOM/other"
sed -i 's/^model: .*/model: resnet32/' "$ROOM/other/recipe.yaml" && rm "$ROOM/other/run_id" # wanted
expect 78 "layer1" "checkpoint of another model" kolo train shapes "${small[@]}" run="$ROOM/other" \
    model=resnet32
kolo train shapes "${small[@]}" run="$ROOM/run" > "$ROOM/log" 2>&1
is $? 0 "the run goes on to its end"
summary() { sed -n 's/.*"state": "\([a-z]*\)".*/\1/p' "$1/summary.json"; }
# as a kill behind the last checkpoint leaves it
sed -i 's/"state": "done"/"state": "running"/' "$ROOM/run/summary.json"
kolo train shapes "${small[@]}" run="$ROOM/run" > "$ROOM/log" 2>&1
is "$? $(summary "$ROOM/run")" "0 done" \
    "a complete run whose end was not written down: its next start does so"
kolo train shapes "${small[@]}" run="$ROOM/twice" checkpoint_steps=5 stop_step=5 > "$ROOM/log" 2>&1
is "$? $(grep -c '"event":"checkpoint"' "$ROOM/twice/events.jsonl")" "75 1" \
    "stopped where a checkpoint was just written: it is not written again"
kolo train shapes "${small[@]}" run="$ROOM/one" > "$ROOM/log" 2>&1
is "$(losses "$ROOM/run") $(weights_sum "$ROOM/run")" "$(losses "$ROOM/one") $(weights_sum "$ROOM/one")" \
    "stopping changed no bit"

# --- two jobs, one folder
kolo train shapes "${small[@]}" run="$ROOM/lock" epochs=50 > "$ROOM/lock.log" 2>&1 &
holder=$!
for ((i = 0; i < 100; i++)); do [ -s "$ROOM/lock/events.jsonl" ] && break; sleep 0.1; done
expect 78 "pid|process|job" "a second job in the same folder" kolo train shapes "${small[@]}" \
    run="$ROOM/lock" epochs=50
kill -TERM $holder
wait $holder
is $? 75 "SIGTERM: a checkpoint, exit 75"
steps=$(losses "$ROOM/lock" | wc -l)
[ -d "$ROOM/lock/checkpoints/$(printf 'step-%010d' "$steps")" ]
ok $? "the checkpoint is of the last step ($steps)"

# --- disks
if [ "$(id -u)" != 0 ]; then
    mkdir "$ROOM/readonly" && chmod 500 "$ROOM/readonly"
    expect 3 "readonly" "read-only run folder" kolo train shapes "${small[@]}" run="$ROOM/readonly/run"
else
    skip "root may write everywhere" && skip "root may write everywhere"
fi
(
    ulimit -f 700 # KiB: the first checkpoint of 3 MB does not fit
    kolo train shapes "${small[@]}" run="$ROOM/full" checkpoint_steps=3 > "$ROOM/full.log" 2>&1
)
is $? 3 "no room for a checkpoint: exit 3"
like "$ROOM/full.log" "checkpoint" "no room for a checkpoint: the message names it"
is "$(find "$ROOM/full/checkpoints" -name 'step-*' ! -name '*.tmp*' 2> /dev/null |
    wc -l)" 0 "nothing half-written is left under a checkpoint's name"
kolo train shapes "${small[@]}" run="$ROOM/full" > "$ROOM/log" 2>&1
is $? 0 "the same command with room again: exit 0"
done_testing
