#!/bin/bash
# Evaluates a run: top-1 and top-5, AP of a detector, on all ranks of the job.
#
#   KOLO_RUN=runs/birds sbatch jobs/evaluate.sh
#   KOLO_RUN=runs/birds KOLO_ARGS="checkpoint=best val=/data/birds/test" sbatch --nodes=2 jobs/evaluate.sh
##SBATCH --account=EDIT_ME                # EDIT 1: remove one '#' and name your account
#SBATCH --job-name=kolo-evaluate
#SBATCH --nodes=1
#SBATCH --ntasks-per-node=1
#SBATCH --time=01:00:00
#SBATCH --output=%x-%j.out
set -uo pipefail

: "${KOLO_RUN:=/path/to/runs/recipe}"    # EDIT 2: the run folder
: "${KOLO_ARGS:=}"                       # further key=value words

# kolo_job.sh lies beside this template, of which sbatch runs a copy, or where Kolo is installed
# shellcheck source=jobs/kolo_job.sh
PATH=$PATH:${0%/*}:$(dirname "$(squeue -hj "${SLURM_JOB_ID:-0}" -o %o 2> /dev/null | head -n 1)")\
:${KOLO_ROOT:-}/share/kolo/jobs:@ROOT@/share/kolo/jobs . kolo_job.sh ||
    { echo "No Kolo: sbatch --export=ALL,KOLO_ROOT=FOLDER, the one with bin/kolo in it" >&2 && exit 78; }
job_begin
[ -r "$KOLO_RUN/recipe.yaml" ] || job_die 78 "KOLO_RUN=$KOLO_RUN is no run folder: it holds no recipe.yaml"
# shellcheck disable=SC2086 # KOLO_ARGS is a list of words
job_srun kolo eval run="$KOLO_RUN" $KOLO_ARGS
job_say "ended with status $job_status"
exit "$job_status"
