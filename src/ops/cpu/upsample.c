/* Nearest neighbours: every pixel becomes a square of `times` pixels a side; the gradient is the
 * sum over that square. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/memory.h"
#include "kolo/error.h"
#include "ops/cpu/access.h"
#include "ops/cpu/cpu.h"

typedef struct upsample {
    kolo_view small;
    int64_t times[2];
    int threads;
} upsample;

/* `width` pixels, each `times` times. */
static void repeat(char *to, const char *from, int64_t width, int64_t times, size_t bytes)
{
#define REPEAT(size)                                                                                \
    if (bytes == (size)) {                                                                          \
        for (int64_t i = 0; i < width; i++)                                                         \
            for (int64_t j = 0; j < times; j++)                                                     \
                memcpy(to + (i * times + j) * (int64_t)(size), from + i * (int64_t)(size), (size)); \
        return;                                                                                     \
    }
    REPEAT(2)
    REPEAT(4)
    REPEAT(32)
    REPEAT(64)
    for (int64_t i = 0; i < width * times; i++)
        memcpy(to + i * (int64_t)bytes, from + i / times * (int64_t)bytes, bytes);
#undef REPEAT
}

static int upsample_run(const kolo_kernel *k, void *const *args, void *workspace, const kolo_step *step,
                        int slot)
{
    (void)workspace;
    (void)step;
    (void)slot;
    const upsample *u = k->state;
    const kolo_view *x = &u->small;
    const int64_t row = x->width * x->block, rows = x->rows * x->blocks * x->height;
    const size_t element = x->bf16 ? 2 : 4;
#pragma omp parallel for schedule(static) num_threads(u->threads)
    for (int64_t t = 0; t < rows; t++) {
        const int64_t wide = row * u->times[1];
        char *y = kolo_at_out(args[1], t * u->times[0] * wide, x->bf16);
        repeat(y, kolo_at(args[0], t * row, x->bf16), x->width, u->times[1], (size_t)x->block * element);
        for (int64_t i = 1; i < u->times[0]; i++)
            memcpy(y + i * wide * (int64_t)element, y, (size_t)wide * element);
    }
    return 0;
}

/* One row of dx. high, wide: the square; stride: elements of a row of dy. */
KOLO_ALWAYS void sum_loop(void *dx, const void *dy, int64_t width, int64_t block, int64_t stride,
                          int64_t high, int64_t wide, bool bf16)
{
    if (block == 1) {
#pragma omp simd
        for (int64_t i = 0; i < width; i++) {
            float sum = 0;
            for (int64_t a = 0; a < high; a++)
                for (int64_t b = 0; b < wide; b++) sum += kolo_load(dy, a * stride + i * wide + b, bf16);
            kolo_store(dx, i, sum, bf16);
        }
        return;
    }
    for (int64_t i = 0; i < width; i++)
#pragma omp simd
        for (int64_t l = 0; l < block; l++) {
            float sum = 0;
            for (int64_t a = 0; a < high; a++)
                for (int64_t b = 0; b < wide; b++)
                    sum += kolo_load(dy, a * stride + (i * wide + b) * block + l, bf16);
            kolo_store(dx, i * block + l, sum, bf16);
        }
}
KOLO_BODY sum_body(void *dx, const void *dy, int64_t width, int64_t block, int64_t stride,
                   const int64_t *times, bool bf16)
{
    if (times[0] == 2 && times[1] == 2)
        KOLO_FOR_TYPE(bf16, sum_loop(dx, dy, width, block, stride, 2, 2, bf16_));
    else KOLO_FOR_TYPE(bf16, sum_loop(dx, dy, width, block, stride, times[0], times[1], bf16_));
}
KOLO_WIDE(sum,
          (void *dx, const void *dy, int64_t width, int64_t block, int64_t stride, const int64_t *times,
           bool bf16),
          (dx, dy, width, block, stride, times, bf16))

static int upsample_run_grad(const kolo_kernel *k, void *const *args, void *workspace, const kolo_step *step,
                             int slot)
{
    (void)workspace;
    (void)step;
    (void)slot;
    const upsample *u = k->state;
    const kolo_view *x = &u->small;
    const int64_t row = x->width * x->block, rows = x->rows * x->blocks * x->height;
#pragma omp parallel for schedule(static) num_threads(u->threads)
    for (int64_t t = 0; t < rows; t++)
        sum(kolo_at_out(args[1], t * row, x->bf16),
            kolo_at(args[0], t * row * u->times[0] * u->times[1], x->bf16), x->width, x->block,
            row * u->times[1], u->times, x->bf16);
    return 0;
}

static int upsample_prepare(const kolo_kernel_request *r, kolo_kernel *k)
{
    const bool backward = r->node->op == KOLO_OP_upsample_grad;
    upsample *u = kolo_alloc(sizeof *u);
    if (!u) return KOLO_ENOMEM;
    u->small = backward ? kolo_cpu_view_out(r, 0) : kolo_cpu_view_in(r, 0);
    const kolo_view large = backward ? kolo_cpu_view_in(r, 0) : kolo_cpu_view_out(r, 0);
    memcpy(u->times, r->node->a.stride, sizeof u->times);
    u->threads = kolo_cpu_threads(r->backend, kolo_view_count(&large));
    k->state = u;
    k->release = free;
    k->run = backward ? upsample_run_grad : upsample_run;
    snprintf(k->name, sizeof k->name, "own block %ld", (long)u->small.block);
    return 0;
}

const kolo_op_row kolo_cpu_upsample = {NULL, upsample_prepare};
const kolo_op_row kolo_cpu_upsample_grad = {NULL, upsample_prepare};
