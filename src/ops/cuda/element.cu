/* Operations of one element at a time: relu, add, relu's gradient. Over whole tensors, padding
 * included: it stays zero. */
#include "ops/cuda/vector.cuh"

extern "C" {
#include "base/memory.h"
}

/* A block's tile: every thread reads UNROLL vectors before it writes one, which keeps enough bytes in
 * flight to fill the memory. */
enum { THREADS = 256, UNROLL = 4, TILE = THREADS * UNROLL };

typedef struct element {
    int64_t count;
    enum kolo_dtype dtype;
} element;

template <int OP> KOLO_INLINE float element_of(float a, float b)
{
    if (OP == KOLO_OP_relu) return kolo_relu1(a);
    if (OP == KOLO_OP_add) return a + b;
    return kolo_relu_grad1(a, b);
}

/* out may be a. relu ignores b. */
template <typename T, int OP>
__global__ void __launch_bounds__(THREADS) element_kernel(T *out, const T *a, const T *b, int64_t count)
{
    const int N = kolo_vector<T>::N;
    int64_t vectors = count / N, first = (int64_t)blockIdx.x * TILE + threadIdx.x;
    kolo_words left[UNROLL], right[UNROLL];
#pragma unroll
    for (int u = 0; u < UNROLL; u++) {
        int64_t i = first + u * THREADS;
        if (i >= vectors) continue;
        left[u] = kolo_read16(a + i * N);
        if (OP != KOLO_OP_relu) right[u] = kolo_read16(b + i * N);
    }
#pragma unroll
    for (int u = 0; u < UNROLL; u++) {
        int64_t i = first + u * THREADS;
        float x[N], y[N] = {};
        if (i >= vectors) continue;
        kolo_widen16(a, left[u], x);
        if (OP != KOLO_OP_relu) kolo_widen16(b, right[u], y);
#pragma unroll
        for (int l = 0; l < N; l++) x[l] = element_of<OP>(x[l], y[l]);
        kolo_store16(out + i * N, x);
    }
    /* (N, F) need not fill its last vector: the first threads of all take what is left */
    int64_t rest = vectors * N + first;
    if (rest < count && first < N)
        kolo_round(element_of<OP>(kolo_widen(a[rest]), OP == KOLO_OP_relu ? 0 : kolo_widen(b[rest])),
                   &out[rest]);
}

template <int OP> static int element_run(const kolo_kernel *k, void *out, const void *a, const void *b)
{
    const element *e = (const element *)k->state;
    int64_t tile = (int64_t)TILE * 16 / (int64_t)kolo_dtype_size(e->dtype),
            grid = (e->count + tile - 1) / tile;
    KOLO_FOR_DTYPE(e->dtype, T,
                   return KOLO_LAUNCH((element_kernel<T, OP>), grid, THREADS, 0, kolo_cuda_stream(k),
                                      (T *)out, (const T *)a, (const T *)b, e->count));
}

static int relu(const kolo_kernel *k, void *const *args, void *, const kolo_step *, int)
{
    return element_run<KOLO_OP_relu>(k, args[1], args[0], args[0]);
}
static int cuda_element_add(const kolo_kernel *k, void *const *args, void *, const kolo_step *, int)
{
    return element_run<KOLO_OP_add>(k, args[2], args[0], args[1]);
}
static int relu_grad(const kolo_kernel *k, void *const *args, void *, const kolo_step *, int)
{
    return element_run<KOLO_OP_relu_grad>(k, args[2], args[0], args[1]);
}

static int cuda_element_prepare(const kolo_kernel_request *r, kolo_kernel *k)
{
    element *e = (element *)kolo_alloc(sizeof *e);
    if (!e) return KOLO_ENOMEM;
    kolo_cuda_view v = kolo_cuda_view_in(r, 0);
    e->count = v.rows * v.pixels * v.stored;
    e->dtype = v.dtype;
    k->state = e;
    k->release = free;
    k->run = r->node->op == KOLO_OP_relu ? relu : r->node->op == KOLO_OP_add ? cuda_element_add : relu_grad;
    snprintf(k->name, sizeof k->name, "own %s", kolo_dtype_name(v.dtype));
    return 0;
}

const kolo_op_row kolo_cuda_relu = {NULL, cuda_element_prepare};
const kolo_op_row kolo_cuda_add = {NULL, cuda_element_prepare};
const kolo_op_row kolo_cuda_relu_grad = {NULL, cuda_element_prepare};
