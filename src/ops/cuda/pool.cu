/* Max and average pooling. A thread makes one vector of channels of one pixel of the result; a
 * gradient is gathered from the windows that hold the pixel, in the order of the CPU's sums, so
 * nothing is ever added to memory. */
#include "ops/cuda/pool.cuh"

extern "C" {
#include "base/memory.h"
}

enum { THREADS = 256 };

/* ---- max ----------------------------------------------------------------------------------------------- */

/* K: rows and columns of the window, 0: any. Positions outside read the nearest pixel inside and do not
 * count, so that all reads of a window can be on their way at once. As torch: the first maximum; a NaN
 * wins. */
template <typename T, int K>
__global__ void __launch_bounds__(THREADS) max_kernel(T *y, uint8_t *index, const T *x, kolo_pool p)
{
    const int N = kolo_vector<T>::N, rows = K ? K : p.kernel[0], columns = K ? K : p.kernel[1];
    const uint32_t item = blockIdx.x * THREADS + threadIdx.x;
    if (item >= p.cells.items) return;
    const kolo_cell c = kolo_cell_at(&p.cells, item);
    const int top = c.h * p.stride[0] - p.pad[0], left = c.w * p.stride[1] - p.pad[1];
    float most[N];
    uint32_t at[N];
#pragma unroll
    for (int l = 0; l < N; l++) {
        most[l] = kolo_bits_float(0xFF800000u); /* -infinity */
        at[l] = (uint32_t)(kolo_larger_of(-top, 0) * columns + kolo_larger_of(-left, 0));
    }
#pragma unroll(K ? K : 1)
    for (int i = 0; i < rows; i++)
#pragma unroll(K ? K : 1)
        for (int j = 0; j < columns; j++) {
            const int h = kolo_smaller_of(kolo_larger_of(top + i, 0), p.height - 1),
                      w = kolo_smaller_of(kolo_larger_of(left + j, 0), p.width - 1);
            const bool inside = h == top + i && w == left + j;
            float v[N];
            kolo_load16(x + kolo_pool_place(&p, p.height, p.width, &c, h, w, N), v);
#pragma unroll
            for (int l = 0; l < N; l++) {
                const bool larger = inside && (v[l] > most[l] || v[l] != v[l]);
                most[l] = larger ? v[l] : most[l];
                at[l] = larger ? (uint32_t)(i * columns + j) : at[l];
            }
        }
    kolo_positions<T> packed = {};
#pragma unroll
    for (int l = 0; l < N; l++) packed.at[l / 4] |= at[l] << (l % 4 * 8);
    kolo_store16(y + (int64_t)item * N, most);
    *(kolo_positions<T> *)(index + (int64_t)item * N) = packed;
}

template <typename T, int MOST>
__global__ void __launch_bounds__(THREADS)
    max_grad_kernel(T *dx, const T *dy, const uint8_t *index, kolo_pool p)
{
    const uint32_t item = blockIdx.x * THREADS + threadIdx.x;
    if (item >= p.cells.items) return;
    const kolo_cell c = kolo_cell_at(&p.cells, item);
    float sum[kolo_vector<T>::N];
    kolo_pool_gather<T, MOST>(sum, &p, &c, dy, index);
    kolo_store16(dx + (int64_t)item * kolo_vector<T>::N, sum);
}

/* ---- average ------------------------------------------------------------------------------------------- */

/* Positions of the window from `first` on that lie inside [0, size). */
KOLO_INLINE int inside(int first, int kernel, int size)
{
    return kolo_smaller_of(first + kernel, size) - kolo_larger_of(first, 0);
}

/* 1 / pixels that the window of pixel (h, w) of y is divided by. */
KOLO_INLINE float share(const kolo_pool *p, int h, int w)
{
    const int rows =
                  p->count_pad ? p->kernel[0] : inside(h * p->stride[0] - p->pad[0], p->kernel[0], p->height),
              columns =
                  p->count_pad ? p->kernel[1] : inside(w * p->stride[1] - p->pad[1], p->kernel[1], p->width);
    return 1.0f / ((float)rows * (float)columns);
}

template <typename T>
__global__ void __launch_bounds__(THREADS, 4 /* resident: so many registers are not spilled */)
    avg_kernel(T *y, const T *x, kolo_pool p)
{
    const int N = kolo_vector<T>::N;
    const uint32_t item = blockIdx.x * THREADS + threadIdx.x;
    if (item >= p.cells.items) return;
    const kolo_cell c = kolo_cell_at(&p.cells, item);
    const float scale = share(&p, c.h, c.w);
    const int top = c.h * p.stride[0] - p.pad[0], left = c.w * p.stride[1] - p.pad[1];
    const int bottom = kolo_smaller_of(top + p.kernel[0], p.height),
              right = kolo_smaller_of(left + p.kernel[1], p.width);
    float sum[N] = {};
    for (int h = kolo_larger_of(top, 0); h < bottom; h++)
        for (int w = kolo_larger_of(left, 0); w < right; w++) {
            float v[N];
            kolo_load16(x + kolo_pool_place(&p, p.height, p.width, &c, h, w, N), v);
#pragma unroll
            for (int l = 0; l < N; l++) sum[l] += v[l];
        }
#pragma unroll
    for (int l = 0; l < N; l++) sum[l] *= scale;
    kolo_store16(y + (int64_t)item * N, sum);
}

