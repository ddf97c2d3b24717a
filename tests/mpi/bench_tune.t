#!/usr/bin/env bash
# kolo bench --tune: a table that the library reads, by two and three ranks; where it goes; what is refused.
# kolo bench --algorithms: every row.
# shellcheck source=tests/lib.sh
. "$(dirname "$0")/../lib.sh"
need mpiexec
tune() { # NAME RANKS WORDS...
    local name=$1 ranks=$2
    shift 2
    timeout 120 mpiexec -n "$ranks" kolo bench --tune "$@" > "$ROOM/$name.out" 2>&1
}
tune two 2 path="$ROOM/two" max=4K
is $? 0 "two ranks; the table is read back before the end"
head -n 1 "$ROOM/two" | grep -qx 'kolo-comm-table 1'
ok $? "the first line of the table is its version"
awk '$1 == "cost" && $2 == "node" && $3 > 0 && $3 < 1 && $4 > 0 && $4 < 1e-6 { node = 1 }
    $1 == "cost" && $2 == "reduce" && $3 > 0 && $3 < 1e-6 { reduce = 1 }
     END { exit !(node && reduce) }' "$ROOM/two"
ok $? "seconds a message, a byte, a byte summed"
is "$(grep -cE '^use (allreduce|reduce_scatter|allgather|broadcast|alltoall) 2 1 \* [a-z_0-9]+$' \
    "$ROOM/two")" 5 "a choice for every size of five collectives"
SLURM_CLUSTER_NAME="a b/c" KOLO_CACHE=$ROOM/cache tune three 3 max=256
is $? 0 "three ranks"
is "$(awk \
    '/^links 3/ { for (i = 0; i < 3; i++) { getline; for (k = 1; k <= 3; k++)
      good += (k == i + 1) ? $k == 0 : $k > 0 } } END { print good }' \
    "$ROOM/cache/comm-table-a-b-c")" 9 \
    "the links between them, in KOLO_CACHE"
like "$ROOM/three.out" "written to $ROOM/cache/comm-table-a-b-c" "the path of the written table is printed"
printf 'kolo-comm-table 1\norder free\nuse allreduce 2 1 * ring\n' > "$ROOM/cache/comm-table-mine"
ran_by() { # CLUSTER: who carried an allreduce, by the timeline
    rm -rf "$ROOM/trace"
    SLURM_CLUSTER_NAME=$1 KOLO_CACHE=$ROOM/cache KOLO_COMM_TIMELINE=$ROOM/trace timeout 60 mpiexec -n 2 kolo \
        bench allreduce memory=ordinary min=128K max=128K \
        iterations=2 > "$ROOM/run.out" 2>&1
    sed -nE 's/.*"name":"allreduce","args":\{"bytes":131072,"algorithm":"([a-z_0-9]+)".*/\1/p' \
        "$ROOM"/trace/rank-*.json | sort -u | tr '\n' ' '
}
is "$(ran_by mine) $(ran_by other) $(KOLO_COMM_TABLE=none ran_by mine)" "ring  push  push " \
    "the table of a cluster is used there, unless none is asked for"
kolo bench --tune > "$ROOM/one.out" 2>&1
is $? 78 "kolo bench --tune on one rank: exit 78"
tune words 2 max=5x
is $? 78 "a size that is none, too"
is "$(kolo bench --algorithms | grep -c '^  [a-z]')" "$(grep -c '^ROW' src/comm/algorithm/algorithms.def)" \
    "every algorithm is listed"
done_testing
