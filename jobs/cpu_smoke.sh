#!/bin/bash
# Acceptance test of a site, one minute, no GPU and no data set: 2 nodes x 2 tasks check the launcher, the network and the storage,
# draw pictures, pack them, train a small ResNet on them, and evaluate.
#
#   sbatch jobs/cpu_smoke.sh
##SBATCH --account=EDIT_ME                # EDIT: remove one '#' and name your account
#SBATCH --job-name=kolo-smoke
#SBATCH --nodes=2
#SBATCH --ntasks-per-node=2
#SBATCH --time=00:10:00
#SBATCH --open-mode=append
#SBATCH --output=%x-%j.out
set -uo pipefail

: "${KOLO_WORK:=${SLURM_SUBMIT_DIR:-$PWD}/runs/smoke-${SLURM_JOB_ID:-0}}"

# sbatch runs a copy of this file; lib.sh lies beside the original, or in the installed tree
for jobs in "$(scontrol show job "${SLURM_JOB_ID:-0}" 2> /dev/null | sed -n 's|^ *Command=\(.*\)/[^/]*$|\1|p' | head -n 1)" \
    "$(dirname "$0")" "${KOLO_ROOT:-.}/share/kolo/jobs"; do
    [ -r "$jobs/lib.sh" ] && break
done
# shellcheck source=jobs/lib.sh
. "$jobs/lib.sh" || exit 78

job_begin "$jobs"
mkdir -p "$KOLO_WORK" || job_die 3 "KOLO_WORK=$KOLO_WORK cannot be made: submit from a shared folder that can be written"
step() { # NAME COMMAND...
    local name=$1
    shift
    job_srun "$@"
    [ "$job_status" = 0 ] || job_die "$job_status" "smoke test: $name failed (see above)"
    job_say "smoke test: $name works"
}
step doctor kolo doctor run="$KOLO_WORK"
step packing kolo-pack --source shapes --split train --count 512 --out "$KOLO_WORK/data/train"
step "packing of validation pictures" kolo-pack --source shapes --split val --count 128 --out "$KOLO_WORK/data/val" --stats-from "$KOLO_WORK/data/train"
step training kolo train shapes data="$KOLO_WORK/data/train" val="$KOLO_WORK/data/val" run="$KOLO_WORK/run" epochs=2
step evaluation kolo eval shapes val="$KOLO_WORK/data/val" run="$KOLO_WORK/run"
job_say "smoke test: everything works"
