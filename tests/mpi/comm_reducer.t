#!/bin/sh
# Sums in GPU memory between ranks of several simulated nodes, with the stand-in for a GPU: 2, 3 and 4 ranks, one TAP stream.
build=${KOLO_BUILD:-build}
program=$build/tests/cuda/comm_reducer
if [ ! -x "$program" ] || [ ! -e "$build/standin/libkolo_cuda.so" ]; then echo "1..0 # SKIP $program or the stand-in is not built (make tests, with CUDA's headers)"; exit 0; fi
if ! command -v mpiexec >/dev/null; then echo "1..0 # SKIP no mpiexec"; exit 0; fi
out=$(mktemp) || exit 1
trap 'rm -f "$out"' EXIT
count=0
unset KOLO_CUDA_LIBRARY
for ranks in 2 3 4; do
    timeout 120 mpiexec -n "$ranks" "$program" apart >"$out" 2>&1
    status=$?
    while IFS= read -r line; do
        case $line in
        "ok "* | "not ok "*)
            count=$((count + 1))
            echo "${line%%ok *}ok $count - ${line#* - }"
            ;;
        "1.."*) ;;
        *) [ -n "$line" ] && echo "# $line" ;;
        esac
    done <"$out"
    count=$((count + 1))
    if [ "$status" = 0 ]; then echo "ok $count - $ranks ranks ran to the end"; else echo "not ok $count - $ranks ranks ran to the end"; fi
done
echo "1..$count"
