/* Dropout and its gradient, which is the same: elements are left out or divided by the probability to be
 * kept. An element's draw depends on its place in its row in the order of torch, not in memory. */
#include <stdio.h>
#include <stdlib.h>

#include "base/memory.h"
#include "kolo/error.h"
#include "ops/cpu/access.h"
#include "ops/cpu/cpu.h"
#include "ops/draw.h"

typedef struct dropout {
    kolo_view v;
    double drop;
    int64_t first; /* element of the row with which x begins */
    int32_t draw;
    int threads;
} dropout;

typedef struct drawn {
    int64_t quad;
    kolo_philox4 bits;
} drawn;

static bool kept(const dropout *d, const kolo_step *step, int64_t row, int64_t element, drawn *last)
{
    if (last->quad != element / 4) {
        last->quad = element / 4;
        last->bits = kolo_draw4(step->seed, step->step, row, d->draw, last->quad);
    }
    return kolo_draw_keeps(last->bits.v[element % 4], d->drop);
}

static void plane(const dropout *d, const kolo_step *step, int64_t row, int64_t block, void *y, const void *x,
                  bool bf16)
{
    const kolo_view *v = &d->v;
    const float factor = (float)(1 / (1 - d->drop));
    drawn last = {.quad = -1};
    for (int64_t i = 0; i < v->pixels; i++)
        for (int64_t l = 0; l < v->block; l++) {
            int64_t at = i * v->block + l, channel = block * v->block + l;
            bool on = channel < v->channels && kept(d, step, row, d->first + channel * v->pixels + i, &last);
            kolo_store(y, at, on ? kolo_load(x, at, bf16) * factor : 0, bf16);
        }
}

static int dropout_run(const kolo_kernel *k, void *const *args, void *workspace, const kolo_step *step,
                       int slot)
{
    (void)workspace;
    const dropout *d = k->state;
    const kolo_view *v = &d->v;
#pragma omp parallel for schedule(static) num_threads(d->threads)
    for (int64_t t = 0; t < v->rows * v->blocks; t++) {
        int64_t at = t * kolo_view_plane(v), row = step->row[slot] + t / v->blocks;
        void *y = kolo_at_out(args[1], at, v->bf16);
        KOLO_FOR_TYPE(v->bf16, plane(d, step, row, t % v->blocks, y, kolo_at(args[0], at, v->bf16), bf16_));
    }
    return 0;
}

static int dropout_prepare(const kolo_kernel_request *r, kolo_kernel *k)
{
    dropout *d = kolo_alloc(sizeof *d);
    if (!d) return KOLO_ENOMEM;
    d->v = kolo_cpu_view_in(r, 0);
    d->drop = r->node->a.drop;
    d->first = r->node->a.first;
    d->draw = r->node->a.draw;
    d->threads = kolo_cpu_threads(r->backend, kolo_view_count(&d->v));
    k->state = d;
    k->release = free;
    k->run = dropout_run;
    snprintf(k->name, sizeof k->name, "own%s", d->v.bf16 ? " bf16" : "");
    return 0;
}

const kolo_op_row kolo_cpu_dropout = {NULL, dropout_prepare};
const kolo_op_row kolo_cpu_dropout_grad = {NULL, dropout_prepare};
