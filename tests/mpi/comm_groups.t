#!/usr/bin/env bash
# Groups of ranks and transfers between them, on simulated nodes: random programs with 2, 3, 4 and 7 ranks,
# and a rank that starts nothing. SEED=N runs other programs.
# shellcheck source=tests/lib.sh
. "$(dirname "$0")/../lib.sh"
program=$BUILD/tests/mpi/comm_groups LIMIT=60
[ -x "$program" ] || skip_all "$program is not built (make tests, with MPI=1)"
need mpiexec
SEED=${SEED:-$(($(date +%s) % 100000))}
echo "# seed $SEED"
for ranks in 2 3 4 7; do ran "$ranks ranks" mpiexec -n $ranks "$program" "$SEED"; done
# side by side: the late are waited for
pids=()
for nodes in 'one node' 1+1; do
    for what in late late-transfer late-stop-transfer; do
        timeout $LIMIT mpiexec -n 2 "$program" $what "$nodes" > "$ROOM/$what, $nodes" 2>&1 & pids+=($!)
    done
done
wait "${pids[@]}"
for nodes in 'one node' 1+1; do
    for what in late late-transfer late-stop-transfer; do
        ran "2 ranks $what, $nodes" cat "$ROOM/$what, $nodes"
    done
done
done_testing
