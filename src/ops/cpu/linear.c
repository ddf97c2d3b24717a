/* y = x w^T + bias and its gradients, by oneDNN. A map, whose channels lie together, is a matrix of all its
 * pixels. f32 weights stay row-major (O, I), which all three passes read or write as they are. bf16: with
 * instructions for it (for the few rows of (N, F): with matrix instructions) the weight is rounded into the
 * workspace, in the order that the pass likes best; else x and y are widened and computed with in f32, whose
 * instructions are no slower. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/memory.h"
#include "base/failure.h"
#include "ops/cpu/cpu.h"

enum { X, W, Y, BIAS };

typedef struct linear {
    enum kolo_dnnl_pass pass;
    kolo_dnnl_primitive *main, *reorder; /* reorder: of the weight, or NULL */
    size_t scratch_at;                   /* in the workspace, behind the rounded weight, or widened x and y */
    bool widened;
    int64_t x_count, y_count;
    int threads;
    int at[4]; /* args of X, W, Y, BIAS; -1: not there */
} linear;

static void linear_release(void *state)
{
    linear *l = state;
    if (!l) return;
    kolo_dnnl_destroy(&l->main);
    kolo_dnnl_destroy(&l->reorder);
    free(l);
}

static int run_widened(const linear *l, void *const *pointer, void *workspace, void *scratch)
{
    float *x = workspace, *y = x + kolo_round_up((size_t)l->x_count, 16);
    void *inner[4] = {x, pointer[W], y, pointer[BIAS]};
    if (l->pass != KOLO_DNNL_DATA) kolo_cpu_widen(x, pointer[X], l->x_count, l->threads);
    if (l->pass != KOLO_DNNL_FORWARD) kolo_cpu_widen(y, pointer[Y], l->y_count, l->threads);
    KOLO_TRY(kolo_dnnl_run(l->main, inner, scratch));
    if (l->pass == KOLO_DNNL_FORWARD) kolo_cpu_narrow(pointer[Y], y, l->y_count, l->threads);
    if (l->pass == KOLO_DNNL_DATA) kolo_cpu_narrow(pointer[X], x, l->x_count, l->threads);
    return 0;
}

static int linear_run(const kolo_kernel *k, void *const *args, void *workspace, const kolo_step *step,
                      int slot)
{
    (void)step;
    (void)slot;
    const linear *l = k->state;
    void *pointer[4], *scratch = (char *)workspace + l->scratch_at;
    for (int i = 0; i < 4; i++) pointer[i] = l->at[i] >= 0 ? args[l->at[i]] : NULL;
    if (l->widened) return run_widened(l, pointer, workspace, scratch);
    if (l->reorder) {
        void *copy[2] = {pointer[W], workspace};
        KOLO_TRY(kolo_dnnl_run(l->reorder, copy, scratch));
        pointer[W] = workspace;
    }
    return kolo_dnnl_run(l->main, pointer, scratch);
}

static enum kolo_dnnl_pass pass_of(const kolo_node *n)
{
    return n->op == KOLO_OP_linear             ? KOLO_DNNL_FORWARD
           : n->op == KOLO_OP_linear_grad_data ? KOLO_DNNL_DATA
                                               : KOLO_DNNL_WEIGHT;
}

/* A map as (pixels of all rows, channels), a weight (O, I, 1, 1) as (O, I). */
static const kolo_dnnl_desc *matrix(kolo_dnnl *d, enum kolo_dtype dtype, const kolo_tensor *t)
{
    int64_t features = t->dim[1], dim[2] = {kolo_tensor_count(t) / features, features};
    return kolo_dnnl_plain(d, dtype, 2, dim);
}

