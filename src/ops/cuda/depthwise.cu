/* Depthwise convolution and its data gradient. Filters of 3, 5 or 7 pixels, stride 1, have a kernel whose
 * threads make 8 results of a row each from a tile in shared memory, so that a pixel is read once for all
 * of them; the gradient is then a convolution with the filter turned round. All others are summed
 * straight from memory. */
#include "ops/cuda/depthwise.cuh"

extern "C" {
#include "base/memory.h"
}

enum {
    THREADS = 256,
    WARPS = THREADS / 32,
    TILE = KOLO_DEPTH_TILE,
    LANES = KOLO_DEPTH_LANES,
    PIXELS = 64 /* of a block */
};

/* The line's filters as f32, [tap][ROW], read in the order in which they lie in memory. Rows are two numbers
 * longer than a line, so that a filter's taps go to different banks. */
template <typename T> struct filters {
    enum { ROW = kolo_depth<T>::LINE + 2 };
};
template <typename T>
static __device__ void load_filters(float *to, const T *w, const kolo_depthwise &p, int group, int taps,
                                    bool turned)
{
    const int line = kolo_depth<T>::LINE, first = group * line;
    for (int i = (int)threadIdx.x; i < taps * line; i += THREADS) {
        const int c = i / taps, tap = i - c * taps;
        to[(turned ? taps - 1 - tap : tap) * filters<T>::ROW + c] =
            first + c < p.channels ? kolo_widen(w[(int64_t)first * taps + i]) : 0;
    }
}

/* A word's starting values. */
template <int P> KOLO_INLINE void start(float (&to)[P], const float *bias, int c, int channels)
{
    for (int k = 0; k < P; k++) to[k] = bias && c + k < channels ? bias[c + k] : 0;
}

/* A word of the result: what was there before, where something is added, and the sum. out may be other. */
template <typename T, int P> KOLO_INLINE void put(T *out, const T *other, int64_t at, float (&sum)[P])
{
    if (other) {
        float v[P];
        kolo_unpack(other, *(const uint32_t *)(other + at), v);
        for (int k = 0; k < P; k++) sum[k] += v[k];
    }
    *(uint32_t *)(out + at) = kolo_repack(out, sum);
}

/* K x K filters at stride 1: out(h, w) = sum of in(h + i - pad0, w + j - pad1) w(i, j). The block's warps
 * take a row of the tile each. */
template <typename T, int K>
__global__ void __launch_bounds__(THREADS)
    depthwise_kernel(T *out, const T *in, const T *w, const float *bias, const T *other, kolo_depthwise p,
                     int height, int width, int out_height, int out_width, int pad0, int pad1, bool turned)
{
    enum { P = kolo_depth<T>::P, LINE = kolo_depth<T>::LINE, SIDE = TILE + K - 1 };
    KOLO_SHARED(uint32_t, tile); /* [SIDE][SIDE][LANES], then the filters */
    float *filter = (float *)(tile + SIDE * SIDE * LANES);
    const int lane = (int)threadIdx.x % 32, warp = (int)threadIdx.x / 32;
    const int group = (int)blockIdx.x % p.groups, place = (int)blockIdx.x / p.groups,
              line = place / p.tiles[1];
    const int n = line / p.tiles[0], top = (line - n * p.tiles[0]) * TILE,
              left = (place - line * p.tiles[1]) * TILE;
    kolo_depth_load(tile, in, n, height, width, p.stored, top - pad0, left - pad1, SIDE, SIDE, group);
    load_filters(filter, w, p, group, K * K, turned);
    __syncthreads();
    const int c = group * LINE + lane * P, h = top + warp;
    if (c >= p.stored || h >= out_height) return;
    float sum[TILE][P];
#pragma unroll
    for (int o = 0; o < TILE; o++) start(sum[o], bias, c, p.channels);
    for (int i = 0; i < K; i++) {
        float own[K][P];
#pragma unroll
        for (int j = 0; j < K; j++)
            for (int k = 0; k < P; k++) own[j][k] = filter[(i * K + j) * filters<T>::ROW + lane * P + k];
#pragma unroll
        for (int q = 0; q < SIDE; q++) {
            float v[P];
            kolo_unpack(in, tile[((warp + i) * SIDE + q) * LANES + lane], v);
#pragma unroll
            for (int j = 0; j < K; j++)
                if (q - j >= 0 && q - j < TILE)
                    for (int k = 0; k < P; k++)
                        sum[q - j < 0 ? 0 : q - j >= TILE ? 0 : q - j][k] += v[k] * own[j][k];
        }
    }
    const int64_t at = (((int64_t)n * out_height + h) * out_width + left) * p.stored + c;
#pragma unroll
    for (int o = 0; o < TILE; o++)
        if (left + o < out_width) put(out, other, at + (int64_t)o * p.stored, sum[o]);
}

