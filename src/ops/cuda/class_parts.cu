/* Softmax cross entropy of logits whose classes are in parts; ops/cpu/class_parts.c says what each operation
 * makes. A block takes a row of a part's logits; sums are f64, in an order that the shape decides. */
#include "ops/cuda/target.cuh"
#include "ops/class_parts.h"

extern "C" {
#include "base/memory.h"
}

enum { FINISH_THREADS = 256 };

/* Classes [first, first + count) of `classes`. */
typedef struct class_part {
    int rows, first, count, classes, words, terms, threads;
    double smoothing;
    enum kolo_dtype dtype;
} class_part;
typedef struct class_sources {
    const float *at[KOLO_MAX_ARGS];
} class_sources;

static __device__ bool is_learned(const class_part &c, const kolo_target &t, int n, const kolo_step *step,
                                  int slot)
{
    kolo_bad_label bad;
    return n < step->valid[slot] && kolo_target_fits(&t, c.words, c.classes, &bad);
}

template <typename T>
__global__ void __launch_bounds__(KOLO_ROW_THREADS)
    peaks_kernel(float *peaks, const T *logits, const void *labels, class_part c, const kolo_step *step,
                 int slot)
{
    const int n = (int)blockIdx.x;
    const T *x = logits + (int64_t)n * c.count;
    const kolo_target t = kolo_target_of(labels, n, c.words, c.classes);
    const bool learned = is_learned(c, t, n, step, slot);
    const float most = kolo_row_largest(x, c.count);
    if (threadIdx.x) return;
    const int own = t.heavier - c.first;
    const float v = learned && own >= 0 && own < c.count ? kolo_widen(x[own]) : -HUGE_VALF;
    peaks[n * KOLO_PEAKS] = learned ? most : -HUGE_VALF;
    peaks[n * KOLO_PEAKS + 1] = v == v ? v : -HUGE_VALF;
}

__global__ void __launch_bounds__(FINISH_THREADS)
    largest_kernel(float *most, class_sources from, class_part c)
{
    const int i = (int)(blockIdx.x * FINISH_THREADS + threadIdx.x);
    if (i >= c.count) return;
    float all = from.at[0][i];
    for (int k = 1; k < c.terms; k++) all = from.at[k][i] > all ? from.at[k][i] : all;
    most[i] = all;
}

template <typename T>
__global__ void __launch_bounds__(KOLO_ROW_THREADS)
    terms_kernel(double *terms, const T *logits, const void *labels, const float *peaks, class_part c,
                 const kolo_step *step, int slot)
{
    const int n = (int)blockIdx.x;
    const T *x = logits + (int64_t)n * c.count;
    const float *peak = peaks + n * KOLO_PEAKS;
    const kolo_target t = kolo_target_of(labels, n, c.words, c.classes);
    double sum[KOLO_TERMS] = {};
    if (is_learned(c, t, n, step, slot))
        for (int i = (int)threadIdx.x; i < c.count; i += (int)blockDim.x) {
            const float v = kolo_widen(x[i]);
            const double y = (double)kolo_target_at(t, c.first + i);
            sum[KOLO_TERM_POWERS] += (double)expf(v - peak[0]);
            if (y != 0) sum[KOLO_TERM_DOT] += y * (double)v;
            sum[KOLO_TERM_MASS] += y;
            sum[KOLO_TERM_TOTAL] += (double)v;
            sum[KOLO_TERM_RANK] += kolo_class_is_before(v, c.first + i, peak[1], t.heavier) ? 1 : 0;
        }
    for (int k = 0; k < KOLO_TERMS; k++) {
        const double all = kolo_row_sum(sum[k]);
        if (threadIdx.x == 0) terms[n * KOLO_TERMS + k] = all;
    }
}

/* A row is one thread's; labels of numbers need no whole block here: only their fit is asked for. */
__global__ void __launch_bounds__(FINISH_THREADS)
    class_loss_kernel(float *metric, const double *sums, const float *peaks, const void *labels, class_part c,
                      const kolo_step *step, int slot)
{
    const int rows = step->valid[slot] < c.rows ? step->valid[slot] : c.rows;
    double loss = 0;
    int top1 = 0, top5 = 0, bad = 0; /* bad: rows - number of the first such row */
    kolo_bad_label wrong = {};
    for (int n = (int)threadIdx.x; n < rows; n += FINISH_THREADS) {
        const double *sum = sums + n * KOLO_TERMS;
        kolo_target t = {0, -1, 1, NULL, 1};
        if (c.words) t = kolo_target_of_classes((const int32_t *)labels + (int64_t)n * c.words, c.words);
        if (!kolo_target_fits(&t, c.words, c.classes, &wrong)) {
            bad = rows - n > bad ? rows - n : bad;
            continue;
        }
        loss += kolo_class_loss1(sum, (double)peaks[n * KOLO_PEAKS], c.smoothing, (double)c.classes) *
                (double)t.factor;
        top1 += sum[KOLO_TERM_RANK] < 1;
        top5 += sum[KOLO_TERM_RANK] < 5;
    }
    bad = kolo_class_metrics(metric, loss, top1, top5, bad, rows);
    if (!bad) return;
    const int n = rows - bad;
    const kolo_target t = kolo_target_of_classes((const int32_t *)labels + (int64_t)n * c.words, c.words);
    kolo_target_fits(&t, c.words, c.classes, &wrong);
    kolo_report_bad(step, wrong, slot, n);
}

