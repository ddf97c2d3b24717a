/* The parameter-free shortcut of CIFAR ResNets: every stride-th pixel, zero channels on both sides. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/memory.h"
#include "kolo/error.h"
#include "ops/cpu/cpu.h"

/* Channels that lie side by side in both blocks: n lanes of block `to` from lane `at` on; from_block -1: zeros. */
typedef struct segment {
    int64_t n, to_block, to_lane, from_block, from_lane;
} segment;

typedef struct shortcut {
    kolo_view x, y;
    int64_t stride[2];
    int threads, segments;
    bool backward;
    segment segment[]; /* of the result's channels, padding included */
} shortcut;

/* The run of channels from c on. shift: channel c of the result is channel c - shift of the source. */
static segment segment_at(const kolo_view *to, const kolo_view *from, int64_t c, int64_t shift)
{
    int64_t end = (c / to->block + 1) * to->block, source = c - shift;
    segment s = {end - c, c / to->block, c % to->block, -1, 0};
    if (source < 0 && shift < end) s.n = shift - c;
    if (source < 0 || source >= from->channels || c >= to->channels) return s;
    s.from_block = source / from->block;
    s.from_lane = source % from->block;
    int64_t limit[3] = {from->block - s.from_lane, from->channels - source, to->channels - c};
    for (int i = 0; i < 3; i++)
        if (s.n > limit[i]) s.n = limit[i];
    return s;
}

/* `count` pixels; the usual lengths as constants, so that a pixel is a few moves. */
static void copy_pixels(char *to, int64_t to_step, const char *from, int64_t from_step, int64_t count, size_t bytes)
{
    if (bytes == 32)
        for (int64_t i = 0; i < count; i++) memcpy(to + i * to_step, from + i * from_step, 32);
    else if (bytes == 64)
        for (int64_t i = 0; i < count; i++) memcpy(to + i * to_step, from + i * from_step, 64);
    else
        for (int64_t i = 0; i < count; i++) memcpy(to + i * to_step, from + i * from_step, bytes);
}

static void zero_pixels(char *to, int64_t to_step, int64_t count, size_t bytes)
{
    for (int64_t i = 0; i < count; i++) memset(to + i * to_step, 0, bytes);
}

/* Row h of sample n of the result, one segment. */
static void move_row(const shortcut *s, const segment *g, char *to, const char *from, int64_t n, int64_t h)
{
    const kolo_view *tv = s->backward ? &s->x : &s->y, *fv = s->backward ? &s->y : &s->x;
    int64_t element = tv->bf16 ? 2 : 4, sh = s->stride[0], sw = s->stride[1], fh = s->backward ? h / sh : h * sh;
    int64_t to_step = tv->block * element, from_step = fv->block * element;
    char *row = to + (((n * tv->blocks + g->to_block) * tv->pixels + h * tv->width) * tv->block + g->to_lane) * element;
    size_t bytes = (size_t)(g->n * element);
    bool there = g->from_block >= 0 && (!s->backward || (h % sh == 0 && fh < fv->height));
    if (!there || s->backward) zero_pixels(row, to_step, tv->width, bytes);
    if (!there) return;
    const char *source =
        from + (((n * fv->blocks + g->from_block) * fv->pixels + fh * fv->width) * fv->block + g->from_lane) * element;
    if (s->backward) copy_pixels(row, sw * to_step, source, from_step, fv->width, bytes);
    else copy_pixels(row, to_step, source, sw * from_step, tv->width, bytes);
}

static int run(const kolo_kernel *k, void *const *args, void *workspace, const kolo_step *step, int slot)
{
    (void)workspace;
    (void)step;
    (void)slot;
    const shortcut *s = k->state;
    const kolo_view *to = s->backward ? &s->x : &s->y;
#pragma omp parallel for schedule(static) num_threads(s->threads)
    for (int64_t t = 0; t < to->rows * s->segments; t++)
        for (int64_t h = 0; h < to->height; h++)
            move_row(s, &s->segment[t % s->segments], args[1], args[0], t / s->segments, h);
    return 0;
}

static int prepare(const kolo_kernel_request *r, kolo_kernel *k)
{
    bool backward = r->node->op == KOLO_OP_shortcut_a_grad;
    kolo_view x = backward ? kolo_cpu_view_out(r, 0) : kolo_cpu_view_in(r, 0),
              y = backward ? kolo_cpu_view_in(r, 0) : kolo_cpu_view_out(r, 0);
    const kolo_view *to = backward ? &x : &y, *from = backward ? &y : &x;
    int64_t shift = backward ? -r->node->a.pad[0] : r->node->a.pad[0], lanes = to->blocks * to->block;
    shortcut *s = kolo_alloc(sizeof *s + (size_t)lanes * sizeof s->segment[0]);
    if (!s) return KOLO_ECONFIG;
    s->x = x;
    s->y = y;
    s->backward = backward;
    memcpy(s->stride, r->node->a.stride, sizeof s->stride);
    for (int64_t c = 0; c < lanes; c += s->segment[s->segments++].n)
        s->segment[s->segments] = segment_at(to, from, c, shift);
    s->threads = kolo_cpu_threads(r->backend, kolo_view_count(&s->x));
    k->state = s;
    k->release = free;
    k->run = run;
    snprintf(k->name, sizeof k->name, "own block %ld", (long)s->x.block);
    return 0;
}

const kolo_op_row kolo_cpu_shortcut_a = {NULL, prepare};
const kolo_op_row kolo_cpu_shortcut_a_grad = {NULL, prepare};
