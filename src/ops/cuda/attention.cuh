/* Attention within windows (Liu et al., arXiv:2103.14030): what the forward and the backward kernel
 * share. A block takes one head of one window; queries, keys, values lie in shared memory as f32, four
 * pixels of a channel side by side ("quads"): read at once where a lane wants four pixels of one
 * channel, and without conflicts by lanes that are pixels. Scores exist in registers only, four queries (or
 * keys) of a warp at a time. Products are f32 multiply-adds; attention_tensor.cu has what tensor cores do. */
#ifndef KOLO_OPS_CUDA_ATTENTION_CUH
#define KOLO_OPS_CUDA_ATTENTION_CUH

#include "ops/cuda/columns.cuh"

enum {
    KOLO_ATTENTION_THREADS = 128,
    KOLO_ATTENTION_WARPS = KOLO_ATTENTION_THREADS / 32,
    KOLO_ATTENTION_PIXELS = 144, /* most of a window: 12 x 12 */
    KOLO_ATTENTION_DEPTH = 64,   /* most channels of a head */
    KOLO_ATTENTION_TURNS = (KOLO_ATTENTION_PIXELS + 31) / 32,
    KOLO_ATTENTION_TENSOR = 64, /* pixels of a window for tensor cores, most or padded */
};

typedef struct kolo_attention {
    /* shift: by which the map is rolled, round: rows and columns of its last windows that came round;
     * pixels: of a window, quads: their fours */
    int height, width, window[2], shift[2], round[2], heads, depth, pixels, quads;
    /* windows of a map's row and column, and of all maps; relative positions */
    int across, down, windows, bins;
    int channels, stored_qkv, stored;
    int each, chunks; /* backward: windows of a block; blocks of a head */
    float scale;
    bool tensor; /* by attention_tensor.cu */
    size_t shared;
    int allowed; /* of shared memory, on this GPU: the same for all windows, since a kernel has one limit */
    enum kolo_dtype dtype;
} kolo_attention;

/* Fills kernel->state; arrays: quads of depth channels, wide: floats for each pixel of each warp, tables: of
 * bins. qkv, y: arguments' views. attention.cu */
int kolo_attention_prepare(const kolo_kernel_request *r, kolo_kernel *k, const kolo_cuda_view *qkv,
                           const kolo_cuda_view *y, int arrays, int wide, int tables);

/* attention_tensor.cu: after kolo_attention_prepare, whether tensor cores can do it; then `shared` and the
 * name are theirs. partial: (chunks, heads, bins) f64 */
bool kolo_attention_tensor_prepare(kolo_kernel *k, bool gradient);
int kolo_attention_tensor_run(const kolo_attention *a, cudaStream_t stream, void *y, const void *qkv,
                              const float *table);
int kolo_attention_tensor_grad(const kolo_attention *a, cudaStream_t stream, void *dqkv, double *partial,
                               const void *dy, const void *qkv, const float *table);

/* attention_all.cu: the whole map is the window, without a bias. */
int kolo_attention_all_prepare(const kolo_kernel_request *r, kolo_kernel *k, const kolo_cuda_view *qkv,
                               const kolo_cuda_view *y);

/* Floats of an array of quads. */
KOLO_INLINE int kolo_quads_floats(const kolo_attention &a) { return a.quads * (4 * a.depth + 4); }
KOLO_INLINE int kolo_quad(const kolo_attention &a, int pixel, int channel)
{
    return pixel / 4 * (4 * a.depth + 4) + channel * 4 + pixel % 4;
}

/* A pixel of the window: which one of the maps, its region for the mask, its part of a relative position. */
typedef struct kolo_window_pixel {
    int at, region, code;
} kolo_window_pixel;

/* Pixels of different regions come from different sides of the map and do not see each other. */
KOLO_INLINE int kolo_window_region(int at, int size, int window, int round)
{
    return round == 0 || at < size - window ? 0 : at < size - round ? 1 : 2;
}

