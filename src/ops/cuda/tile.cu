/* Pieces of maps: a tile is put together from pieces of one map, and its gradient put back; sums of terms. A
 * thread makes one vector of the result (of an image, one byte), which lies in at most one piece. */
#include "ops/cuda/cells.cuh"

extern "C" {
#include "base/memory.h"
}

enum { THREADS = 256 };

/* Rows and columns of the whole map that a tensor has. */
typedef struct plane {
    int at[2], end[2];
} plane;
typedef struct tile {
    kolo_cells cells; /* of the result */
    int inputs, words;
    plane to, from[KOLO_MAX_ARGS];
    enum kolo_dtype dtype;
} tile;
typedef struct sources {
    const void *at[KOLO_MAX_ARGS];
} sources;

/* Where the result's cell lies in a piece, in words; -1: not there. */
KOLO_INLINE int64_t tile_place(const tile &p, const plane &from, const kolo_cell &at)
{
    const int row = at.h + p.to.at[0], column = at.w + p.to.at[1];
    if (row < from.at[0] || row >= from.end[0] || column < from.at[1] || column >= from.end[1]) return -1;
    const int64_t line = (int64_t)at.n * (from.end[0] - from.at[0]) + row - from.at[0];
    return (line * (from.end[1] - from.at[1]) + column - from.at[1]) * p.words + at.v;
}

template <typename W> __global__ void __launch_bounds__(THREADS) tile_kernel(W *to, sources from, tile p)
{
    const uint32_t item = blockIdx.x * THREADS + threadIdx.x;
    if (item >= p.cells.items) return;
    const kolo_cell at = kolo_cell_at(&p.cells, item);
    W v = {};
    for (int i = 0; i < p.inputs; i++) {
        const int64_t place = tile_place(p, p.from[i], at);
        if (place >= 0) v = ((const W *)from.at[i])[place];
    }
    to[item] = v;
}

/* dx may be other */
template <typename T>
__global__ void __launch_bounds__(THREADS) tile_grad_kernel(T *dx, const T *dy, const T *other, tile p)
{
    const int N = kolo_vector<T>::N;
    const uint32_t item = blockIdx.x * THREADS + threadIdx.x;
    if (item >= p.cells.items) return;
    const int64_t place = tile_place(p, p.from[0], kolo_cell_at(&p.cells, item));
    if (place >= 0 && other) {
        float a[N], b[N];
        kolo_load16(other + (int64_t)item * N, a);
        kolo_load16(dy + place * N, b);
        for (int k = 0; k < N; k++) a[k] += b[k];
        kolo_store16(dx + (int64_t)item * N, a);
        return;
    }
    kolo_words v = {};
    if (place >= 0) v = kolo_read16(dy + place * N);
    else if (other) v = kolo_read16(other + (int64_t)item * N);
    kolo_write16(dx + (int64_t)item * N, v);
}

static int cuda_tile_run(const kolo_kernel *k, void *const *args, void *, const kolo_step *, int)
{
    const tile *p = (const tile *)k->state;
    const unsigned grid = (p->cells.items + THREADS - 1) / THREADS;
    sources from = {};
    for (int i = 0; i < p->inputs; i++) from.at[i] = args[i];
    if (p->dtype == KOLO_U8)
        return KOLO_LAUNCH(tile_kernel<uint8_t>, grid, THREADS, 0, kolo_cuda_stream(k),
                           (uint8_t *)args[p->inputs], from, *p);
    return KOLO_LAUNCH(tile_kernel<kolo_words>, grid, THREADS, 0, kolo_cuda_stream(k),
                       (kolo_words *)args[p->inputs], from, *p);
}

static int cuda_tile_grad_run(const kolo_kernel *k, void *const *args, void *, const kolo_step *, int)
{
    const tile *p = (const tile *)k->state;
    const unsigned grid = (p->cells.items + THREADS - 1) / THREADS;
    KOLO_FOR_DTYPE(p->dtype, T,
                   return KOLO_LAUNCH(tile_grad_kernel<T>, grid, THREADS, 0, kolo_cuda_stream(k),
                                      (T *)args[p->inputs], (const T *)args[0],
                                      (const T *)(p->inputs > 1 ? args[1] : NULL), *p));
}

static plane plane_of(const kolo_tensor *x, const int64_t at[2])
{
    const int axis = x->dtype == KOLO_U8 ? 1 : 2;
    return {{(int)at[0], (int)at[1]}, {(int)(at[0] + x->dim[axis]), (int)(at[1] + x->dim[axis + 1])}};
}

/* Cells of the result: vectors of a map, bytes of an image (N,H,W,C). */
static int count_cells(const kolo_kernel_request *r, tile *p)
{
    const kolo_tensor *y = &r->graph->tensor[r->node->out[0]];
    if (y->dtype != KOLO_U8) {
        const kolo_cuda_view v = kolo_cuda_view_out(r, 0);
        p->words = (int)(v.stored * (int64_t)kolo_dtype_size(y->dtype) / 16);
        return kolo_cells_of(&v, &p->cells);
    }
    if (kolo_tensor_count(y) > INT32_MAX)
        return kolo_fail(KOLO_ECONFIG, "%s: a piece of images has 2 GiB or more; use a smaller micro_batch",
                         y->name);
    p->words = (int)y->dim[3];
    p->cells.items = (uint32_t)kolo_tensor_count(y);
    p->cells.vectors = kolo_divisor_of(y->dim[3]);
    p->cells.width = kolo_divisor_of(y->dim[2]);
    p->cells.height = kolo_divisor_of(y->dim[1]);
    return 0;
}

