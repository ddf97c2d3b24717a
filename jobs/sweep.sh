#!/bin/bash
# A sweep as a job array: task number i trains with the i-th of KOLO_SWEEP, in a run folder of its own.
#
#   KOLO_RECIPE=birds.yaml KOLO_RUNS=runs/sweep KOLO_SWEEP="lr=0.02 lr=0.05,batch=128 lr=0.1" \
#       sbatch --array=0-2 jobs/sweep.sh
#   kolo report runs/sweep/*                which one was best
#
# Each task goes on from its last checkpoint and requeues itself, as every training does.
##SBATCH --account=EDIT_ME                # EDIT 1: remove one '#' and name your account
#SBATCH --job-name=kolo-sweep
#SBATCH --nodes=1
#SBATCH --ntasks-per-node=1
#SBATCH --time=24:00:00
#SBATCH --signal=B:USR1@300
#SBATCH --requeue
#SBATCH --open-mode=append
#SBATCH --output=%x-%A_%a.out
set -uo pipefail

: "${KOLO_RECIPE:=/path/to/recipe.yaml}" # EDIT 2: one that names its data
: "${KOLO_RUNS:=/path/to/runs/sweep}"    # EDIT 3: folder of the run folders
: "${KOLO_SWEEP:=lr=0.03 lr=0.1 lr=0.3}" # of each task, several options joined by commas
: "${KOLO_ARGS:=}"                       # further key=value words of all

# kolo_job.sh lies beside this template, of which sbatch runs a copy, or where Kolo is installed
# shellcheck source=jobs/kolo_job.sh
PATH=$PATH:${0%/*}:$(dirname "$(squeue -hj "${SLURM_JOB_ID:-0}" -o %o 2> /dev/null | head -n 1)")\
:${KOLO_ROOT:-}/share/kolo/jobs:@ROOT@/share/kolo/jobs . kolo_job.sh ||
    { echo "No Kolo: sbatch --export=ALL,KOLO_ROOT=FOLDER, the one with bin/kolo in it" >&2 && exit 78; }
job_begin
job_check_gpus
read -ra tasks <<< "$KOLO_SWEEP"
number=${SLURM_ARRAY_TASK_ID:-}
case $number in '' | *[!0-9]*) number=${#tasks[@]} ;; esac
[ "$number" -lt ${#tasks[@]} ] || job_die 78 \
    "KOLO_SWEEP has ${#tasks[@]} tasks: sbatch --array=0-$((${#tasks[@]} - 1)) ..."
IFS=, read -ra own <<< "${tasks[number]}"
run=$KOLO_RUNS/${tasks[number]//\//_}
# shellcheck disable=SC2086 # KOLO_ARGS is a list of words
job_srun kolo train "$KOLO_RECIPE" $KOLO_ARGS "${own[@]}" run="$run"
job_end "$run"
