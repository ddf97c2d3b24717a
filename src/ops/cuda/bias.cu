/* Biases of convolutions and linear layers where the library does not add them itself, and their
 * gradients. For each element 4 bytes in 16-bit types (y read and written) and 2 (dy read) pass through
 * the memory; f32: twice as many. */
#include "ops/cuda/columns.cuh"

template <typename T, int W>
__global__ void __launch_bounds__(KOLO_COLUMN_THREADS)
    bias_add_kernel(kolo_columns c, T *y, const float *bias)
{
    const kolo_place p = kolo_place_of<W>(c, blockIdx.x, threadIdx.x, false);
    const int64_t line = (int64_t)c.down * c.stored;
    float own[W];
    for (int k = 0; k < W; k++) own[k] = p.channel + k < c.channels ? bias[p.channel + k] : 0;
    int64_t at = p.at;
    for (int l = p.first; l < p.end; l += KOLO_COLUMN_BATCH * c.down, at += KOLO_COLUMN_BATCH * line) {
        kolo_loaded<T, W> v[KOLO_COLUMN_BATCH];
        kolo_columns_load_batch(v, (const T *)y + at, c, l, p.end);
#pragma unroll
        for (int u = 0; u < KOLO_COLUMN_BATCH; u++) {
            if (l + u * c.down >= p.end) continue;
            float value[W];
            kolo_columns_widen(value, v[u]);
            for (int k = 0; k < W; k++) value[k] += own[k];
            kolo_columns_store(y + at + u * line, value);
        }
    }
}

template <typename T, int W>
__global__ void __launch_bounds__(KOLO_COLUMN_THREADS)
    bias_sum_kernel(kolo_columns c, const T *dy, double *partial)
{
    const kolo_place p = kolo_place_of<W>(c, blockIdx.x, threadIdx.x, true);
    const int64_t line = (int64_t)c.down * c.stored;
    float sum[W];
    for (int k = 0; k < W; k++) sum[k] = 0;
    const T *at = dy + p.at;
    for (int l = p.first; l < p.end; l += KOLO_COLUMN_BATCH * c.down, at += KOLO_COLUMN_BATCH * line) {
        kolo_loaded<T, W> v[KOLO_COLUMN_BATCH];
        kolo_columns_load_batch(v, at, c, l, p.end);
#pragma unroll
        for (int u = 0; u < KOLO_COLUMN_BATCH; u++) {
            if (l + u * c.down >= p.end) continue;
            float value[W];
            kolo_columns_widen(value, v[u]);
            for (int k = 0; k < W; k++) sum[k] += value[k];
        }
    }
    __shared__ kolo_column_room<W, 1> room;
    double all[1][W];
    for (int k = 0; k < W; k++) all[0][k] = sum[k];
    kolo_columns_combine<W, 1>(all, c, p, partial, room);
}

static __global__ void __launch_bounds__(KOLO_COLUMN_THREADS)
    bias_sum_finish_kernel(kolo_columns c, float *dbias, const double *partial)
{
    const kolo_finish f = kolo_columns_finish(partial, c, 1);
    if (f.mine) dbias[f.channel] = (float)f.sum;
}

static cudaStream_t stream_of(const kolo_backend *b) { return kolo_cuda_of(b)->stream[KOLO_LANE_COMPUTE]; }

int kolo_cuda_bias_add(kolo_backend *b, void *y, enum kolo_dtype dtype, const float *bias, int64_t rows,
                       int64_t stored, int64_t channels)
{
    kolo_columns c = {};
    KOLO_TRY(kolo_columns_cut(&c, rows, 1, stored, channels, dtype));
    int rc = 0;
    KOLO_FOR_COLUMNS(dtype, &c, T, W,
                     rc = KOLO_LAUNCH((bias_add_kernel<T, W>), kolo_columns_blocks(&c), KOLO_COLUMN_THREADS,
                                      0, stream_of(b), c, (T *)y, bias));
    return rc;
}

/* As much as any type needs: the caller's plan is made before it says which. */
size_t kolo_cuda_bias_workspace(int64_t rows, int64_t stored)
{
    size_t most = 0;
    for (int i = 0; i < 2; i++) {
        kolo_columns c = {};
        if (kolo_columns_cut(&c, rows, 1, stored, stored, i ? KOLO_BF16 : KOLO_F32) < 0)
            return 0; /* the launch will say why */
        size_t bytes = kolo_columns_workspace(&c, 1);
        most = bytes > most ? bytes : most;
    }
    return most;
}

int kolo_cuda_bias_grad(kolo_backend *b, float *dbias, const void *dy, enum kolo_dtype dtype, int64_t rows,
                        int64_t stored, int64_t channels, void *workspace)
{
    kolo_columns c = {};
    KOLO_TRY(kolo_columns_cut(&c, rows, 1, stored, channels, dtype));
    int rc = 0;
    KOLO_FOR_COLUMNS(dtype, &c, T, W,
                     rc = KOLO_LAUNCH((bias_sum_kernel<T, W>), kolo_columns_blocks(&c), KOLO_COLUMN_THREADS,
                                      0, stream_of(b), c, (const T *)dy, (double *)workspace));
    KOLO_TRY(rc);
    return KOLO_LAUNCH(bias_sum_finish_kernel, kolo_columns_finish_blocks(&c, 1), KOLO_COLUMN_THREADS, 0,
                       stream_of(b), c, dbias, (const double *)workspace);
}
