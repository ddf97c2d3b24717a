/* y = x w^T + bias and its gradients: x (N, F), w (O, F), y (N, O), or every pixel of x (N, F, H, W), whose
 * stored channels are then the features: a weight of other sizes is stored with zeros up to them, so that the
 * padding of y and of dx comes out as zero. In 16-bit graphs w is read from its 16-bit copy. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/memory.h"
#include "ops/cuda/product.h"

typedef struct linear {
    kolo_product product;
    int at[KOLO_PRODUCT_PARTS]; /* args of X, W, Y, BIAS; -1: not there */
} linear;

static void cuda_linear_release(void *state)
{
    if (state) kolo_product_close(&((linear *)state)->product);
    free(state);
}

static int cuda_linear_run(const kolo_kernel *k, void *const *args, void *workspace, const kolo_step *step,
                           int slot)
{
    (void)step;
    (void)slot;
    const linear *l = k->state;
    void *part[KOLO_PRODUCT_PARTS];
    for (int i = 0; i < KOLO_PRODUCT_PARTS; i++) part[i] = l->at[i] >= 0 ? args[l->at[i]] : NULL;
    return kolo_product_run(&l->product, k->backend, part, workspace);
}

static void cuda_linear_describe(const kolo_kernel_request *r, linear *l)
{
    const kolo_node *n = r->node;
    const int out = n->n_in, bias_in = n->n_in > 2 && n->in[2] >= 0 ? 2 : -1;
    const int bias_out = n->n_out > 1 && n->out[1] >= 0 ? out + 1 : -1;
    const int forward[] = {0, 1, out, bias_in}, data[] = {out, 1, 0, -1}, weight[] = {0, out, 1, bias_out};
    const enum kolo_product_pass pass = n->op == KOLO_OP_linear             ? KOLO_PRODUCT_FORWARD
                                        : n->op == KOLO_OP_linear_grad_data ? KOLO_PRODUCT_DATA
                                                                            : KOLO_PRODUCT_WEIGHT;
    memcpy(l->at,
           pass == KOLO_PRODUCT_FORWARD ? forward
           : pass == KOLO_PRODUCT_DATA  ? data
                                        : weight,
           sizeof l->at);
    const kolo_cuda_view a = kolo_cuda_view_in(r, 0),
                         b = pass == KOLO_PRODUCT_WEIGHT ? kolo_cuda_view_in(r, 1) : kolo_cuda_view_out(r, 0);
    const kolo_cuda_view *x = pass == KOLO_PRODUCT_DATA ? &b : &a, *y = pass == KOLO_PRODUCT_DATA ? &a : &b;
    l->product = (kolo_product){.pass = pass,
                                .rows = y->rows * y->pixels,
                                .in = x->stored,
                                .out = y->stored,
                                .biases = l->at[KOLO_PRODUCT_BIAS] >= 0 ? y->channels : 0,
                                .dtype = y->dtype};
}

static int cuda_linear_prepare(const kolo_kernel_request *r, kolo_kernel *k)
{
    linear *l = kolo_alloc(sizeof *l);
    if (!l) return KOLO_ENOMEM;
    k->state = l;
    k->release = cuda_linear_release;
    k->run = cuda_linear_run;
    cuda_linear_describe(r, l);
    KOLO_TRY(kolo_product_open(&l->product, r->backend));
    k->workspace = l->product.workspace;
    kolo_product_name(&l->product, k->name, sizeof k->name);
    return 0;
}

const kolo_op_row kolo_cuda_linear = {kolo_nhwc_layout, cuda_linear_prepare};
const kolo_op_row kolo_cuda_linear_grad_data = {NULL, cuda_linear_prepare};
const kolo_op_row kolo_cuda_linear_grad_weight = {kolo_nhwc_layout, cuda_linear_prepare};
