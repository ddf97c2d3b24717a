/* Softmax cross entropy of logits whose classes are in parts (split_channels.c), so that no rank has all
 * logits of a row: the largest of each part, then sums over each part as loss.c forms them over all, then
 * the loss of their sums, and each part's gradient. Targets as in loss.c. */
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/memory.h"
#include "kolo/error.h"
#include "ops/class_parts.h"
#include "ops/cpu/exp.h"
#include "ops/cpu/target.h"

/* Classes [first, first + count) of `classes`. */
typedef struct class_part {
    int64_t rows, first, count, classes, words;
    double smoothing;
    bool bf16;
    int terms, threads; /* terms: inputs of `largest` */
} class_part;

static int64_t valid_rows_of(const class_part *c, const kolo_step *step, int slot)
{
    return step->valid[slot] < c->rows ? step->valid[slot] : c->rows;
}

static float class_get(const void *p, int64_t i, bool bf16)
{
    return bf16 ? kolo_load(p, i, true) : kolo_load(p, i, false);
}

/* The target of row n; false: it is none, which class_loss says. */
static bool class_target(const class_part *c, const void *labels, int64_t n, kolo_target *t)
{
    kolo_bad_label bad;
    *t = kolo_target_of(labels, n, c->words, c->classes);
    return kolo_target_fits(t, c->words, c->classes, &bad);
}

static bool has_class(const class_part *c, int64_t class)
{
    return class >= c->first && class < c->first + c->count;
}

/* ---- the largest --------------------------------------------------------------------------------------- */

/* in: logits, labels; out: peaks */
static int peaks_run(const kolo_kernel *k, void *const *args, void *workspace, const kolo_step *step,
                     int slot)
{
    (void)workspace;
    const class_part *c = k->state;
    const int64_t valid = valid_rows_of(c, step, slot);
    float *peaks = args[2];
#pragma omp parallel for schedule(static) num_threads(c->threads)
    for (int64_t n = 0; n < c->rows; n++) {
        const int64_t at = n * c->count;
        float *peak = peaks + n * KOLO_PEAKS;
        kolo_target t;
        peak[0] = peak[1] = -INFINITY;
        if (n >= valid || !class_target(c, args[1], n, &t)) continue;
        for (int64_t i = 0; i < c->count; i++) {
            const float v = class_get(args[0], at + i, c->bf16);
            peak[0] = v > peak[0] ? v : peak[0];
        }
        if (!has_class(c, t.heavier)) continue;
        const float own = class_get(args[0], at + t.heavier - c->first, c->bf16);
        if (!isnan(own)) peak[1] = own;
    }
    return 0;
}

/* Element by element, of all inputs. */
static int largest_run(const kolo_kernel *k, void *const *args, void *workspace, const kolo_step *step,
                       int slot)
{
    (void)workspace, (void)step, (void)slot;
    const class_part *c = k->state;
    float *most = args[c->terms];
    memcpy(most, args[0], (size_t)c->count * sizeof *most);
    for (int m = 1; m < c->terms; m++) {
        const float *other = args[m];
        for (int64_t i = 0; i < c->count; i++) most[i] = other[i] > most[i] ? other[i] : most[i];
    }
    return 0;
}

/* ---- sums over a part ---------------------------------------------------------------------------------- */

/* Sums of e^(x - largest) and of x. */
KOLO_ALWAYS void class_sums_loop(const void *x, int64_t at, int64_t n, float largest, double *sum,
                                 double *total, bool bf16)
{
    double s = 0, all = 0;
#pragma omp simd reduction(+ : s, all)
    for (int64_t i = 0; i < n; i++) {
        const float v = kolo_load(x, at + i, bf16);
        s += (double)kolo_exp_zero1(v - largest);
        all += (double)v;
    }
    *sum = s;
    *total = all;
}
KOLO_BODY class_sums_body(const void *x, int64_t at, int64_t n, float largest, double *sum, double *total,
                          bool bf16)
{
    KOLO_FOR_TYPE(bf16, class_sums_loop(x, at, n, largest, sum, total, bf16_));
}
KOLO_WIDE(class_sums,
          (const void *x, int64_t at, int64_t n, float largest, double *sum, double *total, bool bf16),
          (x, at, n, largest, sum, total, bf16))

