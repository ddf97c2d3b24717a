/* Losses of classes, with label smoothing as torch and timm have it: targets are y (1 - eps) + eps / K.
 * Softmax cross entropy: - sum y log p; binary cross entropy: the mean over classes of softplus(x) - x y; of
 * image labels the sum of p softplus(-x) + n softplus(x). A block takes a row of logits; sums over classes
 * and rows are f64, in an order that the shape decides. */
#include "ops/cuda/target.cuh"

extern "C" {
#include "base/memory.h"
}

enum { FINISH_THREADS = 256 };

typedef struct entropy {
    int rows, classes, words; /* words: of a label; 0: numbers */
    double smoothing;
    double weight;       /* of the auxiliary logits; of a gradient: a factor, 0: 1 */
    bool two;            /* there are auxiliary logits */
    bool binary, weighs; /* weighs: labels are image labels */
    int threads;         /* of a row's block */
    enum kolo_dtype dtype;
} entropy;
typedef struct row_result {
    double loss;
    int32_t rank; /* classes before the target's */
    kolo_bad_label bad;
} row_result;

static __device__ int valid_rows(const entropy &p, const kolo_step *step, int slot)
{
    return step->valid[slot] < p.rows ? step->valid[slot] : p.rows;
}

static __device__ float weight_of(const entropy &p) { return p.weight > 0 ? (float)p.weight : 1; }

/* Block n: row n. */
template <typename T>
__global__ void __launch_bounds__(KOLO_ROW_THREADS)
    row_kernel(row_result *result, const T *logits, const void *labels, entropy p, const kolo_step *step,
               int slot)
{
    const int n = (int)blockIdx.x;
    if (n >= valid_rows(p, step, slot)) return;
    const T *x = logits + (int64_t)n * p.classes;
    const kolo_target t = kolo_target_of(labels, n, p.words, p.classes);
    row_result r = {};
    const float own = kolo_target_fits(&t, p.words, p.classes, &r.bad) ? kolo_widen(x[t.heavier]) : 0,
                largest = p.binary ? 0 : kolo_row_largest(x, p.classes);
    double sum = 0, total = 0, dot = 0, mass = 0; /* of e^(x - largest) or log(1 + e^x), x, x y, y */
    int rank = 0;
    for (int i = (int)threadIdx.x; i < p.classes; i += (int)blockDim.x) {
        const float v = kolo_widen(x[i]);
        const double y = (double)kolo_target_at(t, i);
        sum += p.binary ? (double)(v > 0 ? v : 0) + (double)log1pf(expf(v > 0 ? -v : v))
                        : (double)expf(v - largest);
        total += (double)v;
        if (y != 0) dot += y * (double)v;
        mass += y;
        rank += v > own || (v == own && i < t.heavier);
    }
    sum = kolo_row_sum(sum);
    total = kolo_row_sum(total);
    dot = kolo_row_sum(dot);
    mass = kolo_row_sum(mass);
    rank = kolo_row_sum(rank);
    if (threadIdx.x) return;
    const double eps = p.smoothing, classes = (double)p.classes, log_sum = log(sum) + (double)largest;
    r.rank = own != own ? p.classes : rank;
    r.loss = p.binary ? (sum - (1 - eps) * dot - eps * total / classes) / classes
                      : (1 - eps) * (log_sum * mass - dot) + eps * (log_sum - total / classes);
    r.loss *= (double)t.factor;
    result[n] = r;
}

/* The same of image labels; rank: known classes before the best of those that are more
 * positive than negative. */
template <typename T>
__global__ void __launch_bounds__(KOLO_ROW_THREADS)
    weighed_kernel(row_result *result, const T *logits, const float *labels, entropy p, const kolo_step *step,
                   int slot)
{
    const int n = (int)blockIdx.x;
    if (n >= valid_rows(p, step, slot)) return;
    const T *x = logits + (int64_t)n * p.classes;
    const float *yes = labels + 2 * (int64_t)n * p.classes, *no = yes + p.classes;
    double loss = 0;
    float best = -HUGE_VALF;
    int rank = 0;
    for (int i = (int)threadIdx.x; i < p.classes; i += (int)blockDim.x) {
        const float v = kolo_widen(x[i]);
        if (yes[i] + no[i] == 0) continue;
        loss += kolo_bce_weighed(v, yes[i], no[i]);
        if (yes[i] > no[i] && v > best) best = v;
    }
    loss = kolo_row_sum(loss);
    best = kolo_row_max(best);
    for (int i = (int)threadIdx.x; i < p.classes; i += (int)blockDim.x)
        rank += yes[i] + no[i] > 0 && yes[i] <= no[i] && !(kolo_widen(x[i]) < best);
    rank = kolo_row_sum(rank);
    if (threadIdx.x) return;
    row_result r = {};
    r.loss = loss;
    r.rank = best == -HUGE_VALF ? p.classes : rank;
    result[n] = r;
}

