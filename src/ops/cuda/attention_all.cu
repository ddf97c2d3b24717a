/* window_attention whose window is the whole map: all tokens see all, without a bias. A warp takes four
 * queries; their scores lie in shared memory, keys and values are read where they are. Backward, scores are
 * computed anew, twice: for four queries (softmax's statistics, which go to the workspace, and dq), then for
 * four keys (dk, dv). The formulas stand in attention_grad.cu. */
#include "ops/cuda/attention.cuh"

extern "C" {
#include "base/memory.h"
}

enum { THREADS = KOLO_ATTENTION_THREADS, WARPS = KOLO_ATTENTION_WARPS, STATS = 3 };

typedef struct attention_all {
    int rows, tokens, quads, heads, depth, channels, stored_qkv, stored;
    float scale;
    size_t shared;
    int allowed;
    enum kolo_dtype dtype;
} attention_all;

/* What a warp works on: four tokens from `first` on of one row and head. */
typedef struct four {
    int first, count, lane;
    int64_t row, head; /* the row's first token; the head's first channel */
    int64_t stats;     /* of the row's and head's first token */
    bool there, pads;  /* pads: channels beyond the last are this warp's */
} four;

static __device__ four four_of(const attention_all &a)
{
    const int warp = (int)blockIdx.x * WARPS + (int)threadIdx.x / 32, g = warp % a.quads,
              line = warp / a.quads, head = line % a.heads, n = line / a.heads, first = 4 * g;
    four f = {first,
              a.tokens - first < 4 ? a.tokens - first : 4,
              (int)threadIdx.x % 32,
              (int64_t)n * a.tokens,
              head * a.depth,
              (int64_t)line * a.tokens,
              n < a.rows,
              head == 0};
    return f;
}

/* to[c][r]: channels of the four tokens. */
template <typename T>
static __device__ void load_four(float *to, const T *from, int stored, int64_t channel, float factor,
                                 const four &f, const attention_all &a)
{
    for (int i = f.lane; i < 4 * a.depth; i += 32) {
        const int c = i % a.depth, r = i / a.depth;
        to[4 * c + r] =
            r < f.count ? kolo_widen(from[(f.row + f.first + r) * stored + channel + c]) * factor : 0;
    }
}

/* sum[r] = of the four with token j. */
template <typename T>
static __device__ void four_dot(float (&sum)[4], const float *four_of_them, const T *from, float factor,
                                const attention_all &a)
{
    for (int r = 0; r < 4; r++) sum[r] = 0;
    for (int c = 0; c < a.depth; c++) {
        const float v = kolo_widen(from[c]) * factor;
        for (int r = 0; r < 4; r++) sum[r] += four_of_them[4 * c + r] * v;
    }
}

/* sum[r] = over all tokens j of weight[j][r] times their element at `from`. */
template <typename T>
static __device__ void four_sum(float (&sum)[4], const float *weight, const T *from, int stored, float factor,
                                const attention_all &a)
{
    for (int r = 0; r < 4; r++) sum[r] = 0;
    for (int j = 0; j < a.tokens; j++) {
        const float v = kolo_widen(from[(int64_t)j * stored]) * factor;
        for (int r = 0; r < 4; r++) sum[r] += weight[4 * j + r] * v;
    }
}

/* weight[j][r]: scores, which become their softmax; most, share: e^-most of it and 1 / sum */
static __device__ void soften_four(float *weight, int r, float *most, float *share, const four &f,
                                   const attention_all &a)
{
    float high = kolo_bits_float(0xFF800000u), sum = 0; /* -infinity */
    for (int j = f.lane; j < a.tokens; j += 32) high = weight[4 * j + r] > high ? weight[4 * j + r] : high;
    high = kolo_lanes_max(high);
    for (int j = f.lane; j < a.tokens; j += 32) sum += weight[4 * j + r] = expf(weight[4 * j + r] - high);
    *most = high;
    *share = 1 / kolo_lanes_sum(sum);
    for (int j = f.lane; j < a.tokens; j += 32) weight[4 * j + r] *= *share;
}

template <typename T> static __device__ void clear_padding(T *map, int stored, int used, const four &f)
{
    const int padding = f.pads ? stored - used : 0;
    for (int i = f.lane; i < f.count * padding; i += 32)
        kolo_round(0.0f, map + (f.row + f.first + i / padding) * stored + used + i % padding);
}