template <typename T>
__global__ void __launch_bounds__(KOLO_ROW_THREADS)
    class_grad_kernel(T *gradient, const T *logits, const void *labels, const float *peaks,
                      const double *sums, class_part c, const kolo_step *step, int slot)
{
    const int n = (int)blockIdx.x;
    const T *x = logits + (int64_t)n * c.count;
    T *dx = gradient + (int64_t)n * c.count;
    const kolo_target t = kolo_target_of(labels, n, c.words, c.classes);
    const bool learned = is_learned(c, t, n, step, slot);
    const float largest = peaks[n * KOLO_PEAKS], eps = (float)c.smoothing, classes = (float)c.classes,
                scale = kolo_class_scale1(sums + n * KOLO_TERMS, c.smoothing, t.number != NULL);
    float inverse =
        step->valid_global > 0 ? (float)((double)step->scaler.scale / (double)step->valid_global) : 0;
    inverse *= t.factor;
    for (int i = (int)threadIdx.x; i < c.count; i += (int)blockDim.x) {
        const float share = expf(kolo_widen(x[i]) - largest) * scale;
        kolo_round(
            learned ? kolo_cross_entropy_grad1(share, kolo_target_at(t, c.first + i), eps, classes, inverse)
                    : 0.0f,
            dx + i);
    }
}

static int cuda_peaks_run(const kolo_kernel *k, void *const *args, void *, const kolo_step *step, int slot)
{
    const class_part *c = (const class_part *)k->state;
    KOLO_FOR_DTYPE(c->dtype, T,
                   return KOLO_LAUNCH(peaks_kernel<T>, c->rows, c->threads, 0, kolo_cuda_stream(k),
                                      (float *)args[2], (const T *)args[0], (const void *)args[1], *c, step,
                                      slot));
}

static int cuda_largest_run(const kolo_kernel *k, void *const *args, void *, const kolo_step *, int)
{
    const class_part *c = (const class_part *)k->state;
    class_sources from = {};
    for (int i = 0; i < c->terms; i++) from.at[i] = (const float *)args[i];
    return KOLO_LAUNCH(largest_kernel, (c->count + FINISH_THREADS - 1) / FINISH_THREADS, FINISH_THREADS, 0,
                       kolo_cuda_stream(k), (float *)args[c->terms], from, *c);
}

static int cuda_terms_run(const kolo_kernel *k, void *const *args, void *, const kolo_step *step, int slot)
{
    const class_part *c = (const class_part *)k->state;
    KOLO_FOR_DTYPE(c->dtype, T,
                   return KOLO_LAUNCH(terms_kernel<T>, c->rows, c->threads, 0, kolo_cuda_stream(k),
                                      (double *)args[3], (const T *)args[0], (const void *)args[1],
                                      (const float *)args[2], *c, step, slot));
}

static int cuda_class_loss_run(const kolo_kernel *k, void *const *args, void *, const kolo_step *step,
                               int slot)
{
    const class_part *c = (const class_part *)k->state;
    return KOLO_LAUNCH(class_loss_kernel, 1, FINISH_THREADS, 0, kolo_cuda_stream(k), (float *)args[3],
                       (const double *)args[0], (const float *)args[1], (const void *)args[2], *c, step,
                       slot);
}

static int cuda_class_grad_run(const kolo_kernel *k, void *const *args, void *, const kolo_step *step,
                               int slot)
{
    const class_part *c = (const class_part *)k->state;
    KOLO_FOR_DTYPE(c->dtype, T,
                   return KOLO_LAUNCH(class_grad_kernel<T>, c->rows, c->threads, 0, kolo_cuda_stream(k),
                                      (T *)args[4], (const T *)args[0], (const void *)args[1],
                                      (const float *)args[2], (const double *)args[3], *c, step, slot));
}

static int cuda_class_part_prepare(const kolo_kernel_request *r, kolo_kernel *k)
{
    const enum kolo_op op = r->node->op;
    const kolo_tensor *x = kolo_request_in(r, 0);
    KOLO_TRY(kolo_rows_check(x));
    class_part *c = (class_part *)kolo_alloc(sizeof *c);
    if (!c) return KOLO_ENOMEM;
    c->rows = (int)x->dim[0];
    c->first = (int)r->node->a.first;
    c->count = (int)(op == KOLO_OP_largest ? kolo_tensor_count(x) : x->dim[1]);
    c->classes = (int)r->node->a.count;
    c->words =
        op == KOLO_OP_largest ? 0 : kolo_target_words(kolo_request_in(r, op == KOLO_OP_class_loss ? 2 : 1));
    c->terms = r->node->n_in;
    c->threads = kolo_row_threads(c->count);
    c->smoothing = r->node->a.smoothing;
    c->dtype = x->dtype;
    k->state = c;
    k->release = free;
    k->run = op == KOLO_OP_class_peaks   ? cuda_peaks_run
             : op == KOLO_OP_largest     ? cuda_largest_run
             : op == KOLO_OP_class_terms ? cuda_terms_run
             : op == KOLO_OP_class_loss  ? cuda_class_loss_run
                                         : cuda_class_grad_run;
    snprintf(k->name, sizeof k->name, "own %s", kolo_dtype_name(c->dtype));
    return 0;
}

const kolo_op_row kolo_cuda_class_peaks = {NULL, cuda_class_part_prepare};
const kolo_op_row kolo_cuda_largest = {NULL, cuda_class_part_prepare};
const kolo_op_row kolo_cuda_class_terms = {NULL, cuda_class_part_prepare};
const kolo_op_row kolo_cuda_class_loss = {NULL, cuda_class_part_prepare};
const kolo_op_row kolo_cuda_class_grad = {NULL, cuda_class_part_prepare};
