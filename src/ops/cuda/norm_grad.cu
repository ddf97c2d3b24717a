/* norm_grad_stats: sums of g and of g xhat of every channel, which are the gradients of bias and weight;
 * norm_grad_apply: dx, and g itself where a residual was added. g is dy, or with relu dy where y > 0; without y (no
 * residual) its sign is computed anew from x, by the lines that made y. norm.cuh says how many bytes that takes. */
#include "ops/cuda/norm.cuh"

enum sign { ANY, FROM_Y, FROM_X, FROM_BITS };

/* What both kernels read. */
template <typename T> struct source {
    const T *dy, *x, *y;
    const uint8_t *signs;
};
typedef struct backward {
    const double *sums, *dsums;
    const float *w, *b;
    double epsilon;
    const kolo_step *step;
    int slot;
} backward;

static __device__ kolo_moments moments_at(const backward &b, const kolo_columns &c, int channel)
{
    const double sum = b.sums[channel], square = b.sums[c.channels + channel], count = b.sums[2 * c.channels];
    return kolo_moments_of(sum, square, count, b.epsilon);
}

/* A few lines of the source, loaded. */
template <typename T, int W, int SIGN> struct lines {
    enum { BATCH = KOLO_COLUMN_BATCH };
    kolo_loaded<T, W> dy[BATCH], x[BATCH], y[SIGN == FROM_Y ? BATCH : 1];
    uint8_t signs[SIGN == FROM_BITS ? BATCH : 1];
};

template <typename T, int W, int SIGN>
KOLO_INLINE void lines_load(lines<T, W, SIGN> *to, const source<T> &s, const kolo_columns &c, int64_t at, int l,
                            int end)
{
    kolo_columns_load_batch(to->dy, s.dy + at, c, l, end);
    kolo_columns_load_batch(to->x, s.x + at, c, l, end);
    if constexpr (SIGN == FROM_Y) kolo_columns_load_batch(to->y, s.y + at, c, l, end);
    if constexpr (SIGN == FROM_BITS) {
#pragma unroll
        for (int u = 0; u < KOLO_COLUMN_BATCH; u++)
            if (l + u * c.down < end) to->signs[u] = s.signs[(at + (int64_t)u * c.down * c.stored) / W];
    }
}

/* The channels' values that the sign needs, beside the mean. */
template <int W> struct channels_of {
    float mean[W], scale[W], bias[W];
};

/* g and x of line u. */
template <typename T, int W, int SIGN>
KOLO_INLINE void lines_take(const lines<T, W, SIGN> &from, int u, const channels_of<W> &c, float (&g)[W], float (&x)[W])
{
    kolo_columns_widen(g, from.dy[u]);
    kolo_columns_widen(x, from.x[u]);
    if constexpr (SIGN == FROM_Y) {
        float y[W];
        kolo_columns_widen(y, from.y[u]);
        for (int k = 0; k < W; k++) g[k] = kolo_relu_grad1(g[k], y[k]);
    }
    if constexpr (SIGN == FROM_BITS)
        for (int k = 0; k < W; k++) g[k] = from.signs[u] >> k & 1 ? g[k] : 0;
    if constexpr (SIGN == FROM_X)
        for (int k = 0; k < W; k++) g[k] = kolo_relu_grad1(g[k], kolo_norm1(x[k], c.mean[k], c.scale[k], c.bias[k]));
}

/* ---- sums -------------------------------------------------------------------------------------------------------- */

/* Partial sums of g and g (x - mean). */
template <typename T, int W, int SIGN>
__global__ void __launch_bounds__(KOLO_COLUMN_THREADS, 2)
    norm_grad_sum_kernel(kolo_columns c, backward b, source<T> s, double *partial)
{
    __shared__ float mean_of[KOLO_COLUMN_TILE], scale_of[KOLO_COLUMN_TILE], bias_of[KOLO_COLUMN_TILE];
    const kolo_place p = kolo_place_of<W>(c, blockIdx.x, threadIdx.x, true);
    const int thread = (int)threadIdx.x, channel = p.tile * c.across * W + thread,
              valid = kolo_columns_valid(c, b.step->valid[b.slot]);
    lines<T, W, SIGN> v;
    int64_t at = p.at;
    lines_load(&v, s, c, at, p.first, p.end);
    if (thread < c.across * W) {
        const bool real = channel < c.channels;
        const int i = real ? channel : 0;
        const float w = SIGN == FROM_X ? b.w[i] : 0, bias = SIGN == FROM_X ? b.b[i] : 0;
        const kolo_moments m = moments_at(b, c, i);
        mean_of[thread] = real ? (float)m.mean : 0;
        scale_of[thread] = real ? (float)(m.inverse * (double)w) : 0;
        bias_of[thread] = real ? bias : 0;
    }
    __syncthreads();
    channels_of<W> own;
    kolo_columns_take<W>(own.mean, mean_of, p);
    kolo_columns_take<W>(own.scale, scale_of, p);
    kolo_columns_take<W>(own.bias, bias_of, p);
    float sum[2][W];
    for (int k = 0; k < W; k++) sum[0][k] = sum[1][k] = 0;
    for (int l = p.first; l < p.end;) {
#pragma unroll
        for (int u = 0; u < KOLO_COLUMN_BATCH; u++) {
            if (l + u * c.down >= (p.end < valid ? p.end : valid)) continue;
            float g[W], x[W];
            lines_take(v, u, own, g, x);
            for (int k = 0; k < W; k++) {
                sum[0][k] += g[k];
                sum[1][k] += g[k] * (x[k] - own.mean[k]);
            }
        }
        l += KOLO_COLUMN_BATCH * c.down;
        at += (int64_t)KOLO_COLUMN_BATCH * c.down * c.stored;
        lines_load(&v, s, c, at, l, p.end);
    }
    double all[2][W];
    for (int k = 0; k < W; k++) all[0][k] = sum[0][k], all[1][k] = sum[1][k];
    kolo_columns_combine<W, 2>(all, c, p, partial);
}

