/* The margin of ArcFace: y = scale cos, but for the label's own class scale cos(angle + margin)
 * (ops/margin.h). A block takes a row. */
#include "ops/cuda/target.cuh"
#include "ops/margin.h"

extern "C" {
#include "base/memory.h"
}

typedef struct arc {
    int rows, first, count, classes, words, threads; /* count classes of all, from the first one on */
    kolo_arc_margin1 margin;
    float scale;
    enum kolo_dtype dtype;
} arc;

/* from: cosines, or with GRAD dy. A label that no class has is refused by the loss. */
template <typename T, bool GRAD>
__global__ void __launch_bounds__(KOLO_ROW_THREADS)
    arc_margin_kernel(T *to, const T *from, const T *cosines, const void *labels, arc a,
                      const kolo_step *step, int slot)
{
    const int n = (int)blockIdx.x;
    const int64_t at = (int64_t)n * a.count;
    const kolo_target t = kolo_target_of(labels, n, a.words, a.classes);
    kolo_bad_label bad;
    const bool fits = n < step->valid[slot] && kolo_target_fits(&t, a.words, a.classes, &bad);
    const int own = fits ? t.heavier - a.first : -1; /* may be another part's */
    for (int i = (int)threadIdx.x; i < a.count; i += (int)blockDim.x) {
        const float v = kolo_widen(from[at + i]);
        float y = a.scale * v;
        if (i == own)
            y = GRAD ? y * kolo_arc_slope1(&a.margin, kolo_widen(cosines[at + i]))
                     : a.scale * kolo_arc1(&a.margin, v);
        kolo_round(y, to + at + i);
    }
}

/* in: cosines, labels; out: y */
static int cuda_arc_margin_run(const kolo_kernel *k, void *const *args, void *, const kolo_step *step,
                               int slot)
{
    const arc *a = (const arc *)k->state;
    KOLO_FOR_DTYPE(a->dtype, T,
                   return KOLO_LAUNCH((arc_margin_kernel<T, false>), a->rows, a->threads, 0,
                                      kolo_cuda_stream(k), (T *)args[2], (const T *)args[0],
                                      (const T *)args[0], (const void *)args[1], *a, step, slot));
}

/* in: dy, cosines, labels; out: dcosines */
static int cuda_arc_margin_run_grad(const kolo_kernel *k, void *const *args, void *, const kolo_step *step,
                                    int slot)
{
    const arc *a = (const arc *)k->state;
    KOLO_FOR_DTYPE(a->dtype, T,
                   return KOLO_LAUNCH((arc_margin_kernel<T, true>), a->rows, a->threads, 0,
                                      kolo_cuda_stream(k), (T *)args[3], (const T *)args[0],
                                      (const T *)args[1], (const void *)args[2], *a, step, slot));
}

static int cuda_arc_margin_prepare(const kolo_kernel_request *r, kolo_kernel *k)
{
    const bool backward = r->node->op == KOLO_OP_arc_margin_grad;
    const kolo_tensor *x = kolo_request_in(r, 0);
    KOLO_TRY(kolo_rows_check(x));
    arc *a = (arc *)kolo_alloc(sizeof *a);
    if (!a) return KOLO_ENOMEM;
    a->rows = (int)x->dim[0];
    a->first = (int)r->node->a.first;
    a->count = (int)x->dim[1];
    a->classes = r->node->a.count ? (int)r->node->a.count : a->count;
    a->words = kolo_target_words(kolo_request_in(r, backward ? 2 : 1));
    a->threads = kolo_row_threads(a->count);
    a->margin = kolo_arc_margin1_of((float)r->node->a.margin);
    a->scale = (float)r->node->a.scale;
    a->dtype = x->dtype;
    k->state = a;
    k->release = free;
    k->run = backward ? cuda_arc_margin_run_grad : cuda_arc_margin_run;
    snprintf(k->name, sizeof k->name, "own %s, %d threads a row", kolo_dtype_name(a->dtype), a->threads);
    return 0;
}

const kolo_op_row kolo_cuda_arc_margin = {NULL, cuda_arc_margin_prepare};
const kolo_op_row kolo_cuda_arc_margin_grad = {NULL, cuda_arc_margin_prepare};
