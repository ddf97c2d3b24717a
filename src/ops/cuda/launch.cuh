/* How every kernel here is launched, and the few device helpers that all of them use. The same files are
 * compiled by a C++ compiler with tests/standin/emulate.h, which runs each block's threads one after another
 * on the host, so that machines without a GPU test them; therefore:
 *   - kernels are started by KOLO_LAUNCH alone, and are plain or template functions, not lambdas;
 *   - of CUDA's device language only what emulate.h knows is used: threadIdx, blockIdx, blockDim, gridDim,
 *     __shared__ arrays (static, and one `extern __shared__` by KOLO_SHARED), __syncthreads, __syncwarp,
 *     __shfl_xor_sync and __ballot_sync with all lanes present, __popc, __threadfence,
 *     atomicAdd/atomicMax/atomicInc on integers, __ldcg, math functions. Blocks are one-dimensional and a
 *     multiple of 32. */
#ifndef KOLO_OPS_CUDA_LAUNCH_CUH
#define KOLO_OPS_CUDA_LAUNCH_CUH

#include "ops/cuda/cuda.h"

#ifdef KOLO_EMULATE
#include "standin/emulate.h"
#else
#include <cuda_runtime.h>
#define KOLO_SHARED(type, name)                                 \
    extern __shared__ __align__(16) unsigned char name##_raw[]; \
    type *name = (type *)name##_raw
/* 0 or a negative status. kernel: in parentheses if it is a template with several arguments. clang-format,
 * which does not know CUDA in a macro, would part the brackets of the launch. */
/* clang-format off */
#define KOLO_LAUNCH(kernel, grid, block, shared, stream, ...)                                                \
    ((kernel)<<<dim3((unsigned)(grid)), dim3((unsigned)(block)), (shared), (stream)>>>(__VA_ARGS__),         \
     kolo_cuda_check(cudaGetLastError(), "launch of " #kernel, __FILE__, __LINE__))
/* clang-format on */
#endif

#define KOLO_FULL_WARP 0xffffffffu

/* Grid of a loop with stride over n items, `block` threads each: no more blocks than are resident at once. */
static inline unsigned kolo_cuda_grid(const kolo_cuda *cuda, int64_t n, int block, int resident)
{
    int64_t blocks = (n + block - 1) / block, most = (int64_t)cuda->processors * resident;
    return (unsigned)(blocks < 1 ? 1 : blocks < most ? blocks : most);
}

#endif