/* dsums f64 (2C), dw and db (C) from partial sums (chunks, 2, stored) */
static __global__ void __launch_bounds__(KOLO_COLUMN_THREADS)
    norm_grad_sum_finish_kernel(kolo_columns c, backward b, double *dsums, float *dw, float *db, const double *partial)
{
    const kolo_finish f = kolo_columns_finish(partial, c, 2);
    if (!f.mine) return;
    const kolo_moments m = moments_at(b, c, f.channel);
    const double sum = f.kind ? f.sum * m.inverse : f.sum;
    dsums[f.kind * c.channels + f.channel] = sum;
    (f.kind ? dw : db)[f.channel] = (float)sum;
}

/* ---- element by element ------------------------------------------------------------------------------------------ */

/* dx may be dy; dr may be NULL. */
template <typename T, int W, int SIGN>
__global__ void __launch_bounds__(KOLO_COLUMN_THREADS, 2)
    norm_backward_kernel(kolo_columns c, backward b, source<T> s, T *dx, T *dr)
{
    __shared__ float mean_of[KOLO_COLUMN_TILE], scale_of[KOLO_COLUMN_TILE], bias_of[KOLO_COLUMN_TILE],
        mean_g_of[KOLO_COLUMN_TILE], slope_of[KOLO_COLUMN_TILE];
    const kolo_place p = kolo_place_of<W>(c, blockIdx.x, threadIdx.x, false);
    const int64_t line = (int64_t)c.down * c.stored;
    const int thread = (int)threadIdx.x, channel = p.tile * c.across * W + thread,
              valid = kolo_columns_valid(c, b.step->valid[b.slot]);
    lines<T, W, SIGN> v;
    int64_t at = p.at;
    lines_load(&v, s, c, at, p.first, p.end);
    if (thread < c.across * W) {
        const bool real = channel < c.channels;
        const int i = real ? channel : 0;
        const float w = b.w[i], bias = SIGN == FROM_X ? b.b[i] : 0;
        const double sum_g = b.dsums[i], sum_gx = b.dsums[c.channels + i];
        const kolo_moments m = moments_at(b, c, i);
        mean_of[thread] = real ? (float)m.mean : 0;
        scale_of[thread] = real ? (float)(m.inverse * (double)w) : 0;
        bias_of[thread] = real ? bias : 0;
        mean_g_of[thread] = real ? (float)(sum_g * m.share) : 0;
        slope_of[thread] = real ? (float)(sum_gx * m.share * m.inverse) : 0;
    }
    __syncthreads();
    channels_of<W> own;
    float mean_g[W], slope[W];
    kolo_columns_take<W>(own.mean, mean_of, p);
    kolo_columns_take<W>(own.scale, scale_of, p);
    kolo_columns_take<W>(own.bias, bias_of, p);
    kolo_columns_take<W>(mean_g, mean_g_of, p);
    kolo_columns_take<W>(slope, slope_of, p);
    for (int l = p.first; l < p.end;) {
#pragma unroll
        for (int u = 0; u < KOLO_COLUMN_BATCH; u++) {
            if (l + u * c.down >= p.end) continue;
            float g[W], x[W];
            if (l + u * c.down < valid) {
                lines_take(v, u, own, g, x);
                for (int k = 0; k < W; k++)
                    x[k] = kolo_norm_grad1(g[k], x[k], own.mean[k], own.scale[k], mean_g[k], slope[k]);
            } else {
                for (int k = 0; k < W; k++) g[k] = x[k] = 0;
            }
            kolo_columns_store(dx + at + u * line, x);
            if (dr) kolo_columns_store(dr + at + u * line, g);
        }
        l += KOLO_COLUMN_BATCH * c.down;
        at += KOLO_COLUMN_BATCH * line;
        lines_load(&v, s, c, at, l, p.end);
    }
}

