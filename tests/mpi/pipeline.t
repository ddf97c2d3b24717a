#!/usr/bin/env bash
# Pipelines: ranks that hold a stage of the network each train to the bytes of one rank that holds all of it,
# in every order, on any grid; checkpoints go from grid to grid; what cannot be is refused; a stage that dies
# or stands still is named.
# shellcheck source=tests/lib.sh
. "$(dirname "$0")/../lib.sh"
# shellcheck source=tests/kills.sh
. tests/kills.sh
# shellcheck source=tests/pipeline.sh
. tests/pipeline.sh

# --- orders, stages, replicas: 4 micro-batches; tests/long/pipeline_grids.t has all of them
alone all
is "$(losses "$first" | wc -l)" 3 "it has the losses of three steps"
like "$first/summary.json" '"top1": 0\.[0-9]' "and a validation"
same 2 stages=2 pipeline=gpipe cut=layer3.2 # far from even
same 3 stages=3 cut=conv1,layer1.0
same 3 stages=3 pipeline=interleaved chunks=2
same 3 stages=3 pipeline=zero_bubble
same 4 stages=2

# --- micro-batches fewer than stages, one, and no multiple of anything
alone two micro_batch=16
same 3 micro_batch=16 stages=3 pipeline=interleaved chunks=2
alone whole micro_batch=32
same 3 micro_batch=32 stages=3 pipeline=zero_bubble
alone five batch=25 micro_batch=5
same 3 batch=25 micro_batch=5 stages=3

# --- what is decided of all gradients, and the average of the weights
norms=(clip_norm=0.5 ema=0.9 noise_scale=true layer_decay=0.8)
alone norms "${norms[@]}"
head -c 65536 "$(tensors_of "$first")" | tr -d '\0' > "$ROOM/head"
like "$ROOM/head" 'ema' "its checkpoint has the average"
same 3 "${norms[@]}" stages=3 cut=conv1,layer1.0 # the first stage has no parameters
same 4 "${norms[@]}" stages=2 pipeline=zero_bubble
alone lamb optimizer=lamb lr=0.01 swa=0.5
same 4 optimizer=lamb lr=0.01 swa=0.5 stages=2 cut=linear # the last stage has no norms

# --- one run on one grid after the other
first=$ROOM/all
step=0
go_on() { # RANKS OPTIONS...
    step=$((step + 1))
    mpiexec -n "$1" kolo train "${args[@]}" run="$ROOM/chain" epochs=2 stop_step=$step "${@:2}" > \
        "$ROOM/log" 2>&1
    is $? 75 "step $step by $1 ranks, ${*:2}" "$ROOM/log"
}
kolo train "${args[@]}" epochs=2 run="$ROOM/long" > "$ROOM/log" 2>&1
is $? 0 "six steps by one rank"
go_on 2 stages=2
go_on 4
go_on 4 stages=2 pipeline=interleaved chunks=2
mpiexec -n 3 kolo train "${args[@]}" run="$ROOM/chain" epochs=2 stages=3 > "$ROOM/log" 2>&1
is $? 0 "the last steps by 3 stages" "$ROOM/log"
cmp "$(tensors_of "$ROOM/long")" "$(tensors_of "$ROOM/chain")" > "$ROOM/log" 2>&1
ok $? "the bytes of the run that was never interrupted" "$ROOM/log"
is "$(losses "$ROOM/chain") $(figures "$ROOM/chain")" "$(losses "$ROOM/long") $(figures "$ROOM/long")" \
    "its losses and figures too"
for run in long chain; do kolo export "$ROOM/$run" "$ROOM/$run.safetensors" > "$ROOM/log" 2>&1; done
cmp "$ROOM/long.safetensors" "$ROOM/chain.safetensors" > "$ROOM/log" 2>&1
ok $? "kolo export gives the same file" "$ROOM/log"
kolo eval run="$ROOM/chain" threads=1 > "$ROOM/eval.1" 2> "$ROOM/log"
mpiexec -n 2 kolo eval run="$ROOM/chain" threads=1 > "$ROOM/eval.2" 2>> "$ROOM/log"
like "$ROOM/eval.1" '^loss [0-9.]+  top-1 [0-9.]+' "kolo eval of it by one rank"
is "$(cut -d'(' -f1 "$ROOM/eval.2")" "$(cut -d'(' -f1 "$ROOM/eval.1")" "two say the same"

