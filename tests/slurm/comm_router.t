#!/usr/bin/env bash
# Messages between the nodes of a real Slurm, over MPI and over TCP; and a rank that dies or stops: its
# survivors on all nodes say who it was.
# shellcheck source=tests/lib.sh
. "$(dirname "$0")/../lib.sh"
DRILL=$BUILD/tests/mpi/comm_router_drill
[ -x "$DRILL" ] || skip_all "$DRILL is not built (make tests, with MPI=1)"
cluster 3 16
KIND=pmi2
srun --mpi=list 2>&1 | grep -q pmix && KIND=pmix
go() { # NAME NODES RANKS WORDS...
    local name=$1 nodes=$2 ranks=$3
    shift 3
    timeout 60 srun --mpi="$KIND" -K0 -N"$nodes" -n"$ranks" "$DRILL" "$@" > "$ROOM/$name.out" 2> \
        "$ROOM/$name.err"
}
sentence() { # HOW: how the report names it
    [ "$1" = killed ] && echo 'died' || echo 'gave no sign of life for [0-9]+ s: it is stopped'
}
check_report() { # NAME HOW TEXT: all three survivors report rank 1, in time, and the position of all ranks
    local text="^rank [0-9]+ on n[0-9] after [0-9.]+ s: rank 1 on host n[0-9] \(pid [0-9]+\), which began"
    text+=" step number 20 .*$(sentence "$2").*; last begun: rank .*step number"
    is "$(grep -cE "$text" "$ROOM/$1.out")" 3 "$3, one $2: every survivor names it"
    awk '{ if ($6 + 0 > 10) late = 1 } /no word|nothing yet/ { late = 1 } END { exit late || NR == 0 }' \
        "$ROOM/$1.out"
    ok $? "within 10 s, and how far all came" || sed 's/^/# /' "$ROOM/$1.out" "$ROOM/$1.err"
}
pids=() # side by side: the stopped are waited for
for transport in mpi tcp; do
    go "stopped-$transport" 3 4 "$transport" stopped & pids+=($!)
    go "well-$transport" 3 7 "$transport" well 2 & pids+=($!)
    go "killed-$transport" 3 4 "$transport" killed & pids+=($!)
done
go stopped-node 1 4 auto stopped & pids+=($!)
wait "${pids[@]}"
for transport in mpi tcp; do
    is "$(grep -c 'ok$' "$ROOM/well-$transport.out")" 7 "7 ranks on 3 nodes pass messages over $transport"
    for how in killed stopped; do check_report "$how-$transport" $how "$transport, 4 ranks on 3 nodes"; done
done
check_report stopped-node stopped "4 ranks of a node"
none "nothing is left in /dev/shm" "$(shm_left)"
done_testing
