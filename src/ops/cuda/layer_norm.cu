/* Layer norm over the channels of every pixel of a map, or of every row of (N, C), and its gradients (Ba et
 * al., arXiv:1607.06450).
 *
 * A row is taken by a group of threads, a power of 2 of them, each of which keeps up to 16 of its channels in
 * registers, so every number is read once: 4 bytes an element pass through the memory in 16-bit types, 6 in
 * the gradient (f32: twice as many). Groups walk over the rows; the gradients of weight and bias are summed
 * on the way in f32, over a block's groups in f64, and over the blocks, whose number follows from the shape
 * alone, by a second kernel. */
#include "ops/cuda/columns.cuh"

extern "C" {
#include "base/memory.h"
}

enum {
    THREADS = KOLO_COLUMN_THREADS,
    OWN = 16 /* channels of a thread */,
    BLOCKS = 1024,
    STEPS = 128 /* most rows of a group */
};

/* Vectors of a thread; fewer of single numbers, which rows of odd lengths have: they are short. */
template <int W> struct most {
    enum { N = W == 1 ? 8 : OWN / W };
};

typedef struct layer {
    int rows, channels, stored, vectors;
    int group, groups; /* threads of a row; rows of a block at a time */
    int blocks;
    double epsilon;
    enum kolo_dtype dtype;
    int inputs;
} layer;

/* Sums over the threads of a group, for each of them. All threads of the block call it together. */
template <int K> static __device__ void group_sum(float (&v)[K], int group)
{
    __shared__ float warp[K][THREADS / 32];
    for (int k = 0; k < K; k++)
        for (int d = (group < 32 ? group : 32) / 2; d; d /= 2)
            v[k] += __shfl_xor_sync(KOLO_FULL_WARP, v[k], d);
    if (group <= 32) return;
    __syncthreads(); /* what was here before has been read */
    for (int k = 0; k < K; k++)
        if (threadIdx.x % 32 == 0) warp[k][threadIdx.x / 32] = v[k];
    __syncthreads();
    const int warps = group / 32, first = (int)threadIdx.x / group * warps;
    for (int k = 0; k < K; k++) {
        v[k] = 0;
        for (int w = 0; w < warps; w++) v[k] += warp[k][first + w];
    }
}

/* A thread's vectors of one row: x (lane + u group). Channels beyond the last are left out of every sum. */
template <typename T, int W> struct vectors_of {
    kolo_loaded<T, W> at[most<W>::N];
};
template <typename T, int W>
KOLO_INLINE void vectors_load(vectors_of<T, W> *to, const T *row, const layer &p, int lane, bool there)
{
#pragma unroll
    for (int u = 0; u < most<W>::N; u++)
        if (there && lane + u * p.group < p.vectors)
            kolo_columns_load(&to->at[u], row + (lane + u * p.group) * W);
}

/* Calls `body` for every vector u of this thread with its first channel c. */
#define EACH(p, lane, W, u, c, ...)                        \
    _Pragma("unroll") for (int u = 0; u < most<W>::N; u++) \
    {                                                      \
        const int c = ((lane) + u * (p).group) * W;        \
        if ((lane) + u * (p).group < (p).vectors) {        \
            __VA_ARGS__;                                   \
        }                                                  \
    }

/* Mean and inverse deviation of a row, in two passes over the registers. */
template <typename T, int W>
static __device__ void moments_of(const vectors_of<T, W> &x, const layer &p, int lane, bool there,
                                  float *mean, float *inverse)
{
    float sum[1] = {0}, square[1] = {0};
    if (there) {
        EACH(p, lane, W, u, c, {
            float v[W];
            kolo_columns_widen(v, x.at[u]);
            for (int k = 0; k < W; k++) sum[0] += v[k]; /* padding is 0 */
            (void)c;
        })
    }
    group_sum(sum, p.group);
    *mean = sum[0] / (float)p.channels;
    if (there) {
        EACH(p, lane, W, u, c, {
            float v[W];
            kolo_columns_widen(v, x.at[u]);
            for (int k = 0; k < W; k++) square[0] += c + k < p.channels ? (v[k] - *mean) * (v[k] - *mean) : 0;
        })
    }
    group_sum(square, p.group);
    *inverse = (float)(1 / sqrt((double)square[0] / (double)p.channels + p.epsilon));
}

/* A vector's part of w or b: zero beyond the channels. */
template <int W> KOLO_INLINE void parameters_of(float (&to)[W], const float *from, int c, int channels)
{
    for (int k = 0; k < W; k++) to[k] = c + k < channels ? from[c + k] : 0;
}

