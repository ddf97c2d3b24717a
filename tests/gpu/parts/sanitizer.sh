# compute-sanitizer over small cases: memory errors, then races
# shellcheck shell=bash
if [ -n "$DRY" ]; then
    skip "the stand-in has no device memory to watch"
else
    sanitizer=''
    for file in "$(command -v compute-sanitizer)" \
        "${CUDA_HOME:-/usr/local/cuda}"/{bin,compute-sanitizer}/compute-sanitizer \
        /usr/local/cuda-*/bin/compute-sanitizer /opt/nvidia/*/*/compute-sanitizer; do
        [ -z "$sanitizer" ] && [ -x "$file" ] && sanitizer=$file
    done
    if [ -z "$SHOW$sanitizer" ]; then
        skip "no compute-sanitizer here"
    else
        [ -n "$SHOW" ] || note "$("$sanitizer" --version | tail -n 1)"
        watched() { # TOOL NAME SECONDS COMMAND...
            local tool=$1 name=$2 seconds=$3 log=$LOGS/sanitizer.$1.$2 status
            shift 3
            [ -z "$SHOW" ] || { while [ "$1" = --kernel-name-exclude ]; do shift 2; done; }
            shown "$@" && return
            enough "$tool $name" || return
            limited "$seconds" "$sanitizer" --tool "$tool" --error-exitcode 9 --target-processes all \
                --print-limit 20 "$@" > "$log" 2>&1
            status=$?
            case $status in
                0) pass "$tool $name: $(grep -oE 'ERROR SUMMARY.*|RACECHECK SUMMARY.*' "$log" | tail -n 1)" ;;
                124 | 137) fail "$tool $name did not end in $seconds s" ;;
                *)
                    if grep -qiE 'device not supported|unable to (find|connect)|internal (sanitizer )?error' \
                        "$log"; then skip "$tool does not work here: $(grep -m 1 -iE \
                        'not supported|unable|internal' "$log" | cut -c 1-160)"
                    else fail "$tool $name: $(grep -m 1 -E '(ERROR|RACECHECK) SUMMARY' "$log" ||
                        echo "status $status")" && grep -E '^=========' "$log" | head -n 12 | cut -c 1-200 |
                            sed 's/^/#   /'; fi
                    ;;
            esac
        }
        # the libraries' own kernels are theirs to watch
        own=()
        [ -z "${KOLO_SANITIZE_ALL:-}" ] &&
            for word in cudnn cutlass xmma nvjet cublas implicit gemm; do own+=(--kernel-name-exclude \
            "kernel_substring=$word"); done
        watched memcheck lenet5 40 "${own[@]}" parity lenet5 3 28 10 f32 deterministic=true
        watched memcheck resnet20 60 "${own[@]}" parity resnet20 3 21 10 bf16 valid=2 deterministic=true
        for unit in ops_token ops_losses ops_move; do watched memcheck $unit 60 "${own[@]}" $unit; done
        for unit in ops_token ops_losses; do watched racecheck $unit 60 "${own[@]}" $unit; done
        watched racecheck lenet5 40 "${own[@]}" parity lenet5 3 28 10 bf16 deterministic=true
        watched racecheck resnet20 60 "${own[@]}" parity resnet20 3 21 10 f32 valid=2 deterministic=true
    fi
fi
