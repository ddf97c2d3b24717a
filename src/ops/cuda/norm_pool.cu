/* norm_max_pool: the largest element of y = relu((x - mean) scale + bias) in every window, and the batch's
 * statistic. y is rounded to its type before it is compared, as if it had been stored, so the result and the
 * choice among equal elements are those of norm_apply and max_pool. norm.cuh says how many bytes that takes.
 *
 * A thread makes pixels of the result one below the other, as in columns.cuh, with channels that it keeps.
 * What it reads of x its neighbours read too: the caches have it. */
#include "ops/cuda/norm.cuh"

/* ---- the largest --------------------------------------------------------------------------------------- */

/* Of the vectors of y that were met the first largest element of each channel; where none is above 0, 0 at
 * the position that it began with. A NaN is larger than all.
 *
 * In 16 bits a channel is one whole number: the bits of y above what is left to the last position. Numbers
 * above 0 have the order of their bits, those below are negative, and a NaN is 0x7FFF (kolo_repack). */
enum { LAST = 0xFFFF };
template <typename T> struct largest {
    int key[kolo_vector<T>::N];
};
template <> struct largest<float> {
    float value[4];
    int at[4];
};

template <typename T> KOLO_INLINE void begin(largest<T> *to, int position)
{
#pragma unroll
    for (int l = 0; l < kolo_vector<T>::N; l++) to->key[l] = LAST - position;
}
KOLO_INLINE void begin(largest<float> *to, int position)
{
#pragma unroll
    for (int l = 0; l < 4; l++) to->value[l] = 0, to->at[l] = position;
}

template <typename T> KOLO_INLINE void update_largest(largest<T> *to, const kolo_words &y, int position)
{
    const uint32_t left = (uint32_t)(LAST - position);
#pragma unroll
    for (int l = 0; l < kolo_vector<T>::N; l++) {
        const uint32_t bits = l % 2 ? y.at[l / 2] & 0xFFFF0000u : y.at[l / 2] << 16;
        to->key[l] = kolo_larger_of(to->key[l], (int)(bits | left));
    }
}
KOLO_INLINE void update_largest(largest<float> *to, const kolo_words &y, int position)
{
#pragma unroll
    for (int l = 0; l < 4; l++) {
        const float v = kolo_bits_float(y.at[l]);
        const bool larger = v > to->value[l] || v != v;
        to->value[l] = larger ? v : to->value[l];
        to->at[l] = larger ? position : to->at[l];
    }
}

template <typename T> KOLO_INLINE void split(const largest<T> &from, kolo_words *y, kolo_positions<T> *at)
{
#pragma unroll
    for (int i = 0; i < 4; i++)
        y->at[i] = (uint32_t)from.key[2 * i] >> 16 | ((uint32_t)from.key[2 * i + 1] & 0xFFFF0000u);
#pragma unroll
    for (int l = 0; l < kolo_vector<T>::N; l++)
        at->at[l / 4] |= ((uint32_t)~from.key[l] & 0xFFu) << (l % 4 * 8);
}
KOLO_INLINE void split(const largest<float> &from, kolo_words *y, kolo_positions<float> *at)
{
#pragma unroll
    for (int l = 0; l < 4; l++)
        y->at[l] = kolo_float_bits(from.value[l]), at->at[0] |= (uint32_t)from.at[l] << (l * 8);
}

/* ---- the kernel ---------------------------------------------------------------------------------------- */

/* K: rows and columns of the window, 0: any. What lies outside is read as the nearest pixel inside, again, so
 * that all reads of a window can be on their way at once. */
