/* Layer norm over the channels of each pixel, which lie together, or of each row of (N, C); Ba et al.,
 * arXiv:1607.06450. Mean and variance are found in two passes over a pixel that the first-level cache holds,
 * and found again by the gradient, which is cheaper than keeping them. */
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/memory.h"
#include "kolo/error.h"
#include "ops/cpu/access.h"
#include "ops/cpu/columns.h"
#include "ops/cpu/cpu.h"

typedef struct layer_norm {
    int64_t pixels, channels; /* pixels of all rows */
    int64_t piece, pieces;    /* pixels of a piece */
    int64_t stride;           /* floats of a piece's sums of dw; those of db follow */
    float epsilon;
    bool bf16;
    int threads, inputs;
} layer_norm;

typedef struct pixels {
    const void *x, *dy;
    void *y, *dx;      /* dx NULL: not wanted */
    const void *other; /* added to dx, which it may be; NULL: nothing */
    const float *w, *b;
    float *dw, *db;
    int64_t first, end, channels;
    float epsilon;
} pixels;

KOLO_ALWAYS void moments(const void *x, int64_t at, int64_t n, float epsilon, bool bf16, float *mean,
                         float *inverse)
{
    float s = 0, q = 0;
#pragma omp simd reduction(+ : s)
    for (int64_t j = 0; j < n; j++) s += kolo_load(x, at + j, bf16);
    const float m = s / (float)n;
#pragma omp simd reduction(+ : q)
    for (int64_t j = 0; j < n; j++) q += (kolo_load(x, at + j, bf16) - m) * (kolo_load(x, at + j, bf16) - m);
    *mean = m;
    *inverse = 1.0f / sqrtf(q / (float)n + epsilon);
}

KOLO_ALWAYS void forward_pixels(const pixels *p, bool bf16)
{
    const void *x = p->x;
    void *y = p->y;
    const float *w = p->w, *b = p->b;
    for (int64_t i = p->first; i < p->end; i++) {
        const int64_t n = p->channels, at = i * n;
        float mean, inverse;
        moments(x, at, n, p->epsilon, bf16, &mean, &inverse);
#pragma omp simd
        for (int64_t j = 0; j < n; j++)
            kolo_store(y, at + j, (kolo_load(x, at + j, bf16) - mean) * inverse * w[j] + b[j], bf16);
    }
}

KOLO_ALWAYS void backward_pixels(const pixels *p, bool bf16)
{
    const void *x = p->x, *dy = p->dy, *other = p->other;
    void *dx = p->dx;
    const bool added = other != NULL;
    const float *w = p->w;
    float *dw = p->dw, *db = p->db;
    for (int64_t i = p->first; i < p->end; i++) {
        const int64_t n = p->channels, at = i * n;
        float mean, inverse, g = 0, gx = 0;
        moments(x, at, n, p->epsilon, bf16, &mean, &inverse);
#pragma omp simd reduction(+ : g, gx)
        for (int64_t j = 0; j < n; j++) {
            float d = kolo_load(dy, at + j, bf16), xhat = (kolo_load(x, at + j, bf16) - mean) * inverse;
            dw[j] += d * xhat;
            db[j] += d;
            g += d * w[j];
            gx += d * w[j] * xhat;
        }
        if (!dx) continue;
        g /= (float)n;
        gx /= (float)n;
#pragma omp simd
        for (int64_t j = 0; j < n; j++) {
            float xhat = (kolo_load(x, at + j, bf16) - mean) * inverse;
            float v = (kolo_load(dy, at + j, bf16) * w[j] - g - xhat * gx) * inverse;
            kolo_store(dx, at + j, added ? v + kolo_load(other, at + j, bf16) : v, bf16);
        }
    }
}

