#!/bin/bash
# A network that does not fit one device, cut into stages over the nodes; by default ResNet-50 on ImageNet.
# Each node computes one stage. Several tasks of a node are replicas of it, each with its share of the batch.
#
#   sbatch jobs/resnet_pipeline.sh                      after editing the two lines marked EDIT
#   sbatch --nodes=4 --ntasks-per-node=2 jobs/resnet_pipeline.sh
#                                                       4 stages, 2 replicas of each
#   KOLO_STAGES=8 sbatch --nodes=4 --gpus-per-node=4 --ntasks-per-node=4 --cpus-per-task=16 \
#       jobs/resnet_pipeline.sh                         on GPUs, one task each: 2 stages a node, 2 replicas
#
# The same sbatch again goes on from the last checkpoint; near the time limit the job checkpoints
# and requeues itself. docs/pipelines.md tells how to choose stages, micro-batches and order.
##SBATCH --account=EDIT_ME                # EDIT 1: remove one '#' and name your account
#SBATCH --job-name=kolo-pipeline
#SBATCH --nodes=2
#SBATCH --ntasks-per-node=1
#SBATCH --time=24:00:00
#SBATCH --signal=B:USR1@300
#SBATCH --requeue
#SBATCH --open-mode=append
#SBATCH --output=%x-%j.out
set -uo pipefail

: "${KOLO_DATASET:=/path/to/imagenet}"   # EDIT 2: folder with train/ and val/, made by jobs/pack_dataset.sh
: "${KOLO_RECIPE:=resnet50_imagenet}"    # a name in share/recipes, or a path
: "${KOLO_STAGES:=${SLURM_JOB_NUM_NODES:-2}}" # one a node, or a multiple of the nodes
# Images that a stage computes at a time. A step has batch / replicas / micro_batch micro-batches: some four
# times the stages keep them busy. It is also the block of batch norm's statistics, so no fewer than about 16
# for networks that have one.
: "${KOLO_MICRO_BATCH:=16}"
# jobs/resnet_pipeline.sh and jobs/resnet_hybrid.sh go on with each other's run
: "${KOLO_RUN:=${SLURM_SUBMIT_DIR:-$PWD}/runs/$(basename "$KOLO_RECIPE" .yaml)-stages}"
: "${KOLO_ARGS:=}"                       # further key=value words: pipeline=gpipe cut=layer3.0

# kolo_job.sh lies beside this template, of which sbatch runs a copy, or where Kolo is installed
# shellcheck source=jobs/kolo_job.sh
PATH=$PATH:${0%/*}:$(dirname "$(squeue -hj "${SLURM_JOB_ID:-0}" -o %o 2> /dev/null | head -n 1)")\
:${KOLO_ROOT:-}/share/kolo/jobs:@ROOT@/share/kolo/jobs . kolo_job.sh ||
    { echo "No Kolo: sbatch --export=ALL,KOLO_ROOT=FOLDER, the one with bin/kolo in it" >&2 && exit 78; }
job_begin
job_check_gpus
[ "$KOLO_STAGES" -gt 1 ] ||
    job_die 78 "KOLO_STAGES=$KOLO_STAGES is no pipeline: sbatch --nodes=2 or more, or KOLO_STAGES=2 or more"

# The weights are the same bytes whatever the stages, replicas and order (on GPUs with deterministic=true), so
# the next start may have others.
# shellcheck disable=SC2086 # KOLO_ARGS is a list of words
job_train run="$KOLO_RUN" stages="$KOLO_STAGES" stages_in_node=false micro_batch="$KOLO_MICRO_BATCH" \
    bn=ghost reduce=canonical $KOLO_ARGS
