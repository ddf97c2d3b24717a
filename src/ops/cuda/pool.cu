/* Max and average pooling. A thread makes one vector of channels of one pixel of the result; a gradient is gathered from the windows that
 * hold the pixel, in the order of the CPU's sums, so nothing is ever added to memory. */
#include "ops/cuda/cells.cuh"

extern "C" {
#include "base/memory.h"
}

enum { THREADS = 256 };

typedef struct pool {
    kolo_cells cells;                                 /* of the result: y, or dx */
    int height, width, out_height, out_width, stored; /* of x, of y, of both */
    int kernel[2], stride[2], pad[2];
    kolo_divisor step[2]; /* division by stride */
    bool count_pad;
    enum kolo_dtype dtype;
} pool;

/* The window position of every channel of a vector: a byte each. */
template <typename T> struct __attribute__((may_alias)) __align__(16 / sizeof(T)) positions
{
    uint32_t at[4 / sizeof(T)];
};

KOLO_INLINE int larger_of(int a, int b) { return a > b ? a : b; }
KOLO_INLINE int smaller_of(int a, int b) { return a < b ? a : b; }

/* Element of pixel (h, w) of row n of a map of `height` x `width`, vector v. */
KOLO_INLINE int64_t place(const pool *p, int height, int width, const kolo_cell *c, int h, int w, int channels)
{
    return ((int64_t)(c->n * height + h) * width + w) * p->stored + c->v * channels;
}

/* ---- max ----------------------------------------------------------------------------------------------------------- */

/* K: rows and columns of the window, 0: any. Positions outside read the nearest pixel inside and do not count, so that all reads
 * of a window can be on their way at once. As torch: the first maximum; a NaN wins. */
template <typename T, int K>
__global__ void __launch_bounds__(THREADS) max_kernel(T *y, uint8_t *index, const T *x, pool p)
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
        at[l] = (uint32_t)(larger_of(-top, 0) * columns + larger_of(-left, 0));
    }
#pragma unroll(K ? K : 1)
    for (int i = 0; i < rows; i++)
#pragma unroll(K ? K : 1)
        for (int j = 0; j < columns; j++) {
            const int h = smaller_of(larger_of(top + i, 0), p.height - 1),
                      w = smaller_of(larger_of(left + j, 0), p.width - 1);
            const bool inside = h == top + i && w == left + j;
            float v[N];
            kolo_load16(x + place(&p, p.height, p.width, &c, h, w, N), v);
#pragma unroll
            for (int l = 0; l < N; l++) {
                const bool larger = inside && (v[l] > most[l] || v[l] != v[l]);
                most[l] = larger ? v[l] : most[l];
                at[l] = larger ? (uint32_t)(i * columns + j) : at[l];
            }
        }
    positions<T> packed = {};
#pragma unroll
    for (int l = 0; l < N; l++) packed.at[l / 4] |= at[l] << (l % 4 * 8);
    kolo_store16(y + (int64_t)item * N, most);
    *(positions<T> *)(index + (int64_t)item * N) = packed;
}

/* The rows (or columns) of y whose windows hold a row (or column) of x, `at` = its number + pad. */
typedef struct holders {
    int first, last;
} holders;
KOLO_INLINE holders holders_of(const pool *p, int axis, int at, int out)
{
    const int kernel = p->kernel[axis], last = (int)kolo_quotient((uint32_t)at, p->step[axis]);
    holders r = {at < kernel ? 0 : (int)kolo_quotient((uint32_t)(at - kernel), p->step[axis]) + 1,
                 smaller_of(last, out - 1)};
    return r;
}

/* W: most windows that hold one row or column, 0: any number. */
template <typename T, int W>
__global__ void __launch_bounds__(THREADS) max_grad_kernel(T *dx, const T *dy, const uint8_t *index, pool p)
{
    const int N = kolo_vector<T>::N;
    const uint32_t item = blockIdx.x * THREADS + threadIdx.x;
    if (item >= p.cells.items) return;
    const kolo_cell c = kolo_cell_at(&p.cells, item);
    const int down = c.h + p.pad[0], right = c.w + p.pad[1];
    const holders rows = holders_of(&p, 0, down, p.out_height), columns = holders_of(&p, 1, right, p.out_width);
    float sum[N] = {};
#pragma unroll(W ? W : 1)
    for (int i = 0; i < (W ? W : rows.last - rows.first + 1); i++)
#pragma unroll(W ? W : 1)
        for (int j = 0; j < (W ? W : columns.last - columns.first + 1); j++) {
            const int h = rows.last - i, w = columns.last - j;
            if (W && (h < rows.first || w < columns.first)) continue;
            const int64_t from = place(&p, p.out_height, p.out_width, &c, h, w, N);
            const int position = (down - h * p.stride[0]) * p.kernel[1] + right - w * p.stride[1];
            const positions<T> maximum = *(const positions<T> *)(index + from);
            float v[N];
            kolo_load16(dy + from, v);
#pragma unroll
            for (int l = 0; l < N; l++) {
                const uint32_t differ = maximum.at[l / 4] ^ (uint32_t)position * 0x01010101u;
                if (!(differ & 0xFFu << (l % 4 * 8))) sum[l] += v[l];
            }
        }
    kolo_store16(dx + (int64_t)item * N, sum);
}

