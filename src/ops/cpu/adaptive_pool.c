/* Average pooling to a given number of pixels, and its gradient: ops/adaptive.h has the windows. */
#include <stdio.h>
#include <stdlib.h>

#include "base/memory.h"
#include "kolo/error.h"
#include "ops/adaptive.h"
#include "ops/cpu/access.h"
#include "ops/cpu/cpu.h"

typedef struct pool {
    kolo_view from, to; /* x, y; of the gradient dy, dx */
    bool backward;
    int threads;
} pool;

/* The window of pixel (h, w) of `to` in a plane of `from`. */
typedef struct window {
    kolo_span h, w;
    float share; /* of the sum; of a gradient each pixel has its own */
} window;

static float share_of(const pool *p, int h, int w)
{
    const kolo_view *y = p->backward ? &p->from : &p->to, *x = p->backward ? &p->to : &p->from;
    return kolo_span_share(kolo_span_of(h, (int)y->height, (int)x->height),
                           kolo_span_of(w, (int)y->width, (int)x->width));
}

/* `n` channels of a pixel. */
KOLO_ALWAYS void sum_lanes(const pool *p, void *to, const void *from, const window *at, int64_t lane, int n,
                           bool bf16)
{
    float sum[16] = {0};
    for (int h = at->h.begin; h < at->h.end; h++)
        for (int w = at->w.begin; w < at->w.end; w++) {
            const float share = p->backward ? share_of(p, h, w) : 1;
            const int64_t first = (h * p->from.width + w) * p->from.block + lane;
#pragma omp simd
            for (int l = 0; l < n; l++) sum[l] += share * kolo_load(from, first + l, bf16);
        }
#pragma omp simd
    for (int l = 0; l < n; l++) kolo_store(to, lane + l, at->share * sum[l], bf16);
}
KOLO_ALWAYS void all_lanes(const pool *p, void *to, const void *from, const window *at, bool bf16)
{
    const int64_t block = p->from.block;
    int64_t l = 0;
    for (; l + 16 <= block; l += 16) sum_lanes(p, to, from, at, l, 16, bf16);
    if (l < block) sum_lanes(p, to, from, at, l, (int)(block - l), bf16);
}
KOLO_BODY pixel_body(const pool *p, void *to, const void *from, const window *at)
{
    KOLO_FOR_TYPE(p->from.bf16, all_lanes(p, to, from, at, bf16_));
}
KOLO_WIDE(pixel, (const pool *p, void *to, const void *from, const window *at), (p, to, from, at))

static int adaptive_pool_run(const kolo_kernel *k, void *const *args, void *workspace, const kolo_step *step,
                             int slot)
{
    (void)workspace;
    (void)step;
    (void)slot;
    const pool *p = k->state;
    const kolo_view *from = &p->from, *to = &p->to;
#pragma omp parallel for schedule(static) num_threads(p->threads)
    for (int64_t t = 0; t < to->rows * to->blocks * to->height; t++) {
        const int h = (int)(t % to->height);
        const void *plane = kolo_at(args[0], t / to->height * kolo_view_plane(from), from->bf16);
        window at = {.h = kolo_span_of(h, (int)to->height, (int)from->height)};
        for (int w = 0; w < to->width; w++) {
            at.w = kolo_span_of(w, (int)to->width, (int)from->width);
            at.share = p->backward ? 1 : kolo_span_share(at.h, at.w);
            pixel(p, kolo_at_out(args[1], (t * to->width + w) * to->block, to->bf16), plane, &at);
        }
    }
    return 0;
}

static int adaptive_pool_prepare(const kolo_kernel_request *r, kolo_kernel *k)
{
    pool *p = kolo_alloc(sizeof *p);
    if (!p) return KOLO_ENOMEM;
    p->backward = r->node->op == KOLO_OP_adaptive_avg_pool_grad;
    p->from = kolo_cpu_view_in(r, 0);
    p->to = kolo_cpu_view_out(r, 0);
    p->threads = kolo_cpu_threads(r->backend, kolo_view_count(p->backward ? &p->to : &p->from));
    k->state = p;
    k->release = free;
    k->run = adaptive_pool_run;
    snprintf(k->name, sizeof k->name, "own block %ld", (long)p->from.block);
    return 0;
}

const kolo_op_row kolo_cpu_adaptive_avg_pool = {NULL, adaptive_pool_prepare};
const kolo_op_row kolo_cpu_adaptive_avg_pool_grad = {NULL, adaptive_pool_prepare};
