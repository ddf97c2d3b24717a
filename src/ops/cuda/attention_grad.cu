/* window_attention's gradients. Scores are computed anew, twice: for four queries against all keys (softmax,
 * dq, the bias' bins), then for four keys against all queries (dk, dv), so that no window's scores have to be
 * kept. With p the softmax, o the gradient of y:
 *     dv_j = sum p_ij o_i                dq_i = scale sum ds_ij k_j
 *     dk_j = scale sum ds_ij q_i         ds_ij = p_ij (o_i v_j - sum_j p_ij o_i v_j)
 * and a bias' gradient is the sum of ds over all pairs of its relative position: for one query all keys have
 * different ones, so a warp adds a query at a time to bins of its own; warps, then blocks are added in order.
 * A block takes several windows of one head. */
#include "ops/cuda/attention.cuh"

enum {
    THREADS = KOLO_ATTENTION_THREADS,
    WARPS = KOLO_ATTENTION_WARPS,
    TURNS = KOLO_ATTENTION_TURNS,
    BLOCKS = 4096,
    TENSOR_BLOCKS = 1024
};

typedef struct window {
    float *q, *k, *v, *o;  /* quads */
    float *weight, *slope; /* this warp's p and ds: [4 quads][4] */
    float *bias, *bin;     /* bin: this warp's */
    const kolo_window_pixel *pixel;
    float (*stat)[3]; /* of a query: largest score, 1 / sum, sum of p dp */
    int lane, origin, head;
} window;

/* Four queries: p, ds in weight's place, statistics, bins; then dq. */
template <typename T> static __device__ void queries(const window &w, const kolo_attention &a, int g, T *dqkv)
{
    const float none = kolo_bits_float(0xFF800000u); /* -infinity */
    float s[TURNS][4] = {}, dp[TURNS][4] = {};
    kolo_quads_product(s, w.q, g, w.k, a, w.lane);
    kolo_quads_product(dp, w.o, g, w.v, a, w.lane);
#pragma unroll
    for (int r = 0; r < 4; r++) {
        const int i = 4 * g + r;
        const kolo_window_pixel own = w.pixel[i < a.pixels ? i : 0];
        float most = none, sum = 0, along = 0;
#pragma unroll
        for (int u = 0; u < TURNS; u++) {
            const int j = w.lane + 32 * u;
            s[u][r] = j < a.pixels ? s[u][r] + kolo_window_bias(w.bias, own, w.pixel[j], w.origin) : none;
            most = s[u][r] > most ? s[u][r] : most;
        }
        most = kolo_lanes_max(most);
#pragma unroll
        for (int u = 0; u < TURNS; u++)
            sum += s[u][r] = w.lane + 32 * u < a.pixels ? expf(s[u][r] - most) : 0;
        const float share = 1 / kolo_lanes_sum(sum);
#pragma unroll
        for (int u = 0; u < TURNS; u++)
            along += (s[u][r] *= share) * (w.lane + 32 * u < a.pixels ? dp[u][r] : 0);
        along = kolo_lanes_sum(along);
#pragma unroll
        for (int u = 0; u < TURNS; u++) {
            const int j = w.lane + 32 * u;
            const float ds = j < a.pixels && i < a.pixels ? s[u][r] * (dp[u][r] - along) : 0;
            if (j < 4 * a.quads) w.slope[4 * j + r] = ds;
            if (j < a.pixels && i < a.pixels) w.bin[own.code - w.pixel[j].code + w.origin] += ds;
        }
        if (w.lane == 0 && i < a.pixels) w.stat[i][0] = most, w.stat[i][1] = share, w.stat[i][2] = along;
        __syncwarp(); /* one query at a time */
    }
    for (int c = w.lane; c < a.depth; c += 32) {
        float sum[4];
        kolo_quads_sum(sum, w.slope, w.k, c, a);
        for (int r = 0; r < 4 && 4 * g + r < a.pixels; r++)
            kolo_round(sum[r] * a.scale,
                       dqkv + (int64_t)w.pixel[4 * g + r].at * a.stored_qkv + w.head * a.depth + c);
    }
    __syncwarp();
}

