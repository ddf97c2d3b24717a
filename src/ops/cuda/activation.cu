/* Activations and their gradients, element by element; ops/activation.h has the arithmetic. Where an activation makes something of 0, padding is
 * cleared. */
#include "ops/cuda/cells.cuh" /* first: it says that graph.h is C */

#include "ops/activation.h"

extern "C" {
#include "base/memory.h"
}

enum { THREADS = 256, UNROLL = 4, TILE = THREADS * UNROLL };

typedef struct activation {
    int64_t count;
    enum kolo_activation kind;
    float slope;
    int channels; /* of each pixel's `vectors` vectors; 0: no padding to clear */
    kolo_divisor vectors;
    enum kolo_dtype dtype;
} activation;

/* The branch is the same for all threads. */
template <bool GRAD> KOLO_INLINE float activation_of(const activation &p, float a, float x)
{
#define KIND(name) \
    case name: return GRAD ? kolo_activation_grad1(name, p.slope, a, x) : kolo_activation1(name, p.slope, x)
    switch (p.kind) {
        KIND(KOLO_GELU);
        KIND(KOLO_GELU_TANH);
        KIND(KOLO_SILU);
        KIND(KOLO_LEAKY_RELU);
        KIND(KOLO_HARD_SWISH);
        KIND(KOLO_HARD_SIGMOID);
        KIND(KOLO_SIGMOID);
    default: return GRAD ? kolo_activation_grad1(KOLO_TANH, p.slope, a, x) : kolo_activation1(KOLO_TANH, p.slope, x);
    }
#undef KIND
}

/* out may be dy, or without GRAD x. */
template <typename T, bool GRAD>
__global__ void __launch_bounds__(THREADS) activation_kernel(T *out, const T *dy, const T *x, activation p)
{
    const int N = kolo_vector<T>::N;
    const int64_t vectors = p.count / N, first = (int64_t)blockIdx.x * TILE + threadIdx.x;
    kolo_words left[UNROLL], right[UNROLL];
#pragma unroll
    for (int u = 0; u < UNROLL; u++) {
        const int64_t i = first + u * THREADS;
        if (i >= vectors) continue;
        right[u] = kolo_read16(x + i * N);
        if (GRAD) left[u] = kolo_read16(dy + i * N);
    }
#pragma unroll
    for (int u = 0; u < UNROLL; u++) {
        const int64_t i = first + u * THREADS;
        float a[N] = {}, v[N];
        if (i >= vectors) continue;
        kolo_widen16(x, right[u], v);
        if (GRAD) kolo_widen16(dy, left[u], a);
        const int end = p.channels ? p.channels - N * (int)((uint32_t)i - kolo_quotient((uint32_t)i, p.vectors) * p.vectors.by) : N;
#pragma unroll
        for (int l = 0; l < N; l++) v[l] = l < end ? activation_of<GRAD>(p, a[l], v[l]) : 0;
        kolo_store16(out + i * N, v);
    }
    const int64_t rest = vectors * N + first; /* of (N, F), by the first threads of all */
    if (rest < p.count && first < N)
        kolo_round(activation_of<GRAD>(p, GRAD ? kolo_widen(dy[rest]) : 0, kolo_widen(x[rest])), &out[rest]);
}

template <bool GRAD> static int launch(const kolo_kernel *k, void *out, const void *dy, const void *x)
{
    const activation *p = (const activation *)k->state;
    const int64_t tile = (int64_t)TILE * 16 / (int64_t)kolo_dtype_size(p->dtype), grid = (p->count + tile - 1) / tile;
    KOLO_FOR_DTYPE(p->dtype, T,
                   return KOLO_LAUNCH((activation_kernel<T, GRAD>), grid, THREADS, 0, kolo_cuda_stream(k), (T *)out,
                                      (const T *)dy, (const T *)x, *p));
}

static int run(const kolo_kernel *k, void *const *args, void *, const kolo_step *, int)
{
    return launch<false>(k, args[1], args[0], args[0]);
}
static int run_grad(const kolo_kernel *k, void *const *args, void *, const kolo_step *, int)
{
    return launch<true>(k, args[2], args[0], args[1]);
}

static int prepare(const kolo_kernel_request *r, kolo_kernel *k)
{
    const bool backward = r->node->op == KOLO_OP_activation_grad;
    const kolo_cuda_view v = kolo_cuda_view_in(r, 0);
    activation *p = (activation *)kolo_alloc(sizeof *p);
    if (!p) return KOLO_ECONFIG;
    k->state = p;
    k->release = free;
    k->run = backward ? run_grad : run;
    p->count = v.rows * v.pixels * v.stored;
    p->kind = r->node->a.activation;
    p->slope = (float)r->node->a.slope;
    p->dtype = v.dtype;
    if (!backward && v.stored != v.channels && !kolo_activation_keeps_zero(p->kind)) {
        kolo_cells cells;
        KOLO_TRY(kolo_cells_of(&v, &cells)); /* few enough vectors to divide by */
        p->channels = (int)v.channels;
        p->vectors = cells.vectors;
    }
    snprintf(k->name, sizeof k->name, "own %s", kolo_dtype_name(v.dtype));
    return 0;
}

const kolo_op_row kolo_cuda_activation = {NULL, prepare};
const kolo_op_row kolo_cuda_activation_grad = {NULL, prepare};