KOLO_INLINE kolo_window_pixel kolo_window_at(const kolo_attention &a, int window, int i)
{
    const int line = window / a.across, n = line / a.down, y = i / a.window[1], x = i - y * a.window[1];
    const int h = (line - n * a.down) * a.window[0] + y, w = (window - line * a.across) * a.window[1] + x;
    const int from_h = h + a.shift[0] < a.height ? h + a.shift[0] : h + a.shift[0] - a.height,
              from_w = w + a.shift[1] < a.width ? w + a.shift[1] : w + a.shift[1] - a.width;
    kolo_window_pixel p = {(n * a.height + from_h) * a.width + from_w,
                           kolo_window_region(h, a.height, a.window[0], a.round[0]) * 3 +
                               kolo_window_region(w, a.width, a.window[1], a.round[1]),
                           y * (2 * a.window[1] - 1) + x};
    return p;
}
/* Bin of query i and key j: their codes' difference plus this. */
KOLO_INLINE int kolo_window_origin(const kolo_attention &a)
{
    return (a.window[0] - 1) * (2 * a.window[1] - 1) + a.window[1] - 1;
}

/* Channels first .. first + depth - 1 of the window's pixels, as quads; zeros beyond the last pixel. */
template <typename T>
static __device__ void kolo_quads_load(float *to, const T *from, int stored, int first,
                                       const kolo_window_pixel *pixel, const kolo_attention &a, float factor)
{
    for (int i = (int)threadIdx.x; i < 4 * a.quads * a.depth; i += KOLO_ATTENTION_THREADS) {
        const int p = i / a.depth, c = i - p * a.depth;
        to[kolo_quad(a, p, c)] =
            p < a.pixels ? kolo_widen(from[(int64_t)pixel[p].at * stored + first + c]) * factor : 0;
    }
}

/* s[u][r] += product of quad g of `four` with pixel lane + 32 u of `one`. */
static __device__ void kolo_quads_product(float (&s)[KOLO_ATTENTION_TURNS][4], const float *four, int g,
                                          const float *one, const kolo_attention &a, int lane)
{
    int at[KOLO_ATTENTION_TURNS];
#pragma unroll
    for (int u = 0; u < KOLO_ATTENTION_TURNS; u++)
        at[u] = kolo_quad(a, lane + 32 * u < a.pixels ? lane + 32 * u : 0, 0);
    const float *left = four + g * (4 * a.depth + 4);
    for (int c = 0; c < a.depth; c++) {
        const float4 q = *(const float4 *)(left + 4 * c);
#pragma unroll
        for (int u = 0; u < KOLO_ATTENTION_TURNS; u++) {
            if (32 * u >= a.pixels) break;
            const float k = one[at[u] + 4 * c];
            s[u][0] += q.x * k;
            s[u][1] += q.y * k;
            s[u][2] += q.z * k;
            s[u][3] += q.w * k;
        }
    }
}

/* sum[r] = over all pixels j: weight[j][r] times channel c of pixel j. */
static __device__ void kolo_quads_sum(float (&sum)[4], const float *weight, const float *quads, int c,
                                      const kolo_attention &a)
{
    for (int r = 0; r < 4; r++) sum[r] = 0;
    for (int g = 0; g < a.quads; g++) {
        const float4 v = *(const float4 *)(quads + g * (4 * a.depth + 4) + 4 * c);
        const float part[4] = {v.x, v.y, v.z, v.w};
#pragma unroll
        for (int j = 0; j < 4; j++) {
            const float4 p = *(const float4 *)(weight + 4 * (4 * g + j));
            sum[0] += p.x * part[j];
            sum[1] += p.y * part[j];
            sum[2] += p.z * part[j];
            sum[3] += p.w * part[j];
        }
    }
}

/* What is added to the score of query i and key j. */
KOLO_INLINE float kolo_window_bias(const float *bias, const kolo_window_pixel &i, const kolo_window_pixel &j,
                                   int origin)
{
    return bias[i.code - j.code + origin] + (i.region == j.region ? 0.0f : -100.0f);
}

/* Over as many lanes side by side, a power of 2. */
static __device__ float kolo_lanes_max(float v, int lanes = 32)
{
    for (int d = lanes / 2; d; d /= 2) {
        const float other = __shfl_xor_sync(KOLO_FULL_WARP, v, d);
        v = other > v ? other : v;
    }
    return v;
}
static __device__ float kolo_lanes_sum(float v, int lanes = 32)
{
    for (int d = lanes / 2; d; d /= 2) v += __shfl_xor_sync(KOLO_FULL_WARP, v, d);
    return v;
}

#endif
