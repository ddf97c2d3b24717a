/* Operations that move numbers and compute none: pad, crop, slice, concat, space_to_depth, nearest
 * upsampling, and their ways back. Bits are moved, so types of one size share a kernel. A thread makes one
 * vector of the result; each of its channels lies in one piece, which says where it comes from. Upsampling's
 * gradient alone adds. */
#include "ops/cuda/cells.cuh"

extern "C" {
#include "base/memory.h"
}

enum { THREADS = 256, PIECES = 8 };

/* Channels begin .. begin + count - 1 of the result are channels first, first + 1, ... of argument `from`,
 * whose pixel (h, w) is the result's (h, w) times `times`, over `over`, moved by (down, right). */
typedef struct piece {
    int from, begin, count, first, stored, down, right;
} piece;
typedef struct move {
    kolo_cells cells;  /* of the result; in single numbers where they fill no vectors */
    int height, width; /* of what is read */
    int times, pieces;
    int over[2];
    kolo_divisor divisor[2];
    int quarter; /* space_to_depth_grad: channels of a pixel of the square, which adds to `first`; else 0 */
    piece part[PIECES];
    int single, args;
    size_t bytes; /* of an element */
} move;
typedef struct sources {
    const void *at[PIECES];
} sources;

/* Element of piece k's channel c (of the result) at the result's pixel, or -1: zero. */
KOLO_INLINE int64_t move_place(const move &p, const piece &k, const kolo_cell &at, int c)
{
    const int up = (int)kolo_quotient((uint32_t)at.h, p.divisor[0]),
              left = (int)kolo_quotient((uint32_t)at.w, p.divisor[1]);
    const int h = up * p.times + k.down, w = left * p.times + k.right;
    const int square = at.h - up * p.over[0] + 2 * (at.w - left * p.over[1]);
    if (h >= p.height || w >= p.width) return -1;
    return ((int64_t)(at.n * p.height + h) * p.width + w) * k.stored + k.first + square * p.quarter + c -
           k.begin;
}

/* U: a word of an element's size; N of them are made together. */
template <typename U, int N>
__global__ void __launch_bounds__(THREADS) move_kernel(U *to, sources from, move p)
{
    const uint32_t item = blockIdx.x * THREADS + threadIdx.x;
    if (item >= p.cells.items) return;
    const kolo_cell at = kolo_cell_at(&p.cells, item);
    U v[N];
    int c = at.v * N, done = 0;
    for (int i = 0; i < p.pieces; i++) {
        const piece &k = p.part[i];
        if (k.begin > c || c + N > k.begin + k.count) continue;
        const U *source = (const U *)from.at[k.from];
        const int64_t place = move_place(p, k, at, c);
        done = 1;
        if constexpr (N == 1) v[0] = place < 0 ? 0 : source[place];
        else if (place < 0 || place % N == 0) {
            const kolo_words words = place < 0 ? kolo_words{} : kolo_read16(source + place);
            kolo_write16(to + (int64_t)item * N, words);
            return;
        } else
            for (int l = 0; l < N; l++) v[l] = source[place + l];
    }
    for (int l = 0; l < N && !done; l++) { /* a vector of several pieces, or with padding */
        v[l] = 0;
        for (int i = 0; i < p.pieces; i++) {
            const piece &k = p.part[i];
            if (c + l < k.begin || c + l >= k.begin + k.count) continue;
            const int64_t place = move_place(p, k, at, c + l);
            if (place >= 0) v[l] = ((const U *)from.at[k.from])[place];
        }
    }
    if constexpr (N == 1) to[item] = v[0];
    else {
        kolo_words words;
        memcpy(&words, v, sizeof words);
        kolo_write16(to + (int64_t)item * N, words);
    }
}

static int cuda_move_run(const kolo_kernel *k, void *const *args, void *, const kolo_step *, int)
{
    const move *p = (const move *)k->state;
    const unsigned grid = (p->cells.items + THREADS - 1) / THREADS;
    cudaStream_t stream = kolo_cuda_stream(k);
    sources from = {};
    for (int i = 0; i < p->args; i++) from.at[i] = args[i];
    if (p->bytes == 2 && p->single)
        return KOLO_LAUNCH((move_kernel<uint16_t, 1>), grid, THREADS, 0, stream, (uint16_t *)args[p->args],
                           from, *p);
    if (p->bytes == 2)
        return KOLO_LAUNCH((move_kernel<uint16_t, 8>), grid, THREADS, 0, stream, (uint16_t *)args[p->args],
                           from, *p);
    if (p->single)
        return KOLO_LAUNCH((move_kernel<uint32_t, 1>), grid, THREADS, 0, stream, (uint32_t *)args[p->args],
                           from, *p);
    return KOLO_LAUNCH((move_kernel<uint32_t, 4>), grid, THREADS, 0, stream, (uint32_t *)args[p->args], from,
                       *p);
}

/* ---- upsampling's gradient: the sum of each pixel's copies, in rows ------------------------------------ */

typedef struct gather {
    kolo_cells cells;                    /* of dx */
    int times[2], height, width, stored; /* of dy */
    enum kolo_dtype dtype;
} gather;

template <typename T> __global__ void __launch_bounds__(THREADS) gather_kernel(T *dx, const T *dy, gather p)
{
    const int N = kolo_vector<T>::N;
    const uint32_t item = blockIdx.x * THREADS + threadIdx.x;
    if (item >= p.cells.items) return;
    const kolo_cell c = kolo_cell_at(&p.cells, item);
    const T *from =
        dy + ((int64_t)(c.n * p.height + c.h * p.times[0]) * p.width + c.w * p.times[1]) * p.stored + c.v * N;
    float sum[N] = {};
    for (int i = 0; i < p.times[0]; i++)
        for (int j = 0; j < p.times[1]; j++) {
            float v[N];
            kolo_load16(from + ((int64_t)i * p.width + j) * p.stored, v);
#pragma unroll
            for (int l = 0; l < N; l++) sum[l] += v[l];
        }
    kolo_store16(dx + (int64_t)item * N, sum);
}

