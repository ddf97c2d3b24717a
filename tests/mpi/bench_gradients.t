#!/usr/bin/env bash
# kolo bench gradients: two kinds of columns, right sums on CPUs and (with the stand-in) on GPUs,
# words that are refused.
# shellcheck source=tests/lib.sh
. "$(dirname "$0")/../lib.sh"
need mpiexec
bench() { # NAME RANKS WORDS...
    local name=$1 ranks=$2
    shift 2
    timeout 120 mpiexec -n "$ranks" kolo bench gradients "$@" > "$ROOM/$name.out" 2>&1
}
unset KOLO_CUDA_LIBRARY
bench two 2 device=cpu max=4K iterations=5
is $? 0 "two ranks"
is "$(grep -cE '^ +[0-9]+ +[0-9]+ +f32 +sum +-1 +[0-9.]+ +[0-9.]+ +[0-9.]+ +0$' "$ROOM/two.out")" 10 \
    "ten sizes from 8 B to 4 KiB, none wrong"
like "$ROOM/two.out" "^# Out of bounds values : 0 OK" "two ranks: no value out of bounds"
awk '$1 == 4096 { if ($7 < 0.99 * $8 || $7 > 1.01 * $8 + 0.01) bad = 1; found = 1 }
    END { exit bad || !found }' \
    "$ROOM/two.out"
ok $? "busbw of two ranks is algbw"
bench osu 3 device=cpu min=1K max=8K iterations=5 format=osu
is $? 0 "three ranks, as OSU prints it"
is "$(grep -cE '^(1024|2048|4096|8192) +[0-9.]+ +[0-9.]+ +[0-9.]+ +5$' "$ROOM/osu.out")" 4 \
    "four sizes with mean, least and most"
for words in min=0 min=12x max=4 "min=64 max=8" iterations=0 format=csv sizes=3; do
    # shellcheck disable=SC2086 # two words
    kolo bench gradients device=cpu $words > "$ROOM/bad.out" 2>&1
    is $? 78 "$words is refused"
done
if [ -e "$BUILD/standin/libkolo_cuda.so" ]; then
    export KOLO_CUDA_LIBRARY=$BUILD/standin/libkolo_cuda.so
    STANDIN_DEVICES=2 bench gpu 2 device=cuda max=4K iterations=2
    is $? 0 "two ranks on two GPUs"
    like "$ROOM/gpu.out" "nccl [0-9.]+, in place" "two ranks on two GPUs: reduced by NCCL"
    bench shared 2 device=cuda max=4K iterations=2
    is $? 69 "two ranks on one GPU are refused"
    bench shared 2 device=cuda share_gpu=true max=4K iterations=2
    is $? 0 "unless they may share it"
    like "$ROOM/shared.out" "staged, in place" "two ranks that share a GPU: through host memory"
    KOLO_NCCL_LIBRARY=/nowhere/libnccl.so.2 STANDIN_DEVICES=2 bench without 2 device=cuda max=1K iterations=2
    is $? 0 "no NCCL on this system"
    like "$ROOM/without.out" "staged\\); nccl: rank 0: no NCCL" "through host memory, and why"
else
    skip "the stand-in for a GPU is not built (make tests, with CUDA's headers)"
fi
done_testing
