/* The margin of ArcFace: y = scale cos, but for the label's own class scale cos(angle +
 * margin) (ops/margin.h). */
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/memory.h"
#include "kolo/error.h"
#include "ops/cpu/access.h"
#include "ops/cpu/target.h"
#include "ops/margin.h"

typedef struct arc {
    int64_t rows, first, count, classes, words; /* count classes of all, from the first one on */
    kolo_arc_margin1 margin;
    float scale;
    bool bf16, backward;
    int threads;
} arc;

KOLO_BODY times_body(void *y, const void *x, int64_t n, float scale, bool bf16)
{
    if (bf16)
        for (int64_t i = 0; i < n; i++) kolo_store(y, i, kolo_load(x, i, true) * scale, true);
    else
        for (int64_t i = 0; i < n; i++) kolo_store(y, i, kolo_load(x, i, false) * scale, false);
}
KOLO_WIDE(times, (void *y, const void *x, int64_t n, float scale, bool bf16), (y, x, n, scale, bf16))

static float get(const void *p, int64_t i, bool bf16)
{
    return bf16 ? kolo_load(p, i, true) : kolo_load(p, i, false);
}
static void arc_margin_put(void *p, int64_t i, float v, bool bf16)
{
    KOLO_FOR_TYPE(bf16, kolo_store(p, i, v, bf16_));
}

/* in: [dy,] cosines, labels; out: y or dcosines: the input (dy) times the scale, but for the own class. A
 * label that no class has is refused by the loss. */
static int arc_margin_run(const kolo_kernel *k, void *const *args, void *workspace, const kolo_step *step,
                          int slot)
{
    (void)workspace;
    const arc *a = k->state;
    const void *cosines = args[a->backward], *labels = args[a->backward + 1];
    void *out = args[a->backward + 2];
#pragma omp parallel for schedule(static) num_threads(a->threads)
    for (int64_t n = 0; n < a->rows; n++) {
        const int64_t at = n * a->count;
        kolo_bad_label bad;
        times(kolo_at_out(out, at, a->bf16), kolo_at(args[0], at, a->bf16), a->count, a->scale, a->bf16);
        if (n >= step->valid[slot]) continue;
        const kolo_target t = kolo_target_of(labels, n, a->words, a->classes);
        if (!kolo_target_fits(&t, a->words, a->classes, &bad)) continue;
        if (t.heavier < a->first || t.heavier >= a->first + a->count) continue;
        const int64_t own = at + t.heavier - a->first;
        const float cosine = get(cosines, own, a->bf16);
        arc_margin_put(out, own,
                       a->backward
                           ? get(args[0], own, a->bf16) * a->scale * kolo_arc_slope1(&a->margin, cosine)
                           : a->scale * kolo_arc1(&a->margin, cosine),
                       a->bf16);
    }
    return 0;
}

static int arc_margin_prepare(const kolo_kernel_request *r, kolo_kernel *k)
{
    const bool backward = r->node->op == KOLO_OP_arc_margin_grad;
    const kolo_tensor *x = kolo_request_in(r, backward), *labels = kolo_request_in(r, backward ? 2 : 1);
    arc *a = kolo_alloc(sizeof *a);
    if (!a) return KOLO_ENOMEM;
    *a = (arc){.rows = x->dim[0],
               .backward = backward,
               .first = r->node->a.first,
               .count = x->dim[1],
               .classes = r->node->a.count ? r->node->a.count : x->dim[1],
               .words = kolo_target_words(labels),
               .margin = kolo_arc_margin1_of((float)r->node->a.margin),
               .scale = (float)r->node->a.scale,
               .bf16 = x->dtype == KOLO_BF16};
    a->threads = kolo_cpu_threads(r->backend, a->rows * a->count);
    k->state = a;
    k->release = free;
    k->run = arc_margin_run;
    snprintf(k->name, sizeof k->name, "own%s", a->bf16 ? " bf16" : "");
    return 0;
}

const kolo_op_row kolo_cpu_arc_margin = {NULL, arc_margin_prepare};
const kolo_op_row kolo_cpu_arc_margin_grad = {NULL, arc_margin_prepare};
