/* Activations and their gradients, over whole planes; padding that an activation would lift
 * from 0 is cleared again. */
#include "ops/activation.h"

#include <stdio.h>
#include <stdlib.h>

#include "base/memory.h"
#include "kolo/error.h"
#include "ops/cpu/access.h"
#include "ops/cpu/cpu.h"

enum { PIECE = 16384 }; /* elements of one call */

typedef struct activation {
    kolo_view v;
    enum kolo_activation kind;
    float slope;
    int threads;
    bool backward;
} activation;

/* dy: backward alone */
typedef struct piece {
    void *out;
    const void *dy, *x;
    int64_t n;
} piece;

KOLO_ALWAYS void forward_loop(const piece *p, enum kolo_activation kind, float slope, bool bf16)
{
    void *y = p->out;
    const void *x = p->x;
#pragma omp simd
    for (int64_t i = 0; i < p->n; i++)
        kolo_store(y, i, kolo_activation1(kind, slope, kolo_load(x, i, bf16)), bf16);
}

KOLO_ALWAYS void backward_loop(const piece *p, enum kolo_activation kind, float slope, bool bf16)
{
    void *dx = p->out;
    const void *dy = p->dy, *x = p->x;
#pragma omp simd
    for (int64_t i = 0; i < p->n; i++)
        kolo_store(dx, i, kolo_activation_grad1(kind, slope, kolo_load(dy, i, bf16), kolo_load(x, i, bf16)),
                   bf16);
}

/* `loop` with the constants in place of the values */
#define KIND(loop, kind)                                  \
    case kind:                                            \
        KOLO_FOR_TYPE(bf16, loop(p, kind, slope, bf16_)); \
        break
#define FOR_KIND(loop)                 \
    switch (kind) {                    \
        KIND(loop, KOLO_GELU);         \
        KIND(loop, KOLO_GELU_TANH);    \
        KIND(loop, KOLO_SILU);         \
        KIND(loop, KOLO_LEAKY_RELU);   \
        KIND(loop, KOLO_HARD_SWISH);   \
        KIND(loop, KOLO_HARD_SIGMOID); \
        KIND(loop, KOLO_RELU6);        \
        KIND(loop, KOLO_SIGMOID);      \
        KIND(loop, KOLO_TANH);         \
    }

KOLO_BODY forward_body(const piece *p, enum kolo_activation kind, float slope, bool bf16){
    FOR_KIND(forward_loop)} KOLO_BODY backward_body(const piece *p, enum kolo_activation kind, float slope,
                                                    bool bf16){
    FOR_KIND(backward_loop)} KOLO_WIDE(forward,
                                       (const piece *p, enum kolo_activation kind, float slope, bool bf16),
                                       (p, kind, slope, bf16))
    KOLO_WIDE(backward, (const piece *p, enum kolo_activation kind, float slope, bool bf16),
              (p, kind, slope, bf16))

    /* in: x; out: y. Or in: dy, x; out: dx */
    static int run(const kolo_kernel *k, void *const *args, void *workspace, const kolo_step *step, int slot)
{
    (void)workspace;
    (void)step;
    (void)slot;
    const activation *a = k->state;
    const bool bf16 = a->v.bf16;
    const int64_t count = kolo_view_count(&a->v);
    void *out = args[a->backward + 1];
#pragma omp parallel for schedule(static) num_threads(a->threads)
    for (int64_t i = 0; i < count; i += PIECE) {
        const piece p = {kolo_at_out(out, i, bf16), kolo_at(args[0], i, bf16),
                         kolo_at(args[a->backward], i, bf16), count - i < PIECE ? count - i : PIECE};
        (a->backward ? backward : forward)(&p, a->kind, a->slope, bf16);
    }
    if (!a->backward && !kolo_activation_keeps_zero(a->kind)) kolo_cpu_clear_padding(&a->v, out);
    return 0;
}

static int activation_prepare(const kolo_kernel_request *r, kolo_kernel *k)
{
    activation *a = kolo_alloc(sizeof *a);
    if (!a) return KOLO_ENOMEM;
    a->v = kolo_cpu_view_in(r, 0);
    a->kind = r->node->a.activation;
    a->slope = (float)r->node->a.slope;
    a->threads = kolo_cpu_threads(r->backend, kolo_view_count(&a->v));
    a->backward = r->node->op == KOLO_OP_activation_grad;
    k->state = a;
    k->release = free;
    k->run = run;
    snprintf(k->name, sizeof k->name, "own%s", a->v.bf16 ? " bf16" : "");
    return 0;
}

const kolo_op_row kolo_cpu_activation = {NULL, activation_prepare};
const kolo_op_row kolo_cpu_activation_grad = {NULL, activation_prepare};
