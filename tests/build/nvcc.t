#!/usr/bin/env bash
# nvcc takes every kernel without a warning, for one kind of GPU; tests/long/cuda.t: for all of them, linked.
# shellcheck source=tests/lib.sh
. "$(dirname "$0")/../lib.sh"
grep -q '^NVCC ?=' "$BUILD/probe.mk" 2> /dev/null || skip_all "no nvcc"
unset MAKEFLAGS MFLAGS MAKEOVERRIDES MAKELEVEL SANITIZE
# in a folder of its own, kept: a second run compiles only what has changed
nice make -j2 CUDA=1 CUDA_ARCH=90 BUILD="$BUILD/nvcc" kernels > "$ROOM/log" 2>&1
is $? 0 "every .cu compiles for sm_90, warnings are errors" || tail -n 20 "$ROOM/log" | sed 's/^/# /'
for file in src/*/cuda/*.cu; do [ -s "$BUILD/nvcc/$file.o" ] || echo "$file"; done > "$ROOM/out"
is "$(cat "$ROOM/out")" "" "none is left out"
done_testing
