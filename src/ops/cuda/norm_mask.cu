/* What the gradient of a convolution has to do with the norm in front of it (conv_grad_norm.c): norm_mask,
 * the relu's mask, computed anew by the lines that made y; the values of a norm as cuDNN reads them, and
 * the sums that it forms.
 *
 * norm_mask moves 6 bytes for each element in 16-bit types, 8 with a residual. */
#include "ops/cuda/norm.cuh"

/* What a norm of a tensor is made of. */
typedef struct normed {
    const double *sums;
    const float *w, *b;
    double epsilon;
} normed;

typedef struct channel {
    float mean, inverse, scale, bias; /* scale: of x - mean */
} channel;

/* Of a channel of padding all is 0. */
static __device__ channel channel_of(const normed &n, int channels, int at)
{
    const bool real = at < channels;
    const int c = real ? at : 0;
    const double sum = n.sums[c], square = n.sums[channels + c], count = n.sums[2 * channels];
    const float w = n.w[c], b = n.b[c];
    const kolo_moments m = kolo_moments_of(sum, square, count, n.epsilon);
    if (!real) return {0, 0, 0, 0};
    return {(float)m.mean, (float)m.inverse, (float)(m.inverse * (double)w), b};
}

/* ---- the mask ---- */

enum residual { NOTHING, PLAIN, NORMED };

/* to may be dy. */
template <typename T, int W, int RESIDUAL>
__global__ void __launch_bounds__(KOLO_COLUMN_THREADS, 2)
    norm_mask_kernel(kolo_columns c, normed own, normed other, T *to, const T *dy, const T *x,
                     const T *residual, const kolo_step *step, int slot)
{
    __shared__ float mean_of[KOLO_COLUMN_TILE], scale_of[KOLO_COLUMN_TILE], bias_of[KOLO_COLUMN_TILE];
    __shared__ float mean_r_of[KOLO_COLUMN_TILE], scale_r_of[KOLO_COLUMN_TILE], bias_r_of[KOLO_COLUMN_TILE];
    const kolo_place p = kolo_place_of<W>(c, blockIdx.x, threadIdx.x, false);
    const int64_t line = (int64_t)c.down * c.stored;
    const int thread = (int)threadIdx.x, valid = kolo_columns_valid(c, step->valid[slot]);
    kolo_loaded<T, W> g[KOLO_COLUMN_BATCH], v[KOLO_COLUMN_BATCH], r[RESIDUAL ? KOLO_COLUMN_BATCH : 1];
    int64_t at = p.at;
    kolo_columns_load_batch(g, dy + at, c, p.first, p.end);
    kolo_columns_load_batch(v, x + at, c, p.first, p.end);
    if (RESIDUAL) kolo_columns_load_batch(r, residual + at, c, p.first, p.end);
    if (thread < c.across * W) {
        const channel a = channel_of(own, c.channels, p.tile * c.across * W + thread);
        mean_of[thread] = a.mean;
        scale_of[thread] = a.scale;
        bias_of[thread] = a.bias;
    }
    if (RESIDUAL == NORMED && thread < c.across * W) {
        const channel a = channel_of(other, c.channels, p.tile * c.across * W + thread);
        mean_r_of[thread] = a.mean;
        scale_r_of[thread] = a.scale;
        bias_r_of[thread] = a.bias;
    }
    __syncthreads();
    float mean[W], scale[W], bias[W], mean_r[W], scale_r[W], bias_r[W];
    kolo_columns_take<W>(mean, mean_of, p);
    kolo_columns_take<W>(scale, scale_of, p);
    kolo_columns_take<W>(bias, bias_of, p);
    if (RESIDUAL == NORMED) {
        kolo_columns_take<W>(mean_r, mean_r_of, p);
        kolo_columns_take<W>(scale_r, scale_r_of, p);
        kolo_columns_take<W>(bias_r, bias_r_of, p);
    }
    for (int l = p.first; l < p.end;) {
#pragma unroll
        for (int u = 0; u < KOLO_COLUMN_BATCH; u++) {
            if (l + u * c.down >= p.end) continue;
            float value[W], y[W], other_y[W];
            kolo_columns_widen(value, g[u]);
            kolo_columns_widen(y, v[u]);
            if (RESIDUAL) kolo_columns_widen(other_y, r[RESIDUAL ? u : 0]);
            for (int k = 0; k < W; k++) {
                y[k] = kolo_norm1(y[k], mean[k], scale[k], bias[k]);
                if (RESIDUAL == PLAIN) y[k] += other_y[k];
                if (RESIDUAL == NORMED) y[k] += kolo_norm1(other_y[k], mean_r[k], scale_r[k], bias_r[k]);
                value[k] = l + u * c.down < valid ? kolo_relu_grad1(value[k], y[k]) : 0;
            }
            kolo_columns_store(to + at + u * line, value);
        }
        l += KOLO_COLUMN_BATCH * c.down;
        at += KOLO_COLUMN_BATCH * line;
        kolo_columns_load_batch(g, dy + at, c, l, p.end);
        kolo_columns_load_batch(v, x + at, c, l, p.end);
        if (RESIDUAL) kolo_columns_load_batch(r, residual + at, c, l, p.end);
    }
}

