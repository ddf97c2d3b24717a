/* The weight's gradient of a depthwise convolution: dw(c, i, j) = sum over images and pixels of dy(h, w,
 * c) x(h s - p + i d, w s - p + j d, c). A block walks over tiles of dy and x in shared memory; each of its
 * warps keeps the sums of a few taps of a line of channels in registers: of a row of the filter, where it can
 * read a row of a tile once for all of them, else of TAPS. Sums of blocks are added by a second kernel in
 * f64. */
#include "ops/cuda/columns.cuh"
#include "ops/cuda/depthwise.cuh"

enum { TAPS = 10, TILE = KOLO_DEPTH_TILE, LANES = KOLO_DEPTH_LANES, BLOCKS = 1024, MOST_WARPS = 32 };

KOLO_INLINE int side_of(const kolo_depthwise &p, int axis, int results)
{
    return (results - 1) * p.stride[axis] + (p.kernel[axis] - 1) * p.dilation[axis] + 1;
}

/* What a warp has: lane, its share of the taps, its rows of a tile. */
typedef struct walker {
    int lane, chunk, part, parts;
} walker;

/* A warp's sums. K: of a row of the filter of K taps, stride S; or 0: of any TAPS of them. */
template <typename T, int K, int S> struct walk {
    enum { P = kolo_depth<T>::P, EACH = K ? K : TAPS };
    float sum[EACH][P];
    int offset[K ? 1 : TAPS]; /* words of a tile of x, from a result's first pixel to a tap's */
};

template <typename T, int K, int S>
static __device__ __forceinline__ void walk_begin(walk<T, K, S> *to, const kolo_depthwise &p, const walker &w,
                                                  int wide)
{
#pragma unroll
    for (int u = 0; u < walk<T, K, S>::EACH; u++)
        for (int k = 0; k < walk<T, K, S>::P; k++) to->sum[u][k] = 0;
#pragma unroll
    for (int u = 0; u < (K ? 1 : TAPS); u++) {
        const int tap = w.chunk * walk<T, K, S>::EACH + u, i = tap < p.taps ? tap / p.kernel[1] : 0,
                  j = tap < p.taps ? tap - i * p.kernel[1] : 0;
        to->offset[u] = (i * p.dilation[0] * wide + j * p.dilation[1]) * LANES + w.lane;
    }
}

/* A row of results with a row of the filter: each word of either is read once. */
template <typename T, int K, int S>
static __device__ __forceinline__ void walk_row(walk<T, K, S> *to, const uint32_t *dy, const uint32_t *x)
{
    enum { P = kolo_depth<T>::P };
    float d[TILE][P];
#pragma unroll
    for (int c = 0; c < TILE; c++) kolo_unpack((const T *)NULL, dy[c * LANES], d[c]);
#pragma unroll
    for (int at = 0; at < (TILE - 1) * S + K; at++) {
        float v[P];
        kolo_unpack((const T *)NULL, x[at * LANES], v);
#pragma unroll
        for (int u = 0; u < K; u++) {
            const int c = (at - u) / S;
            if (at < u || (at - u) % S || c >= TILE) continue;
#pragma unroll
            for (int k = 0; k < P; k++) to->sum[u][k] += d[c][k] * v[k];
        }
    }
}

template <typename T, int K, int S>
static __device__ __forceinline__ void walk_pixel(walk<T, K, S> *to, uint32_t dy, const uint32_t *x)
{
    enum { P = kolo_depth<T>::P };
    float d[P];
    kolo_unpack((const T *)NULL, dy, d);
#pragma unroll
    for (int u = 0; u < (K ? 1 : TAPS); u++) {
        float v[P];
        kolo_unpack((const T *)NULL, x[to->offset[u]], v);
        for (int k = 0; k < P; k++) to->sum[u][k] += d[k] * v[k];
    }
}

template <typename T, int K, int S>
static __device__ __forceinline__ void walk_tile(walk<T, K, S> *to, const kolo_depthwise &p, const walker &w,
                                                 const uint32_t *dy, const uint32_t *x, int wide)
{
    for (int r = w.part; r < p.tall; r += w.parts) {
        const uint32_t *from = dy + r * TILE * LANES + w.lane, *at = x + r * p.stride[0] * wide * LANES;
        if (K) walk_row(to, from, at + to->offset[0]);
        else
            for (int c = 0; c < TILE; c++) walk_pixel(to, from[c * LANES], at + c * p.stride[1] * LANES);
    }
}

