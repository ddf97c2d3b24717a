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

/* Whether the rows and classes of x can be counted by int. */
static inline int kolo_rows_check(const kolo_tensor *x)
{
    if (x->dim[0] <= INT32_MAX && x->dim[1] <= INT32_MAX / 2) return 0;
    return kolo_fail(KOLO_ECONFIG, "%ld rows of %ld classes are too many; use a smaller micro_batch",
                     (long)x->dim[0], (long)x->dim[1]);
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

/* What is wrong with a row's label, for the host, unless an earlier one had something. By one thread. */
static __device__ void kolo_report_bad(const kolo_step *step, kolo_bad_label bad, int slot, int row)
{
    /* const for operations, but this field is the backend's to write */
    kolo_step *report = (kolo_step *)step;
    if (report->bad.kind) return;
    bad.slot = slot;
    bad.row = row;
    report->bad = bad;
}

#endif
