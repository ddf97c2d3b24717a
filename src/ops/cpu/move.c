/* Operations that move numbers and compute none: what lies where in the result is a list of pieces, made when
 * the plan is. Every lane of every pixel of the result is in one piece, which copies it from a source or,
 * where that has none, writes zero. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/memory.h"
#include "kolo/error.h"
#include "ops/cpu/cpu.h"

/* Channels first .. first + count - 1 of the result at its pixels (to_at + i to_step), from channel `source`
 * on of input `input` (-1: zeros) at its pixels (from_at + i from_step). */
typedef struct region {
    int64_t first, count, source, to_at[2], to_step[2], from_at[2], from_step[2];
    int input;
} region;

/* Lanes of one block of the result that lie side by side in the source too. */
typedef struct piece {
    int64_t n, block, lane, from_block, from_lane;
    int region;
} piece;

enum { MOST_REGIONS = 16 };
typedef struct move {
    kolo_view to, from[8];
    int threads, inputs, regions;
    int64_t pieces, *first; /* [to.blocks + 1] piece with which a block begins */
    piece *piece;
    region region[MOST_REGIONS];
} move;

/* `count` pixels; the usual lengths as constants, so that a pixel is a few moves. */
static void copy_pixels(char *to, int64_t to_step, const char *from, int64_t from_step, int64_t count,
                        size_t bytes)
{
#define COPY(size)                                                                                  \
    if (bytes == (size)) {                                                                          \
        for (int64_t i = 0; i < count; i++) memcpy(to + i * to_step, from + i * from_step, (size)); \
        return;                                                                                     \
    }
    if (to_step == (int64_t)bytes && from_step == to_step) {
        memcpy(to, from, bytes * (size_t)count);
        return;
    }
    COPY(2)
    COPY(4)
    COPY(16)
    COPY(32)
    COPY(64)
    for (int64_t i = 0; i < count; i++) memcpy(to + i * to_step, from + i * from_step, bytes);
#undef COPY
}

static void zero_pixels(char *to, int64_t step, int64_t count, size_t bytes)
{
    if (step == (int64_t)bytes) memset(to, 0, bytes * (size_t)count);
    else
        for (int64_t i = 0; i < count; i++) memset(to + i * step, 0, bytes);
}

static int64_t least(int64_t a, int64_t b) { return a < b ? a : b; }

/* How many of at, at + step, ... are below size. */
static int64_t places(int64_t size, int64_t at, int64_t step)
{
    return at < size ? (size - at + step - 1) / step : 0;
}

/* Row h of sample n of the result, one piece. */
static void move_row(const move *m, const piece *p, char *to, const char *const *args, int64_t n, int64_t h)
{
    const region *g = &m->region[p->region];
    const kolo_view *tv = &m->to, *fv = g->input < 0 ? NULL : &m->from[g->input];
    if (h < g->to_at[0] || (h - g->to_at[0]) % g->to_step[0]) return;
    const int64_t element = tv->bf16 ? 2 : 4,
                  row = (h - g->to_at[0]) / g->to_step[0] * g->from_step[0] + g->from_at[0];
    const int64_t count = places(tv->width, g->to_at[1], g->to_step[1]),
                  step = tv->block * element * g->to_step[1];
    const size_t bytes = (size_t)(p->n * element);
    to += (((n * tv->blocks + p->block) * tv->pixels + h * tv->width + g->to_at[1]) * tv->block + p->lane) *
          element;
    int64_t there =
        fv && row < fv->height ? least(count, places(fv->width, g->from_at[1], g->from_step[1])) : 0;
    if (there > 0)
        copy_pixels(to, step,
                    args[g->input] +
                        (((n * fv->blocks + p->from_block) * fv->pixels + row * fv->width + g->from_at[1]) *
                             fv->block +
                         p->from_lane) *
                            element,
                    fv->block * element * g->from_step[1], there, bytes);
    zero_pixels(to + there * step, step, count - there, bytes);
}

