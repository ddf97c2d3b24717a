/* Max and average pooling. One task is one row of pixels of one plane; the row stays in the first-level cache
 * while the window's positions pass over it. */
#include <math.h>
#include <omp.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/memory.h"
#include "kolo/error.h"
#include "ops/cpu/access.h"
#include "ops/cpu/cpu.h"
#include "ops/cpu/pool_plain.h"

typedef struct pool {
    kolo_view x, y;
    int64_t kernel[2], stride[2], pad[2];
    bool count_pad;
    int threads;
} pool;

/* Columns o of y with 0 <= o * stride - pad + k < width of x. */
typedef struct range {
    int64_t begin, end;
} range;

static range columns(const pool *p, int64_t k)
{
    int64_t s = p->stride[1], first = p->pad[1] - k, last = p->x.width - 1 + p->pad[1] - k;
    range r = {first > 0 ? (first + s - 1) / s : 0, last < 0 ? 0 : last / s + 1};
    if (r.end > p->y.width) r.end = p->y.width;
    if (r.begin > r.end) r.begin = r.end;
    return r;
}

/* A window position over the columns [0, n) of a row of y: x moves by `step` elements a column. */
typedef struct sweep {
    int64_t n, step, block;
    int k;
} sweep;

/* ---- max ----------------------------------------------------------------------------------------------- */

/* The window of one pixel of y: x at its top left corner, which may lie outside; positions [h0, h1) x
 * [w0, w1) lie inside. */
typedef struct window {
    const void *x;
    int64_t h0, h1, w0, w1, row, block;
    int height, width;
} window; /* row: elements of a row of x; height, width: of the kernel */

/* `n` channels. As torch: the first maximum; a NaN wins. */
KOLO_ALWAYS void largest(void *y, uint8_t *index, const window *w, int64_t lane, int n, bool bf16)
{
    float most[16];
    int32_t at[16];
    uint8_t small[16];
    for (int l = 0; l < n; l++) {
        most[l] = -INFINITY;
        at[l] = (int32_t)(w->h0 * w->width + w->w0);
    }
    for (int64_t kh = w->h0; kh < w->h1; kh++)
        for (int64_t kw = w->w0; kw < w->w1; kw++) {
            const int32_t k = (int32_t)(kh * w->width + kw);
            const int64_t from = kh * w->row + kw * w->block + lane;
#pragma omp simd
            for (int l = 0; l < n; l++) {
                float v = kolo_load(w->x, from + l, bf16);
                bool larger = v > most[l] || v != v;
                most[l] = larger ? v : most[l];
                at[l] = larger ? k : at[l];
            }
        }
#pragma omp simd
    for (int l = 0; l < n; l++) kolo_store(y, lane + l, most[l], bf16);
    for (int l = 0; l < n; l++) small[l] = (uint8_t)at[l];
    memcpy(index + lane, small, (size_t)n);
}

/* The same of 16 channels of a window of side x side, a constant, that lies inside: in registers. */
KOLO_ALWAYS void largest_inside(void *y, uint8_t *index, const window *w, int64_t lane, int side, bool bf16)
{
    int32_t at[16];
    uint8_t small[16];
#pragma omp simd
    for (int l = 0; l < 16; l++) {
        float most = -INFINITY;
        int32_t first = 0;
        for (int k = 0; k < side * side; k++) {
            const float v = kolo_load(w->x, k / side * w->row + k % side * w->block + lane + l, bf16);
            const bool larger = v > most || v != v;
            most = larger ? v : most;
            first = larger ? k : first;
        }
        kolo_store(y, lane + l, most, bf16);
        at[l] = first;
    }
    for (int l = 0; l < 16; l++) small[l] = (uint8_t)at[l];
    memcpy(index + lane, small, sizeof small);
}