/* Four keys: dk, dv. q holds scale q. */
template <typename T> static __device__ void keys(const window &w, const kolo_attention &a, int g, T *dqkv)
{
    float s[TURNS][4] = {}, dp[TURNS][4] = {};
    kolo_quads_product(s, w.k, g, w.q, a, w.lane);
    kolo_quads_product(dp, w.v, g, w.o, a, w.lane);
#pragma unroll
    for (int r = 0; r < 4; r++) {
        const kolo_window_pixel own = w.pixel[4 * g + r < a.pixels ? 4 * g + r : 0];
#pragma unroll
        for (int u = 0; u < TURNS; u++) {
            const int i = w.lane + 32 * u;
            float p = 0, ds = 0;
            if (i < a.pixels) {
                p = expf(s[u][r] + kolo_window_bias(w.bias, w.pixel[i], own, w.origin) - w.stat[i][0]) *
                    w.stat[i][1];
                ds = p * (dp[u][r] - w.stat[i][2]);
            }
            if (i < 4 * a.quads) w.weight[4 * i + r] = p, w.slope[4 * i + r] = ds;
        }
    }
    __syncwarp();
    for (int c = w.lane; c < a.depth; c += 32) {
        float dk[4], dv[4];
        kolo_quads_sum(dk, w.slope, w.q, c, a);
        kolo_quads_sum(dv, w.weight, w.o, c, a);
        for (int r = 0; r < 4 && 4 * g + r < a.pixels; r++) {
            T *to = dqkv + (int64_t)w.pixel[4 * g + r].at * a.stored_qkv + a.channels + w.head * a.depth + c;
            kolo_round(dk[r], to);
            kolo_round(dv[r], to + a.channels);
        }
    }
    __syncwarp();
}

/* partial: (chunks, heads, bins) f64 */
template <typename T>
__global__ void __launch_bounds__(THREADS)
    attention_grad_kernel(T *dqkv, double *partial, const T *dy, const T *qkv, const float *table,
                          kolo_attention a)
{
    KOLO_SHARED(float, shared);
    __shared__ kolo_window_pixel pixel[KOLO_ATTENTION_PIXELS];
    __shared__ float stat[KOLO_ATTENTION_PIXELS][3];
    const int warp = (int)threadIdx.x / 32, one = kolo_quads_floats(a), wide = 16 * a.quads;
    float *buffers = shared + 4 * one, *bins = buffers + 2 * WARPS * wide;
    window w = {shared,
                shared + one,
                shared + 2 * one,
                shared + 3 * one,
                buffers + 2 * warp * wide,
                buffers + (2 * warp + 1) * wide,
                bins + WARPS * a.bins,
                bins + warp * a.bins,
                pixel,
                stat,
                (int)threadIdx.x % 32,
                kolo_window_origin(a),
                (int)blockIdx.x % a.heads};
    const int chunk = (int)blockIdx.x / a.heads, first = w.head * a.depth,
              end = (chunk + 1) * a.each < a.windows ? (chunk + 1) * a.each : a.windows;
    for (int i = (int)threadIdx.x; i < a.bins; i += THREADS) w.bias[i] = table[(int64_t)i * a.heads + w.head];
    for (int i = (int)threadIdx.x; i < WARPS * a.bins; i += THREADS) bins[i] = 0;
    for (int at = chunk * a.each; at < end; at++) {
        __syncthreads(); /* the window before is done with */
        for (int i = (int)threadIdx.x; i < a.pixels; i += THREADS) pixel[i] = kolo_window_at(a, at, i);
        __syncthreads();
        kolo_quads_load(w.q, qkv, a.stored_qkv, first, pixel, a, a.scale);
        kolo_quads_load(w.k, qkv, a.stored_qkv, a.channels + first, pixel, a, 1);
        kolo_quads_load(w.v, qkv, a.stored_qkv, 2 * a.channels + first, pixel, a, 1);
        kolo_quads_load(w.o, dy, a.stored, first, pixel, a, 1);
        __syncthreads();
        for (int g = warp; g < a.quads; g += WARPS) queries(w, a, g, dqkv);
        __syncthreads(); /* all statistics are there */
        for (int g = warp; g < a.quads; g += WARPS) keys(w, a, g, dqkv);
        const int padding = w.head == 0 ? a.stored_qkv - 3 * a.channels : 0;
        for (int i = (int)threadIdx.x; i < a.pixels * padding; i += THREADS)
            kolo_round(0.0f,
                       dqkv + (int64_t)pixel[i / padding].at * a.stored_qkv + 3 * a.channels + i % padding);
    }
    __syncthreads();
    for (int i = (int)threadIdx.x; i < a.bins; i += THREADS) {
        double sum = 0;
        for (int k = 0; k < WARPS; k++) sum += (double)bins[k * a.bins + i];
        partial[(int64_t)blockIdx.x * a.bins + i] = sum;
    }
}

