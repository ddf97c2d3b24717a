/* Tokens of a map: a first one of its own, then the pixels, to each of which its position is added
 * (Dosovitskiy et al., arXiv:2010.11929, equation 1); and the gradients of all three. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/memory.h"
#include "kolo/error.h"
#include "ops/cpu/access.h"
#include "ops/cpu/cpu.h"

typedef struct embed {
    kolo_view x, y;
    int threads;
} embed;

/* Token t of a row and block of channels: `real` of the `block` lanes are channels. first, position: theirs,
 * from the first of them on; x: NULL for the first token. */
KOLO_ALWAYS void add_lanes(void *y, const void *x, const float *first, const float *position, int64_t block,
                           int64_t real, bool bf16)
{
    for (int64_t l = 0; l < block; l++)
        kolo_store(y, l, l >= real ? 0 : (x ? kolo_load(x, l, bf16) : first[l]) + position[l], bf16);
}

static int64_t real_lanes(const kolo_view *v, int64_t b)
{
    const int64_t left = v->channels - b * v->block;
    return left < v->block ? left : v->block;
}

static const void *pixel_of(const kolo_view *v, const void *map, int64_t plane, int64_t pixel)
{
    return kolo_at(map, plane * kolo_view_plane(v) + pixel * v->block, v->bf16);
}

/* in: x, first, position; out: y */
static int embed_run(const kolo_kernel *k, void *const *args, void *workspace, const kolo_step *step,
                     int slot)
{
    (void)workspace;
    (void)step;
    (void)slot;
    const embed *e = k->state;
    const kolo_view *x = &e->x, *y = &e->y;
    const float *first = args[1], *position = args[2];
#pragma omp parallel for schedule(static) num_threads(e->threads)
    for (int64_t plane = 0; plane < x->rows * x->blocks; plane++) {
        const int64_t b = plane % x->blocks, c = b * x->block, real = real_lanes(x, b);
        for (int64_t t = 0; t < y->pixels; t++) {
            void *to = (void *)(uintptr_t)pixel_of(y, args[3], plane, t);
            const void *from = t ? pixel_of(x, args[0], plane, t - 1) : NULL;
            KOLO_FOR_TYPE(x->bf16, add_lanes(to, from, first + c, position + t * x->channels + c, x->block,
                                             real, bf16_));
        }
    }
    return 0;
}

/* Over the rows in their order. sum: [channels] of token t */
static void sum_token(const embed *e, const void *dy, int64_t t, float *sum)
{
    const kolo_view *y = &e->y;
    memset(sum, 0, (size_t)y->channels * sizeof *sum);
    for (int64_t plane = 0; plane < y->rows * y->blocks; plane++) {
        const int64_t b = plane % y->blocks, c = b * y->block, real = real_lanes(y, b);
        const void *from = pixel_of(y, dy, plane, t);
        for (int64_t l = 0; l < real; l++)
            sum[c + l] += y->bf16 ? kolo_load(from, l, true) : kolo_load(from, l, false);
    }
}

/* in: dy; out: dx, dfirst, dposition */
static int embed_run_grad(const kolo_kernel *k, void *const *args, void *workspace, const kolo_step *step,
                          int slot)
{
    (void)workspace;
    (void)step;
    (void)slot;
    const embed *e = k->state;
    const kolo_view *x = &e->x, *y = &e->y;
    const size_t bytes = (size_t)kolo_view_plane(x) * (x->bf16 ? 2 : 4);
#pragma omp parallel for schedule(static) num_threads(e->threads)
    for (int64_t plane = 0; plane < x->rows * x->blocks; plane++)
        memcpy((char *)args[1] + (size_t)plane * bytes, pixel_of(y, args[0], plane, 1), bytes);
    if (args[2]) sum_token(e, args[0], 0, args[2]);
    if (!args[3]) return 0;
#pragma omp parallel for schedule(static) num_threads(e->threads)
    for (int64_t t = 0; t < y->pixels; t++) sum_token(e, args[0], t, (float *)args[3] + t * y->channels);
    return 0;
}

static int embed_prepare(const kolo_kernel_request *r, kolo_kernel *k)
{
    const bool backward = r->node->op == KOLO_OP_embed_grad;
    if (backward && !kolo_request_out(r, 0))
        return kolo_fail(KOLO_EINTERNAL, "the first layer's map has no gradient here");
    embed *e = kolo_alloc(sizeof *e);
    if (!e) return KOLO_ENOMEM;
    e->x = backward ? kolo_cpu_view_out(r, 0) : kolo_cpu_view_in(r, 0);
    e->y = backward ? kolo_cpu_view_in(r, 0) : kolo_cpu_view_out(r, 0);
    e->threads = kolo_cpu_threads(r->backend, kolo_view_count(&e->y));
    k->state = e;
    k->release = free;
    k->run = backward ? embed_run_grad : embed_run;
    snprintf(k->name, sizeof k->name, "own block %ld%s", (long)e->x.block, e->x.bf16 ? " bf16" : "");
    return 0;
}

const kolo_op_row kolo_cpu_embed = {NULL, embed_prepare};
const kolo_op_row kolo_cpu_embed_grad = {NULL, embed_prepare};
