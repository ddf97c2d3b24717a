# shellcheck shell=bash
# TAP for shell tests: source it first; it goes to the repository root, makes $ROOM (a temporary folder,
# removed at the end) and puts the built programs on the PATH. KOLO_BUILD: the build folder; KOLO_SHARED:
# real data sets, may be absent.
set -u
cd "$(dirname "${BASH_SOURCE[0]}")/.." || exit 1
TOP=$PWD
BUILD=${KOLO_BUILD:-build}
case $BUILD in /*) ;; *) BUILD=$TOP/$BUILD ;; esac
export KOLO_SHARED=${KOLO_SHARED:-$TOP/../shared}
PATH=$BUILD/bin:$PATH:/usr/sbin
export PATH
export KOLO_CACHE=$BUILD/tests/cache # choices by clocks are kept there, never in a home
ROOM=$(mktemp -d "${TMPDIR:-/tmp}/kolo-test-XXXXXX") || exit 1
tap_count=0 tap_failed=0
tap_cleanup=()
tap_end() {
    local command
    for command in "${tap_cleanup[@]}"; do eval "$command"; done
    rm -rf "$ROOM"
}
trap tap_end EXIT
at_end() { tap_cleanup+=("$1"); }

# ok, is, like fail where the check does: `ok ... || more words of why`
ok() { # STATUS TEXT [FILE: what was said, shown where it failed]
    tap_count=$((tap_count + 1))
    if [ "$1" = 0 ]; then echo "ok $tap_count - $2" && return; fi
    echo "not ok $tap_count - $2" && tap_failed=1
    [ -z "${3:-}" ] || tail -n 15 "$3" | sed 's/^/#     /'
    return 1
}
is() { # GOT WANT TEXT
    [ "$1" = "$2" ]
    ok $? "$3" && return
    printf '#   got  %s\n#   want %s\n' "${1//$'\n'/ }" "${2//$'\n'/ }"
    return 1
}
like() { # FILE PATTERN TEXT: a line of FILE matches
    grep -qE -- "$2" "$1"
    ok $? "$3" && return
    echo "#   no line matches $2 in:" && tail -n 15 "$1" | sed 's/^/#     /'
    return 1
}
todo() { # STATUS TEXT REASON: known to fail, and why; no failure of the test
    tap_count=$((tap_count + 1))
    [ "$1" = 0 ] || printf 'not '
    echo "ok $tap_count - $2 # TODO $3"
}
skip() { tap_count=$((tap_count + 1)) && echo "ok $tap_count # SKIP $1"; }
skip_all() { # REASON: the whole test, or what is left of it
    [ "$tap_count" = 0 ] || { skip "$1" && done_testing; }
    echo "1..0 # SKIP $1" && exit 0
}
need() { # PROGRAM...
    local program
    for program in "$@"; do command -v "$program" > /dev/null || skip_all "no $program"; done
    case " $* " in *" mpiexec "*) ranks_start || skip_all "built without MPI" ;; esac
}
ranks_start() { command -v mpiexec > /dev/null && ! built_without MPI; } # by mpiexec
# MPICH's launcher; Open MPI's has other options, and Open MPI does not know PMI-2
hydra() { mpiexec --version 2>&1 | grep -qi hydra; }
# Open MPI's starts nothing as root, nor more ranks than cores, and its ranks spin while they
# wait, if it is not told
export OMPI_ALLOW_RUN_AS_ROOT=1 OMPI_ALLOW_RUN_AS_ROOT_CONFIRM=1 OMPI_MCA_rmaps_base_oversubscribe=1 \
    OMPI_MCA_mpi_yield_when_idle=1
built_without() { kolo version 2> /dev/null | grep -qE "^without .*\b$1\b"; } # NAME: of this build, as `ONNX`
# RUN: its newest checkpoint's weights, statistics and state
tensors_of() { find "$1/checkpoints" -name tensors.safetensors | sort | tail -n 1; }
# TEXT COMMAND...: its TAP lines become lines of this test; a run that ends without a plan is a failure of its
# own
ran() {
    local text=$1 line planned=1
    shift
    timeout "${LIMIT:-120}" "$@" > "$ROOM/ran" 2>&1
    local status=$?
    while IFS= read -r line; do
        case $line in
        "ok "* | "not ok "*)
            tap_count=$((tap_count + 1))
            [ "${line%%ok *}" ] && tap_failed=1
            echo "${line%%ok *}ok $tap_count - ${line#* - }"
            ;;
        "#"* | "  "*) echo "$line" ;;
        "1..0 "*) ;;
        "1.."*) planned=0 ;;
        *) [ -n "$line" ] && echo "# $line" ;;
        esac
    done < "$ROOM/ran"
    ok $planned "$text ran to the end"
    [ $planned = 0 ] || echo "#   exit status $status"
}
diag() { sed 's/^/# /'; }
none() { # TEXT ROWS: passes when ROWS is empty, shows them otherwise
    [ -z "$2" ]
    ok $? "$1"
    [ -z "$2" ] || head -n 40 <<< "$2" | diag
}
sources() { # PATH...: files that git knows or would know; without git, all that make did not make
    git ls-files -co --exclude-standard -- "$@" 2> /dev/null ||
        find "$@" \( -name .git -o -path ./build \) -prune -o -type f -print 2> /dev/null | sed 's|^\./||'
}
done_testing() { echo "1..$tap_count" && exit "$tap_failed"; }

# 512 + 128 small images, packed once: $ROOM/data/train, $ROOM/data/val
shapes_data() { # [COUNT [COUNT OF VAL]]
    if ! { kolo-pack --source shapes --split train --count "${1:-512}" --out "$ROOM/data/train" &&
        kolo-pack --source shapes --split val --count "${2:-128}" --stats-from "$ROOM/data/train" --out \
        "$ROOM/data/val"; } > "$ROOM/pack.log" 2>&1; then
        sed 's/^/# /' "$ROOM/pack.log" && echo "Bail out! packing failed" && exit 1
    fi
}
# DIR PID: waits until that packing has finished and noted some samples; fails where it ended before
journalled() {
    until [ -e "$1/.pack/journal" ] && [ -n "$(tr -d '\0' < "$1/.pack/journal" | head -c 1)" ]; do
        kill -0 "$2" 2> /dev/null || return 1
        sleep 0.02
    done
}
# device=cuda on the stand-in for a GPU (tests/standin), for the rest of the test
standin_gpu() {
    export KOLO_CUDA_LIBRARY=$BUILD/standin/libkolo_cuda.so
    [ -e "$KOLO_CUDA_LIBRARY" ] || skip_all \
        "no stand-in for a GPU: it needs the headers of CUDA, cuDNN and NCCL"
}
# a private Slurm for the rest of the test: cluster NODES CPUS [GPUS that each node says it has]
# [LINES of slurm.conf]
cluster() {
    need slurmctld slurmd munged srun
    built_without PMIx && skip_all "built without PMIx"
    export KOLO_MINISLURM_DIR=$ROOM/slurm
    JOBS=$(($$ % 60000 + 1)) # its jobs are JOBS000 and on, so that what they leave can be told from others'
    printf '%s\n' "FirstJobId=${JOBS}000" "${4:-}" > "$ROOM/slurm.lines"
    "$TOP/share/minislurm" up --nodes "$1" --cpus "$2" --gpus "${3:-0}" --conf "$ROOM/slurm.lines" --owner \
        $$ > "$ROOM/slurm.log" 2>&1 ||
        { sed 's/^/# /' "$ROOM/slurm.log" && echo "Bail out! no cluster" && exit 1; }
    at_end "'$TOP/share/minislurm' down > /dev/null 2>&1"
    eval "$("$TOP/share/minislurm" env)"
}
shm_left() { find /dev/shm -maxdepth 1 -name "kolo-kolo.${JOBS}[0-9][0-9][0-9].*"; } # by jobs of the cluster
state_of() { scontrol show job "$1" 2> /dev/null | sed -n 's/^ *JobState=\([A-Z]*\).*/\1/p' | head -n 1; }
await() { # JOB [SECONDS]: until it has ended, at most 150 s; its state
    local i state
    for ((i = 0; i < 5 * ${2:-150}; i++)); do
        state=$(state_of "$1")
        case $state in PENDING | RUNNING | SIGNALING | COMPLETING | REQUEUED | SUSPENDED | CONFIGURING | "") \
            sleep 0.2 ;; *) break ;; esac
    done
    echo "$state"
}
now() { date +%s%3N; } # milliseconds
# events: "step loss" of every step of a run
losses() { sed -n 's/.*"event":"step".*"step":\([0-9]*\).*"loss":\([^,}]*\).*/\1 \2/p' "$1/events.jsonl"; }
weights_sum() { # RUN: checksum of its newest checkpoint's tensors
    local newest
    newest=$(find "$1/checkpoints" -maxdepth 1 -name 'step-*' ! -name '*.tmp*' | sort | tail -n 1)
    cksum < "$newest/tensors.safetensors"
}
