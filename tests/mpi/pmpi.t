#!/usr/bin/env bash
# libkolo_pmpi.so under MPI programs: right results, and that it is the library which made them, call by
# call; programs that begin and end as few do; Fortran.
# shellcheck source=tests/lib.sh
. "${BASH_SOURCE[0]%/*}/../lib.sh"
need mpiexec
hydra || skip_all "libkolo_pmpi.so is for MPICH and its kin"
SHIM=$BUILD/lib/libkolo_pmpi.so PROGRAMS=$BUILD/tests/mpi
[ -e "$SHIM" ] || skip_all "no $SHIM: built without MPI"
for program in calls communicators life; do
    [ -x "$PROGRAMS/pmpi_$program" ] || skip_all "$PROGRAMS/pmpi_$program is not built"
done

run() { # RANKS "PROGRAM [WORD]" [VARIABLE=VALUE...]
    local what
    read -ra what <<< "$2"
    timeout 100 mpiexec -n "$1" env LD_PRELOAD="$SHIM" KOLO_PMPI_REPORT=1 KOLO_PMPI=all "${@:3}" \
        "$PROGRAMS/pmpi_${what[0]}" "${what[@]:1}" > "$ROOM/out" 2> "$ROOM/log"
}
# the five lines of the report as "Allreduce 64 6 0": served, left to MPI for what they ask, and
# for their communicator
counts() { sed -nE \
    's/^libkolo_pmpi: MPI_([A-Za-z_]+): ([0-9]+) served, left to MPI: ([0-9]+) .*, ([0-9]+) .*/\1 \2 \3 \4/p' \
    "$ROOM/log" | paste -sd ,; }

for ranks in 1 2 4; do
    run $ranks calls
    is $? 0 "$ranks ranks: the program ends well"
    is "$(grep -c '^ok' "$ROOM/out") $(grep -c '^not ok' "$ROOM/out")" "17 0" \
        "$ranks ranks: 17 results are right"
    is "$(counts)" \
        "Allreduce 65 6 0,Iallreduce 29 0 0,Reduce_scatter_block 2 0 0,Allgather 2 0 0,Bcast $((ranks + 1)) 1 0" \
        "served by the library, but for what it does not know"
done
# of 66 communicators at once 62 have a group, as there are numbers for 63 and halves have one; ranks back to
# front and two sides are MPI's
run 3 communicators
is "$? $(grep -c '^ok' "$ROOM/out")" "0 10" "many communicators of 3 ranks: every result is right" ||
    diag < "$ROOM/out"
is "$(counts)" "Allreduce 152 0 12,Iallreduce 5 0 0,Reduce_scatter_block 4 0 3,Allgather 6 0 3,Bcast 15 0 7" \
    "served in groups of their own"
# who makes what is a clock's to say: the same on all ranks, or they would wait for each other
for ranks in 2 3; do
    run $ranks calls KOLO_PMPI=1
    is "$? $(grep -c '^ok' "$ROOM/out")" "0 17" \
        "$ranks ranks: what MPI does sooner is left to it: every result is right"
    is "$(counts | tr , '\n' | awk '{ printf "%s%s %d", n++ ? "," : "", $1, $2 + $3 + $4 }')" \
        "Allreduce 71,Iallreduce 29,Reduce_scatter_block 2,Allgather 2,Bcast $((ranks + 2))" \
        "each call is counted once, and what was timed before is not"
done
run 2 calls KOLO_PMPI=0
is "$? $(wc -c < "$ROOM/log")" "0 0" "KOLO_PMPI=0: MPI alone"

how() { # SHIM or nothing: the exit status of every life
    local life
    for life in single session twice query; do
        timeout 100 mpiexec -n 2 env LD_PRELOAD="$1" "$PROGRAMS/pmpi_life" $life > "$ROOM/out" 2> "$ROOM/log"
        echo "$life $?"
    done
}
is "$(how "$SHIM")" "$(how '')" \
    "threads not asked for, sessions, MPI_Finalize twice or never begun: as with MPI alone"

run 3 "life full"
is $? 0 "a communicator that finds /dev/shm full: every result is right"
is "$(counts) $(grep -c \
    'host .* cannot hold [0-9]* bytes for rank 0: .*; enlarge it .*; MPI does the work itself' "$ROOM/log")" \
    "Allreduce 25 0 5 1" \
    "MPI reduces on that one, and rank 0 says why; the next one is served again"

# the names of a job's segments begin with its number
timeout 100 mpiexec -n 3 env SLURM_JOB_ID=$$ LD_PRELOAD="$SHIM" "$PROGRAMS/pmpi_life" sums "$ROOM/pid" > \
    "$ROOM/out" 2> "$ROOM/log" &
for ((i = 0; i < 600; i++)); do
    [ ! -s "$ROOM/pid" ] || break
    sleep 0.1
done
kill -KILL "$(cat "$ROOM/pid")"
! wait $!
ok $? "a rank is killed: the program ends"
none "and nothing of it is left in /dev/shm" "$(find /dev/shm -maxdepth 1 -name "kolo-kolo.$$.*")"

for bindings in mpi mpi_f08; do
    request=integer
    [ $bindings = mpi ] || request="type(MPI_Request)"
    cat > "$ROOM/sums.f90" << EOF
program sums
  use $bindings
  implicit none
  integer :: failed, me, ranks, most
  $request :: under_way
  double precision :: one(3), all(3), later(3)
  call MPI_Init(failed)
  call MPI_Comm_rank(MPI_COMM_WORLD, me, failed)
  call MPI_Comm_size(MPI_COMM_WORLD, ranks, failed)
  one = me + 1
  call MPI_Allreduce(one, all, 3, MPI_DOUBLE_PRECISION, MPI_SUM, MPI_COMM_WORLD, failed)
  call MPI_Iallreduce(one, later, 3, MPI_DOUBLE_PRECISION, MPI_MAX, MPI_COMM_WORLD, under_way, failed)
  call MPI_Wait(under_way, MPI_STATUS_IGNORE, failed)
  most = 40 + me
  call MPI_Bcast(most, 1, MPI_INTEGER, 1, MPI_COMM_WORLD, failed)
  if (me == 0) print *, nint(all(3)), nint(later(3)), most
  call MPI_Finalize(failed)
end program
EOF
    if ! (cd "$ROOM" && mpif90 -o sums sums.f90) > "$ROOM/log" 2>&1; then
        skip "no Fortran compiler for $bindings"
        continue
    fi
    PROGRAMS=$ROOM && mv "$ROOM/sums" "$ROOM/pmpi_sums"
    run 3 sums
    is "$(tr -s " \n" " " < "$ROOM/out")$(counts)" " 6 3 41 Allreduce 1 0 0,Iallreduce 1 0 0,Bcast 1 0 0" \
        "Fortran, use $bindings: right, and served"
done
done_testing