/* ---- rows -------------------------------------------------------------------------------------------------------- */

static enum sign sign_of(const kolo_norm *n, void *const *args) { return !n->relu ? ANY : n->signs ? FROM_BITS : args[2] ? FROM_Y : FROM_X; }

/* Calls `body` with the constants T, W (columns.cuh) and SIGN. */
#define FOR_SIGN(n, args, T, W, SIGN, ...)                                  \
    do {                                                                    \
        switch (sign_of(n, args)) {                                         \
        case ANY: {                                                         \
            enum { SIGN = ANY };                                            \
            KOLO_FOR_COLUMNS((n)->dtype, &(n)->columns, T, W, __VA_ARGS__); \
        } break;                                                            \
        case FROM_Y: {                                                      \
            enum { SIGN = FROM_Y };                                         \
            KOLO_FOR_COLUMNS((n)->dtype, &(n)->columns, T, W, __VA_ARGS__); \
        } break;                                                            \
        case FROM_X: {                                                      \
            enum { SIGN = FROM_X };                                         \
            KOLO_FOR_COLUMNS((n)->dtype, &(n)->columns, T, W, __VA_ARGS__); \
        } break;                                                            \
        case FROM_BITS: {                                                   \
            enum { SIGN = FROM_BITS };                                      \
            KOLO_FOR_COLUMNS((n)->dtype, &(n)->columns, T, W, __VA_ARGS__); \
        } break;                                                            \
        }                                                                   \
    } while (0)

template <typename T> static source<T> source_of(void *const *args)
{
    return {(const T *)args[0], (const T *)args[1], (const T *)args[2], (const uint8_t *)args[2]};
}

/* in: dy, x, y, sums, w, b; out: dsums, dw, db */
static int run_grad_stats(const kolo_kernel *k, void *const *args, void *workspace, const kolo_step *step, int slot)
{
    const kolo_norm *n = (const kolo_norm *)k->state;
    const kolo_columns *c = &n->columns;
    const backward b = {
        (const double *)args[3], NULL, (const float *)args[4], (const float *)args[5], n->epsilon, step, slot};
    double *partial = (double *)workspace;
    int rc = 0;
    FOR_SIGN(n, args, T, W, SIGN,
             rc = KOLO_LAUNCH((norm_grad_sum_kernel<T, W, SIGN>), kolo_columns_blocks(c), KOLO_COLUMN_THREADS, 0,
                              kolo_cuda_stream(k), *c, b, source_of<T>(args), partial));
    KOLO_TRY(rc);
    return KOLO_LAUNCH(norm_grad_sum_finish_kernel, kolo_columns_finish_blocks(c, 2), KOLO_COLUMN_THREADS, 0,
                       kolo_cuda_stream(k), *c, b, (double *)args[n->inputs], (float *)args[n->inputs + 1],
                       (float *)args[n->inputs + 2], partial);
}

/* in: dy, x, y, sums, dsums, w, b; out: dx[, dresidual] */
static int run_grad_apply(const kolo_kernel *k, void *const *args, void *, const kolo_step *step, int slot)
{
    const kolo_norm *n = (const kolo_norm *)k->state;
    const kolo_columns *c = &n->columns;
    const backward b = {(const double *)args[3],
                        (const double *)args[4],
                        (const float *)args[5],
                        (const float *)args[6],
                        n->epsilon,
                        step,
                        slot};
    void *dr = n->outputs > 1 ? args[n->inputs + 1] : NULL;
    int rc = 0;
    FOR_SIGN(n, args, T, W, SIGN,
             rc = KOLO_LAUNCH((norm_backward_kernel<T, W, SIGN>), kolo_columns_blocks(c), KOLO_COLUMN_THREADS, 0,
                              kolo_cuda_stream(k), *c, b, source_of<T>(args), (T *)args[n->inputs], (T *)dr));
    return rc;
}

static int prepare_grad_stats(const kolo_kernel_request *r, kolo_kernel *k)
{
    KOLO_TRY(kolo_norm_prepare(r, k, 1));
    k->run = run_grad_stats;
    k->workspace = kolo_columns_workspace(&((const kolo_norm *)k->state)->columns, 2);
    return 0;
}
const kolo_op_row kolo_cuda_norm_grad_stats = {NULL, prepare_grad_stats};

static int prepare_grad_apply(const kolo_kernel_request *r, kolo_kernel *k)
{
    KOLO_TRY(kolo_norm_prepare(r, k, 1));
    k->run = run_grad_apply;
    return 0;
}
const kolo_op_row kolo_cuda_norm_grad_apply = {NULL, prepare_grad_apply};