static int move_run(const kolo_kernel *k, void *const *args, void *workspace, const kolo_step *step, int slot)
{
    (void)workspace;
    (void)step;
    (void)slot;
    const move *m = k->state;
    const kolo_view *to = &m->to;
#pragma omp parallel for schedule(static) num_threads(m->threads)
    for (int64_t t = 0; t < to->rows * to->blocks * to->height; t++) {
        const int64_t h = t % to->height, block = t / to->height % to->blocks,
                      n = t / to->height / to->blocks;
        for (int64_t i = m->first[block]; i < m->first[block + 1]; i++)
            move_row(m, &m->piece[i], args[m->inputs], (const char *const *)args, n, h);
    }
    return 0;
}

/* ---- the regions of each operation --------------------------------------------------------------------- */

static region *move_add(move *m, int input, int64_t first, int64_t count, int64_t source)
{
    region *g = &m->region[m->regions++];
    *g = (region){.first = first,
                  .count = count,
                  .source = source,
                  .to_step = {1, 1},
                  .from_step = {1, 1},
                  .input = input};
    return g;
}

static void add_concat(move *m)
{
    int64_t first = 0;
    for (int i = 0; i < m->inputs; i++) first += move_add(m, i, first, m->from[i].channels, 0)->count;
}

static void add_slice_grad(move *m, int64_t first)
{
    const int64_t count = m->from[0].channels, last = first + count;
    if (first > 0) move_add(m, -1, 0, first, 0);
    move_add(m, 0, first, count, 0);
    if (last < m->to.channels) move_add(m, -1, last, m->to.channels - last, 0);
}

/* Pixels (0,0), (1,0), (0,1), (1,1) as (row, column) of each square. */
static void add_squares(move *m, bool backward)
{
    const int64_t channels = backward ? m->to.channels : m->from[0].channels;
    for (int i = 0; i < 4; i++) {
        region *g =
            backward ? move_add(m, 0, 0, channels, i * channels) : move_add(m, 0, i * channels, channels, 0);
        int64_t *at = backward ? g->to_at : g->from_at, *step = backward ? g->to_step : g->from_step;
        for (int axis = 0; axis < 2; axis++) {
            at[axis] = axis ? i / 2 : i % 2;
            step[axis] = 2;
        }
    }
}

static void add_shortcut(move *m, const kolo_attributes *a)
{
    const int64_t side = a->pad[0], last = side + m->from[0].channels;
    memcpy(move_add(m, 0, side, m->from[0].channels, 0)->from_step, a->stride, sizeof a->stride);
    if (side > 0) move_add(m, -1, 0, side, 0);
    if (last < m->to.channels) move_add(m, -1, last, m->to.channels - last, 0);
}

/* Between the pixels that the shortcut took there are zeros. */
static void add_shortcut_grad(move *m, const kolo_attributes *a)
{
    for (int64_t y = 0; y < a->stride[0]; y++)
        for (int64_t x = 0; x < a->stride[1]; x++) {
            region *g = move_add(m, x || y ? -1 : 0, 0, m->to.channels, a->pad[0]);
            g->to_at[0] = y;
            g->to_at[1] = x;
            memcpy(g->to_step, a->stride, sizeof a->stride);
        }
}

static void add_regions(move *m, const kolo_node *n)
{
    switch (n->op) {
    case KOLO_OP_concat: add_concat(m); break;
    case KOLO_OP_slice: move_add(m, 0, 0, m->to.channels, n->a.first); break;
    case KOLO_OP_slice_grad: add_slice_grad(m, n->a.first); break;
    case KOLO_OP_space_to_depth: add_squares(m, false); break;
    case KOLO_OP_space_to_depth_grad: add_squares(m, true); break;
    case KOLO_OP_shortcut_a: add_shortcut(m, &n->a); break;
    case KOLO_OP_shortcut_a_grad: add_shortcut_grad(m, &n->a); break;
    default: move_add(m, 0, 0, m->to.channels, 0); /* pad, crop */
    }
    const int64_t lanes = m->to.blocks * m->to.block;
    if (lanes > m->to.channels) move_add(m, -1, m->to.channels, lanes - m->to.channels, 0);
}

