/* Cosines between rows of x and of w, and their gradients: products, by oneDNN, of rows that are divided by
 * their lengths. In f32, whatever x is. With u = x / |x|: dx = (du - u (u . du)) / |x|. */
#include <math.h>
#include <stdio.h>
#include <stdlib.h>

#include "base/memory.h"
#include "base/failure.h"
#include "ops/cpu/access.h"
#include "ops/cpu/cpu.h"

typedef struct cosine {
    int64_t rows, out, width;
    kolo_dnnl_primitive *product, *data, *weight; /* forward: product; backward: the others */
    size_t scratch_at;
    bool bf16;
    int threads;
} cosine;

static void cosine_release(void *state)
{
    cosine *c = state;
    if (!c) return;
    kolo_dnnl_destroy(&c->product);
    kolo_dnnl_destroy(&c->data);
    kolo_dnnl_destroy(&c->weight);
    free(c);
}

KOLO_ALWAYS void cosine_normalize_loop(float *u, const void *x, int64_t n, float *length, bool bf16)
{
    double square = 0;
#pragma omp simd reduction(+ : square)
    for (int64_t i = 0; i < n; i++) square += (double)kolo_load(x, i, bf16) * (double)kolo_load(x, i, bf16);
    const float l = (float)sqrt(square), inverse = 1 / (l > 1e-12f ? l : 1e-12f);
#pragma omp simd
    for (int64_t i = 0; i < n; i++) u[i] = kolo_load(x, i, bf16) * inverse;
    *length = inverse;
}
KOLO_BODY cosine_normalize_body(float *u, const void *x, int64_t n, float *inverse, bool bf16)
{
    KOLO_FOR_TYPE(bf16, cosine_normalize_loop(u, x, n, inverse, bf16_));
}
KOLO_WIDE(cosine_normalize, (float *u, const void *x, int64_t n, float *inverse, bool bf16),
          (u, x, n, inverse, bf16))

KOLO_ALWAYS void cosine_normalize_grad_loop(void *dx, const float *du, const float *u, int64_t n,
                                            float inverse, bool bf16)
{
    double dot = 0;
#pragma omp simd reduction(+ : dot)
    for (int64_t i = 0; i < n; i++) dot += (double)du[i] * (double)u[i];
    const float along = (float)dot;
#pragma omp simd
    for (int64_t i = 0; i < n; i++) kolo_store(dx, i, (du[i] - u[i] * along) * inverse, bf16);
}
KOLO_BODY cosine_normalize_grad_body(void *dx, const float *du, const float *u, int64_t n, float inverse,
                                     bool bf16)
{
    KOLO_FOR_TYPE(bf16, cosine_normalize_grad_loop(dx, du, u, n, inverse, bf16_));
}
KOLO_WIDE(cosine_normalize_grad,
          (void *dx, const float *du, const float *u, int64_t n, float inverse, bool bf16),
          (dx, du, u, n, inverse, bf16))

/* x [rows][width] to rows of length 1: u [rows][width]; inverse [rows]: 1 / length, at most 1e12. */
static void normalize_rows(const cosine *c, float *u, const void *x, int64_t rows, float *inverse, bool bf16)
{
#pragma omp parallel for schedule(static) num_threads(c->threads)
    for (int64_t n = 0; n < rows; n++)
        cosine_normalize(u + n * c->width, kolo_at(x, n * c->width, bf16), c->width, inverse + n, bf16);
}

static void normalize_rows_grad(const cosine *c, void *dx, const float *du, const float *u, int64_t rows,
                                const float *inverse, bool bf16)
{
#pragma omp parallel for schedule(static) num_threads(c->threads)
    for (int64_t n = 0; n < rows; n++)
        cosine_normalize_grad(kolo_at_out(dx, n * c->width, bf16), du + n * c->width, u + n * c->width,
                              c->width, inverse[n], bf16);
}

static int64_t sixteens(int64_t n) { return (n + 15) / 16 * 16; }

/* The workspace: units of x and w, one over their lengths, y or dy in f32, the gradients of the units,
 * scratch of products. */
typedef struct space {
    float *x, *w, *x_inverse, *w_inverse, *y, *dx, *dw;
} space;

static size_t lay(const cosine *c, bool backward, float *base, space *s)
{
    float *at = base;
    const int64_t x = sixteens(c->rows * c->width), w = sixteens(c->out * c->width);
    float **place[] = {&s->x, &s->w, &s->x_inverse, &s->w_inverse, &s->y, &s->dx, &s->dw};
    const int64_t count[] = {x, w, sixteens(c->rows), sixteens(c->out), sixteens(c->rows * c->out), x, w};
    for (int i = 0; i < (backward ? 7 : 5); i++) {
        *place[i] = at;
        at += count[i];
    }
    return (size_t)((char *)at - (char *)base);
}

