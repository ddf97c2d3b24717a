/* norm_stats: sums of x and x^2 of every channel over the valid lines. norm.cuh says how
 * many bytes that takes.
 *
 * A thread adds x - k and (x - k)^2, k being the first value it meets: as close to its other values as they
 * are to each other, so f32 loses nothing to a mean that is large beside the deviation. The sums of x and
 * x^2 follow exactly enough in f64 and are f64 from there on. The last blocks add what the blocks have
 * summed (columns.cuh). */
#include <stdlib.h>

#include "ops/cuda/norm.cuh"

extern "C" {
#include "base/memory.h"
}

int kolo_norm_prepare(const kolo_kernel_request *r, kolo_kernel *k, kolo_cuda_view v)
{
    kolo_norm *n = (kolo_norm *)kolo_alloc(sizeof *n);
    if (!n) return KOLO_ENOMEM;
    k->state = n;
    k->release = free;
    n->dtype = v.dtype;
    n->epsilon = r->node->a.epsilon;
    n->relu = r->node->a.relu;
    n->inputs = r->node->n_in;
    n->outputs = r->node->n_out;
    KOLO_TRY(kolo_columns_cut(&n->columns, v.rows, v.pixels, v.stored, v.channels, v.dtype));
    snprintf(k->name, sizeof k->name, "own %s, %d blocks of %d lines", kolo_dtype_name(v.dtype),
             kolo_columns_blocks(&n->columns), n->columns.lines);
    return 0;
}

int kolo_norm_prepare_sums(const kolo_kernel_request *r, kolo_kernel *k)
{
    kolo_norm *n = (kolo_norm *)k->state;
    k->workspace = kolo_columns_workspace(&n->columns, 2);
    return kolo_cuda_tickets_take(r->backend, kolo_columns_tickets(&n->columns), &n->tickets);
}

/* What a convolution has formed, f32 (2, stored), by the first block of each tile. */
template <int W> static __device__ void load_formed(const kolo_columns &c, double *sums, const float *formed)
{
    const int wide = c.across * W, kind = (int)threadIdx.x / wide,
              channel = (int)blockIdx.x * wide + (int)threadIdx.x % wide;
    if ((int)blockIdx.x < c.tiles && kind < 2 && channel < c.channels)
        sums[kind * c.channels + channel] = (double)formed[kind * c.stored + channel];
    if (blockIdx.x == 0 && threadIdx.x == 0) sums[2 * c.channels] = c.all;
}

/* sums f64 (2C + 1). formed: NULL, or the sums where all lines are valid. partial: (chunks, 2, stored) */
template <typename T, int W>
__global__ void __launch_bounds__(KOLO_COLUMN_THREADS, 4)
    norm_sum_kernel(kolo_columns c, double *sums, const float *formed, const T *x, double *partial,
                    uint32_t *tickets, const kolo_step *step, int slot)
{
    if (formed && kolo_columns_valid(c, step->valid[slot]) == c.all) return load_formed<W>(c, sums, formed);
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
    const kolo_finish f = kolo_columns_total<W, 2>(all, c, p, partial, tickets);
    if (!f.mine) return;
    sums[f.kind * c.channels + f.channel] = f.sum;
    if (f.kind == 0 && f.channel == 0) sums[2 * c.channels] = valid;
}

int kolo_cuda_norm_take(const kolo_kernel *k, const float *formed, const void *x, double *sums,
                        void *workspace, const kolo_step *step, int slot)
{
    const kolo_norm *n = (const kolo_norm *)k->state;
    const kolo_columns *c = &n->columns;
    int rc = 0;
    KOLO_FOR_COLUMNS(n->dtype, c, T, W,
                     rc = KOLO_LAUNCH((norm_sum_kernel<T, W>), kolo_columns_blocks(c), KOLO_COLUMN_THREADS, 0,
                                      kolo_cuda_stream(k), *c, sums, formed, (const T *)x,
                                      (double *)workspace, n->tickets, step, slot));
    return rc;
}

/* in: x; out: sums */
static int run_stats(const kolo_kernel *k, void *const *args, void *workspace, const kolo_step *step,
                     int slot)
{
    return kolo_cuda_norm_take(k, NULL, args[0], (double *)args[1], workspace, step, slot);
}

static int prepare_stats(const kolo_kernel_request *r, kolo_kernel *k)
{
    KOLO_TRY(kolo_norm_prepare(r, k, kolo_cuda_view_in(r, 0)));
    k->run = run_stats;
    return kolo_norm_prepare_sums(r, k);
}
const kolo_op_row kolo_cuda_norm_stats = {NULL, prepare_stats};
