#!/bin/bash
# Acceptance of nodes by a support team: kolo doctor on all of them at once, with the speed of every node and
# of the network between every two. Names the slow ones; ends with 69 where there are some, and with the line
# for sbatch that leaves them out.
#
#   sbatch --nodes=16 jobs/doctor.sh
#   sbatch --nodes=16 --gpus-per-node=4 --ntasks-per-node=4 jobs/doctor.sh
#   KOLO_DATASET=/scratch/imagenet sbatch --nodes=16 jobs/doctor.sh          reads there, too
##SBATCH --account=EDIT_ME                # EDIT: remove one '#' and name your account
#SBATCH --job-name=kolo-doctor
#SBATCH --nodes=2
#SBATCH --ntasks-per-node=1
#SBATCH --exclusive
#SBATCH --time=00:20:00
#SBATCH --open-mode=append
#SBATCH --output=%x-%j.out
set -uo pipefail

: "${KOLO_WORK:=${SLURM_SUBMIT_DIR:-$PWD}/runs/doctor-${SLURM_JOB_ID:-0}}" # checks, and the site file
: "${KOLO_DATASET:=}"                     # a folder with packed images in train/
: "${KOLO_ARGS:=}"                        # further words of kolo doctor: device=cuda, --json

# kolo_job.sh lies beside this template, of which sbatch runs a copy, or where Kolo is installed
# shellcheck source=jobs/kolo_job.sh
PATH=$PATH:${0%/*}:$(dirname "$(squeue -hj "${SLURM_JOB_ID:-0}" -o %o 2> /dev/null | head -n 1)")\
:${KOLO_ROOT:-}/share/kolo/jobs:@ROOT@/share/kolo/jobs . kolo_job.sh ||
    { echo "No Kolo: sbatch --export=ALL,KOLO_ROOT=FOLDER, the one with bin/kolo in it" >&2 && exit 78; }
job_begin
job_check_gpus
mkdir -p "$KOLO_WORK" ||
    job_die 3 "KOLO_WORK=$KOLO_WORK cannot be made: submit from a shared folder that can be written"
site=$KOLO_WORK/site.yaml
rm -f "$site"
# shellcheck disable=SC2086 # KOLO_ARGS is a list of words
job_srun kolo doctor --all-pairs --site "$site" run="$KOLO_WORK" \
    ${KOLO_DATASET:+data="$KOLO_DATASET/train"} $KOLO_ARGS
case $job_status in
    0) job_say "all checks passed; options of this site: $site, for KOLO_SITE" ;;
    *) job_say "ended with status $job_status: each line marked FAIL says what is wrong and what to do" ;;
esac
exit "$job_status"
