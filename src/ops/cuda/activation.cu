/* Activations and their gradients, element by element; ops/activation.h has the arithmetic. Where an
 * activation makes something of 0, padding is cleared. */
#include "ops/cuda/cells.cuh" /* first: it says that graph.h is C */

#include "ops/activation.h"

extern "C" {
#include "base/memory.h"
}

/* A thread takes one vector: the arithmetic is long enough, and code for more of them at once would be. */
enum { THREADS = 256 };

typedef struct activation {
    int64_t count;
    enum kolo_activation kind;
    float slope;
    int channels; /* of each pixel's `vectors` vectors; 0: no padding to clear */
    kolo_divisor vectors;
    enum kolo_dtype dtype;
} activation;

/* For 16-bit types the GPU's own exponential and quotient, within 1e-6, are exact enough: with those of
 * ops/activation.h arithmetic takes twice as long as the memory. */
template <bool GRAD> static __device__ float quick_gelu(float a, float x)
{
    const float e = __expf(-0.5f * x * x), size = x < 0 ? -x : x,
                s = kolo_normal_of1(x, e, __fdividef(1.0f, 1.0f + 0.3f * size));
    return GRAD ? a * (s + x * (0.398942280f * e)) : x * s;
}
template <bool GRAD> static __device__ float quick_silu(float a, float x)
{
    const float s = __fdividef(1.0f, 1.0f + __expf(x > -80.0f ? -x : 80.0f));
    return GRAD ? a * (s + x * s * (1.0f - s)) : x * s;
}

/* The branch is the same for all threads. */
template <typename T, bool GRAD> static __device__ float activation_of(const activation &p, float a, float x)
{
    if (sizeof(T) == 2 && p.kind == KOLO_GELU) return quick_gelu<GRAD>(a, x);
    if (sizeof(T) == 2 && p.kind == KOLO_SILU) return quick_silu<GRAD>(a, x);
#define KIND(name) \
    case name: return GRAD ? kolo_activation_grad1(name, p.slope, a, x) : kolo_activation1(name, p.slope, x)
    switch (p.kind) {
        KIND(KOLO_GELU);
        KIND(KOLO_GELU_TANH);
        KIND(KOLO_SILU);
        KIND(KOLO_LEAKY_RELU);
        KIND(KOLO_HARD_SWISH);
        KIND(KOLO_HARD_SIGMOID);
        KIND(KOLO_RELU6);
        KIND(KOLO_SIGMOID);
    default:
        return GRAD ? kolo_activation_grad1(KOLO_TANH, p.slope, a, x)
                    : kolo_activation1(KOLO_TANH, p.slope, x);
    }
#undef KIND
}

/* out may be dy, or without GRAD x. */
template <typename T, bool GRAD>
__global__ void __launch_bounds__(THREADS) activation_kernel(T *out, const T *dy, const T *x, activation p)
{
    const int N = kolo_vector<T>::N;
    const int64_t vectors = p.count / N, i = (int64_t)blockIdx.x * THREADS + threadIdx.x,
                  rest = vectors * N + i;
    if (i < vectors) {
        float a[N] = {}, v[N];
        kolo_load16(x + i * N, v);
        if (GRAD) kolo_load16(dy + i * N, a);
        const int own = (int)((uint32_t)i - kolo_quotient((uint32_t)i, p.vectors) * p.vectors.by);
        const int end = p.channels ? p.channels - N * own : N;
#pragma unroll
        for (int l = 0; l < N; l++) v[l] = l < end ? activation_of<T, GRAD>(p, a[l], v[l]) : 0;
        kolo_store16(out + i * N, v);
    }
    if (rest < p.count && i < N) /* of (N, F), by the first threads of all */
        kolo_round(activation_of<T, GRAD>(p, GRAD ? kolo_widen(dy[rest]) : 0, kolo_widen(x[rest])),
                   &out[rest]);
}

template <bool GRAD> static int launch(const kolo_kernel *k, void *out, const void *dy, const void *x)
{
    const activation *p = (const activation *)k->state;
    const int64_t block = (int64_t)THREADS * 16 / (int64_t)kolo_dtype_size(p->dtype),
                  grid = (p->count + block - 1) / block;
    KOLO_FOR_DTYPE(p->dtype, T,
                   return KOLO_LAUNCH((activation_kernel<T, GRAD>), grid, THREADS, 0, kolo_cuda_stream(k),
                                      (T *)out, (const T *)dy, (const T *)x, *p));
}

static int cuda_activation_run(const kolo_kernel *k, void *const *args, void *, const kolo_step *, int)
{
    return launch<false>(k, args[1], args[0], args[0]);
}
static int cuda_activation_run_grad(const kolo_kernel *k, void *const *args, void *, const kolo_step *, int)
{
    return launch<true>(k, args[2], args[0], args[1]);
}

static int cuda_activation_prepare(const kolo_kernel_request *r, kolo_kernel *k)
{
    const bool backward = r->node->op == KOLO_OP_activation_grad;
    const kolo_cuda_view v = kolo_cuda_view_in(r, 0);
    activation *p = (activation *)kolo_alloc(sizeof *p);
    if (!p) return KOLO_ENOMEM;
    k->state = p;
    k->release = free;
    k->run = backward ? cuda_activation_run_grad : cuda_activation_run;
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

const kolo_op_row kolo_cuda_activation = {NULL, cuda_activation_prepare};
const kolo_op_row kolo_cuda_activation_grad = {NULL, cuda_activation_prepare};