KOLO_BODY forward_body(const pixels *p, bool bf16) { KOLO_FOR_TYPE(bf16, forward_pixels(p, bf16_)); }
KOLO_BODY backward_body(const pixels *p, bool bf16) { KOLO_FOR_TYPE(bf16, backward_pixels(p, bf16_)); }
KOLO_WIDE(forward, (const pixels *p, bool bf16), (p, bf16))
KOLO_WIDE(backward, (const pixels *p, bool bf16), (p, bf16))

static int64_t smaller(int64_t a, int64_t b) { return a < b ? a : b; }

/* in: x, w, b; out: y */
static int layer_norm_run(const kolo_kernel *k, void *const *args, void *workspace, const kolo_step *step,
                          int slot)
{
    (void)workspace;
    (void)step;
    (void)slot;
    const layer_norm *l = k->state;
#pragma omp parallel for schedule(static) num_threads(l->threads)
    for (int64_t t = 0; t < l->pieces; t++) {
        pixels p = {.x = args[0],
                    .w = args[1],
                    .b = args[2],
                    .y = args[3],
                    .channels = l->channels,
                    .epsilon = l->epsilon};
        p.first = t * l->piece;
        p.end = smaller(p.first + l->piece, l->pixels);
        forward(&p, l->bf16);
    }
    return 0;
}

/* in: dy, x, w[, other]; out: dx [+ other], dw, db */
static int layer_norm_run_grad(const kolo_kernel *k, void *const *args, void *workspace,
                               const kolo_step *step, int slot)
{
    (void)step;
    (void)slot;
    const layer_norm *l = k->state;
    void *const *out = args + l->inputs;
#pragma omp parallel for schedule(static) num_threads(l->threads)
    for (int64_t t = 0; t < l->pieces; t++) {
        pixels p = {.dy = args[0],
                    .x = args[1],
                    .w = args[2],
                    .dx = out[0],
                    .channels = l->channels,
                    .epsilon = l->epsilon};
        p.other = l->inputs > 3 ? args[3] : NULL;
        p.dw = (float *)workspace + 2 * t * l->stride;
        p.db = p.dw + l->stride;
        p.first = t * l->piece;
        p.end = smaller(p.first + l->piece, l->pixels);
        memset(p.dw, 0, (size_t)(2 * l->stride) * sizeof(float));
        backward(&p, l->bf16);
    }
    for (int i = 0; i < 2; i++)
        kolo_columns_fold(out[1 + i], (float *)workspace + i * l->stride, l->pieces, 2 * l->stride,
                          l->channels, l->threads);
    return 0;
}

static int layer_norm_prepare(const kolo_kernel_request *r, kolo_kernel *k)
{
    const bool backward_pass = r->node->op == KOLO_OP_layer_norm_grad;
    layer_norm *l = kolo_alloc(sizeof *l);
    if (!l) return KOLO_ENOMEM;
    k->state = l;
    k->release = free;
    kolo_view v = kolo_cpu_view_in(r, backward_pass ? 1 : 0);
    l->inputs = r->node->n_in;
    l->pixels = v.rows * v.pixels;
    l->channels = v.channels;
    l->piece = l->pixels / 512 < 16 ? 16 : l->pixels / 512;
    l->pieces = (l->pixels + l->piece - 1) / l->piece;
    l->stride = (int64_t)kolo_round_up((size_t)l->channels, 16);
    l->epsilon = (float)r->node->a.epsilon;
    l->bf16 = v.bf16;
    l->threads = kolo_cpu_threads(r->backend, kolo_view_count(&v));
    k->run = backward_pass ? layer_norm_run_grad : layer_norm_run;
    if (backward_pass) k->workspace = (size_t)(2 * l->pieces * l->stride) * sizeof(float);
    snprintf(k->name, sizeof k->name, "own%s", v.bf16 ? " bf16" : "");
    return 0;
}

const kolo_op_row kolo_cpu_layer_norm = {kolo_cpu_channels_last, layer_norm_prepare};
const kolo_op_row kolo_cpu_layer_norm_grad = {kolo_cpu_channels_last, layer_norm_prepare};
