/* residual: y = [x +] kept(row) scale branch, and its gradient, whose dscale is summed as columns.cuh says;
 * dropout. Draws: ops/draw.h, so the CPU draws the same. */
#include "ops/cuda/cells.cuh"
#include "ops/cuda/columns.cuh"
#include "ops/draw.h"

extern "C" {
#include "base/memory.h"
}

typedef struct residual {
    kolo_columns columns;
    kolo_divisor pixels;
    enum kolo_dtype dtype;
    double drop;
    int32_t draw;
    float share; /* 1 / (1 - drop) */
    int inputs;
} residual;

/* A row's factor, looked at once for each of a thread's rows. */
typedef struct kept {
    int row;
    float factor;
} kept;
KOLO_INLINE float kept_of(kept *k, const residual &p, const kolo_step *step, int slot, int line)
{
    if (!(p.drop > 0)) return 1;
    const int row = (int)kolo_quotient((uint32_t)line, p.pixels);
    if (row != k->row)
        *k = {row,
              kolo_row_kept(step->seed, step->step, step->row[slot] + row, p.draw, p.drop) ? p.share : 0.0f};
    return k->factor;
}

template <int W>
KOLO_INLINE void scale_of(float (&to)[W], const float *scale, const kolo_place &p, int channels)
{
    for (int k = 0; k < W; k++)
        to[k] = !scale ? 1.0f : p.channel + k < channels ? scale[p.channel + k] : 0.0f;
}

template <typename T, int W>
__global__ void __launch_bounds__(KOLO_COLUMN_THREADS)
    residual_kernel(residual r, T *y, const T *branch, const float *scale, const T *x, const kolo_step *step,
                    int slot)
{
    const kolo_columns &c = r.columns;
    const kolo_place p = kolo_place_of<W>(c, blockIdx.x, threadIdx.x, false);
    const int64_t line = (int64_t)c.down * c.stored;
    kept last = {-1, 0};
    float own[W];
    scale_of(own, scale, p, c.channels);
    int64_t at = p.at;
    for (int l = p.first; l < p.end; l += KOLO_COLUMN_BATCH * c.down, at += KOLO_COLUMN_BATCH * line) {
        kolo_loaded<T, W> b[KOLO_COLUMN_BATCH], v[KOLO_COLUMN_BATCH];
        kolo_columns_load_batch(b, branch + at, c, l, p.end);
        if (x) kolo_columns_load_batch(v, x + at, c, l, p.end);
#pragma unroll
        for (int u = 0; u < KOLO_COLUMN_BATCH; u++) {
            if (l + u * c.down >= p.end) continue;
            const float factor = kept_of(&last, r, step, slot, l + u * c.down);
            float value[W], other[W] = {};
            kolo_columns_widen(value, b[u]);
            if (x) kolo_columns_widen(other, v[u]);
            for (int k = 0; k < W; k++)
                value[k] = factor != 0 ? other[k] + factor * own[k] * value[k] : other[k];
            kolo_columns_store(y + at + u * line, value);
        }
    }
}

/* dbranch = kept scale dy (it may be dy, or NULL), and where there is a scale, partial sums of kept dy branch
 * (`partial` may be NULL). */
