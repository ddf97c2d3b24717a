/* Vector arithmetic over arenas: the sum of two levels of gradients, the mean over ranks, the 16-bit copy of
 * parameters. All are bound by memory: 12, 8 and 6 bytes an element. Slices of arenas are multiples of 64
 * bytes apart, so vectors of 16 are aligned; what is left at an end goes one by one. */
#include "ops/cuda/vector.cuh"

/* Vectors that a thread has under way together, and those of a block. */
enum { THREADS = 256, BATCH = 4, TILE = THREADS * BATCH };

template <typename T> static unsigned blocks_of(int64_t count)
{
    int64_t vectors = (count + 16 / (int64_t)sizeof(T) - 1) / (16 / (int64_t)sizeof(T));
    return (unsigned)((vectors + TILE - 1) / TILE);
}

static __global__ void __launch_bounds__(THREADS) fold_kernel(float *sum, const float *part, int64_t count)
{
    const int64_t vectors = count / 4, first = (int64_t)blockIdx.x * TILE + threadIdx.x,
                  rest = vectors * 4 + first;
    kolo_words a[BATCH], b[BATCH];
#pragma unroll
    for (int u = 0; u < BATCH; u++) {
        int64_t i = first + u * THREADS;
        if (i >= vectors) continue;
        a[u] = kolo_read16(sum + 4 * i);
        b[u] = kolo_read16(part + 4 * i);
    }
#pragma unroll
    for (int u = 0; u < BATCH; u++) {
        int64_t i = first + u * THREADS;
        if (i >= vectors) continue;
        float x[4], y[4];
        kolo_widen16(sum, a[u], x);
        kolo_widen16(part, b[u], y);
        for (int k = 0; k < 4; k++) x[k] += y[k];
        kolo_store16(sum + 4 * i, x);
    }
    if (first < 4 && rest < count) sum[rest] += part[rest]; /* of the first block */
}

int kolo_cuda_fold(kolo_backend *b, float *sum, const float *part, int64_t count)
{
    if (count <= 0) return 0;
    return KOLO_LAUNCH(fold_kernel, blocks_of<float>(count), THREADS, 0,
                       kolo_cuda_of(b)->stream[KOLO_LANE_COMPUTE], sum, part, count);
}

static __global__ void __launch_bounds__(THREADS)
    divide_kernel(float *to, const float *from, float by, int64_t count)
{
    const int64_t vectors = count / 4, first = (int64_t)blockIdx.x * TILE + threadIdx.x,
                  rest = vectors * 4 + first;
    kolo_words a[BATCH];
#pragma unroll
    for (int u = 0; u < BATCH; u++)
        if (first + u * THREADS < vectors) a[u] = kolo_read16(from + 4 * (first + u * THREADS));
#pragma unroll
    for (int u = 0; u < BATCH; u++) {
        int64_t i = first + u * THREADS;
        if (i >= vectors) continue;
        float x[4];
        kolo_widen16(from, a[u], x);
        for (int k = 0; k < 4; k++) x[k] /= by;
        kolo_store16(to + 4 * i, x);
    }
    if (first < 4 && rest < count) to[rest] = from[rest] / by; /* of the first block */
}

int kolo_cuda_divide(kolo_backend *b, float *to, const float *from, float by, int64_t count)
{
    if (count <= 0) return 0;
    return KOLO_LAUNCH(divide_kernel, blocks_of<float>(count), THREADS, 0,
                       kolo_cuda_of(b)->stream[KOLO_LANE_COMPUTE], to, from, by, count);
}

/* 8 numbers a vector of T: two loads, one store. */
template <typename T>
__global__ void __launch_bounds__(THREADS) narrow_kernel(T *to, const float *from, int64_t count)
{
    const int64_t vectors = count / 8, first = (int64_t)blockIdx.x * TILE + threadIdx.x,
                  rest = vectors * 8 + first;
    kolo_words a[BATCH], b[BATCH];
#pragma unroll
    for (int u = 0; u < BATCH; u++) {
        int64_t i = first + u * THREADS;
        if (i >= vectors) continue;
        a[u] = kolo_read16(from + 8 * i);
        b[u] = kolo_read16(from + 8 * i + 4);
    }
#pragma unroll
    for (int u = 0; u < BATCH; u++) {
        int64_t i = first + u * THREADS;
        if (i >= vectors) continue;
        float x[4], y[4];
        kolo_widen16(from, a[u], x);
        kolo_widen16(from, b[u], y);
        const float both[8] = {x[0], x[1], x[2], x[3], y[0], y[1], y[2], y[3]};
        kolo_store16(to + 8 * i, both);
    }
    if (first < 8 && rest < count) kolo_round(from[rest], &to[rest]); /* of the first block */
}

int kolo_cuda_narrow(kolo_backend *b, void *to, enum kolo_dtype dtype, const float *from, int64_t count)
{
    if (count <= 0) return 0;
    cudaStream_t stream = kolo_cuda_of(b)->stream[KOLO_LANE_COMPUTE];
    if (dtype == KOLO_BF16)
        return KOLO_LAUNCH(narrow_kernel<kolo_bf16>, blocks_of<kolo_bf16>(count), THREADS, 0, stream,
                           (kolo_bf16 *)to, from, count);
    return KOLO_LAUNCH(narrow_kernel<kolo_f16>, blocks_of<kolo_f16>(count), THREADS, 0, stream,
                       (kolo_f16 *)to, from, count);
}
