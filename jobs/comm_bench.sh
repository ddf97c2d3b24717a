#!/bin/bash
# How fast the ranks of a job sum, on GPUs by NCCL (or through host memory), on CPUs over shared memory and MPI: the first thing to look at when
# a training run is slow, and the check that every sum is right.
#
#   sbatch --gpus-per-node=4 --ntasks-per-node=4 jobs/comm_bench.sh
#   KOLO_SITE_ENV=slingshot KOLO_ARGS="max=1G format=osu" sbatch --nodes=8 --gpus-per-node=4 --ntasks-per-node=4 jobs/comm_bench.sh
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

: "${KOLO_ARGS:=}" # min=8 max=64M iterations=N check=1 format=nccl|osu, and options of kolo such as reducer=staged

# lib.sh lies beside this template, of which sbatch runs a copy, or where Kolo is installed
submitted=${SLURM_JOB_ID:+$(scontrol show job "$SLURM_JOB_ID" | sed -n '/^ *Command=/{s///;s|/[^/]*$||p;q}')}
for jobs in "$(dirname "$0")" "$submitted" "${KOLO_ROOT:-}/share/kolo/jobs" module @ROOT@/share/kolo/jobs; do
    [ "$jobs" != module ] || { module load kolo; jobs=${KOLO_ROOT:-}/share/kolo/jobs; } > /dev/null 2>&1
    grep -qs '^job_begin()' "$jobs/lib.sh" && break
done
# shellcheck source=jobs/lib.sh
. "$jobs/lib.sh" || { echo "No Kolo: sbatch --export=ALL,KOLO_ROOT=FOLDER, the one with bin/kolo in it" >&2; exit 78; }
job_begin "$jobs"
job_check_gpus
# shellcheck disable=SC2086 # KOLO_ARGS is a list of words
job_srun kolo bench gradients $KOLO_ARGS
[ "$job_status" = 0 ] || job_say "ended with status $job_status: see above; NCCL_DEBUG=INFO in the environment says more"
exit "$job_status"