template <typename T>
__global__ void __launch_bounds__(THREADS) avg_grad_kernel(T *dx, const T *dy, kolo_pool p)
{
    const int N = kolo_vector<T>::N;
    const uint32_t item = blockIdx.x * THREADS + threadIdx.x;
    if (item >= p.cells.items) return;
    const kolo_cell c = kolo_cell_at(&p.cells, item);
    const kolo_holders rows = kolo_holders_of(&p, 0, c.h + p.pad[0], p.out_height),
                       columns = kolo_holders_of(&p, 1, c.w + p.pad[1], p.out_width);
    float sum[N] = {};
    for (int h = rows.last; h >= rows.first; h--)
        for (int w = columns.last; w >= columns.first; w--) {
            const float scale = share(&p, h, w);
            float v[N];
            kolo_load16(dy + kolo_pool_place(&p, p.out_height, p.out_width, &c, h, w, N), v);
#pragma unroll
            for (int l = 0; l < N; l++) sum[l] += scale * v[l];
        }
    kolo_store16(dx + (int64_t)item * N, sum);
}

/* ---- host ---------------------------------------------------------------------------------------------- */

static unsigned grid_of(const kolo_pool *p) { return (p->cells.items + THREADS - 1) / THREADS; }

#define LAUNCH(kernel, ...) KOLO_LAUNCH(kernel, grid_of(p), THREADS, 0, kolo_cuda_stream(k), __VA_ARGS__, *p)

template <typename T> static int max_launch(const kolo_kernel *k, T *y, uint8_t *index, const T *x)
{
    const kolo_pool *p = (const kolo_pool *)k->state;
    const int side = kolo_pool_side(p);
    if (side == 2) return LAUNCH((max_kernel<T, 2>), y, index, x);
    if (side == 3) return LAUNCH((max_kernel<T, 3>), y, index, x);
    return LAUNCH((max_kernel<T, 0>), y, index, x);
}

template <typename T>
static int max_grad_launch(const kolo_kernel *k, T *dx, const T *dy, const uint8_t *index)
{
    const kolo_pool *p = (const kolo_pool *)k->state;
    const int most = kolo_pool_most(p);
    if (most == 1) return LAUNCH((max_grad_kernel<T, 1>), dx, dy, index);
    if (most == 2) return LAUNCH((max_grad_kernel<T, 2>), dx, dy, index);
    return LAUNCH((max_grad_kernel<T, 0>), dx, dy, index);
}

static int run_max(const kolo_kernel *k, void *const *args, void *, const kolo_step *, int)
{
    KOLO_FOR_DTYPE(((const kolo_pool *)k->state)->dtype, T,
                   return max_launch(k, (T *)args[1], (uint8_t *)args[2], (const T *)args[0]));
}

static int run_max_grad(const kolo_kernel *k, void *const *args, void *, const kolo_step *, int)
{
    KOLO_FOR_DTYPE(((const kolo_pool *)k->state)->dtype, T,
                   return max_grad_launch(k, (T *)args[2], (const T *)args[0], (const uint8_t *)args[1]));
}

static int run_avg(const kolo_kernel *k, void *const *args, void *, const kolo_step *, int)
{
    const kolo_pool *p = (const kolo_pool *)k->state;
    KOLO_FOR_DTYPE(p->dtype, T, return LAUNCH(avg_kernel<T>, (T *)args[1], (const T *)args[0]));
}

static int run_avg_grad(const kolo_kernel *k, void *const *args, void *, const kolo_step *, int)
{
    const kolo_pool *p = (const kolo_pool *)k->state;
    KOLO_FOR_DTYPE(p->dtype, T, return LAUNCH(avg_grad_kernel<T>, (T *)args[1], (const T *)args[0]));
}

static int cuda_pool_prepare(const kolo_kernel_request *r, kolo_kernel *k)
{
    const enum kolo_op op = r->node->op;
    const bool backward = op == KOLO_OP_max_pool_grad || op == KOLO_OP_avg_pool_grad;
    const kolo_cuda_view in = kolo_cuda_view_in(r, 0), out = kolo_cuda_view_out(r, 0);
    kolo_pool *p = (kolo_pool *)kolo_alloc(sizeof *p);
    if (!p) return KOLO_ENOMEM;
    k->state = p;
    k->release = free;
    KOLO_TRY(kolo_pool_fill(p, &r->node->a, backward ? &out : &in, backward ? &in : &out, backward));
    if (op == KOLO_OP_max_pool) k->run = run_max;
    else if (op == KOLO_OP_max_pool_grad) k->run = run_max_grad;
    else k->run = op == KOLO_OP_avg_pool ? run_avg : run_avg_grad;
    snprintf(k->name, sizeof k->name, "own %s %dx%d", kolo_dtype_name(p->dtype), p->kernel[0], p->kernel[1]);
    return 0;
}

const kolo_op_row kolo_cuda_max_pool = {NULL, cuda_pool_prepare};
const kolo_op_row kolo_cuda_avg_pool = {NULL, cuda_pool_prepare};
const kolo_op_row kolo_cuda_max_pool_grad = {NULL, cuda_pool_prepare};
const kolo_op_row kolo_cuda_avg_pool_grad = {NULL, cuda_pool_prepare};
