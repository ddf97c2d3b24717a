#!/usr/bin/env bash
# sync=backup on two nodes of Slurm, and what it gains where a rank is four times slower than the others. A
# minute.
# shellcheck source=tests/lib.sh
. "$(dirname "$0")/../lib.sh"
need kolo kolo-pack mpiexec
cd "$ROOM" || exit 1
shapes_data 768 32
export OMP_NUM_THREADS=1
T=(kolo train shapes data="$ROOM/data/train" val=none model=resnet20 size=32 batch=96 threads=1 lr=0.02
    deterministic=true epochs=3 bind=none)
seconds() { # RUN: of all its steps
    sed -n 's/.*"event":"step".*"seconds":\([0-9.e+-]*\).*/\1/p' "$1/events.jsonl" |
        awk '{ s += $1 } END { print s }'
}
slow=(env LD_PRELOAD="$BUILD/tests/preload/slow_rank.so" SLOW_TIMES=4)
beside_slow() { # RUN WORDS...
    timeout 300 mpiexec -n 1 "${T[@]}" run="$1" "${@:2}" : -n 1 "${slow[@]}" "${T[@]}" run="$1" "${@:2}" : \
        -n 1 "${T[@]}" run="$1" "${@:2}" > log 2>&1
}
for naps in "" SLOW_NAPS=3; do
    [ -z "$naps" ] || slow+=("$naps")
    beside_slow "sync$naps"
    ok $? "synchronous, a rank that is four times slower${naps:+, and sleeps}" log
    beside_slow "backup$naps" sync=backup backup=1
    ok $? "sync=backup backup=1" log
    is "$(grep '"event":"step"' "backup$naps/events.jsonl" | grep -cE '"dropped":\[[012]\]')" 24 \
        "one rank was dropped in each step"
    of=$(seconds "sync$naps") takes=$(seconds "backup$naps")
    awk "BEGIN { exit !($takes < $of) }"
    ok $? "$takes s instead of $of s"
    timeout 100 mpiexec -n 3 "${T[@]}" run="fast$naps" sync=backup backup=1 backup_replay="backup$naps" \
        > log 2>&1
    is "$? $(weights_sum "fast$naps")" "0 $(weights_sum "backup$naps")" \
        "replayed with no rank slow: the same bits"
done

cluster 2 2
nodes() { timeout 120 srun -N 2 -n 4 --mpi=pmix "${T[@]}" run="$ROOM/$1" "${@:2}" > log 2>&1; }
nodes plain
nodes none sync=backup
is "$? $(weights_sum none)" "0 $(weights_sum plain)" "two nodes, backup=0: the bits of a run without"
nodes first sync=backup backup=2
ok $? "two nodes, backup=2" log
nodes again sync=backup backup=2 backup_replay="$ROOM/first"
is "$? $(weights_sum again)" "0 $(weights_sum first)" "replayed: the same bits"
nodes parts sync=backup backup=2 stop_step=11
is $? 75 "stopped" log
nodes parts sync=backup backup=2
ok $? "  and taken up again" log
nodes whole sync=backup backup=2 backup_replay="$ROOM/parts"
is "$? $(weights_sum whole)" "0 $(weights_sum parts)" "  one run that goes by its record: the same bits"
done_testing
