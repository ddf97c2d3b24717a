#!/usr/bin/env bash
# libkolo_cuda.so: the programs do without it until a GPU is chosen, and say what is wrong
# with the one they find.
# shellcheck source=tests/lib.sh
. "$(dirname "$0")/../lib.sh"
[ -x "$BUILD/bin/kolo" ] || skip_all "kolo is not built"
doctor() { KOLO_CUDA_LIBRARY=$1 kolo doctor --offline device=cuda > "$ROOM/out" 2>&1; }

ldd "$BUILD"/bin/kolo* > "$ROOM/out"
grep -qE 'libcu(da|dnn|blas)|libnccl' "$ROOM/out"
is $? 1 "no program is linked with a library of CUDA"
nm "$BUILD"/lib/room/{base,launch,data,graph,ops,optim,comm}.a 2> /dev/null | grep -E ' [A-Z] kolo_cuda_' |
    grep -vE ' (U|T kolo_cuda_(symbol|library)$)' > "$ROOM/out"
is "$(cat "$ROOM/out")" "" "no archive of a room holds a part of the library"

doctor "$ROOM/nothing.so"
is $? 69 "device=cuda without the library ends with 69"
like "$ROOM/out" "^FAIL +gpu .*KOLO_CUDA_LIBRARY=$ROOM/nothing.so" \
    "the message names the file that is not there"
cp "$BUILD/bin/kolo" "$ROOM/kolo" # away from ../lib
LD_LIBRARY_PATH='' KOLO_CUDA_LIBRARY='' "$ROOM/kolo" doctor --offline device=cuda > "$ROOM/out" 2>&1
is $? 69 "device=cuda without any libkolo_cuda.so: exit 69"
like "$ROOM/out" '^FAIL +gpu .*make CUDA=1' "the message says how to get one"
KOLO_CUDA_LIBRARY=$ROOM/nothing.so kolo doctor --offline > "$ROOM/out" 2>&1
is $? 0 "device=auto without GPUs does not ask for it"
like "$ROOM/out" '^ok +gpu .*given none' "device=auto without GPUs: kolo doctor reports none given"
KOLO_CUDA_LIBRARY=$ROOM/nothing.so SLURM_JOB_GPUS=0,1 kolo doctor --offline > "$ROOM/out" 2>&1
like "$ROOM/out" '^warn +gpu .*no such file' "device=auto in a job with GPUs: warns of the missing library"

command -v gcc > /dev/null || { skip "no gcc" && done_testing; }
mkdir "$ROOM/lib"
echo 'int cudnnCreate(void) { return 0; }' > "$ROOM/part.c"
echo \
    'int cudnnCreate(void); const char kolo_cuda_version[] = "0.0.0/1"; int kolo_cuda_devices(void) { return cudnnCreate(); }' \
    > \
    "$ROOM/library.c"
gcc -shared -fPIC -Wl,-soname,libcudnn_none.so.9 -o "$ROOM/lib/libcudnn_none.so.9" "$ROOM/part.c" &&
    gcc -shared -fPIC -o "$ROOM/lib/libkolo_cuda.so" "$ROOM/library.c" "$ROOM/lib/libcudnn_none.so.9"
is $? 0 "a library that needs cuDNN"
doctor "$ROOM/lib/libkolo_cuda.so"
is $? 69 "a libkolo_cuda.so whose cuDNN is missing: exit 69"
like "$ROOM/out" '^FAIL +gpu .*libcudnn_none.so.9.*cuDNN 9 is missing.*LD_LIBRARY_PATH' \
    "the message names it and what to do"
LD_LIBRARY_PATH=$ROOM/lib doctor "$ROOM/lib/libkolo_cuda.so"
is $? 69 "a library of another build is refused"
like "$ROOM/out" '^FAIL +gpu .*another build \(0.0.0/1\)' "the message names its version"
echo not a library > "$ROOM/lib/libkolo_cuda.so"
doctor "$ROOM/lib/libkolo_cuda.so"
is $? 69 "a libkolo_cuda.so that is a text file: exit 69"
like "$ROOM/out" '^FAIL +gpu .*libkolo_cuda.so: .*(file too short|ELF)' \
    "a libkolo_cuda.so that is a text file: the dynamic linker's message is printed"

done_testing