/* in: x, w; out: y */
static int cosine_run(const kolo_kernel *k, void *const *args, void *workspace, const kolo_step *step,
                      int slot)
{
    (void)step;
    (void)slot;
    const cosine *c = k->state;
    space s;
    lay(c, false, workspace, &s);
    normalize_rows(c, s.x, args[0], c->rows, s.x_inverse, c->bf16);
    normalize_rows(c, s.w, args[1], c->out, s.w_inverse, false);
    void *pointer[] = {s.x, s.w, c->bf16 ? s.y : args[2]};
    KOLO_TRY(kolo_dnnl_run(c->product, pointer, (char *)workspace + c->scratch_at));
    if (c->bf16) kolo_cpu_narrow(args[2], s.y, c->rows * c->out, c->threads);
    return 0;
}

/* in: dy, y, x, w; out: dx, dw */
static int cosine_run_grad(const kolo_kernel *k, void *const *args, void *workspace, const kolo_step *step,
                           int slot)
{
    (void)step;
    (void)slot;
    const cosine *c = k->state;
    space s;
    lay(c, true, workspace, &s);
    void *scratch = (char *)workspace + c->scratch_at, *dy = args[0];
    normalize_rows(c, s.x, args[2], c->rows, s.x_inverse, c->bf16);
    normalize_rows(c, s.w, args[3], c->out, s.w_inverse, false);
    if (c->bf16) kolo_cpu_widen(dy = s.y, args[0], c->rows * c->out, c->threads);
    if (args[4]) {
        void *pointer[] = {s.dx, s.w, dy};
        KOLO_TRY(kolo_dnnl_run(c->data, pointer, scratch));
        normalize_rows_grad(c, args[4], s.dx, s.x, c->rows, s.x_inverse, c->bf16);
    }
    if (!args[5]) return 0;
    void *pointer[] = {s.x, s.dw, dy};
    KOLO_TRY(kolo_dnnl_run(c->weight, pointer, scratch));
    normalize_rows_grad(c, args[5], s.dw, s.w, c->out, s.w_inverse, false);
    return 0;
}

static int cosine_make(const kolo_kernel_request *r, cosine *c, kolo_kernel *k)
{
    kolo_dnnl *d = kolo_cpu_dnnl(r->backend);
    const bool backward = r->node->op == KOLO_OP_cosine_grad;
    const int64_t dim[3][2] = {{c->rows, c->width}, {c->out, c->width}, {c->rows, c->out}};
    const kolo_dnnl_desc *desc[3];
    kolo_dnnl_primitive **to[] = {&c->product, &c->data, &c->weight};
    size_t scratch = 0;
    for (int i = 0; i < 3; i++)
        if (!(desc[i] = kolo_dnnl_plain(d, KOLO_F32, 2, dim[i]))) return kolo_error_status();
    for (int i = backward; i < (backward ? 3 : 1); i++) {
        static const enum kolo_dnnl_pass pass[] = {KOLO_DNNL_FORWARD, KOLO_DNNL_DATA, KOLO_DNNL_WEIGHT};
        const int rc = kolo_dnnl_make_linear(d, pass[i], desc[0], desc[1], NULL, desc[2], to[i]);
        if (rc > 0)
            return kolo_fail(KOLO_ECONFIG, "oneDNN %s has no product of matrices for this CPU",
                             kolo_dnnl_version());
        KOLO_TRY(rc);
        if (kolo_dnnl_scratch(*to[i]) > scratch) scratch = kolo_dnnl_scratch(*to[i]);
    }
    space s;
    c->scratch_at = lay(c, backward, NULL, &s);
    k->workspace = c->scratch_at + scratch;
    snprintf(k->name, sizeof k->name, "own, oneDNN %s", kolo_dnnl_name(*to[backward]));
    return 0;
}

static int cosine_prepare(const kolo_kernel_request *r, kolo_kernel *k)
{
    const bool backward = r->node->op == KOLO_OP_cosine_grad;
    const kolo_tensor *x = kolo_request_in(r, backward ? 2 : 0), *w = kolo_request_in(r, backward ? 3 : 1);
    cosine *c = kolo_alloc(sizeof *c);
    if (!c) return KOLO_ENOMEM;
    k->state = c;
    k->release = cosine_release;
    k->run = backward ? cosine_run_grad : cosine_run;
    *c = (cosine){.rows = x->dim[0], .out = w->dim[0], .width = x->dim[1], .bf16 = x->dtype == KOLO_BF16};
    c->threads = kolo_cpu_threads(r->backend, (c->rows + c->out) * c->width);
    return cosine_make(r, c, k);
}

const kolo_op_row kolo_cpu_cosine = {NULL, cosine_prepare};
const kolo_op_row kolo_cpu_cosine_grad = {NULL, cosine_prepare};
