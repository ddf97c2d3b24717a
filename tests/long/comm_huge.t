#!/usr/bin/env bash
# Collectives of more than 2^31 elements, where there is memory for them: 2 GiB a rank and as much again for
# what comes and goes, on one node and between two; and between the nodes of a real Slurm a message of as many
# bytes as MPI counts, to which schedules never come, and over TCP one of more.
# shellcheck source=tests/lib.sh
. "$(dirname "$0")/../lib.sh"
program=$BUILD/tests/mpi/comm_huge
[ -x "$program" ] || skip_all "$program is not built (make tests, with MPI=1)"
need mpiexec
free=$(awk '/^MemAvailable:/ { print int($2 / 1048576) }' /proc/meminfo)
[ "$free" -ge 10 ] || skip_all "$free GiB of memory are free, it takes 10"
LIMIT=900 ran "2 ranks" mpiexec -n 2 "$program"
LIMIT=900 ran "2 ranks on 2 nodes" mpiexec -n 2 "$program" 2147483653 apart
if command -v slurmctld slurmd munged srun > /dev/null; then
    cluster 2 2
    KIND=pmi2
    srun --mpi=list 2>&1 | grep -q pmix && KIND=pmix
    for how in "mpi well 2047" "tcp well 2049"; do
        # shellcheck disable=SC2086 # words
        timeout 300 srun --mpi="$KIND" -N2 -n2 "$BUILD/tests/mpi/comm_router_drill" $how > "$ROOM/drill" 2>&1
        is "$(grep -c 'ok$' "$ROOM/drill")" 2 "MiB from one node to the other: $how"
    done
else
    skip "no Slurm for a message between nodes"
fi
done_testing
