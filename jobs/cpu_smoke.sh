#!/bin/bash
# Acceptance test of a site, one minute, no GPU and no data set: 2 nodes x 2 tasks (1 where a node has 1 CPU)
# check launcher, network and storage, sum, draw images, pack them, train a small network on them, and
# evaluate it. Each figure is printed beside its bar; the job fails where one is missed, and says which.
#
#   sbatch jobs/cpu_smoke.sh
##SBATCH --account=EDIT_ME                # EDIT: remove one '#' and name your account
#SBATCH --job-name=kolo-smoke
#SBATCH --nodes=2
#SBATCH --exclusive
#SBATCH --time=00:10:00
#SBATCH --open-mode=append
#SBATCH --output=%x-%j.out
set -uo pipefail

: "${KOLO_WORK:=${SLURM_SUBMIT_DIR:-$PWD}/runs/smoke-${SLURM_JOB_ID:-0}}"
: "${KOLO_MIN_BUSBW:=0.05}"              # GB/s of a 4 MiB allreduce: half of what gigabit Ethernet carries
: "${KOLO_MIN_TOP1:=0.3}"                # ten classes: 0.1 is chance, 0.4 to 0.6 is usual after these epochs

# kolo_job.sh lies beside this template, of which sbatch runs a copy, or where Kolo is installed
# shellcheck source=jobs/kolo_job.sh
PATH=$PATH:${0%/*}:$(dirname "$(squeue -hj "${SLURM_JOB_ID:-0}" -o %o 2> /dev/null | head -n 1)")\
:${KOLO_ROOT:-}/share/kolo/jobs:@ROOT@/share/kolo/jobs . kolo_job.sh ||
    { echo "No Kolo: sbatch --export=ALL,KOLO_ROOT=FOLDER, the one with bin/kolo in it" >&2 && exit 78; }
job_begin
mkdir -p "$KOLO_WORK" ||
    job_die 3 "KOLO_WORK=$KOLO_WORK cannot be made: submit from a shared folder that can be written"
nodes=${SLURM_JOB_NUM_NODES:-1} cpus=${SLURM_CPUS_ON_NODE:-1}
export SLURM_NTASKS_PER_NODE=${SLURM_NTASKS_PER_NODE:-$((cpus < 2 ? 1 : 2))}
tasks=$((nodes * SLURM_NTASKS_PER_NODE))
export SLURM_NTASKS=$tasks
[ "$nodes" -gt 1 ] || job_say "smoke test: one node only, so no network is tested"

export KOLO_DEVICE=cpu
failed=""
step() { # NAME COMMAND...: what it prints stays in $KOLO_WORK/step.log
    local name=$1
    shift
    job_srun "$@" > "$KOLO_WORK/step.log"
    cat "$KOLO_WORK/step.log"
    [ "$job_status" = 0 ] || job_die "$job_status" "smoke test: $name failed (see above)"
    job_say "smoke test: $name works"
}
judge() { # WHAT FIGURE RELATION BAR: relation as awk has it
    if awk "BEGIN { exit !(\"$2\" != \"\" && $2+0 $3 $4) }"; then
        job_say "smoke test: $1 $2 (bar: $3 $4) passed"
    else
        job_say "smoke test: $1 ${2:-unknown} (bar: $3 $4) FAILED"
        failed="${failed:+$failed, }$1"
    fi
}
epoch_loss() { # EPOCH: mean over its steps
    sed -n "s/.*\"event\":\"step\".*\"epoch\":$1,\"loss\":\([^,}]*\).*/\1/p" "$KOLO_WORK/run/events.jsonl" |
        awk '{ sum += $1 } END { if (NR) printf "%.4f", sum / NR }'
}

data=$KOLO_WORK/data epochs=8
step doctor kolo doctor run="$KOLO_WORK"
step allreduce kolo bench gradients min=4M max=4M
busbw=$(awk '$1 == 4194304 { print $8 }' "$KOLO_WORK/step.log")
[ "$tasks" = 1 ] || judge "allreduce bandwidth (GB/s)" "$busbw" ">=" "$KOLO_MIN_BUSBW"
step packing kolo-pack --source shapes --split train --count 4096 --out "$data/train"
step "packing of validation images" \
    kolo-pack --source shapes --split val --count 512 --out "$data/val" --stats-from "$data/train"
step training kolo train shapes model=lenet5 optimizer=adam lr=0.002 weight_decay=0 batch=32 crop=none \
    epochs=$epochs data="$data/train" val=none run="$KOLO_WORK/run"
first=$(epoch_loss 0)
judge "loss of the last epoch" "$(epoch_loss $((epochs - 1)))" "<" "$(awk \
    "BEGIN { printf \"%.4f\", 0.8 * ${first:-0} }")"
step evaluation kolo eval shapes val="$data/val" run="$KOLO_WORK/run"
judge "top-1" "$(sed -n 's/.*top-1 \([0-9.]*\).*/\1/p' "$KOLO_WORK/step.log")" ">=" "$KOLO_MIN_TOP1"
case $failed in
    "") job_say "smoke test: everything works" ;;
    allreduce*) job_die 69 \
        "smoke test: bar missed: $failed; is it the right network (KOLO_SITE_ENV=infiniband)?" ;;
    *) job_die 70 "smoke test: bar missed: $failed; please report it with this log" ;;
esac