/* partial: (splits, taps, stored) f64. Block: line of channels, split. */
template <typename T, int K, int S>
__global__ void __launch_bounds__(MOST_WARPS * 32)
    depthwise_weight_kernel(double *partial, const T *x, const T *dy, kolo_depthwise p)
{
    enum { P = kolo_depth<T>::P, LINE = kolo_depth<T>::LINE, EACH = walk<T, K, S>::EACH };
    KOLO_SHARED(uint32_t, tile); /* of dy, then of x */
    const int wide = side_of(p, 1, TILE), high = side_of(p, 0, p.tall);
    uint32_t *input = tile + p.tall * TILE * LANES;
    const int warp = (int)threadIdx.x / 32;
    const walker w = {(int)threadIdx.x % 32, warp % p.chunks, warp / p.chunks, p.warps / p.chunks};
    const int group = (int)blockIdx.x % p.groups, split = (int)blockIdx.x / p.groups;
    const int all = p.rows * p.tiles[0] * p.tiles[1],
              end = (split + 1) * p.each < all ? (split + 1) * p.each : all;
    walk<T, K, S> own;
    walk_begin(&own, p, w, wide);
    for (int t = split * p.each; t < end; t++) {
        const int line = t / p.tiles[1], n = line / p.tiles[0];
        const int top = (line - n * p.tiles[0]) * p.tall, left = (t - line * p.tiles[1]) * TILE;
        __syncthreads(); /* the tile before has been read */
        kolo_depth_load(tile, dy, n, p.out_height, p.out_width, p.stored, top, left, p.tall, TILE, group);
        kolo_depth_load(input, x, n, p.height, p.width, p.stored, top * p.stride[0] - p.pad[0],
                        left * p.stride[1] - p.pad[1], high, wide, group);
        __syncthreads();
        walk_tile(&own, p, w, tile, input, wide);
    }
    __syncthreads();
    float *sums = (float *)tile; /* [warps][EACH][LINE] */
    for (int u = 0; u < EACH; u++)
        for (int k = 0; k < P; k++) sums[(warp * EACH + u) * LINE + w.lane * P + k] = own.sum[u][k];
    __syncthreads();
    for (int i = (int)threadIdx.x; i < p.taps * LINE; i += (int)blockDim.x) {
        const int tap = i / LINE, c = group * LINE + i - tap * LINE, from = tap / EACH, u = tap - from * EACH;
        double total = 0;
        for (int k = 0; k < w.parts; k++)
            total += (double)sums[((k * p.chunks + from) * EACH + u) * LINE + i - tap * LINE];
        if (c < p.stored) partial[((int64_t)split * p.taps + tap) * p.stored + c] = total;
    }
}

static __global__ void __launch_bounds__(KOLO_COLUMN_THREADS)
    depthwise_finish_kernel(kolo_columns c, float *dw, const double *partial, int taps, int stored,
                            int channels)
{
    const kolo_finish f = kolo_columns_finish(partial, c, 1);
    const int tap = f.channel / stored, channel = f.channel - tap * stored;
    if (f.mine && channel < channels) dw[(int64_t)channel * taps + tap] = (float)f.sum;
}

/* ---- host ---------------------------------------------------------------------------------------------- */

/* Whether a warp takes a row of the filter. */
static bool walks_rows(const kolo_depthwise *p)
{
    const int wide = p->kernel[1], stride = p->stride[1];
    return p->dilation[1] == 1 && (((wide == 3 || wide == 5) && stride <= 2) || (wide == 7 && stride == 1));
}

static size_t shared_bytes(const kolo_depthwise *p)
{
    const size_t tiles =
        ((size_t)p->tall * TILE + (size_t)side_of(*p, 0, p->tall) * (size_t)side_of(*p, 1, TILE)) * LANES * 4;
    const size_t sums = (size_t)p->warps * (size_t)p->each_taps * LANES * (p->dtype == KOLO_F32 ? 4 : 8);
    return tiles > sums ? tiles : sums;
}

static kolo_columns columns_of(const kolo_depthwise *p)
{
    kolo_columns c = {};
    c.channels = c.stored = p->taps * p->stored;
    c.chunks = p->splits;
    return c;
}

