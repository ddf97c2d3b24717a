/* norm_apply and norm_infer: y = (x - mean) scale + bias [+ residual] [, relu]; norm_apply also writes the
 * batch's statistic. norm.cuh says how many bytes that takes. Each block computes the values of its own
 * channels while its first loads are under way. */
#include "ops/cuda/norm.cuh"

/* What is added: nothing, the residual, or the norm of it. */
enum residual { NOTHING, PLAIN, NORMED };

/* y may be x. signs: of y, or NULL; other: the residual's norm */
template <typename T, int W, int RESIDUAL>
__global__ void __launch_bounds__(KOLO_COLUMN_THREADS, RESIDUAL == NORMED ? 2
                                                       : RESIDUAL         ? 3
                                                                          : 4)
    norm_forward_kernel(kolo_columns c, kolo_norm_forward f, kolo_norm_forward other_norm, T *y,
                        uint8_t *signs, const T *x, const T *residual)
{
    __shared__ float mean_of[KOLO_COLUMN_TILE], scale_of[KOLO_COLUMN_TILE], bias_of[KOLO_COLUMN_TILE];
    __shared__ float mean_r_of[KOLO_COLUMN_TILE], scale_r_of[KOLO_COLUMN_TILE], bias_r_of[KOLO_COLUMN_TILE];
    const kolo_place p = kolo_place_of<W>(c, blockIdx.x, threadIdx.x, false);
    const int64_t line = (int64_t)c.down * c.stored;
    const int thread = (int)threadIdx.x, valid = kolo_columns_valid(c, f.step->valid[f.slot]);
    kolo_loaded<T, W> v[KOLO_COLUMN_BATCH], r[RESIDUAL ? KOLO_COLUMN_BATCH : 1];
    int64_t at = p.at;
    kolo_columns_load_batch(v, x + at, c, p.first, p.end);
    if (RESIDUAL) kolo_columns_load_batch(r, residual + at, c, p.first, p.end);
    if (thread < c.across * W) {
        const kolo_affine a = kolo_affine_of(f, c.channels, p.tile * c.across * W + thread, p.chunk == 0);
        mean_of[thread] = a.mean;
        scale_of[thread] = a.scale;
        bias_of[thread] = a.bias;
    }
    if (RESIDUAL == NORMED && thread < c.across * W) {
        const kolo_affine a =
            kolo_affine_of(other_norm, c.channels, p.tile * c.across * W + thread, p.chunk == 0);
        mean_r_of[thread] = a.mean;
        scale_r_of[thread] = a.scale;
        bias_r_of[thread] = a.bias;
    }
    __syncthreads();
    float mean[W], scale[W], bias[W];
    kolo_columns_take<W>(mean, mean_of, p);
    kolo_columns_take<W>(scale, scale_of, p);
    kolo_columns_take<W>(bias, bias_of, p);
    float mean_r[W], scale_r[W], bias_r[W];
    if (RESIDUAL == NORMED) {
        kolo_columns_take<W>(mean_r, mean_r_of, p);
        kolo_columns_take<W>(scale_r, scale_r_of, p);
        kolo_columns_take<W>(bias_r, bias_r_of, p);
    }
    for (int l = p.first; l < p.end;) {
#pragma unroll
        for (int u = 0; u < KOLO_COLUMN_BATCH; u++) {
            if (l + u * c.down >= p.end) continue;
            float value[W], other[W];
            unsigned bits = 0;
            if (l + u * c.down < valid) {
                kolo_columns_widen(value, v[u]);
                if (RESIDUAL) kolo_columns_widen(other, r[RESIDUAL ? u : 0]);
                for (int k = 0; k < W; k++) {
                    value[k] = kolo_norm1(value[k], mean[k], scale[k], bias[k]);
                    if (RESIDUAL == PLAIN) value[k] += other[k];
                    if (RESIDUAL == NORMED)
                        value[k] += kolo_norm1(other[k], mean_r[k], scale_r[k], bias_r[k]);
                    if (f.relu) value[k] = kolo_relu1(value[k]);
                    if (RESIDUAL) bits |= (unsigned)(value[k] > 0) << k;
                }
            } else {
                for (int k = 0; k < W; k++) value[k] = 0;
            }
            kolo_columns_store(y + at + u * line, value);
            if (RESIDUAL && signs) signs[(at + u * line) / W] = (uint8_t)bits;
        }
        l += KOLO_COLUMN_BATCH * c.down;
        at += KOLO_COLUMN_BATCH * line;
        kolo_columns_load_batch(v, x + at, c, l, p.end);
        if (RESIDUAL) kolo_columns_load_batch(r, residual + at, c, l, p.end);
    }
}

