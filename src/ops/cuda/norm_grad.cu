/* norm_grad_stats: sums of g and of g xhat of every channel, which are the gradients of bias and weight;
 * norm_grad_apply: dx, and g itself where a residual was added. g is dy, or with relu dy where y > 0; without
 * y (no residual) its sign is computed anew from x, by the lines that made y. norm.cuh says how many bytes
 * that takes. norms_grad_apply: dx of two norms whose results were added.
 *
 * norm_max_pool_grad_stats, norm_max_pool_grad_apply: the same, but that dy is gathered from the windows of
 * the max pool between, and rounded as max_pool_grad would store it. */
#include "ops/cuda/norm.cuh"

enum sign { ANY, FROM_Y, FROM_X, FROM_BITS };

/* What both kernels read. */
template <typename T> struct source {
    const T *dy, *x, *y;
    const uint8_t *signs;
};
template <typename T, int MOST> struct pooled_source {
    const T *dy, *x;
    const uint8_t *index;
    kolo_pool pool; /* MOST: kolo_pool_most */
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

/* A few lines of a source, loaded. */
template <typename T, int W, int SIGN, int BATCH = KOLO_COLUMN_BATCH> struct lines {
    kolo_loaded<T, W> dy[BATCH], x[BATCH], y[SIGN == FROM_Y ? BATCH : 1];
    uint8_t signs[SIGN == FROM_BITS ? BATCH : 1];
};

template <typename T, int W, int SIGN, int BATCH>
KOLO_INLINE void lines_load(lines<T, W, SIGN, BATCH> *to, const source<T> &s, const kolo_columns &c,
                            const kolo_place &p, int64_t at, int l)
{
    kolo_columns_load_batch(to->dy, s.dy + at, c, l, p.end);
    kolo_columns_load_batch(to->x, s.x + at, c, l, p.end);
    if constexpr (SIGN == FROM_Y) kolo_columns_load_batch(to->y, s.y + at, c, l, p.end);
    if constexpr (SIGN == FROM_BITS) {
#pragma unroll
        for (int u = 0; u < BATCH; u++)
            if (l + u * c.down < p.end) to->signs[u] = s.signs[(at + (int64_t)u * c.down * c.stored) / W];
    }
}

template <typename T, int W, int SIGN, int MOST>
KOLO_INLINE void lines_load(lines<T, W, SIGN> *to, const pooled_source<T, MOST> &s, const kolo_columns &c,
                            const kolo_place &p, int64_t at, int l)
{
    kolo_columns_load_batch(to->x, s.x + at, c, l, p.end);
#pragma unroll
    for (int u = 0; u < KOLO_COLUMN_BATCH; u++) {
        const int line = l + u * c.down;
        if (line >= p.end) continue;
        const kolo_cell cell = kolo_cell_of(&s.pool.cells, (uint32_t)line, p.channel / W);
        float dy[W];
        kolo_pool_gather<T, MOST>(dy, &s.pool, &cell, s.dy, s.index);
        to->dy[u].words = kolo_round16(s.dy, dy);
    }
}

/* The channels' values that the sign needs, beside the mean. */
template <int W> struct channels_of {
    float mean[W], scale[W], bias[W];
};

/* g and x of line u. */
template <typename T, int W, int SIGN, int BATCH>
KOLO_INLINE void lines_take(const lines<T, W, SIGN, BATCH> &from, int u, const channels_of<W> &c,
                            float (&g)[W], float (&x)[W])
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
        for (int k = 0; k < W; k++)
            g[k] = kolo_relu_grad1(g[k], kolo_norm1(x[k], c.mean[k], c.scale[k], c.bias[k]));
}

/* ---- sums ---------------------------------------------------------------------------------------------- */

/* Sums of g and g xhat, dsums f64 (2C), which are db and dw (C). partial: of g and g (x - mean), (chunks, 2,
 * stored) f64 */
template <typename T, int W, int SIGN, typename SOURCE>
__global__ void __launch_bounds__(KOLO_COLUMN_THREADS, 2)
    norm_grad_sum_kernel(kolo_columns c, backward b, SOURCE s, double *dsums, float *dw, float *db,
                         double *partial, uint32_t *tickets)
{
    __shared__ float mean_of[KOLO_COLUMN_TILE], scale_of[KOLO_COLUMN_TILE], bias_of[KOLO_COLUMN_TILE];
    const kolo_place p = kolo_place_of<W>(c, blockIdx.x, threadIdx.x, true);
    const int thread = (int)threadIdx.x, channel = p.tile * c.across * W + thread,
              valid = kolo_columns_valid(c, b.step->valid[b.slot]);
    lines<T, W, SIGN> v;
    int64_t at = p.at;
    lines_load(&v, s, c, p, at, p.first);
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
        lines_load(&v, s, c, p, at, l);
    }
    double all[2][W];
    for (int k = 0; k < W; k++) all[0][k] = sum[0][k], all[1][k] = sum[1][k];
    const kolo_finish f = kolo_columns_total<W, 2>(all, c, p, partial, tickets);
    if (!f.mine) return;
    const kolo_moments m = moments_at(b, c, f.channel);
    const double total = f.kind ? f.sum * m.inverse : f.sum;
    dsums[f.kind * c.channels + f.channel] = total;
    (f.kind ? dw : db)[f.channel] = (float)total;
}

