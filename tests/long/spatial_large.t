#!/usr/bin/env bash
# Images of 4,096 x 4,096 pixels under a memory limit, by the template of large images on a real Slurm: a node
# that cannot hold the network of one image refuses it, four such nodes train on it in 2 x 2 parts, and none
# takes more than it was given. 2 minutes, 6 GB.
# shellcheck source=tests/lib.sh
. "$(dirname "$0")/../lib.sh"
cluster 4 1
limit=1900 # MiB of a node
kolo-pack --source shapes --split train --count 4 --size 4096 --resize exact --out "$ROOM/data/train" > \
    "$ROOM/log" 2>&1
is $? 0 "4 images of 4096 x 4096 pixels" "$ROOM/log"
export KOLO_RECIPE=shapes KOLO_DATASET=$ROOM/data KOLO_BATCH=1 \
    KOLO_ARGS="model=mobilenet_v3_small val=none steps=2 threads=1 prefetch=1 conv=direct deterministic=true"
submit() { # NAME NODES PARTS: state of the job
    await "$(KOLO_RUN=$ROOM/$1 KOLO_SPATIAL=$3 sbatch --parsable --no-requeue --nodes="$2" \
        --ntasks-per-node=1 --mem=${limit}M --time=00:20:00 --output="$ROOM/$1.out" \
        "$TOP/jobs/highres_spatial.sh")" 600
}
is "$(submit whole 1 1x1)" FAILED "one rank, a node of $limit MiB: the job fails"
like "$ROOM/whole.out" \
    "this node cannot hold the job: 1 rank needs .* GiB, Slurm's memory request allows 1\.86 GiB" \
    "  before the first step, and says why"
is "$(submit parts 4 2x2)" COMPLETED "spatial=2x2 on four such nodes: it trains" "$ROOM/parts.out"
is "$(losses "$ROOM/parts" | cut -d' ' -f1 | xargs)" "1 2" "  two steps, each with a loss"
peaks=$(tr -d '\n' < "$ROOM/parts/summary.json" | sed -n 's/.*"peak_bytes_by_rank": \[\([^]]*\)\].*/\1/p')
is "$(wc -w <<< "$peaks") $(tr -d , <<< "$peaks" | awk -v most=$((limit << 20)) '
    { for (i = 1; i <= NF; i++) over += $i > most } END { print over + 0 }')" "4 0" \
    "  and no rank was resident with more than its node allows: $peaks"
planned=$(sed -n 's/.*"planned_bytes": \([0-9]*\).*/\1/p' "$ROOM/parts/summary.json")
ok $((planned > limit << 20)) "  as was planned: $planned"
done_testing