template <typename T, int W>
__global__ void __launch_bounds__(KOLO_COLUMN_THREADS)
    residual_grad_kernel(residual r, T *dbranch, double *partial, const T *dy, const T *branch,
                         const float *scale, const kolo_step *step, int slot)
{
    const kolo_columns &c = r.columns;
    const kolo_place p = kolo_place_of<W>(c, blockIdx.x, threadIdx.x, true);
    const int64_t line = (int64_t)c.down * c.stored;
    kept last = {-1, 0};
    float own[W], sum[W];
    scale_of(own, scale, p, c.channels);
    for (int k = 0; k < W; k++) sum[k] = 0;
    int64_t at = p.at;
    for (int l = p.first; l < p.end; l += KOLO_COLUMN_BATCH * c.down, at += KOLO_COLUMN_BATCH * line) {
        kolo_loaded<T, W> d[KOLO_COLUMN_BATCH], b[KOLO_COLUMN_BATCH];
        kolo_columns_load_batch(d, dy + at, c, l, p.end);
        if (partial) kolo_columns_load_batch(b, branch + at, c, l, p.end);
#pragma unroll
        for (int u = 0; u < KOLO_COLUMN_BATCH; u++) {
            if (l + u * c.down >= p.end) continue;
            const float factor = kept_of(&last, r, step, slot, l + u * c.down);
            float value[W], other[W];
            kolo_columns_widen(value, d[u]);
            for (int k = 0; k < W; k++) value[k] = factor != 0 ? factor * value[k] : 0;
            if (partial) {
                kolo_columns_widen(other, b[u]);
                for (int k = 0; k < W; k++) sum[k] += factor != 0 ? value[k] * other[k] : 0;
            }
            for (int k = 0; k < W; k++) value[k] *= own[k];
            if (dbranch) kolo_columns_store(dbranch + at + u * line, value);
        }
    }
    if (!partial) return;
    __shared__ kolo_column_room<W, 1> room;
    double all[1][W];
    for (int k = 0; k < W; k++) all[0][k] = sum[k];
    kolo_columns_combine<W, 1>(all, c, p, partial, room);
}

static __global__ void __launch_bounds__(KOLO_COLUMN_THREADS)
    residual_finish_kernel(kolo_columns c, float *dscale, const double *partial)
{
    const kolo_finish f = kolo_columns_finish(partial, c, 1);
    if (f.mine) dscale[f.channel] = (float)f.sum;
}

/* in: branch[, scale][, x]; out: y */
static int cuda_residual_run(const kolo_kernel *k, void *const *args, void *, const kolo_step *step, int slot)
{
    const residual *r = (const residual *)k->state;
    const float *scale = r->inputs > 1 ? (const float *)args[1] : NULL;
    const void *x = r->inputs > 2 ? args[2] : NULL;
    int rc = 0;
    KOLO_FOR_COLUMNS(r->dtype, &r->columns, T, W,
                     rc = KOLO_LAUNCH((residual_kernel<T, W>), kolo_columns_blocks(&r->columns),
                                      KOLO_COLUMN_THREADS, 0, kolo_cuda_stream(k), *r, (T *)args[r->inputs],
                                      (const T *)args[0], scale, (const T *)x, step, slot));
    return rc;
}

/* in: dy, branch, scale; out: dbranch, dscale */
static int cuda_residual_run_grad(const kolo_kernel *k, void *const *args, void *workspace,
                                  const kolo_step *step, int slot)
{
    const residual *r = (const residual *)k->state;
    double *partial = args[4] ? (double *)workspace : NULL;
    int rc = 0;
    KOLO_FOR_COLUMNS(r->dtype, &r->columns, T, W,
                     rc = KOLO_LAUNCH((residual_grad_kernel<T, W>), kolo_columns_blocks(&r->columns),
                                      KOLO_COLUMN_THREADS, 0, kolo_cuda_stream(k), *r, (T *)args[3], partial,
                                      (const T *)args[0], (const T *)args[1], (const float *)args[2], step,
                                      slot));
    if (rc < 0 || !partial) return rc;
    return KOLO_LAUNCH(residual_finish_kernel, kolo_columns_finish_blocks(&r->columns, 1),
                       KOLO_COLUMN_THREADS, 0, kolo_cuda_stream(k), r->columns, (float *)args[4],
                       (const double *)partial);
}

