#!/bin/bash
# Trains a recipe that names its data itself (data:, val:), as `kolo new` writes them; that also writes this
# script, with the paths filled in.
#
#   KOLO_RECIPE=birds.yaml KOLO_RUN=runs/birds sbatch jobs/train_recipe.sh
#   sbatch --nodes=4 birds.sh                           more nodes: the batch is divided among the ranks
#   sbatch --gpus-per-node=4 --ntasks-per-node=4 --cpus-per-task=16 birds.sh
#                                                       on GPUs, one task each
#
# The same sbatch again goes on from the last checkpoint; near the time limit the job checkpoints
# and requeues itself.
##SBATCH --account=EDIT_ME                # EDIT 1: remove one '#' and name your account
#SBATCH --job-name=kolo-train
#SBATCH --nodes=1
#SBATCH --ntasks-per-node=1
#SBATCH --time=24:00:00
#SBATCH --signal=B:USR1@300
#SBATCH --requeue
#SBATCH --open-mode=append
#SBATCH --output=%x-%j.out
set -uo pipefail

: "${KOLO_RECIPE:=/path/to/recipe.yaml}"
: "${KOLO_RUN:=/path/to/runs/recipe}"
: "${KOLO_ARGS:=}"                       # further key=value words

# kolo_job.sh lies beside this template, of which sbatch runs a copy, or where Kolo is installed
# shellcheck source=jobs/kolo_job.sh
PATH=$PATH:${0%/*}:$(dirname "$(squeue -hj "${SLURM_JOB_ID:-0}" -o %o 2> /dev/null | head -n 1)")\
:${KOLO_ROOT:-}/share/kolo/jobs:@ROOT@/share/kolo/jobs . kolo_job.sh ||
    { echo "No Kolo: sbatch --export=ALL,KOLO_ROOT=FOLDER, the one with bin/kolo in it" >&2 && exit 78; }
job_begin
job_check_gpus
[ -r "$KOLO_RECIPE" ] || job_die 78 \
    "KOLO_RECIPE=$KOLO_RECIPE is not there: name a recipe (kolo new NAME data=DIR)"
# shellcheck disable=SC2086 # KOLO_ARGS is a list of words
job_srun kolo train "$KOLO_RECIPE" run="$KOLO_RUN" $KOLO_ARGS
job_end "$KOLO_RUN"
