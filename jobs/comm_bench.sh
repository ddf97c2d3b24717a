#!/bin/bash
# How fast the ranks of a job sum, on GPUs by NCCL (or through host memory), on CPUs over shared memory and
# MPI: the first thing to look at when a training run is slow, and the check that every sum is right.
#
#   sbatch --gpus-per-node=4 --ntasks-per-node=4 jobs/comm_bench.sh
#   KOLO_SITE_ENV=slingshot KOLO_ARGS="max=1G format=osu" \
#       sbatch --nodes=8 --gpus-per-node=4 --ntasks-per-node=4 jobs/comm_bench.sh
#   sbatch --nodes=2 --ntasks-per-node=4 jobs/comm_bench.sh             on CPUs
#
# Columns as nccl-tests prints them: busbw is what the slowest link carries, whatever the number of ranks.
##SBATCH --account=EDIT_ME                # EDIT: remove one '#' and name your account
#SBATCH --job-name=kolo-comm-bench
#SBATCH --nodes=2
#SBATCH --ntasks-per-node=1
#SBATCH --time=00:10:00
#SBATCH --open-mode=append
#SBATCH --output=%x-%j.out
set -uo pipefail

# min=8 max=64M iterations=N check=1 format=nccl|osu, and options of kolo such as reducer=staged
: "${KOLO_ARGS:=}"

# kolo_job.sh lies beside this template, of which sbatch runs a copy, or where Kolo is installed
# shellcheck source=jobs/kolo_job.sh
PATH=$PATH:${0%/*}:$(dirname "$(squeue -hj "${SLURM_JOB_ID:-0}" -o %o 2> /dev/null | head -n 1)")\
:${KOLO_ROOT:-}/share/kolo/jobs:@ROOT@/share/kolo/jobs . kolo_job.sh ||
    { echo "No Kolo: sbatch --export=ALL,KOLO_ROOT=FOLDER, the one with bin/kolo in it" >&2 && exit 78; }
job_begin
job_check_gpus
# shellcheck disable=SC2086 # KOLO_ARGS is a list of words
job_srun kolo bench gradients $KOLO_ARGS
[ "$job_status" = 0 ] || job_say \
    "ended with status $job_status: see above; NCCL_DEBUG=INFO in the environment says more"
exit "$job_status"
