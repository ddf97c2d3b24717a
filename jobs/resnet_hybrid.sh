#!/bin/bash
# Stages within a node, data parallelism over the nodes; by default ResNet-50 on ImageNet. The tasks of a
# node are the stages of one network, so activations stay in the node. Each node trains on its share of the
# batch, and gradients alone cross the network.
#
#   sbatch jobs/resnet_hybrid.sh                        after editing the two lines marked EDIT
#   sbatch --nodes=8 --ntasks-per-node=4 jobs/resnet_hybrid.sh
#                                                       4 stages on 8 nodes
#   KOLO_STAGES=2 sbatch --nodes=8 --gpus-per-node=4 --ntasks-per-node=4 --cpus-per-task=16 \
#       jobs/resnet_hybrid.sh                           on GPUs, one task each: 2 stages, 2 replicas a node
#
# The same sbatch again goes on from the last checkpoint; near the time limit the job checkpoints
# and requeues itself. docs/pipelines.md tells how to choose stages, micro-batches and order.
##SBATCH --account=EDIT_ME                # EDIT 1: remove one '#' and name your account
#SBATCH --job-name=kolo-hybrid
#SBATCH --nodes=2
#SBATCH --ntasks-per-node=2
#SBATCH --time=24:00:00
#SBATCH --signal=B:USR1@300
#SBATCH --requeue
#SBATCH --open-mode=append
#SBATCH --output=%x-%j.out
set -uo pipefail

: "${KOLO_DATASET:=/path/to/imagenet}"   # EDIT 2: folder with train/ and val/, made by jobs/pack_dataset.sh
: "${KOLO_RECIPE:=resnet50_imagenet}"    # a name in share/recipes, or a path
: "${KOLO_STAGES:=${SLURM_NTASKS_PER_NODE:-2}}" # all tasks of a node, or a number that divides them
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
[ "$KOLO_STAGES" -gt 1 ] || job_die 78 \
    "KOLO_STAGES=$KOLO_STAGES is no pipeline: sbatch --ntasks-per-node=2 or more, or KOLO_STAGES=2 or more"

# The weights are the same bytes whatever the stages, replicas and order (on GPUs with deterministic=true), so
# the next start may have others.
# shellcheck disable=SC2086 # KOLO_ARGS is a list of words
job_train run="$KOLO_RUN" stages="$KOLO_STAGES" stages_in_node=true micro_batch="$KOLO_MICRO_BATCH" \
    bn=ghost reduce=canonical $KOLO_ARGS