# --- weights from elsewhere: one rank imports them, whatever stages the run is trained with
for stages in 1 3; do
    kolo import "$ROOM/long.safetensors" "${args[@]}" stages=$stages run="$ROOM/import-$stages" > \
        "$ROOM/log" 2>&1
    is $? 0 "kolo import stages=$stages" "$ROOM/log"
done
cmp "$(tensors_of "$ROOM/import-1")" "$(tensors_of "$ROOM/import-3")" > "$ROOM/log" 2>&1
ok $? "kolo import stages=3: the checkpoint of stages=1" "$ROOM/log"
mpiexec -n 3 kolo train "${args[@]}" stages=3 run="$ROOM/import-3" > "$ROOM/log" 2>&1
is $? 0 "kolo train stages=3 goes on from it" "$ROOM/log"

# --- checkpoints are written by those who have the tensors
if unshare -rm true 2> /dev/null; then
    mkdir -p "$ROOM/elsewhere" "$ROOM/apart" "$ROOM/full"
    words=(kolo train "${args[@]}" epochs=2 stages=3)
    # shellcheck disable=SC2016 # expanded by that shell
    apart=(unshare -m sh -c 'mount --bind "$0" "$1" && shift && exec "$@"' "$ROOM/elsewhere" "$ROOM/apart")
    unshare -rm mpiexec -n 2 "${words[@]}" run="$ROOM/apart" : -n 1 "${apart[@]}" "${words[@]}" \
        run="$ROOM/apart" > "$ROOM/log" 2>&1
    is $? 0 "three stages, one of which does not see the run folder" "$ROOM/log"
    cmp "$(tensors_of "$ROOM/long")" "$(tensors_of "$ROOM/apart")" > "$ROOM/log" 2>&1
    ok $? "the same checkpoint: its tensors went through rank 0" "$ROOM/log"
    is "$(ls "$ROOM/elsewhere")" "" "nothing is written where it should not be"
    # shellcheck disable=SC2016
    unshare -rm sh -c 'mount -t tmpfs -o size=200k none "$0" && "$@"; status=$?
        find "$0/checkpoints" -mindepth 1; exit $status' "$ROOM/full" \
        mpiexec -n 3 "${words[@]}" run="$ROOM/full" > "$ROOM/left" 2> "$ROOM/log"
    is $? 3 "a disk that is full before the checkpoint is written: exit 3" "$ROOM/log"
    like "$ROOM/log" 'tensors.safetensors: cannot write: No space left' "the file and the reason are named"
    is "$(cat "$ROOM/left")" "" "nothing is left of that checkpoint"
else
    skip "run folders of other nodes, full disks: no mount namespace may be made here"
fi

# --- a stage in the middle dies, or stands still, beside the next two parts
KILLS_ARGS=("${args[@]}" epochs=20 val=none checkpoint_steps=5 stages=3 comm_timeout=6 heartbeat_timeout=3)
KILLS_LAUNCHER=(mpiexec -n 3)
strike_one() { # SIGNAL: from another process, its results in files
    local run=$ROOM/$1 job i
    "${KILLS_LAUNCHER[@]}" kolo train "${KILLS_ARGS[@]}" run="$run" > "$run.log" 2>&1 &
    job=$!
    for ((i = 0; i < 400 && $(losses "$run" 2> /dev/null | wc -l) < 12; i++)); do sleep 0.05; done
    kills_strike "$1" 0 1 "$run" $job || echo "not struck" >> "$run.log"
    local began
    began=$(now)
    kills_end $job $((KILLS_SOON + KILLS_TIMEOUT)) && wait $job
    echo "$? $(($(now) - began))" > "$run.status"
    kill -KILL "$(kills_rank 1 "$run")" $job 2> /dev/null
    wait
}
"${KILLS_LAUNCHER[@]}" kolo train "${KILLS_ARGS[@]}" run="$ROOM/unhurt" > "$ROOM/log" 2>&1
is $? 0 "three stages that nothing befalls, 60 steps" "$ROOM/log"
KILLS_WANT="$(losses "$ROOM/unhurt") $(weights_sum "$ROOM/unhurt")"
pids=()
for signal in STOP KILL; do strike_one $signal & pids+=($!); done