template <typename T, int W>
__global__ void __launch_bounds__(THREADS)
    layer_norm_kernel(layer p, T *y, const T *x, const float *w, const float *b)
{
    const int lane = (int)threadIdx.x % p.group, mine = (int)threadIdx.x / p.group;
    float scale[most<W>::N][W], bias[most<W>::N][W];
    EACH(p, lane, W, u, c, {
        parameters_of(scale[u], w, c, p.channels);
        parameters_of(bias[u], b, c, p.channels);
    });
    for (int64_t first = (int64_t)blockIdx.x * p.groups; first < p.rows;
         first += (int64_t)p.blocks * p.groups) {
        const int64_t row = first + mine;
        const bool there = row < p.rows;
        vectors_of<T, W> v;
        float mean, inverse;
        vectors_load(&v, x + row * p.stored, p, lane, there);
        moments_of(v, p, lane, there, &mean, &inverse);
        if (there) {
            EACH(p, lane, W, u, c, {
                float value[W];
                kolo_columns_widen(value, v.at[u]);
                for (int k = 0; k < W; k++)
                    value[k] = c + k < p.channels
                                   ? kolo_norm1(value[k], mean, inverse * scale[u][k], bias[u][k])
                                   : 0;
                kolo_columns_store(y + row * p.stored + c, value);
            })
        }
    }
}

/* Adds the groups' sums of vector u and writes this block's part (2, stored): db, dw. */
template <int W>
static __device__ void layer_combine(const layer &p, const float (&db)[W], const float (&dw)[W], int u,
                                     double *partial)
{
    KOLO_SHARED(float, part); /* [2 W][THREADS] */
    __syncthreads();
    for (int k = 0; k < W; k++) {
        part[k * THREADS + threadIdx.x] = db[k];
        part[(W + k) * THREADS + threadIdx.x] = dw[k];
    }
    __syncthreads();
    for (int i = (int)threadIdx.x; i < 2 * W * p.group; i += THREADS) {
        const int value = i / p.group, lane = i - value * p.group, vector = lane + u * p.group;
        double sum = 0;
        for (int g = 0; g < p.groups; g++) sum += (double)part[value * THREADS + g * p.group + lane];
        if (vector < p.vectors)
            partial[((int64_t)blockIdx.x * 2 + value / W) * p.stored + vector * W + value % W] = sum;
    }
}

/* dx, partial, other may be NULL; dx may be other, which is added. */
template <typename T, int W>
__global__ void __launch_bounds__(THREADS)
    layer_norm_grad_kernel(layer p, T *dx, double *partial, const T *dy, const T *x, const float *w,
                           const T *other)
{
    const int lane = (int)threadIdx.x % p.group, mine = (int)threadIdx.x / p.group;
    float scale[most<W>::N][W], dw[most<W>::N][W], db[most<W>::N][W];
#pragma unroll
    for (int u = 0; u < most<W>::N; u++)
        for (int k = 0; k < W; k++) dw[u][k] = db[u][k] = 0;
    EACH(p, lane, W, u, c, parameters_of(scale[u], w, c, p.channels));
    for (int64_t first = (int64_t)blockIdx.x * p.groups; first < p.rows;
         first += (int64_t)p.blocks * p.groups) {
        const int64_t row = first + mine;
        const bool there = row < p.rows;
        vectors_of<T, W> v, d;
        float mean, inverse, sum[2] = {0, 0}; /* of g and of g xhat, g = dy w */
        vectors_load(&v, x + row * p.stored, p, lane, there);
        vectors_load(&d, dy + row * p.stored, p, lane, there);
        moments_of(v, p, lane, there, &mean, &inverse);
        if (there) {
            EACH(p, lane, W, u, c, {
                float value[W];
                float g[W];
                kolo_columns_widen(value, v.at[u]);
                kolo_columns_widen(g, d.at[u]);
                for (int k = 0; k < W; k++) {
                    const float along = (value[k] - mean) * inverse;
                    const float real = c + k < p.channels ? g[k] : 0;
                    db[u][k] += real;
                    dw[u][k] += real * along;
                    sum[0] += real * scale[u][k];
                    sum[1] += real * scale[u][k] * along;
                }
            })
        }
        group_sum(sum, p.group);
        const float share = sum[0] / (float)p.channels, slope = sum[1] / (float)p.channels * inverse;
        if (there && dx) {
            EACH(p, lane, W, u, c, {
                float value[W];
                float g[W];
                kolo_columns_widen(value, v.at[u]);
                kolo_columns_widen(g, d.at[u]);
                for (int k = 0; k < W; k++)
                    value[k] = c + k < p.channels ? kolo_norm_grad1(g[k] * scale[u][k], value[k], mean,
                                                                    inverse, share, slope)
                                                  : 0;
                if (other) {
                    kolo_loaded<T, W> before;
                    kolo_columns_load(&before, other + row * p.stored + c);
                    kolo_columns_widen(g, before);
                    for (int k = 0; k < W; k++) value[k] += g[k];
                }
                kolo_columns_store(dx + row * p.stored + c, value);
            })
        }
    }
    if (!partial) return;
#pragma unroll
    for (int u = 0; u < most<W>::N; u++)
        if (u * p.group < p.vectors) layer_combine(p, db[u], dw[u], u, partial);
}

