#!/usr/bin/env bash
# Messages between the nodes of a real Slurm, over MPI and over TCP; and a rank that dies or stops: its survivors on all nodes say who it was.
# shellcheck source=tests/lib.sh
. "$(dirname "$0")/../lib.sh"
DRILL=$BUILD/tests/mpi/comm_router_drill
[ -x "$DRILL" ] || skip_all "$DRILL is not built (make tests, with MPI=1)"
cluster 3 4
KIND=pmi2
srun --mpi=list 2>&1 | grep -q pmix && KIND=pmix
before=$(find /dev/shm -maxdepth 1 -name 'kolo-kolo.*' | wc -l)
go() { # NAME NODES RANKS WORDS...
    local name=$1 nodes=$2 ranks=$3
    shift 3
    timeout 60 srun --mpi="$KIND" -K0 -N"$nodes" -n"$ranks" "$DRILL" "$@" > "$ROOM/$name.out" 2> "$ROOM/$name.err"
}
for transport in mpi tcp; do
    go well 3 7 "$transport" well
    is "$(grep -c 'ok$' "$ROOM/well.out")" 7 "7 ranks on 3 nodes pass messages over $transport"
    go killed 3 4 "$transport" killed
    is "$(grep -cE "^rank [0-9]+ on n[0-9] after [0-9.]+ s: rank 1 on host n[0-9] \(pid [0-9]+\), which began step number 20 .*died" "$ROOM/killed.out")" 3 \
        "$transport, 4 ranks on 3 nodes, one killed: every survivor names it"
    awk '{ if ($6 + 0 > 10) late = 1 } END { exit late || NR == 0 }' "$ROOM/killed.out"
    ok $? "within 10 s"
done
is "$(find /dev/shm -maxdepth 1 -name 'kolo-kolo.*' | wc -l)" "$before" "nothing is left in /dev/shm"
done_testing
