#!/usr/bin/env bash
# The job templates on a real Slurm: packing, the site's acceptance test, staging, refusals that come
# before any rank starts.
# shellcheck source=tests/lib.sh
. "$(dirname "$0")/../lib.sh"
cluster 2 2 2
# NAME TEMPLATE [SBATCH ARGS...]: waits (sbatch --wait looks after 2, 10 and 42 s only); the job's exit status
submit() {
    local name=$1 template=$2 job
    shift 2
    job=$(sbatch --parsable --time=00:20:00 --output="$ROOM/$name.out" "$@" "$TOP/jobs/$template" 2> \
        "$ROOM/$name.sbatch") || return
    await "$job" > "$ROOM/$name.state"
    return "$(scontrol show job "$job" | sed -n 's/.* ExitCode=\([0-9]*\):.*/\1/p')"
}
for template in jobs/*.sh; do
    [ "$template" = jobs/kolo_job.sh ] && continue
    bash -n "$template" && sbatch --test-only "$template" > /dev/null 2>&1
    ok $? "$template is a batch script that this Slurm takes"
done

export KOLO_SOURCE=shapes KOLO_DATASET=$ROOM/data KOLO_SPLITS="train" KOLO_ARGS="--count 256"
submit pack pack_dataset.sh --ntasks-per-node=2
is $? 0 "pack_dataset.sh packs"
like "$ROOM/pack.out" "data/train: 2 files" "pack_dataset.sh: the number of files is printed"
KOLO_SPLITS=val KOLO_ARGS="--count 64" submit packval pack_dataset.sh
submit again pack_dataset.sh
is $? 0 "submitted again it has nothing left to do"

unset KOLO_ARGS
cd "$ROOM" || exit 1
# what a busy machine carries says nothing of a network
KOLO_MIN_BUSBW=0.001 submit smoke cpu_smoke.sh
is $? 0 "cpu_smoke.sh: 2 nodes x 2 tasks"
like "$ROOM/smoke.out" "smoke test: everything works" "cpu_smoke.sh: prints that everything works"
like "$ROOM/smoke.out" "pmix: 4 ranks on 2 nodes" "cpu_smoke.sh: 4 ranks on 2 nodes"

export KOLO_RECIPE=shapes KOLO_DATASET=$ROOM/data KOLO_RUN=$ROOM/run KOLO_ARGS="epochs=1 batch=32 threads=1"
mkdir "$ROOM/local"
KOLO_STAGING=$ROOM/local submit staged resnet_imagenet.sh
is $? 0 "resnet_imagenet.sh trains from a staged copy"
like "$ROOM/staged.out" "data/train is staged in $ROOM/local/kolo-stage-[0-9]+/" "the ranks read the copy"
is "$(find "$ROOM/local" -name '*.h5.stamp' | wc -l)" "$(find "$ROOM/data" -name '*.h5' |
    wc -l)" "training and validation shards were copied once, with a stamp"
KOLO_STAGE=auto KOLO_RUN=$ROOM/run2 submit auto resnet_imagenet.sh
is $? 0 "KOLO_STAGE=auto: the old name of KOLO_STAGING"
is "$(grep -c 'stage= is an old name; write staging=' "$ROOM/auto.out")" 1 \
    "KOLO_STAGE in a job of several ranks: one warning"
like "$ROOM/auto.out" "staging=auto: the shards of .*/data/train are read where they are" \
    "copies nothing that is on the node already"
KOLO_DRY_RUN=1 submit dry resnet_imagenet.sh
like "$ROOM/dry.out" "^\[.*\] srun --mpi=pmix .* kolo train shapes" "a dry run prints the srun line"
KOLO_DATASET=$ROOM/nowhere submit nodata resnet_imagenet.sh
is $? 78 "no data folder: exit 78 before anything starts"
like "$ROOM/nodata.out" "EDIT 2" "no data folder: the line to edit is named"
KOLO_DATASET=$ROOM/data/train submit split resnet_imagenet.sh
is $? 78 "a split as the data folder: exit 78"
like "$ROOM/split.out" "holds no folder train: it is the one with train/ and val/ in it" \
    "a split as the data folder: the message says which is meant"
KOLO_RUN=$ROOM/bad KOLO_ARGS="lr=fast" submit bad resnet_imagenet.sh
is $? 78 "a wrong option: the job ends with kolo's status"
[ ! -e "$ROOM/bad" ]
ok $? "no run folder is made for it"
like "$ROOM/bad.out" "what to do: change what the message above names" \
    "a wrong option: the advice is to change it"
