/* A convolution's data gradient, the mask of the relu in front of the convolution, and the sums that the
 * gradient of the norm in front of that begins with, at once, where cuDNN has an engine for it: in f16 on
 * sm_90 (cuDNN 9.19). Else, or where it is faster, one after the other.
 *
 * Rows that are not valid: their dy and other are 0, and so is what comes of them here, x being finite.
 *
 * The other gradient that is added lies apart and stays: cuDNN does not say that a fused engine
 * may write where it reads, and beta, which adds in place elsewhere, has no place to read from
 * where dx is never stored. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/memory.h"
#include "ops/compose.h"
#include "ops/cuda/engine.h"

/* inputs, then outputs from `n_in` on */
enum { DY, W, OTHER, NORM, SUMS, RESIDUAL = 7, SECOND_SUMS };
enum { G, DSUMS, SECOND_DSUMS = 4 };

enum { VECTORS = KOLO_DNN_NORM_TENSORS - KOLO_DNN_NORM_MEAN }; /* of a norm */

typedef struct conv_grad_norm {
    kolo_kernel split; /* the gradient, norm_mask, norm_grad_stats once or twice */
    kolo_cuda_engine engine;
    int64_t stored; /* channels of g */
    int inputs, args, norms;
    size_t vectors; /* bytes in front of the workspace: what cuDNN reads and makes of norms */
    size_t bytes[2 * KOLO_MAX_ARGS]; /* of the arguments that are no tensors of cuDNN's */
} conv_grad_norm;

static void cuda_conv_grad_norm_release(void *state)
{
    conv_grad_norm *c = state;
    if (!c) return;
    kolo_cuda_engine_close(&c->engine);
    if (c->split.release) c->split.release(c->split.state);
    free(c);
}

/* Vector k of norm i. */
static float *vector(const conv_grad_norm *c, float *vectors, int i, int k)
{
    return vectors + (i * VECTORS + k - KOLO_DNN_NORM_MEAN) * c->stored;
}

static int write_values(const conv_grad_norm *c, void *const *args, float *vectors)
{
    const kolo_kernel *mask = kolo_composed_part(&c->split, KOLO_OP_norm_mask);
    for (int i = 0; i < c->norms; i++)
        KOLO_TRY(kolo_cuda_norm_values(mask, args + (i ? SECOND_SUMS : SUMS),
                                       vector(c, vectors, i, KOLO_DNN_NORM_MEAN)));
    return 0;
}

static int reduce_formed(const conv_grad_norm *c, void *const *args, float *vectors)
{
    const kolo_kernel *mask = kolo_composed_part(&c->split, KOLO_OP_norm_mask);
    for (int i = 0; i < c->norms; i++)
        KOLO_TRY(kolo_cuda_norm_formed(mask, vector(c, vectors, i, KOLO_DNN_NORM_DW),
                                       args + c->inputs + (i ? SECOND_DSUMS : DSUMS)));
    return 0;
}

/* Which part argument i is; -1: none. */
static int part_of(const conv_grad_norm *c, int i)
{
    if (i == c->inputs + G) return KOLO_DNN_X;
    switch (i) {
    case DY: return KOLO_DNN_Y;
    case W: return KOLO_DNN_W;
    case OTHER: return KOLO_DNN_OTHER;
    case NORM: return KOLO_DNN_NORM;
    case RESIDUAL: return c->inputs == RESIDUAL ? -1 : c->norms == 2 ? KOLO_DNN_SECOND : KOLO_DNN_RESIDUAL;
    default: return -1;
    }
}

static int cuda_conv_grad_norm_run(const kolo_kernel *k, void *const *args, void *workspace,
                                   const kolo_step *step, int slot)
{
    const conv_grad_norm *c = k->state;
    void *part[KOLO_DNN_PARTS] = {NULL};
    if (!c->engine.plan) return c->split.run(&c->split, args, workspace, step, slot);
    for (int i = 0; i < c->args; i++)
        if (part_of(c, i) >= 0) part[part_of(c, i)] = args[i];
    for (int i = 0; i < c->norms; i++)
        for (int v = KOLO_DNN_NORM_MEAN; v < KOLO_DNN_NORM_TENSORS; v++)
            part[(i ? KOLO_DNN_SECOND : KOLO_DNN_NORM) + v] = vector(c, workspace, i, v);
    KOLO_TRY(write_values(c, args, workspace));
    KOLO_TRY(kolo_dnn_plan_run(c->engine.plan, part, (char *)workspace + c->vectors));
    return reduce_formed(c, args, workspace);
}

