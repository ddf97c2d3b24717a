/* The weight's gradient of a depthwise convolution: dw(c, i, j) = sum over images and pixels of dy(h, w,
 * c) x(h s - p + i d, w s - p + j d, c). A block walks over tiles of dy and x in shared memory; each of its
 * warps keeps the sums of TAPS taps of a line of channels in registers. Sums of blocks are added by a
 * second kernel in f64. */
#include "ops/cuda/columns.cuh"
#include "ops/cuda/depthwise.cuh"

enum { TAPS = 10, TILE = KOLO_DEPTH_TILE, LANES = KOLO_DEPTH_LANES, BLOCKS = 1024, MOST_WARPS = 32 };

KOLO_INLINE int side_of(const kolo_depthwise &p, int axis, int results)
{
    return (results - 1) * p.stride[axis] + (p.kernel[axis] - 1) * p.dilation[axis] + 1;
}

/* partial: (splits, taps, stored) f64. Block: line of channels, split. */
template <typename T>
__global__ void __launch_bounds__(MOST_WARPS * 32)
    depthwise_weight_kernel(double *partial, const T *x, const T *dy, kolo_depthwise p)
{
    enum { P = kolo_depth<T>::P, LINE = kolo_depth<T>::LINE };
    KOLO_SHARED(uint32_t, tile); /* of dy, then of x */
    const int wide = side_of(p, 1, TILE), high = side_of(p, 0, p.tall);
    uint32_t *input = tile + p.tall * TILE * LANES;
    const int lane = (int)threadIdx.x % 32, warp = (int)threadIdx.x / 32, chunk = warp % p.chunks,
              part = warp / p.chunks, parts = p.warps / p.chunks;
    const int group = (int)blockIdx.x % p.groups, split = (int)blockIdx.x / p.groups;
    const int all = p.rows * p.tiles[0] * p.tiles[1],
              end = (split + 1) * p.each < all ? (split + 1) * p.each : all;
    int offset[TAPS];
    float sum[TAPS][P];
#pragma unroll
    for (int u = 0; u < TAPS; u++) {
        const int tap = chunk * TAPS + u, i = tap < p.taps ? tap / p.kernel[1] : 0,
                  j = tap < p.taps ? tap - i * p.kernel[1] : 0;
        offset[u] = (i * p.dilation[0] * wide + j * p.dilation[1]) * LANES + lane;
        for (int k = 0; k < P; k++) sum[u][k] = 0;
    }
    for (int t = split * p.each; t < end; t++) {
        const int line = t / p.tiles[1], n = line / p.tiles[0];
        const int top = (line - n * p.tiles[0]) * p.tall, left = (t - line * p.tiles[1]) * TILE;
        __syncthreads(); /* the tile before has been read */
        kolo_depth_load(tile, dy, n, p.out_height, p.out_width, p.stored, top, left, p.tall, TILE, group);
        kolo_depth_load(input, x, n, p.height, p.width, p.stored, top * p.stride[0] - p.pad[0],
                        left * p.stride[1] - p.pad[1], high, wide, group);
        __syncthreads();
        for (int r = part; r < p.tall; r += parts)
            for (int c = 0; c < TILE; c++) {
                const uint32_t *at = input + (r * p.stride[0] * wide + c * p.stride[1]) * LANES;
                float d[P];
                kolo_unpack(dy, tile[(r * TILE + c) * LANES + lane], d);
#pragma unroll
                for (int u = 0; u < TAPS; u++) {
                    float v[P];
                    kolo_unpack(x, at[offset[u]], v);
                    for (int k = 0; k < P; k++) sum[u][k] += d[k] * v[k];
                }
            }
    }
    __syncthreads();
    float *own = (float *)tile; /* [warps][TAPS][LINE] */
    for (int u = 0; u < TAPS; u++)
        for (int k = 0; k < P; k++) own[(warp * TAPS + u) * LINE + lane * P + k] = sum[u][k];
    __syncthreads();
    for (int i = (int)threadIdx.x; i < p.taps * LINE; i += (int)blockDim.x) {
        const int tap = i / LINE, c = group * LINE + i - tap * LINE, from = tap / TAPS, u = tap - from * TAPS;
        double total = 0;
        for (int k = 0; k < parts; k++)
            total += (double)own[((k * p.chunks + from) * TAPS + u) * LINE + i - tap * LINE];
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

static size_t shared_bytes(const kolo_depthwise *p)
{
    const size_t tiles =
        ((size_t)p->tall * TILE + (size_t)side_of(*p, 0, p->tall) * (size_t)side_of(*p, 1, TILE)) * LANES * 4;
    const size_t sums = (size_t)p->warps * TAPS * LANES * (p->dtype == KOLO_F32 ? 4 : 8);
    return tiles > sums ? tiles : sums;
}

static kolo_columns columns_of(const kolo_depthwise *p)
{
    kolo_columns c = {};
    c.channels = c.stored = p->taps * p->stored;
    c.chunks = p->splits;
    return c;
}

/* in: x, dy; out: dw[, dbias] */
static int cuda_depthwise_weight_run(const kolo_kernel *k, void *const *args, void *workspace,
                                     const kolo_step *, int)
{
    const kolo_depthwise *p = (const kolo_depthwise *)k->state;
    const kolo_columns c = columns_of(p);
    double *partial = (double *)workspace;
    if (args[2]) {
        KOLO_FOR_DTYPE(p->dtype, T,
                       KOLO_TRY(KOLO_LAUNCH(depthwise_weight_kernel<T>, (int64_t)p->splits * p->groups,
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
    p->chunks = (p->taps + TAPS - 1) / TAPS;
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