cksum "$ROOM"/run/{summary.json,recipe.yaml,events.jsonl} > "$ROOM/was"
KOLO_ARGS="$KOLO_ARGS lr=0.5" submit rerun resnet_imagenet.sh
is $? 78 "a finished run with another learning rate: refused"
cksum "$ROOM"/run/{summary.json,recipe.yaml,events.jsonl} | cmp -s - "$ROOM/was"
ok $? "its summary, recipe and events are untouched"

# ---- a template that was copied, submitted with nothing of its environment ----
mkdir -p "$ROOM/prefix/share/kolo/jobs" "$ROOM/copied" && ln -s "$BUILD/bin" "$ROOM/prefix/bin"
for script in "$TOP"/jobs/*.sh; do sed "s|@ROOT@|$ROOM/prefix|" "$script" > \
    "$ROOM/prefix/share/kolo/jobs/${script##*/}"; done
cp "$ROOM/prefix/share/kolo/jobs/comm_bench.sh" "$ROOM/copied/"
sed -i 's/^: "${KOLO_ARGS:=}".*/KOLO_ARGS="max=1K iterations=2"/' "$ROOM/copied/comm_bench.sh"
job=$(sbatch --parsable --export=NONE --output="$ROOM/copied.out" "$ROOM/copied/comm_bench.sh")
is "$(await "$job")" COMPLETED "a copied template with --export=NONE runs what was installed"
like "$ROOM/copied.out" "Out of bounds values : 0 OK" \
    "a copied template: the bench on both nodes has no wrong value"
cp "$TOP/jobs/comm_bench.sh" "$ROOM/copied/"
job=$(sbatch --parsable --export=NONE --output="$ROOM/lost.out" "$ROOM/copied/comm_bench.sh")
await "$job" > /dev/null
like "$ROOM/lost.out" "^No Kolo: sbatch --export=ALL,KOLO_ROOT=FOLDER, the one with bin/kolo in it" \
    "a copied template without KOLO_ROOT: the message says what to set"

# ---- the bench of sums, site files, GPUs ----
unset KOLO_RECIPE KOLO_DATASET KOLO_RUN
KOLO_ARGS="max=1M iterations=5" submit bench comm_bench.sh --ntasks-per-node=2
is $? 0 "comm_bench.sh on CPUs"
like "$ROOM/bench.out" \
    "^# kolo bench gradients: buckets of training, 4 ranks on 2 nodes, CPUs, shared memory \+ MPI, in place" \
    "says what it measures"
like "$ROOM/bench.out" "^ +1048576 +262144 +f32 +sum +-1 +[0-9.]+ +[0-9.]+ +[0-9.]+ +0$" \
    "comm_bench.sh: the columns of nccl-tests"
like "$ROOM/bench.out" "Out of bounds values : 0 OK" "every sum is right"

dry() { # NAME TEMPLATE [VARIABLE=VALUE...]: outside of Slurm, up to the srun line
    local name=$1 template=$2
    shift 2
    env KOLO_DRY_RUN=1 KOLO_ARGS= "$@" bash "$TOP/jobs/$template" > "$ROOM/$name.out" 2>&1
}
for site in infiniband slingshot ethernet efa; do
    dry "$site" comm_bench.sh KOLO_SITE_ENV=$site SLURM_JOB_NUM_NODES=2
    is $? 0 "site file $site"
    like "$ROOM/$site.out" "^    NCCL_SOCKET_IFNAME=" "what it sets is printed"
done
like "$ROOM/slingshot.out" "^    NCCL_NET=AWS Libfabric" "Slingshot: several nodes insist on libfabric"
dry one comm_bench.sh KOLO_SITE_ENV=slingshot NCCL_CROSS_NIC=0
! grep -q NCCL_NET= "$ROOM/one.out"
ok $? "one node: NCCL_NET is not set"
like "$ROOM/one.out" "^    NCCL_CROSS_NIC=0" "one node: NCCL_CROSS_NIC of the user stays"
grep -rnE 'NCCL_P2P_DISABLE|NCCL_ALGO|CUDA_LAUNCH_BLOCKING' "$TOP/jobs" "$TOP/share/site" > "$ROOM/banned.out"
is $? 1 "no template or site file carries a setting that is for debugging"
dry nosite comm_bench.sh KOLO_SITE_ENV=nowhere
is $? 78 "an unknown site file: exit 78"
like "$ROOM/nosite.out" "efa ethernet infiniband slingshot" "an unknown site file: those there are listed"

