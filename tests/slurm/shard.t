#!/usr/bin/env bash
# Sharded optimizer, gradients and parameters under srun on two nodes: the bytes of one rank that holds
# everything; groups within the nodes. tests/long/shard_nodes.t has all levels on all numbers of ranks.
# shellcheck source=tests/lib.sh
. "$(dirname "$0")/../lib.sh"
cluster 2 8
KIND=pmi2
srun --mpi=list 2>&1 | grep -q pmix && KIND=pmix
shapes_data 96 50
args=(shapes model=resnet20 size=16 data="$ROOM/data/train" val="$ROOM/data/val" batch=48 micro_batch=8
    epochs=1 warmup=0 reduce=canonical bn=ghost conv=direct deterministic=true threads=1 bucket_mb=0.1
    optimizer=lars clip_norm=1 ema=0.9)

train() { # RUN NODES RANKS OPTIONS...: as srun has them, 5 and 1 of 6; "3+3": as many on each
    local ranks=(-n"$3")
    [ "$3" = 3+3 ] && ranks=(-n6 --ntasks-per-node=3)
    timeout 60 srun --mpi="$KIND" -K0 -N"$2" "${ranks[@]}" --distribution=block kolo train "${args[@]}" \
        run="$ROOM/$1" "${@:4}" > "$ROOM/$1.log" 2>&1
}
result() { # RUN
    echo "$(losses "$ROOM/$1") $(weights_sum "$ROOM/$1")" \
        "$(grep -E '"(loss|top1|top5)"' "$ROOM/$1/summary.json")"
}
train one 1 1
is $? 0 "one rank has the whole network" "$ROOM/one.log"
want=$(result one)
runs=0
for each in ${SHARDS-optimizer:3 gradients:6 parameters:3+3}; do
    shard=${each%:*} count=${each#*:} run=run-$((runs += 1))
    train $run 2 "$count" shard="$shard"
    is $? 0 "2 nodes, $count ranks, shard=$shard" "$ROOM/$run.log"
    is "$(result $run)" "$want" "2 nodes, $count ranks, shard=$shard: losses, weights, validation"
done
for group in ${GROUPS_OF-node}; do
    train group-$group 2 3+3 shard=gradients shard_group=$group
    is "$? $(result group-$group)" "0 $want" "2 nodes of 3, shard_group=$group: the same" ||
        sed 's/^/# /' "$ROOM/group-$group.log"
done
train refused 2 3 shard=optimizer shard_group=node
is $? 78 "shard_group=node with other numbers of ranks on the nodes: exit 78"
like "$ROOM/refused.log" 'start as many ranks on every node' "and the cure"
done_testing
