/* Softmax of the rows of (N, C), or its logarithm, and the gradient, from the result. A block takes a row; sums are f64. Both may be made in
 * place: a thread reads what it overwrites. */
#include "ops/cuda/rows.cuh"

extern "C" {
#include "base/memory.h"
}

typedef struct softmax {
    int rows, classes, threads;
    bool log;
    enum kolo_dtype dtype;
} softmax;

template <typename T> __global__ void __launch_bounds__(KOLO_ROW_THREADS) softmax_kernel(T *y, const T *x, softmax p)
{
    const int64_t at = (int64_t)blockIdx.x * p.classes;
    const float largest = kolo_row_largest(x + at, p.classes);
    double sum = 0;
    for (int i = (int)threadIdx.x; i < p.classes; i += (int)blockDim.x)
        sum += (double)expf(kolo_widen(x[at + i]) - largest);
    sum = kolo_row_sum(sum);
    const float down = (float)log(sum), scale = (float)(1 / sum);
    for (int i = (int)threadIdx.x; i < p.classes; i += (int)blockDim.x) {
        const float v = kolo_widen(x[at + i]) - largest;
        kolo_round(p.log ? v - down : expf(v) * scale, y + at + i);
    }
}

template <typename T>
__global__ void __launch_bounds__(KOLO_ROW_THREADS) softmax_grad_kernel(T *dx, const T *dy, const T *y, softmax p)
{
    const int64_t at = (int64_t)blockIdx.x * p.classes;
    double sum = 0;
    for (int i = (int)threadIdx.x; i < p.classes; i += (int)blockDim.x)
        sum += (double)(kolo_widen(dy[at + i]) * (p.log ? 1.0f : kolo_widen(y[at + i])));
    const float total = (float)kolo_row_sum(sum);
    for (int i = (int)threadIdx.x; i < p.classes; i += (int)blockDim.x) {
        const float d = kolo_widen(dy[at + i]), v = kolo_widen(y[at + i]);
        kolo_round(p.log ? d - expf(v) * total : v * (d - total), dx + at + i);
    }
}

static int run(const kolo_kernel *k, void *const *args, void *, const kolo_step *, int)
{
    const softmax *p = (const softmax *)k->state;
    KOLO_FOR_DTYPE(p->dtype, T,
                   return KOLO_LAUNCH(softmax_kernel<T>, p->rows, p->threads, 0, kolo_cuda_stream(k), (T *)args[1],
                                      (const T *)args[0], *p));
}

static int run_grad(const kolo_kernel *k, void *const *args, void *, const kolo_step *, int)
{
    const softmax *p = (const softmax *)k->state;
    KOLO_FOR_DTYPE(p->dtype, T,
                   return KOLO_LAUNCH(softmax_grad_kernel<T>, p->rows, p->threads, 0, kolo_cuda_stream(k), (T *)args[2],
                                      (const T *)args[0], (const T *)args[1], *p));
}

static int prepare(const kolo_kernel_request *r, kolo_kernel *k)
{
    const kolo_tensor *x = kolo_request_in(r, 0);
    KOLO_TRY(kolo_rows_check(x));
    softmax *p = (softmax *)kolo_alloc(sizeof *p);
    if (!p) return KOLO_ECONFIG;
    *p = {(int)x->dim[0], (int)x->dim[1], kolo_row_threads(x->dim[1]), r->node->a.log, x->dtype};
    k->state = p;
    k->release = free;
    k->run = r->node->op == KOLO_OP_softmax_grad ? run_grad : run;
    snprintf(k->name, sizeof k->name, "own %s, %d threads a row", kolo_dtype_name(p->dtype), p->threads);
    return 0;
}

const kolo_op_row kolo_cuda_softmax = {NULL, prepare};
const kolo_op_row kolo_cuda_softmax_grad = {NULL, prepare};
