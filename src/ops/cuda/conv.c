/* Convolution and its gradients, by cuDNN (engine.h), except of every channel with its own
 * filter (depthwise.cu). */
#include <stdlib.h>
#include <string.h>

#include "base/memory.h"
#include "ops/cuda/engine.h"

enum { X, W, Y, BIAS };

typedef struct conv {
    enum kolo_dnn_pass pass;
    kolo_cuda_engine engine;
    int at[4];  /* args of X, W, Y, BIAS; -1: not there */
    int addend; /* arg of what is added to x; -1: nothing */
    size_t x_bytes;
    /* The workspace: the weight's gradient as cuDNN writes it (16-bit types); the plan's, or
     * the bias gradient's. */
    size_t scratch_at;
    int64_t weights; /* elements of w as stored; 0: its gradient is f32 and needs no second place */
    kolo_cuda_view y;
} conv;

static void cuda_conv_release(void *state)
{
    conv *c = state;
    if (!c) return;
    kolo_cuda_engine_close(&c->engine);
    free(c);
}

static int cuda_conv_run(const kolo_kernel *k, void *const *args, void *workspace, const kolo_step *step,
                         int slot)
{
    (void)step;
    (void)slot;
    const conv *c = k->state;
    void *p[4], *scratch = (char *)workspace + c->scratch_at;
    const int64_t rows = c->y.rows * c->y.pixels;
    for (int i = 0; i < 4; i++) p[i] = c->at[i] >= 0 ? args[c->at[i]] : NULL;
    if (c->addend >= 0 && args[c->addend] != p[X])
        KOLO_TRY(KOLO_CUDA(cudaMemcpyAsync(p[X], args[c->addend], c->x_bytes, cudaMemcpyDeviceToDevice,
                                           kolo_cuda_stream(k))));
    void *const part[KOLO_DNN_PARTS] = {p[X], c->weights ? workspace : p[W], p[Y]};
    KOLO_TRY(kolo_dnn_plan_run(c->engine.plan, part, scratch));
    if (c->weights)
        KOLO_TRY(kolo_dnn_widen(kolo_cuda_of(k->backend), p[W], workspace, c->y.dtype, c->weights));
    if (!p[BIAS]) return 0;
    if (c->pass == KOLO_DNN_FORWARD)
        return kolo_cuda_bias_add(k->backend, p[Y], c->y.dtype, p[BIAS], rows, c->y.stored, c->y.channels);
    return kolo_cuda_bias_grad(k->backend, p[BIAS], p[Y], c->y.dtype, rows, c->y.stored, c->y.channels,
                               scratch);
}

/* ---- what is asked ------------------------------------------------------------------------------------- */

/* The tensors of a convolution or of one of its gradients, by their part in it; -1: not there. */
typedef struct parts {
    enum kolo_dnn_pass pass;
    int tensor[4], at[4];
    int addend; /* arg */
} parts;

static parts parts_of(const kolo_node *n)
{
    const int out = n->n_in, bias_in = n->n_in > 2 ? 2 : -1, bias_out = n->n_out > 1 ? out + 1 : -1;
    parts p = {KOLO_DNN_FORWARD, {0}, {0, 1, out, bias_in}, -1};
    if (n->op == KOLO_OP_conv_grad_data)
        p = (parts){KOLO_DNN_DATA, {0}, {out, 1, 0, -1}, kolo_node_addend(n)};
    if (n->op == KOLO_OP_conv_grad_weight) p = (parts){KOLO_DNN_WEIGHT, {0}, {0, out, 1, bias_out}, -1};
    for (int i = 0; i < 4; i++) {
        const int at = p.at[i];
        p.tensor[i] = at < 0 ? -1 : at < n->n_in ? n->in[at] : n->out[at - n->n_in];
        if (p.tensor[i] < 0) p.at[i] = -1;
    }
    return p;
}