/* Calls `body` with the constants T, K and S. */
#define FOR_WALK(p, T, K, S, ...)                                                              \
    KOLO_FOR_DTYPE((p)->dtype, T,                                                              \
                   switch (walks_rows(p) ? 10 * (p)->kernel[1] + (p)->stride[1] : 0){          \
                       WALK(31, K, 3, S, 1, __VA_ARGS__) WALK(32, K, 3, S, 2, __VA_ARGS__)     \
                           WALK(51, K, 5, S, 1, __VA_ARGS__) WALK(52, K, 5, S, 2, __VA_ARGS__) \
                               WALK(71, K, 7, S, 1, __VA_ARGS__) WALK(0, K, 0, S, 1, __VA_ARGS__)})
#define WALK(number, K, k, S, s, ...) \
    case number: {                    \
        enum { K = k, S = s };        \
        __VA_ARGS__;                  \
    } break;

/* in: x, dy; out: dw[, dbias] */
static int cuda_depthwise_weight_run(const kolo_kernel *k, void *const *args, void *workspace,
                                     const kolo_step *, int)
{
    const kolo_depthwise *p = (const kolo_depthwise *)k->state;
    const kolo_columns c = columns_of(p);
    double *partial = (double *)workspace;
    if (args[2]) {
        FOR_WALK(p, T, K, S,
                 KOLO_TRY(KOLO_LAUNCH((depthwise_weight_kernel<T, K, S>), (int64_t)p->splits * p->groups,
                                      p->warps * 32, shared_bytes(p), kolo_cuda_stream(k), partial,
                                      (const T *)args[0], (const T *)args[1], *p)));
        KOLO_TRY(KOLO_LAUNCH(depthwise_finish_kernel, kolo_columns_finish_blocks(&c, 1), KOLO_COLUMN_THREADS,
                             0, kolo_cuda_stream(k), c, (float *)args[2], (const double *)partial, p->taps,
                             p->stored, p->channels));
    }
    if (p->at[3] < 0) return 0;
    return kolo_cuda_bias_grad(k->backend, (float *)args[p->at[3]], args[1], p->dtype,
                               (int64_t)p->rows * p->out_height * p->out_width, p->stored, p->channels,
                               workspace);
}

int kolo_depthwise_weight_prepare(kolo_depthwise *p, const kolo_kernel_request *r, kolo_kernel *k)
{
    p->at[3] = r->node->n_out > 1 && r->node->out[1] >= 0 ? 3 : -1;
    p->each_taps = walks_rows(p) ? p->kernel[1] : TAPS;
    p->chunks = (p->taps + p->each_taps - 1) / p->each_taps;
    p->warps = p->chunks * (p->chunks < 8 ? 8 / p->chunks : 1);
    if (p->chunks == 3) p->warps = 9;
    if (p->chunks == 5) p->warps = 10;
    for (p->tall = TILE; p->tall > 1 && shared_bytes(p) > KOLO_DEPTH_SHARED;) p->tall /= 2;
    if (p->warps > MOST_WARPS || shared_bytes(p) > KOLO_DEPTH_SHARED) return 1;
    p->tiles[0] = (p->out_height + p->tall - 1) / p->tall;
    p->tiles[1] = (p->out_width + TILE - 1) / TILE;
    const int64_t tiles = (int64_t)p->rows * p->tiles[0] * p->tiles[1],
                  blocks = p->groups < BLOCKS ? BLOCKS / p->groups : 1;
    p->each = (int)kolo_columns_ceil(tiles, blocks);
    p->splits = (int)kolo_columns_ceil(tiles, p->each);
    const kolo_columns c = columns_of(p);
    const size_t bias =
        p->at[3] < 0 ? 0
                     : kolo_cuda_bias_workspace((int64_t)p->rows * p->out_height * p->out_width, p->stored);
    k->workspace = kolo_columns_workspace(&c, 1);
    if (bias > k->workspace) k->workspace = bias;
    k->run = cuda_depthwise_weight_run;
    snprintf(k->name, sizeof k->name, "own depthwise %s %dx%d, %d warps, %d parts", kolo_dtype_name(p->dtype),
             p->kernel[0], p->kernel[1], p->warps, p->splits);
    return 0;
}
