/* Global average pooling: (N, C, H, W) -> (N, C). */
#include "ops/cuda/vector.cuh"

extern "C" {
#include "base/memory.h"
}

/* A block takes one row and `width` vectors of channels, width a power of 2; its THREADS / width lanes share the pixels. */
enum { THREADS = 256, WIDEST = 32, UNROLL = 4 };

typedef struct global {
    int rows, channels, pixels, vectors;
    int width, groups; /* vectors of a block; blocks of a row */
    enum kolo_dtype dtype;
} global;

/* Sums in f64, in an order that the shape decides: a lane's pixels, then the lanes. */
template <typename T> __global__ void __launch_bounds__(THREADS) mean_kernel(T *y, const T *x, global p)
{
    const int N = kolo_vector<T>::N, lanes = THREADS / p.width;
    __shared__ double part[THREADS * N];
    const int n = (int)blockIdx.x / p.groups, first = ((int)blockIdx.x - n * p.groups) * p.width;
    const int column = (int)threadIdx.x & (p.width - 1), lane = (int)threadIdx.x / p.width;
    const T *from = x + ((int64_t)n * p.pixels * p.vectors + first + column) * N;
    const int end = first + column < p.vectors ? p.pixels : 0;
    double sum[N] = {};
    for (int begin = lane; begin < end; begin += UNROLL * lanes) {
        kolo_words some[UNROLL] = {};
#pragma unroll
        for (int u = 0; u < UNROLL; u++) {
            const int i = begin + u * lanes;
            if (i < end) some[u] = kolo_read16(from + (int64_t)i * p.vectors * N);
        }
#pragma unroll
        for (int u = 0; u < UNROLL; u++) {
            float v[N];
            kolo_widen16(x, some[u], v);
#pragma unroll
            for (int l = 0; l < N; l++) sum[l] += (double)v[l];
        }
    }
#pragma unroll
    for (int l = 0; l < N; l++) part[(lane * N + l) * p.width + column] = sum[l];
    __syncthreads();
    for (int i = (int)threadIdx.x; i < p.width * N; i += THREADS) {
        const int c = first * N + i;
        double total = 0;
        for (int k = 0; k < lanes; k++) total += part[(k * N + i % N) * p.width + i / N];
        if (c < p.channels) kolo_round((float)(total / (double)p.pixels), y + (int64_t)n * p.channels + c);
    }
}

template <typename T> __global__ void __launch_bounds__(THREADS) spread_kernel(T *dx, const T *dy, global p)
{
    const int N = kolo_vector<T>::N, lanes = THREADS / p.width;
    const int n = (int)blockIdx.x / p.groups, first = ((int)blockIdx.x - n * p.groups) * p.width;
    const int column = first + ((int)threadIdx.x & (p.width - 1)), lane = (int)threadIdx.x / p.width;
    if (column >= p.vectors) return;
    float value[N];
#pragma unroll
    for (int l = 0; l < N; l++) {
        const int c = column * N + l;
        value[l] = c < p.channels ? kolo_widen(dy[(int64_t)n * p.channels + c]) / (float)p.pixels : 0;
    }
    const kolo_words words = kolo_round16(dx, value);
    T *to = dx + ((int64_t)n * p.pixels * p.vectors + column) * N;
    for (int i = lane; i < p.pixels; i += lanes) kolo_write16(to + (int64_t)i * p.vectors * N, words);
}

static int run(const kolo_kernel *k, void *const *args, void *, const kolo_step *, int)
{
    const global *p = (const global *)k->state;
    KOLO_FOR_DTYPE(p->dtype, T,
                   return KOLO_LAUNCH(mean_kernel<T>, p->rows * p->groups, THREADS, 0, kolo_cuda_stream(k),
                                      (T *)args[1], (const T *)args[0], *p));
}

static int run_grad(const kolo_kernel *k, void *const *args, void *, const kolo_step *, int)
{
    const global *p = (const global *)k->state;
    KOLO_FOR_DTYPE(p->dtype, T,
                   return KOLO_LAUNCH(spread_kernel<T>, p->rows * p->groups, THREADS, 0, kolo_cuda_stream(k),
                                      (T *)args[1], (const T *)args[0], *p));
}

static int prepare(const kolo_kernel_request *r, kolo_kernel *k)
{
    const bool backward = r->node->op == KOLO_OP_global_avg_pool_grad;
    const kolo_cuda_view x = backward ? kolo_cuda_view_out(r, 0) : kolo_cuda_view_in(r, 0);
    const int64_t vectors = x.stored / (x.dtype == KOLO_F32 ? 4 : 8);
    if (x.pixels > INT32_MAX / 64 || x.rows * vectors > INT32_MAX)
        return kolo_fail(KOLO_ECONFIG,
                         "a tensor of %ld x %ld x %ld x %ld elements is too large; use a smaller micro_batch",
                         (long)x.rows, (long)x.channels, (long)x.height, (long)x.width);
    global *p = (global *)kolo_alloc(sizeof *p);
    if (!p) return KOLO_ECONFIG;
    p->rows = (int)x.rows;
    p->channels = (int)x.channels;
    p->pixels = (int)x.pixels;
    p->vectors = (int)vectors;
    for (p->width = 1; p->width < WIDEST && p->width < p->vectors;) p->width *= 2;
    p->groups = (p->vectors + p->width - 1) / p->width;
    p->dtype = x.dtype;
    k->state = p;
    k->release = free;
    k->run = backward ? run_grad : run;
    snprintf(k->name, sizeof k->name, "own %s", kolo_dtype_name(x.dtype));
    return 0;
}

const kolo_op_row kolo_cuda_global_avg_pool = {NULL, prepare};
const kolo_op_row kolo_cuda_global_avg_pool_grad = {NULL, prepare};