#define LAUNCH(RESIDUAL)                                                                                     \
    KOLO_FOR_COLUMNS(n->dtype, c, T, W,                                                                      \
                     rc = KOLO_LAUNCH((norm_forward_kernel<T, W, RESIDUAL>), blocks, KOLO_COLUMN_THREADS, 0, \
                                      kolo_cuda_stream(k), *c, *f, other ? *other : *f, (T *)y,              \
                                      (uint8_t *)signs, (const T *)x, (const T *)residual))

/* other: NULL, or the residual's norm */
static int run_forward(const kolo_kernel *k, const kolo_norm_forward *f, const kolo_norm_forward *other,
                       void *y, void *signs, const void *x, const void *residual)
{
    const kolo_norm *n = (const kolo_norm *)k->state;
    const kolo_columns *c = &n->columns;
    const int blocks = kolo_columns_blocks(c);
    int rc = 0;
    if (other) LAUNCH(NORMED);
    else if (residual) LAUNCH(PLAIN);
    else LAUNCH(NOTHING);
    return rc;
}

/* affine: scale, then bias, of all stored channels; the bias takes the mean with it */
template <typename T>
__global__ void __launch_bounds__(KOLO_COLUMN_THREADS)
    norm_affine_kernel(int channels, int stored, kolo_norm_forward f, T *affine)
{
    const int at = (int)(blockIdx.x * KOLO_COLUMN_THREADS + threadIdx.x);
    if (at >= stored) return;
    const kolo_affine a = kolo_affine_of(f, channels, at, true);
    kolo_round(a.scale, affine + at);
    kolo_round(a.bias - a.mean * a.scale, affine + stored + at);
}

int kolo_cuda_norm_affine(const kolo_kernel *k, void *const *sums_w_b, float *statistic, void *affine,
                          const kolo_step *step, int slot)
{
    const kolo_norm *n = (const kolo_norm *)k->state;
    const kolo_columns *c = &n->columns;
    const kolo_norm_forward f = kolo_norm_forward_of(n, sums_w_b, statistic, step, slot);
    const int blocks = (c->stored + KOLO_COLUMN_THREADS - 1) / KOLO_COLUMN_THREADS;
    int rc = 0;
    KOLO_FOR_COLUMNS(n->dtype, c, T, W,
                     rc = KOLO_LAUNCH((norm_affine_kernel<T>), blocks, KOLO_COLUMN_THREADS, 0,
                                      kolo_cuda_stream(k), c->channels, c->stored, f, (T *)affine));
    return rc;
}

/* in: x, sums, w, b[, residual[, its sums, w, b]]; out: y, statistic[, signs[, its statistic]] */
static int run_apply(const kolo_kernel *k, void *const *args, void *, const kolo_step *step, int slot)
{
    const kolo_norm *n = (const kolo_norm *)k->state;
    void *const *out = args + n->inputs;
    const bool two = n->inputs > 5;
    const kolo_norm_forward f = kolo_norm_forward_of(n, args + 1, out[1], step, slot),
                            other = two ? kolo_norm_forward_of(n, args + 5, out[3], step, slot) : f;
    return run_forward(k, &f, two ? &other : NULL, out[0], n->outputs > 2 ? out[2] : NULL, args[0],
                       n->inputs > 4 ? args[4] : NULL);
}

/* in: x, w, b, mean, variance[, residual]; out: y */
static int run_infer(const kolo_kernel *k, void *const *args, void *, const kolo_step *step, int slot)
{
    const kolo_norm *n = (const kolo_norm *)k->state;
    const kolo_norm_forward f = {NULL,
                                 {(const float *)args[3], (const float *)args[4]},
                                 (const float *)args[1],
                                 (const float *)args[2],
                                 NULL,
                                 n->epsilon,
                                 n->relu,
                                 step,
                                 slot};
    return run_forward(k, &f, NULL, args[n->inputs], NULL, args[0], n->inputs > 5 ? args[5] : NULL);
}

static int cuda_norm_apply_prepare(const kolo_kernel_request *r, kolo_kernel *k)
{
    KOLO_TRY(kolo_norm_prepare(r, k, kolo_cuda_view_in(r, 0)));
    k->run = r->node->op == KOLO_OP_norm_apply ? run_apply : run_infer;
    return 0;
}

const kolo_op_row kolo_cuda_norm_apply = {kolo_nhwc_layout, cuda_norm_apply_prepare};
const kolo_op_row kolo_cuda_norm_infer = {NULL, cuda_norm_apply_prepare};
