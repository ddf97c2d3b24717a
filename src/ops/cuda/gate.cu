/* gate: x (N, C, H, W) times s (N, C), and both gradients in one pass. A block takes one row and `width` vectors of channels, width a power of 2;
 * its THREADS / width lanes share the pixels. */
#include "ops/cuda/vector.cuh"

extern "C" {
#include "base/memory.h"
}

enum { THREADS = 256, WIDEST = 32, UNROLL = 4 };

typedef struct gate {
    int rows, channels, pixels, vectors;
    int width, groups; /* vectors of a block; blocks of a row */
    enum kolo_dtype dtype;
} gate;

/* out = in * s; with GRAD in is dy, and ds the sum of dy x, in f64, in an order that the shape decides: a lane's pixels, then the lanes.
 * out, ds may be NULL. */
template <typename T, bool GRAD>
__global__ void __launch_bounds__(THREADS) gate_kernel(T *out, T *ds, const T *in, const T *x, const T *s, gate p)
{
    const int N = kolo_vector<T>::N, lanes = THREADS / p.width;
    __shared__ double part[GRAD ? THREADS * N : 1];
    const int n = (int)blockIdx.x / p.groups, first = ((int)blockIdx.x - n * p.groups) * p.width;
    const int column = (int)threadIdx.x & (p.width - 1), lane = (int)threadIdx.x / p.width;
    const int64_t at = ((int64_t)n * p.pixels * p.vectors + first + column) * N;
    const int end = first + column < p.vectors ? p.pixels : 0;
    float factor[N];
    double sum[N] = {};
#pragma unroll
    for (int l = 0; l < N; l++) {
        const int c = (first + column) * N + l;
        factor[l] = c < p.channels ? kolo_widen(s[(int64_t)n * p.channels + c]) : 0;
    }
    for (int begin = lane; begin < end; begin += UNROLL * lanes) {
        kolo_words some[UNROLL] = {}, other[UNROLL] = {};
#pragma unroll
        for (int u = 0; u < UNROLL; u++) {
            const int i = begin + u * lanes;
            if (i >= end) continue;
            some[u] = kolo_read16(in + at + (int64_t)i * p.vectors * N);
            if (GRAD && ds) other[u] = kolo_read16(x + at + (int64_t)i * p.vectors * N);
        }
#pragma unroll
        for (int u = 0; u < UNROLL; u++) {
            const int i = begin + u * lanes;
            float v[N], w[N];
            if (i >= end) continue;
            kolo_widen16(in, some[u], v);
            if (GRAD && ds) {
                kolo_widen16(x, other[u], w);
                for (int l = 0; l < N; l++) sum[l] += (double)v[l] * (double)w[l];
            }
            for (int l = 0; l < N; l++) v[l] *= factor[l];
            if (out) kolo_store16(out + at + (int64_t)i * p.vectors * N, v);
        }
    }
    if constexpr (GRAD) {
        if (!ds) return;
#pragma unroll
        for (int l = 0; l < N; l++) part[(lane * N + l) * p.width + column] = sum[l];
        __syncthreads();
        for (int i = (int)threadIdx.x; i < p.width * N; i += THREADS) {
            const int c = first * N + i;
            double total = 0;
            for (int k = 0; k < lanes; k++) total += part[(k * N + i % N) * p.width + i / N];
            if (c < p.channels) kolo_round((float)total, ds + (int64_t)n * p.channels + c);
        }
    }
}

/* in: x, s; out: y */
static int run(const kolo_kernel *k, void *const *args, void *, const kolo_step *, int)
{
    const gate *p = (const gate *)k->state;
    KOLO_FOR_DTYPE(p->dtype, T,
                   return KOLO_LAUNCH((gate_kernel<T, false>), p->rows * p->groups, THREADS, 0, kolo_cuda_stream(k),
                                      (T *)args[2], (T *)NULL, (const T *)args[0], (const T *)NULL, (const T *)args[1],
                                      *p));
}

/* in: dy, x, s; out: dx, ds */
static int run_grad(const kolo_kernel *k, void *const *args, void *, const kolo_step *, int)
{
    const gate *p = (const gate *)k->state;
    KOLO_FOR_DTYPE(p->dtype, T,
                   return KOLO_LAUNCH((gate_kernel<T, true>), p->rows * p->groups, THREADS, 0, kolo_cuda_stream(k),
                                      (T *)args[3], (T *)args[4], (const T *)args[0], (const T *)args[1],
                                      (const T *)args[2], *p));
}

static int prepare(const kolo_kernel_request *r, kolo_kernel *k)
{
    const kolo_cuda_view x = kolo_cuda_view_in(r, 0);
    const int64_t vectors = x.stored / (x.dtype == KOLO_F32 ? 4 : 8);
    if (x.pixels > INT32_MAX / 64 || x.rows * vectors > INT32_MAX)
        return kolo_fail(KOLO_ECONFIG,
                         "a tensor of %ld x %ld x %ld x %ld elements is too large; use a smaller micro_batch",
                         (long)x.rows, (long)x.channels, (long)x.height, (long)x.width);
    gate *p = (gate *)kolo_alloc(sizeof *p);
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
    k->run = r->node->op == KOLO_OP_gate_grad ? run_grad : run;
    snprintf(k->name, sizeof k->name, "own %s", kolo_dtype_name(x.dtype));
    return 0;
}

const kolo_op_row kolo_cuda_gate = {NULL, prepare};
const kolo_op_row kolo_cuda_gate_grad = {NULL, prepare};
