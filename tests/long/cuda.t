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
python=$(command -v "${PYTHON:-python3}" || true)
held() { "$python" tests/long/fatbin.py "$library" | paste -sd ';'; }
if [ -n "$python" ]; then is "$(held)" "elf 80 $kernels;elf 90 $kernels;elf 100 $kernels;ptx 100 $kernels" \
    "it holds code of all $kernels files for 80, 90 and 100, and PTX for what comes later"
else skip "no python3"; fi
"$BUILD/cuda/bin/kolo" version > "$ROOM/out"
like "$ROOM/out" '^CUDA by .*libkolo_cuda.so' "the program finds it"
"$BUILD/cuda/bin/kolo" doctor --offline device=cuda > "$ROOM/out" 2>&1
status=$?
if [ -e /dev/nvidiactl ]; then
    is $status 0 "doctor finds nothing wrong with this machine's GPU"
else
    is $status 69 "device=cuda without a driver ends with 69"
    like "$ROOM/out" '^FAIL +gpu .*no NVIDIA driver' "device=cuda without a driver: the message says so"
fi

# the bundle, whole: small enough to carry, and in another folder no part misses a file
make -j2 CUDA=1 BUILD="$BUILD/cuda" bundle > "$ROOM/log" 2>&1
is $? 0 "make CUDA=1 bundle" || tail -n 20 "$ROOM/log" | diag
grep '^  [a-zC]* .*MiB' "$ROOM/log" | diag
made=$(find "$BUILD/cuda" -maxdepth 1 -type d -name 'kolo-bundle-*')
for what in "$made" "$made.tar.gz"; do
    [ "$(du -sb "$what" | cut -f 1)" -lt $((45 << 20)) ]
    is $? 0 "${what##*/} is under 45 MiB"
done
tar -xzf "$made.tar.gz" -C "$ROOM" && made=$ROOM/${made##*/}
like "$made/lib/requires" '^library libcudnn.so.9' "lib/requires lists the libraries of NVIDIA that it needs"
if [ -n "$python" ]; then is "$(held)" "elf 90 $kernels;ptx 90 $kernels" \
    "its code is for 90 alone, with PTX for what comes later"
else skip "no python3"; fi
(cd / && env -i PATH=/usr/bin:/bin HOME="$ROOM" KOLO_CUDA_LIBRARY="$ROOM/absent.so" "$made/tests/gpu/run" \
    --out "$ROOM/run") > "$ROOM/out" 2>&1
is $? 69 "tests/gpu/run where nothing can be run: exit 69"
none "no part misses a file" "$(grep '^not ok' "$ROOM/out")"
is "$(grep -c '^=== .*: ' "$ROOM/out")" "$(tests/gpu/run --list | wc -l)" "every part says what it would run"
done_testing