static __global__ void __launch_bounds__(THREADS)
    layer_norm_finish_kernel(kolo_columns c, float *dw, float *db, const double *partial)
{
    const kolo_finish f = kolo_columns_finish(partial, c, 2);
    float *to = f.kind ? dw : db;
    if (f.mine && to) to[f.channel] = (float)f.sum;
}

/* ---- host ---------------------------------------------------------------------------------------------- */

/* Calls `body` with T and W: the channels of a vector, 1 where they are not whole vectors. */
#define FOR_VECTORS(p, T, W, ...)                     \
    KOLO_FOR_DTYPE((p)->dtype, T,                     \
                   if ((p)->vectors == (p)->stored) { \
                       enum { W = 1 };                \
                       __VA_ARGS__;                   \
                   } else {                           \
                       enum { W = 16 / sizeof(T) };   \
                       __VA_ARGS__;                   \
                   })

/* in: x, w, b; out: y */
static int cuda_layer_norm_run(const kolo_kernel *k, void *const *args, void *, const kolo_step *, int)
{
    const layer *p = (const layer *)k->state;
    int rc = 0;
    FOR_VECTORS(p, T, W,
                rc = KOLO_LAUNCH((layer_norm_kernel<T, W>), p->blocks, THREADS, 0, kolo_cuda_stream(k), *p,
                                 (T *)args[3], (const T *)args[0], (const float *)args[1],
                                 (const float *)args[2]));
    return rc;
}

static kolo_columns finish_of(const layer *p)
{
    kolo_columns c = {};
    c.channels = p->channels;
    c.stored = p->stored;
    c.chunks = p->blocks;
    return c;
}

/* in: dy, x, w[, other]; out: dx [+ other], dw, db */
static int cuda_layer_norm_run_grad(const kolo_kernel *k, void *const *args, void *workspace,
                                    const kolo_step *, int)
{
    const layer *p = (const layer *)k->state;
    void *const *out = args + p->inputs;
    const void *other = p->inputs > 3 ? args[3] : NULL;
    double *partial = out[1] || out[2] ? (double *)workspace : NULL;
    const kolo_columns c = finish_of(p);
    int rc = 0;
    FOR_VECTORS(p, T, W,
                rc = KOLO_LAUNCH((layer_norm_grad_kernel<T, W>), p->blocks, THREADS,
                                 sizeof(float) * 2 * W * THREADS, kolo_cuda_stream(k), *p, (T *)out[0],
                                 partial, (const T *)args[0], (const T *)args[1], (const float *)args[2],
                                 (const T *)other));
    if (rc < 0 || !partial) return rc;
    return KOLO_LAUNCH(layer_norm_finish_kernel, kolo_columns_finish_blocks(&c, 2), THREADS, 0,
                       kolo_cuda_stream(k), c, (float *)out[1], (float *)out[2], (const double *)partial);
}

static int cuda_layer_norm_prepare(const kolo_kernel_request *r, kolo_kernel *k)
{
    const bool backward = r->node->op == KOLO_OP_layer_norm_grad;
    const kolo_cuda_view x = kolo_cuda_view_in(r, backward ? 1 : 0);
    const int64_t full = x.dtype == KOLO_F32 ? 4 : 8, width = x.stored % full ? 1 : full,
                  own = width == 1 ? (int64_t)most<1>::N : OWN / width, vectors = x.stored / width,
                  rows = x.rows * x.pixels;
    if (vectors > THREADS * own || rows > INT32_MAX)
        return kolo_fail(KOLO_ECONFIG,
                         "layer norm of %ld rows of %ld channels: on a GPU at most %d channels and 2^31 rows",
                         (long)rows, (long)x.channels, (int)(THREADS * own * width));
    layer *p = (layer *)kolo_alloc(sizeof *p);
    if (!p) return KOLO_ENOMEM;
    k->state = p;
    k->release = free;
    k->run = backward ? cuda_layer_norm_run_grad : cuda_layer_norm_run;
    p->inputs = r->node->n_in;
    p->rows = (int)rows;
    p->channels = (int)x.channels;
    p->stored = (int)x.stored;
    p->vectors = (int)vectors;
    for (p->group = 1; p->group * own < vectors;) p->group *= 2;
    p->groups = THREADS / p->group;
    const int64_t turns = kolo_columns_ceil(rows, p->groups), least = kolo_columns_ceil(turns, STEPS);
    p->blocks = turns < BLOCKS ? (int)turns : least > BLOCKS ? (int)least : (int)BLOCKS;
    p->epsilon = r->node->a.epsilon;
    p->dtype = x.dtype;
    if (backward) k->workspace = sizeof(double) * (size_t)p->blocks * 2 * (size_t)p->stored;
    snprintf(k->name, sizeof k->name, "own %s, %d threads a row", kolo_dtype_name(x.dtype), p->group);
    return 0;
}

const kolo_op_row kolo_cuda_layer_norm = {NULL, cuda_layer_norm_prepare};
const kolo_op_row kolo_cuda_layer_norm_grad = {NULL, cuda_layer_norm_prepare};
