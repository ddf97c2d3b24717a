/* Losses of classes, with label smoothing as torch and timm have it: targets are y (1 - eps) + eps / K.
 * Softmax cross entropy: - sum y log p. Binary cross entropy: the mean over classes of softplus(x) - x y; of
 * image labels the sum of p softplus(-x) + n softplus(x) with the weights p, n that the labels are. */
#include <math.h>
#include <omp.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/memory.h"
#include "kolo/error.h"
#include "ops/cpu/exp.h"
#include "ops/cpu/target.h"

typedef struct loss {
    int64_t rows, classes, words; /* of a label; 0: numbers */
    double smoothing;
    double weight;             /* of the auxiliary logits; of a gradient: a factor, 0: 1 */
    bool two;                  /* there are auxiliary logits */
    bool bf16, binary, weighs; /* weighs: labels are image labels */
    int threads;
} loss;
typedef struct row_result {
    double loss;
    int32_t rank; /* classes before the label's */
    kolo_bad_label bad;
} row_result;

/* ---- one row of logits: f32 copies --------------------------------------------------------------------- */

KOLO_BODY logits_body(float *to, const void *x, int64_t n, bool bf16, float *largest)
{
    float most = -INFINITY;
    for (int64_t i = 0; i < n; i++) to[i] = bf16 ? kolo_load(x, i, true) : kolo_load(x, i, false);
#pragma omp simd reduction(max : most)
    for (int64_t i = 0; i < n; i++) most = to[i] > most ? to[i] : most;
    *largest = most;
}
KOLO_WIDE(logits, (float *to, const void *x, int64_t n, bool bf16, float *largest), (to, x, n, bf16, largest))

/* p := e^(x - largest), in place or not; *sum of them */
KOLO_BODY powers_body(float *p, const float *x, int64_t n, float largest, double *sum)
{
    double s = 0;
#pragma omp simd reduction(+ : s)
    for (int64_t i = 0; i < n; i++) s += (double)(p[i] = kolo_exp_zero1(x[i] - largest));
    *sum = s;
}
KOLO_WIDE(powers, (float *p, const float *x, int64_t n, float largest, double *sum), (p, x, n, largest, sum))

/* sum of log(1 + e^x). Of 64 factors up to 2 the product is formed before one logarithm is taken. */
KOLO_BODY softplus_body(const float *x, int64_t n, double *sum)
{
    double s = 0;
    for (int64_t i = 0; i < n; i += 64) {
        const int64_t m = n - i < 64 ? n - i : 64;
        double product = 1, above = 0;
#pragma omp simd reduction(* : product) reduction(+ : above)
        for (int64_t j = i; j < i + m; j++) {
            const float v = x[j] > 0 ? x[j] : 0;
            product *= 1 + (double)kolo_exp_zero1(x[j] - 2 * v);
            above += (double)v;
        }
        s += log(product) + above;
    }
    *sum = s;
}
KOLO_WIDE(softplus, (const float *x, int64_t n, double *sum), (x, n, sum))

/* s := 1 / (1 + e^-x) */
KOLO_BODY sigmoid_body(float *s, const float *x, int64_t n)
{
    for (int64_t i = 0; i < n; i++) {
        const float e = kolo_exp_zero1(x[i] > 0 ? -x[i] : x[i]), small = e / (1 + e);
        s[i] = x[i] > 0 ? 1 / (1 + e) : small;
    }
}
KOLO_WIDE(sigmoid, (float *s, const float *x, int64_t n), (s, x, n))

/* Workspace of a thread: a row of logits and one of powers. */
static int64_t row_floats(const loss *l) { return 2 * (int64_t)kolo_round_up((size_t)l->classes, 16); }

/* ---- forward ------------------------------------------------------------------------------------------- */

/* Sums over the classes of y x and of y. */
static void weigh(const loss *l, const kolo_target *t, const float *x, double *dot, double *mass)
{
    *mass = 1;
    if (!t->number) {
        *dot = (double)t->weight * (double)x[t->heavier];
        if (t->weight < 1) *dot += (1 - (double)t->weight) * (double)x[t->lighter];
        return;
    }
    *dot = *mass = 0;
    for (int64_t i = 0; i < l->classes; i++) {
        *dot += (double)t->number[i] * (double)x[i];
        *mass += (double)t->number[i];
    }
}

