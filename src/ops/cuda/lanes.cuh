/* A block takes one row of (N, C, H, W) and `width` vectors of channels, width a power of 2; its
 * KOLO_LANE_THREADS / width lanes share the pixels. Sums over them are in f64, in an order that the shape
 * decides: a lane's pixels, then the lanes. */
#ifndef KOLO_OPS_CUDA_LANES_CUH
#define KOLO_OPS_CUDA_LANES_CUH

#include "ops/cuda/vector.cuh"

extern "C" {
#include "base/memory.h"
}

enum { KOLO_LANE_THREADS = 256, KOLO_LANE_WIDEST = 32 };

typedef struct kolo_lanes {
    int rows, channels, pixels, vectors;
    int width, groups; /* vectors of a block; blocks of a row */
    enum kolo_dtype dtype;
} kolo_lanes;

/* The kernel's state for maps like x; run: its function. */
static inline int kolo_lanes_prepare(kolo_kernel *k, const kolo_cuda_view *x,
                                     int (*run)(const kolo_kernel *, void *const *, void *, const kolo_step *,
                                                int))
{
    const int64_t vectors = x->stored / (x->dtype == KOLO_F32 ? 4 : 8);
    if (x->pixels > INT32_MAX / 64 || x->rows * vectors > INT32_MAX)
        return kolo_fail(KOLO_ECONFIG,
                         "a tensor of %ld x %ld x %ld x %ld elements is too large; use a smaller micro_batch",
                         (long)x->rows, (long)x->channels, (long)x->height, (long)x->width);
    kolo_lanes *p = (kolo_lanes *)kolo_alloc(sizeof *p);
    if (!p) return KOLO_ENOMEM;
    p->rows = (int)x->rows;
    p->channels = (int)x->channels;
    p->pixels = (int)x->pixels;
    p->vectors = (int)vectors;
    for (p->width = 1; p->width < KOLO_LANE_WIDEST && p->width < p->vectors;) p->width *= 2;
    p->groups = (p->vectors + p->width - 1) / p->width;
    p->dtype = x->dtype;
    k->state = p;
    k->release = free;
    k->run = run;
    snprintf(k->name, sizeof k->name, "own %s", kolo_dtype_name(x->dtype));
    return 0;
}

/* The lanes' sums of the block's channels, divided by `by`, to the row of `to` (N, C). part:
 * [KOLO_LANE_THREADS * N], shared; for all threads of a block. */
template <typename T, int N>
static __device__ void kolo_lanes_total(const kolo_lanes &p, T *to, int n, int first, const double *sum,
                                        double *part, double by)
{
    const int lanes = KOLO_LANE_THREADS / p.width;
    const int column = (int)threadIdx.x & (p.width - 1), lane = (int)threadIdx.x / p.width;
#pragma unroll
    for (int l = 0; l < N; l++) part[(lane * N + l) * p.width + column] = sum[l];
    __syncthreads();
    for (int i = (int)threadIdx.x; i < p.width * N; i += KOLO_LANE_THREADS) {
        const int c = first * N + i;
        double total = 0;
        for (int k = 0; k < lanes; k++) total += part[(k * N + i % N) * p.width + i / N];
        if (c < p.channels) kolo_round((float)(total / by), to + (int64_t)n * p.channels + c);
    }
}

#endif
