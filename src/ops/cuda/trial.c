/* The clock that chooses between algorithms when a plan is made: events on the compute stream. */
#include "ops/cuda/cuda.h"

int kolo_cuda_trial_memory(kolo_backend *backend, size_t bytes, void **memory)
{
    kolo_cuda *cuda = kolo_cuda_of(backend);
    if (bytes > cuda->trial_bytes) {
        kolo_cuda_trial_end(backend);
        KOLO_TRY(KOLO_CUDA(cudaMalloc(&cuda->trial, bytes)));
        cuda->trial_bytes = bytes;
        /* 0.06 as f16, 2e-12 as bf16 and f32: not zero, which takes less power, and no sum of them overflows */
        KOLO_TRY(KOLO_CUDA(cudaMemsetAsync(cuda->trial, 0x2C, bytes, cuda->stream[KOLO_LANE_COMPUTE])));
    }
    *memory = cuda->trial;
    return 0;
}

void kolo_cuda_trial_end(kolo_backend *backend)
{
    kolo_cuda *cuda = kolo_cuda_of(backend);
    if (cuda->trial) cudaFree(cuda->trial); /* waits for what still uses it */
    cuda->trial = NULL;
    cuda->trial_bytes = 0;
}

typedef struct trial {
    cudaStream_t stream;
    cudaEvent_t start, stop;
    int (*run)(void *argument);
    void *argument;
} trial;

/* Seconds of one run, as the mean of `repeat` in a row. */
static int time_round(const trial *t, int repeat, double *seconds)
{
    float ms = 0;
    KOLO_TRY(KOLO_CUDA(cudaEventRecord(t->start, t->stream)));
    for (int i = 0; i < repeat; i++) KOLO_TRY(t->run(t->argument));
    KOLO_TRY(KOLO_CUDA(cudaEventRecord(t->stop, t->stream)));
    KOLO_TRY(KOLO_CUDA(cudaEventSynchronize(t->stop)));
    KOLO_TRY(KOLO_CUDA(cudaEventElapsedTime(&ms, t->start, t->stop)));
    *seconds = (double)ms * 1e-3 / repeat;
    return 0;
}

/* A first run loads the kernels. Then short ones are repeated until a round is long beside the resolution of the events
 * (0.5 us) and the time between two launches, and rounds until two agree. */
static int time_rounds(const trial *t, double *seconds)
{
    enum { ROUNDS = 10, MOST = 64 };
    double once, best = 0;
    KOLO_TRY(time_round(t, 1, &once));
    for (int round = 0, repeat = 1; round < ROUNDS; round++) {
        KOLO_TRY(time_round(t, repeat, &once));
        if (once * repeat < 2e-4 && repeat < MOST) {
            repeat *= 4;
            continue;
        }
        bool agree = best > 0 && once < best * 1.02 && best < once * 1.02;
        if (best <= 0 || once < best) best = once;
        if (agree) break;
    }
    *seconds = best;
    return 0;
}

int kolo_cuda_trial_time(kolo_backend *backend, int (*run)(void *argument), void *argument, double *seconds)
{
    trial t = {.stream = kolo_cuda_of(backend)->stream[KOLO_LANE_COMPUTE], .run = run, .argument = argument};
    int rc = KOLO_CUDA(cudaEventCreate(&t.start));
    if (rc >= 0) rc = KOLO_CUDA(cudaEventCreate(&t.stop));
    if (rc >= 0) rc = time_rounds(&t, seconds);
    if (t.start) cudaEventDestroy(t.start);
    if (t.stop) cudaEventDestroy(t.stop);
    return rc;
}
