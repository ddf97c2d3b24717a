#!/usr/bin/env bash
# make CUDA=1: the whole library, for all kinds of GPUs it is meant for.
# shellcheck source=tests/lib.sh
. "$(dirname "$0")/../lib.sh"
grep -q '^NVCC ?=' "$BUILD/probe.mk" 2> /dev/null || skip_all "no nvcc"
unset MAKEFLAGS MFLAGS MAKEOVERRIDES MAKELEVEL SANITIZE
make -j2 CUDA=1 BUILD="$BUILD/cuda" > "$ROOM/log" 2>&1
is $? 0 "make CUDA=1" || tail -n 20 "$ROOM/log" | sed 's/^/# /'
library=$BUILD/cuda/lib/libkolo_cuda.so
kernels=$(find src -name '*.cu' | wc -l)
for arch in 80 90 100; do # each piece of machine code stands beside the words it was compiled by
    [ "$(grep -ao "sm_$arch" "$library" | wc -l)" -ge "$kernels" ]
    is $? 0 "it holds code of all $kernels files for sm_$arch"
done
like "$BUILD/cuda/flags.cuda" 'arch=compute_100,code=compute_100' "and PTX for what comes later"
"$BUILD/cuda/bin/kolo" version > "$ROOM/out"
like "$ROOM/out" '^CUDA by .*libkolo_cuda.so' "the program finds it"
"$BUILD/cuda/bin/kolo" doctor --offline device=cuda > "$ROOM/out" 2>&1
status=$?
if [ -e /dev/nvidiactl ]; then
    is $status 0 "doctor finds nothing wrong with this machine's GPU"
else
    is $status 69 "device=cuda without a driver ends with 69"
    like "$ROOM/out" '^FAIL +gpu .*no NVIDIA driver' "and says so"
fi
done_testing