/* ---- average ------------------------------------------------------------------------------------------------------- */

/* Positions of the window from `first` on that lie inside [0, size). */
KOLO_INLINE int inside(int first, int kernel, int size)
{
    return smaller_of(first + kernel, size) - larger_of(first, 0);
}

/* 1 / pixels that the window of pixel (h, w) of y is divided by. */
KOLO_INLINE float share(const pool *p, int h, int w)
{
    const int rows = p->count_pad ? p->kernel[0] : inside(h * p->stride[0] - p->pad[0], p->kernel[0], p->height),
              columns = p->count_pad ? p->kernel[1] : inside(w * p->stride[1] - p->pad[1], p->kernel[1], p->width);
    return 1.0f / ((float)rows * (float)columns);
}

template <typename T>
__global__ void __launch_bounds__(THREADS, 4 /* resident: so many registers are not spilled */)
    avg_kernel(T *y, const T *x, pool p)
{
    const int N = kolo_vector<T>::N;
    const uint32_t item = blockIdx.x * THREADS + threadIdx.x;
    if (item >= p.cells.items) return;
    const kolo_cell c = kolo_cell_at(&p.cells, item);
    const float scale = share(&p, c.h, c.w);
    const int top = c.h * p.stride[0] - p.pad[0], left = c.w * p.stride[1] - p.pad[1];
    const int bottom = smaller_of(top + p.kernel[0], p.height), right = smaller_of(left + p.kernel[1], p.width);
    float sum[N] = {};
    for (int h = larger_of(top, 0); h < bottom; h++)
        for (int w = larger_of(left, 0); w < right; w++) {
            float v[N];
            kolo_load16(x + place(&p, p.height, p.width, &c, h, w, N), v);
#pragma unroll
            for (int l = 0; l < N; l++) sum[l] += v[l];
        }
#pragma unroll
    for (int l = 0; l < N; l++) sum[l] *= scale;
    kolo_store16(y + (int64_t)item * N, sum);
}

template <typename T> __global__ void __launch_bounds__(THREADS) avg_grad_kernel(T *dx, const T *dy, pool p)
{
    const int N = kolo_vector<T>::N;
    const uint32_t item = blockIdx.x * THREADS + threadIdx.x;
    if (item >= p.cells.items) return;
    const kolo_cell c = kolo_cell_at(&p.cells, item);
    const holders rows = holders_of(&p, 0, c.h + p.pad[0], p.out_height),
                  columns = holders_of(&p, 1, c.w + p.pad[1], p.out_width);
    float sum[N] = {};
    for (int h = rows.last; h >= rows.first; h--)
        for (int w = columns.last; w >= columns.first; w--) {
            const float scale = share(&p, h, w);
            float v[N];
            kolo_load16(dy + place(&p, p.out_height, p.out_width, &c, h, w, N), v);
#pragma unroll
            for (int l = 0; l < N; l++) sum[l] += scale * v[l];
        }
    kolo_store16(dx + (int64_t)item * N, sum);
}

/* ---- host ---------------------------------------------------------------------------------------------------------- */

static unsigned grid_of(const pool *p) { return (p->cells.items + THREADS - 1) / THREADS; }

#define LAUNCH(kernel, ...) KOLO_LAUNCH(kernel, grid_of(p), THREADS, 0, kolo_cuda_stream(k), __VA_ARGS__, *p)

template <typename T> static int max_launch(const kolo_kernel *k, T *y, uint8_t *index, const T *x)
{
    const pool *p = (const pool *)k->state;
    const int size = p->kernel[0] == p->kernel[1] ? p->kernel[0] : 0;
    if (size == 2) return LAUNCH((max_kernel<T, 2>), y, index, x);
    if (size == 3) return LAUNCH((max_kernel<T, 3>), y, index, x);
    return LAUNCH((max_kernel<T, 0>), y, index, x);
}