/* ---- element by element -------------------------------------------------------------------------------- */

/* What the gradient of one channel of x is made with; beyond the channels all 0. */
typedef struct slopes {
    float mean, scale, mean_g, slope;
} slopes;

static __device__ slopes slopes_at(const backward &b, const kolo_columns &c, int channel)
{
    const bool real = channel < c.channels;
    const int i = real ? channel : 0;
    const float w = b.w[i];
    const double sum_g = b.dsums[i], sum_gx = b.dsums[c.channels + i];
    const kolo_moments m = moments_at(b, c, i);
    if (!real) return {0, 0, 0, 0};
    return {(float)m.mean, (float)(m.inverse * (double)w), (float)(sum_g * m.share),
            (float)(sum_gx * m.share * m.inverse)};
}

/* dx may be dy; dr may be NULL. */
template <typename T, int W, int SIGN, typename SOURCE>
__global__ void __launch_bounds__(KOLO_COLUMN_THREADS, 2)
    norm_backward_kernel(kolo_columns c, backward b, SOURCE s, T *dx, T *dr)
{
    __shared__ float mean_of[KOLO_COLUMN_TILE], scale_of[KOLO_COLUMN_TILE], bias_of[KOLO_COLUMN_TILE],
        mean_g_of[KOLO_COLUMN_TILE], slope_of[KOLO_COLUMN_TILE];
    const kolo_place p = kolo_place_of<W>(c, blockIdx.x, threadIdx.x, false);
    const int64_t line = (int64_t)c.down * c.stored;
    const int thread = (int)threadIdx.x, channel = p.tile * c.across * W + thread,
              valid = kolo_columns_valid(c, b.step->valid[b.slot]);
    lines<T, W, SIGN> v;
    int64_t at = p.at;
    lines_load(&v, s, c, p, at, p.first);
    if (thread < c.across * W) {
        const float bias = SIGN == FROM_X && channel < c.channels ? b.b[channel] : 0;
        const slopes own = slopes_at(b, c, channel);
        mean_of[thread] = own.mean;
        scale_of[thread] = own.scale;
        bias_of[thread] = bias;
        mean_g_of[thread] = own.mean_g;
        slope_of[thread] = own.slope;
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
        lines_load(&v, s, c, p, at, l);
    }
}

/* Of two norms whose results were added: dy and its sign are read once. dx may be dy. What both know of their
 * channels takes 64 registers, so fewer lines are under way; with KOLO_COLUMN_BATCH of them 100 to 150 values
 * were spilled, and half of the bandwidth was lost (1,983 GB/s on an H200). */