template <typename T>
__global__ void __launch_bounds__(THREADS) attention_all_kernel(T *y, const T *qkv, attention_all a)
{
    KOLO_SHARED(float, shared);
    const four f = four_of(a);
    float *q = shared + ((int)threadIdx.x / 32) * 4 * (a.depth + a.tokens), *weight = q + 4 * a.depth;
    if (!f.there) return;
    const T *keys = qkv + f.row * a.stored_qkv + a.channels + f.head, *values = keys + a.channels;
    load_four(q, qkv, a.stored_qkv, f.head, a.scale, f, a);
    __syncwarp();
    for (int j = f.lane; j < a.tokens; j += 32) {
        float s[4];
        four_dot(s, q, keys + (int64_t)j * a.stored_qkv, 1, a);
        for (int r = 0; r < 4; r++) weight[4 * j + r] = s[r];
    }
    __syncwarp();
    for (int r = 0; r < 4; r++) {
        float most, share;
        soften_four(weight, r, &most, &share, f, a);
    }
    __syncwarp();
    for (int c = f.lane; c < a.depth; c += 32) {
        float sum[4];
        four_sum(sum, weight, values + c, a.stored_qkv, 1, a);
        for (int r = 0; r < f.count; r++)
            kolo_round(sum[r], y + (f.row + f.first + r) * a.stored + f.head + c);
    }
    clear_padding(y, a.stored, a.channels, f);
}

/* Four queries: dq, and stats (rows, heads, tokens, 3): largest score, 1 / sum, sum of p dp. */
template <typename T>
__global__ void __launch_bounds__(THREADS)
    attention_all_queries_kernel(T *dqkv, float *stats, const T *dy, const T *qkv, attention_all a)
{
    KOLO_SHARED(float, shared);
    const four f = four_of(a);
    float *q = shared + ((int)threadIdx.x / 32) * 8 * (a.depth + a.tokens), *o = q + 4 * a.depth,
          *weight = o + 4 * a.depth, *slope = weight + 4 * a.tokens;
    if (!f.there) return;
    const T *keys = qkv + f.row * a.stored_qkv + a.channels + f.head, *values = keys + a.channels;
    load_four(q, qkv, a.stored_qkv, f.head, a.scale, f, a);
    load_four(o, dy, a.stored, f.head, 1, f, a);
    __syncwarp();
    for (int j = f.lane; j < a.tokens; j += 32) {
        float s[4], dp[4];
        four_dot(s, q, keys + (int64_t)j * a.stored_qkv, 1, a);
        four_dot(dp, o, values + (int64_t)j * a.stored_qkv, 1, a);
        for (int r = 0; r < 4; r++) weight[4 * j + r] = s[r], slope[4 * j + r] = dp[r];
    }
    __syncwarp();
    for (int r = 0; r < 4; r++) {
        float stat[STATS], along = 0;
        soften_four(weight, r, &stat[0], &stat[1], f, a);
        for (int j = f.lane; j < a.tokens; j += 32) along += weight[4 * j + r] * slope[4 * j + r];
        stat[2] = kolo_lanes_sum(along);
        for (int j = f.lane; j < a.tokens; j += 32)
            slope[4 * j + r] = weight[4 * j + r] * (slope[4 * j + r] - stat[2]);
        if (f.lane < STATS && r < f.count) stats[(f.stats + f.first + r) * STATS + f.lane] = stat[f.lane];
    }
    __syncwarp();
    for (int c = f.lane; c < a.depth; c += 32) {
        float sum[4];
        four_sum(sum, slope, keys + c, a.stored_qkv, 1, a);
        for (int r = 0; r < f.count; r++)
            kolo_round(sum[r] * a.scale, dqkv + (f.row + f.first + r) * a.stored_qkv + f.head + c);
    }
    clear_padding(dqkv, a.stored_qkv, 3 * a.channels, f);
}

/* Four keys: dk, dv. */
template <typename T>
__global__ void __launch_bounds__(THREADS)
    attention_all_keys_kernel(T *dqkv, const float *stats, const T *dy, const T *qkv, attention_all a)
{
    KOLO_SHARED(float, shared);
    const four f = four_of(a);
    float *k = shared + ((int)threadIdx.x / 32) * 8 * (a.depth + a.tokens), *v = k + 4 * a.depth,
          *weight = v + 4 * a.depth, *slope = weight + 4 * a.tokens;
    if (!f.there) return;
    const T *queries = qkv + f.row * a.stored_qkv + f.head, *o = dy + f.row * a.stored + f.head;
    load_four(k, qkv, a.stored_qkv, a.channels + f.head, 1, f, a);
    load_four(v, qkv, a.stored_qkv, 2 * a.channels + f.head, 1, f, a);
    __syncwarp();
    for (int i = f.lane; i < a.tokens; i += 32) {
        const float *stat = stats + (f.stats + i) * STATS;
        float s[4], dp[4];
        four_dot(s, k, queries + (int64_t)i * a.stored_qkv, a.scale, a);
        four_dot(dp, v, o + (int64_t)i * a.stored, 1, a);
        for (int r = 0; r < 4; r++) {
            const float p = expf(s[r] - stat[0]) * stat[1];
            weight[4 * i + r] = p;
            slope[4 * i + r] = p * (dp[r] - stat[2]);
        }
    }
    __syncwarp();
    for (int c = f.lane; c < a.depth; c += 32) {
        float dk[4], dv[4];
        four_sum(dk, slope, queries + c, a.stored_qkv, a.scale, a);
        four_sum(dv, weight, o + c, a.stored, 1, a);
        for (int r = 0; r < f.count; r++) {
            T *to = dqkv + (f.row + f.first + r) * a.stored_qkv + a.channels + f.head + c;
            kolo_round(dk[r], to);
            kolo_round(dv[r], to + a.channels);
        }
    }
}

