# shellcheck shell=bash
# The frame that every Kolo job shares: find the programs, start the ranks, hand signals on, requeue, sum up.
# Templates find it by the PATH, on which they put the folders where it may lie for that one line.
#
# Variables a job may set (all optional). Each option of kolo is one too, KOLO_<KEY>: KOLO_STAGING=auto copies
# the data to a disk of each node first. So no variable of jobs has the name of an option and means something
# else (tests/lint/environment.t).
#   KOLO_MAX_RESTARTS=N   requeues at most (default 200)
#   KOLO_DRY_RUN=1        print the srun line and stop
#   SLURM_MPI_TYPE        plugin of `srun --mpi` (default pmix)
#   KOLO_SITE_ENV=FILE    sourced first: modules and network settings of this computing centre; or the name of
#                         a file that comes with Kolo (share/site): infiniband, slingshot, ethernet, efa
#   KOLO_IDLE_GPUS=1      allow fewer tasks on a node than it has GPUs

job_folder=$(cd "$(dirname "${BASH_SOURCE[0]}")" && pwd)
job_say() { printf '[%s] %s\n' "$(date '+%F %T')" "$*"; }
job_die() { # STATUS TEXT: ends the job
    local status=$1
    shift
    job_say "ERROR: $*" >&2
    exit "$status"
}

# Puts kolo on the PATH: as loaded by a module, as installed beside this file, or as built in the source tree.
job_find_kolo() {
    local folder
    command -v kolo > /dev/null 2>&1 && return 0
    for folder in "$job_folder/../../../bin" "$job_folder/../build/bin"; do
        if [ -x "$folder/kolo" ]; then
            PATH=$(cd "$folder" && pwd):$PATH
            export PATH
            return 0
        fi
    done
    if ! type module > /dev/null 2>&1; then
        local init
        for init in "${MODULESHOME:-/nowhere}/init/bash" "${LMOD_PKG:-/nowhere}/init/profile" \
            /etc/profile.d/modules.sh; do
            # shellcheck disable=SC1090
            [ -r "$init" ] && . "$init" && break
        done
    fi
    type module > /dev/null 2>&1 && module load kolo > /dev/null 2>&1
    command -v kolo > /dev/null 2>&1 ||
        job_die 69 "no program kolo: module load kolo, or build it (make) and submit from the source tree"
}

