/* Attention within windows by tensor cores: 16-bit types, windows of at most 64 pixels, heads of 16, 32 or 64
 * channels; attention.cu and attention_grad.cu have all others, and the formulas. A block takes one head of a
 * window, or forms the gradients of several windows one after the other. Queries, keys, values lie in shared
 * memory as they are stored; a warp takes 16 queries (or keys), whose scores with all 64 keys stay in its
 * registers, as the results of products and, rounded, as a left factor of the next.
 *
 * The gradient of the bias is summed in registers, pair by pair, over all windows of a block; in the end the
 * pairs of a relative position are added in one order. */
#include "ops/cuda/attention.cuh"
#include "ops/cuda/mma.cuh"

enum {
    THREADS = KOLO_ATTENTION_THREADS,
    SIDE = KOLO_ATTENTION_TENSOR,
    TILES = SIDE / 8, /* results of 8 keys */
    LINE = SIDE + 4   /* numbers of a line of summed pairs */
};

/* Of shared memory: a gradient's four arrays, in whose place the pairs are summed; the bias lies behind. */
static inline __host__ __device__ int tensor_floats(int depth)
{
    const int arrays = 4 * SIDE * (depth + 8) / 2, pairs = SIDE * LINE;
    return arrays > pairs ? arrays : pairs;
}

/* Of a window in shared memory: rows of pixels. */
template <typename T, int D> struct tensor_window {
    enum { WIDE = D + 8, COUNT = SIDE * WIDE };
};

/* Channels first .. first + D - 1 of the window's pixels; zeros beyond the last pixel. */
template <typename T, int D>
static __device__ void tensor_load(T *to, const T *from, int stored, int first,
                                   const kolo_window_pixel *pixel, int pixels)
{
    enum { EACH = D / 8 };
    for (int i = (int)threadIdx.x; i < SIDE * EACH; i += THREADS) {
        const int p = i / EACH, c = i % EACH * 8;
        kolo_words words = {};
        if (p < pixels) words = kolo_read16(from + (int64_t)pixel[p].at * stored + first + c);
        kolo_write16(to + p * tensor_window<T, D>::WIDE + c, words);
    }
}

/* s += 16 rows of `left`, from `row` on, times all rows of `right`. */
template <typename T, int D>
static __device__ __forceinline__ void tensor_scores(float (&s)[TILES][4], const T *left, const T *right,
                                                     int row, int pixels, int lane)
{
    enum { WIDE = tensor_window<T, D>::WIDE };
#pragma unroll
    for (int k = 0; k < D; k += 16) {
        uint32_t a[4], b[2][2];
        kolo_load_left(a, left, WIDE, row, k, lane);
#pragma unroll
        for (int n = 0; n < TILES; n += 2) {
            if (8 * n >= pixels) break;
            kolo_load_turned(b, right, WIDE, 8 * n, k, lane);
            kolo_mma(left, s[n], a, b[0]);
            kolo_mma(left, s[n + 1], a, b[1]);
        }
    }
}

/* sum += weights, rounded to T, times the rows of `values`. */
template <typename T, int D>
static __device__ __forceinline__ void tensor_sum(float (&sum)[D / 8][4], const float (&weight)[TILES][4],
                                                  const T *values, int pixels, int lane)
{
#pragma unroll
    for (int k = 0; k < TILES; k += 2) {
        uint32_t a[4], b[2][2];
        if (8 * k >= pixels) break;
        kolo_round_left(values, a, weight[k], weight[k + 1]);
#pragma unroll
        for (int n = 0; n < D / 8; n += 2) {
            kolo_load_right(b, values, tensor_window<T, D>::WIDE, 8 * k, 8 * n, lane);
            kolo_mma(values, sum[n], a, b[0]);
            kolo_mma(values, sum[n + 1], a, b[1]);
        }
    }
}

