#!/usr/bin/env bash
# Sums of `kolo train` between the nodes of a real Slurm: a rank that stops or dies is reported within 10
# s by all others, with default settings and without srun's --kill-on-bad-exit; one that only computes
# for long is waited for.
# shellcheck source=tests/lib.sh
. "$(dirname "$0")/../lib.sh"
DRILL=$BUILD/tests/mpi/comm_bucket_drill
[ -x "$DRILL" ] || skip_all "$DRILL is not built (make tests, with MPI=1)"
need pgrep
cluster 3 32
KIND=pmi2
srun --mpi=list 2>&1 | grep -q pmix && KIND=pmix
go() { # NAME NODES RANKS-A-NODE PROGRAM WORDS...
    local name=$1 nodes=$2 each=$3
    shift 3
    timeout 150 srun --mpi="$KIND" -K0 -N"$nodes" --ntasks-per-node="$each" "$@" > "$ROOM/$name.out" 2> \
        "$ROOM/$name.err"
}
gone() { # HOW: how the report names it
    [ "$1" = KILL ] && echo 'died' || echo 'gave no sign of life for [0-9]+ s: it is stopped'
}

# --- a program of its own: what every survivor reports
check_report() { # NAME HOW VICTIM SURVIVORS TEXT
    local text="^rank [0-9]+ on n[0-9] after [0-9.]+ s: rank $3 on host n[0-9] \(pid [0-9]+\), which began"
    text+=" what follows step number 19 .*$(gone "$2").*; last begun: .*bucket 0, action 10 of step number 20"
    is "$(grep -cE "$text" "$ROOM/$1.out")" "$4" \
        "$5: every survivor names the rank, its host, its step, and how far all came"
    # where cores are shared, what another node answers may come when the report is out
    awk '/^rank/ { reports++; if ($6 + 0 > 10) late = 1 } /no word|nothing yet/ { silent++ }
        END { exit late || silent == reports || NR == 0 }' \
        "$ROOM/$1.out"
    ok $? "$5: within 10 s, with how far all came" || sed 's/^/# /' "$ROOM/$1.out" "$ROOM/$1.err"
}

# --- kolo train: what the job reports
pid_of() { # NAME RANK
    local pid
    for pid in $(pgrep -f "kolo train .*run=$ROOM/$1( |\$)"); do
        tr '\0' '\n' < "/proc/$pid/environ" 2> /dev/null | grep -qx "SLURM_PROCID=$2" && echo "$pid" && return
    done
}
steps_of() { losses "$ROOM/$1" 2> /dev/null | wc -l; }
# a dozen jobs start side by side, so on a loaded machine the first steps take long
begun() { # NAME: it has made 3 steps
    local i
    for ((i = 0; i < 1200 && $(steps_of "$1") < 3; i++)); do sleep 0.1; done
    [ "$(steps_of "$1")" -ge 3 ] || { echo "no 3 steps in 120 s" >> "$ROOM/$1.err" && return 1; }
}
strike() { # NAME RANKS-A-NODE SIGNAL VICTIM WORDS...
    local name=$1 each=$2 signal=$3 victim=$4 pid begin i
    shift 4
    # shellcheck disable=SC2016 # of the rank
    go "$name" 2 "$each" bash -c 'CUDA_VISIBLE_DEVICES=$SLURM_PROCID exec kolo train "$@"' rank \
        resnet20_cifar_small data=synthetic val=none size=16 classes=10 batch=16 deterministic=true \
        steps=1000000 threads=1 run="$ROOM/$name" "$@" &
    begun "$name" || return
    pid=$(pid_of "$name" "$victim")
    begin=$(now)
    kill -"$signal" "${pid:?no rank $victim of $name}" || return
    for ((i = 0; i < 400; i++)); do grep -q "error: kolo train" "$ROOM/$name.err" && break; sleep 0.05; done
    echo $(($(now) - begin)) > "$ROOM/$name.ms"
    sleep 1.5
    kill -KILL "$pid" 2> /dev/null
    wait
}
# stopped for 3 s, several times: less than the heartbeat timeout
pause_run() { # NAME RANKS-A-NODE VICTIM TIMES
    local name=$1 pid i time steps job
    go "$name" 2 "$2" kolo train resnet20_cifar_small data=synthetic val=none size=16 classes=10 batch=16 \
        deterministic=true steps=1000000 threads=1 run="$ROOM/$name" device=cpu &
    job=$!
    begun "$name" || return
    pid=$(pid_of "$name" "$3")
    for ((time = 0; time < $4; time++)); do
        kill -STOP "${pid:?no rank $3 of $name}" || return
        sleep 3
        steps=$(steps_of "$name")
        kill -CONT "$pid"
        for ((i = 0; i < 300 && $(steps_of "$name") < steps + 3; i++)); do sleep 0.1; done
        # stopped again at once, it would say so once
        for ((i = 0; i < 100 && $(grep -c 'stood still' "$ROOM/$name.err") <= time; i++)); do sleep 0.1; done
    done
    kill -TERM "$(pid_of "$name" 0)"
    wait "$job"
    echo $? > "$ROOM/$name.status"
}
check_run() { # NAME HOW VICTIM TEXT
    local said
    said=$(grep "error: kolo train" "$ROOM/$1.err")
    [ -n "$said" ] && [ "$(grep -vcE \
        "rank $3 on host n[0-9] \(pid [0-9]+\), which began .* step (number )?[0-9]+,? .*$(gone "$2")" <<< \
        "$said")" = 0 ]
    ok $? "$4: kolo train names the rank, its host and its step" "$ROOM/$1.err"
    # a stopped one is late after 8 s by the report's own clock; that it is seen here may take a busy machine
    # longer
    [ "$(cat "$ROOM/$1.ms" 2> /dev/null || echo 99999)" -le "$([ "$2" = KILL ] && echo 10000 || echo 20000)" ]
    ok $? "$4: seen in time" "$ROOM/$1.err"
    [ "$2" = KILL ] || is "$(grep -oE '[0-9.]+ s ago' <<< "$said" | awk '$1 > 10')" "" "$4: within 10 s"
}
pids=() # side by side: the stopped are waited for
go stopped-2 2 1 "$DRILL" stopped 1 & pids+=($!)
go stopped-4 2 2 "$DRILL" stopped 3 & pids+=($!)
go stopped-0 2 2 "$DRILL" stopped 0 & pids+=($!)
go early-0 2 1 "$DRILL" early 0 & pids+=($!)
go early-1 2 1 "$DRILL" early 1 & pids+=($!)
go slow 2 2 "$DRILL" slow 1 & pids+=($!)
strike train-stopped-2 1 STOP 1 device=cpu & pids+=($!)
strike train-stopped-4 2 STOP 3 device=cpu & pids+=($!)
pause_run train-paused 2 3 2 & pids+=($!)
strike train-killed-2 1 KILL 1 device=cpu & pids+=($!)
export KOLO_CUDA_LIBRARY=$BUILD/standin/libkolo_cuda.so STANDIN_DEVICES=2
if [ -e "$KOLO_CUDA_LIBRARY" ]; then
    strike nccl-STOP 1 STOP 1 device=cuda reducer=nccl model=mlp & pids+=($!)
    strike nccl-KILL 1 KILL 1 device=cuda reducer=nccl model=mlp & pids+=($!)
    strike staged-STOP 1 STOP 1 device=cuda reducer=staged model=mlp & pids+=($!)
