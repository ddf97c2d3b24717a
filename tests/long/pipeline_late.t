#!/usr/bin/env bash
# Pipelines with late weights: all golden cases on real ranks, also where one is slow; in every order a run
# that is stopped and taken up again, and validated in between, has the bits of one that never was; the plan;
# what cannot be is refused; a stage that dies is named. A minute.
# shellcheck source=tests/lib.sh
. "$(dirname "$0")/../lib.sh"
# shellcheck source=tests/kills.sh
. tests/kills.sh
# shellcheck source=tests/pipeline.sh
. tests/pipeline.sh
[ -x "$BUILD/tests/delayed" ] || skip_all "build/tests/delayed is not built"

# --- another program's figures
for options in slots=1 "slow=1" "slow=5"; do
    "$BUILD/tests/delayed" "$options" tests/golden > "$ROOM/out" 2>&1
    is $? 0 "all golden cases, $options" "$ROOM/out"
done
mkdir -p "$ROOM/lenet/delayed"
cp tests/golden/delayed/lenet5_*{pipe,two}*.json "$ROOM/lenet/delayed"
for options in "slots=2 slow=2" "slots=3" "slots=12 slow=3"; do
    # shellcheck disable=SC2086 # words
    "$BUILD/tests/delayed" $options "$ROOM/lenet" > "$ROOM/out" 2>&1
    is $? 0 "the same arithmetic in micro-batches: $options" "$ROOM/out"
done

mkdir -p "$ROOM/stashes/delayed"
cp tests/golden/delayed/lenet5_{pipedream,two}*.json "$ROOM/stashes/delayed"
for wrong in drain stash; do
    "$BUILD/tests/delayed" wrong="$wrong" "$ROOM/stashes" > "$ROOM/out" 2>&1
    is "$(grep -c '^ok .*quantities' "$ROOM/out")" 0 "wrong=$wrong: no case of orders that stash passes"
done

# --- runs. 5 steps of 16 images; what is under way at a checkpoint is done again
args+=(batch=16 epochs=1 micro_batch=8 reduce=fast clip_norm=1 momentum=0.9 ema=0.9)
train() { # RANKS RUN OPTIONS...
    timeout 60 mpiexec -n "$1" kolo train "${args[@]}" run="$ROOM/$2" "${@:3}" > "$ROOM/log" 2>&1
}
for mode in "pipedream 3" "pipedream_vertical 3" "two_buffered 3" "pipelined 3" "pipedream 2" \
    "pipelined 2 late_correction=both"; do
    # shellcheck disable=SC2086 # words
    set -- $mode
    cuts=(layer2 layer3)
    # a cut by a clock is another run
    late=("${@:3}" stages="$2" pipeline="$1" cut="$(IFS=, && echo "${cuts[*]:0:$2-1}")")
    train "$2" "$1-$2" "${late[@]}"
    is $? 0 "pipeline=$1, $2 stages ${*:3}" "$ROOM/log"
    train "$2" "$1-$2-stopped" "${late[@]}" stop_step=2
    is $? 75 "stopped behind step 2" "$ROOM/log"
    train "$2" "$1-$2-stopped" "${late[@]}" checkpoint_steps=1
    is $? 0 "and taken up, with a checkpoint behind every step" "$ROOM/log"
    cmp "$(tensors_of "$ROOM/$1-$2")" "$(tensors_of "$ROOM/$1-$2-stopped")" > "$ROOM/log" 2>&1
    ok $? "weights, statistics, averages, versions byte for byte" "$ROOM/log"
    is "$(losses "$ROOM/$1-$2-stopped")" "$(losses "$ROOM/$1-$2")" "and losses"
done
train 4 replicas stages=2 pipeline=pipedream
is $? 0 "2 stages of 2 replicas" "$ROOM/log"
manifest=$(find "$ROOM/pipedream-3" -name manifest.json | sort | tail -n 1)
like "$manifest" '"late_weights": "pipedream, 3 stages' "the checkpoint says which weights are late"
like "$ROOM/pipedream-3/events.jsonl" '"late_weights":"pipedream, 3 stages' "and so do the events"

# --- the plan
kolo plan "${args[@]}" stages=3 pipeline=pipedream ranks=3 > "$ROOM/plan" 2>&1
is $? 0 "kolo plan" "$ROOM/plan"
like "$ROOM/plan" '^ *0 +2 +2 +2 +3$' "states that stage 0 is 2 batches ahead, 2 updates late, in 3 versions"
kolo plan "${args[@]}" stages=3 pipeline=pipelined ranks=3 > "$ROOM/plan" 2>&1
like "$ROOM/plan" '^ *0 +4 +4 +0 ' "pipelined: 4 forward, none backward"

# --- refused
refused() { # PATTERN RANKS OPTIONS...
    train "$2" refused "${@:3}"
    is $? 78 "refused: ${*:3}" "$ROOM/log"
    like "$ROOM/log" "$1" "and why"
}
refused 'of stages' 1 pipeline=pipedream
refused 'late_correction=spike .*other than pipelined' 2 stages=2 pipeline=pipedream late_correction=spike
refused 'late_correction=spike .*nesterov=true' 2 stages=2 pipeline=pipelined late_correction=spike \
    nesterov=true
refused 'shard: not together' 4 stages=2 pipeline=pipedream shard=optimizer
refused 'recompute: not together' 2 stages=2 pipeline=two_buffered recompute=blocks
refused 'adasum: not together' 4 stages=2 pipeline=pipelined reduce=adasum
refused 'swa: not together' 2 stages=2 pipeline=pipelined swa=0.5 ema=0
refused 'batch_ramp, size_ramp or multi_scale: not together' 2 stages=2 pipeline=pipedream \
    batch_ramp=0:16,1:32 epochs=2
cp -r "$ROOM/pipedream-2" "$ROOM/again"
train 2 again stages=2 pipeline=two_buffered epochs=2
is $? 78 "a run goes on with another order" "$ROOM/log"

# --- a stage that dies
rm -rf "$ROOM/killed"
timeout 60 mpiexec -n 3 kolo train "${args[@]}" run="$ROOM/killed" stages=3 pipeline=pipedream epochs=200 \
    eval_epochs=0 > "$ROOM/log" 2>&1 &
job=$!
kills_strike KILL 1500 1 "$ROOM/killed" $job
begin=$(now)
wait $job
took=$(($(now) - begin))
ok $((took >= 10000)) "kill -9 of a stage: the job ends within 10 s ($took ms)"
ok "$(kills_named 1 "$ROOM/log"; echo $?)" "and names it" "$ROOM/log"
done_testing