# --- what cannot be
refused() { # RANKS PATTERN OPTIONS...
    timeout 60 mpiexec -n "$1" kolo train "${args[@]}" run="$ROOM/refused" "${@:3}" > "$ROOM/log" 2>&1
    is "$? $(grep -cE -- "$2" "$ROOM/log")" "78 1" "$1 ranks, ${*:3}: exit 78, and why" || diag < "$ROOM/log"
}
refused 2 'cut= is of pipelines, and stages=1 is none' cut=layer2.0
refused 3 'stages=2 does not divide 3 ranks; start a multiple of 2' stages=2
refused 2 'stages=5 does not divide 2 ranks; start a multiple of 5' stages=5
refused 2 'no module layer2\.9; did you mean layer2\.[0-2]' stages=2 cut=layer2.9
refused 2 'no module layr3\.1; did you mean layer3\.1' stages=2 cut=layr3.1
refused 2 'names 2 modules; 2 parts .* need 1' stages=2 cut=layer1.0,layer2.0
refused 3 'names 1 modules; 3 parts .* need 2' stages=3 cut=layer2.0
refused 3 'layer1\.0 is not behind the module in front of it; name them in' stages=3 cut=layer2.0,layer1.0
refused 2 'chunks=2: pipeline=1f1b has one part a stage; give pipeline=interleaved' stages=2 chunks=2
refused 2 'stages=2 and batch=auto: .*give batch= of about 4 x stages' stages=2 batch=auto \
    micro_batch=0 reduce=fast
refused 2 "stages=2 chunks=40: more parts than the network's [0-9]+ layers; use fewer" stages=2 chunks=40 \
    pipeline=interleaved
[ ! -e "$ROOM/refused" ]
ok $? "none of them made a run folder"

# --- what does not fit one rank
large=(vgg16 data=synthetic batch=8 micro_batch=2 size=32 classes=1000 bn=ghost reduce=canonical \
    deterministic=true threads=1 memory_limit=2.5)
kolo plan "${large[@]}" ranks=1 > "$ROOM/log" 2>&1
is $? 78 "kolo plan, a network larger than memory_limit= on one rank: exit 78"
kolo plan "${large[@]}" ranks=3 stages=3 > "$ROOM/log" 2>&1
is $? 0 "kolo plan, the same network on three stages: exit 0" "$ROOM/log"

# --- stages of fewer layers than a network has parameters, or activations
kolo plan model=mlp data=synthetic batch=16 threads=1 ranks=4 stages=4 cut=fc1,fc1.relu,fc2.relu \
    offload=activations > "$ROOM/log" 2>&1
is $? 0 "kolo plan, the first stage has no parameters: exit 0" "$ROOM/log"
like "$ROOM/log" 'stage 1: .* arena of activations 0 bytes of 0 \(1\.000\)' "the second one no activations"

# --- the stage that was struck
wait "${pids[@]}"
for signal in KILL STOP; do
    read -r status took < "$ROOM/$signal.status"
    [ "$status" != 0 ] && [ "$took" -le $((1000 * KILLS_SOON)) ]
    ok $? "SIG$signal to the stage in the middle: the job ends (status $status, after $took ms)" \
        "$ROOM/$signal.log"
    kills_named 1 "$ROOM/$signal.log"
    ok $? "SIG$signal: the rank is named" "$ROOM/$signal.log"
    [ -z "$(kills_rank 0 "$ROOM/$signal")$(kills_rank 1 "$ROOM/$signal")$(kills_rank 2 "$ROOM/$signal")" ]
    ok $? "SIG$signal: no process is left"
    kills_whole "$ROOM/$signal"
    ok $? "SIG$signal: the same command goes on to the same bytes" "$ROOM/$signal.log"
done
done_testing
