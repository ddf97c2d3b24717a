/* y = x + kept(row) scale branch: layer scale, stochastic depth and sum in one pass, each where it is
 * there; and its gradient. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/memory.h"
#include "kolo/error.h"
#include "ops/cpu/access.h"
#include "ops/cpu/columns.h"
#include "ops/cpu/cpu.h"
#include "ops/draw.h"

typedef struct residual {
    kolo_view v;
    int64_t piece, pieces; /* pixels of a piece, pieces of a plane */
    double drop;
    int32_t draw;
    bool scaled;
    int threads, inputs;
} residual;

/* Pixels of one plane. scale: of the plane's channels, NULL: 1; factor: 0 where the row's branch is left
 * out. */
typedef struct pixels {
    void *out;              /* y, or dbranch; NULL: not wanted */
    const void *branch, *x; /* x: NULL where there is none, or dy */
    const float *scale;
    float *dscale; /* sums of this piece */
    float factor;
    int64_t first, count, block;
} pixels;

KOLO_ALWAYS float scaled1(const float *scale, int64_t lane, float factor)
{
    return scale ? scale[lane] * factor : factor;
}

/* y = x + scale factor branch */
KOLO_ALWAYS void forward_row(const pixels *p, int64_t at, int64_t n, bool one, bool bf16)
{
    const void *x = p->x, *branch = p->branch;
    const float *scale = p->scale, factor = p->factor;
    const float only = scaled1(scale, 0, factor);
    void *y = p->out;
    const bool add = x != NULL;
#pragma omp simd
    for (int64_t j = 0; j < n; j++) {
        float v = kolo_load(branch, at + j, bf16) * (one ? only : scaled1(scale, j, factor));
        kolo_store(y, at + j, add ? v + kolo_load(x, at + j, bf16) : v, bf16);
    }
}

/* dbranch = scale factor dy; dscale += factor dy branch */
KOLO_ALWAYS void backward_row(const pixels *p, int64_t at, int64_t n, bool bf16)
{
    const void *dy = p->x, *branch = p->branch;
    const float *scale = p->scale, factor = p->factor;
    float *dscale = p->dscale;
    void *out = p->out;
#pragma omp simd
    for (int64_t j = 0; j < n; j++) {
        float d = kolo_load(dy, at + j, bf16);
        if (dscale) dscale[j] += factor * d * kolo_load(branch, at + j, bf16);
        if (out) kolo_store(out, at + j, scaled1(scale, j, factor) * d, bf16);
    }
}

KOLO_ALWAYS void backward_plane(const pixels *p, bool bf16)
{
    const void *dy = p->x, *branch = p->branch;
    float s = 0;
    const float factor = scaled1(p->scale, 0, p->factor);
    const int64_t end = p->first + p->count;
    if (p->dscale) {
#pragma omp simd reduction(+ : s)
        for (int64_t j = p->first; j < end; j++) s += kolo_load(dy, j, bf16) * kolo_load(branch, j, bf16);
        *p->dscale += p->factor * s;
    }
    if (!p->out) return;
#pragma omp simd
    /* may be dy */
    for (int64_t j = p->first; j < end; j++) kolo_store(p->out, j, kolo_load(dy, j, bf16) * factor, bf16);
}

KOLO_ALWAYS void forward_pixels(const pixels *p, bool bf16)
{
    if (p->block == 1 || !p->scale) {
        forward_row(p, p->first * p->block, p->count * p->block, true, bf16);
        return;
    }
    for (int64_t i = p->first; i < p->first + p->count; i++)
        forward_row(p, i * p->block, p->block, false, bf16);
}

KOLO_ALWAYS void backward_pixels(const pixels *p, bool bf16)
{
    if (p->block == 1) {
        backward_plane(p, bf16);
        return;
    }
    for (int64_t i = p->first; i < p->first + p->count; i++) backward_row(p, i * p->block, p->block, bf16);
}

KOLO_BODY forward_body(const pixels *p, bool bf16) { KOLO_FOR_TYPE(bf16, forward_pixels(p, bf16_)); }
KOLO_BODY backward_body(const pixels *p, bool bf16) { KOLO_FOR_TYPE(bf16, backward_pixels(p, bf16_)); }
KOLO_WIDE(forward, (const pixels *p, bool bf16), (p, bf16))
KOLO_WIDE(backward, (const pixels *p, bool bf16), (p, bf16))

/* 0: the row's branch is left out. */
static float factor_of(const residual *d, const kolo_step *step, int slot, int64_t row)
{
    if (!(d->drop > 0)) return 1;
    bool kept = kolo_row_kept(step->seed, step->step, step->row[slot] + row, d->draw, d->drop);
    return kept ? (float)(1 / (1 - d->drop)) : 0;
}

