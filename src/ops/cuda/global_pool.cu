/* Global average pooling: (N, C, H, W) -> (N, C). */
#include "ops/cuda/lanes.cuh"

enum { UNROLL = 4 };

/* Sums in f64, in an order that the shape decides: a lane's pixels, then the lanes. */
template <typename T>
__global__ void __launch_bounds__(KOLO_LANE_THREADS) mean_kernel(T *y, const T *x, kolo_lanes p)
{
    const int N = kolo_vector<T>::N, lanes = KOLO_LANE_THREADS / p.width;
    __shared__ double part[KOLO_LANE_THREADS * N];
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
    kolo_lanes_total<T, N>(p, y, n, first, sum, part, (double)p.pixels);
}

template <typename T>
__global__ void __launch_bounds__(KOLO_LANE_THREADS) spread_kernel(T *dx, const T *dy, kolo_lanes p)
{
    const int N = kolo_vector<T>::N, lanes = KOLO_LANE_THREADS / p.width;
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

static int cuda_global_pool_run(const kolo_kernel *k, void *const *args, void *, const kolo_step *, int)
{
    const kolo_lanes *p = (const kolo_lanes *)k->state;
    KOLO_FOR_DTYPE(p->dtype, T,
                   return KOLO_LAUNCH(mean_kernel<T>, p->rows * p->groups, KOLO_LANE_THREADS, 0,
                                      kolo_cuda_stream(k), (T *)args[1], (const T *)args[0], *p));
}

static int cuda_global_pool_run_grad(const kolo_kernel *k, void *const *args, void *, const kolo_step *, int)
{
    const kolo_lanes *p = (const kolo_lanes *)k->state;
    KOLO_FOR_DTYPE(p->dtype, T,
                   return KOLO_LAUNCH(spread_kernel<T>, p->rows * p->groups, KOLO_LANE_THREADS, 0,
                                      kolo_cuda_stream(k), (T *)args[1], (const T *)args[0], *p));
}

static int cuda_global_pool_prepare(const kolo_kernel_request *r, kolo_kernel *k)
{
    const bool backward = r->node->op == KOLO_OP_global_avg_pool_grad;
    const kolo_cuda_view x = backward ? kolo_cuda_view_out(r, 0) : kolo_cuda_view_in(r, 0);
    return kolo_lanes_prepare(k, &x, backward ? cuda_global_pool_run_grad : cuda_global_pool_run);
}

const kolo_op_row kolo_cuda_global_avg_pool = {NULL, cuda_global_pool_prepare};
const kolo_op_row kolo_cuda_global_avg_pool_grad = {NULL, cuda_global_pool_prepare};