static normed normed_of(const kolo_norm *n, void *const *sums_w_b)
{
    return {(const double *)sums_w_b[0], (const float *)sums_w_b[1], (const float *)sums_w_b[2], n->epsilon};
}

#define LAUNCH(RESIDUAL)                                                                            \
    KOLO_FOR_COLUMNS(n->dtype, c, T, W,                                                             \
                     rc = KOLO_LAUNCH((norm_mask_kernel<T, W, RESIDUAL>), kolo_columns_blocks(c),   \
                                      KOLO_COLUMN_THREADS, 0, kolo_cuda_stream(k), *c, own, other,  \
                                      (T *)args[n->inputs], (const T *)args[0], (const T *)args[1], \
                                      (const T *)residual, step, slot))

/* in: dy, x, sums, w, b[, residual[, its sums, w, b]]; out: dy where the relu let something through */
static int run_mask(const kolo_kernel *k, void *const *args, void *, const kolo_step *step, int slot)
{
    const kolo_norm *n = (const kolo_norm *)k->state;
    const kolo_columns *c = &n->columns;
    const bool two = n->inputs > 6;
    const normed own = normed_of(n, args + 2), other = two ? normed_of(n, args + 6) : own;
    const void *residual = n->inputs > 5 ? args[5] : NULL;
    int rc = 0;
    if (two) LAUNCH(NORMED);
    else if (residual) LAUNCH(PLAIN);
    else LAUNCH(NOTHING);
    return rc;
}

static int prepare_mask(const kolo_kernel_request *r, kolo_kernel *k)
{
    KOLO_TRY(kolo_norm_prepare(r, k, kolo_cuda_view_in(r, 1)));
    k->run = run_mask;
    return 0;
}
const kolo_op_row kolo_cuda_norm_mask = {NULL, prepare_mask};

/* ---- for cuDNN ---- */

/* mean, inverse of the deviation, weight, bias, (4, stored) */
static __global__ void __launch_bounds__(KOLO_COLUMN_THREADS)
    norm_values_kernel(int channels, int stored, normed n, float *to)
{
    const int at = (int)(blockIdx.x * KOLO_COLUMN_THREADS + threadIdx.x);
    if (at >= stored) return;
    const channel a = channel_of(n, channels, at);
    const bool real = at < channels;
    to[at] = a.mean;
    to[stored + at] = a.inverse;
    to[2 * stored + at] = real ? n.w[at] : 0;
    to[3 * stored + at] = a.bias;
}

/* formed: gradients of weight and bias, (2, stored) */
static __global__ void __launch_bounds__(KOLO_COLUMN_THREADS)
    norm_formed_kernel(int channels, int stored, const float *formed, double *dsums, float *dw, float *db)
{
    const int at = (int)(blockIdx.x * KOLO_COLUMN_THREADS + threadIdx.x);
    if (at >= channels) return;
    dw[at] = formed[at];
    db[at] = formed[stored + at];
    dsums[at] = (double)formed[stored + at];
    dsums[channels + at] = (double)formed[at];
}

static int blocks_of(int count) { return (count + KOLO_COLUMN_THREADS - 1) / KOLO_COLUMN_THREADS; }

int kolo_cuda_norm_values(const kolo_kernel *k, void *const sums_w_b[3], float *to)
{
    const kolo_norm *n = (const kolo_norm *)k->state;
    const kolo_columns *c = &n->columns;
    return KOLO_LAUNCH(norm_values_kernel, blocks_of(c->stored), KOLO_COLUMN_THREADS, 0, kolo_cuda_stream(k),
                       c->channels, c->stored, normed_of(n, sums_w_b), to);
}

int kolo_cuda_norm_formed(const kolo_kernel *k, const float *formed, void *const dsums_dw_db[3])
{
    const kolo_columns *c = &((const kolo_norm *)k->state)->columns;
    return KOLO_LAUNCH(norm_formed_kernel, blocks_of(c->channels), KOLO_COLUMN_THREADS, 0,
                       kolo_cuda_stream(k), c->channels, c->stored, formed, (double *)dsums_dw_db[0],
                       (float *)dsums_dw_db[1], (float *)dsums_dw_db[2]);
}