/* Rows `row` and row + 8 of a result, times their factors, to the pixels' channels from `first` on. */
template <typename T, int D>
static __device__ __forceinline__ void
tensor_store(T *to, int stored, int first, const float (&sum)[D / 8][4], const float (&factor)[2],
             const kolo_window_pixel *pixel, int row, int pixels, int lane)
{
#pragma unroll
    for (int half = 0; half < 2; half++) {
        if (row + 8 * half >= pixels) continue;
        T *at = to + (int64_t)pixel[row + 8 * half].at * stored + first + lane % 4 * 2;
#pragma unroll
        for (int n = 0; n < D / 8; n++) {
            const float two[2] = {sum[n][2 * half] * factor[half], sum[n][2 * half + 1] * factor[half]};
            *(kolo_pair *)(at + 8 * n) = {kolo_repack(to, two)};
        }
    }
}

/* Channels beyond the last are zeros. */
template <typename T>
static __device__ void tensor_pad(T *to, int stored, int channels, const kolo_window_pixel *pixel, int pixels)
{
    const int padding = stored - channels;
    for (int i = (int)threadIdx.x; i < pixels * padding; i += THREADS)
        kolo_round(0.0f, to + (int64_t)pixel[i / padding].at * stored + channels + i % padding);
}

/* Scores become exp(score - the row's largest), 0 beyond the last key; most, sum: of rows `row`, row + 8. */
static __device__ __forceinline__ void tensor_exponents(float (&s)[TILES][4], float (&most)[2],
                                                        float (&sum)[2], const float *bias,
                                                        const kolo_window_pixel *pixel,
                                                        const kolo_attention &a, int row, int lane)
{
    const int origin = kolo_window_origin(a);
    const kolo_window_pixel own[2] = {pixel[row < a.pixels ? row : 0],
                                      pixel[row + 8 < a.pixels ? row + 8 : 0]};
    most[0] = most[1] = kolo_bits_float(0xFF800000u); /* -infinity */
    sum[0] = sum[1] = 0;
#pragma unroll
    for (int n = 0; n < TILES; n++)
#pragma unroll
        for (int c = 0; c < 2; c++) {
            const int j = 8 * n + lane % 4 * 2 + c;
            const kolo_window_pixel other = pixel[j < a.pixels ? j : 0];
#pragma unroll
            for (int half = 0; half < 2; half++) {
                float &v = s[n][2 * half + c];
                v = j < a.pixels ? v * a.scale + kolo_window_bias(bias, own[half], other, origin)
                                 : kolo_bits_float(0xFF800000u);
                most[half] = v > most[half] ? v : most[half];
            }
        }
#pragma unroll
    for (int half = 0; half < 2; half++) {
        most[half] = kolo_lanes_max(most[half], 4);
#pragma unroll
        for (int n = 0; n < TILES; n++)
#pragma unroll
            for (int c = 2 * half; c < 2 * half + 2; c++) sum[half] += s[n][c] = expf(s[n][c] - most[half]);
        sum[half] = kolo_lanes_sum(sum[half], 4);
    }
}

