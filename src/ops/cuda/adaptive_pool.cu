/* Average pooling to a given number of pixels, and its gradient: ops/adaptive.h has the windows. A thread
 * makes one vector of channels of one pixel of the result. */
#include "ops/adaptive.h"
#include "ops/cuda/cells.cuh"

extern "C" {
#include "base/memory.h"
}

enum { THREADS = 256 };

typedef struct adaptive {
    kolo_cells cells;                       /* of the result: y; of the gradient dx */
    int height, width, to_height, to_width; /* of what is read, of the result */
    int stored;
    bool backward;
    enum kolo_dtype dtype;
} adaptive;

template <typename T>
__global__ void __launch_bounds__(THREADS) adaptive_kernel(T *to, const T *from, adaptive p)
{
    const int N = kolo_vector<T>::N;
    const uint32_t item = blockIdx.x * THREADS + threadIdx.x;
    if (item >= p.cells.items) return;
    const kolo_cell c = kolo_cell_at(&p.cells, item);
    const kolo_span rows = kolo_span_of(c.h, p.to_height, p.height),
                    columns = kolo_span_of(c.w, p.to_width, p.width);
    const float all = p.backward ? 1 : kolo_span_share(rows, columns);
    float sum[N] = {};
    for (int h = rows.begin; h < rows.end; h++)
        for (int w = columns.begin; w < columns.end; w++) {
            const float share = p.backward ? kolo_span_share(kolo_span_of(h, p.height, p.to_height),
                                                             kolo_span_of(w, p.width, p.to_width))
                                           : 1;
            float v[N];
            kolo_load16(from + ((int64_t)(c.n * p.height + h) * p.width + w) * p.stored + c.v * N, v);
#pragma unroll
            for (int l = 0; l < N; l++) sum[l] += share * v[l];
        }
#pragma unroll
    for (int l = 0; l < N; l++) sum[l] *= all;
    kolo_store16(to + (int64_t)item * N, sum);
}

static int cuda_adaptive_pool_run(const kolo_kernel *k, void *const *args, void *, const kolo_step *, int)
{
    const adaptive *p = (const adaptive *)k->state;
    const unsigned grid = (p->cells.items + THREADS - 1) / THREADS;
    KOLO_FOR_DTYPE(p->dtype, T,
                   return KOLO_LAUNCH(adaptive_kernel<T>, grid, THREADS, 0, kolo_cuda_stream(k), (T *)args[1],
                                      (const T *)args[0], *p));
}

static int cuda_adaptive_pool_prepare(const kolo_kernel_request *r, kolo_kernel *k)
{
    const kolo_cuda_view from = kolo_cuda_view_in(r, 0), to = kolo_cuda_view_out(r, 0);
    adaptive *p = (adaptive *)kolo_alloc(sizeof *p);
    if (!p) return KOLO_ENOMEM;
    k->state = p;
    k->release = free;
    k->run = cuda_adaptive_pool_run;
    KOLO_TRY(kolo_cells_of(&from, &p->cells)); /* is it small enough? */
    KOLO_TRY(kolo_cells_of(&to, &p->cells));
    p->height = (int)from.height, p->width = (int)from.width;
    p->to_height = (int)to.height, p->to_width = (int)to.width;
    p->stored = (int)from.stored;
    p->backward = r->node->op == KOLO_OP_adaptive_avg_pool_grad;
    p->dtype = from.dtype;
    snprintf(k->name, sizeof k->name, "own %s to %dx%d", kolo_dtype_name(p->dtype), p->to_height,
             p->to_width);
    return 0;
}

const kolo_op_row kolo_cuda_adaptive_avg_pool = {NULL, cuda_adaptive_pool_prepare};
const kolo_op_row kolo_cuda_adaptive_avg_pool_grad = {NULL, cuda_adaptive_pool_prepare};
