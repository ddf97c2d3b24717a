/* x times a factor for each row and channel (squeeze and excite), and the gradients of both. */
#include <omp.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/memory.h"
#include "kolo/error.h"
#include "ops/cpu/access.h"
#include "ops/cpu/cpu.h"

enum { LANES = 64 }; /* of one call, where a block has more */

typedef struct gate {
    kolo_view x;
    int64_t parts; /* of a block's lanes */
    int threads;
} gate;

/* n lanes of `pixels` pixels that are `block` apart. */
KOLO_ALWAYS void scale_loop(void *y, const void *x, const float *s, int64_t pixels, int64_t block, int64_t n,
                            bool bf16)
{
    if (block == 1) {
        const float f = *s;
#pragma omp simd
        for (int64_t i = 0; i < pixels; i++) kolo_store(y, i, kolo_load(x, i, bf16) * f, bf16);
        return;
    }
    for (int64_t i = 0; i < pixels; i++)
#pragma omp simd
        for (int64_t l = 0; l < n; l++)
            kolo_store(y, i * block + l, kolo_load(x, i * block + l, bf16) * s[l], bf16);
}
KOLO_ALWAYS void dot_loop(double *sum, const void *a, const void *b, int64_t pixels, int64_t block, int64_t n,
                          bool bf16)
{
    if (block == 1) {
        double one = 0;
#pragma omp simd reduction(+ : one)
        for (int64_t i = 0; i < pixels; i++)
            one += (double)kolo_load(a, i, bf16) * (double)kolo_load(b, i, bf16);
        *sum = one;
        return;
    }
    memset(sum, 0, (size_t)n * sizeof *sum);
    for (int64_t i = 0; i < pixels; i++)
#pragma omp simd
        for (int64_t l = 0; l < n; l++)
            sum[l] += (double)kolo_load(a, i * block + l, bf16) * (double)kolo_load(b, i * block + l, bf16);
}

KOLO_BODY scale_body(void *y, const void *x, const float *s, int64_t pixels, int64_t block, int64_t n,
                     bool bf16)
{
    KOLO_FOR_TYPE(bf16, scale_loop(y, x, s, pixels, block, n, bf16_));
}
KOLO_BODY dot_body(double *sum, const void *a, const void *b, int64_t pixels, int64_t block, int64_t n,
                   bool bf16)
{
    KOLO_FOR_TYPE(bf16, dot_loop(sum, a, b, pixels, block, n, bf16_));
}
KOLO_WIDE(scale,
          (void *y, const void *x, const float *s, int64_t pixels, int64_t block, int64_t n, bool bf16),
          (y, x, s, pixels, block, n, bf16))
KOLO_WIDE(dot,
          (double *sum, const void *a, const void *b, int64_t pixels, int64_t block, int64_t n, bool bf16),
          (sum, a, b, pixels, block, n, bf16))

/* Some lanes of one row: `at` in the map, `factor` in (N, C); real of the n lanes are channels. */
typedef struct share {
    int64_t at, factor, n, real;
} share;

static share share_of(const gate *g, int64_t task)
{
    const kolo_view *v = &g->x;
    const int64_t lane = task % g->parts * LANES, plane = task / g->parts, block = plane % v->blocks;
    const int64_t first = block * v->block + lane, n = v->block - lane < LANES ? v->block - lane : LANES;
    const int64_t left = v->channels - first, real = left < 0 ? 0 : left < n ? left : n;
    return (share){plane * kolo_view_plane(v) + lane, plane / v->blocks * v->channels + first, n, real};
}

static void factors(const share *s, const void *factor, bool bf16, float *to)
{
    for (int64_t l = 0; l < s->n; l++)
        to[l] = l >= s->real ? 0
                : bf16       ? kolo_load(factor, s->factor + l, true)
                             : kolo_load(factor, s->factor + l, false);
}

/* in: x, s; out: y */
static int gate_run(const kolo_kernel *k, void *const *args, void *workspace, const kolo_step *step, int slot)
{
    (void)workspace;
    (void)step;
    (void)slot;
    const gate *g = k->state;
    const kolo_view *v = &g->x;
#pragma omp parallel for schedule(static) num_threads(g->threads)
    for (int64_t t = 0; t < v->rows * v->blocks * g->parts; t++) {
        const share s = share_of(g, t);
        float f[LANES];
        factors(&s, args[1], v->bf16, f);
        scale(kolo_at_out(args[2], s.at, v->bf16), kolo_at(args[0], s.at, v->bf16), f, v->pixels, v->block,
              s.n, v->bf16);
    }
    return 0;
}

/* in: dy, x, s; out: dx, ds */
static int gate_run_grad(const kolo_kernel *k, void *const *args, void *workspace, const kolo_step *step,
                         int slot)
{
    (void)workspace;
    (void)step;
    (void)slot;
    const gate *g = k->state;
    const kolo_view *v = &g->x;
#pragma omp parallel for schedule(static) num_threads(g->threads)
    for (int64_t t = 0; t < v->rows * v->blocks * g->parts; t++) {
        const share s = share_of(g, t);
        const void *dy = kolo_at(args[0], s.at, v->bf16);
        float f[LANES];
        double sum[LANES];
        factors(&s, args[2], v->bf16, f);
        if (args[3]) scale(kolo_at_out(args[3], s.at, v->bf16), dy, f, v->pixels, v->block, s.n, v->bf16);
        if (!args[4]) continue;
        dot(sum, dy, kolo_at(args[1], s.at, v->bf16), v->pixels, v->block, s.n, v->bf16);
        for (int64_t l = 0; l < s.real; l++)
            KOLO_FOR_TYPE(v->bf16, kolo_store(args[4], s.factor + l, (float)sum[l], bf16_));
    }
    return 0;
}

static int gate_prepare(const kolo_kernel_request *r, kolo_kernel *k)
{
    gate *g = kolo_alloc(sizeof *g);
    if (!g) return KOLO_ENOMEM;
    const bool backward = r->node->op == KOLO_OP_gate_grad;
    g->x = kolo_cpu_view_in(r, backward ? 1 : 0);
    g->parts = (g->x.block + LANES - 1) / LANES;
    g->threads = kolo_cpu_threads(r->backend, kolo_view_count(&g->x));
    k->state = g;
    k->release = free;
    k->run = backward ? gate_run_grad : gate_run;
    snprintf(k->name, sizeof k->name, "own block %ld", (long)g->x.block);
    return 0;
}

const kolo_op_row kolo_cpu_gate = {NULL, gate_prepare};
const kolo_op_row kolo_cpu_gate_grad = {NULL, gate_prepare};
