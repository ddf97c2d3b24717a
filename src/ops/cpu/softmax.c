/* Softmax of the rows of (N, C), or its logarithm; and the gradient, from the result. */
#include <math.h>
#include <omp.h>
#include <stdio.h>
#include <stdlib.h>

#include "base/memory.h"
#include "kolo/error.h"
#include "ops/cpu/cpu.h"
#include "ops/cpu/exp.h"

typedef struct softmax {
    int64_t rows, classes, floats; /* of a thread's copy of a row */
    bool bf16, log;
    int threads;
} softmax;

KOLO_ALWAYS void row_loop(void *y, const void *x, int64_t n, bool log_of, float *e, bool bf16)
{
    float most = -INFINITY;
    double sum = 0;
    for (int64_t i = 0; i < n; i++) e[i] = kolo_load(x, i, bf16);
#pragma omp simd reduction(max : most)
    for (int64_t i = 0; i < n; i++) most = e[i] > most ? e[i] : most;
#pragma omp simd reduction(+ : sum)
    for (int64_t i = 0; i < n; i++) sum += (double)kolo_exp_zero1(e[i] - most);
    const float down = (float)log(sum), scale = (float)(1 / sum);
#pragma omp simd
    for (int64_t i = 0; i < n; i++) kolo_store(y, i, log_of ? e[i] - most - down : kolo_exp_zero1(e[i] - most) * scale, bf16);
}
/* y = softmax: dx = y (dy - sum dy y); y = its logarithm: dx = dy - e^y sum dy */
KOLO_ALWAYS void row_grad_loop(void *dx, const void *dy, const void *y, int64_t n, bool log_of, bool bf16)
{
    double sum = 0;
#pragma omp simd reduction(+ : sum)
    for (int64_t i = 0; i < n; i++) sum += (double)(kolo_load(dy, i, bf16) * (log_of ? 1.0f : kolo_load(y, i, bf16)));
    const float total = (float)sum;
#pragma omp simd
    for (int64_t i = 0; i < n; i++) {
        const float d = kolo_load(dy, i, bf16), v = kolo_load(y, i, bf16);
        kolo_store(dx, i, log_of ? d - kolo_exp_zero1(v) * total : v * (d - total), bf16);
    }
}

KOLO_BODY row_body(void *y, const void *x, int64_t n, bool log_of, float *e, bool bf16) { KOLO_FOR_TYPE(bf16, row_loop(y, x, n, log_of, e, bf16_)); }
KOLO_BODY row_grad_body(void *dx, const void *dy, const void *y, int64_t n, bool log_of, bool bf16)
{
    KOLO_FOR_TYPE(bf16, row_grad_loop(dx, dy, y, n, log_of, bf16_));
}
KOLO_WIDE(row, (void *y, const void *x, int64_t n, bool log_of, float *e, bool bf16), (y, x, n, log_of, e, bf16))
KOLO_WIDE(row_grad, (void *dx, const void *dy, const void *y, int64_t n, bool log_of, bool bf16), (dx, dy, y, n, log_of, bf16))

static int run(const kolo_kernel *k, void *const *args, void *workspace, const kolo_step *step, int slot)
{
    (void)step;
    (void)slot;
    const softmax *s = k->state;
#pragma omp parallel for schedule(static) num_threads(s->threads)
    for (int64_t n = 0; n < s->rows; n++)
        row(kolo_at_out(args[1], n * s->classes, s->bf16), kolo_at(args[0], n * s->classes, s->bf16), s->classes, s->log,
            (float *)workspace + omp_get_thread_num() * s->floats, s->bf16);
    return 0;
}

static int run_grad(const kolo_kernel *k, void *const *args, void *workspace, const kolo_step *step, int slot)
{
    (void)workspace;
    (void)step;
    (void)slot;
    const softmax *s = k->state;
#pragma omp parallel for schedule(static) num_threads(s->threads)
    for (int64_t n = 0; n < s->rows; n++) {
        const int64_t at = n * s->classes;
        row_grad(kolo_at_out(args[2], at, s->bf16), kolo_at(args[0], at, s->bf16), kolo_at(args[1], at, s->bf16), s->classes, s->log, s->bf16);
    }
    return 0;
}

static int prepare(const kolo_kernel_request *r, kolo_kernel *k)
{
    const bool backward = r->node->op == KOLO_OP_softmax_grad;
    softmax *s = kolo_alloc(sizeof *s);
    if (!s) return KOLO_ECONFIG;
    const kolo_tensor *x = kolo_request_in(r, 0);
    *s = (softmax){.rows = x->dim[0], .classes = x->dim[1], .bf16 = x->dtype == KOLO_BF16, .log = r->node->a.log};
    s->threads = kolo_cpu_threads(r->backend, s->rows * s->classes * 4);
    s->floats = (int64_t)kolo_round_up((size_t)s->classes, 16);
    k->state = s;
    k->release = free;
    k->run = backward ? run_grad : run;
    k->workspace = backward ? 0 : (size_t)(s->threads * s->floats) * sizeof(float);
    snprintf(k->name, sizeof k->name, "own%s", s->bf16 ? " bf16" : "");
    return 0;
}

const kolo_op_row kolo_cpu_softmax = {NULL, prepare};
const kolo_op_row kolo_cpu_softmax_grad = {NULL, prepare};