template <typename T> static int max_grad_launch(const kolo_kernel *k, T *dx, const T *dy, const uint8_t *index)
{
    const pool *p = (const pool *)k->state;
    const bool apart = p->kernel[0] <= p->stride[0] && p->kernel[1] <= p->stride[1];
    if (apart) return LAUNCH((max_grad_kernel<T, 1>), dx, dy, index);
    if (p->kernel[0] <= 2 * p->stride[0] && p->kernel[1] <= 2 * p->stride[1])
        return LAUNCH((max_grad_kernel<T, 2>), dx, dy, index);
    return LAUNCH((max_grad_kernel<T, 0>), dx, dy, index);
}

static int run_max(const kolo_kernel *k, void *const *args, void *, const kolo_step *, int)
{
    KOLO_FOR_DTYPE(((const pool *)k->state)->dtype, T,
                   return max_launch(k, (T *)args[1], (uint8_t *)args[2], (const T *)args[0]));
}

static int run_max_grad(const kolo_kernel *k, void *const *args, void *, const kolo_step *, int)
{
    KOLO_FOR_DTYPE(((const pool *)k->state)->dtype, T,
                   return max_grad_launch(k, (T *)args[2], (const T *)args[0], (const uint8_t *)args[1]));
}

static int run_avg(const kolo_kernel *k, void *const *args, void *, const kolo_step *, int)
{
    const pool *p = (const pool *)k->state;
    KOLO_FOR_DTYPE(p->dtype, T, return LAUNCH(avg_kernel<T>, (T *)args[1], (const T *)args[0]));
}

static int run_avg_grad(const kolo_kernel *k, void *const *args, void *, const kolo_step *, int)
{
    const pool *p = (const pool *)k->state;
    KOLO_FOR_DTYPE(p->dtype, T, return LAUNCH(avg_grad_kernel<T>, (T *)args[1], (const T *)args[0]));
}

/* The kernels count in 32 bits: sums of two of these lengths fit. */
static int fill(pool *p, const kolo_attributes *a, const kolo_cuda_view *x, const kolo_cuda_view *y)
{
    const int64_t limit = INT64_C(1) << 29;
    if (x->height > limit || x->width > limit || a->kernel[0] > limit || a->kernel[1] > limit)
        return kolo_fail(KOLO_ECONFIG, "a pooling window of %ld x %ld over %ld x %ld pixels is too large",
                         (long)a->kernel[0], (long)a->kernel[1], (long)x->height, (long)x->width);
    p->height = (int)x->height, p->width = (int)x->width;
    p->out_height = (int)y->height, p->out_width = (int)y->width;
    p->stored = (int)x->stored;
    for (int axis = 0; axis < 2; axis++) {
        p->kernel[axis] = (int)a->kernel[axis];
        p->stride[axis] = (int)a->stride[axis];
        p->pad[axis] = (int)a->pad[axis];
        p->step[axis] = kolo_divisor_of(a->stride[axis]);
    }
    p->count_pad = a->count_pad;
    p->dtype = x->dtype;
    return 0;
}

static int prepare(const kolo_kernel_request *r, kolo_kernel *k)
{
    const enum kolo_op op = r->node->op;
    const bool backward = op == KOLO_OP_max_pool_grad || op == KOLO_OP_avg_pool_grad;
    const kolo_cuda_view in = kolo_cuda_view_in(r, 0), out = kolo_cuda_view_out(r, 0);
    pool *p = (pool *)kolo_alloc(sizeof *p);
    if (!p) return KOLO_ECONFIG;
    k->state = p;
    k->release = free;
    KOLO_TRY(fill(p, &r->node->a, backward ? &out : &in, backward ? &in : &out));
    KOLO_TRY(kolo_cells_of(&in, &p->cells)); /* is it small enough? */
    KOLO_TRY(kolo_cells_of(&out, &p->cells));
    if (op == KOLO_OP_max_pool) k->run = run_max;
    else if (op == KOLO_OP_max_pool_grad) k->run = run_max_grad;
    else k->run = op == KOLO_OP_avg_pool ? run_avg : run_avg_grad;
    snprintf(k->name, sizeof k->name, "own %s %dx%d", kolo_dtype_name(p->dtype), p->kernel[0], p->kernel[1]);
    return 0;
}

const kolo_op_row kolo_cuda_max_pool = {NULL, prepare};
const kolo_op_row kolo_cuda_avg_pool = {NULL, prepare};
const kolo_op_row kolo_cuda_max_pool_grad = {NULL, prepare};
const kolo_op_row kolo_cuda_avg_pool_grad = {NULL, prepare};
