/* Maps moved without arithmetic: (N, C, H, W) -> (N, C*H*W) in the order of torch, the parameter-free
 * shortcut of CIFAR ResNets, and back. */
#include "ops/cuda/cells.cuh"

extern "C" {
#include "base/memory.h"
}

enum { THREADS = 256, TILE = 1024 };

/* ---- flatten ------------------------------------------------------------------------------------------- */

/* A transposition of every row's (pixels, stored) to (channels, pixels): a block takes a tile of 2^wide
 * channels and TILE / 2^wide pixels. */
typedef struct flatten {
    int rows, channels, stored, pixels;
    int wide;         /* log2 of a tile's channels */
    int across, down; /* tiles of a row: over channels, over pixels */
    size_t bytes;     /* of an element */
    bool back;
} flatten;

/* T: any type of the element's size. The tile's last column is never used; it keeps the banks apart. */
template <typename T>
__global__ void __launch_bounds__(THREADS) flatten_kernel(T *to, const T *from, flatten p)
{
    __shared__ T tile[TILE + 32];
    const int channels = 1 << p.wide, pixels = TILE >> p.wide, high = 10 - p.wide;
    const int line = (int)blockIdx.x / p.across, n = line / p.down;
    const int c0 = ((int)blockIdx.x - line * p.across) * channels, i0 = (line - n * p.down) * pixels;
    const int64_t map = (int64_t)n * p.pixels * p.stored, row = (int64_t)n * p.pixels * p.channels;
    for (int k = (int)threadIdx.x; k < TILE; k += THREADS) {
        const int c = p.back ? k >> high : k & (channels - 1), i = p.back ? k & (pixels - 1) : k >> p.wide;
        if (c0 + c >= p.channels || i0 + i >= p.pixels) continue;
        tile[c * (pixels + 1) + i] = from[p.back ? row + (int64_t)(c0 + c) * p.pixels + i0 + i
                                                 : map + (int64_t)(i0 + i) * p.stored + c0 + c];
    }
    __syncthreads();
    for (int k = (int)threadIdx.x; k < TILE; k += THREADS) {
        const int c = p.back ? k & (channels - 1) : k >> high, i = p.back ? k >> p.wide : k & (pixels - 1);
        if (c0 + c >= (p.back ? p.stored : p.channels) || i0 + i >= p.pixels) continue;
        if (p.back)
            to[map + (int64_t)(i0 + i) * p.stored + c0 + c] =
                c0 + c < p.channels ? tile[c * (pixels + 1) + i] : 0;
        else to[row + (int64_t)(c0 + c) * p.pixels + i0 + i] = tile[c * (pixels + 1) + i];
    }
}

static int run_flatten(const kolo_kernel *k, void *const *args, void *, const kolo_step *, int)
{
    const flatten *p = (const flatten *)k->state;
    const int grid = p->rows * p->down * p->across;
    cudaStream_t stream = kolo_cuda_stream(k);
    if (p->bytes == 2)
        return KOLO_LAUNCH(flatten_kernel<uint16_t>, grid, THREADS, 0, stream, (uint16_t *)args[1],
                           (const uint16_t *)args[0], *p);
    return KOLO_LAUNCH(flatten_kernel<uint32_t>, grid, THREADS, 0, stream, (uint32_t *)args[1],
                       (const uint32_t *)args[0], *p);
}

static int prepare_flatten(const kolo_kernel_request *r, kolo_kernel *k)
{
    const bool back = r->node->op == KOLO_OP_flatten_grad;
    const kolo_cuda_view v = back ? kolo_cuda_view_out(r, 0) : kolo_cuda_view_in(r, 0);
    kolo_cells cells;
    KOLO_TRY(kolo_cells_of(&v, &cells)); /* small enough to be counted in 32 bits */
    flatten *p = (flatten *)kolo_alloc(sizeof *p);
    if (!p) return KOLO_ENOMEM;
    p->rows = (int)v.rows;
    p->channels = (int)v.channels;
    p->stored = (int)v.stored;
    p->pixels = (int)v.pixels;
    for (p->wide = 2; p->wide < 5 && 1 << p->wide < p->stored;) p->wide++;
    p->across = (p->stored + (1 << p->wide) - 1) >> p->wide;
    p->down = (p->pixels + (TILE >> p->wide) - 1) / (TILE >> p->wide);
    p->bytes = kolo_dtype_size(v.dtype);
    p->back = back;
    k->state = p;
    k->release = free;
    k->run = run_flatten;
    snprintf(k->name, sizeof k->name, "own transpose %d x %d", 1 << p->wide, TILE >> p->wide);
    return 0;
}

