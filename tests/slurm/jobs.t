#!/usr/bin/env bash
# The job templates on a real Slurm: packing, the site's acceptance test, staging, refusals that come before any rank starts.
# shellcheck source=tests/lib.sh
. "$(dirname "$0")/../lib.sh"
cluster 2 2
submit() { # NAME TEMPLATE [SBATCH ARGS...]: waits; the job's exit status
    local name=$1 template=$2
    shift 2
    sbatch --wait --time=00:20:00 --output="$ROOM/$name.out" "$@" "$TOP/jobs/$template" > "$ROOM/$name.sbatch" 2>&1
}
for template in jobs/*.sh; do
    [ "$template" = jobs/lib.sh ] && continue
    bash -n "$template" && sbatch --test-only "$template" > /dev/null 2>&1
    ok $? "$template is a batch script that this Slurm takes"
done

export KOLO_SOURCE=shapes KOLO_OUT=$ROOM/data KOLO_SPLITS="train" KOLO_ARGS="--count 256"
submit pack pack_dataset.sh --ntasks-per-node=2
is $? 0 "pack_dataset.sh packs"
like "$ROOM/pack.out" "data/train: 2 files" "and counts the files it made"
KOLO_SPLITS=val KOLO_ARGS="--count 64" submit packval pack_dataset.sh
submit again pack_dataset.sh
is $? 0 "submitted again it has nothing left to do"

unset KOLO_ARGS
cd "$ROOM" || exit 1
submit smoke cpu_smoke.sh
is $? 0 "cpu_smoke.sh: 2 nodes x 2 tasks"
like "$ROOM/smoke.out" "smoke test: everything works" "and says that everything works"

export KOLO_RECIPE=shapes KOLO_DATA=$ROOM/data KOLO_RUN=$ROOM/run KOLO_ARGS="epochs=1 batch=32 threads=1"
KOLO_STAGE=$ROOM/local submit staged resnet_imagenet.sh
is $? 0 "resnet_imagenet.sh trains from a staged copy"
like "$ROOM/staged.out" "data=$ROOM/local/kolo-" "the ranks read the copy"
is "$(find "$ROOM/local" -name staged | wc -l)" 2 "training and validation shards were copied once, with a stamp"
KOLO_DRY_RUN=1 submit dry resnet_imagenet.sh
like "$ROOM/dry.out" "^\[.*\] srun --mpi=pmix .* kolo train shapes" "a dry run prints the srun line"
KOLO_DATA=$ROOM/nowhere submit nodata resnet_imagenet.sh
is $? 78 "no data folder: exit 78 before anything starts"
like "$ROOM/nodata.out" "EDIT 2" "and the line to edit is named"
KOLO_RUN=$ROOM/bad KOLO_ARGS="lr=fast" submit bad resnet_imagenet.sh
is $? 78 "a wrong option: the job ends with kolo's status"
done_testing