template <typename T, int D>
__global__ void __launch_bounds__(THREADS)
    attention_tensor_kernel(T *y, const T *qkv, const float *table, kolo_attention a)
{
    enum { COUNT = tensor_window<T, D>::COUNT };
    KOLO_SHARED(T, q);
    __shared__ kolo_window_pixel pixel[SIDE];
    T *k = q + COUNT, *v = k + COUNT;
    float *bias = (float *)(v + COUNT);
    const int lane = (int)threadIdx.x % 32, row = (int)threadIdx.x / 32 * 16 + lane / 4;
    const int head = (int)blockIdx.x % a.heads, window = (int)blockIdx.x / a.heads;
    for (int i = (int)threadIdx.x; i < a.pixels; i += THREADS) pixel[i] = kolo_window_at(a, window, i);
    for (int i = (int)threadIdx.x; i < a.bins; i += THREADS) bias[i] = table[(int64_t)i * a.heads + head];
    __syncthreads();
    tensor_load<T, D>(q, qkv, a.stored_qkv, head * D, pixel, a.pixels);
    tensor_load<T, D>(k, qkv, a.stored_qkv, a.channels + head * D, pixel, a.pixels);
    tensor_load<T, D>(v, qkv, a.stored_qkv, 2 * a.channels + head * D, pixel, a.pixels);
    if (head == 0) tensor_pad(y, a.stored, a.channels, pixel, a.pixels);
    __syncthreads();
    float s[TILES][4] = {}, sum[D / 8][4] = {}, most[2], all[2];
    tensor_scores<T, D>(s, q, k, row - lane / 4, a.pixels, lane);
    tensor_exponents(s, most, all, bias, pixel, a, row, lane);
    tensor_sum<T, D>(sum, s, v, a.pixels, lane);
    const float share[2] = {1 / all[0], 1 / all[1]};
    tensor_store<T, D>(y, a.stored, head * D, sum, share, pixel, row, a.pixels, lane);
}

/* ---- gradients ----------------------------------------------------------------------------------------- */

template <typename T, int D> struct tensor_grad {
    const T *q, *k, *v, *o;
    const float *bias;
    const kolo_window_pixel *pixel;
    float (*stat)[3]; /* of a query: largest score, 1 / sum, sum of p dp */
    int head, row, lane;
};

/* 16 queries: statistics, dq; ds is added to `total`. */
template <typename T, int D>
static __device__ void tensor_queries(const tensor_grad<T, D> &w, const kolo_attention &a,
                                      float (&total)[TILES][4], T *dqkv)
{
    float p[TILES][4] = {}, dp[TILES][4] = {}, dq[D / 8][4] = {}, most[2], all[2];
    tensor_scores<T, D>(p, w.q, w.k, w.row - w.lane / 4, a.pixels, w.lane);
    tensor_scores<T, D>(dp, w.o, w.v, w.row - w.lane / 4, a.pixels, w.lane);
    tensor_exponents(p, most, all, w.bias, w.pixel, a, w.row, w.lane);
#pragma unroll
    for (int half = 0; half < 2; half++) {
        const int i = w.row + 8 * half;
        const float share = 1 / all[half];
        float along = 0;
#pragma unroll
        for (int n = 0; n < TILES; n++)
#pragma unroll
            for (int c = 2 * half; c < 2 * half + 2; c++) along += (p[n][c] *= share) * dp[n][c];
        along = kolo_lanes_sum(along, 4);
#pragma unroll
        for (int n = 0; n < TILES; n++)
#pragma unroll
            for (int c = 2 * half; c < 2 * half + 2; c++)
                total[n][c] += p[n][c] = i < a.pixels ? p[n][c] * (dp[n][c] - along) : 0;
        if (w.lane % 4 == 0) w.stat[i][0] = most[half], w.stat[i][1] = share, w.stat[i][2] = along;
    }
    tensor_sum<T, D>(dq, p, w.k, a.pixels, w.lane);
    const float factor[2] = {a.scale, a.scale};
    tensor_store<T, D>(dqkv, a.stored_qkv, w.head * D, dq, factor, w.pixel, w.row, a.pixels, w.lane);
}

