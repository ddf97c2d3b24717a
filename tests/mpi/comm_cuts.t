#!/usr/bin/env bash
# Buckets whose parts the caller cuts, on simulated nodes: comm_cuts with 1, 2, 3, 4 and 7 ranks; one TAP
# stream. SEED=N makes other cuts.
# shellcheck source=tests/lib.sh
. "$(dirname "$0")/../lib.sh"
program=$BUILD/tests/mpi/comm_cuts LIMIT=60
[ -x "$program" ] || skip_all "$program is not built (make tests, with MPI=1)"
need mpiexec
SEED=${SEED:-$(($(date +%s) % 100000))}
echo "# seed $SEED"
for ranks in 1 2 3 4 7; do ran "$ranks ranks" mpiexec -n $ranks "$program" "$SEED"; done
done_testing