static double target_at(const kolo_target *t, int64_t class)
{
    if (t->number) return (double)t->number[class];
    return (class == t->heavier ? (double)t->weight : 0) + (class == t->lighter ? 1 - (double)t->weight : 0);
}

/* in: logits, labels, peaks of all; out: terms */
static int terms_run(const kolo_kernel *k, void *const *args, void *workspace, const kolo_step *step,
                     int slot)
{
    (void)workspace;
    const class_part *c = k->state;
    const int64_t valid = valid_rows_of(c, step, slot);
#pragma omp parallel for schedule(static) num_threads(c->threads)
    for (int64_t n = 0; n < c->rows; n++) {
        const int64_t at = n * c->count;
        const float *peak = (const float *)args[2] + n * KOLO_PEAKS;
        double *term = (double *)args[3] + n * KOLO_TERMS;
        kolo_target t;
        memset(term, 0, KOLO_TERMS * sizeof *term);
        if (n >= valid || !class_target(c, args[1], n, &t)) continue;
        class_sums(args[0], at, c->count, peak[0], &term[KOLO_TERM_POWERS], &term[KOLO_TERM_TOTAL], c->bf16);
        for (int64_t i = 0; i < c->count; i++) {
            const float v = class_get(args[0], at + i, c->bf16);
            const double y = target_at(&t, c->first + i);
            if (y != 0) term[KOLO_TERM_DOT] += y * (double)v;
            term[KOLO_TERM_MASS] += y;
            term[KOLO_TERM_RANK] += kolo_class_is_before(v, c->first + i, peak[1], t.heavier);
        }
    }
    return 0;
}

/* ---- of all parts -------------------------------------------------------------------------------------- */

/* in: sums of the terms, peaks, labels; out: metrics */
static int class_loss_run(const kolo_kernel *k, void *const *args, void *workspace, const kolo_step *step,
                          int slot)
{
    (void)workspace;
    const class_part *c = k->state;
    const int64_t valid = valid_rows_of(c, step, slot);
    float *metric = args[3];
    double loss = 0;
    int64_t top1 = 0, top5 = 0;
    for (int64_t n = 0; n < valid; n++) {
        const double *sum = (const double *)args[0] + n * KOLO_TERMS;
        const kolo_target t = kolo_target_of(args[2], n, c->words, c->classes);
        kolo_bad_label bad = {.slot = slot, .row = (int32_t)n};
        if (!kolo_target_fits(&t, c->words, c->classes, &bad)) return kolo_bad_label_fail(&bad, c->classes);
        const double largest = (double)((const float *)args[1])[n * KOLO_PEAKS];
        loss += kolo_class_loss1(sum, largest, c->smoothing, (double)c->classes) * (double)t.factor;
        top1 += sum[KOLO_TERM_RANK] < 1;
        top5 += sum[KOLO_TERM_RANK] < 5;
    }
    metric[0] = (float)loss;
    metric[1] = (float)top1;
    metric[2] = (float)top5;
    metric[3] = (float)valid;
    return 0;
}

/* ---- the gradient of a part ---------------------------------------------------------------------------- */

typedef struct class_scale {
    float scale, eps, classes, factor;
} class_scale;

KOLO_ALWAYS void class_grad_loop(void *dx, const void *x, int64_t at, int64_t n, const float *y,
                                 float largest, const class_scale *s, bool bf16)
{
#pragma omp simd
    for (int64_t i = 0; i < n; i++) {
        const float p = kolo_exp_zero1(kolo_load(x, at + i, bf16) - largest);
        kolo_store(dx, at + i,
                   kolo_cross_entropy_grad1(p * s->scale, y ? y[i] : 0.0f, s->eps, s->classes, s->factor),
                   bf16);
    }
}
KOLO_BODY class_grad_body(void *dx, const void *x, int64_t at, int64_t n, const float *y, float largest,
                          const class_scale *s, bool bf16)
{
    KOLO_FOR_TYPE(bf16, class_grad_loop(dx, x, at, n, y, largest, s, bf16_));
}
KOLO_WIDE(class_grad,
          (void *dx, const void *x, int64_t at, int64_t n, const float *y, float largest,
           const class_scale *s, bool bf16),
          (dx, x, at, n, y, largest, s, bf16))

