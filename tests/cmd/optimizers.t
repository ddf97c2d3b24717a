#!/usr/bin/env bash
# Optimizers through `kolo train`: they learn, a run that was stopped and taken up again has the bytes of one
# that was not. ALL=1: all of them and not only three; the bytes of one rank on two, where sums do not depend
# on ranks; on the stand-in for a GPU the CPU's losses.
# shellcheck source=tests/lib.sh
. "${BASH_SOURCE[0]%/*}/../lib.sh"
shapes_data 128 32
export OMP_NUM_THREADS=1 KOLO_CACHE=$ROOM/cache
common=(share/recipes/shapes.yaml model=mlp "data=$ROOM/data/train" val=none batch=32 steps=12 \
    checkpoint_steps=4 decay_norms=false weight_decay=0.01 threads=1
    deterministic=true progress=0)
train() { # RUN KEY=VALUE...
    kolo train "${common[@]}" run="$ROOM/$1" "${@:2}" > "$ROOM/$1.log" 2>&1
}
losses() { grep -ho '"loss":[^,]*' "$ROOM/$1"/events* | cut -d: -f2; }
newest() { find "$ROOM/$1" -name tensors.safetensors | sort -V | tail -n 1; }
same() { cmp -s "$(newest "$1")" "$(newest "$2")"; }

optimizers=(
    "adam lr=0.001 weight_decay=0.001"
    "adamw lr=0.001 schedule=onecycle warmup=0"
    "rmsprop lr=0.0001 momentum=0.5"
    "rmsprop_centered lr=0.0001 momentum=0 epsilon=0.001"
    "rmsprop_tf lr=0.0005"
    "lars lr=4 trust=0.01 swa=4"
    "lars_tf lr=1 trust=0.01 nesterov=false clip_norm=5"
    "lamb lr=0.02 clip_norm=1 lookahead=3"
    "novograd lr=0.01 weight_decay=0.001 grad_averaging=true"
    "sgd lr=0.02 lookahead=5 lookahead_start=first_sync ema=0.9"
)
few="adamw lars lamb"
for line in "${optimizers[@]}"; do
    read -ra words <<< "$line"
    [ -n "${ALL:-}" ] || [[ " $few " == *" ${words[0]} "* ]] || continue
    name=${words[0]} options=("optimizer=${words[0]}" "${words[@]:1}")
    train "$name" "${options[@]}"
    is $? 0 "$name trains"
    losses "$name" | awk 'NR == 1 { first = $1 } { last = $1 } END { exit !(NR > 0 && last < first) }'
    ok $? "$name: the last loss is below the first"
    train "$name-stopped" "${options[@]}" stop_step=7
    train "$name-stopped" "${options[@]}"
    same "$name" "$name-stopped"
    ok $? "stopped after 7 steps and resumed: the same bytes"
done

train refused optimizer=adamm
is $? 78 "an unknown optimizer is a matter of the recipe"
like "$ROOM/refused.log" 'did you mean "adam' "an unknown optimizer: the nearest name is offered"
train refused ema=0.9 swa=2
is $? 78 "two averages are refused"
train refused schedule=onecycle warmup=1
is $? 78 "a warm-up before one cycle is refused"
[ -n "${ALL:-}" ] || done_testing

ranks() { mpiexec -n 2 kolo train "${common[@]}" run="$ROOM/$1" micro_batch=16 reduce=canonical "${@:2}" > \
    "$ROOM/$1.log" 2>&1; }
if ranks_start; then
    for name in lamb novograd; do
        train "$name-one" optimizer=$name lr=0.01 micro_batch=16 reduce=canonical bucket_mb=0.05
        ranks "$name-two" optimizer=$name lr=0.01 bucket_mb=0.05
        same "$name-one" "$name-two"
        ok $? "$name on two ranks, tensors cut by buckets: the bytes of one rank"
    done
else
    skip "no mpiexec"
fi
if [ -e "$BUILD/standin/libkolo_cuda.so" ]; then
    export KOLO_CUDA_LIBRARY=$BUILD/standin/libkolo_cuda.so
    five() { losses "$1" | awk '{ printf "%.5g\n", $1 }'; }
    for name in adamw lars; do
        train "$name-cpu" optimizer=$name lr=0.002 clip_norm=1 device=cpu
        train "$name-gpu" optimizer=$name lr=0.002 clip_norm=1 device=cuda
        is "$(five "$name-gpu")" "$(five "$name-cpu")" "$name on a GPU: the losses of the CPU, to five digits"
    done
else
    skip "no stand-in for a GPU"
fi
done_testing