static unsigned all_blocks(const attention_all *a)
{
    return (unsigned)(((int64_t)a->rows * a->heads * a->quads + WARPS - 1) / WARPS);
}

/* in: qkv; out: y */
static int all_run(const kolo_kernel *k, void *const *args, void *, const kolo_step *, int)
{
    const attention_all *a = (const attention_all *)k->state;
    KOLO_FOR_DTYPE(a->dtype, T,
                   return KOLO_LAUNCH(attention_all_kernel<T>, all_blocks(a), THREADS, a->shared,
                                      kolo_cuda_stream(k), (T *)args[1], (const T *)args[0], *a));
}

/* in: dy, qkv; out: dqkv */
static int all_run_grad(const kolo_kernel *k, void *const *args, void *workspace, const kolo_step *, int)
{
    const attention_all *a = (const attention_all *)k->state;
    KOLO_FOR_DTYPE(a->dtype, T, {
        KOLO_TRY(KOLO_LAUNCH(attention_all_queries_kernel<T>, all_blocks(a), THREADS, a->shared,
                             kolo_cuda_stream(k), (T *)args[3], (float *)workspace, (const T *)args[0],
                             (const T *)args[1], *a));
        return KOLO_LAUNCH(attention_all_keys_kernel<T>, all_blocks(a), THREADS, a->shared,
                           kolo_cuda_stream(k), (T *)args[3], (const float *)workspace, (const T *)args[0],
                           (const T *)args[1], *a);
    });
}

static int all_allow(const attention_all *a, bool back)
{
    KOLO_FOR_DTYPE(a->dtype, T, {
        if (!back)
            return KOLO_CUDA(cudaFuncSetAttribute(attention_all_kernel<T>,
                                                  cudaFuncAttributeMaxDynamicSharedMemorySize, a->allowed));
        KOLO_TRY(KOLO_CUDA(cudaFuncSetAttribute(attention_all_queries_kernel<T>,
                                                cudaFuncAttributeMaxDynamicSharedMemorySize, a->allowed)));
        return KOLO_CUDA(cudaFuncSetAttribute(attention_all_keys_kernel<T>,
                                              cudaFuncAttributeMaxDynamicSharedMemorySize, a->allowed));
    });
}

int kolo_attention_all_prepare(const kolo_kernel_request *r, kolo_kernel *k, const kolo_cuda_view *qkv,
                               const kolo_cuda_view *y)
{
    const bool back = r->node->op == KOLO_OP_window_attention_grad;
    const int64_t heads = r->node->a.groups;
    attention_all *a = (attention_all *)kolo_alloc(sizeof *a);
    if (!a) return KOLO_ENOMEM;
    k->state = a;
    k->release = free;
    k->run = back ? all_run_grad : all_run;
    a->rows = (int)qkv->rows, a->tokens = (int)qkv->pixels, a->quads = (a->tokens + 3) / 4;
    a->heads = (int)heads, a->channels = (int)y->channels, a->depth = a->channels / a->heads;
    a->stored_qkv = (int)qkv->stored, a->stored = (int)y->stored;
    a->scale = (float)(1 / sqrt((double)a->depth));
    a->dtype = qkv->dtype;
    a->shared = sizeof(float) * WARPS * (back ? 8 : 4) * (size_t)(a->depth + a->tokens);
    a->allowed = kolo_cuda_of(r->backend)->shared;
    if (a->allowed < 0 || a->shared > (size_t)a->allowed || qkv->rows * heads * a->quads > INT32_MAX)
        return kolo_fail(KOLO_ECONFIG,
                         "attention of %ld tokens takes %zu bytes of shared memory, and this GPU has %d; use "
                         "device=cpu or a smaller size",
                         (long)a->tokens, a->shared, a->allowed);
    if (back) k->workspace = (size_t)qkv->rows * (size_t)heads * (size_t)a->tokens * STATS * sizeof(float);
    snprintf(k->name, sizeof k->name, "own %s, all of %d tokens", kolo_dtype_name(a->dtype), a->tokens);
    return r->backend->gpu ? 0 : all_allow(a, back); /* gpu: it is not there */
}
