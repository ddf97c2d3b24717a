/* out[i] = in[i] / divisor * factor, and neutral elements, of every type that NCCL sums. The arithmetic is
 * that of comm/kernel_scale.c. */
#include "comm/cuda/scale.h"

#include <math.h>

/* launches are checked by this folder's own: libkolo_comm_cuda.so holds nothing of ops */
#define kolo_cuda_check comm_cuda_check
#include "ops/cuda/vector.cuh"

enum { THREADS = 256, BLOCKS = 1024 };

/* Floats are scaled in f64 and rounded once; what has 16 bits, as the f32 that it is. */
KOLO_INLINE float scaled(float x, double divisor, double factor)
{
    return (float)(divisor == 1 ? (double)x * factor : (double)x / divisor * factor);
}
KOLO_INLINE double scaled(double x, double divisor, double factor)
{
    return divisor == 1 ? x * factor : x / divisor * factor;
}
template <typename T> KOLO_INLINE void scale_one(T *to, T from, int64_t divisor, double factor)
{
    kolo_round(scaled(kolo_widen(from), (double)divisor, factor), to);
}
KOLO_INLINE void scale_one(double *to, double from, int64_t divisor, double factor)
{
    *to = scaled(from, (double)divisor, factor);
}

/* Whole numbers: the exact quotient, toward zero; times the factor in f64, toward zero, held at
 * the ends of the range. */
template <typename T>
KOLO_INLINE void scale_whole(T *to, T from, int64_t divisor, double factor, T smallest, T largest,
                             double below)
{
    const T quotient = divisor == 1 ? from : (T)((int64_t)from / divisor);
    if (factor == 1) {
        *to = quotient;
        return;
    }
    const double v = (double)quotient * factor;
    *to = v != v ? (T)0 : v >= below ? largest : v <= (double)smallest ? smallest : (T)v;
}
KOLO_INLINE void scale_one(uint8_t *to, uint8_t from, int64_t divisor, double factor)
{
    scale_whole<uint8_t>(to, from, divisor, factor, 0, UINT8_MAX, 0x1p8);
}
KOLO_INLINE void scale_one(int8_t *to, int8_t from, int64_t divisor, double factor)
{
    scale_whole<int8_t>(to, from, divisor, factor, INT8_MIN, INT8_MAX, 0x1p7);
}
KOLO_INLINE void scale_one(int32_t *to, int32_t from, int64_t divisor, double factor)
{
    scale_whole<int32_t>(to, from, divisor, factor, INT32_MIN, INT32_MAX, 0x1p31);
}
KOLO_INLINE void scale_one(int64_t *to, int64_t from, int64_t divisor, double factor)
{
    scale_whole<int64_t>(to, from, divisor, factor, INT64_MIN, INT64_MAX, 0x1p63);
}

template <typename T>
__global__ void __launch_bounds__(THREADS)
    scale_kernel(T *to, const T *from, int64_t count, int64_t divisor, double factor)
{
    for (int64_t i = (int64_t)blockIdx.x * THREADS + threadIdx.x; i < count;
         i += (int64_t)gridDim.x * THREADS)
        scale_one(to + i, from[i], divisor, factor);
}

template <typename T> __global__ void __launch_bounds__(THREADS) fill_kernel(T *to, int64_t count, T value)
{
    for (int64_t i = (int64_t)blockIdx.x * THREADS + threadIdx.x; i < count;
         i += (int64_t)gridDim.x * THREADS)
        to[i] = value;
}

static int64_t grid_of(int64_t count)
{
    const int64_t blocks = (count + THREADS - 1) / THREADS;
    return blocks < BLOCKS ? blocks : (int64_t)BLOCKS;
}

template <typename T>
static int scale(void *to, const void *from, int64_t count, int64_t divisor, double factor,
                 cudaStream_t stream)
{
    return KOLO_LAUNCH(scale_kernel<T>, grid_of(count), THREADS, 0, stream, (T *)to, (const T *)from, count,
                       divisor, factor);
}

