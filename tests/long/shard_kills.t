#!/usr/bin/env bash
# SIGKILL to a rank in the middle of a checkpoint that ranks with parts write together: the checkpoints in
# place are whole, nothing of the torn one is taken, and another number of ranks goes on to the bytes of a run
# that nothing befell. COUNT kills; SEED repeats their moments.
# shellcheck source=tests/lib.sh
. "$(dirname "$0")/../lib.sh"
# shellcheck source=tests/kills.sh
. tests/kills.sh
need mpiexec kolo kolo-pack
for variable in $(compgen -e | grep -E '^(SLURM|PMI|PMIX)_'); do unset "$variable"; done
export OMP_NUM_THREADS=1 KOLO_CACHE=$ROOM/cache
COUNT=${COUNT:-9} SEED=${SEED:-$(($(date +%s) % 32768))}
echo "# seed $SEED"
RANDOM=$SEED
shapes_data 96 10
args=(shapes model=resnet18 size=32 data="$ROOM/data/train" val=none batch=24 micro_batch=2 epochs=0
    steps=$((2 * COUNT + 4)) warmup=0 optimizer=adamw ema=0.9 reduce=canonical bn=ghost conv=direct
    deterministic=true threads=1 checkpoint_steps=1 comm_timeout=6 heartbeat_timeout=3)
checkpoints=$ROOM/run/checkpoints
tensors_of() { find "$1/checkpoints" -regex '.*/step-[0-9]*/tensors.safetensors' | sort | tail -n 1; }
train() { # RANKS RUN OPTIONS...
    timeout 300 mpiexec -n "$1" kolo train "${args[@]}" run="$2" "${@:3}" > "$ROOM/log" 2>&1
}
newest() { find "$checkpoints" -maxdepth 1 -regex '.*/step-[0-9]*' 2> /dev/null | sort | tail -n 1; }
begun() { # a save since this start is under way
    [ -n "$(find "$checkpoints" -path '*.tmp*' -name tensors.safetensors -newer "$ROOM/start" 2> /dev/null)" ]
}

timeout 300 kolo train "${args[@]}" run="$ROOM/one" > "$ROOM/log" 2>&1
is $? 0 "one rank that nothing befalls" "$ROOM/log"
torn=0
for ((i = 0; i < COUNT; i++)); do
    ranks=$((i % 3 == 1 ? 6 : 3)) shard=parameters # of 12 micro-batches
    [ $((i % 2)) = 0 ] && shard=gradients
    victim=$((RANDOM % ranks)) delay=$((RANDOM % 120)) before=$(newest)
    touch "$ROOM/start"
    train $ranks "$ROOM/run" shard=$shard &
    job=$!
    until pid=$(kills_rank $victim "$ROOM/run") || ! kill -0 $job 2> /dev/null; do sleep 0.02; done
    # every other time in the second save of a start
    until [ $((i % 2)) = 0 ] || [ "$(newest)" != "$before" ] || ! kill -0 $job 2> /dev/null; do
        sleep 0.01
    done
    touch "$ROOM/start"
    until begun || ! kill -0 $job 2> /dev/null; do :; done
    sleep "0.$(printf '%03d' $delay)"
    kill -KILL "$pid" 2> /dev/null
    wait $job
    status=$?
    text="$ranks ranks, shard=$shard: rank $victim killed $delay ms into a save"
    ok $((status == 0 || status == 78)) "$text: the job fails (status $status)" "$ROOM/log"
    begun && torn=$((torn + 1))
    after=$(newest)
    [ -z "$after" ] || kolo export "$ROOM/run" checkpoint=$((10#${after##*-})) "$ROOM/whole.safetensors" \
        > "$ROOM/log" 2>&1
    ok $? "$text: the newest checkpoint is whole, ${after##*/}" "$ROOM/log"
done
[ "$torn" -gt $((COUNT / 3)) ]
ok $? "$torn of $COUNT kills left a torn save"
train 3 "$ROOM/run" shard=parameters
is $? 0 "3 ranks go on to the end" "$ROOM/log"
cmp "$(tensors_of "$ROOM/one")" "$(tensors_of "$ROOM/run")" > "$ROOM/log" 2>&1
ok $? "weights, statistics, optimizer's state byte for byte" "$ROOM/log"
done_testing
