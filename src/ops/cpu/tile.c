/* Pieces of maps: a tile is put together from pieces of one map, whole rows of pixels at a time, and its
 * gradient put back. Maps lie in channel blocks, u8 images with all channels of a pixel together. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/memory.h"
#include "kolo/error.h"
#include "ops/cpu/access.h"
#include "ops/cpu/cpu.h"

/* A map's planes (row of the batch, block) of `at` .. `end` rows and columns of the whole. */
typedef struct plane {
    int64_t at[2], end[2];
} plane;

typedef struct tile {
    int64_t planes;
    size_t pixel; /* bytes of a pixel in a plane */
    bool bf16;
    int inputs, threads;
    plane to, from[KOLO_MAX_ARGS];
    bool gaps; /* somewhere in the result there is no input */
} tile;

static int64_t width_of(const plane *p) { return p->end[1] - p->at[1]; }
static int64_t height_of(const plane *p) { return p->end[0] - p->at[0]; }

/* Columns that both have in row `row`: the first; *count, 0: none. */
static int64_t columns(const plane *a, const plane *b, int64_t row, int64_t *count)
{
    const int64_t first = a->at[1] > b->at[1] ? a->at[1] : b->at[1],
                  last = a->end[1] < b->end[1] ? a->end[1] : b->end[1];
    const bool rows = row >= a->at[0] && row < a->end[0] && row >= b->at[0] && row < b->end[0];
    *count = rows && last > first ? last - first : 0;
    return first;
}

/* Where column `column` of row `row` of plane number `n` lies. */
static char *place(const tile *t, const plane *p, void *base, int64_t n, int64_t row, int64_t column)
{
    const int64_t pixel = (n * height_of(p) + row - p->at[0]) * width_of(p) + column - p->at[1];
    return (char *)base + (size_t)pixel * t->pixel;
}

static int run_tile(const kolo_kernel *k, void *const *args, void *workspace, const kolo_step *step, int slot)
{
    (void)workspace;
    (void)step;
    (void)slot;
    const tile *t = k->state;
    const int64_t height = height_of(&t->to), width = width_of(&t->to);
#pragma omp parallel for schedule(static) num_threads(t->threads)
    for (int64_t i = 0; i < t->planes * height; i++) {
        const int64_t n = i / height, row = t->to.at[0] + i % height;
        void *to = args[t->inputs];
        if (t->gaps) memset(place(t, &t->to, to, n, row, t->to.at[1]), 0, (size_t)width * t->pixel);
        for (int j = 0; j < t->inputs; j++) {
            int64_t count;
            const int64_t first = columns(&t->to, &t->from[j], row, &count);
            if (count > 0)
                memcpy(place(t, &t->to, to, n, row, first), place(t, &t->from[j], args[j], n, row, first),
                       (size_t)count * t->pixel);
        }
    }
    return 0;
}

KOLO_ALWAYS void add_to_loop(void *to, const void *from, int64_t n, bool bf16)
{
#pragma omp simd
    for (int64_t i = 0; i < n; i++)
        kolo_store(to, i, kolo_load(to, i, bf16) + kolo_load(from, i, bf16), bf16);
}
KOLO_BODY add_to_body(void *to, const void *from, int64_t n, bool bf16)
{
    KOLO_FOR_TYPE(bf16, add_to_loop(to, from, n, bf16_));
}
KOLO_WIDE(add_to, (void *to, const void *from, int64_t n, bool bf16), (to, from, n, bf16))

/* in: dy[, other]; out: dx, maybe in other's place */
static int run_tile_grad(const kolo_kernel *k, void *const *args, void *workspace, const kolo_step *step,
                         int slot)
{
    (void)workspace;
    (void)step;
    (void)slot;
    const tile *t = k->state;
    const int64_t height = height_of(&t->to);
    const size_t line = (size_t)width_of(&t->to) * t->pixel;
    void *dy = args[0], *other = t->inputs > 1 ? args[1] : NULL, *dx = args[t->inputs];
#pragma omp parallel for schedule(static) num_threads(t->threads)
    for (int64_t i = 0; i < t->planes * height; i++) {
        const int64_t n = i / height, row = t->to.at[0] + i % height;
        int64_t count;
        const int64_t first = columns(&t->to, &t->from[0], row, &count);
        char *to = place(t, &t->to, dx, n, row, t->to.at[1]);
        if (!other) memset(to, 0, line);
        else if (other != dx) memcpy(to, place(t, &t->to, other, n, row, t->to.at[1]), line);
        if (count == 0) continue;
        const char *from = place(t, &t->from[0], dy, n, row, first);
        to = place(t, &t->to, dx, n, row, first);
        if (other) add_to(to, from, count * (int64_t)(t->pixel >> (t->bf16 ? 1 : 2)), t->bf16);
        else memcpy(to, from, (size_t)count * t->pixel);
    }
    return 0;
}

static plane plane_of(const kolo_tensor *x, const int64_t at[2])
{
    const int axis = x->dtype == KOLO_U8 ? 1 : 2;
    return (plane){{at[0], at[1]}, {at[0] + x->dim[axis], at[1] + x->dim[axis + 1]}};
}

static int64_t pixels_in_common(const plane *a, const plane *b)
{
    int64_t sum = 0, count;
    for (int64_t row = a->at[0]; row < a->end[0]; row++) {
        columns(a, b, row, &count);
        sum += count;
    }
    return sum;
}

