#!/usr/bin/env bash
# kolo bench of the library's collectives: every one of them, every type and operation gives right values on
# three ranks; both kinds of columns; words that are refused.
# shellcheck source=tests/lib.sh
. "${BASH_SOURCE[0]%/*}/../lib.sh"
need mpiexec
bench() { timeout 100 mpiexec -n 3 kolo bench "$@" iterations=2 > "$ROOM/out" 2>&1; }
sound() { # TEXT
    local status=$?
    [ $status = 0 ] && grep -q '^# Out of bounds values : 0 OK$' "$ROOM/out"
    ok $? "$1"
}
for name in allreduce reduce_scatter allgather broadcast gather scatter alltoall; do
    bench $name dtype=f32 min=1K max=64K
    sound "$name"
done
for type in u8 i8 u16 i16 i32 i64 f16 bf16 f64 bool; do
    bench allreduce dtype=$type min=64 max=4K
    sound "allreduce of $type"
done
for op in average min max product; do
    bench allreduce op=$op min=64 max=4K memory=ordinary
    sound "allreduce, $op, in ordinary memory"
done
kolo bench broadcast min=16M max=16M iterations=2 > "$ROOM/out" 2>&1
is "$(awk '/^[^#]/ { print NF, $8 }' "$ROOM/out")" "9 0.00" \
    "broadcast of 16 MiB on one rank: nine columns, busbw 0.00"
bench allreduce path=named min=1K max=4K
sound "by name"
ran_by() { # WORD...: the algorithms of all its vectors, as the timeline says
    rm -rf "$ROOM/trace"
    KOLO_COMM_TIMELINE=$ROOM/trace bench allreduce "$@" memory=ordinary min=128K max=128K ||
        sed 's/^/# /' "$ROOM/out" >&2
    sed -nE 's/.*"name":"allreduce","args":\{"bytes":131[0-9]*,"algorithm":"([a-z_0-9]+)".*/\1/p' \
        "$ROOM"/trace/rank-*.json | sort -u | tr '\n' ' '
}
is "$(ran_by comm_algorithm=ring)" "ring " "comm_algorithm=ring on one node: ring"
is "$(ran_by comm_algorithm=rabenseifner)" "rabenseifner " "comm_algorithm=rabenseifner: rabenseifner"
is "$(ran_by comm_algorithm=butterfly:k=3)" "butterfly " "comm_algorithm=butterfly:k=3: butterfly"
bench allreduce comm_algorithm=two_level:k=2x2 max=1K
is "$? $(grep -c 'k=2x2 is not for 3 members.*for them are k=3$' "$ROOM/out")" "78 1" \
    "radices whose product is another number are refused, with those that fit"
timeout 100 mpiexec -n 4 kolo bench allreduce comm_algorithm=two_level:k=2x2 memory=ordinary min=64 max=64K \
    iterations=2 > "$ROOM/out" 2>&1
sound "by levels of two and two"
is "$(ran_by)" "push " "no comm_algorithm on one node: push"
printf 'kolo-comm-table 1\norder free\nuse allreduce 3 1 * segmented_ring\n' > "$ROOM/table"
is "$(KOLO_COMM_TABLE=$ROOM/table ran_by)" "segmented_ring " \
    "a table that names segmented_ring for three ranks: segmented_ring"
printf 'kolo-comm-table 1\norder free\nlinks 3\n0 9 9\n9 0 9\n9 9 0\nuse allreduce 3 1 * packed_trees\n' > \
    "$ROOM/table"
is "$(KOLO_COMM_TABLE=$ROOM/table ran_by)" "packed_trees " "a table with links: packed_trees"
bench allreduce comm_algorithm=ring min=64 max=64K
sound "small and large ones in shared memory by a ring"
bench broadcast root=2 min=8 max=32 format=osu
is "$? $(grep -cE '^(8|16|32) +[0-9.]+ +[0-9.]+ +[0-9.]+ +2$' "$ROOM/out")" "0 3" \
    "broadcast root=2 format=osu: three rows"
for words in "allreduce dtype=f31" "allreduce op=mean" "gather root=7" "allgather comm_algorithm=nosuch" \
    "scatter format=csv"; do
    # shellcheck disable=SC2086 # several words
    kolo bench $words max=1K > "$ROOM/out" 2>&1
    is $? 78 "$words is refused"
done
done_testing