/* The scale, zero at the channels beyond the last one. */
static const float *padded_scale(const residual *d, const float *scale, float *space)
{
    int64_t n = d->v.blocks * d->v.block;
    if (!d->scaled) return NULL;
    if (n == d->v.channels) return scale;
    memset(space, 0, (size_t)n * sizeof *space);
    memcpy(space, scale, (size_t)d->v.channels * sizeof *space);
    return space;
}

/* Task t: a piece of a plane. plane: its first element */
static pixels piece_of(const residual *d, int64_t t, int64_t *row, int64_t *block, int64_t *plane)
{
    const kolo_view *v = &d->v;
    pixels p = {.first = t % d->pieces * d->piece, .block = v->block};
    p.count = v->pixels - p.first < d->piece ? v->pixels - p.first : d->piece;
    *row = t / d->pieces / v->blocks;
    *block = t / d->pieces % v->blocks;
    *plane = t / d->pieces * kolo_view_plane(v);
    return p;
}

/* in: branch, scale, x; out: y */
static int residual_run(const kolo_kernel *k, void *const *args, void *workspace, const kolo_step *step,
                        int slot)
{
    const residual *d = k->state;
    const kolo_view *v = &d->v;
    const void *x = d->inputs > 2 ? args[2] : NULL;
    const float *scale = padded_scale(d, d->scaled ? args[1] : NULL, workspace);
#pragma omp parallel for schedule(static) num_threads(d->threads)
    for (int64_t t = 0; t < v->rows * v->blocks * d->pieces; t++) {
        int64_t row, block, plane;
        pixels p = piece_of(d, t, &row, &block, &plane);
        p.out = kolo_at_out(args[d->inputs], plane, v->bf16);
        p.branch = kolo_at(args[0], plane, v->bf16);
        p.x = x ? kolo_at(x, plane, v->bf16) : NULL;
        p.scale = scale ? scale + block * v->block : NULL;
        p.factor = factor_of(d, step, slot, row);
        forward(&p, v->bf16);
    }
    return 0;
}

/* in: dy, branch, scale; out: dbranch, dscale */
static int residual_run_grad(const kolo_kernel *k, void *const *args, void *workspace, const kolo_step *step,
                             int slot)
{
    const residual *d = k->state;
    const kolo_view *v = &d->v;
    int64_t lanes = v->blocks * v->block, tasks = v->rows * v->blocks * d->pieces;
    float *part = (float *)workspace + lanes; /* [rows][pieces][lanes] */
    const float *scale = padded_scale(d, args[2], workspace);
#pragma omp parallel for schedule(static) num_threads(d->threads)
    for (int64_t t = 0; t < tasks; t++) {
        int64_t row, block, plane;
        pixels p = piece_of(d, t, &row, &block, &plane);
        p.out = args[3] ? kolo_at_out(args[3], plane, v->bf16) : NULL;
        p.x = kolo_at(args[0], plane, v->bf16);
        p.branch = args[1] ? kolo_at(args[1], plane, v->bf16) : NULL;
        p.scale = scale ? scale + block * v->block : NULL;
        p.factor = factor_of(d, step, slot, row);
        if (args[4]) {
            p.dscale = part + (row * d->pieces + t % d->pieces) * lanes + block * v->block;
            memset(p.dscale, 0, (size_t)v->block * sizeof *part);
        }
        backward(&p, v->bf16);
    }
    kolo_columns_fold(args[4], part, v->rows * d->pieces, lanes, v->channels, d->threads);
    return 0;
}

static int residual_prepare(const kolo_kernel_request *r, kolo_kernel *k)
{
    const kolo_node *n = r->node;
    const bool gradient = n->op == KOLO_OP_residual_grad;
    residual *d = kolo_alloc(sizeof *d);
    if (!d) return KOLO_ENOMEM;
    d->v = kolo_cpu_view_in(r, 0);
    d->piece = 4096 / d->v.block < 64 ? 64 : 4096 / d->v.block;
    d->pieces = (d->v.pixels + d->piece - 1) / d->piece;
    d->drop = n->a.drop;
    d->draw = n->a.draw;
    d->scaled = kolo_request_in(r, gradient ? 2 : 1) != NULL;
    d->inputs = n->n_in;
    d->threads = kolo_cpu_threads(r->backend, kolo_view_count(&d->v));
    k->state = d;
    k->release = free;
    k->run = gradient ? residual_run_grad : residual_run;
    int64_t lanes = d->v.blocks * d->v.block;
    k->workspace = (size_t)(lanes * (gradient && kolo_request_out(r, 1) ? 1 + d->v.rows * d->pieces : 1)) *
                   sizeof(float);
    snprintf(k->name, sizeof k->name, "own%s", d->v.bf16 ? " bf16" : "");
    return 0;
}

const kolo_op_row kolo_cpu_residual = {NULL, residual_prepare};
const kolo_op_row kolo_cpu_residual_grad = {NULL, residual_prepare};