submit idle comm_bench.sh --nodes=1 --gpus-per-node=2 --ntasks-per-node=1
is $? 78 "more GPUs than tasks: exit 78 before a GPU idles"
like "$ROOM/idle.out" "sbatch --ntasks-per-node=2" "more GPUs than tasks: the flag to add is named"

# the templates on GPUs, by flags of sbatch alone; the stand-in is the GPU
if [ -e "$BUILD/standin/libkolo_cuda.so" ]; then
    export KOLO_CUDA_LIBRARY=$BUILD/standin/libkolo_cuda.so STANDIN_DEVICES=2
    KOLO_ARGS="max=64K iterations=3" submit gpubench comm_bench.sh --nodes=1 --gpus-per-node=2 \
        --ntasks-per-node=2
    is $? 0 "comm_bench.sh on 2 GPUs"
    like "$ROOM/gpubench.out" \
        "^# kolo bench gradients: buckets of training, 2 ranks on 1 node, Stand-in GPU, nccl [0-9.]+, in place" \
        "sums by NCCL"
    like "$ROOM/gpubench.out" "Out of bounds values : 0 OK" "gradients over NCCL: no value out of bounds"
    export KOLO_RECIPE=shapes KOLO_DATASET=$ROOM/data KOLO_ARGS="steps=2 batch=16 threads=1 model=mlp size=16"
    KOLO_RUN=$ROOM/gpurun submit gputrain resnet_imagenet.sh --nodes=1 --gpus-per-task=1 --ntasks-per-node=2
    is $? 0 "resnet_imagenet.sh trains on 2 GPUs, even if each task was to see one"
    like "$ROOM/gputrain.out" "computing on Stand-in GPU .* allreduce: nccl" "every task took its own"
else
    skip "the stand-in for a GPU is not built (make tests, with CUDA's headers)"
fi
# --- after training: evaluation, prediction, a sweep as an array
unset KOLO_ARGS KOLO_SPLITS KOLO_SOURCE
recipe=$ROOM/small.yaml
printf '%s\n' "model: resnet20" "size: 32" "batch: 32" "epochs: 1" "threads: 1" "data: $ROOM/data/train" \
    "val: $ROOM/data/val" > "$recipe"
job=$(KOLO_RECIPE=$recipe KOLO_RUNS=$ROOM/sweep KOLO_SWEEP="lr=0.05 lr=0.1,momentum=0.8" \
    KOLO_ARGS=slurm_comment=true sbatch --parsable --array=0-1 --time=00:20:00 --output="$ROOM/sweep-%a.out" \
    "$TOP/jobs/sweep.sh")
is "$(await "${job}_0") $(await "${job}_1")" "COMPLETED COMPLETED" "sweep.sh: all tasks of the array end well"
is "$(sed -n 's/^momentum: //p' "$ROOM/sweep/lr=0.1,momentum=0.8/recipe.yaml")" 0.8 \
    "  with the options of its number, in a folder of its own" || diag < "$ROOM/sweep-1.out"
is "$(scontrol show job "${job}_1" | grep -c 'Comment=done, best top1 .*: 100%  epoch 1/1  step 8/8')" 1 \
    "  slurm_comment=true: the comment of its job says how it ended" || scontrol show job "${job}_1" | diag
KOLO_SWEEP="lr=1" KOLO_RECIPE=$recipe KOLO_RUNS=$ROOM/sweep submit no-array sweep.sh
is "$? $(grep -c 'sbatch --array=0-0' "$ROOM/no-array.out")" "78 1" "  without an array: how to ask for one"
KOLO_RUN=$ROOM/sweep/lr=0.05 submit evaluate evaluate.sh
is $? 0 "evaluate.sh evaluates it" "$ROOM/evaluate.out"
like "$ROOM/evaluate.out" 'top-?1' "  and prints what it reached"
kolo-shards extract "$ROOM/data/val" --out "$ROOM/photos" > "$ROOM/log" 2>&1
KOLO_RUN=$ROOM/sweep/lr=0.05 KOLO_IN=$ROOM/photos KOLO_PREDICTIONS=$ROOM/p.csv KOLO_ARGS=top=1 \
    submit predict predict.sh
is "$? $(wc -l < "$ROOM/p.csv")" "0 65" "predict.sh: a line of CSV for each of 64 images" "$ROOM/predict.out"
done_testing
