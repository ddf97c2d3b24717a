#!/usr/bin/env bash
# Pipelines with late weights: golden cases on real ranks, one of which sleeps, and what a drained pipeline
# makes of them; a run that is stopped and taken up again has the bits of one that never was. All orders, the
# plan, what is refused, and stages that die: tests/long/pipeline_late.t.
# shellcheck source=tests/lib.sh
. "$(dirname "$0")/../lib.sh"
# shellcheck source=tests/pipeline.sh
. tests/pipeline.sh
[ -x "$BUILD/tests/delayed" ] || skip_all "build/tests/delayed is not built"

mkdir -p "$ROOM/some/delayed"
cp tests/golden/delayed/lenet5_{pipedream_2,pipelined_3,two_buffered}.json "$ROOM/some/delayed"
"$BUILD/tests/delayed" slots=2 slow=1 "$ROOM/some" > "$ROOM/out" 2>&1
is $? 0 "golden cases in 2 micro-batches, a rank that sleeps at random" "$ROOM/out"
is "$(grep -c '^ok' "$ROOM/out")" 3 "all three are checked"
rm "$ROOM"/some/delayed/*pipelined*
"$BUILD/tests/delayed" wrong=drain "$ROOM/some" > "$ROOM/out" 2>&1
is "$(grep -c '^not ok' "$ROOM/out")" 2 "a pipeline that is drained behind every step: every case fails"

args+=(batch=16 micro_batch=8 reduce=fast clip_norm=1 momentum=0.9 ema=0.9
    stages=3 pipeline=pipedream "cut=layer2,layer3") # a cut by a clock is another run
train() { # RUN OPTIONS...
    timeout 60 mpiexec -n 3 kolo train "${args[@]}" run="$ROOM/$1" "${@:2}" > "$ROOM/log" 2>&1
}
train whole
is $? 0 "pipeline=pipedream, 3 stages" "$ROOM/log"
train stopped stop_step=2
is $? 75 "stopped behind step 2" "$ROOM/log"
args=("${args[@]/cut=*/cut=}") # it is the run's
train stopped checkpoint_steps=1
is $? 0 "and taken up, with a checkpoint behind every step" "$ROOM/log"
cmp "$(tensors_of "$ROOM/whole")" "$(tensors_of "$ROOM/stopped")" > "$ROOM/log" 2>&1
ok $? "weights, statistics, averages, versions byte for byte" "$ROOM/log"
is "$(losses "$ROOM/stopped")" "$(losses "$ROOM/whole")" "and losses"

args=("${args[@]/model=*/model=mlp}" stages=4 pipeline=pipelined clip_norm=0)
four() { # RUN OPTIONS...
    timeout 60 mpiexec -n 4 kolo train "${args[@]}" run="$ROOM/$1" "${@:2}" > "$ROOM/log" 2>&1
}
four four cut=fc1.relu,fc2,fc3
is $? 0 "a stage without parameters" "$ROOM/log"
four halted cut=fc1.relu,fc2,fc3 stop_step=2
four halted
is $? 0 "a stage without parameters: taken up without its cut=" "$ROOM/log"
cmp "$(tensors_of "$ROOM/four")" "$(tensors_of "$ROOM/halted")" > "$ROOM/log" 2>&1
ok $? "a stage without parameters: weights and versions byte for byte" "$ROOM/log"
done_testing
