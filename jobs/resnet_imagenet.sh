#!/bin/bash
# Data-parallel training on packed images; by default ResNet-50 on ImageNet.
#
#   sbatch jobs/resnet_imagenet.sh                      after editing the two lines marked EDIT
#   KOLO_RECIPE=resnet18_imagenette KOLO_DATASET=/data/imagenette sbatch --nodes=2 jobs/resnet_imagenet.sh
#   sbatch --gpus-per-node=4 --ntasks-per-node=4 --cpus-per-task=16 jobs/resnet_imagenet.sh
#                                                       on GPUs, one task each
#
# The same sbatch again goes on from the last checkpoint; near the time limit the job checkpoints
# and requeues itself.
##SBATCH --account=EDIT_ME                # EDIT 1: remove one '#' and name your account
#SBATCH --job-name=kolo-resnet
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
# stable: requeue and resubmission resume
: "${KOLO_RUN:=${SLURM_SUBMIT_DIR:-$PWD}/runs/$(basename "$KOLO_RECIPE" .yaml)}"
: "${KOLO_ARGS:=}"                       # further key=value words

# kolo_job.sh lies beside this template, of which sbatch runs a copy, or where Kolo is installed
# shellcheck source=jobs/kolo_job.sh
PATH=$PATH:${0%/*}:$(dirname "$(squeue -hj "${SLURM_JOB_ID:-0}" -o %o 2> /dev/null | head -n 1)")\
:${KOLO_ROOT:-}/share/kolo/jobs:@ROOT@/share/kolo/jobs . kolo_job.sh ||
    { echo "No Kolo: sbatch --export=ALL,KOLO_ROOT=FOLDER, the one with bin/kolo in it" >&2 && exit 78; }
job_begin
job_check_gpus
# shellcheck disable=SC2086 # KOLO_ARGS is a list of words
job_train run="$KOLO_RUN" $KOLO_ARGS
