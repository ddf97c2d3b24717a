#!/usr/bin/env bash
# A kernel's file compiled by nvcc: the stand-in's compiler sees another form of a launch
# (ops/cuda/launch.cuh). tests/long/cuda.t compiles all of them.
# shellcheck source=tests/lib.sh
. "$(dirname "$0")/../lib.sh"
grep -q '^NVCC ?=' "$BUILD/probe.mk" 2> /dev/null || skip_all "no nvcc"
unset MAKEFLAGS MFLAGS MAKEOVERRIDES MAKELEVEL SANITIZE
make CUDA=1 CUDA_ARCH=90 BUILD="$ROOM/cuda" "$ROOM/cuda/src/ops/cuda/tile.cu.o" > "$ROOM/log" 2>&1
is $? 0 "nvcc compiles src/ops/cuda/tile.cu" || tail -n 20 "$ROOM/log" | diag
done_testing