/* 16 keys, after the statistics of all queries: dk, dv. */
template <typename T, int D>
static __device__ void tensor_keys(const tensor_grad<T, D> &w, const kolo_attention &a, T *dqkv)
{
    float p[TILES][4] = {}, ds[TILES][4] = {}, dk[D / 8][4] = {}, dv[D / 8][4] = {};
    const int origin = kolo_window_origin(a);
    const kolo_window_pixel own[2] = {w.pixel[w.row < a.pixels ? w.row : 0],
                                      w.pixel[w.row + 8 < a.pixels ? w.row + 8 : 0]};
    tensor_scores<T, D>(p, w.k, w.q, w.row - w.lane / 4, a.pixels, w.lane);
    tensor_scores<T, D>(ds, w.v, w.o, w.row - w.lane / 4, a.pixels, w.lane);
#pragma unroll
    for (int n = 0; n < TILES; n++)
#pragma unroll
        for (int c = 0; c < 2; c++) {
            const int i = 8 * n + w.lane % 4 * 2 + c, at = i < a.pixels ? i : 0;
            const kolo_window_pixel query = w.pixel[at];
            const float most = w.stat[at][0], share = w.stat[at][1], along = w.stat[at][2];
#pragma unroll
            for (int half = 0; half < 2; half++) {
                float &v = p[n][2 * half + c], &d = ds[n][2 * half + c];
                const float score = v * a.scale + kolo_window_bias(w.bias, query, own[half], origin);
                v = i < a.pixels ? expf(score - most) * share : 0;
                d = v * (d - along);
            }
        }
    tensor_sum<T, D>(dv, p, w.o, a.pixels, w.lane);
    tensor_sum<T, D>(dk, ds, w.q, a.pixels, w.lane);
    const float one[2] = {1, 1}, factor[2] = {a.scale, a.scale};
    tensor_store<T, D>(dqkv, a.stored_qkv, a.channels + w.head * D, dk, factor, w.pixel, w.row, a.pixels,
                       w.lane);
    tensor_store<T, D>(dqkv, a.stored_qkv, 2 * a.channels + w.head * D, dv, one, w.pixel, w.row, a.pixels,
                       w.lane);
}

/* The pairs of every relative position, query by query; pair: (SIDE, LINE). */
static __device__ void tensor_bins(double *to, const float *pair, const kolo_attention &a)
{
    const int wide = 2 * a.window[1] - 1;
    for (int b = (int)threadIdx.x; b < a.bins; b += THREADS) {
        const int down = b / wide - a.window[0] + 1, right = b % wide - a.window[1] + 1;
        double sum = 0;
        for (int y = down > 0 ? down : 0; y < a.window[0] && y - down < a.window[0]; y++)
            for (int x = right > 0 ? right : 0; x < a.window[1] && x - right < a.window[1]; x++)
                sum += (double)pair[(y * a.window[1] + x) * LINE + (y - down) * a.window[1] + x - right];
        to[b] = sum;
    }
}

/* partial: (chunks, heads, bins) f64 */
template <typename T, int D>
__global__ void __launch_bounds__(THREADS, 3)
    attention_tensor_grad_kernel(T *dqkv, double *partial, const T *dy, const T *qkv, const float *table,
                                 kolo_attention a)
{
    enum { COUNT = tensor_window<T, D>::COUNT };
    KOLO_SHARED(T, q);
    __shared__ kolo_window_pixel pixel[SIDE];
    __shared__ float stat[SIDE][3];
    T *k = q + COUNT, *v = k + COUNT, *o = v + COUNT;
    float *pair = (float *)q, *bias = pair + tensor_floats(D);
    const int lane = (int)threadIdx.x % 32, row = (int)threadIdx.x / 32 * 16 + lane / 4;
    const int head = (int)blockIdx.x % a.heads, chunk = (int)blockIdx.x / a.heads,
              end = (chunk + 1) * a.each < a.windows ? (chunk + 1) * a.each : a.windows;
    const tensor_grad<T, D> w = {q, k, v, o, bias, pixel, stat, head, row, lane};
    float total[TILES][4] = {};
    for (int i = (int)threadIdx.x; i < a.bins; i += THREADS) bias[i] = table[(int64_t)i * a.heads + head];
    for (int at = chunk * a.each; at < end; at++) {
        __syncthreads(); /* the window before is done with */
        for (int i = (int)threadIdx.x; i < a.pixels; i += THREADS) pixel[i] = kolo_window_at(a, at, i);
        __syncthreads();
        tensor_load<T, D>(q, qkv, a.stored_qkv, head * D, pixel, a.pixels);
        tensor_load<T, D>(k, qkv, a.stored_qkv, a.channels + head * D, pixel, a.pixels);
        tensor_load<T, D>(v, qkv, a.stored_qkv, 2 * a.channels + head * D, pixel, a.pixels);
        tensor_load<T, D>(o, dy, a.stored, head * D, pixel, a.pixels);
        if (head == 0) tensor_pad(dqkv, a.stored_qkv, 3 * a.channels, pixel, a.pixels);
        __syncthreads();
        tensor_queries(w, a, total, dqkv);
        __syncthreads(); /* all statistics are there */
        tensor_keys(w, a, dqkv);
    }
    __syncthreads();
#pragma unroll
    for (int n = 0; n < TILES; n++)
#pragma unroll
        for (int c = 0; c < 4; c++)
            pair[(row + c / 2 * 8) * LINE + 8 * n + lane % 4 * 2 + c % 2] = total[n][c];
    __syncthreads();
    tensor_bins(partial + (int64_t)blockIdx.x * a.bins, pair, a);
}

