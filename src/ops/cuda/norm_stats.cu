/* norm_stats: sums of x and x^2 of every channel over the valid lines. norm.cuh says how many bytes that takes.
 *
 * A thread adds x - k and (x - k)^2, k being the first value it meets: as close to its other values as they are to each
 * other, so f32 loses nothing to a mean that is large beside the deviation. The sums of x and x^2 follow exactly enough
 * in f64 and are f64 from there on. */
#include <stdlib.h>

#include "ops/cuda/norm.cuh"

extern "C" {
#include "base/memory.h"
}

int kolo_norm_prepare(const kolo_kernel_request *r, kolo_kernel *k, int input)
{
    kolo_norm *n = (kolo_norm *)kolo_alloc(sizeof *n);
    if (!n) return KOLO_ECONFIG;
    k->state = n;
    k->release = free;
    kolo_cuda_view v = kolo_cuda_view_in(r, input);
    n->dtype = v.dtype;
    n->epsilon = r->node->a.epsilon;
    n->relu = r->node->a.relu;
    n->signs = input == 1 && kolo_request_in(r, 2) && kolo_request_in(r, 2)->dtype == KOLO_U8;
    n->inputs = r->node->n_in;
    n->outputs = r->node->n_out;
    KOLO_TRY(kolo_columns_cut(&n->columns, v.rows, v.pixels, v.stored, v.channels, v.dtype));
    snprintf(k->name, sizeof k->name, "own %s, %d blocks of %d lines", kolo_dtype_name(v.dtype),
             kolo_columns_blocks(&n->columns), n->columns.lines);
    return 0;
}

/* SHORT: only where some lines are not valid */
template <typename T, int W, bool SHORT>
__global__ void __launch_bounds__(KOLO_COLUMN_THREADS, 4)
    norm_sum_kernel(kolo_columns c, const T *x, double *partial, const kolo_step *step, int slot)
{
    if (SHORT && kolo_columns_valid(c, step->valid[slot]) == c.all) return;
    const kolo_place p = kolo_place_of<W>(c, blockIdx.x, threadIdx.x, true);
    const int valid = kolo_columns_valid(c, step->valid[slot]);
    float shift[W], sum[W], square[W];
    for (int k = 0; k < W; k++) shift[k] = sum[k] = square[k] = 0;
    const T *at = x + p.at;
    for (int l = p.first; l < p.end;
         l += KOLO_COLUMN_BATCH * c.down, at += (int64_t)KOLO_COLUMN_BATCH * c.down * c.stored) {
        kolo_loaded<T, W> v[KOLO_COLUMN_BATCH];
        kolo_columns_load_batch(v, at, c, l, p.end);
        if (l == p.first) kolo_columns_widen(shift, v[0]);
#pragma unroll
        for (int u = 0; u < KOLO_COLUMN_BATCH; u++) {
            if (l + u * c.down >= (p.end < valid ? p.end : valid)) continue;
            float value[W];
            kolo_columns_widen(value, v[u]);
            for (int k = 0; k < W; k++) {
                float d = value[k] - shift[k];
                sum[k] += d;
                square[k] += d * d;
            }
        }
    }
    double all[2][W], count = kolo_columns_count(c, p, valid);
    for (int k = 0; k < W; k++) {
        double s = sum[k], by = count > 0 ? shift[k] : 0;
        all[0][k] = s + count * by;
        all[1][k] = square[k] + by * (2 * s + count * by);
    }
    kolo_columns_combine<W, 2>(all, c, p, partial);
}

/* sums f64 (2C + 1) from partial sums (chunks, 2, stored) */
static __global__ void __launch_bounds__(KOLO_COLUMN_THREADS)
    norm_sum_finish_kernel(kolo_columns c, double *sums, const double *partial, const kolo_step *step, int slot)
{
    const kolo_finish f = kolo_columns_finish(partial, c, 2);
    if (f.mine) sums[f.kind * c.channels + f.channel] = f.sum;
    if (blockIdx.x == 0 && threadIdx.x == 0) sums[2 * c.channels] = kolo_columns_valid(c, step->valid[slot]);
}

/* The same; but where all lines are valid the sums are those that a convolution has formed, f32 (2, stored) */
static __global__ void __launch_bounds__(KOLO_COLUMN_THREADS)
    norm_take_kernel(kolo_columns c, double *sums, const float *formed, const double *partial,
                     const kolo_step *step, int slot)
{
    const int valid = kolo_columns_valid(c, step->valid[slot]);
    if (valid == c.all) {
        const int at = (int)(blockIdx.x * KOLO_COLUMN_THREADS + threadIdx.x), kind = at / c.channels;
        if (kind < 2) sums[at] = (double)formed[kind * c.stored + at % c.channels];
    } else {
        const kolo_finish f = kolo_columns_finish(partial, c, 2);
        if (f.mine) sums[f.kind * c.channels + f.channel] = f.sum;
    }
    if (blockIdx.x == 0 && threadIdx.x == 0) sums[2 * c.channels] = valid;
}

int kolo_cuda_norm_take(const kolo_kernel *k, const float *formed, const void *x, double *sums,
                        void *workspace, const kolo_step *step, int slot)
{
    const kolo_norm *n = (const kolo_norm *)k->state;
    const kolo_columns *c = &n->columns;
    double *partial = (double *)workspace;
    int rc = 0;
    KOLO_FOR_COLUMNS(n->dtype, c, T, W,
                     rc = KOLO_LAUNCH((norm_sum_kernel<T, W, true>), kolo_columns_blocks(c),
                                      KOLO_COLUMN_THREADS, 0, kolo_cuda_stream(k), *c, (const T *)x, partial,
                                      step, slot));
    KOLO_TRY(rc);
    return KOLO_LAUNCH(norm_take_kernel, kolo_columns_finish_blocks(c, 2), KOLO_COLUMN_THREADS, 0,
                       kolo_cuda_stream(k), *c, sums, formed, partial, step, slot);
}

/* in: x; out: sums */
static int run_stats(const kolo_kernel *k, void *const *args, void *workspace, const kolo_step *step, int slot)
{
    const kolo_norm *n = (const kolo_norm *)k->state;
    const kolo_columns *c = &n->columns;
    double *partial = (double *)workspace;
    int rc = 0;
    KOLO_FOR_COLUMNS(n->dtype, c, T, W,
                     rc = KOLO_LAUNCH((norm_sum_kernel<T, W, false>), kolo_columns_blocks(c),
                                      KOLO_COLUMN_THREADS, 0, kolo_cuda_stream(k), *c, (const T *)args[0],
                                      partial, step, slot));
    KOLO_TRY(rc);
    return KOLO_LAUNCH(norm_sum_finish_kernel, kolo_columns_finish_blocks(c, 2), KOLO_COLUMN_THREADS, 0,
                       kolo_cuda_stream(k), *c, (double *)args[1], partial, step, slot);
}

static int prepare_stats(const kolo_kernel_request *r, kolo_kernel *k)
{
    KOLO_TRY(kolo_norm_prepare(r, k, 0));
    k->run = run_stats;
    k->workspace = kolo_columns_workspace(&((const kolo_norm *)k->state)->columns, 2);
    return 0;
}
const kolo_op_row kolo_cuda_norm_stats = {NULL, prepare_stats};