KOLO_ALWAYS void all_lanes(void *y, uint8_t *index, const window *w, bool bf16)
{
    const bool inside =
        w->h0 == 0 && w->w0 == 0 && w->h1 == 3 && w->w1 == 3 && w->width == 3 && w->height == 3;
    int64_t l = 0;
    for (; l + 16 <= w->block; l += 16)
        if (inside) largest_inside(y, index, w, l, 3, bf16);
        else largest(y, index, w, l, 16, bf16);
    if (l < w->block) largest(y, index, w, l, (int)(w->block - l), bf16);
}

static inline int64_t larger_of(int64_t a, int64_t b) { return a > b ? a : b; }
static inline int64_t smaller_of(int64_t a, int64_t b) { return a < b ? a : b; }

KOLO_BODY max_row_body(const pool *p, void *y, uint8_t *index, const void *x, int64_t oh)
{
    int64_t top = oh * p->stride[0] - p->pad[0], block = p->x.block;
    for (int64_t o = 0; o < p->y.width; o++) {
        int64_t left = o * p->stride[1] - p->pad[1];
        window w = {NULL,
                    larger_of(0, -top),
                    smaller_of(p->kernel[0], p->x.height - top),
                    larger_of(0, -left),
                    smaller_of(p->kernel[1], p->x.width - left),
                    p->x.width * block,
                    block,
                    (int)p->kernel[0],
                    (int)p->kernel[1]};
        w.x = (const char *)x + (top * p->x.width + left) * block * (p->x.bf16 ? 2 : 4);
        void *to = kolo_at_out(y, o * block, p->x.bf16);
        KOLO_FOR_TYPE(p->x.bf16, all_lanes(to, index + o * block, &w, bf16_));
    }
}
KOLO_WIDE(max_row, (const pool *p, void *y, uint8_t *index, const void *x, int64_t oh), (p, y, index, x, oh))

static kolo_window window_of(const pool *p)
{
    kolo_window w = {p->x.height,
                     p->x.width,
                     p->y.height,
                     p->y.width,
                     {p->kernel[0], p->kernel[1]},
                     {p->stride[0], p->stride[1]},
                     {p->pad[0], p->pad[1]}};
    return w;
}

static int run_max_plain(const kolo_kernel *k, void *const *args, void *workspace, const kolo_step *step,
                         int slot)
{
    (void)workspace;
    (void)step;
    (void)slot;
    const pool *p = k->state;
    const bool bf16 = p->x.bf16;
    const kolo_window w = window_of(p);
#pragma omp parallel for schedule(static) num_threads(p->threads)
    for (int64_t t = 0; t < p->y.rows * p->y.blocks; t++)
        kolo_max_plane(&w, kolo_at_out(args[1], t * p->y.pixels, bf16), (uint8_t *)args[2] + t * p->y.pixels,
                       kolo_at(args[0], t * p->x.pixels, bf16), (p->y.rows * p->y.blocks - t) * p->x.pixels,
                       bf16);
    return 0;
}

/* in: x; out: y, index */
static int run_max(const kolo_kernel *k, void *const *args, void *workspace, const kolo_step *step, int slot)
{
    (void)workspace;
    (void)step;
    (void)slot;
    const pool *p = k->state;
    const bool bf16 = p->x.bf16;
    int64_t row = p->y.width * p->y.block;
#pragma omp parallel for schedule(static) num_threads(p->threads)
    for (int64_t t = 0; t < p->y.rows * p->y.blocks * p->y.height; t++) {
        int64_t plane = t / p->y.height;
        max_row(p, kolo_at_out(args[1], t * row, bf16), (uint8_t *)args[2] + t * row,
                kolo_at(args[0], plane * kolo_view_plane(&p->x), bf16), t % p->y.height);
    }
    return 0;
}

