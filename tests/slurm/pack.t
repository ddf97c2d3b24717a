#!/usr/bin/env bash
# A packing on two nodes, of which one rank stops: the other node's names it, though they share no memory.
# shellcheck source=tests/lib.sh
. "$(dirname "$0")/../lib.sh"
need kolo-pack
cluster 2 2
kind=pmi2
srun --mpi=list 2>&1 | grep -q pmix && kind=pmix
args=(--source shapes --count 4000 --shards 2 --encoding raw --size 64 --threads 1)
srun -Q --mpi=$kind -N 2 -n 2 kolo-pack "${args[@]}" --out "$ROOM/whole" > "$ROOM/log" 2>&1
is $? 0 "two ranks on two nodes pack by $kind" "$ROOM/log"
export KOLO_HEARTBEAT_TIMEOUT=1
timeout 120 srun -Q --mpi=$kind -N 2 -n 2 kolo-pack "${args[@]}" --out "$ROOM/out" > "$ROOM/log" 2>&1 &
job=$!
journalled "$ROOM/out" $job || ok 1 "something is noted before the end" "$ROOM/log"
for one in $(pgrep -x kolo-pack); do
    grep -qzxF "$ROOM/out" "/proc/$one/cmdline" || continue
    grep -qzx SLURM_PROCID=1 "/proc/$one/environ" && kill -STOP "$one"
done
began=$(now)
wait $job
code=$?
took=$(($(now) - began))
[ $code != 0 ] && [ $code != 124 ]
ok $? "one of them is stopped: the packing ends (status $code)" "$ROOM/log"
named='kolo-pack: launch: no progress in .*: rank 1 on host n2 was stopped, or its node is lost'
like "$ROOM/log" "$named" "the other one names it, after $took ms"
srun -Q --mpi=$kind -N 2 -n 2 kolo-pack "${args[@]}" --out "$ROOM/out" --resume > "$ROOM/log" 2>&1
is $? 0 "--resume goes on" "$ROOM/log"
is "$(cd "$ROOM/out" && sha256sum -- *)" "$(cd "$ROOM/whole" && sha256sum -- *)" \
    "resumed packing: the same bytes"
done_testing
