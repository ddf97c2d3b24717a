/* out[i] = in[i] / divisor * factor, and neutral elements, of every type that NCCL sums. The arithmetic is
 * that of comm/core/kernel_scale.c. */
#include "comm/cuda/scale.h"

#include <limits>
#include <math.h>

/* launches are checked by this folder's own: libkolo_comm_cuda.so holds nothing of ops */
#define kolo_cuda_check comm_cuda_check
#include "ops/cuda/vector.cuh"

enum { THREADS = 256, BLOCKS = 1024 };

/* Of whole numbers; a kernel may read these, not call std::numeric_limits. */
template <typename T> struct range {
    static constexpr T least = std::numeric_limits<T>::min(), most = std::numeric_limits<T>::max();
};

/* Floats are scaled in f64 and rounded once; what has 16 bits, as the f32 that it is. */
template <typename F> KOLO_INLINE F scaled(F x, double divisor, double factor)
{
    return (F)(divisor == 1 ? (double)x * factor : (double)x / divisor * factor);
}

/* Whole numbers: the exact quotient, toward zero; times the factor in f64, toward zero, held at the ends of
 * the range. */
template <typename T> KOLO_INLINE void scale_one(T *to, T from, int64_t divisor, double factor)
{
    if constexpr (std::numeric_limits<T>::is_integer) {
        constexpr T least = range<T>::least, most = range<T>::most;
        const T quotient = divisor == 1 ? from : (T)((int64_t)from / divisor);
        const double v = (double)quotient * factor;
        if (factor == 1) *to = quotient;
        else *to = v != v ? (T)0 : v >= (double)most + 1 ? most : v <= (double)least ? least : (T)v;
    } else if constexpr (sizeof(T) == sizeof(double)) {
        *to = scaled(from, (double)divisor, factor);
    } else {
        kolo_round(scaled(kolo_widen(from), (double)divisor, factor), to);
    }
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

/* One element that changes nothing. */
template <typename T> static T neutral(enum kolo_reduce op)
{
    T value;
    if constexpr (std::numeric_limits<T>::is_integer)
        value = op == KOLO_MAX ? range<T>::least : op == KOLO_MIN ? range<T>::most : (T)(op == KOLO_PRODUCT);
    else {
        const float f = op == KOLO_MAX ? -INFINITY : op == KOLO_MIN ? INFINITY : op == KOLO_PRODUCT;
        if constexpr (sizeof(T) == sizeof(double)) value = f;
        else kolo_round(f, &value);
    }
    return value;
}

template <typename T> static int fill(void *to, int64_t count, enum kolo_reduce op, cudaStream_t stream)
{
    return KOLO_LAUNCH(fill_kernel<T>, grid_of(count), THREADS, 0, stream, (T *)to, count, neutral<T>(op));
}

#define TYPES(OF)       \
    OF(U8, uint8_t)     \
    OF(I8, int8_t)      \
    OF(I32, int32_t)    \
    OF(I64, int64_t)    \
    OF(F16, kolo_f16)   \
    OF(BF16, kolo_bf16) \
    OF(F32, float)      \
    OF(F64, double)

extern "C" int comm_gpu_scale(void *to, const void *from, int64_t count, enum kolo_dtype type,
                              int64_t divisor, double factor, cudaStream_t stream)
{
    if ((divisor == 1 && factor == 1) || type == KOLO_BOOL) {
        if (to == from) return 0;
        const cudaError_t rc = cudaMemcpyAsync(to, from, (size_t)count * kolo_dtype_size(type),
                                               cudaMemcpyDeviceToDevice, stream);
        return kolo_cuda_check(rc, "cudaMemcpyAsync", __FILE__, __LINE__);
    }
    switch (type) {
#define OF(name, T) \
    case KOLO_##name: return scale<T>(to, from, count, divisor, factor, stream);
        TYPES(OF)
#undef OF
    default: return kolo_fail(KOLO_EINTERNAL, "comm: type %d is not scaled on a GPU", (int)type);
    }
}

extern "C" int comm_gpu_fill(void *to, int64_t count, enum kolo_dtype type, enum kolo_reduce op,
                             cudaStream_t stream)
{
    switch (type) {
    case KOLO_BOOL: return fill<bool>(to, count, op, stream);
#define OF(name, T) \
    case KOLO_##name: return fill<T>(to, count, op, stream);
        TYPES(OF)
#undef OF
    default: return kolo_fail(KOLO_EINTERNAL, "comm: type %d is not summed on a GPU", (int)type);
    }
}