# Sources the site's file and says what it has set.
job_site() {
    local file=$KOLO_SITE_ENV place before known
    for place in "$job_folder/../share/site" "$job_folder/../site"; do # in the source tree, installed
        case $file in */*) break ;; esac
        [ -r "$place/$file.sh" ] && file=$place/$file.sh
    done
    known=$(cd "$job_folder" && find ../share/site ../site -name '*.sh' -printf '%f\n' 2> /dev/null |
        sed 's/\.sh$//' | sort | tr '\n' ' ')
    [ -r "$file" ] || job_die 78 "KOLO_SITE_ENV=$KOLO_SITE_ENV is neither a file nor one of: $known"
    before=$(env | sort)
    # shellcheck disable=SC1090
    . "$file" || job_die 78 "KOLO_SITE_ENV=$KOLO_SITE_ENV: $file failed"
    job_say "site settings of $file:"
    comm -13 <(echo "$before") <(env | sort) | grep -v '^_=' | sed 's/^/    /'
}

# One task drives one GPU. A GPU that nobody drives is a request to be mended before a day of it is wasted;
# too many tasks are refused by kolo itself, which knows whether they may share.
job_check_gpus() {
    local gpus=${SLURM_GPUS_ON_NODE:-0} tasks=${SLURM_NTASKS_PER_NODE:-}
    : "${tasks:=$((${SLURM_NTASKS:-1} / ${SLURM_JOB_NUM_NODES:-1}))}"
    if [ "$gpus" -gt "$tasks" ] && [ -z "${KOLO_IDLE_GPUS:-}" ]; then
        job_die 78 \
            "$gpus GPUs but $tasks tasks a node, and each task drives one GPU: sbatch --ntasks-per-node=$gpus ..., or KOLO_IDLE_GPUS=1"
    fi
}

job_begin() {
    [ -n "${KOLO_SITE_ENV:-}" ] && job_site
    export SLURM_EXPORT_ENV=ALL # sites that submit with --export=NONE
    # Every task sees all GPUs that the job has on its node, and kolo picks: one that sees its own
    # alone cannot reach the others' directly. (--gpu-bind=none is no way: it hides from the tasks
    # which GPUs are the job's.)
    unset SLURM_GPUS_PER_TASK SLURM_TRES_PER_TASK
    trap 'job_forward USR1' USR1
    trap 'job_forward TERM' TERM
    job_find_kolo
    local name=${SLURM_JOB_NAME:-} nodes=${SLURM_JOB_NODELIST:-$(hostname)} start=${SLURM_RESTART_COUNT:-0}
    job_say "job ${SLURM_JOB_ID:-none} \"$name\" on $nodes, start $start, $(kolo version | head -n 1)"
    env | grep -E '^(SLURM_(JOB|NNODES|NTASKS|CPUS|GPUS|TASKS|MPI|RESTART)|CUDA_VISIBLE|NCCL_|KOLO_)' | sort |
        sed 's/^/    /' || true
}

# CPUs of one task: as asked, or an equal share of the node.
job_cpus() {
    local tasks=${SLURM_NTASKS_PER_NODE:-1} cpus=${SLURM_CPUS_ON_NODE:-1}
    cpus=${SLURM_CPUS_PER_TASK:-$((cpus / tasks))}
    [ "$cpus" -ge 1 ] || cpus=1
    echo "$cpus"
}

# As Slurm's commands take it: the number of one task of an array may be that of the whole array, too.
job_id=${SLURM_ARRAY_JOB_ID:+${SLURM_ARRAY_JOB_ID}_$SLURM_ARRAY_TASK_ID}
job_id=${job_id:-${SLURM_JOB_ID:-0}}
job_pid="" job_signal="" job_status=0
# A signal for the ranks: they write a checkpoint and end with 75. TERM (scancel, pre-emption, the limit
# itself) outweighs USR1, the warning before the limit.
job_forward() { # SIGNAL
    [ "$job_signal" = TERM ] || job_signal=$1
    [ -n "$job_pid" ] && kill -USR1 "$job_pid" 2> /dev/null
    job_say "SIG$1: the ranks were asked to write a checkpoint and stop"
}

# Runs a command under srun, in the background so that the shell can hand signals on; sets job_status.
job_srun() { # COMMAND...
    local line=(srun "--mpi=${SLURM_MPI_TYPE:-pmix}" "--cpus-per-task=$(job_cpus)" --kill-on-bad-exit=1 \
        --wait=60 --distribution=block:block "$@")
    job_say "${line[*]}"
    if [ -n "${KOLO_DRY_RUN:-}" ]; then exit 0; fi
    job_status=75
    [ -z "$job_signal" ] || return 0 # it came before, or between two commands
    "${line[@]}" &
    job_pid=$!
    while true; do
        wait "$job_pid"
        job_status=$?
        kill -0 "$job_pid" 2> /dev/null || break # a trapped signal ends `wait`, not srun
    done
    job_pid=""
}

# Why the ranks were stopped, as Slurm reports it: `warned` (USR1 before the time limit), `limit` (it has
# come), `preempted` (within the time of grace), `requeued` (by Slurm itself, as where that time is over), or
# `cancelled`. `signalled`: by a process unknown to Slurm. scancel, pre-emption and the limit all send
# TERM; the state that Slurm shows tells them apart.
job_cause() {
    local job
    # SIGNALING is a running job that is just being sent a signal
    job=$(scontrol show job "$job_id" 2> /dev/null | tr '\n' ' ' |
        sed 's/JobState=SIGNALING/JobState=RUNNING/')
    case $job in
        "" | *" Restarts=${SLURM_RESTART_COUNT:-0} "*) ;;
        *) echo requeued && return ;;
    esac
    case $job_signal$job in
        *" Reason=TimeLimit "*) echo limit ;;
        *JobState=RUNNING*" PreemptTime=2"*) echo preempted ;;
        USR1*JobState=RUNNING*) echo warned ;;
        "$job_signal" | *JobState=RUNNING*) echo signalled ;;
        *) echo cancelled ;;
    esac
}

# Acts on 75: a job that was warned or pre-empted, or came to its limit, goes back to the queue. Returns
# where it does not. With steps, and a file that keeps those done at the last requeue, a job that does not
# move on is not requeued.
job_requeue() { # HOW IT GOES ON [FILE STEPS]
    local cause last
    cause=$(job_cause)
    case $cause in
        requeued) job_say "Slurm has requeued this job; $1" && exit 75 ;;
        preempted) ;;
        warned | limit)
            last=$(cat "${2:-/dev/null}" 2> /dev/null)
            [ -z "$last" ] || [ "$last" != "$3" ] ||
                job_die 75 \
                    "no step was done since the last requeue: too short a time limit for one step and one checkpoint"
            [ -z "${2:-}" ] || echo "$3" > "$2"
            ;;
        *) job_say "$cause, so not requeued; submitted again, $1" && return 0 ;;
    esac
    if [ "${SLURM_RESTART_COUNT:-0}" -ge "${KOLO_MAX_RESTARTS:-200}" ]; then
        job_die 75 "requeued ${SLURM_RESTART_COUNT:-0} times already (KOLO_MAX_RESTARTS)"
    fi
    job_say "requeued ($cause); $1"
    trap - USR1 TERM # Slurm ends this shell at once; leaving first would mark the job completed
    scontrol requeue "$job_id" && sleep 60
    job_say "Slurm did not requeue it; submitted again, $1"
}

job_steps() { # RUN: optimizer steps done, from its summary
    sed -n 's/.*"steps": *\([0-9]*\).*/\1/p' "$1/summary.json" 2> /dev/null | head -n 1
}

