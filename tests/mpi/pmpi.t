#!/usr/bin/env bash
# libkolo_pmpi.so under an MPI program: right results on 2, 3 and 4 ranks, and that it is the library which made them.
# shellcheck source=tests/lib.sh
. "${BASH_SOURCE[0]%/*}/../lib.sh"
need mpiexec
SHIM=$BUILD/lib/libkolo_pmpi.so CALLS=$BUILD/tests/mpi/pmpi_calls
[ -e "$SHIM" ] || skip_all "no $SHIM: built without MPI"
[ -x "$CALLS" ] || skip_all "$CALLS is not built"

run() { # RANKS [VARIABLE=VALUE...]
    timeout 100 mpiexec -n "$1" env "${@:2}" LD_PRELOAD="$SHIM" "$CALLS" > "$ROOM/out" 2> "$ROOM/log"
}
for ranks in 1 2 3 4; do
    run $ranks KOLO_PMPI_REPORT=1
    is $? 0 "$ranks ranks: the program ends well"
    is "$(grep -c '^not ok' "$ROOM/out")" 0 "and every result is right"
    like "$ROOM/log" "libkolo_pmpi: [0-9]{2,} collectives of MPI_COMM_WORLD served, [1-9][0-9]* left to MPI" "served by the library, but for what it does not know"
done
is "$(grep -c '^ok' "$ROOM/out")" 14 "(all of them were made)"
run 2 KOLO_PMPI=0 KOLO_PMPI_REPORT=1
is "$? $(wc -c < "$ROOM/log")" "0 0" "KOLO_PMPI=0: MPI alone"
done_testing
