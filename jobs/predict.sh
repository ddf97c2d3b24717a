#!/bin/bash
# Predicts the classes or boxes of all images in a folder: a CSV file with a line for each.
#
#   KOLO_RUN=runs/birds KOLO_IN=photos sbatch jobs/predict.sh
#   KOLO_ARGS="checkpoint=best top=1" KOLO_RUN=runs/birds KOLO_IN=photos KOLO_PREDICTIONS=birds.csv \
#       sbatch jobs/predict.sh
##SBATCH --account=EDIT_ME                # EDIT 1: remove one '#' and name your account
#SBATCH --job-name=kolo-predict
#SBATCH --nodes=1
#SBATCH --ntasks-per-node=1
#SBATCH --time=01:00:00
#SBATCH --output=%x-%j.out
set -uo pipefail

: "${KOLO_RUN:=/path/to/runs/recipe}"    # EDIT 2: the run folder
: "${KOLO_IN:=/path/to/images}"          # EDIT 3: a folder of images
: "${KOLO_PREDICTIONS:=predictions.csv}" # the file to write
: "${KOLO_ARGS:=}"                       # further key=value words

# kolo_job.sh lies beside this template, of which sbatch runs a copy, or where Kolo is installed
# shellcheck source=jobs/kolo_job.sh
PATH=$PATH:${0%/*}:$(dirname "$(squeue -hj "${SLURM_JOB_ID:-0}" -o %o 2> /dev/null | head -n 1)")\
:${KOLO_ROOT:-}/share/kolo/jobs:@ROOT@/share/kolo/jobs . kolo_job.sh ||
    { echo "No Kolo: sbatch --export=ALL,KOLO_ROOT=FOLDER, the one with bin/kolo in it" >&2 && exit 78; }
job_begin
[ -r "$KOLO_RUN/recipe.yaml" ] || job_die 78 "KOLO_RUN=$KOLO_RUN is no run folder: it holds no recipe.yaml"
[ -d "$KOLO_IN" ] || job_die 78 "KOLO_IN=$KOLO_IN is no folder: edit the line marked EDIT 3"
# shellcheck disable=SC2086 # KOLO_ARGS is a list of words
job_srun --nodes=1 --ntasks=1 --output="$KOLO_PREDICTIONS" --error="$KOLO_PREDICTIONS.log" \
    kolo predict run="$KOLO_RUN" --csv "$KOLO_IN" $KOLO_ARGS
cat "$KOLO_PREDICTIONS.log"
job_say "ended with status $job_status; $KOLO_PREDICTIONS has $(wc -l < "$KOLO_PREDICTIONS") lines"
[ "$job_status" != 2 ] || job_say "images that could not be read have the cause in their last column"
exit "$job_status"