/* ---- for attention.cu and attention_grad.cu ------------------------------------------------------------ */

/* Calls `body` with the constants T and D; 16-bit types. */
#define FOR_DEPTH(a, T, D, ...)              \
    do {                                     \
        if ((a)->dtype == KOLO_BF16) {       \
            using T = kolo_bf16;             \
            FOR_DEPTH_OF(a, D, __VA_ARGS__); \
        } else {                             \
            using T = kolo_f16;              \
            FOR_DEPTH_OF(a, D, __VA_ARGS__); \
        }                                    \
    } while (0)
#define FOR_DEPTH_OF(a, D, ...)    \
    if ((a)->depth == 16) {        \
        enum { D = 16 };           \
        __VA_ARGS__;               \
    } else if ((a)->depth == 32) { \
        enum { D = 32 };           \
        __VA_ARGS__;               \
    } else {                       \
        enum { D = 64 };           \
        __VA_ARGS__;               \
    }

bool kolo_attention_tensor_prepare(kolo_kernel *k, bool gradient)
{
    kolo_attention *a = (kolo_attention *)k->state;
    const bool depth = a->depth == 16 || a->depth == 32 || a->depth == 64;
    if (a->dtype == KOLO_F32 || a->pixels > SIDE || !depth) return false;
    const size_t arrays = 3 * sizeof(uint16_t) * SIDE * (size_t)(a->depth + 8);
    a->tensor = true;
    a->shared = gradient ? sizeof(float) * (size_t)tensor_floats(a->depth) : arrays;
    a->shared += sizeof(float) * (size_t)a->bins;
    snprintf(k->name, sizeof k->name, "own %s, tensor cores, %zu KiB a window and head",
             kolo_dtype_name(a->dtype), (a->shared + 1023) / 1024);
    return true;
}

int kolo_attention_tensor_run(const kolo_attention *a, cudaStream_t stream, void *y, const void *qkv,
                              const float *table)
{
    FOR_DEPTH(a, T, D,
              return KOLO_LAUNCH((attention_tensor_kernel<T, D>), a->windows * a->heads, THREADS, a->shared,
                                 stream, (T *)y, (const T *)qkv, table, *a));
}

int kolo_attention_tensor_grad(const kolo_attention *a, cudaStream_t stream, void *dqkv, double *partial,
                               const void *dy, const void *qkv, const float *table)
{
    FOR_DEPTH(a, T, D,
              return KOLO_LAUNCH((attention_tensor_grad_kernel<T, D>), a->chunks * a->heads, THREADS,
                                 a->shared, stream, (T *)dqkv, partial, (const T *)dy, (const T *)qkv, table,
                                 *a));
}
