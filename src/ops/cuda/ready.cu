/* A first kernel: whether this library holds code for the GPU, and whether the GPU runs it. Said
 * when the backend opens and not in the middle of a plan. */
#include "ops/cuda/launch.cuh"

static const uint32_t word = 0x6b6f6c6fu;

static __global__ void write_word(uint32_t *to, uint32_t value)
{
    if (threadIdx.x == 0) *to = value;
}

static int write_and_read(kolo_cuda *cuda, uint32_t *at)
{
    uint32_t got = 0;
    cudaStream_t stream = cuda->stream[KOLO_LANE_COMPUTE];
    /* an earlier process may have left the word */
    KOLO_TRY(KOLO_CUDA(cudaMemsetAsync(at, 0, sizeof *at, stream)));
    KOLO_TRY(KOLO_LAUNCH(write_word, 1, 32, 0, stream, at, word));
    KOLO_TRY(KOLO_CUDA(cudaMemcpyAsync(&got, at, sizeof got, cudaMemcpyDefault, stream)));
    KOLO_TRY(KOLO_CUDA(cudaStreamSynchronize(stream)));
    if (got != word)
        return kolo_fail(
            KOLO_ELAUNCH,
            "%s: a first kernel wrote %08x instead of %08x: the GPU does not work; use another node",
            cuda->place, (unsigned)got, (unsigned)word);
    return 0;
}

extern "C" int kolo_cuda_ready(kolo_cuda *cuda)
{
    uint32_t *at = NULL;
    KOLO_TRY(KOLO_CUDA(cudaMalloc((void **)&at, sizeof *at)));
    int rc = write_and_read(cuda, at);
    cudaFree(at);
    return rc;
}