/* One block: the metrics of all valid rows, behind which are those of auxiliary logits, and the first label
 * out of range, unless an earlier slot had one. */
__global__ void __launch_bounds__(FINISH_THREADS)
    finish_kernel(float *metric, const row_result *result, entropy p, const kolo_step *step, int slot)
{
    const int rows = valid_rows(p, step, slot);
    double loss = 0;
    int top1 = 0, top5 = 0, bad = 0; /* bad: rows - number of the first such row */
    for (int n = (int)threadIdx.x; n < rows; n += FINISH_THREADS) {
        const row_result r = result[n];
        if (r.bad.kind) {
            bad = rows - n > bad ? rows - n : bad;
            continue;
        }
        loss += r.loss;
        if (p.two) loss += p.weight * result[p.rows + n].loss;
        top1 += r.rank < 1;
        top5 += r.rank < 5;
    }
    bad = kolo_class_metrics(metric, loss, top1, top5, bad, rows);
    if (bad) kolo_report_bad(step, result[rows - bad].bad, slot, rows - bad);
}

/* Block n: row n; zeros beyond the valid rows, and for a bad label, which ends the run. */
template <typename T>
__global__ void __launch_bounds__(KOLO_ROW_THREADS)
    grad_kernel(T *gradient, const T *logits, const void *labels, entropy p, const kolo_step *step, int slot)
{
    const int n = (int)blockIdx.x;
    const T *x = logits + (int64_t)n * p.classes;
    T *dx = gradient + (int64_t)n * p.classes;
    const kolo_target t = kolo_target_of(labels, n, p.words, p.classes);
    kolo_bad_label bad;
    if (n >= valid_rows(p, step, slot) || !kolo_target_fits(&t, p.words, p.classes, &bad)) {
        for (int i = (int)threadIdx.x; i < p.classes; i += (int)blockDim.x) kolo_round(0.0f, dx + i);
        return;
    }
    const float eps = (float)p.smoothing, classes = (float)p.classes,
                largest = p.binary ? 0 : kolo_row_largest(x, p.classes);
    double sum = 0, mass = 0;
    for (int i = (int)threadIdx.x; i < p.classes && !p.binary; i += (int)blockDim.x) {
        sum += (double)expf(kolo_widen(x[i]) - largest);
        mass += (double)kolo_target_at(t, i);
    }
    sum = kolo_row_sum(sum);
    mass = kolo_row_sum(mass);
    const float scale = (float)(((1 - p.smoothing) * mass + p.smoothing) / sum);
    float inverse =
        step->valid_global > 0 ? (float)((double)step->scaler.scale / (double)step->valid_global) : 0;
    inverse *= t.factor * weight_of(p);
    if (p.binary) inverse /= classes;
    for (int i = (int)threadIdx.x; i < p.classes; i += (int)blockDim.x) {
        const float v = kolo_widen(x[i]), e = expf(p.binary ? (v > 0 ? -v : v) : v - largest);
        const float share = p.binary ? (v > 0 ? 1 : e) / (1 + e) : e * scale;
        kolo_round(kolo_cross_entropy_grad1(share, kolo_target_at(t, i), eps, classes, inverse), dx + i);
    }
}

template <typename T>
__global__ void __launch_bounds__(KOLO_ROW_THREADS)
    weighed_grad_kernel(T *gradient, const T *logits, const float *labels, entropy p, const kolo_step *step,
                        int slot)
{
    const int n = (int)blockIdx.x;
    const T *x = logits + (int64_t)n * p.classes;
    T *dx = gradient + (int64_t)n * p.classes;
    const float *yes = labels + 2 * (int64_t)n * p.classes, *no = yes + p.classes;
    const bool valid = n < valid_rows(p, step, slot);
    float inverse =
        step->valid_global > 0 ? (float)((double)step->scaler.scale / (double)step->valid_global) : 0;
    inverse *= weight_of(p);
    for (int i = (int)threadIdx.x; i < p.classes; i += (int)blockDim.x) {
        const float v = kolo_widen(x[i]), e = expf(v > 0 ? -v : v), share = (v > 0 ? 1 : e) / (1 + e);
        kolo_round(valid ? kolo_bce_weighed_grad(share, yes[i], no[i], inverse) : 0.0f, dx + i);
    }
}