/* ---- pieces -------------------------------------------------------------------------------------------- */

/* The run of lanes from channel c of the result on. */
static piece piece_at(const move *m, int number, int64_t c)
{
    const region *g = &m->region[number];
    piece p = {.block = c / m->to.block, .lane = c % m->to.block, .region = number};
    p.n = least(m->to.block - p.lane, g->first + g->count - c);
    if (g->input < 0) return p;
    const int64_t source = g->source + c - g->first, block = m->from[g->input].block;
    p.from_block = source / block;
    p.from_lane = source % block;
    p.n = least(p.n, block - p.from_lane);
    return p;
}

static int64_t list_pieces(const move *m, piece *list)
{
    int64_t n = 0;
    for (int i = 0; i < m->regions; i++)
        for (int64_t c = m->region[i].first; c < m->region[i].first + m->region[i].count;) {
            const piece p = piece_at(m, i, c);
            if (list) list[n] = p;
            n++;
            c += p.n;
        }
    return n;
}

static int by_block(const void *a, const void *b)
{
    const piece *p = a, *q = b;
    if (p->block != q->block) return p->block < q->block ? -1 : 1;
    if (p->region != q->region) return p->region < q->region ? -1 : 1;
    return p->lane < q->lane ? -1 : p->lane > q->lane;
}

static void move_release(void *state)
{
    move *m = state;
    if (!m) return;
    free(m->piece);
    free(m->first);
    free(m);
}

static int move_prepare(const kolo_kernel_request *r, kolo_kernel *k)
{
    move *m = kolo_alloc(sizeof *m);
    if (!m) return KOLO_ENOMEM;
    k->state = m;
    k->release = move_release;
    k->run = move_run;
    m->to = kolo_cpu_view_out(r, 0);
    m->inputs = r->node->n_in;
    for (int i = 0; i < m->inputs; i++) m->from[i] = kolo_cpu_view_in(r, i);
    if (r->node->a.stride[0] * r->node->a.stride[1] > MOST_REGIONS - 1)
        return kolo_fail(KOLO_EINTERNAL, "%s: a stride of %ld x %ld", kolo_op_table[r->node->op].name,
                         (long)r->node->a.stride[0], (long)r->node->a.stride[1]);
    add_regions(m, r->node);
    m->pieces = list_pieces(m, NULL);
    m->piece = kolo_alloc((size_t)m->pieces * sizeof *m->piece);
    m->first = kolo_alloc((size_t)(m->to.blocks + 1) * sizeof *m->first);
    if (!m->piece || !m->first) return KOLO_ENOMEM;
    list_pieces(m, m->piece);
    qsort(m->piece, (size_t)m->pieces, sizeof *m->piece, by_block);
    for (int64_t i = m->pieces - 1; i >= 0; i--) m->first[m->piece[i].block] = i;
    m->first[m->to.blocks] = m->pieces;
    m->threads = kolo_cpu_threads(r->backend, kolo_view_count(&m->to));
    snprintf(k->name, sizeof k->name, "own block %ld", (long)m->to.block);
    return 0;
}

const kolo_op_row kolo_cpu_pad = {NULL, move_prepare};
const kolo_op_row kolo_cpu_crop = {NULL, move_prepare};
const kolo_op_row kolo_cpu_concat = {NULL, move_prepare};
const kolo_op_row kolo_cpu_slice = {NULL, move_prepare};
const kolo_op_row kolo_cpu_slice_grad = {NULL, move_prepare};
const kolo_op_row kolo_cpu_space_to_depth = {NULL, move_prepare};
const kolo_op_row kolo_cpu_space_to_depth_grad = {NULL, move_prepare};
const kolo_op_row kolo_cpu_shortcut_a = {NULL, move_prepare};
const kolo_op_row kolo_cpu_shortcut_a_grad = {NULL, move_prepare};
