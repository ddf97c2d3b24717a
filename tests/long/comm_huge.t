#!/usr/bin/env bash
# Collectives of more than 2^31 elements, where there is memory for them: 2 GiB a rank and as much again for what comes and goes.
# shellcheck source=tests/lib.sh
. "$(dirname "$0")/../lib.sh"
program=$BUILD/tests/mpi/comm_huge
[ -x "$program" ] || skip_all "$program is not built (make tests, with MPI=1)"
need mpiexec
free=$(awk '/^MemAvailable:/ { print int($2 / 1048576) }' /proc/meminfo)
[ "$free" -ge 10 ] || skip_all "$free GiB of memory are free, it takes 10"
LIMIT=900 ran "2 ranks" mpiexec -n 2 "$program"
done_testing