template <typename T>
static int cuda_scale_fill(void *to, int64_t count, enum kolo_reduce op, T one, T least, T most,
                           cudaStream_t stream)
{
    const T value = op == KOLO_PRODUCT ? one : op == KOLO_MAX ? least : op == KOLO_MIN ? most : (T)0;
    return KOLO_LAUNCH(fill_kernel<T>, grid_of(count), THREADS, 0, stream, (T *)to, count, value);
}

static int width_of(enum kolo_dtype type)
{
    switch (type) {
    case KOLO_I64:
    case KOLO_F64: return 8;
    case KOLO_I32:
    case KOLO_F32: return 4;
    case KOLO_U16:
    case KOLO_I16:
    case KOLO_F16:
    case KOLO_BF16: return 2;
    default: return 1;
    }
}

extern "C" int comm_gpu_scale(void *to, const void *from, int64_t count, enum kolo_dtype type,
                              int64_t divisor, double factor, cudaStream_t stream)
{
    if ((divisor == 1 && factor == 1) || type == KOLO_BOOL) {
        if (to == from) return 0;
        const cudaError_t rc =
            cudaMemcpyAsync(to, from, (size_t)(count * width_of(type)), cudaMemcpyDeviceToDevice, stream);
        return kolo_cuda_check(rc, "cudaMemcpyAsync", __FILE__, __LINE__);
    }
    switch (type) {
    case KOLO_U8: return scale<uint8_t>(to, from, count, divisor, factor, stream);
    case KOLO_I8: return scale<int8_t>(to, from, count, divisor, factor, stream);
    case KOLO_I32: return scale<int32_t>(to, from, count, divisor, factor, stream);
    case KOLO_I64: return scale<int64_t>(to, from, count, divisor, factor, stream);
    case KOLO_F16: return scale<kolo_f16>(to, from, count, divisor, factor, stream);
    case KOLO_BF16: return scale<kolo_bf16>(to, from, count, divisor, factor, stream);
    case KOLO_F32: return scale<float>(to, from, count, divisor, factor, stream);
    case KOLO_F64: return scale<double>(to, from, count, divisor, factor, stream);
    default: return kolo_fail(KOLO_EINTERNAL, "comm: type %d is not scaled on a GPU", (int)type);
    }
}

extern "C" int comm_gpu_fill(void *to, int64_t count, enum kolo_dtype type, enum kolo_reduce op,
                             cudaStream_t stream)
{
    switch (type) {
    case KOLO_BOOL: return cuda_scale_fill<uint8_t>(to, count, op, 1, 0, 1, stream);
    case KOLO_U8: return cuda_scale_fill<uint8_t>(to, count, op, 1, 0, UINT8_MAX, stream);
    case KOLO_I8: return cuda_scale_fill<int8_t>(to, count, op, 1, INT8_MIN, INT8_MAX, stream);
    case KOLO_I32: return cuda_scale_fill<int32_t>(to, count, op, 1, INT32_MIN, INT32_MAX, stream);
    case KOLO_I64: return cuda_scale_fill<int64_t>(to, count, op, 1, INT64_MIN, INT64_MAX, stream);
    case KOLO_F16: return cuda_scale_fill<uint16_t>(to, count, op, 0x3c00, 0xfc00, 0x7c00, stream);
    case KOLO_BF16: return cuda_scale_fill<uint16_t>(to, count, op, 0x3f80, 0xff80, 0x7f80, stream);
    case KOLO_F32: return cuda_scale_fill<float>(to, count, op, 1, -INFINITY, INFINITY, stream);
    case KOLO_F64: return cuda_scale_fill<double>(to, count, op, 1, -INFINITY, INFINITY, stream);
    default: return kolo_fail(KOLO_EINTERNAL, "comm: type %d is not summed on a GPU", (int)type);
    }
}