template <typename T, int W, int SIGN>
__global__ void __launch_bounds__(KOLO_COLUMN_THREADS, 2)
    norms_backward_kernel(kolo_columns c, backward first, backward second, source<T> s, const T *x2, T *dx,
                          T *dx2)
{
    __shared__ float mean_of[2][KOLO_COLUMN_TILE], scale_of[2][KOLO_COLUMN_TILE],
        mean_g_of[2][KOLO_COLUMN_TILE], slope_of[2][KOLO_COLUMN_TILE];
    const kolo_place p = kolo_place_of<W>(c, blockIdx.x, threadIdx.x, false);
    const int64_t line = (int64_t)c.down * c.stored;
    const int thread = (int)threadIdx.x, channel = p.tile * c.across * W + thread,
              valid = kolo_columns_valid(c, first.step->valid[first.slot]);
    enum { BATCH = KOLO_COLUMN_BATCH / 2 };
    lines<T, W, SIGN, BATCH> v;
    kolo_loaded<T, W> other[BATCH];
    int64_t at = p.at;
    lines_load(&v, s, c, p, at, p.first);
    kolo_columns_load_batch(other, x2 + at, c, p.first, p.end);
    if (thread < c.across * W)
        for (int i = 0; i < 2; i++) {
            const slopes own = slopes_at(i ? second : first, c, channel);
            mean_of[i][thread] = own.mean;
            scale_of[i][thread] = own.scale;
            mean_g_of[i][thread] = own.mean_g;
            slope_of[i][thread] = own.slope;
        }
    __syncthreads();
    channels_of<W> own[2];
    float mean_g[2][W], slope[2][W];
    for (int i = 0; i < 2; i++) {
        kolo_columns_take<W>(own[i].mean, mean_of[i], p);
        kolo_columns_take<W>(own[i].scale, scale_of[i], p);
        kolo_columns_take<W>(mean_g[i], mean_g_of[i], p);
        kolo_columns_take<W>(slope[i], slope_of[i], p);
        for (int k = 0; k < W; k++) own[i].bias[k] = 0; /* no sign follows from x here */
    }
    for (int l = p.first; l < p.end;) {
#pragma unroll
        for (int u = 0; u < BATCH; u++) {
            if (l + u * c.down >= p.end) continue;
            float g[W], x[2][W];
            if (l + u * c.down < valid) {
                lines_take(v, u, own[0], g, x[0]);
                kolo_columns_widen(x[1], other[u]);
                for (int i = 0; i < 2; i++)
                    for (int k = 0; k < W; k++)
                        x[i][k] = kolo_norm_grad1(g[k], x[i][k], own[i].mean[k], own[i].scale[k],
                                                  mean_g[i][k], slope[i][k]);
            } else {
                for (int k = 0; k < W; k++) x[0][k] = x[1][k] = 0;
            }
            kolo_columns_store(dx + at + u * line, x[0]);
            kolo_columns_store(dx2 + at + u * line, x[1]);
        }
        l += BATCH * c.down;
        at += BATCH * line;
        lines_load(&v, s, c, p, at, l);
        kolo_columns_load_batch(other, x2 + at, c, l, p.end);
    }
}

/* ---- rows ---------------------------------------------------------------------------------------------- */

static enum sign sign_of(const kolo_norm *n, void *const *args)
{
    return !n->relu ? ANY : n->signs ? FROM_BITS : args[2] ? FROM_Y : FROM_X;
}

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

template <typename T, int MOST>
static pooled_source<T, MOST> pooled_source_of(const kolo_norm *n, void *const *args)
{
    return {(const T *)args[0], (const T *)args[1], (const uint8_t *)args[2], n->pool};
}

/* Calls `body` with the constants T, W and MOST. */
#define FOR_POOL(n, T, W, MOST, ...)                                                               \
    KOLO_FOR_DTYPE((n)->dtype, T, enum {W = 16 / sizeof(T)}; switch (kolo_pool_most(&(n)->pool)) { \
        case 1: {                                                                                  \
            enum { MOST = 1 };                                                                     \
            __VA_ARGS__;                                                                           \
        } break;                                                                                   \
        case 2: {                                                                                  \
            enum { MOST = 2 };                                                                     \
            __VA_ARGS__;                                                                           \
        } break;                                                                                   \
        default: {                                                                                 \
            enum { MOST = 0 };                                                                     \
            __VA_ARGS__;                                                                           \
        } break;                                                                                   \
    })

static backward backward_of(const kolo_norm *n, void *const *sums, const double *dsums, void *const *w_b,
                            const kolo_step *step, int slot)
{
    return {
        (const double *)sums[0], dsums, (const float *)w_b[0], (const float *)w_b[1], n->epsilon, step, slot};
}

/* in: dy, x, y (or index), sums, w, b; out: dsums, dw, db */
static int run_grad_stats(const kolo_kernel *k, void *const *args, void *workspace, const kolo_step *step,
                          int slot)
{
    const kolo_norm *n = (const kolo_norm *)k->state;
    const kolo_columns *c = &n->columns;
    const backward b = backward_of(n, args + 3, NULL, args + 4, step, slot);
    double *dsums = (double *)args[n->inputs], *partial = (double *)workspace;
    float *dw = (float *)args[n->inputs + 1], *db = (float *)args[n->inputs + 2];
    int rc = 0;
    if (n->pooled)
        FOR_POOL(n, T, W, MOST,
                 rc = KOLO_LAUNCH((norm_grad_sum_kernel<T, W, FROM_X, pooled_source<T, MOST>>),
                                  kolo_columns_blocks(c), KOLO_COLUMN_THREADS, 0, kolo_cuda_stream(k), *c, b,
                                  (pooled_source_of<T, MOST>(n, args)), dsums, dw, db, partial, n->tickets));
    else
        FOR_SIGN(n, args, T, W, SIGN,
                 rc = KOLO_LAUNCH((norm_grad_sum_kernel<T, W, SIGN, source<T>>), kolo_columns_blocks(c),
                                  KOLO_COLUMN_THREADS, 0, kolo_cuda_stream(k), *c, b, source_of<T>(args),
                                  dsums, dw, db, partial, n->tickets));
    return rc;
}

