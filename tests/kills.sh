# shellcheck shell=bash
# Ranks of a training that are killed or stopped at random moments, from the start of the launch to the last
# checkpoint: every job ends by itself and soon, says which rank it was, and goes on to the bytes of a run
# that nothing befell.
# After tests/lib.sh: kills_prepare; then kills COUNT SEED LAUNCHER..., as `kills 200 7 mpiexec -n 2`.
KILLS_TIMEOUT=6 KILLS_PATIENCE=3 KILLS_SOON=15 # seconds; after the deadline of the failure

kills_prepare() {
    export OMP_NUM_THREADS=1 KOLO_CACHE=$ROOM/cache
    shapes_data 128 32
    KILLS_ARGS=(shapes model=lenet5 "data=$ROOM/data/train" "val=$ROOM/data/val" batch=32 epochs=6 warmup=0
        conv=direct deterministic=true threads=1 checkpoint_steps=4
        "comm_timeout=$KILLS_TIMEOUT" "heartbeat_timeout=$KILLS_PATIENCE")
}
kills_rank() { # RANK RUN: its process, once there is one
    local pid
    for pid in $(pgrep -x kolo); do
        grep -qzxF "run=$2" "/proc/$pid/cmdline" 2> /dev/null || continue
        grep -qzxE "(PMI|PMIX)_RANK=$1" "/proc/$pid/environ" 2> /dev/null && echo "$pid" && return
    done
    return 1
}
kills_strike() { # SIGNAL MILLISECONDS RANK RUN JOB: since the rank is there; fails where the job was faster
    local pid
    until pid=$(kills_rank "$3" "$4"); do
        kill -0 "$5" 2> /dev/null || return 1
    done
    sleep "$(printf '%d.%03d' $(($2 / 1000)) $(($2 % 1000)))"
    kill -"$1" "$pid" 2> /dev/null
}
kills_end() { # JOB SECONDS: its status, or that it did not end
    local until=$(($(now) + 1000 * $2))
    while kill -0 "$1" 2> /dev/null; do
        [ "$(now)" -lt $until ] || return 1
        sleep 0.05
    done
}
kills_named() { # RANK LOG: by the others, or by whoever started it
    grep -qE "rank $1 on host|task $1: |tasks [0-9,-]*: (Killed|Terminated)|PID [0-9]+ RUNNING" "$2" ||
        grep -q "process rank $1 with PID" "$2" # Open MPI's mpiexec
}
kills_whole() { # RUN: once more, to its end, as the first one
    "${KILLS_LAUNCHER[@]}" kolo train "${KILLS_ARGS[@]}" "run=$1" >> "$1.log" 2>&1 || return 1
    [ "$(losses "$1") $(weights_sum "$1")" = "$KILLS_WANT" ]
}
kills_one() { # NUMBER SIGNAL MILLISECONDS RANK: one line of a TAP
    local run=$ROOM/run-$1 signal=$2 rank=$4 status limit=$KILLS_SOON text
    [ "$signal" = STOP ] && limit=$((KILLS_SOON + KILLS_TIMEOUT))
    text="$1: SIG$signal to rank $rank after $3 ms"
    "${KILLS_LAUNCHER[@]}" kolo train "${KILLS_ARGS[@]}" "run=$run" > "$run.log" 2>&1 &
    local job=$! struck=0 began
    kills_strike "$signal" "$3" "$rank" "$run" $job && struck=1
    began=$(now)
    kills_end $job $limit
    local ended=$?
    if [ $ended != 0 ] && [ "$signal" = STOP ] && ! kills_rank $((1 - rank)) "$run" > /dev/null; then
        is "$(losses "$run") $(weights_sum "$run")" "$KILLS_WANT" \
            "$text: the other is through and has left, so only the launcher waits"
        kill -KILL "$(kills_rank "$rank" "$run")" 2> /dev/null
        wait $job
        rm -rf "$run" "$run.log"
        return
    fi
    ok $ended "$text: the job ends within $limit s" "$run.log" || {
        kill -KILL "$(kills_rank "$rank" "$run")" $job 2> /dev/null
        wait $job
        return
    }
    wait $job
    status=$?
    if [ $status = 0 ] || [ $struck = 0 ]; then
        is $status 0 "$text: too late, it was through"
    else
        kills_named "$rank" "$run.log"
        ok $? "$text: it is named (status $status, after $(($(now) - began)) ms)" "$run.log"
        kills_whole "$run"
        ok $? "$text: it goes on to the same bytes" "$run.log"
    fi
    [ -z "$(kills_rank "$rank" "$run")" ]
    ok $? "$text: no process is left"
    rm -rf "$run" "$run.log"
}
kills() { # COUNT SEED LAUNCHER...
    local count=$1 i began took
    KILLS_LAUNCHER=("${@:3}")
    echo "# seed $2"
    RANDOM=$2
    began=$(now)
    "${KILLS_LAUNCHER[@]}" kolo train "${KILLS_ARGS[@]}" run="$ROOM/first" > "$ROOM/first.log" 2>&1
    is $? 0 "a run that nothing befalls" "$ROOM/first.log"
    took=$(($(now) - began))
    echo "# it takes $took ms"
    KILLS_WANT="$(losses "$ROOM/first") $(weights_sum "$ROOM/first")"
    for ((i = 1; i <= count; i++)); do
        local signal=KILL
        ((RANDOM % 2)) && signal=STOP
        kills_one $i $signal $(((RANDOM * 32768 + RANDOM) % took)) $((RANDOM % 2))
    done
    rm -rf "$ROOM/first"
}