static int run_gather(const kolo_kernel *k, void *const *args, void *, const kolo_step *, int)
{
    const gather *p = (const gather *)k->state;
    const unsigned grid = (p->cells.items + THREADS - 1) / THREADS;
    KOLO_FOR_DTYPE(p->dtype, T,
                   return KOLO_LAUNCH(gather_kernel<T>, grid, THREADS, 0, kolo_cuda_stream(k), (T *)args[1],
                                      (const T *)args[0], *p));
}

/* ---- rows ---------------------------------------------------------------------------------------------- */

static int prepare_gather(const kolo_kernel_request *r, kolo_kernel *k)
{
    const kolo_cuda_view dy = kolo_cuda_view_in(r, 0), dx = kolo_cuda_view_out(r, 0);
    gather *p = (gather *)kolo_alloc(sizeof *p);
    if (!p) return KOLO_ENOMEM;
    k->state = p;
    k->release = free;
    k->run = run_gather;
    KOLO_TRY(kolo_cells_of(&dy, &p->cells)); /* is it small enough? */
    KOLO_TRY(kolo_cells_of(&dx, &p->cells));
    for (int i = 0; i < 2; i++) p->times[i] = (int)r->node->a.stride[i];
    p->height = (int)dy.height, p->width = (int)dy.width, p->stored = (int)dy.stored;
    p->dtype = dx.dtype;
    snprintf(k->name, sizeof k->name, "own %s", kolo_dtype_name(dx.dtype));
    return 0;
}

static void fill_pieces(const kolo_kernel_request *r, move *p, const kolo_cuda_view *from,
                        const kolo_cuda_view *to)
{
    const kolo_node *n = r->node;
    const int channels = (int)to->channels, stored = (int)from->stored;
    p->times = p->over[0] = p->over[1] = 1;
    p->pieces = 1;
    p->part[0] = {0, 0, channels, 0, stored, 0, 0};
    if (n->op == KOLO_OP_pad || n->op == KOLO_OP_crop || n->op == KOLO_OP_upsample)
        p->part[0].count = stored; /* zeros too */
    if (n->op == KOLO_OP_slice) p->part[0].first = (int)n->a.first;
    if (n->op == KOLO_OP_slice_grad)
        p->part[0].begin = (int)n->a.first, p->part[0].count = (int)from->channels;
    if (n->op == KOLO_OP_upsample) p->over[0] = (int)n->a.stride[0], p->over[1] = (int)n->a.stride[1];
    if (n->op == KOLO_OP_space_to_depth) {
        const int one = channels / 4;
        p->times = 2;
        p->pieces = 4;
        for (int i = 0; i < 4; i++) p->part[i] = {0, i * one, one, 0, stored, i % 2, i / 2};
    }
    if (n->op == KOLO_OP_space_to_depth_grad) {
        p->over[0] = p->over[1] = 2;
        p->quarter = channels;
    }
    if (n->op == KOLO_OP_concat) {
        p->pieces = n->n_in;
        for (int i = 0, begin = 0; i < n->n_in; i++) {
            const kolo_cuda_view v = kolo_cuda_view_in(r, i);
            p->part[i] = {i, begin, (int)v.channels, 0, (int)v.stored, 0, 0};
            begin += (int)v.channels;
        }
    }
    for (int i = 0; i < 2; i++) p->divisor[i] = kolo_divisor_of(p->over[i]);
}

/* As if each number were a vector. */
static kolo_cuda_view single_numbers(const kolo_cuda_view *v)
{
    kolo_cuda_view one = *v;
    one.stored *= v->dtype == KOLO_F32 ? 4 : 8;
    return one;
}

static int cuda_move_prepare(const kolo_kernel_request *r, kolo_kernel *k)
{
    const kolo_cuda_view from = kolo_cuda_view_in(r, 0), to = kolo_cuda_view_out(r, 0);
    move *p = (move *)kolo_alloc(sizeof *p);
    if (!p) return KOLO_ENOMEM;
    k->state = p;
    k->release = free;
    k->run = cuda_move_run;
    fill_pieces(r, p, &from, &to);
    p->args = r->node->n_in;
    p->height = (int)from.height, p->width = (int)from.width;
    p->bytes = kolo_dtype_size(to.dtype);
    p->single = to.stored % (16 / (int64_t)p->bytes) != 0;
    const kolo_cuda_view numbers = single_numbers(&to);
    KOLO_TRY(kolo_cells_of(p->single ? &numbers : &to, &p->cells));
    snprintf(k->name, sizeof k->name, "own %zu bytes%s", p->bytes, p->single ? ", single" : "");
    return 0;
}

const kolo_op_row kolo_cuda_pad = {NULL, cuda_move_prepare};
const kolo_op_row kolo_cuda_crop = {NULL, cuda_move_prepare};
const kolo_op_row kolo_cuda_space_to_depth = {NULL, cuda_move_prepare};
const kolo_op_row kolo_cuda_space_to_depth_grad = {NULL, cuda_move_prepare};
const kolo_op_row kolo_cuda_upsample = {NULL, cuda_move_prepare};
const kolo_op_row kolo_cuda_upsample_grad = {NULL, prepare_gather};
const kolo_op_row kolo_cuda_concat = {NULL, cuda_move_prepare};
const kolo_op_row kolo_cuda_slice = {NULL, cuda_move_prepare};
const kolo_op_row kolo_cuda_slice_grad = {NULL, cuda_move_prepare};