/* Any filter. BACK: the gradient of x from dy. */
template <typename T, bool BACK>
__global__ void __launch_bounds__(THREADS)
    depthwise_any_kernel(T *out, const T *in, const T *w, const float *bias, const T *other, kolo_depthwise p,
                         int64_t pixels)
{
    enum { P = kolo_depth<T>::P, LINE = kolo_depth<T>::LINE };
    KOLO_SHARED(float, filter);
    const int lane = (int)threadIdx.x % 32, warp = (int)threadIdx.x / 32, group = (int)blockIdx.x % p.groups;
    const int from_height = BACK ? p.out_height : p.height, from_width = BACK ? p.out_width : p.width;
    const int to_height = BACK ? p.height : p.out_height, to_width = BACK ? p.width : p.out_width;
    load_filters(filter, w, p, group, p.taps, false);
    __syncthreads();
    const int c = group * LINE + lane * P;
    if (c >= p.stored) return;
    const int64_t first = (int64_t)(blockIdx.x / (unsigned)p.groups) * PIXELS;
    for (int64_t i = first + warp; i < first + PIXELS && i < pixels; i += WARPS) {
        const int64_t line = i / to_width, n = line / to_height;
        const int h = (int)(line - n * to_height), x = (int)(i - line * to_width);
        float sum[P];
        start(sum, bias, c, p.channels);
        for (int a = 0; a < p.kernel[0]; a++) {
            int y = BACK ? h + p.pad[0] - a * p.dilation[0] : h * p.stride[0] - p.pad[0] + a * p.dilation[0];
            if (BACK && y % p.stride[0]) continue;
            if (BACK) y /= p.stride[0];
            if (y < 0 || y >= from_height) continue;
            for (int b = 0; b < p.kernel[1]; b++) {
                int z =
                    BACK ? x + p.pad[1] - b * p.dilation[1] : x * p.stride[1] - p.pad[1] + b * p.dilation[1];
                if (BACK && z % p.stride[1]) continue;
                if (BACK) z /= p.stride[1];
                if (z < 0 || z >= from_width) continue;
                float v[P];
                kolo_unpack(
                    in, *(const uint32_t *)(in + ((n * from_height + y) * from_width + z) * p.stored + c), v);
                for (int k = 0; k < P; k++)
                    sum[k] += v[k] * filter[(a * p.kernel[1] + b) * filters<T>::ROW + lane * P + k];
            }
        }
        put(out, other, i * p.stored + c, sum);
    }
}

/* ---- host ---------------------------------------------------------------------------------------------- */

static bool has_tiles(const kolo_depthwise *p)
{
    const int k = p->kernel[0];
    return k == p->kernel[1] && (k == 3 || k == 5 || k == 7) && p->stride[0] == 1 && p->stride[1] == 1 &&
           p->dilation[0] == 1 && p->dilation[1] == 1;
}

static size_t line_bytes(const kolo_depthwise *p) /* of filters in f32 */
{
    return (size_t)p->taps * (LANES * (p->dtype == KOLO_F32 ? 1 : 2) + 2) * sizeof(float);
}

typedef struct sides {
    int height, width, out_height, out_width, pad[2];
} sides;

template <typename T, int K>
static int launch_tiles(const kolo_kernel *k, const kolo_depthwise *p, void *out, const void *in,
                        const void *w, const float *bias, const void *other, const sides *s, bool back)
{
    const int side = TILE + K - 1;
    return KOLO_LAUNCH((depthwise_kernel<T, K>), (int64_t)p->rows * p->tiles[0] * p->tiles[1] * p->groups,
                       THREADS, (size_t)side * side * LANES * 4 + line_bytes(p), kolo_cuda_stream(k),
                       (T *)out, (const T *)in, (const T *)w, bias, (const T *)other, *p, s->height, s->width,
                       s->out_height, s->out_width, s->pad[0], s->pad[1], back);
}

template <typename T, bool BACK>
static int launch_any(const kolo_kernel *k, const kolo_depthwise *p, void *out, const void *in, const void *w,
                      const float *bias, const void *other)
{
    const int64_t pixels = (int64_t)p->rows * (BACK ? p->height * p->width : p->out_height * p->out_width);
    return KOLO_LAUNCH((depthwise_any_kernel<T, BACK>), (pixels + PIXELS - 1) / PIXELS * p->groups, THREADS,
                       line_bytes(p), kolo_cuda_stream(k), (T *)out, (const T *)in, (const T *)w, bias,
                       (const T *)other, *p, pixels);
}

template <typename T>
static int launch(const kolo_kernel *k, const kolo_depthwise *p, void *out, const void *in, const void *w,
                  const float *bias, const void *other, bool back)
{
    const int size = p->kernel[0];
    const sides ahead = {p->height, p->width, p->out_height, p->out_width, {p->pad[0], p->pad[1]}},
                behind = {p->out_height,
                          p->out_width,
                          p->height,
                          p->width,
                          {size - 1 - p->pad[0], size - 1 - p->pad[1]}};
    const sides *s = back ? &behind : &ahead;
    if (!has_tiles(p))
        return back ? launch_any<T, true>(k, p, out, in, w, bias, other)
                    : launch_any<T, false>(k, p, out, in, w, bias, other);
    if (size == 3) return launch_tiles<T, 3>(k, p, out, in, w, bias, other, s, back);
    if (size == 5) return launch_tiles<T, 5>(k, p, out, in, w, bias, other, s, back);
    return launch_tiles<T, 7>(k, p, out, in, w, bias, other, s, back);
}

