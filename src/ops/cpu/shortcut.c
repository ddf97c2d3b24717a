/* The parameter-free shortcut of CIFAR ResNets: every stride-th pixel, zero channels on both sides. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/memory.h"
#include "kolo/error.h"
#include "ops/cpu/cpu.h"

typedef struct shortcut { kolo_view x, y; int64_t stride[2], shift; int threads; bool backward; } shortcut;

/* Channels [c, c + n) of y that lie side by side in both blocks; `from` the channel of x, negative: zeros. */
typedef struct segment { int64_t n, from; } segment;

static segment segment_at(const kolo_view *to, const kolo_view *from, int64_t c, int64_t shift)
{
    int64_t end = (c / to->block + 1) * to->block, source = c - shift, limit;
    segment s = {0, source};
    if (source < 0) limit = shift;
    else if (source >= from->channels || c >= to->channels) s.from = -1, limit = end;
    else {
        limit = c + (source / from->block + 1) * from->block - source;
        if (limit > shift + from->channels) limit = shift + from->channels;
        if (limit > to->channels) limit = to->channels;
    }
    if (limit > end) limit = end;
    s.n = limit - c;
    return s;
}

static int64_t place(const kolo_view *v, int64_t n, int64_t c, int64_t h, int64_t w)
{
    return ((n * v->blocks + c / v->block) * v->pixels + h * v->width + w) * v->block + c % v->block;
}

/* One pixel (h, w) of `to`, all channels, from pixel (fh, fw) of `from`, or zeros if fh < 0. */
static void move_pixel(const kolo_view *tv, char *to, const kolo_view *fv, const char *from, int64_t n, int64_t h, int64_t w, int64_t fh,
                       int64_t fw, int64_t shift)
{
    size_t bytes = tv->bf16 ? 2 : 4;
    for (int64_t c = 0; c < tv->blocks * tv->block;) {
        segment s = segment_at(tv, fv, c, shift);
        char *at = to + (size_t)place(tv, n, c, h, w) * bytes;
        if (fh < 0 || s.from < 0) memset(at, 0, (size_t)s.n * bytes);
        else memcpy(at, from + (size_t)place(fv, n, s.from, fh, fw) * bytes, (size_t)s.n * bytes);
        c += s.n;
    }
}

static int run(const kolo_kernel *k, void *const *args, void *workspace, const kolo_step *step, int slot)
{
    (void)workspace;
    (void)step;
    (void)slot;
    const shortcut *s = k->state;
    const kolo_view *to = s->backward ? &s->x : &s->y, *from = s->backward ? &s->y : &s->x;
    int64_t shift = s->backward ? -s->shift : s->shift, sh = s->stride[0], sw = s->stride[1];
#pragma omp parallel for schedule(static) num_threads(s->threads)
    for (int64_t t = 0; t < to->rows * to->height; t++) {
        int64_t n = t / to->height, h = t % to->height;
        for (int64_t w = 0; w < to->width; w++) {
            bool there = !s->backward || (h % sh == 0 && w % sw == 0 && h / sh < from->height && w / sw < from->width);
            int64_t fh = s->backward ? h / sh : h * sh, fw = s->backward ? w / sw : w * sw;
            move_pixel(to, args[1], from, args[0], n, h, w, there ? fh : -1, fw, shift);
        }
    }
    return 0;
}

static int prepare(const kolo_request *r, kolo_kernel *k)
{
    shortcut *s = kolo_alloc(sizeof *s);
    if (!s) return KOLO_ECONFIG;
    s->backward = r->node->op == KOLO_OP_shortcut_a_grad;
    s->x = s->backward ? kolo_cpu_view_out(r, 0) : kolo_cpu_view_in(r, 0);
    s->y = s->backward ? kolo_cpu_view_in(r, 0) : kolo_cpu_view_out(r, 0);
    memcpy(s->stride, r->node->a.stride, sizeof s->stride);
    s->shift = r->node->a.pad[0];
    s->threads = kolo_cpu_threads(r->backend, kolo_view_count(&s->x));
    k->state = s;
    k->release = free;
    k->run = run;
    snprintf(k->name, sizeof k->name, "own block %ld", (long)s->x.block);
    return 0;
}

const kolo_op_row kolo_cpu_shortcut_a = {NULL, prepare};
const kolo_op_row kolo_cpu_shortcut_a_grad = {NULL, prepare};