static __global__ void __launch_bounds__(KOLO_COLUMN_THREADS)
    attention_finish_kernel(kolo_columns c, float *dtable, const double *partial, int bins, int heads)
{
    const kolo_finish f = kolo_columns_finish(partial, c, 1);
    if (f.mine) dtable[f.channel % bins * heads + f.channel / bins] = (float)f.sum;
}

static kolo_columns columns_of(const kolo_attention *a)
{
    kolo_columns c = {};
    c.channels = c.stored = a->heads * a->bins;
    c.chunks = a->chunks;
    return c;
}

/* in: dy, qkv, table; out: dqkv, dtable */
static int cuda_attention_grad_run(const kolo_kernel *k, void *const *args, void *workspace,
                                   const kolo_step *, int)
{
    const kolo_attention *a = (const kolo_attention *)k->state;
    const kolo_columns c = columns_of(a);
    double *partial = (double *)workspace;
    if (a->tensor)
        KOLO_TRY(kolo_attention_tensor_grad(a, kolo_cuda_stream(k), args[3], partial, args[0], args[1],
                                            (const float *)args[2]));
    else
        KOLO_FOR_DTYPE(
            a->dtype, T,
            KOLO_TRY(KOLO_LAUNCH(attention_grad_kernel<T>, a->chunks * a->heads, THREADS, a->shared,
                                 kolo_cuda_stream(k), (T *)args[3], partial, (const T *)args[0],
                                 (const T *)args[1], (const float *)args[2], *a)));
    if (!args[4]) return 0;
    return KOLO_LAUNCH(attention_finish_kernel, kolo_columns_finish_blocks(&c, 1), KOLO_COLUMN_THREADS, 0,
                       kolo_cuda_stream(k), c, (float *)args[4], (const double *)partial, a->bins, a->heads);
}

static int cuda_attention_grad_prepare(const kolo_kernel_request *r, kolo_kernel *k)
{
    const kolo_cuda_view dy = kolo_cuda_view_in(r, 0), qkv = kolo_cuda_view_in(r, 1);
    if (!kolo_request_out(r, 0))
        return kolo_fail(KOLO_EINTERNAL, "attention's table alone has no gradient here");
    if (!kolo_request_in(r, 2)) return kolo_attention_all_prepare(r, k, &qkv, &dy);
    KOLO_TRY(kolo_attention_prepare(r, k, &qkv, &dy, 4, 8, WARPS + 1));
    kolo_attention *a = (kolo_attention *)k->state;
    const bool tensor = kolo_attention_tensor_prepare(k, true);
    k->run = cuda_attention_grad_run;
    a->each = (int)kolo_columns_ceil((int64_t)a->windows * a->heads, tensor ? TENSOR_BLOCKS : BLOCKS);
    a->chunks = (int)kolo_columns_ceil(a->windows, a->each);
    const kolo_columns c = columns_of(a);
    k->workspace = kolo_columns_workspace(&c, 1);
    if (tensor || r->backend->gpu) return 0; /* gpu: it is not there */
    KOLO_FOR_DTYPE(a->dtype, T,
                   return KOLO_CUDA(cudaFuncSetAttribute(
                       attention_grad_kernel<T>, cudaFuncAttributeMaxDynamicSharedMemorySize, a->allowed)));
}

const kolo_op_row kolo_cuda_window_attention_grad = {NULL, cuda_attention_grad_prepare};