static int tile_prepare(const kolo_kernel_request *r, kolo_kernel *k)
{
    const kolo_node *n = r->node;
    const kolo_tensor *y = &r->graph->tensor[n->out[0]];
    tile *t = kolo_alloc(sizeof *t);
    if (!t) return KOLO_ENOMEM;
    k->state = t;
    k->release = free;
    k->run = n->op == KOLO_OP_tile ? run_tile : run_tile_grad;
    t->inputs = n->n_in;
    t->bf16 = y->dtype == KOLO_BF16;
    t->to = plane_of(y, n->a.at);
    int64_t covered = 0;
    for (int i = 0; i < n->n_in; i++) {
        t->from[i] = plane_of(&r->graph->tensor[n->in[i]], n->a.from[i]);
        covered += pixels_in_common(&t->to, &t->from[i]);
    }
    t->gaps = covered < height_of(&t->to) * width_of(&t->to);
    if (y->dtype == KOLO_U8) {
        t->planes = y->dim[0];
        t->pixel = (size_t)y->dim[3];
    } else {
        const kolo_view v = kolo_cpu_view_out(r, 0);
        t->planes = v.rows * v.blocks;
        t->pixel = (size_t)v.block * kolo_dtype_size(y->dtype);
    }
    t->threads = kolo_cpu_threads(r->backend, kolo_tensor_count(y));
    snprintf(k->name, sizeof k->name, "own %zu bytes", t->pixel);
    return 0;
}

const kolo_op_row kolo_cpu_tile = {NULL, tile_prepare};
const kolo_op_row kolo_cpu_tile_grad = {NULL, tile_prepare};

/* ---- sums of terms ------------------------------------------------------------------------------------- */

typedef struct total {
    int64_t count;
    int terms, threads;
} total;
enum { BLOCK = 1024 };

/* One after the other: ((a + b) + c) + ... */
#define TOTAL(type)                                                                                         \
    static int run_total_##type(const kolo_kernel *k, void *const *args, void *workspace,                   \
                                const kolo_step *step, int slot)                                            \
    {                                                                                                       \
        (void)workspace;                                                                                    \
        (void)step;                                                                                         \
        (void)slot;                                                                                         \
        const total *t = k->state;                                                                          \
        _Pragma("omp parallel for schedule(static) num_threads(t->threads)") for (int64_t i = 0;            \
                                                                                  i < t->count; i += BLOCK) \
        {                                                                                                   \
            const int64_t count = t->count - i < BLOCK ? t->count - i : BLOCK;                              \
            type sum[BLOCK]; /* it may become what one of the terms is now */                               \
            memcpy(sum, (const type *)args[0] + i, (size_t)count * sizeof *sum);                            \
            for (int m = 1; m < t->terms; m++) {                                                            \
                const type *b = (const type *)args[m] + i;                                                  \
                for (int64_t j = 0; j < count; j++) sum[j] += b[j];                                         \
            }                                                                                               \
            memcpy((type *)args[t->terms] + i, sum, (size_t)count * sizeof *sum);                           \
        }                                                                                                   \
        return 0;                                                                                           \
    }
TOTAL(float)
TOTAL(double)

/* Added in f32, rounded once. */
static int run_total_bf16(const kolo_kernel *k, void *const *args, void *workspace, const kolo_step *step,
                          int slot)
{
    (void)workspace;
    (void)step;
    (void)slot;
    const total *t = k->state;
#pragma omp parallel for schedule(static) num_threads(t->threads)
    for (int64_t i = 0; i < t->count; i++) {
        float sum = kolo_load(args[0], i, true);
        for (int m = 1; m < t->terms; m++) sum += kolo_load(args[m], i, true);
        kolo_store(args[t->terms], i, sum, true);
    }
    return 0;
}

/* Over the whole of what is stored, padding included: it stays zero. */
static int total_prepare(const kolo_kernel_request *r, kolo_kernel *k)
{
    const enum kolo_dtype dtype = r->graph->tensor[r->node->out[0]].dtype;
    total *t = kolo_alloc(sizeof *t);
    if (!t) return KOLO_ENOMEM;
    k->state = t;
    k->release = free;
    k->run = dtype == KOLO_F64 ? run_total_double : dtype == KOLO_BF16 ? run_total_bf16 : run_total_float;
    t->terms = r->node->n_in;
    t->count = (int64_t)(r->layout[r->node->out[0]].bytes / kolo_dtype_size(dtype));
    t->threads = kolo_cpu_threads(r->backend, t->count);
    snprintf(k->name, sizeof k->name, "own %d terms", t->terms);
    return 0;
}

const kolo_op_row kolo_cpu_total = {NULL, total_prepare};

/* ---- copies of parameters ------------------------------------------------------------------------------ */

static int run_share(const kolo_kernel *k, void *const *args, void *workspace, const kolo_step *step,
                     int slot)
{
    (void)workspace;
    (void)step;
    (void)slot;
    memcpy(args[1], args[0], *(const size_t *)k->state);
    return 0;
}

static int share_prepare(const kolo_kernel_request *r, kolo_kernel *k)
{
    size_t *bytes = kolo_alloc(sizeof *bytes);
    if (!bytes) return KOLO_ENOMEM;
    k->state = bytes;
    k->release = free;
    k->run = run_share;
    *bytes = r->layout[r->node->out[0]].bytes;
    snprintf(k->name, sizeof k->name, "own copy");
    return 0;
}

const kolo_op_row kolo_cpu_share = {NULL, share_prepare};
