#!/usr/bin/env bash
# Stages of a pipeline under srun on two nodes, over them and within them: the bytes of one rank; a stage on
# the other node that is killed or stopped is reported within 10 s, and the same command resumes.
# shellcheck source=tests/lib.sh
. "$(dirname "$0")/../lib.sh"
cluster 2 8
need pgrep
KIND=pmi2
srun --mpi=list 2>&1 | grep -q pmix && KIND=pmix
shapes_data 96 50
args=(shapes model=resnet20 size=16 data="$ROOM/data/train" val="$ROOM/data/val" batch=32 micro_batch=8
    epochs=1 warmup=0 reduce=canonical bn=ghost conv=direct deterministic=true threads=1)

train() { # RUN NODES RANKS-A-NODE DISTRIBUTION OPTIONS...
    timeout 60 srun --mpi="$KIND" -K0 -N"$2" --ntasks-per-node="$3" --distribution="$4" kolo train \
        "${args[@]}" run="$ROOM/$1" "${@:5}" > "$ROOM/$1.log" 2>&1
}
bytes_of() { echo "$(losses "$ROOM/$1") $(weights_sum "$ROOM/$1")"; } # RUN
result() { # RUN: with the figures of the validation
    echo "$(bytes_of "$1") $(grep -E '"(loss|top1|top5)"' "$ROOM/$1/summary.json")"
}
runs=0
same() { # RANKS-A-NODE DISTRIBUTION OPTIONS...
    local run=run-$((runs += 1)) text="2 nodes of $1, $2: ${*:3}"
    train "$run" 2 "$@"
    is $? 0 "$text" "$ROOM/$run.log"
    is "$(result "$run")" "$want" "$text: losses, weights, validation of the run without stages"
}

train one 1 1 block
is $? 0 "one rank has the whole network" "$ROOM/one.log"
is "$(losses "$ROOM/one" | wc -l)" 3 "it makes three steps"
want=$(result one)
same 1 block stages=2
same 1 block stages=2 pipeline=interleaved chunks=2
same 2 block stages=2 stages_in_node=true
same 2 block stages=4 stages_in_node=false pipeline=zero_bubble
same 2 cyclic stages=2 stages_in_node=true
# what is decided of all gradients, over both nodes, changes nothing here
same 2 cyclic stages=2 stages_in_node=false clip_norm=1e9

# --- a stage that is killed or stopped, beside the next part
pid_of() { # RUN RANK
    local pid
    for pid in $(pgrep -x kolo); do
        grep -qzxF "run=$ROOM/$1" "/proc/$pid/cmdline" 2> /dev/null || continue
        grep -qzx "SLURM_PROCID=$2" "/proc/$pid/environ" 2> /dev/null && echo "$pid" && return
    done
}
long=(epochs=60 val=none checkpoint_steps=5 stages=2)
strike() { # SIGNAL RANKS-A-NODE VICTIM
    local run=$1-$2 pid i began
    train "$run" 2 "$2" block "${long[@]}" &
    for ((i = 0; i < 300 && $(losses "$ROOM/$run" 2> /dev/null | wc -l) < 12; i++)); do sleep 0.1; done
    pid=$(pid_of "$run" "$3")
    began=$(now)
    kill -"$1" "${pid:?no rank $3 of $run}" || return
    for ((i = 0; i < 400; i++)); do grep -q "error: kolo train" "$ROOM/$run.log" && break; sleep 0.05; done
    echo $(($(now) - began)) > "$ROOM/$run.ms"
    sleep 1.5
    kill -KILL "$pid" 2> /dev/null
    wait
}
pids=()
strike KILL 1 1 & pids+=($!)
strike STOP 2 2 & pids+=($!)
train whole 1 1 block "${long[@]}" stages=1 & pids+=($!)

# --- what a stage's replicas do together over both nodes: the bytes of two ranks, each on a node
over=0
for how in "bn=local reduce=adasum optimizer=adamw clip_norm=1" "bn=sync reduce=fast compression=bf16"; do
    read -ra words <<< "$how"
    train "over-$((over += 1))" 2 1 block "${words[@]}"
    is $? 0 "2 nodes of 1, $how" "$ROOM/over-$over.log"
    want=$(result "over-$over")
    same 2 block "${words[@]}" stages=2 stages_in_node=true
done

train refused 2 1 block stages=2 stages_in_node=true
is $? 78 "stages_in_node=true with one rank a node: exit 78"
like "$ROOM/refused.log" 'node 0 has 1 ranks, which is no multiple of stages=2; set --ntasks-per-node' \
    "and the cure"

# --- the stages that were struck
wait "${pids[@]}"
pids=()
for run in KILL-1 STOP-2; do
    rank=${run#*-}
    like "$ROOM/$run.log" "error: kolo train: .*rank $rank on host n2 \(pid [0-9]+\), .*step" \
        "$run: the rank, its host and its step are reported"
    [ "$(cat "$ROOM/$run.ms" 2> /dev/null || echo 99999)" -le 10000 ]
    ok $? "$run: within 10 s" "$ROOM/$run.log"
    is "$(losses "$ROOM/$run" | tail -n 1 | awk '{ print ($1 < 180) }')" 1 "$run: the job ended early"
    train "$run" 2 "$rank" block "${long[@]}" & pids+=($!)
done
for run in KILL-1 STOP-2; do
    wait "${pids[0]}"
    is $? 0 "$run: the same command resumes" "$ROOM/$run.log"
    pids=("${pids[@]:1}")
    is "$(bytes_of "$run")" "$(bytes_of whole)" "$run: to the bytes of one rank that nothing befell"
done
none "nothing is left in /dev/shm" "$(shm_left)"
done_testing
