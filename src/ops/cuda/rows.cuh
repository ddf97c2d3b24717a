/* A block takes a row: sums and maxima over all its threads, in an order that the shape decides. */
#ifndef KOLO_OPS_CUDA_ROWS_CUH
#define KOLO_OPS_CUDA_ROWS_CUH

#include "ops/cuda/vector.cuh"

enum { KOLO_ROW_THREADS = 512 /* most */, KOLO_ROW_WARPS = KOLO_ROW_THREADS / 32 };

/* Threads of a row of n numbers. */
static inline int kolo_row_threads(int64_t n)
{
    int threads = 32;
    while (threads < KOLO_ROW_THREADS && threads * 4 < n) threads *= 2;
    return threads;
}

/* The sum of all threads' values, for every thread. */
template <typename V> static __device__ V kolo_row_sum(V v)
{
    __shared__ V warp[KOLO_ROW_WARPS];
    for (int d = 16; d; d /= 2) v += __shfl_xor_sync(KOLO_FULL_WARP, v, d);
    __syncthreads(); /* what was here before has been read */
    if (threadIdx.x % 32 == 0) warp[threadIdx.x / 32] = v;
    __syncthreads();
    V sum = 0;
    for (int w = 0; w < (int)blockDim.x / 32; w++) sum += warp[w];
    return sum;
}

/* The largest; a NaN does not count. */
template <typename V> static __device__ V kolo_row_max(V v)
{
    __shared__ V warp[KOLO_ROW_WARPS];
    for (int d = 16; d; d /= 2) {
        const V other = __shfl_xor_sync(KOLO_FULL_WARP, v, d);
        v = other > v ? other : v;
    }
    __syncthreads();
    if (threadIdx.x % 32 == 0) warp[threadIdx.x / 32] = v;
    __syncthreads();
    V most = warp[0];
    for (int w = 1; w < (int)blockDim.x / 32; w++) most = warp[w] > most ? warp[w] : most;
    return most;
}

template <typename T> static __device__ float kolo_row_largest(const T *x, int n)
{
    float most = kolo_bits_float(0xFF800000u); /* -infinity */
    for (int i = (int)threadIdx.x; i < n; i += (int)blockDim.x) {
        const float v = kolo_widen(x[i]);
        most = v > most ? v : most;
    }
    return kolo_row_max(most);
}

#endif