static int cuda_depthwise_run(const kolo_kernel *k, void *const *args, void *, const kolo_step *, int)
{
    const kolo_depthwise *p = (const kolo_depthwise *)k->state;
    const float *bias = p->at[3] >= 0 ? (const float *)args[p->at[3]] : NULL;
    KOLO_FOR_DTYPE(p->dtype, T,
                   return launch<T>(k, p, args[p->at[2]], args[p->at[0]], args[p->at[1]], bias, NULL, false));
}

static int run_data(const kolo_kernel *k, void *const *args, void *, const kolo_step *, int)
{
    const kolo_depthwise *p = (const kolo_depthwise *)k->state;
    const void *other = p->at[3] >= 0 ? args[p->at[3]] : NULL;
    KOLO_FOR_DTYPE(p->dtype, T,
                   return launch<T>(k, p, args[p->at[0]], args[p->at[2]], args[p->at[1]], NULL, other, true));
}

/* x and y may be given by a forward or a backward operation. */
static int cuda_depthwise_describe(kolo_depthwise *p, const kolo_attributes *a, const kolo_cuda_view *x,
                                   const kolo_cuda_view *y)
{
    const int64_t limit = INT64_C(1) << 28, blocks = x->rows * (x->pixels + y->pixels + 64) * x->stored / 32;
    if (x->height > limit || x->width > limit || blocks > INT64_C(64) * INT32_MAX)
        return kolo_fail(KOLO_ECONFIG,
                         "a tensor of %ld x %ld x %ld x %ld elements is too large; use a smaller micro_batch",
                         (long)x->rows, (long)x->channels, (long)x->height, (long)x->width);
    p->rows = (int)x->rows, p->channels = (int)x->channels, p->stored = (int)x->stored;
    p->height = (int)x->height, p->width = (int)x->width;
    p->out_height = (int)y->height, p->out_width = (int)y->width;
    p->dtype = x->dtype;
    for (int i = 0; i < 2; i++) {
        p->kernel[i] = (int)a->kernel[i], p->stride[i] = (int)a->stride[i];
        p->pad[i] = (int)a->pad[i], p->dilation[i] = (int)a->dilation[i];
    }
    p->taps = p->kernel[0] * p->kernel[1];
    const int line = LANES * (p->dtype == KOLO_F32 ? 1 : 2);
    p->groups = (p->stored + line - 1) / line;
    return 0;
}

static int cuda_depthwise_prepare(kolo_depthwise *p, const kolo_kernel_request *r, kolo_kernel *k)
{
    const enum kolo_op op = r->node->op;
    const kolo_attributes *a = &r->node->a;
    const kolo_cuda_view first = kolo_cuda_view_in(r, 0), other = op == KOLO_OP_conv_grad_weight
                                                                      ? kolo_cuda_view_in(r, 1)
                                                                      : kolo_cuda_view_out(r, 0);
    const bool data = op == KOLO_OP_conv_grad_data;
    const kolo_cuda_view *x = data ? &other : &first, *y = data ? &first : &other;
    if (a->groups < 2 || a->groups != x->channels || a->groups != y->channels) return 1;
    if (a->kernel[0] > 64 || a->kernel[1] > 64) return 1;
    KOLO_TRY(cuda_depthwise_describe(p, a, x, y));
    if (op == KOLO_OP_conv_grad_weight) return kolo_depthwise_weight_prepare(p, r, k);
    if (line_bytes(p) > KOLO_DEPTH_SHARED) return 1;
    const int out = r->node->n_in, bias = r->node->n_in > 2 && r->node->in[2] >= 0 ? 2 : -1;
    const int ahead[4] = {0, 1, out, bias}, behind[4] = {out, 1, 0, kolo_node_addend(r->node)};
    memcpy(p->at, data ? behind : ahead, sizeof p->at);
    p->tiles[0] = ((data ? p->height : p->out_height) + TILE - 1) / TILE;
    p->tiles[1] = ((data ? p->width : p->out_width) + TILE - 1) / TILE;
    k->run = data ? run_data : cuda_depthwise_run;
    snprintf(k->name, sizeof k->name, "own depthwise %s %dx%d%s", kolo_dtype_name(p->dtype), p->kernel[0],
             p->kernel[1], has_tiles(p) ? ", in tiles" : "");
    return 0;
}

int kolo_cuda_depthwise(const kolo_kernel_request *r, kolo_kernel *k)
{
    kolo_depthwise *p = (kolo_depthwise *)kolo_alloc(sizeof *p);
    if (!p) return KOLO_ENOMEM;
    const int rc = cuda_depthwise_prepare(p, r, k);
    if (rc) {
        free(p);
        return rc;
    }
    k->state = p;
    k->release = free;
    return 0;
}