static int linear_make(const kolo_kernel_request *r, linear *l, kolo_kernel *k)
{
    kolo_dnnl *d = kolo_cpu_dnnl(r->backend);
    const kolo_node *n = r->node;
    enum kolo_dnnl_pass pass = pass_of(n);
    int forward[4] = {0, 1, n->n_in, n->n_in > 2 && n->in[2] >= 0 ? 2 : -1}, data[4] = {2, 1, 0, -1};
    int weight[4] = {0, 2, 1, n->n_out > 1 && n->out[1] >= 0 ? 3 : -1};
    memcpy(l->at, pass == KOLO_DNNL_FORWARD ? forward : pass == KOLO_DNNL_DATA ? data : weight, sizeof l->at);
    const kolo_tensor *t[4] = {NULL};
    for (int i = 0; i < 4; i++)
        if (l->at[i] >= 0)
            t[i] = &r->graph->tensor[l->at[i] < n->n_in ? n->in[l->at[i]] : n->out[l->at[i] - n->n_in]];
    const bool half = t[X]->dtype == KOLO_BF16;
    l->pass = pass;
    l->widened = half && !(kolo_tensor_is_map(t[X]) ? kolo_dnnl_has_bf16() : kolo_dnnl_has_tiles());
    l->x_count = kolo_tensor_count(t[X]);
    l->y_count = kolo_tensor_count(t[Y]);
    l->threads = kolo_cpu_threads(r->backend, l->x_count);
    bool round = half && !l->widened && pass != KOLO_DNNL_WEIGHT;
    const enum kolo_dtype dtype = l->widened ? KOLO_F32 : t[X]->dtype;
    const kolo_dnnl_desc *x = matrix(d, dtype, t[X]), *y = matrix(d, dtype, t[Y]);
    const kolo_dnnl_desc *param = kolo_dnnl_plain(d, KOLO_F32, 2, t[W]->dim);
    const kolo_dnnl_desc *w = round ? kolo_dnnl_any(d, KOLO_BF16, 2, t[W]->dim) : param;
    const kolo_dnnl_desc *bias = t[BIAS] ? kolo_dnnl_plain(d, KOLO_F32, 1, t[BIAS]->dim) : NULL;
    if (!x || !y || !w || !param || (t[BIAS] && !bias)) return kolo_error_status();
    int rc = kolo_dnnl_make_linear(d, pass, x, w, bias, y, &l->main);
    if (rc > 0)
        return kolo_fail(KOLO_ECONFIG, "oneDNN %s has no %s linear layer for this CPU%s", kolo_dnnl_version(),
                         kolo_dtype_name(t[X]->dtype), t[X]->dtype == KOLO_BF16 ? "; use precision=f32" : "");
    if (rc < 0) return rc;
    size_t scratch = kolo_dnnl_scratch(l->main);
    if (round) {
        const kolo_dnnl_desc *wanted = kolo_dnnl_weight_of(l->main);
        KOLO_TRY(kolo_dnnl_make_reorder(d, param, wanted, &l->reorder));
        if (kolo_dnnl_scratch(l->reorder) > scratch) scratch = kolo_dnnl_scratch(l->reorder);
        l->scratch_at = kolo_round_up(kolo_dnnl_bytes(wanted), KOLO_ALIGN);
    }
    if (l->widened)
        l->scratch_at =
            (kolo_round_up((size_t)l->x_count, 16) + kolo_round_up((size_t)l->y_count, 16)) * sizeof(float);
    k->workspace = l->scratch_at + scratch;
    snprintf(k->name, sizeof k->name, "oneDNN %s%s", kolo_dnnl_name(l->main),
             round        ? " + weight reorder"
             : l->widened ? ", widened"
                          : "");
    return kolo_dnnl_warm(l->main, dtype);
}

static int linear_prepare(const kolo_kernel_request *r, kolo_kernel *k)
{
    linear *l = kolo_alloc(sizeof *l);
    if (!l) return KOLO_ENOMEM;
    k->state = l;
    k->release = linear_release;
    k->run = linear_run;
    return linear_make(r, l, k);
}

const kolo_op_row kolo_cpu_linear = {kolo_cpu_channels_last, linear_prepare};
const kolo_op_row kolo_cpu_linear_grad_data = {kolo_cpu_channels_last, linear_prepare};
const kolo_op_row kolo_cpu_linear_grad_weight = {kolo_cpu_channels_last, linear_prepare};
