/* Softmax cross entropy with label smoothing in torch's form: loss = (1 - eps) nll + eps mean over classes of -log p. */
#include <math.h>
#include <omp.h>
#include <stdio.h>
#include <stdlib.h>

#include "base/memory.h"
#include "kolo/error.h"
#include "ops/cpu/access.h"
#include "ops/cpu/cpu.h"

typedef struct entropy {
    int64_t rows, classes;
    double smoothing;
    bool bf16;
    int threads;
} entropy;
typedef struct row_result {
    double loss;
    int32_t rank, bad;
} row_result; /* rank: classes before the label; bad: label out of range */

KOLO_BODY logits_body(float *to, const void *x, int64_t n, bool bf16, float *largest)
{
    float most = -INFINITY;
    for (int64_t i = 0; i < n; i++) to[i] = bf16 ? kolo_load(x, i, true) : kolo_load(x, i, false);
#pragma omp simd reduction(max : most)
    for (int64_t i = 0; i < n; i++) most = to[i] > most ? to[i] : most;
    *largest = most;
}
KOLO_WIDE(logits, (float *to, const void *x, int64_t n, bool bf16, float *largest), (to, x, n, bf16, largest))

/* Workspace of a thread: one row of logits. */
static int64_t row_floats(const entropy *e) { return (int64_t)kolo_round_up((size_t)e->classes, 16); }

static row_result row_loss(const entropy *e, const void *x, int32_t label, float *logit)
{
    row_result r = {0, 0, label < 0 || label >= e->classes};
    float largest;
    if (r.bad) return r;
    logits(logit, x, e->classes, e->bf16, &largest);
    double sum = 0, total = 0;
    float own = logit[label];
    for (int64_t i = 0; i < e->classes; i++) {
        float v = logit[i];
        sum += (double)expf(v - largest);
        total += (double)v;
        r.rank += v > own || (v == own && i < label);
    }
    double log_sum = log(sum) + (double)largest, nll = log_sum - (double)own;
    r.loss = (1 - e->smoothing) * nll + e->smoothing * (log_sum - total / (double)e->classes);
    if (isnan(own)) r.rank = (int32_t)e->classes;
    return r;
}

static int64_t valid_rows(const entropy *e, const kolo_step *step, int slot)
{
    return step->valid[slot] < e->rows ? step->valid[slot] : e->rows;
}

/* in: logits, labels; out: metrics */
static int run(const kolo_kernel *k, void *const *args, void *workspace, const kolo_step *step, int slot)
{
    const entropy *e = k->state;
    const int32_t *label = args[1];
    float *metric = args[2];
    row_result *result = workspace;
    float *space = (float *)(result + e->rows);
    int64_t rows = valid_rows(e, step, slot);
#pragma omp parallel for schedule(static) num_threads(e->threads)
    for (int64_t n = 0; n < rows; n++)
        result[n] = row_loss(e, kolo_at(args[0], n * e->classes, e->bf16), label[n],
                             space + omp_get_thread_num() * row_floats(e));
    double loss = 0;
    int64_t top1 = 0, top5 = 0;
    for (int64_t n = 0; n < rows; n++) {
        if (result[n].bad)
            return kolo_fail(KOLO_EINPUT,
                             "row %ld of micro-batch %d has label %ld, but the network has %ld classes; check classes= "
                             "and the data set",
                             (long)n, slot, (long)label[n], (long)e->classes);
        loss += result[n].loss;
        top1 += result[n].rank < 1;
        top5 += result[n].rank < 5;
    }
    metric[0] = (float)loss;
    metric[1] = (float)top1;
    metric[2] = (float)top5;
    metric[3] = (float)rows;
    return 0;
}

static void put(void *p, int64_t i, float v, bool bf16) { KOLO_FOR_TYPE(bf16, kolo_store(p, i, v, bf16_)); }

static void row_grad(const entropy *e, void *dx, const void *x, int32_t label, float inverse_rows, float *p)
{
    float largest, eps = (float)e->smoothing;
    double sum = 0;
    logits(p, x, e->classes, e->bf16, &largest);
    for (int64_t i = 0; i < e->classes; i++) sum += (double)(p[i] = expf(p[i] - largest));
    float scale = (float)(1 / sum);
    for (int64_t i = 0; i < e->classes; i++)
        put(dx, i, kolo_cross_entropy_grad1(p[i] * scale, i == label, eps, (float)e->classes, inverse_rows), e->bf16);
}

/* in: logits, labels; out: dlogits */
static int run_grad(const kolo_kernel *k, void *const *args, void *workspace, const kolo_step *step, int slot)
{
    const entropy *e = k->state;
    const int32_t *label = args[1];
    int64_t rows = valid_rows(e, step, slot);
    float inverse = step->valid_global > 0 ? (float)(1 / (double)step->valid_global) : 0;
    inverse *= step->scaler.scale;
#pragma omp parallel for schedule(static) num_threads(e->threads)
    for (int64_t n = 0; n < e->rows; n++) {
        void *dx = kolo_at_out(args[2], n * e->classes, e->bf16);
        if (n < rows)
            row_grad(e, dx, kolo_at(args[0], n * e->classes, e->bf16), label[n], inverse,
                     (float *)workspace + omp_get_thread_num() * row_floats(e));
        else
            for (int64_t i = 0; i < e->classes; i++) put(dx, i, 0, e->bf16);
    }
    return 0;
}

static int prepare(const kolo_kernel_request *r, kolo_kernel *k)
{
    entropy *e = kolo_alloc(sizeof *e);
    if (!e) return KOLO_ECONFIG;
    const kolo_tensor *x = kolo_request_in(r, 0);
    *e = (entropy){x->dim[0], x->dim[1], r->node->a.smoothing, x->dtype == KOLO_BF16, 1};
    e->threads = kolo_cpu_threads(r->backend, e->rows * e->classes * 8);
    bool backward = r->node->op == KOLO_OP_cross_entropy_grad;
    k->state = e;
    k->release = free;
    k->run = backward ? run_grad : run;
    k->workspace =
        (size_t)(e->threads * row_floats(e)) * sizeof(float) + (backward ? 0 : (size_t)e->rows * sizeof(row_result));
    snprintf(k->name, sizeof k->name, "own%s", e->bf16 ? " bf16" : "");
    return 0;
}

const kolo_op_row kolo_cpu_cross_entropy = {NULL, prepare};
const kolo_op_row kolo_cpu_cross_entropy_grad = {NULL, prepare};