# What to do about job_status, one of the table in docs/failures.md.
job_advice() { # FOLDER THAT IS WRITTEN, HOW THE SAME SBATCH GOES ON
    local on="then the same sbatch goes on $2"
    case $job_status in
        2) echo "mend the data or the weights that the message above names; $on" ;;
        3) echo "make room, or mend what the message above names (disk full, quota, rights); $on" ;;
        69) echo \
            "a rank, a node, a GPU or the launcher failed: the message above names it, kolo doctor checks it; $on" \
            ;;
        70) echo "this is a defect of Kolo: please report it with this log; $on" ;;
        71) echo "give the job more memory (sbatch --mem=...), or the ranks less to hold (a smaller" \
            "micro_batch= or prefetch=; for kolo-pack fewer --threads); $on" ;;
        78) echo "change what the message above names, or take another folder: the same sbatch would end" \
            "in the same way. What $1 holds is untouched" ;;
        *) echo \
            "read the last lines above; from 129 on it is 128 and the signal that ended a rank (137: often too little" \
            "memory); $on" ;;
    esac
}

# Acts on the exit code: 75 goes back to the queue, as long as the run moves on.
job_end() { # RUN
    local run=$1 steps
    steps=$(job_steps "$run")
    job_say "ended with status $job_status; $run holds ${steps:-0} steps; ${SECONDS} s in this start"
    case $job_status in
        0) ;;
        75)
            # the ranks alone may have had the warning: sbatch --signal=USR1@300
            [ -n "$job_signal" ] || ! grep -qs '"state": *"requeue"' "$run/summary.json" || job_signal=USR1
            job_requeue "it goes on from step ${steps:-0}" "$run/.last_steps" "${steps:-0}"
            ;;
        *) job_say "what to do: $(job_advice "$run" "from the last checkpoint in $run, if there is one")" ;;
    esac
    [ -r "$run/summary.json" ] && cat "$run/summary.json"
    exit "$job_status"
}

# Trains KOLO_RECIPE on the data in KOLO_DATASET and ends the job.
job_train() { # run=FOLDER WORDS of `kolo train`...
    local val=none
    [ -d "$KOLO_DATASET" ] || job_die 78 \
        "KOLO_DATASET=$KOLO_DATASET is no folder: edit the line marked EDIT 2, or pack the data first (jobs/pack_dataset.sh)"
    [ -d "$KOLO_DATASET/train" ] ||
        job_die 78 \
            "KOLO_DATASET=$KOLO_DATASET holds no folder train: it is the one with train/ and val/ in it (EDIT 2)"
    [ -d "$KOLO_DATASET/val" ] && val=$KOLO_DATASET/val
    job_srun kolo train "$KOLO_RECIPE" data="$KOLO_DATASET/train" val="$val" "$@"
    job_end "${1#run=}"
}
