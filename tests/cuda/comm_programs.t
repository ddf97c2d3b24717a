#!/usr/bin/env bash
# Vectors on GPUs as programs bring them, on the stand-in: kolo bench memory=device, and a program of another
# that knows libkolo_comm.so alone.
# shellcheck source=tests/lib.sh
. "$(dirname "$0")/../lib.sh"
DRIVER=$BUILD/tests/driver/libcuda.so.1
CARRIER=$BUILD/standin/libkolo_comm_cuda.so
if [ ! -e "$CARRIER" ] || [ ! -e "$BUILD/standin/libkolo_cuda.so" ] ||
    [ ! -e "$DRIVER" ]; then skip_all "the stand-in is not built (make tests, with CUDA's headers)"; fi
need mpiexec gcc

export STANDIN_DEVICES=2
bench() { KOLO_CUDA_LIBRARY=$BUILD/standin/libkolo_cuda.so LD_PRELOAD=$DRIVER timeout 60 mpiexec -n 2 kolo \
    bench "$@" memory=device iterations=2 > "$ROOM/out" 2>&1; }
for name in allreduce reduce_scatter allgather broadcast gather scatter alltoall; do
    bench $name min=1K max=4K
    status=$?
    [ $status = 0 ] && grep -q '^# Out of bounds values : 0 OK$' "$ROOM/out"
    ok $? "kolo bench $name memory=device" || sed 's/^/# /' "$ROOM/out"
done
bench allreduce path=named dtype=bf16 op=average max=64
like "$ROOM/out" '^# Out of bounds values : 0 OK$' "by name, 16 bits, averages"
KOLO_CUDA_LIBRARY=$ROOM/none.so timeout 60 mpiexec -n 2 kolo bench allreduce memory=device max=64 > \
    "$ROOM/out" 2>&1
like "$ROOM/out" 'KOLO_CUDA_LIBRARY=.*there is no such file' "without the GPU half the message says so"

cat > "$ROOM/program.c" << 'END'
#include <dlfcn.h>
#include <kolo/world.h>
#include <stdio.h>
#include <stdlib.h>

int main(void)
{
    void *driver = dlopen(getenv("DRIVER"), RTLD_NOW), *cuda = dlopen(getenv("CUDA"), RTLD_NOW);
    int (*set)(int) = (int (*)(int))dlsym(cuda, "cudaSetDevice"),
        (*make)(void **, unsigned) = (int (*)(void **, unsigned))dlsym(cuda, "cudaStreamCreateWithFlags"),
        (*alloc)(void **, size_t) = (int (*)(void **, size_t))dlsym(cuda, "cudaMalloc"),
            (*wait)(void *) = (int (*)(void *))dlsym(cuda, "cudaStreamSynchronize"),
        (*copy)(void *, const void *, size_t, int,
            void *) = (int (*)(void *, const void *, size_t, int, void *))dlsym(cuda, "cudaMemcpyAsync");
    kolo_world *world;
    if (!driver || kolo_world_open(&world, NULL) < 0) return fprintf(stderr, "%s\n", kolo_error_text()), 1;
    const int rank = kolo_world_rank(world);
    void *vector = NULL, *stream;
    if (getenv("BLIND")) { /* memory that the driver alone knows */
        if (((int (*)(unsigned long long *, size_t))dlsym(driver,
            "cuMemAlloc_v2"))((unsigned long long *)&vector, 4096)) return 4;
        if (kolo_allreduce(kolo_world_group(world), NULL, vector, 4, KOLO_F32, KOLO_SUM) < 0)
            printf("rank %d: %s\n", rank, kolo_error_text());
        return kolo_world_close(&world), 0;
    }
    float v[4] = {1, 2, 3, (float)rank};
    if (set(rank) || make(&stream, 1) || alloc(&vector, sizeof v) || copy(vector, v, sizeof v, 1, stream) ||
        wait(stream)) return 2;
    int rc = kolo_allreduce(kolo_world_group(world), NULL, vector, 4, KOLO_F32, KOLO_SUM);
    if (rc < 0) printf("rank %d: %s\n", rank, kolo_error_text());
    else if (copy(v, vector, sizeof v, 2, stream) || wait(stream)) return 3;
    else printf("rank %d: %g %g %g %g\n", rank, v[0], v[1], v[2], v[3]);
    kolo_world_close(&world);
    return rc < 0;
}
END
gcc -Iinclude -o "$ROOM/program" "$ROOM/program.c" -L"$BUILD/lib" -lkolo_comm -ldl -Wl,-rpath,"$BUILD/lib"
ok $? "a program that is linked with libkolo_comm.so"
run() { CUDA=$CARRIER DRIVER=$DRIVER timeout 60 mpiexec -n 2 "$ROOM/program" 2>&1 | sort; }
is "$(KOLO_CUDA_LIBRARY=$CARRIER run)" "rank 0: 2 4 6 1
rank 1: 2 4 6 1" "its vectors on GPUs are summed by the plug-in that it knows nothing of"
KOLO_NCCL_LIBRARY=/nowhere/libnccl.so KOLO_CUDA_LIBRARY=$CARRIER run > "$ROOM/out"
like "$ROOM/out" 'rank 1: rank 0 cannot use NCCL.*/nowhere/libnccl.so' \
    "what the plug-in says comes to the program"
BLIND=1 KOLO_CUDA_LIBRARY='' run > "$ROOM/out"
like "$ROOM/out" '^rank 1: .*memory of a GPU, and .*libkolo_comm_cuda.so' \
    "where there is none, the message names it"
done_testing