static int run_rows(const entropy *p, cudaStream_t stream, row_result *result, const void *logits,
                    const void *labels, const kolo_step *step, int slot)
{
    if (p->weighs)
        KOLO_FOR_DTYPE(p->dtype, T,
                       return KOLO_LAUNCH(weighed_kernel<T>, p->rows, p->threads, 0, stream, result,
                                          (const T *)logits, (const float *)labels, *p, step, slot));
    KOLO_FOR_DTYPE(p->dtype, T,
                   return KOLO_LAUNCH(row_kernel<T>, p->rows, p->threads, 0, stream, result,
                                      (const T *)logits, labels, *p, step, slot));
}

/* in: logits, labels[, auxiliary logits]; out: metrics */
static int cuda_loss_run(const kolo_kernel *k, void *const *args, void *workspace, const kolo_step *step,
                         int slot)
{
    const entropy *p = (const entropy *)k->state;
    row_result *result = (row_result *)workspace;
    cudaStream_t stream = kolo_cuda_stream(k);
    KOLO_TRY(run_rows(p, stream, result, args[0], args[1], step, slot));
    if (p->two) KOLO_TRY(run_rows(p, stream, result + p->rows, args[2], args[1], step, slot));
    return KOLO_LAUNCH(finish_kernel, 1, FINISH_THREADS, 0, stream, (float *)args[p->two ? 3 : 2],
                       (const row_result *)result, *p, step, slot);
}

/* in: logits, labels; out: dlogits */
static int cuda_loss_run_grad(const kolo_kernel *k, void *const *args, void *, const kolo_step *step,
                              int slot)
{
    const entropy *p = (const entropy *)k->state;
    if (p->weighs)
        KOLO_FOR_DTYPE(p->dtype, T,
                       return KOLO_LAUNCH(weighed_grad_kernel<T>, p->rows, p->threads, 0, kolo_cuda_stream(k),
                                          (T *)args[2], (const T *)args[0], (const float *)args[1], *p, step,
                                          slot));
    KOLO_FOR_DTYPE(p->dtype, T,
                   return KOLO_LAUNCH(grad_kernel<T>, p->rows, p->threads, 0, kolo_cuda_stream(k),
                                      (T *)args[2], (const T *)args[0], (const void *)args[1], *p, step,
                                      slot));
}

static int cuda_loss_prepare(const kolo_kernel_request *r, kolo_kernel *k)
{
    const kolo_tensor *x = kolo_request_in(r, 0);
    const enum kolo_op op = r->node->op;
    KOLO_TRY(kolo_rows_check(x));
    entropy *p = (entropy *)kolo_alloc(sizeof *p);
    if (!p) return KOLO_ENOMEM;
    p->rows = (int)x->dim[0];
    p->classes = (int)x->dim[1];
    p->words = kolo_target_words(kolo_request_in(r, 1));
    p->smoothing = r->node->a.smoothing;
    p->weight = r->node->a.weight;
    p->binary = op == KOLO_OP_bce || op == KOLO_OP_bce_grad;
    p->weighs = kolo_target_weighs(kolo_request_in(r, 1));
    p->threads = kolo_row_threads(p->classes);
    p->dtype = x->dtype;
    const bool backward = op == KOLO_OP_cross_entropy_grad || op == KOLO_OP_bce_grad;
    p->two = !backward && r->node->n_in > 2;
    k->state = p;
    k->release = free;
    k->run = backward ? cuda_loss_run_grad : cuda_loss_run;
    k->workspace = backward ? 0 : (size_t)p->rows * (p->two ? 2 : 1) * sizeof(row_result);
    snprintf(k->name, sizeof k->name, "own %s, %d threads a row", kolo_dtype_name(p->dtype), p->threads);
    return 0;
}

const kolo_op_row kolo_cuda_cross_entropy = {NULL, cuda_loss_prepare};
const kolo_op_row kolo_cuda_cross_entropy_grad = {NULL, cuda_loss_prepare};
const kolo_op_row kolo_cuda_bce = {NULL, cuda_loss_prepare};
const kolo_op_row kolo_cuda_bce_grad = {NULL, cuda_loss_prepare};
