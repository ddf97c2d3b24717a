#!/bin/bash
# Images that are too large for one rank, cut into parts: four ranks compute a quarter of each image and of
# every map; by default ResNet-50 on images as large as they are stored. More ranks are replicas of four each.
#
#   sbatch jobs/highres_spatial.sh                      after editing the two lines marked EDIT
#   sbatch --nodes=8 jobs/highres_spatial.sh            4 replicas
#   KOLO_SPATIAL=4x4 sbatch --nodes=4 --ntasks-per-node=4 jobs/highres_spatial.sh
#                                                       16 parts, on the ranks of four nodes
#
# Data to try it:
#   kolo-pack --source shapes --split train --size 4096 --resize exact --count 64 --out DIR/train
#
# The same sbatch again goes on from the last checkpoint, on any number of ranks that the parts can be divided
# among; near the time limit the job checkpoints and requeues itself. docs/large-images.md tells more.
##SBATCH --account=EDIT_ME                # EDIT 1: remove one '#' and name your account
#SBATCH --job-name=kolo-highres
#SBATCH --nodes=2
#SBATCH --ntasks-per-node=2
#SBATCH --time=24:00:00
#SBATCH --signal=B:USR1@300
#SBATCH --requeue
#SBATCH --open-mode=append
#SBATCH --output=%x-%j.out
set -uo pipefail

: "${KOLO_DATASET:=/path/to/dataset}"    # EDIT 2: folder with train/ and val/, made by jobs/pack_dataset.sh
: "${KOLO_RECIPE:=resnet50_imagenet}"    # a name in share/recipes, or a path
: "${KOLO_SPATIAL:=2x2}"                 # rows x columns of parts; also of the run: it stays as it began
# Images a step, of all replicas. Each is a micro-batch, and all parts meet in every one: a few a replica.
: "${KOLO_BATCH:=4}"
: "${KOLO_RUN:=${SLURM_SUBMIT_DIR:-$PWD}/runs/$(basename "$KOLO_RECIPE" .yaml)-$KOLO_SPATIAL}"
: "${KOLO_ARGS:=}"                       # further key=value words: recompute=blocks stages=2

# kolo_job.sh lies beside this template, of which sbatch runs a copy, or where Kolo is installed
# shellcheck source=jobs/kolo_job.sh
PATH=$PATH:${0%/*}:$(dirname "$(squeue -hj "${SLURM_JOB_ID:-0}" -o %o 2> /dev/null | head -n 1)")\
:${KOLO_ROOT:-}/share/kolo/jobs:@ROOT@/share/kolo/jobs . kolo_job.sh ||
    { echo "No Kolo: sbatch --export=ALL,KOLO_ROOT=FOLDER, the one with bin/kolo in it" >&2 && exit 78; }
job_begin
job_check_gpus

# Whole images: nothing is cut off or made smaller. One image at a time, so batch norm is that of its pixels.
# The weights are the same bytes on any ranks (on GPUs with deterministic=true).
# shellcheck disable=SC2086 # KOLO_ARGS is a list of words
job_train run="$KOLO_RUN" spatial="$KOLO_SPATIAL" batch="$KOLO_BATCH" micro_batch=1 crop=none size=0 \
    val_size=0 val_resize=0 bn=ghost reduce=canonical $KOLO_ARGS
