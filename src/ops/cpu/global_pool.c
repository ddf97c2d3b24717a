/* Global average pooling: (N, C, H, W) -> (N, C). */
#include <omp.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/memory.h"
#include "kolo/error.h"
#include "ops/cpu/access.h"
#include "ops/cpu/cpu.h"

typedef struct global {
    kolo_view x;
    int threads;
} global;

/* Sum over the pixels of a plane, for each of its channels. */
KOLO_ALWAYS void sum_pixels(const void *x, int64_t pixels, int64_t block, bool bf16, double *sum)
{
    memset(sum, 0, (size_t)block * sizeof *sum);
    if (block == 1) {
        double s = 0;
#pragma omp simd reduction(+ : s)
        for (int64_t i = 0; i < pixels; i++) s += (double)kolo_load(x, i, bf16);
        *sum = s;
        return;
    }
    for (int64_t i = 0; i < pixels; i++) {
#pragma omp simd
        for (int64_t l = 0; l < block; l++) sum[l] += (double)kolo_load(x, i * block + l, bf16);
    }
}
KOLO_BODY sum_plane_body(const void *x, int64_t pixels, int64_t block, bool bf16, double *sum)
{
    KOLO_FOR_TYPE(bf16, sum_pixels(x, pixels, block, bf16_, sum));
}
KOLO_WIDE(sum_plane, (const void *x, int64_t pixels, int64_t block, bool bf16, double *sum),
          (x, pixels, block, bf16, sum))

static void global_pool_put(void *p, int64_t i, float v, bool bf16)
{
    KOLO_FOR_TYPE(bf16, kolo_store(p, i, v, bf16_));
}

static int64_t channels_in(const kolo_view *v, int64_t block)
{
    int64_t left = v->channels - block * v->block;
    return left < v->block ? left : v->block;
}

static int global_pool_run(const kolo_kernel *k, void *const *args, void *workspace, const kolo_step *step,
                           int slot)
{
    (void)step;
    (void)slot;
    const global *g = k->state;
    const kolo_view *v = &g->x;
#pragma omp parallel for schedule(static) num_threads(g->threads)
    for (int64_t t = 0; t < v->rows * v->blocks; t++) {
        double *sum =
            (double *)workspace + omp_get_thread_num() * (int64_t)kolo_round_up((size_t)v->block, 8);
        int64_t block = t % v->blocks, to = t / v->blocks * v->channels + block * v->block;
        sum_plane(kolo_at(args[0], t * kolo_view_plane(v), v->bf16), v->pixels, v->block, v->bf16, sum);
        for (int64_t l = 0; l < channels_in(v, block); l++)
            global_pool_put(args[1], to + l, (float)(sum[l] / (double)v->pixels), v->bf16);
    }
    return 0;
}

KOLO_ALWAYS void fill_pixels(void *dx, const float *value, int64_t pixels, int64_t block, bool bf16)
{
    if (block == 1) {
        const float v = *value;
#pragma omp simd
        for (int64_t i = 0; i < pixels; i++) kolo_store(dx, i, v, bf16);
        return;
    }
    for (int64_t i = 0; i < pixels; i++) {
#pragma omp simd
        for (int64_t l = 0; l < block; l++) kolo_store(dx, i * block + l, value[l], bf16);
    }
}
KOLO_BODY fill_plane_body(void *dx, const float *value, int64_t pixels, int64_t block, bool bf16)
{
    KOLO_FOR_TYPE(bf16, fill_pixels(dx, value, pixels, block, bf16_));
}
KOLO_WIDE(fill_plane, (void *dx, const float *value, int64_t pixels, int64_t block, bool bf16),
          (dx, value, pixels, block, bf16))

static float get(const void *p, int64_t i, bool bf16)
{
    return bf16 ? kolo_load(p, i, true) : kolo_load(p, i, false);
}

static int global_pool_run_grad(const kolo_kernel *k, void *const *args, void *workspace,
                                const kolo_step *step, int slot)
{
    (void)step;
    (void)slot;
    const global *g = k->state;
    const kolo_view *v = &g->x;
#pragma omp parallel for schedule(static) num_threads(g->threads)
    for (int64_t t = 0; t < v->rows * v->blocks; t++) {
        float *value =
            (float *)workspace + omp_get_thread_num() * (int64_t)kolo_round_up((size_t)v->block, 16);
        int64_t block = t % v->blocks, from = t / v->blocks * v->channels + block * v->block,
                real = channels_in(v, block);
        for (int64_t l = 0; l < v->block; l++)
            value[l] = l < real ? get(args[0], from + l, v->bf16) / (float)v->pixels : 0;
        fill_plane(kolo_at_out(args[1], t * kolo_view_plane(v), v->bf16), value, v->pixels, v->block,
                   v->bf16);
    }
    return 0;
}

static int global_pool_prepare(const kolo_kernel_request *r, kolo_kernel *k)
{
    bool backward = r->node->op == KOLO_OP_global_avg_pool_grad;
    global *g = kolo_alloc(sizeof *g);
    if (!g) return KOLO_ENOMEM;
    g->x = backward ? kolo_cpu_view_out(r, 0) : kolo_cpu_view_in(r, 0);
    g->threads = kolo_cpu_threads(r->backend, kolo_view_count(&g->x));
    k->state = g;
    k->release = free;
    k->run = backward ? global_pool_run_grad : global_pool_run;
    k->workspace = (size_t)g->threads * kolo_round_up((size_t)g->x.block, 16) * sizeof(double);
    snprintf(k->name, sizeof k->name, "own block %ld", (long)g->x.block);
    return 0;
}

const kolo_op_row kolo_cpu_global_avg_pool = {NULL, global_pool_prepare};
const kolo_op_row kolo_cpu_global_avg_pool_grad = {NULL, global_pool_prepare};