static int cuda_residual_prepare(const kolo_kernel_request *r, kolo_kernel *k)
{
    const bool backward = r->node->op == KOLO_OP_residual_grad;
    const kolo_cuda_view v = kolo_cuda_view_in(r, 0);
    residual *p = (residual *)kolo_alloc(sizeof *p);
    if (!p) return KOLO_ENOMEM;
    k->state = p;
    k->release = free;
    k->run = backward ? cuda_residual_run_grad : cuda_residual_run;
    KOLO_TRY(kolo_columns_cut(&p->columns, v.rows, v.pixels, v.stored, v.channels, v.dtype));
    p->pixels = kolo_divisor_of(v.pixels);
    p->dtype = v.dtype;
    p->drop = r->node->a.drop;
    p->draw = r->node->a.draw;
    p->share = (float)(1 / (1 - p->drop));
    p->inputs = r->node->n_in;
    if (backward && kolo_request_out(r, 1)) k->workspace = kolo_columns_workspace(&p->columns, 1);
    snprintf(k->name, sizeof k->name, "own %s", kolo_dtype_name(v.dtype));
    return 0;
}

const kolo_op_row kolo_cuda_residual = {NULL, cuda_residual_prepare};
const kolo_op_row kolo_cuda_residual_grad = {NULL, cuda_residual_prepare};

/* ---- dropout ------------------------------------------------------------------------------------------- */

enum { THREADS = 256 };

typedef struct dropout {
    int64_t quads; /* of a row, its padding included; in all: rows times as many */
    int64_t items;
    int channels, stored, pixels;
    int64_t first; /* element of the row with which x begins */
    double drop;
    int32_t draw;
    float share;
    enum kolo_dtype dtype;
} dropout;

/* A thread takes four elements of a row in canonical order, which one draw serves: together in (N,
 * F), which it is for. */
template <typename T>
__global__ void __launch_bounds__(THREADS)
    dropout_kernel(T *y, const T *x, dropout p, const kolo_step *step, int slot)
{
    const int64_t item = (int64_t)blockIdx.x * THREADS + threadIdx.x;
    if (item >= p.items) return;
    const int64_t row = item / p.quads, quad = item - row * p.quads;
    const kolo_philox4 draws =
        kolo_draw4(step->seed, step->step, step->row[slot] + row, p.draw, p.first / 4 + quad);
    for (int i = 0; i < 4; i++) {
        const int64_t element = 4 * quad + i - p.first % 4;
        if (element < 0) continue;
        const int64_t c = element / p.pixels, at = element - c * p.pixels;
        if (c >= p.stored) return;
        const int64_t place = (row * p.pixels + at) * p.stored + c;
        const bool keeps = c < p.channels && kolo_draw_keeps(draws.v[i], p.drop);
        kolo_round(keeps ? kolo_widen(x[place]) * p.share : 0.0f, y + place);
    }
}

static int run_dropout(const kolo_kernel *k, void *const *args, void *, const kolo_step *step, int slot)
{
    const dropout *p = (const dropout *)k->state;
    KOLO_FOR_DTYPE(p->dtype, T,
                   return KOLO_LAUNCH(dropout_kernel<T>, (p->items + THREADS - 1) / THREADS, THREADS, 0,
                                      kolo_cuda_stream(k), (T *)args[1], (const T *)args[0], *p, step, slot));
}

static int prepare_dropout(const kolo_kernel_request *r, kolo_kernel *k)
{
    const kolo_cuda_view v = kolo_cuda_view_in(r, 0);
    dropout *p = (dropout *)kolo_alloc(sizeof *p);
    if (!p) return KOLO_ENOMEM;
    p->first = r->node->a.first;
    p->quads = (p->first % 4 + v.stored * v.pixels + 3) / 4;
    p->items = p->quads * v.rows;
    p->channels = (int)v.channels, p->stored = (int)v.stored, p->pixels = (int)v.pixels;
    p->drop = r->node->a.drop;
    p->draw = r->node->a.draw;
    p->share = (float)(1 / (1 - p->drop));
    p->dtype = v.dtype;
    k->state = p;
    k->release = free;
    k->run = run_dropout;
    snprintf(k->name, sizeof k->name, "own %s", kolo_dtype_name(v.dtype));
    return 0;
}

const kolo_op_row kolo_cuda_dropout = {NULL, prepare_dropout};
const kolo_op_row kolo_cuda_dropout_grad = {NULL, prepare_dropout};