static row_result row_loss(const loss *l, const void *x, const kolo_target *t, float *row)
{
    row_result r = {0};
    float largest, *power = row + row_floats(l) / 2;
    if (!kolo_target_fits(t, l->words, l->classes, &r.bad)) return r;
    logits(row, x, l->classes, l->bf16, &largest);
    const float own = row[t->heavier];
    double dot, mass, total = 0, sum, eps = l->smoothing, classes = (double)l->classes;
    for (int64_t i = 0; i < l->classes; i++) {
        total += (double)row[i];
        r.rank += row[i] > own || (row[i] == own && i < t->heavier);
    }
    weigh(l, t, row, &dot, &mass);
    if (l->binary) {
        softplus(row, l->classes, &sum);
        r.loss = (sum - (1 - eps) * dot - eps * total / classes) / classes;
    } else {
        powers(power, row, l->classes, largest, &sum);
        const double log_sum = log(sum) + (double)largest;
        r.loss = (1 - eps) * (log_sum * mass - dot) + eps * (log_sum - total / classes);
    }
    r.loss *= (double)t->factor;
    if (isnan(own)) r.rank = (int32_t)l->classes;
    return r;
}

/* rank: known classes before the best of those that are more positive than negative. */
static row_result row_loss_weighed(const loss *l, const void *x, const float *weight, float *row)
{
    const float *p = weight, *n = weight + l->classes;
    row_result r = {0};
    float largest, best = -INFINITY;
    logits(row, x, l->classes, l->bf16, &largest);
    for (int64_t i = 0; i < l->classes; i++) {
        if (p[i] + n[i] == 0) continue;
        r.loss += kolo_bce_weighed(row[i], p[i], n[i]);
        if (p[i] > n[i] && row[i] > best) best = row[i];
    }
    for (int64_t i = 0; i < l->classes; i++) r.rank += p[i] + n[i] > 0 && p[i] <= n[i] && !(row[i] < best);
    if (best == -INFINITY) r.rank = (int32_t)l->classes;
    return r;
}

static int64_t valid_rows(const loss *l, const kolo_step *step, int slot)
{
    return step->valid[slot] < l->rows ? step->valid[slot] : l->rows;
}

static row_result one_row(const loss *l, const void *logits, const void *labels, int64_t n, float *row)
{
    const void *x = kolo_at(logits, n * l->classes, l->bf16);
    if (l->weighs) return row_loss_weighed(l, x, (const float *)labels + 2 * n * l->classes, row);
    const kolo_target t = kolo_target_of(labels, n, l->words, l->classes);
    return row_loss(l, x, &t, row);
}

/* in: logits, labels[, auxiliary logits]; out: metrics */
static int loss_run(const kolo_kernel *k, void *const *args, void *workspace, const kolo_step *step, int slot)
{
    const loss *l = k->state;
    float *metric = args[l->two ? 3 : 2];
    row_result *result = workspace;
    float *space = (float *)(result + l->rows);
    int64_t rows = valid_rows(l, step, slot), top1 = 0, top5 = 0;
#pragma omp parallel for schedule(static) num_threads(l->threads)
    for (int64_t n = 0; n < rows; n++) {
        float *own = space + omp_get_thread_num() * row_floats(l);
        result[n] = one_row(l, args[0], args[1], n, own);
        if (l->two) result[n].loss += l->weight * one_row(l, args[2], args[1], n, own).loss;
    }
    double sum = 0;
    for (int64_t n = 0; n < rows; n++) {
        result[n].bad.slot = slot;
        result[n].bad.row = (int32_t)n;
        KOLO_TRY(kolo_bad_label_fail(&result[n].bad, l->classes));
        sum += result[n].loss;
        top1 += result[n].rank < 1;
        top5 += result[n].rank < 5;
    }
    metric[0] = (float)sum;
    metric[1] = (float)top1;
    metric[2] = (float)top5;
    metric[3] = (float)rows;
    return 0;
}

/* ---- backward ------------------------------------------------------------------------------------------ */

static void loss_put(void *p, int64_t i, float v, bool bf16)
{
    KOLO_FOR_TYPE(bf16, kolo_store(p, i, v, bf16_));
}

KOLO_ALWAYS void grad_loop(void *dx, const float *p, const float *y, int64_t n, float scale, float eps,
                           float factor, bool bf16)
{
#pragma omp simd
    for (int64_t i = 0; i < n; i++)
        kolo_store(dx, i, kolo_cross_entropy_grad1(p[i] * scale, y ? y[i] : 0.0f, eps, (float)n, factor),
                   bf16);
}
KOLO_BODY grad_body(void *dx, const float *p, const float *y, int64_t n, float scale, float eps, float factor,
                    bool bf16)
{
    KOLO_FOR_TYPE(bf16, grad_loop(dx, p, y, n, scale, eps, factor, bf16_));
}
KOLO_WIDE(grad,
          (void *dx, const float *p, const float *y, int64_t n, float scale, float eps, float factor,
           bool bf16),
          (dx, p, y, n, scale, eps, factor, bf16))

