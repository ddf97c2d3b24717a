/* Windows of a pool on a GPU: where they lie, and the gradient of a max pool. pool.cu, norm_pool.cu,
 * norm_grad.cu. */
#ifndef KOLO_OPS_CUDA_POOL_CUH
#define KOLO_OPS_CUDA_POOL_CUH

#include "ops/cuda/cells.cuh"

typedef struct kolo_pool {
    kolo_cells cells;                                 /* of the result: y, or dx */
    int height, width, out_height, out_width, stored; /* of x, of y, of both */
    int kernel[2], stride[2], pad[2];
    kolo_divisor step[2]; /* division by stride */
    bool count_pad;
    enum kolo_dtype dtype;
} kolo_pool;

/* The kernels count in 32 bits: sums of two of these lengths fit. backward: the result is dx. */
static inline int kolo_pool_fill(kolo_pool *p, const kolo_attributes *a, const kolo_cuda_view *x,
                                 const kolo_cuda_view *y, bool backward)
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
    KOLO_TRY(kolo_cells_of(backward ? y : x, &p->cells)); /* is it small enough? */
    return kolo_cells_of(backward ? x : y, &p->cells);
}

/* Most windows that hold one row or column of x: 1, 2, or 0: any number. */
static inline int kolo_pool_most(const kolo_pool *p)
{
    if (p->kernel[0] <= p->stride[0] && p->kernel[1] <= p->stride[1]) return 1;
    return p->kernel[0] <= 2 * p->stride[0] && p->kernel[1] <= 2 * p->stride[1] ? 2 : 0;
}

/* The side of a square window of 2 or 3, else 0: any. */
static inline int kolo_pool_side(const kolo_pool *p)
{
    const int side = p->kernel[0] == p->kernel[1] ? p->kernel[0] : 0;
    return side == 2 || side == 3 ? side : 0;
}

KOLO_INLINE int kolo_larger_of(int a, int b) { return a > b ? a : b; }
KOLO_INLINE int kolo_smaller_of(int a, int b) { return a < b ? a : b; }

/* The window position of every channel of a vector: a byte each. */
template <typename T> struct __attribute__((may_alias)) __align__(16 / sizeof(T)) kolo_positions
{
    uint32_t at[4 / sizeof(T)];
};

/* Element of pixel (h, w) of row n of a map of `height` x `width`, vector v. */
KOLO_INLINE int64_t kolo_pool_place(const kolo_pool *p, int height, int width, const kolo_cell *c, int h,
                                    int w, int channels)
{
    return ((int64_t)(c->n * height + h) * width + w) * p->stored + c->v * channels;
}

/* The rows (or columns) of y whose windows hold a row (or column) of x, `at` = its number + pad. */
typedef struct kolo_holders {
    int first, last;
} kolo_holders;
KOLO_INLINE kolo_holders kolo_holders_of(const kolo_pool *p, int axis, int at, int out)
{
    const int kernel = p->kernel[axis], last = (int)kolo_quotient((uint32_t)at, p->step[axis]);
    kolo_holders r = {at < kernel ? 0 : (int)kolo_quotient((uint32_t)(at - kernel), p->step[axis]) + 1,
                      kolo_smaller_of(last, out - 1)};
    return r;
}

/* A vector of the gradient of y, as it lies, and where its windows have their maxima. */
template <typename T> struct kolo_pool_window {
    kolo_words dy;
    kolo_positions<T> maximum;
};

template <typename T>
KOLO_INLINE void kolo_pool_load(kolo_pool_window<T> *to, const kolo_pool *p, const kolo_cell *c, int h, int w,
                                const T *dy, const uint8_t *index)
{
    const int64_t from = kolo_pool_place(p, p->out_height, p->out_width, c, h, w, kolo_vector<T>::N);
    to->dy = kolo_read16(dy + from);
    to->maximum = *(const kolo_positions<T> *)(index + from);
}

/* Adds the channels of window (h, w) of y whose maximum is the pixel of x. */
template <typename T>
KOLO_INLINE void kolo_pool_add(float (&sum)[kolo_vector<T>::N], const kolo_pool_window<T> &from,
                               const kolo_pool *p, const kolo_cell *c, int h, int w)
{
    const int down = c->h + p->pad[0] - h * p->stride[0], right = c->w + p->pad[1] - w * p->stride[1],
              position = down * p->kernel[1] + right;
    float v[kolo_vector<T>::N];
    kolo_widen16((const T *)NULL, from.dy, v);
#pragma unroll
    for (int l = 0; l < kolo_vector<T>::N; l++) {
        const uint32_t differ = from.maximum.at[l / 4] ^ (uint32_t)position * 0x01010101u;
        if (!(differ & 0xFFu << (l % 4 * 8))) sum[l] += v[l];
    }
}

/* The gradient that reaches a vector of x: the sum over the windows whose maximum it is, in the order of the
 * CPU's. All loads come first where there are few windows. MOST: kolo_pool_most */
template <typename T, int MOST>
KOLO_INLINE void kolo_pool_gather(float (&sum)[kolo_vector<T>::N], const kolo_pool *p, const kolo_cell *c,
                                  const T *dy, const uint8_t *index)
{
    const kolo_holders rows = kolo_holders_of(p, 0, c->h + p->pad[0], p->out_height),
                       columns = kolo_holders_of(p, 1, c->w + p->pad[1], p->out_width);
    for (int l = 0; l < kolo_vector<T>::N; l++) sum[l] = 0;
    if constexpr (MOST == 0) {
        for (int h = rows.last; h >= rows.first; h--)
            for (int w = columns.last; w >= columns.first; w--) {
                kolo_pool_window<T> one;
                kolo_pool_load(&one, p, c, h, w, dy, index);
                kolo_pool_add(sum, one, p, c, h, w);
            }
    } else {
        kolo_pool_window<T> all[MOST * MOST];
#pragma unroll
        for (int i = 0; i < MOST * MOST; i++) {
            const int h = rows.last - i / MOST, w = columns.last - i % MOST;
            if (h >= rows.first && w >= columns.first) kolo_pool_load(&all[i], p, c, h, w, dy, index);
        }
#pragma unroll
        for (int i = 0; i < MOST * MOST; i++) {
            const int h = rows.last - i / MOST, w = columns.last - i % MOST;
            if (h >= rows.first && w >= columns.first) kolo_pool_add(sum, all[i], p, c, h, w);
        }
    }
}

#endif
