/* Operations of one element at a time: relu, add, relu's gradient. Over whole planes, padding
 * included: it stays zero. */
#include <stdio.h>
#include <stdlib.h>

#include "base/memory.h"
#include "kolo/error.h"
#include "ops/cpu/access.h"
#include "ops/cpu/cpu.h"

enum { PIECE = 16384 }; /* elements of one call */

typedef struct element {
    int64_t count;
    bool bf16;
    int threads;
} element;
typedef void part(void *out, const void *a, const void *b, int64_t n, bool bf16);

KOLO_ALWAYS void relu_loop(void *y, const void *x, int64_t n, bool bf16)
{
#pragma omp simd
    for (int64_t i = 0; i < n; i++) kolo_store(y, i, kolo_relu1(kolo_load(x, i, bf16)), bf16);
}
KOLO_ALWAYS void add_loop(void *y, const void *a, const void *b, int64_t n, bool bf16)
{
#pragma omp simd
    for (int64_t i = 0; i < n; i++) kolo_store(y, i, kolo_load(a, i, bf16) + kolo_load(b, i, bf16), bf16);
}
KOLO_ALWAYS void relu_grad_loop(void *dx, const void *dy, const void *y, int64_t n, bool bf16)
{
#pragma omp simd
    for (int64_t i = 0; i < n; i++)
        kolo_store(dx, i, kolo_relu_grad1(kolo_load(dy, i, bf16), kolo_load(y, i, bf16)), bf16);
}

KOLO_BODY relu_body(void *y, const void *x, const void *b, int64_t n, bool bf16)
{
    (void)b;
    KOLO_FOR_TYPE(bf16, relu_loop(y, x, n, bf16_));
}
KOLO_BODY add_body(void *y, const void *a, const void *b, int64_t n, bool bf16)
{
    KOLO_FOR_TYPE(bf16, add_loop(y, a, b, n, bf16_));
}
KOLO_BODY relu_grad_body(void *y, const void *a, const void *b, int64_t n, bool bf16)
{
    KOLO_FOR_TYPE(bf16, relu_grad_loop(y, a, b, n, bf16_));
}
KOLO_WIDE(relu, (void *y, const void *a, const void *b, int64_t n, bool bf16), (y, a, b, n, bf16))
KOLO_WIDE(add, (void *y, const void *a, const void *b, int64_t n, bool bf16), (y, a, b, n, bf16))
KOLO_WIDE(relu_grad, (void *y, const void *a, const void *b, int64_t n, bool bf16), (y, a, b, n, bf16))

static int run_pieces(const element *e, part *loop, void *out, const void *a, const void *b)
{
#pragma omp parallel for schedule(static) num_threads(e->threads)
    for (int64_t i = 0; i < e->count; i += PIECE) {
        int64_t n = e->count - i < PIECE ? e->count - i : PIECE;
        loop(kolo_at_out(out, i, e->bf16), kolo_at(a, i, e->bf16), kolo_at(b, i, e->bf16), n, e->bf16);
    }
    return 0;
}

void kolo_cpu_sum(void *out, const void *a, const void *b, int64_t count, bool bf16, int threads)
{
    const element e = {count, bf16, threads};
    run_pieces(&e, add, out, a, b);
}

#define RUN(name, out, a, b)                                                                               \
    static int run_##name(const kolo_kernel *k, void *const *args, void *workspace, const kolo_step *step, \
                          int slot)                                                                        \
    {                                                                                                      \
        (void)workspace;                                                                                   \
        (void)step;                                                                                        \
        (void)slot;                                                                                        \
        return run_pieces(k->state, name, args[out], args[a], args[b]);                                    \
    }
RUN(relu, 1, 0, 0)
RUN(add, 2, 0, 1)
RUN(relu_grad, 2, 0, 1)

static int element_prepare(const kolo_kernel_request *r, kolo_kernel *k)
{
    element *e = kolo_alloc(sizeof *e);
    if (!e) return KOLO_ENOMEM;
    kolo_view v = kolo_cpu_view_in(r, 0);
    e->count = kolo_view_count(&v);
    e->bf16 = v.bf16;
    e->threads = kolo_cpu_threads(r->backend, e->count);
    k->state = e;
    k->release = free;
    k->run = r->node->op == KOLO_OP_relu ? run_relu : r->node->op == KOLO_OP_add ? run_add : run_relu_grad;
    snprintf(k->name, sizeof k->name, "own%s", v.bf16 ? " bf16" : "");
    return 0;
}

const kolo_op_row kolo_cpu_relu = {NULL, element_prepare};
const kolo_op_row kolo_cpu_add = {NULL, element_prepare};
const kolo_op_row kolo_cpu_relu_grad = {NULL, element_prepare};
