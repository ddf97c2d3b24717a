#!/bin/bash
# Packs an image set into HDF5 shards, on all tasks of the job: a million files in, some hundred out.
#
#   KOLO_SOURCE=imagefolder KOLO_IN=/data/ILSVRC2012 KOLO_DATASET=/scratch/imagenet \
#       sbatch jobs/pack_dataset.sh
#
# Writes KOLO_DATASET/train and KOLO_DATASET/val. The same sbatch again goes on where it stopped.
##SBATCH --account=EDIT_ME                # EDIT 1: remove one '#' and name your account
#SBATCH --job-name=kolo-pack
#SBATCH --nodes=1
#SBATCH --ntasks-per-node=1
#SBATCH --time=06:00:00
#SBATCH --signal=B:USR1@120
#SBATCH --requeue
#SBATCH --open-mode=append
#SBATCH --output=%x-%j.out
set -uo pipefail

: "${KOLO_SOURCE:=imagefolder}"
: "${KOLO_IN:=/path/to/images}"        # EDIT 2: where the images are
: "${KOLO_DATASET:=${SLURM_SUBMIT_DIR:-$PWD}/data}"
: "${KOLO_SPLITS:=train val}"
: "${KOLO_ARGS:=}"                       # further flags of kolo-pack

# kolo_job.sh lies beside this template, of which sbatch runs a copy, or where Kolo is installed
# shellcheck source=jobs/kolo_job.sh
PATH=$PATH:${0%/*}:$(dirname "$(squeue -hj "${SLURM_JOB_ID:-0}" -o %o 2> /dev/null | head -n 1)")\
:${KOLO_ROOT:-}/share/kolo/jobs:@ROOT@/share/kolo/jobs . kolo_job.sh ||
    { echo "No Kolo: sbatch --export=ALL,KOLO_ROOT=FOLDER, the one with bin/kolo in it" >&2 && exit 78; }
job_begin
case $KOLO_SOURCE in shapes | scenes) KOLO_IN= ;; esac # made on the spot
if [ -n "$KOLO_IN" ] && [ ! -e "$KOLO_IN" ]; then
    job_die 78 "KOLO_IN=$KOLO_IN is not there: edit the line marked EDIT 2"
fi
for split in $KOLO_SPLITS; do
    out=$KOLO_DATASET/$split
    flags=()
    [ -d "$out" ] && flags+=(--resume)
    [ -n "$KOLO_IN" ] && flags+=(--in "$KOLO_IN")
    [ "$split" != train ] && [ -d "$KOLO_DATASET/train" ] && flags+=(--stats-from "$KOLO_DATASET/train")
    # shellcheck disable=SC2086 # KOLO_ARGS is a list of words
    job_srun kolo-pack --source "$KOLO_SOURCE" --split "$split" --out "$out" "${flags[@]}" $KOLO_ARGS
    [ "$job_status" = 75 ] && job_requeue "packing goes on where it stopped"
    [ "$job_status" = 0 ] ||
        job_die "$job_status" "packing $split failed; what to do: $(job_advice "$out" "where it stopped")"
    job_srun --nodes=1 --ntasks=1 kolo-shards verify "$out"
    [ "$job_status" = 75 ] && job_requeue "it is packed, and will be verified"
    [ "$job_status" = 0 ] || job_die "$job_status" "$out does not verify"
    job_say "$out: $(find "$out" -type f | wc -l) files, $(du -sh "$out" | cut -f1)"
done
