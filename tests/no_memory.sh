# shellcheck shell=bash
# One allocation of a program fails, the n-th: the program says so and exits with 71, or goes on without what
# was optional to the result that it has otherwise; what it leaves behind serves as a start.
# After tests/lib.sh: no_memory_prepare; then no_memory COMMAND LIST OF N..., as `no_memory pack 1 17 40+`
# (40+: that one and all behind it). no_memory_count COMMAND: how many there are.
# COMMAND: pack, train, eval, export, onnx, comm (one process), comm2 (two ranks, in each of which one fails).

no_memory_prepare() {
    NO_MEMORY_LIBRARY=$BUILD/tests/preload/fail_allocation.so
    NO_MEMORY_PROGRAM=$BUILD/tests/mpi/comm_no_memory
    [ -e "$NO_MEMORY_LIBRARY" ] || skip_all "$NO_MEMORY_LIBRARY is not built (make tests)"
    export OMP_NUM_THREADS=1 KOLO_CACHE=$ROOM/cache KOLO_COMM_TIMEOUT=8
    shapes_data 16 8
    NO_MEMORY_TRAIN=(shapes model=lenet5 "data=$ROOM/data/train" "val=$ROOM/data/val" batch=8
        epochs=1 warmup=0 conv=direct deterministic=true threads=1)
    kolo train "${NO_MEMORY_TRAIN[@]}" "run=$ROOM/run" > "$ROOM/log" 2>&1
    is $? 0 "the training that failures are compared with" "$ROOM/log"
    NO_MEMORY_WANT="$(losses "$ROOM/run") $(weights_sum "$ROOM/run")"
    NO_MEMORY_EVAL=$(no_memory_run - eval 2> /dev/null)
    no_memory_run - export > /dev/null 2>&1 && mv "$ROOM/out.safetensors" "$ROOM/want.safetensors"
    no_memory_run - onnx > /dev/null 2>&1 && mv "$ROOM/out.onnx" "$ROOM/want.onnx"
}
no_memory_run() { # N or -, COMMAND [RANK]: its exit status
    local n=$1 command=$2 rank=${3:-} program=kolo set=()
    case $command in
        pack) program=kolo-pack ;;
        comm*) program=comm_no_memory && set=(KOLO_COMM_HEARTBEAT_TIMEOUT=3) ;;
    esac
    if [ "$n" != - ]; then
        rm -f "$ROOM/report"
        set+=("LD_PRELOAD=$NO_MEMORY_LIBRARY${NO_MEMORY_ASAN:+:$NO_MEMORY_ASAN}" "FAIL_PROGRAM=$program"
            "FAIL_ALLOCATION=$n" "FAIL_REPORT=$ROOM/report" ${rank:+"FAIL_RANK=$rank"})
    fi
    case $command in
        pack) set -- kolo-pack --source shapes --split train --count 16 --threads 1 --out "$ROOM/pack" ;;
        train) set -- kolo train "${NO_MEMORY_TRAIN[@]}" "run=$ROOM/again" ;;
        eval) set -- kolo eval "run=$ROOM/run" "val=$ROOM/data/val" threads=1 ;;
        export) set -- kolo export "$ROOM/run" "$ROOM/out.safetensors" ;;
        onnx) set -- kolo export "$ROOM/run" "$ROOM/out.onnx" ;;
        comm) set -- "$NO_MEMORY_PROGRAM" ;;
        comm2) set -- mpiexec -n 2 "$NO_MEMORY_PROGRAM" ;;
    esac
    timeout 40 env "${set[@]}" "$@"
}
no_memory_count() { # COMMAND
    no_memory_run 0 "$1" ${2:+"$2"} > "$ROOM/log" 2>&1 || return 1
    sed -n 's/^count //p' "$ROOM/report" | sort -n | tail -n 1
    rm -rf "$ROOM/pack" "$ROOM/again" "$ROOM"/out.*
}
no_memory_figures() { sed 's/, [0-9.]* s, .*//'; } # what eval prints, without its times
no_memory_same() { # COMMAND, what it printed: is this the result that it has with enough memory?
    case $1 in
        pack) kolo-shards verify "$ROOM/pack" > "$ROOM/after" 2>&1 ;;
        train) [ "$(losses "$ROOM/again") $(weights_sum "$ROOM/again")" = "$NO_MEMORY_WANT" ] ;;
        eval) [ "$(no_memory_figures < "$2")" = "$(no_memory_figures <<< "$NO_MEMORY_EVAL")" ] ;;
        export) cmp -s "$ROOM/out.safetensors" "$ROOM/want.safetensors" ;;
        onnx) cmp -s "$ROOM/out.onnx" "$ROOM/want.onnx" ;;
        comm) [ "$(grep -c '^sums are right' "$2")" = 1 ] ;;
        comm2) [ "$(grep -c '^sums are right' "$2")" = 2 ] ;;
    esac
}
no_memory_left() { # COMMAND: what is wrong with what it left behind; then the same again, with enough memory
    local resume=()
    case $1 in
        pack)
            find "$ROOM/pack" -maxdepth 1 -name '*.index' 2> /dev/null | grep -q . &&
                ! kolo-shards verify "$ROOM/pack" > "$ROOM/after" 2>&1 && echo "a torn split with a manifest"
            [ -e "$ROOM/pack/.pack" ] && resume=(--resume)
            kolo-pack --source shapes --split train --count 16 --threads 1 --out "$ROOM/pack" "${resume[@]}" \
                > "$ROOM/after" 2>&1 || { echo "the same again fails: $(tail -n 1 "$ROOM/after")" && return; }
            ;;
        train)
            no_memory_run - train > "$ROOM/after" 2>&1 ||
                { echo "the same again fails: $(tail -n 1 "$ROOM/after")" && return; }
            ;;
        export | onnx)
            [ "$(cat "$ROOM"/out.*)" = "the old file" ] || echo "the old file is gone"
            return
            ;;
        *) return ;;
    esac
    no_memory_same "$1" /dev/null || echo "the same again ends otherwise"
}
no_memory_one() { # COMMAND N [RANK]: what is wrong, or nothing
    local command=$1 n=$2 rank=${3:-} status
    rm -rf "$ROOM/pack" "$ROOM/again" "$ROOM"/out.*
    case $command in
        export) echo "the old file" > "$ROOM/out.safetensors" ;;
        onnx) echo "the old file" > "$ROOM/out.onnx" ;;
    esac
    no_memory_run "$n" "$command" "$rank" > "$ROOM/stdout" 2> "$ROOM/stderr"
    status=$?
    grep -q '^failed' "$ROOM/report" 2> /dev/null || return # fewer than n: threads race
    if [ $status = 0 ]; then
        no_memory_same "$command" "$ROOM/stdout" || echo "exit 0, and another result"
    elif [ $status = 124 ]; then
        echo "hangs"
    elif [ "$command" = comm2 ]; then # the launcher's status is of all its ranks
        # the other rank's words may end the job before this one has said its own
        grep -qE "status -71: .*memory|status -69: .*rank $rank .*out of memory" "$ROOM/stderr" ||
            echo "no rank says that memory lacks (status $status)"
    elif [ $status != 71 ]; then
        echo "exit $status: $(tail -n 1 "$ROOM/stderr" | cut -c 1-150)"
    else
        grep -qi 'memory' "$ROOM/stderr" ||
            echo "no word of memory: $(tail -n 1 "$ROOM/stderr" | cut -c 1-150)"
        no_memory_left "$command"
    fi
    grep -aE 'AddressSanitizer|runtime error' "$ROOM/stderr"
}
no_memory() { # COMMAND N...
    local command=$1 n rank wrong bad="" runs=0 hit=0
    shift
    for n in "$@"; do
        for rank in $([ "$command" = comm2 ] && echo 0 1 || echo -); do
            [ "$rank" = - ] && rank=
            wrong=$(no_memory_one "$command" "$n" "$rank")
            runs=$((runs + 1)) && grep -q "^failed" "$ROOM/report" 2> /dev/null && hit=$((hit + 1))
            [ -z "$wrong" ] && continue
            bad+="allocation $n${rank:+ of rank $rank}: $wrong"$'\n'
            bad+="   at $(sed -n 's/^failed//p' "$ROOM/report")"$'\n'
        done
    done
    ((hit > 0 && 4 * hit >= 3 * runs)) # threads race for numbers, so that the last ones may not come
    ok $? "$command: an allocation failed in $hit of $runs runs"
    none "$command: it is said, with exit 71, or nothing was lost" "$bad"
}
