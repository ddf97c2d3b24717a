#!/usr/bin/env bash
# libkolo_pmpi.so under the test suite of MPICH (its folder test/mpi, configured and made): what passes
# without the library must pass with it, and the calls that it knows must be its own. TAP; every line says
# what rank 0's calls came to, the last ones the sums.
#
#   MPICH_TESTS=FOLDER tests/peers/pmpi.sh [PART ...]   PART: a folder of FOLDER with a testlist, or one
#   program of it (coll/allred); default: all that were made
#   LIMIT=90   seconds for a program; KOLO_PMPI=1: without the sizes that it would leave to MPI
# shellcheck source=tests/lib.sh
. "${BASH_SOURCE[0]%/*}/../lib.sh"
need mpiexec
SHIM=$BUILD/lib/libkolo_pmpi.so
[ -e "$SHIM" ] || skip_all "no $SHIM: built without MPI"
[ -n "${MPICH_TESTS:-}" ] || skip_all \
    "no tests of an MPI here (MPICH_TESTS=, the folder test/mpi of MPICH, where they were made)"
[ -d "$MPICH_TESTS" ] || skip_all "no folder $MPICH_TESTS"
LIMIT=${LIMIT:-90}
FUNCTIONS="MPI_Allreduce MPI_Iallreduce MPI_Reduce_scatter_block MPI_Allgather MPI_Bcast"
parts=("$@")
[ $# -gt 0 ] || parts=(coll comm threads/coll threads/comm datatype topo attr init threads/init errhan \
    errors/coll basic f77/coll f90/coll f08/coll)

# A line of a testlist: "program ranks [arg=..|env=..|mpiexecarg=..|...]". Sets ranks, command; fails where
# the program is not for us.
read_line() {
    local words word
    read -ra words <<< "$1"
    ranks=${words[1]:-2} command=("./${words[0]}") launch=() surroundings=()
    for word in "${words[@]:2}"; do
        case $word in
        arg=*) command+=("${word#*=}") ;;
        env=*) surroundings+=("${word#*=}") ;;
        mpiexecarg=*) launch+=("${word#*=}") ;;
        xfail=* | resultTest=*) return 1 ;; # known to fail, or not judged by what it prints
        esac
    done
    [ -x "$folder/${words[0]}" ]
}
# one program: FILE [VARIABLE=VALUE...]. SLURM_JOB_ID: part of the names of a job's shared memory
try() {
    (cd "$folder" && timeout -k 5 "$LIMIT" mpiexec "${launch[@]}" -n "$ranks" env "${surroundings[@]}" \
        "${@:2}" "${command[@]}") > "$1" 2> "$1.log" < /dev/null &&
        grep -qiE '^ *(No Errors|Test Passed)' "$1"
}
counts() { # FILE: "Allreduce 12/15 ..." of the report
    sed -nE \
        's/^libkolo_pmpi: MPI_([A-Za-z_]+): ([0-9]+) served, left to MPI: ([0-9]+) .*, ([0-9]+) .*/\1 \2 \3 \4/p' \
        "$1" |
        awk '{printf "%s%s %d of %d", n++ ? ", " : "", $1, $2, $2 + $3 + $4}'
}
: > "$ROOM/all"
for part in "${parts[@]}"; do
    only=
    folder=$MPICH_TESTS/$part
    [ -d "$folder" ] || { only=${part##*/} && folder=$MPICH_TESTS/${part%/*}; }
    [ -e "$folder/testlist" ] || { skip "no testlist in $folder" && continue; }
    while IFS= read -r line; do
        line=${line#"${line%%[! ]*}"}
        case $line in "" | "#"*) continue ;; esac
        read -r program _ <<< "$line"
        [ -z "$only" ] || [ "$program" = "$only" ] || continue
        read_line "$line" || continue
        text="${folder#"$MPICH_TESTS"/}/$line"
        try "$ROOM/plain" || { skip "$text: fails without the library too" && continue; }
        try "$ROOM/out" SLURM_JOB_ID=$$ KOLO_PMPI="${KOLO_PMPI:-all}" KOLO_PMPI_REPORT=1 LD_PRELOAD="$SHIM"
        ok $? "$text: $(counts "$ROOM/out.log")" "$ROOM/out.log"
        cat "$ROOM/out.log" >> "$ROOM/all"
    done < "$folder/testlist"
done
for function in $FUNCTIONS; do
    awk -v f="$function:" '$1 == "libkolo_pmpi:" && $2 == f {served += $3; types += $8; others += $16}
        END {
            printf "# %-26s %8d served, left to MPI: ", f, served
            printf "%d of a type, operation or size, %d of a communicator\n", types, others
            exit served == 0
        }' "$ROOM/all"
    [ $# -gt 0 ] || ok $? "$function was served"
done
none "nothing is left in /dev/shm" "$(find /dev/shm -maxdepth 1 -name "kolo-kolo.$$.*")"
done_testing