/* acc[column of x] += dy where this position was the maximum. `to` moves by step. */
KOLO_ALWAYS void spread_max(float *acc, const void *dy, const uint8_t *index, const sweep *s, int64_t block,
                            bool bf16)
{
    const int k = s->k;
    for (int64_t o = 0; o < s->n; o++) {
#pragma omp simd
        for (int64_t l = 0; l < block; l++)
            acc[o * s->step + l] += index[o * block + l] == k ? kolo_load(dy, o * block + l, bf16) : 0.0f;
    }
}
KOLO_BODY max_grad_body(float *acc, const void *dy, const uint8_t *index, const sweep *s, bool bf16)
{
    if (s->block == 16) KOLO_FOR_TYPE(bf16, spread_max(acc, dy, index, s, 16, bf16_));
    else KOLO_FOR_TYPE(bf16, spread_max(acc, dy, index, s, s->block, bf16_));
}
KOLO_WIDE(max_grad, (float *acc, const void *dy, const uint8_t *index, const sweep *s, bool bf16),
          (acc, dy, index, s, bf16))

/* ---- average ------------------------------------------------------------------------------------------- */

KOLO_ALWAYS void add_scaled_loop(float *acc, int64_t acc_step, const void *x, int64_t x_step, const sweep *s,
                                 int64_t block, const float *scale, bool bf16)
{
    for (int64_t o = 0; o < s->n; o++) {
        const float f = scale ? scale[o] : 1.0f;
#pragma omp simd
        for (int64_t l = 0; l < block; l++) acc[o * acc_step + l] += f * kolo_load(x, o * x_step + l, bf16);
    }
}
KOLO_BODY add_scaled_body(float *acc, int64_t acc_step, const void *x, int64_t x_step, const sweep *s,
                          const float *scale, bool bf16)
{
    if (s->block == 16) KOLO_FOR_TYPE(bf16, add_scaled_loop(acc, acc_step, x, x_step, s, 16, scale, bf16_));
    else KOLO_FOR_TYPE(bf16, add_scaled_loop(acc, acc_step, x, x_step, s, s->block, scale, bf16_));
}
KOLO_WIDE(add_scaled,
          (float *acc, int64_t acc_step, const void *x, int64_t x_step, const sweep *s, const float *scale,
           bool bf16),
          (acc, acc_step, x, x_step, s, scale, bf16))

KOLO_BODY put_row_body(void *y, const float *acc, int64_t n, bool bf16)
{
    if (bf16) {
#pragma omp simd
        for (int64_t i = 0; i < n; i++) kolo_store(y, i, acc[i], true);
    } else {
        memcpy(y, acc, (size_t)n * sizeof *acc);
    }
}
KOLO_WIDE(put_row, (void *y, const float *acc, int64_t n, bool bf16), (y, acc, n, bf16))

static int64_t inside(int64_t first, int64_t n, int64_t size)
{
    int64_t end = first + n;
    return (end > size ? size : end) - (first < 0 ? 0 : first);
}

/* 1 / pixels that the window at (oh, o) divides by, for each column o */
static void weights_of_row(const pool *p, int64_t oh, float *weight)
{
    int64_t h = inside(oh * p->stride[0] - p->pad[0], p->kernel[0], p->x.height);
    for (int64_t o = 0; o < p->y.width; o++) {
        int64_t w = inside(o * p->stride[1] - p->pad[1], p->kernel[1], p->x.width);
        weight[o] = 1.0f / (float)(p->count_pad ? p->kernel[0] * p->kernel[1] : h * w);
    }
}

/* Workspace of a thread: a row of sums (a plane for plain max pooling), the weights of the columns of y. */
static int64_t row_floats(const pool *p)
{
    int64_t x = p->x.block == 1 ? p->x.pixels : p->x.width * p->x.block, y = p->y.width * p->y.block;
    return (int64_t)kolo_round_up((size_t)((x > y ? x : y) + p->y.width), 16);
}

