#!/usr/bin/env bash
# sync=async with a rank that is four times slower than the other: it sets no pace; and on two nodes of Slurm,
# where a rank is killed. A minute.
# shellcheck source=tests/lib.sh
. "$(dirname "$0")/../lib.sh"
# shellcheck source=tests/kills.sh
. "$TOP/tests/kills.sh"
need kolo kolo-pack mpiexec
cd "$ROOM" || exit 1
shapes_data 768 32
export OMP_NUM_THREADS=1
T=(kolo train shapes data="$ROOM/data/train" val=none model=resnet20 size=32 batch=64 threads=1 lr=0.02
    deterministic=true epochs=2 bind=none)
seconds() { # RUN: of all its steps
    sed -n 's/.*"event":"step".*"seconds":\([0-9.e+-]*\).*/\1/p' "$1/events.jsonl" |
        awk '{ s += $1 } END { print s }'
}
staleness() { # RUN: how many gradients are reported
    sed -n 's/.*"event":"step".*"staleness":\[\([^]]*\)\].*/\1/p' "$1/events.jsonl" | tr , '\n' | wc -l
}
slow=(env LD_PRELOAD="$BUILD/tests/preload/slow_rank.so" SLOW_TIMES=4)
beside_slow() { # RUN WORDS...
    timeout 300 mpiexec -n 1 "${T[@]}" run="$1" "${@:2}" : -n 1 "${slow[@]}" "${T[@]}" run="$1" "${@:2}" \
        > log 2>&1
}
of=1e9 takes=1e9
for i in 1 2; do
    beside_slow sync$i
    ok $? "synchronous, a rank that is four times slower" log
    of=$(echo "$of $(seconds sync$i)" | awk '{ print $1 < $2 ? $1 : $2 }')
    beside_slow async$i sync=async
    ok $? "sync=async" log
    is "$(staleness async$i)" 48 "every gradient is reported once"
    takes=$(echo "$takes $(seconds async$i)" | awk '{ print $1 < $2 ? $1 : $2 }')
done
awk "BEGIN { exit !($takes < $of) }"
ok $? "$takes s instead of $of s"

cluster 2 2
T+=(model=lenet5 size=28)
nodes() { timeout 120 srun -N 2 -n 4 --mpi=pmix "${T[@]}" run="$ROOM/$1" "${@:2}" > log 2>&1; }
nodes first sync=async
is "$? $(staleness first)" "0 96" "two nodes: every gradient is reported once" log
nodes parts sync=async staleness=2 optimizer=lamb lr=0.001 stop_step=7
is $? 75 "staleness=2, stopped" log
nodes parts sync=async staleness=2 optimizer=lamb lr=0.001
is "$? $(staleness parts)" "0 96" "  and taken up again" log
is "$(grep -o '"staleness": {.*"most": [0-9]*' parts/summary.json | grep -oE '[0-9]+$')" 2 \
    "  no gradient lacks more than 2 updates"
nodes apart sync=async servers=2 batch=48 momentum=0.9 stop_step=7
is $? 75 "two ranks of four serve only, stopped" log
nodes apart sync=async servers=1 batch=48 momentum=0.9
is "$? $(losses apart | wc -l)" "0 32" "  and taken up again with one of four" log
for rank in 0 3; do
    # rank 3 only serves
    timeout 120 srun -N 2 -n 4 --mpi=pmix --kill-on-bad-exit=0 "${T[@]}" run="$ROOM/killed$rank" sync=async \
        servers=$((rank / 3)) batch=48 epochs=50 > log 2>&1 &
    job=$!
    until grep -q '"event":"step"' "killed$rank/events.jsonl" 2> /dev/null || ! kill -0 $job; do
        sleep 0.2
    done
    kill -KILL "$(kills_rank $rank "$ROOM/killed$rank")"
    began=$(now)
    kills_end $job 20
    took=$(($(now) - began))
    wait $job
    like log "rank $rank on host" "rank $rank is killed, $((rank / 3)) only serve: named"
    [ $took -lt 12000 ]
    ok $? "  within 12 s with the end of the job ($took ms)"
done
done_testing
