#!/usr/bin/env bash
# tests/slurm/shard.t and tests/cuda/shard.t with every level of shard= on every number of ranks, in groups of
# every size, and by both reducers of GPUs.
# shellcheck source=tests/lib.sh
. "${BASH_SOURCE[0]%/*}/../lib.sh"
for part in slurm cuda; do
    SHARDS="optimizer:3 optimizer:6 optimizer:3+3 gradients:3 gradients:6 gradients:3+3 parameters:3
        parameters:6 parameters:3+3" GROUPS_OF="node 3 1" STAGED="optimizer gradients parameters" \
        NCCL="optimizer gradients parameters" tests/$part/shard.t > "$ROOM/log" 2>&1
    is $? 0 "$part: $(grep -c '^ok' "$ROOM/log") tests" "$ROOM/log"
done
done_testing