/* The gradient of the label's class, or classes, where this part has them. */
static void put_targets(const class_part *c, void *dx, const void *x, int64_t at, const kolo_target *t,
                        float largest, const class_scale *s)
{
    const bool two = t->weight < 1, same = two && t->heavier == t->lighter;
    for (int m = 0; m < (two && !same ? 2 : 1); m++) {
        const int64_t class = m ? t->lighter : t->heavier;
        if (!has_class(c, class)) continue;
        float one, y = same ? 1.0f : m ? 1 - t->weight : t->weight;
        const int64_t i = at + class - c->first;
        const float v = class_get(x, i, c->bf16);
        class_grad(&one, &v, 0, 1, &y, largest, s, false);
        KOLO_FOR_TYPE(c->bf16, kolo_store(dx, i, one, bf16_));
    }
}

/* in: logits, labels, peaks, sums; out: dlogits */
static int class_grad_run(const kolo_kernel *k, void *const *args, void *workspace, const kolo_step *step,
                          int slot)
{
    (void)workspace;
    const class_part *c = k->state;
    const int64_t valid = valid_rows_of(c, step, slot);
    float inverse = step->valid_global > 0 ? (float)(1 / (double)step->valid_global) : 0;
    inverse *= step->scaler.scale;
#pragma omp parallel for schedule(static) num_threads(c->threads)
    for (int64_t n = 0; n < c->rows; n++) {
        const int64_t at = n * c->count;
        const float largest = ((const float *)args[2])[n * KOLO_PEAKS];
        const double *sum = (const double *)args[3] + n * KOLO_TERMS;
        kolo_target t;
        if (n >= valid || !class_target(c, args[1], n, &t)) {
            memset(kolo_at_out(args[4], at, c->bf16), 0, (size_t)c->count * (c->bf16 ? 2 : 4));
            continue;
        }
        const class_scale s = {kolo_class_scale1(sum, c->smoothing, t.number != NULL), (float)c->smoothing,
                               (float)c->classes, inverse * t.factor};
        class_grad(args[4], args[0], at, c->count, t.number ? t.number + c->first : NULL, largest, &s,
                   c->bf16);
        if (!t.number) put_targets(c, args[4], args[0], at, &t, largest, &s);
    }
    return 0;
}

/* ---- rows ---------------------------------------------------------------------------------------------- */

static int class_part_prepare(const kolo_kernel_request *r, kolo_kernel *k)
{
    const enum kolo_op op = r->node->op;
    const kolo_tensor *x = kolo_request_in(r, 0);
    class_part *c = kolo_alloc(sizeof *c);
    if (!c) return KOLO_ENOMEM;
    *c = (class_part){.rows = x->dim[0],
                      .first = r->node->a.first,
                      .count = op == KOLO_OP_largest ? kolo_tensor_count(x) : x->dim[1],
                      .classes = r->node->a.count,
                      .smoothing = r->node->a.smoothing,
                      .terms = r->node->n_in,
                      .bf16 = x->dtype == KOLO_BF16};
    if (op != KOLO_OP_largest)
        c->words = kolo_target_words(kolo_request_in(r, op == KOLO_OP_class_loss ? 2 : 1));
    c->threads = kolo_cpu_threads(r->backend, c->rows * c->count * 8);
    k->state = c;
    k->release = free;
    k->run = op == KOLO_OP_class_peaks   ? peaks_run
             : op == KOLO_OP_largest     ? largest_run
             : op == KOLO_OP_class_terms ? terms_run
             : op == KOLO_OP_class_loss  ? class_loss_run
                                         : class_grad_run;
    snprintf(k->name, sizeof k->name, "own%s", c->bf16 ? " bf16" : "");
    return 0;
}

const kolo_op_row kolo_cpu_class_peaks = {NULL, class_part_prepare};
const kolo_op_row kolo_cpu_largest = {NULL, class_part_prepare};
const kolo_op_row kolo_cpu_class_terms = {NULL, class_part_prepare};
const kolo_op_row kolo_cpu_class_loss = {NULL, class_part_prepare};
const kolo_op_row kolo_cpu_class_grad = {NULL, class_part_prepare};
