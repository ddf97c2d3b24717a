#!/usr/bin/env bash
# The checklist of the library half at 2, 3 and 5 ranks, a start of mpiexec each; one TAP stream. RANKS:
# others; ROUNDS: of the random requests.
# shellcheck source=tests/lib.sh
. "$(dirname "$0")/../lib.sh"
program=$BUILD/tests/mpi/comm_checklist
[ -x "$program" ] || skip_all "$program is not built (make tests, with MPI=1)"
need mpiexec
export UCX_LOG_LEVEL=error # of the messages of a world that broke
for ranks in ${RANKS:-2 3 5}; do ran "$ranks ranks" mpiexec -n "$ranks" "$program" ${ROUNDS:+"$ROUNDS"};
    done
done_testing
