/* 16-bit numbers to f32: the gradient of a convolution's weight, which cuDNN writes in the type of x and
 * dy. */
#include "ops/cuda/dnn.h"
#include "ops/cuda/vector.cuh"

enum { THREADS = 256 };

/* count: a multiple of 8 */
template <typename T>
__global__ void __launch_bounds__(THREADS) widen_kernel(float *to, const T *from, int64_t count)
{
    const int64_t at = ((int64_t)blockIdx.x * THREADS + threadIdx.x) * 8;
    float x[kolo_vector<T>::N];
    if (at >= count) return;
    kolo_load16(from + at, x);
    const float low[4] = {x[0], x[1], x[2], x[3]}, high[4] = {x[4], x[5], x[6], x[7]};
    kolo_store16(to + at, low);
    kolo_store16(to + at + 4, high);
}

template <typename T> static int widen(const kolo_cuda *cuda, float *to, const void *from, int64_t count)
{
    const int64_t grid = (count / 8 + THREADS - 1) / THREADS;
    return KOLO_LAUNCH(widen_kernel<T>, grid, THREADS, 0, cuda->stream[KOLO_LANE_COMPUTE], to,
                       (const T *)from, count);
}

int kolo_dnn_widen(const kolo_cuda *cuda, float *to, const void *half, enum kolo_dtype dtype, int64_t count)
{
    if (count % 8 || dtype == KOLO_F32)
        return kolo_fail(KOLO_EINTERNAL, "%ld numbers of %s cannot be widened in vectors of 8", (long)count,
                         kolo_dtype_name(dtype));
    return dtype == KOLO_BF16 ? widen<kolo_bf16>(cuda, to, half, count)
                              : widen<kolo_f16>(cuda, to, half, count);
}