static void avg_row(const pool *p, void *y, const void *x, int64_t oh, float *acc)
{
    int64_t block = p->x.block, row = p->y.width * block;
    float *weight = acc + row;
    memset(acc, 0, (size_t)row * sizeof *acc);
    for (int64_t kh = 0; kh < p->kernel[0]; kh++) {
        int64_t ih = oh * p->stride[0] - p->pad[0] + kh;
        if (ih < 0 || ih >= p->x.height) continue;
        for (int64_t kw = 0; kw < p->kernel[1]; kw++) {
            range r = columns(p, kw);
            sweep s = {r.end - r.begin, 0, block, 0};
            int64_t iw = r.begin * p->stride[1] - p->pad[1] + kw;
            if (s.n > 0)
                add_scaled(acc + r.begin * block, block,
                           kolo_at(x, (ih * p->x.width + iw) * block, p->x.bf16), p->stride[1] * block, &s,
                           NULL, p->x.bf16);
        }
    }
    weights_of_row(p, oh, weight);
    for (int64_t i = 0; i < row; i++) acc[i] *= weight[i / block];
    put_row(y, acc, row, p->y.bf16);
}

static int run_avg(const kolo_kernel *k, void *const *args, void *workspace, const kolo_step *step, int slot)
{
    (void)step;
    (void)slot;
    const pool *p = k->state;
    const bool bf16 = p->x.bf16;
    int64_t row = p->y.width * p->y.block;
#pragma omp parallel for schedule(static) num_threads(p->threads)
    for (int64_t t = 0; t < p->y.rows * p->y.blocks * p->y.height; t++) {
        float *acc = (float *)workspace + omp_get_thread_num() * row_floats(p);
        avg_row(p, kolo_at_out(args[1], t * row, bf16),
                kolo_at(args[0], t / p->y.height * kolo_view_plane(&p->x), bf16), t % p->y.height, acc);
    }
    return 0;
}

/* ---- gradients ----------------------------------------------------------------------------------------- */

/* Row ih of dx, gathered from the windows that cover it. index NULL: average. */
static void grad_row(const pool *p, void *dx, const void *dy, const uint8_t *index, int64_t ih, float *acc)
{
    int64_t block = p->x.block, row = p->x.width * block, stride = p->stride[1];
    float *weight = acc + row;
    memset(acc, 0, (size_t)row * sizeof *acc);
    for (int64_t kh = 0; kh < p->kernel[0]; kh++) {
        int64_t up = ih + p->pad[0] - kh, oh = up / p->stride[0];
        if (up < 0 || up % p->stride[0] || oh >= p->y.height) continue;
        if (!index) weights_of_row(p, oh, weight);
        for (int64_t kw = 0; kw < p->kernel[1]; kw++) {
            range r = columns(p, kw);
            sweep s = {r.end - r.begin, stride * block, block, (int)(kh * p->kernel[1] + kw)};
            int64_t from = (oh * p->y.width + r.begin) * block;
            float *to = acc + (r.begin * stride - p->pad[1] + kw) * block;
            if (s.n <= 0) continue;
            if (index) max_grad(to, kolo_at(dy, from, p->x.bf16), index + from, &s, p->x.bf16);
            else
                add_scaled(to, stride * block, kolo_at(dy, from, p->x.bf16), block, &s, weight + r.begin,
                           p->x.bf16);
        }
    }
    put_row(dx, acc, row, p->x.bf16);
}

static int pool_run_grad(const pool *p, void *dx, const void *dy, const uint8_t *index, void *workspace)
{
    const bool bf16 = p->x.bf16;
    int64_t row = p->x.width * p->x.block, plane = kolo_view_plane(&p->y);
#pragma omp parallel for schedule(static) num_threads(p->threads)
    for (int64_t t = 0; t < p->x.rows * p->x.blocks * p->x.height; t++) {
        int64_t at = t / p->x.height * plane;
        float *acc = (float *)workspace + omp_get_thread_num() * row_floats(p);
        grad_row(p, kolo_at_out(dx, t * row, bf16), kolo_at(dy, at, bf16), index ? index + at : NULL,
                 t % p->x.height, acc);
    }
    return 0;
}