/* factor: 1 / rows, times the loss scale */
static void row_grad(const loss *l, void *dx, const void *x, const kolo_target *t, float factor, float *row)
{
    float largest, scale = 1, *p = row + row_floats(l) / 2;
    const float eps = (float)l->smoothing, classes = (float)l->classes;
    double sum, dot, mass;
    kolo_bad_label bad;
    factor *= t->factor;
    logits(row, x, l->classes, l->bf16, &largest);
    if (l->binary) {
        sigmoid(p, row, l->classes);
        factor /= classes;
    } else {
        powers(p, row, l->classes, largest, &sum);
        mass = 1;
        if (t->number) weigh(l, t, row, &dot, &mass);
        scale = (float)(((1 - l->smoothing) * mass + l->smoothing) / sum);
    }
    grad(dx, p, t->number, l->classes, scale, eps, factor, l->bf16);
    if (t->number || !kolo_target_fits(t, l->words, l->classes, &bad)) return;
    const bool two = t->weight < 1, same = two && t->heavier == t->lighter;
    loss_put(dx, t->heavier,
             kolo_cross_entropy_grad1(p[t->heavier] * scale, same ? 1.0f : t->weight, eps, classes, factor),
             l->bf16);
    if (two && !same)
        loss_put(dx, t->lighter,
                 kolo_cross_entropy_grad1(p[t->lighter] * scale, 1 - t->weight, eps, classes, factor),
                 l->bf16);
}

static void row_grad_weighed(const loss *l, void *dx, const void *x, const float *weight, float factor,
                             float *row)
{
    float largest, *s = row + row_floats(l) / 2;
    logits(row, x, l->classes, l->bf16, &largest);
    sigmoid(s, row, l->classes);
    for (int64_t i = 0; i < l->classes; i++)
        loss_put(dx, i, kolo_bce_weighed_grad(s[i], weight[i], weight[l->classes + i], factor), l->bf16);
}

/* in: logits, labels; out: dlogits */
static int loss_run_grad(const kolo_kernel *k, void *const *args, void *workspace, const kolo_step *step,
                         int slot)
{
    const loss *l = k->state;
    int64_t rows = valid_rows(l, step, slot);
    float inverse = step->valid_global > 0 ? (float)(1 / (double)step->valid_global) : 0;
    inverse *= step->scaler.scale;
    if (l->weight > 0) inverse *= (float)l->weight;
#pragma omp parallel for schedule(static) num_threads(l->threads)
    for (int64_t n = 0; n < l->rows; n++) {
        void *dx = kolo_at_out(args[2], n * l->classes, l->bf16);
        if (n >= rows) {
            memset(dx, 0, (size_t)l->classes * (l->bf16 ? 2 : 4));
            continue;
        }
        const void *x = kolo_at(args[0], n * l->classes, l->bf16);
        float *own = (float *)workspace + omp_get_thread_num() * row_floats(l);
        if (l->weighs) {
            row_grad_weighed(l, dx, x, (const float *)args[1] + 2 * n * l->classes, inverse, own);
            continue;
        }
        const kolo_target t = kolo_target_of(args[1], n, l->words, l->classes);
        row_grad(l, dx, x, &t, inverse, own);
    }
    return 0;
}

static int loss_prepare(const kolo_kernel_request *r, kolo_kernel *k)
{
    loss *l = kolo_alloc(sizeof *l);
    if (!l) return KOLO_ENOMEM;
    const kolo_tensor *x = kolo_request_in(r, 0);
    const enum kolo_op op = r->node->op;
    const bool backward = op == KOLO_OP_cross_entropy_grad || op == KOLO_OP_bce_grad;
    *l = (loss){.rows = x->dim[0],
                .classes = x->dim[1],
                .words = kolo_target_words(kolo_request_in(r, 1)),
                .smoothing = r->node->a.smoothing,
                .weight = r->node->a.weight,
                .two = !backward && r->node->n_in > 2,
                .bf16 = x->dtype == KOLO_BF16,
                .binary = op == KOLO_OP_bce || op == KOLO_OP_bce_grad,
                .weighs = kolo_target_weighs(kolo_request_in(r, 1))};
    l->threads = kolo_cpu_threads(r->backend, l->rows * l->classes * 8);
    k->state = l;
    k->release = free;
    k->run = backward ? loss_run_grad : loss_run;
    k->workspace = (size_t)(l->threads * row_floats(l)) * sizeof(float) +
                   (backward ? 0 : (size_t)l->rows * sizeof(row_result));
    snprintf(k->name, sizeof k->name, "own%s", l->bf16 ? " bf16" : "");
    return 0;
}

const kolo_op_row kolo_cpu_cross_entropy = {NULL, loss_prepare};
const kolo_op_row kolo_cpu_cross_entropy_grad = {NULL, loss_prepare};
const kolo_op_row kolo_cpu_bce = {NULL, loss_prepare};
const kolo_op_row kolo_cpu_bce_grad = {NULL, loss_prepare};
