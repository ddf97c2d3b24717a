#!/usr/bin/env bash
# Several simulated nodes on this machine: comm_nodes with 2, 3, 4 and 7 ranks, and with a late
# peer; one TAP stream. MORE=more: with the maps of nodes that tests/long/comm_nodes.t adds.
# shellcheck source=tests/lib.sh
. "$(dirname "$0")/../lib.sh"
program=$BUILD/tests/mpi/comm_nodes LIMIT=60
[ -x "$program" ] || skip_all "$program is not built (make tests, with MPI=1)"
need mpiexec
for ranks in 2 3 4 7; do ran "$ranks ranks" mpiexec -n $ranks "$program" ${MORE:-}; done
ran "2 ranks late" mpiexec -n 2 "$program" late
done_testing