static int run_max_grad_plain(const kolo_kernel *k, void *const *args, void *workspace, const kolo_step *step,
                              int slot)
{
    (void)step;
    (void)slot;
    const pool *p = k->state;
    const bool bf16 = p->x.bf16;
    const kolo_window w = window_of(p);
    int64_t space = row_floats(p);
#pragma omp parallel for schedule(static) num_threads(p->threads)
    for (int64_t t = 0; t < p->x.rows * p->x.blocks; t++) {
        void *dx = kolo_at_out(args[2], t * p->x.pixels, bf16);
        float *acc = bf16 ? (float *)workspace + omp_get_thread_num() * space : dx;
        memset(acc, 0, (size_t)p->x.pixels * sizeof *acc);
        kolo_max_plane_grad(&w, acc, kolo_at(args[0], t * p->y.pixels, bf16),
                            (const uint8_t *)args[1] + t * p->y.pixels, bf16);
        if (bf16) put_row(dx, acc, p->x.pixels, true);
    }
    return 0;
}

/* in: dy, index; out: dx */
static int run_max_grad(const kolo_kernel *k, void *const *args, void *workspace, const kolo_step *step,
                        int slot)
{
    (void)step;
    (void)slot;
    return pool_run_grad(k->state, args[2], args[0], args[1], workspace);
}

/* in: dy; out: dx */
static int run_avg_grad(const kolo_kernel *k, void *const *args, void *workspace, const kolo_step *step,
                        int slot)
{
    (void)step;
    (void)slot;
    return pool_run_grad(k->state, args[1], args[0], NULL, workspace);
}

static int pool_prepare(const kolo_kernel_request *r, kolo_kernel *k)
{
    const kolo_attributes *a = &r->node->a;
    enum kolo_op op = r->node->op;
    bool backward = op == KOLO_OP_max_pool_grad || op == KOLO_OP_avg_pool_grad;
    bool maximum = op == KOLO_OP_max_pool || op == KOLO_OP_max_pool_grad;
    if (maximum && a->kernel[0] * a->kernel[1] > 256)
        return kolo_fail(KOLO_ECONFIG, "a max-pool window of %ld x %ld has more than 256 positions",
                         (long)a->kernel[0], (long)a->kernel[1]);
    pool *p = kolo_alloc(sizeof *p);
    if (!p) return KOLO_ENOMEM;
    k->state = p;
    k->release = free;
    p->x = backward ? kolo_cpu_view_out(r, 0) : kolo_cpu_view_in(r, 0);
    p->y = backward ? kolo_cpu_view_in(r, 0) : kolo_cpu_view_out(r, 0);
    memcpy(p->kernel, a->kernel, sizeof p->kernel);
    memcpy(p->stride, a->stride, sizeof p->stride);
    memcpy(p->pad, a->pad, sizeof p->pad);
    p->count_pad = a->count_pad;
    p->threads = kolo_cpu_threads(r->backend, kolo_view_count(&p->x));
    bool plain = p->x.block == 1;
    if (op == KOLO_OP_max_pool) k->run = plain ? run_max_plain : run_max;
    else if (op == KOLO_OP_max_pool_grad) k->run = plain ? run_max_grad_plain : run_max_grad;
    else k->run = op == KOLO_OP_avg_pool ? run_avg : run_avg_grad;
    k->workspace = op == KOLO_OP_max_pool ? 0 : (size_t)(p->threads * row_floats(p)) * sizeof(float);
    snprintf(k->name, sizeof k->name, "own block %ld", (long)p->x.block);
    return 0;
}

const kolo_op_row kolo_cpu_max_pool = {NULL, pool_prepare};
const kolo_op_row kolo_cpu_avg_pool = {NULL, pool_prepare};
const kolo_op_row kolo_cpu_max_pool_grad = {NULL, pool_prepare};
const kolo_op_row kolo_cpu_avg_pool_grad = {NULL, pool_prepare};
