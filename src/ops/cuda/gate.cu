/* gate: x (N, C, H, W) times s (N, C), and both gradients in one pass. A block takes one row and `width`
 * vectors of channels, width a power of 2; its KOLO_LANE_THREADS / width lanes share the pixels. */
#include "ops/cuda/lanes.cuh"

enum { UNROLL = 4 };

/* out = in * s; with GRAD in is dy, and ds the sum of dy x, in f64, in an order that the shape decides: a
 * lane's pixels, then the lanes. out, ds may be NULL. */
template <typename T, bool GRAD>
__global__ void __launch_bounds__(KOLO_LANE_THREADS)
    gate_kernel(T *out, T *ds, const T *in, const T *x, const T *s, kolo_lanes p)
{
    const int N = kolo_vector<T>::N, lanes = KOLO_LANE_THREADS / p.width;
    __shared__ double part[GRAD ? KOLO_LANE_THREADS * N : 1];
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
    if (GRAD && ds) kolo_lanes_total<T, N>(p, ds, n, first, sum, part, 1);
}

/* in: x, s; out: y */
static int cuda_gate_run(const kolo_kernel *k, void *const *args, void *, const kolo_step *, int)
{
    const kolo_lanes *p = (const kolo_lanes *)k->state;
    KOLO_FOR_DTYPE(p->dtype, T,
                   return KOLO_LAUNCH((gate_kernel<T, false>), p->rows * p->groups, KOLO_LANE_THREADS, 0,
                                      kolo_cuda_stream(k), (T *)args[2], (T *)NULL, (const T *)args[0],
                                      (const T *)NULL, (const T *)args[1], *p));
}

/* in: dy, x, s; out: dx, ds */
static int cuda_gate_run_grad(const kolo_kernel *k, void *const *args, void *, const kolo_step *, int)
{
    const kolo_lanes *p = (const kolo_lanes *)k->state;
    KOLO_FOR_DTYPE(p->dtype, T,
                   return KOLO_LAUNCH((gate_kernel<T, true>), p->rows * p->groups, KOLO_LANE_THREADS, 0,
                                      kolo_cuda_stream(k), (T *)args[3], (T *)args[4], (const T *)args[0],
                                      (const T *)args[1], (const T *)args[2], *p));
}

static int cuda_gate_prepare(const kolo_kernel_request *r, kolo_kernel *k)
{
    const kolo_cuda_view x = kolo_cuda_view_in(r, 0);
    return kolo_lanes_prepare(k, &x, r->node->op == KOLO_OP_gate_grad ? cuda_gate_run_grad : cuda_gate_run);
}

const kolo_op_row kolo_cuda_gate = {NULL, cuda_gate_prepare};
const kolo_op_row kolo_cuda_gate_grad = {NULL, cuda_gate_prepare};