template <typename T, int K>
__global__ void __launch_bounds__(KOLO_COLUMN_THREADS, 3)
    norm_max_kernel(kolo_columns c, kolo_norm_forward f, kolo_pool pool, T *y, uint8_t *index, const T *x)
{
    enum { W = kolo_vector<T>::N };
    __shared__ float mean_of[KOLO_COLUMN_TILE], scale_of[KOLO_COLUMN_TILE], bias_of[KOLO_COLUMN_TILE];
    const kolo_place p = kolo_place_of<W>(c, blockIdx.x, threadIdx.x, false);
    const int thread = (int)threadIdx.x, valid = kolo_columns_valid(c, f.step->valid[f.slot]);
    const int rows = K ? K : pool.kernel[0], columns = K ? K : pool.kernel[1];
    if (thread < c.across * W) {
        const kolo_affine a = kolo_affine_of(f, c.channels, p.tile * c.across * W + thread, p.chunk == 0);
        mean_of[thread] = a.mean;
        scale_of[thread] = a.scale;
        bias_of[thread] = a.bias;
    }
    __syncthreads();
    float mean[W], scale[W], bias[W];
    kolo_columns_take<W>(mean, mean_of, p);
    kolo_columns_take<W>(scale, scale_of, p);
    kolo_columns_take<W>(bias, bias_of, p);
    int64_t at = p.at;
    for (int line = p.first; line < p.end; line += c.down, at += (int64_t)c.down * c.stored) {
        const kolo_cell cell = kolo_cell_of(&pool.cells, (uint32_t)line, p.channel / W);
        const int top = cell.h * pool.stride[0] - pool.pad[0], left = cell.w * pool.stride[1] - pool.pad[1];
        largest<T> most;
        begin(&most, kolo_larger_of(-top, 0) * columns + kolo_larger_of(-left, 0));
#pragma unroll(K ? K : 1)
        for (int i = 0; i < rows; i++)
#pragma unroll(K ? K : 1)
            for (int j = 0; j < columns; j++) {
                const int h = kolo_smaller_of(kolo_larger_of(top + i, 0), pool.height - 1),
                          w = kolo_smaller_of(kolo_larger_of(left + j, 0), pool.width - 1);
                float v[W];
                kolo_load16(x + kolo_pool_place(&pool, pool.height, pool.width, &cell, h, w, W), v);
                if (line >= valid) continue;
                for (int k = 0; k < W; k++) v[k] = kolo_norm1(v[k], mean[k], scale[k], bias[k]);
                update_largest(&most, kolo_round16(x, v), (h - top) * columns + w - left);
            }
        kolo_words largest_words;
        kolo_positions<T> position = {};
        split(most, &largest_words, &position);
        kolo_write16(y + at, largest_words);
        *(kolo_positions<T> *)(index + at) = position;
    }
}

/* ---- the row ------------------------------------------------------------------------------------------- */

#define LAUNCH(K)                                                                                          \
    KOLO_FOR_DTYPE(n->dtype, T,                                                                            \
                   return KOLO_LAUNCH((norm_max_kernel<T, K>), kolo_columns_blocks(&n->columns),           \
                                      KOLO_COLUMN_THREADS, 0, kolo_cuda_stream(k), n->columns, f, n->pool, \
                                      (T *)out[0], (uint8_t *)out[1], (const T *)args[0]))

/* in: x, sums, w, b; out: y, index, statistic */
static int cuda_norm_pool_run(const kolo_kernel *k, void *const *args, void *, const kolo_step *step,
                              int slot)
{
    const kolo_norm *n = (const kolo_norm *)k->state;
    void *const *out = args + n->inputs;
    const kolo_norm_forward f = kolo_norm_forward_of(n, args + 1, out[2], step, slot);
    const int side = kolo_pool_side(&n->pool);
    if (side == 2) LAUNCH(2);
    if (side == 3) LAUNCH(3);
    LAUNCH(0);
}

static int cuda_norm_pool_prepare(const kolo_kernel_request *r, kolo_kernel *k)
{
    const kolo_cuda_view x = kolo_cuda_view_in(r, 0), y = kolo_cuda_view_out(r, 0);
    KOLO_TRY(kolo_norm_prepare(r, k, y));
    k->run = cuda_norm_pool_run;
    return kolo_pool_fill(&((kolo_norm *)k->state)->pool, &r->node->a, &x, &y, false);
}

const kolo_op_row kolo_cuda_norm_max_pool = {NULL, cuda_norm_pool_prepare};