/* ---- in a trial: memory is a step, then the arguments that are no part, then vectors ---- */

static const size_t step_room = (sizeof(kolo_step) + 255) / 256 * 256;

static float *trial_args(const conv_grad_norm *c, void *const *part, void *memory,
                         void *args[2 * KOLO_MAX_ARGS])
{
    char *at = (char *)memory + step_room;
    for (int i = 0; i < c->args; i++) {
        args[i] = part_of(c, i) >= 0 ? part[part_of(c, i)] : at;
        at += c->bytes[i];
    }
    return (float *)at;
}

static int trial_split(void *argument, void *const *part, void *memory, void *workspace)
{
    const conv_grad_norm *c = argument;
    void *args[2 * KOLO_MAX_ARGS];
    trial_args(c, part, memory, args);
    return c->split.run(&c->split, args, workspace, memory, 0);
}

/* The small kernel in front too. */
static int trial_finish(void *argument, void *const *part, void *memory, void *workspace)
{
    const conv_grad_norm *c = argument;
    void *args[2 * KOLO_MAX_ARGS];
    float *vectors = trial_args(c, part, memory, args);
    (void)workspace;
    KOLO_TRY(write_values(c, args, vectors));
    return reduce_formed(c, args, vectors);
}

/* ---- the row ---- */

static int cuda_conv_grad_norm_describe(const kolo_kernel_request *r, kolo_dnn_conv *shape)
{
    const kolo_node *n = r->node;
    KOLO_TRY(kolo_cuda_conv_describe(r, KOLO_DNN_DATA, (const int[]){n->out[G], n->in[W], n->in[DY]}, shape));
    shape->add = n->in[OTHER] >= 0;
    shape->mask = n->n_in == RESIDUAL      ? KOLO_DNN_MASK_NORM
                  : n->n_in == SECOND_SUMS ? KOLO_DNN_MASK_RESIDUAL
                                           : KOLO_DNN_MASK_NORMS;
    return 0;
}

static void cuda_conv_grad_norm_measure(const kolo_kernel_request *r, conv_grad_norm *c)
{
    const kolo_node *n = r->node;
    c->inputs = n->n_in;
    c->args = n->n_in + n->n_out;
    c->norms = n->n_out / 3;
    for (int i = 0; i < c->args; i++) {
        const int t = i < n->n_in ? n->in[i] : n->out[i - n->n_in];
        if (part_of(c, i) < 0) c->bytes[i] = kolo_round_up(r->layout[t].bytes, 256);
    }
}

static int cuda_conv_grad_norm_prepare(const kolo_kernel_request *r, kolo_kernel *k)
{
    kolo_dnn_conv shape;
    conv_grad_norm *c = kolo_alloc(sizeof *c);
    if (!c) return KOLO_ENOMEM;
    k->state = c;
    k->release = cuda_conv_grad_norm_release;
    k->run = cuda_conv_grad_norm_run;
    c->split.backend = r->backend;
    cuda_conv_grad_norm_measure(r, c);
    KOLO_TRY(kolo_compose_prepare(r, &c->split));
    KOLO_TRY(cuda_conv_grad_norm_describe(r, &shape));
    c->stored = shape.in;
    c->vectors = kolo_round_up((size_t)(c->norms * VECTORS * c->stored) * sizeof(float), 256);
    size_t memory = step_room + c->vectors;
    for (int i = 0; i < c->args; i++) memory += c->bytes[i];
    const kolo_cuda_split split = {memory, c->split.workspace, trial_split, trial_finish, NULL, c};
    KOLO_TRY(kolo_cuda_engine_choose(r, &shape, &split, &c->engine));
    k->workspace = c->split.workspace;
    snprintf(k->name, sizeof k->name, "%s", c->split.name);
    if (!c->engine.plan) return 0;
    k->workspace = c->vectors + c->engine.plan->workspace;
    const int named = snprintf(k->name, sizeof k->name, "with a norm's sums, ");
    kolo_dnn_plan_name(c->engine.plan, k->name + named, sizeof k->name - (size_t)named);
    return 0;
}

const kolo_op_row kolo_cuda_conv_grad_norm = {kolo_compose_layout, cuda_conv_grad_norm_prepare};