fi
sleep 4
go killed-3 3 1 "$DRILL" killed 0 & pids+=($!)
go killed-4 2 2 "$DRILL" killed 3 & pids+=($!)
wait "${pids[@]}"
check_report stopped-2 STOP 1 1 "2 nodes of 1, rank 1 stopped"
check_report stopped-4 STOP 3 3 "2 nodes of 2, rank 3 stopped"
check_report stopped-0 STOP 0 3 "2 nodes of 2, rank 0 stopped"
check_report killed-3 KILL 0 2 "3 nodes, rank 0 killed"
check_report killed-4 KILL 3 3 "2 nodes of 2, rank 3 killed"
for victim in 0 1; do
    missing=$([ "$KIND" = pmix ] && echo "rank $victim on host n[12] has not come there, or was stopped" ||
        echo 'one on another node is missing')
    like "$ROOM/early-$victim.out" \
        "^rank $((1 - victim)) on n[12]: launch: no progress in setting up communication for [0-9]+ s: .*$missing" \
        "2 nodes, rank $victim stopped before it sets up its part of the sums: the other does not wait for ever"
done
is "$(grep -c 'ok$' "$ROOM/slow.out")" 4 \
    "a rank that computes longer than the heartbeat timeout is waited for"
check_run train-stopped-2 STOP 1 "2 nodes of 1, rank 1 stopped"
check_run train-stopped-4 STOP 3 "2 nodes of 2, rank 3 stopped"
check_run train-killed-2 KILL 1 "2 nodes of 1, rank 1 killed"
is "$(cat "$ROOM/train-paused.status")" 75 \
    "rank 3 of 4 is stopped for 3 s, twice: the run goes on until it is asked to end" ||
    diag < "$ROOM/train-paused.err"
is "$(grep -cE '\[3 n[0-9]\] warning: this rank .*stood still for [2-9]\.[0-9] s' "$ROOM/train-paused.err")" \
    2 "and says so once each time, with the rank" || diag < "$ROOM/train-paused.err"
for run in nccl-STOP nccl-KILL staged-STOP; do
    [ -e "$KOLO_CUDA_LIBRARY" ] || { skip "no stand-in for a GPU" && continue; }
    check_run $run ${run#*-} 1 "2 nodes of 1 with GPUs, $run"
done
none "nothing is left in /dev/shm" "$(shm_left)"
done_testing