static int cuda_tile_prepare(const kolo_kernel_request *r, kolo_kernel *k)
{
    const kolo_node *n = r->node;
    tile *p = (tile *)kolo_alloc(sizeof *p);
    if (!p) return KOLO_ENOMEM;
    k->state = p;
    k->release = free;
    k->run = n->op == KOLO_OP_tile ? cuda_tile_run : cuda_tile_grad_run;
    p->inputs = n->n_in;
    p->dtype = r->graph->tensor[n->out[0]].dtype;
    p->to = plane_of(&r->graph->tensor[n->out[0]], n->a.at);
    for (int i = 0; i < n->n_in; i++) p->from[i] = plane_of(&r->graph->tensor[n->in[i]], n->a.from[i]);
    snprintf(k->name, sizeof k->name, "own %s", kolo_dtype_name(p->dtype));
    return count_cells(r, p);
}

const kolo_op_row kolo_cuda_tile = {NULL, cuda_tile_prepare};
const kolo_op_row kolo_cuda_tile_grad = {NULL, cuda_tile_prepare};

/* ---- sums of terms ------------------------------------------------------------------------------------- */

typedef struct total {
    int64_t count;
    int terms;
    enum kolo_dtype dtype;
} total;

/* One after the other: ((a + b) + c) + ... */
template <typename T> __global__ void __launch_bounds__(THREADS) total_kernel(T *sum, sources from, total p)
{
    const int64_t i = (int64_t)blockIdx.x * THREADS + threadIdx.x;
    if (i >= p.count) return;
    T all = ((const T *)from.at[0])[i];
    for (int k = 1; k < p.terms; k++) all += ((const T *)from.at[k])[i];
    sum[i] = all;
}

/* Of 16 bits: added in f32, rounded once. */
template <typename T>
__global__ void __launch_bounds__(THREADS) half_total_kernel(T *sum, sources from, total p)
{
    const int64_t i = (int64_t)blockIdx.x * THREADS + threadIdx.x;
    if (i >= p.count) return;
    float all = kolo_widen(((const T *)from.at[0])[i]);
    for (int k = 1; k < p.terms; k++) all += kolo_widen(((const T *)from.at[k])[i]);
    kolo_round(all, sum + i);
}

static int cuda_total_run(const kolo_kernel *k, void *const *args, void *, const kolo_step *, int)
{
    const total *p = (const total *)k->state;
    const unsigned grid = (unsigned)((p->count + THREADS - 1) / THREADS);
    sources from = {};
    for (int i = 0; i < p->terms; i++) from.at[i] = args[i];
    if (p->dtype == KOLO_F64)
        return KOLO_LAUNCH(total_kernel<double>, grid, THREADS, 0, kolo_cuda_stream(k),
                           (double *)args[p->terms], from, *p);
    if (p->dtype != KOLO_F32)
        KOLO_FOR_DTYPE(p->dtype, T,
                       return KOLO_LAUNCH(half_total_kernel<T>, grid, THREADS, 0, kolo_cuda_stream(k),
                                          (T *)args[p->terms], from, *p));
    return KOLO_LAUNCH(total_kernel<float>, grid, THREADS, 0, kolo_cuda_stream(k), (float *)args[p->terms],
                       from, *p);
}

static int cuda_total_prepare(const kolo_kernel_request *r, kolo_kernel *k)
{
    const enum kolo_dtype dtype = r->graph->tensor[r->node->out[0]].dtype;
    total *p = (total *)kolo_alloc(sizeof *p);
    if (!p) return KOLO_ENOMEM;
    k->state = p;
    k->release = free;
    k->run = cuda_total_run;
    p->terms = r->node->n_in;
    p->dtype = dtype;
    p->count = (int64_t)(r->layout[r->node->out[0]].bytes / kolo_dtype_size(dtype));
    snprintf(k->name, sizeof k->name, "own %d terms", p->terms);
    return 0;
}

const kolo_op_row kolo_cuda_total = {NULL, cuda_total_prepare};

/* ---- copies of parameters: of what operations read, 16 bits where they read those ---- */

static int cuda_share_run(const kolo_kernel *k, void *const *args, void *, const kolo_step *, int)
{
    return kolo_backend_copy(k->backend, KOLO_LANE_COMPUTE, args[1], args[0], *(const size_t *)k->state);
}

static int cuda_share_prepare(const kolo_kernel_request *r, kolo_kernel *k)
{
    const kolo_layout *layout = &r->layout[r->node->out[0]];
    size_t *bytes = (size_t *)kolo_alloc(sizeof *bytes);
    if (!bytes) return KOLO_ENOMEM;
    k->state = bytes;
    k->release = free;
    k->run = cuda_share_run;
    *bytes = layout->bytes / (layout->half ? 2 : 1);
    snprintf(k->name, sizeof k->name, "own copy");
    return 0;
}

const kolo_op_row kolo_cuda_share = {NULL, cuda_share_prepare};