/* ---- shortcut ------------------------------------------------------------------------------------------ */

/* y (n, h, w, c) = x (n, h stride, w stride, c - shift), and back; a thread makes a vector of the result. */
typedef struct shortcut {
    kolo_cells cells;                    /* of the result */
    int height, width, channels, stored; /* of what is read */
    int result_channels, shift;          /* channel c of the result is channel c - shift of what is read */
    int stride[2];
    kolo_divisor step[2];
    bool back;
    enum kolo_dtype dtype;
} shortcut;

template <typename T>
__global__ void __launch_bounds__(THREADS) shortcut_kernel(T *to, const T *from, shortcut p)
{
    const int N = kolo_vector<T>::N;
    const uint32_t item = blockIdx.x * THREADS + threadIdx.x;
    if (item >= p.cells.items) return;
    const kolo_cell c = kolo_cell_at(&p.cells, item);
    const int h = p.back ? (int)kolo_quotient((uint32_t)c.h, p.step[0]) : c.h * p.stride[0],
              w = p.back ? (int)kolo_quotient((uint32_t)c.w, p.step[1]) : c.w * p.stride[1];
    const bool there =
        h < p.height && w < p.width && (!p.back || (h * p.stride[0] == c.h && w * p.stride[1] == c.w));
    const T *pixel = from + ((int64_t)(c.n * p.height + h) * p.width + w) * p.stored;
    float v[N];
#pragma unroll
    for (int l = 0; l < N; l++) {
        const int channel = c.v * N + l, source = channel - p.shift;
        const bool real = there && channel < p.result_channels && source >= 0 && source < p.channels;
        v[l] = real ? kolo_widen(pixel[source]) : 0;
    }
    kolo_store16(to + (int64_t)item * N, v);
}

static int run_shortcut(const kolo_kernel *k, void *const *args, void *, const kolo_step *, int)
{
    const shortcut *p = (const shortcut *)k->state;
    const unsigned grid = (p->cells.items + THREADS - 1) / THREADS;
    KOLO_FOR_DTYPE(p->dtype, T,
                   return KOLO_LAUNCH(shortcut_kernel<T>, grid, THREADS, 0, kolo_cuda_stream(k), (T *)args[1],
                                      (const T *)args[0], *p));
}

static int prepare_shortcut(const kolo_kernel_request *r, kolo_kernel *k)
{
    const bool back = r->node->op == KOLO_OP_shortcut_a_grad;
    const kolo_cuda_view from = kolo_cuda_view_in(r, 0), to = kolo_cuda_view_out(r, 0);
    const int64_t pad = r->node->a.pad[0];
    shortcut *p = (shortcut *)kolo_alloc(sizeof *p);
    if (!p) return KOLO_ENOMEM;
    k->state = p;
    k->release = free;
    KOLO_TRY(kolo_cells_of(&from, &p->cells)); /* is it small enough? */
    KOLO_TRY(kolo_cells_of(&to, &p->cells));
    p->height = (int)from.height, p->width = (int)from.width;
    p->channels = (int)from.channels, p->stored = (int)from.stored;
    p->result_channels = (int)to.channels;
    p->shift = (int)(back ? -pad : pad);
    for (int axis = 0; axis < 2; axis++) {
        p->stride[axis] = (int)r->node->a.stride[axis];
        p->step[axis] = kolo_divisor_of(p->stride[axis]);
    }
    p->back = back;
    p->dtype = from.dtype;
    k->run = run_shortcut;
    snprintf(k->name, sizeof k->name, "own %s", kolo_dtype_name(from.dtype));
    return 0;
}

const kolo_op_row kolo_cuda_flatten = {NULL, prepare_flatten};
const kolo_op_row kolo_cuda_flatten_grad = {NULL, prepare_flatten};
const kolo_op_row kolo_cuda_shortcut_a = {NULL, prepare_shortcut};
const kolo_op_row kolo_cuda_shortcut_a_grad = {NULL, prepare_shortcut};
