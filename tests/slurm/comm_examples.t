#!/usr/bin/env bash
# The examples of libkolo_comm.so as jobs of a Slurm: by PMIx, by PMI-2, and from within a program that
# has called MPI_Init.
# shellcheck source=tests/lib.sh
. "$(dirname "$0")/../lib.sh"
[ -e "$BUILD/lib/libkolo_comm.so" ] || skip_all "libkolo_comm.so is not built"
need gcc mpicc
cluster 2 3
flags=(-O2 -Wall -Iinclude -L"$BUILD/lib" -Xlinker -rpath -Xlinker "$BUILD/lib")
gcc "${flags[@]}" share/examples/named.c -o "$ROOM/named" -lkolo_comm > "$ROOM/log" 2>&1 &&
    gcc "${flags[@]}" share/examples/shrink.c -o "$ROOM/shrink" -lkolo_comm >> "$ROOM/log" 2>&1 &&
    mpicc "${flags[@]}" share/examples/in_mpi.c -o "$ROOM/in_mpi" -lkolo_comm >> "$ROOM/log" 2>&1
ok $? "the examples are built" || sed 's/^/# /' "$ROOM/log"
go() { timeout 60 srun -Q -K0 "$@" 2>&1 | sort; }
kinds=$(srun --mpi=list 2>&1)
halves="even ranks: 2 of them, their numbers sum up to 2
odd ranks: 2 of them, their numbers sum up to 4"
if [[ $kinds == *pmix* ]]; then
    is "$(go --mpi=pmix -N 2 -n 4 "$ROOM/named")" "4 ranks: averages 1.5 2.5 3.5" \
        "named, 4 ranks on 2 nodes by PMIx"
    is "$(KOLO_COMM_TRANSPORT=tcp go --mpi=pmix -N 2 -n 4 "$ROOM/named")" "4 ranks: averages 1.5 2.5 3.5" \
        "and over sockets"
else
    skip "this Slurm has no PMIx"
fi
if hydra; then
    is "$(go --mpi=pmi2 -N 2 -n 3 "$ROOM/named")" "3 ranks: averages 1 2 3" \
        "named, 3 ranks on 2 nodes by PMI-2"
    is "$(go --mpi=pmi2 -N 1 -n 2 "$ROOM/named")" "2 ranks: averages 0.5 1.5 2.5" "on one node"
    is "$(go --mpi=pmi2 -N 2 -n 4 "$ROOM/in_mpi")" "$halves" \
        "in_mpi, 4 ranks on 2 nodes: groups of the program's communicators, sockets since its MPI is only SERIALIZED"
else
    for _ in 1 2 3; do skip "this MPI does not know PMI-2"; done
fi
# KIND NODES RANKS: the last one dies, and all others say what they are now, in files: when a whole node has
# ended srun loses last words
lost() {
    go --mpi="$1" --no-kill -N "$2" -n "$3" -o "$ROOM/lost.%t" "$ROOM/shrink" > "$ROOM/srun"
    cat "$ROOM/srun" "$ROOM"/lost.* > "$ROOM/lost" && rm "$ROOM"/lost.*
    is "$(grep -c '^rank [0-9]* of' "$ROOM/lost"), $(grep -cE \
        "^rank [0-9]+: rank $(($3 - 1)) on host n[0-9] .*died" "$ROOM/lost")" "$(($3 - 1)), $(($3 - 1))" \
        "$3 ranks on $2 node(s) by $1, the last one dies: the others know which, and go on" ||
        sed 's/^/# /' "$ROOM/lost"
    is "$(grep -o '^rank [0-9]* of.*' "$ROOM/lost")" "$(for \
        ((i = 0; i < $3 - 1; i++)); do echo "rank $i of $(($3 - 1)): $(($3 - 1))"; done)" "with exact sums"
}
for kind in pmix pmi2; do
    [[ $kinds == *$kind* ]] || continue
    [ $kind = pmix ] || hydra || continue
    lost $kind 2 4
    lost $kind 2 3
    lost $kind 1 3
done
none "nothing is left in /dev/shm" "$(shm_left)"
if hydra; then
    KOLO_COMM_TRANSPORT=mpi go --mpi=pmi2 -N 2 -n 2 "$ROOM/in_mpi" > "$ROOM/out"
    like "$ROOM/out" "^kolo_world_open: comm: the program's MPI has less than thread level MULTIPLE" \
        "MPI between the nodes is refused there"
else
    skip "this MPI does not know PMI-2"
fi
if [[ $kinds == *pmix* ]] && mpichversion 2> /dev/null | grep -q . && ! mpichversion | grep -qi pmix; then
    go --mpi=pmix -N 1 -n 2 "$ROOM/in_mpi" > "$ROOM/out"
    like "$ROOM/out" "^kolo_world_open: launch: srun started 2 tasks but MPI says rank 0 of 1" \
        "an MPI that does not know PMIx, started by it: an error, not two worlds of one rank"
else
    skip "this MPI is no MPICH without PMIx"
fi
done_testing