/* in: dy, x, y (or index), sums, dsums, w, b; out: dx[, dresidual] */
static int run_grad_apply(const kolo_kernel *k, void *const *args, void *, const kolo_step *step, int slot)
{
    const kolo_norm *n = (const kolo_norm *)k->state;
    const kolo_columns *c = &n->columns;
    const backward b = backward_of(n, args + 3, (const double *)args[4], args + 5, step, slot);
    void *dx = args[n->inputs], *dr = n->outputs > 1 ? args[n->inputs + 1] : NULL;
    int rc = 0;
    if (n->pooled)
        FOR_POOL(n, T, W, MOST,
                 rc = KOLO_LAUNCH((norm_backward_kernel<T, W, FROM_X, pooled_source<T, MOST>>),
                                  kolo_columns_blocks(c), KOLO_COLUMN_THREADS, 0, kolo_cuda_stream(k), *c, b,
                                  (pooled_source_of<T, MOST>(n, args)), (T *)dx, (T *)dr));
    else
        FOR_SIGN(n, args, T, W, SIGN,
                 rc = KOLO_LAUNCH((norm_backward_kernel<T, W, SIGN, source<T>>), kolo_columns_blocks(c),
                                  KOLO_COLUMN_THREADS, 0, kolo_cuda_stream(k), *c, b, source_of<T>(args),
                                  (T *)dx, (T *)dr));
    return rc;
}

/* in: dy, x, y, sums, dsums, w, x2, sums2, dsums2, w2; out: dx, dx2 */
static int run_grad_applies(const kolo_kernel *k, void *const *args, void *, const kolo_step *step, int slot)
{
    const kolo_norm *n = (const kolo_norm *)k->state;
    const kolo_columns *c = &n->columns;
    const backward first = {(const double *)args[3],
                            (const double *)args[4],
                            (const float *)args[5],
                            NULL,
                            n->epsilon,
                            step,
                            slot},
                   second = {(const double *)args[7],
                             (const double *)args[8],
                             (const float *)args[9],
                             NULL,
                             n->epsilon,
                             step,
                             slot};
    void *const *out = args + n->inputs;
    int rc = 0;
    FOR_SIGN(n, args, T, W, SIGN,
             rc = KOLO_LAUNCH((norms_backward_kernel<T, W, SIGN>), kolo_columns_blocks(c),
                              KOLO_COLUMN_THREADS, 0, kolo_cuda_stream(k), *c, first, second,
                              source_of<T>(args), (const T *)args[6], (T *)out[0], (T *)out[1]));
    return rc;
}

static int cuda_norm_grad_prepare(const kolo_kernel_request *r, kolo_kernel *k)
{
    const enum kolo_op op = r->node->op;
    const kolo_cuda_view dy = kolo_cuda_view_in(r, 0), x = kolo_cuda_view_in(r, 1);
    KOLO_TRY(kolo_norm_prepare(r, k, x));
    kolo_norm *n = (kolo_norm *)k->state;
    const bool stats = op == KOLO_OP_norm_grad_stats || op == KOLO_OP_norm_max_pool_grad_stats;
    n->pooled = op == KOLO_OP_norm_max_pool_grad_stats || op == KOLO_OP_norm_max_pool_grad_apply;
    n->signs = !n->pooled && kolo_request_in(r, 2) && kolo_request_in(r, 2)->dtype == KOLO_U8;
    if (n->pooled) KOLO_TRY(kolo_pool_fill(&n->pool, &r->node->a, &x, &dy, true));
    k->run = op == KOLO_OP_norms_grad_apply ? run_grad_applies : stats ? run_grad_stats : run_grad_apply;
    return stats ? kolo_norm_prepare_sums(r, k) : 0;
}

const kolo_op_row kolo_cuda_norm_grad_stats = {NULL, cuda_norm_grad_prepare};
const kolo_op_row kolo_cuda_norm_grad_apply = {NULL, cuda_norm_grad_prepare};
const kolo_op_row kolo_cuda_norms_grad_apply = {NULL, cuda_norm_grad_prepare};
const kolo_op_row kolo_cuda_norm_max_pool_grad_stats = {NULL, cuda_norm_grad_prepare};
const kolo_op_row kolo_cuda_norm_max_pool_grad_apply = {NULL, cuda_norm_grad_prepare};