int kolo_cuda_conv_describe(const kolo_kernel_request *r, enum kolo_dnn_pass pass, const int tensor[3],
                            kolo_dnn_conv *c)
{
    const kolo_attributes *a = &r->node->a;
    const kolo_tensor *t = r->graph->tensor;
    kolo_cuda_view x = kolo_cuda_view_of(&t[tensor[X]], &r->layout[tensor[X]]);
    kolo_cuda_view y = kolo_cuda_view_of(&t[tensor[Y]], &r->layout[tensor[Y]]);
    if (a->groups > 1 && (x.stored != x.channels || y.stored != y.channels))
        return kolo_fail(KOLO_ECONFIG,
                         "a convolution of %ld groups from %ld to %ld channels: on a GPU both must be "
                         "multiples of %ld, because "
                         "padding would fall into one group; use device=cpu or other widths",
                         (long)a->groups, (long)x.channels, (long)y.channels,
                         (long)kolo_cuda_padded(1, x.dtype));
    *c = (kolo_dnn_conv){.pass = pass,
                         .dtype = x.dtype,
                         .rows = x.rows,
                         .in = x.stored,
                         .out = y.stored,
                         .group = a->groups,
                         .x = {x.height, x.width},
                         .y = {y.height, y.width},
                         .kernel = {t[tensor[W]].dim[2], t[tensor[W]].dim[3]}};
    memcpy(c->stride, a->stride, sizeof c->stride);
    memcpy(c->pad, a->pad, sizeof c->pad);
    memcpy(c->dilation, a->dilation, sizeof c->dilation);
    return 0;
}

/* ---- rows ---------------------------------------------------------------------------------------------- */

static int cuda_conv_prepare(const kolo_kernel_request *r, kolo_kernel *k)
{
    const parts p = parts_of(r->node);
    kolo_dnn_conv shape;
    const int own = kolo_cuda_depthwise(r, k);
    if (own <= 0) return own;
    KOLO_TRY(kolo_cuda_conv_describe(r, p.pass, p.tensor, &shape));
    shape.add = p.addend >= 0;
    conv *c = kolo_alloc(sizeof *c);
    if (!c) return KOLO_ENOMEM;
    k->state = c;
    k->release = cuda_conv_release;
    k->run = cuda_conv_run;
    c->pass = p.pass;
    memcpy(c->at, p.at, sizeof c->at);
    c->addend = p.addend;
    c->x_bytes = r->layout[p.tensor[X]].bytes;
    c->y = kolo_cuda_view_of(&r->graph->tensor[p.tensor[Y]], &r->layout[p.tensor[Y]]);
    KOLO_TRY(kolo_cuda_engine_choose(r, &shape, NULL, &c->engine));
    size_t scratch = c->engine.plan->workspace, bias = 0;
    if (p.pass == KOLO_DNN_WEIGHT) {
        if (p.tensor[BIAS] >= 0) bias = kolo_cuda_bias_workspace(c->y.rows * c->y.pixels, c->y.stored);
        if (shape.dtype != KOLO_F32) c->weights = (int64_t)(r->layout[p.tensor[W]].bytes / sizeof(float));
        c->scratch_at = kolo_round_up((size_t)c->weights * kolo_dtype_size(shape.dtype), 256);
    }
    k->workspace = c->scratch_at + (scratch > bias ? scratch : bias);
    kolo_dnn_plan_name(c->engine.plan, k->name, sizeof k->name);
    if (c->addend >= 0) strncat(k->name, ", added", sizeof k->name - strlen(k->name) - 1);
    return 0;
}

const kolo_op_row kolo_cuda_conv = {kolo_nhwc_layout, cuda_conv_prepare};
const kolo_op_row kolo_cuda_conv_grad_data = {NULL, cuda_conv_prepare};
const kolo_op_row kolo_cuda_conv_grad_weight = {kolo_nhwc_layout, cuda_conv_prepare};
