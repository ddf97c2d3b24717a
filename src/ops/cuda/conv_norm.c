/* A convolution with the norms around it at once, where cuDNN has an engine for all of it; else, or where it
 * is faster, one after the other (ops/compose.h).
 *
 *   conv_stats              y, and the sums of y: in f16 there are engines for all but the narrowest inputs,
 *                           in bf16 they are compiled for each shape (cuDNN 9.19, sm_90)
 *   norm_conv_stats         the same of relu(scale x + bias), in f16 only: what a norm does to x, its scale
 *                           and bias rounded to f16, as cuDNN wants them
 *   norm_conv_grad_weight   the gradient of the weights of that
 *
 * cuDNN's sums are of all rows. Where not all are valid the sums are formed from y as norm_stats does it
 * (norm.cuh); rows of y that are not valid are then those of some number x, not of 0: nothing reads them. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/memory.h"
#include "ops/compose.h"
#include "ops/cuda/engine.h"

/* What the three operations read and write; ABSENT: not this one. */
enum role { X, W, Y, SUMS, NORM, STATISTIC, ROLES }; /* NORM: the first of x's sums, the norm's w and b */
enum { ABSENT = -1, WIDEST = 5 + 3 };

typedef struct fused {
    kolo_kernel split;
    const kolo_kernel *norm, *stats; /* parts of it: of x, of y; NULL: not here */
    kolo_cuda_engine engine;
    int at[ROLES], args;
    int64_t in, out, weights; /* channels of x and y as stored; numbers of a 16-bit gradient, or 0 */
    int64_t channels;         /* of x */
    enum kolo_dtype dtype;
    size_t sums; /* bytes of y's sums */
    /* in the workspace, behind scale and bias: cuDNN's two sums; dw */
    size_t formed_at, weights_at, scratch_at;
    size_t norm_at, memory; /* of a trial, in its memory behind the step and y's sums */
} fused;

static void cuda_conv_norm_release(void *state)
{
    fused *f = state;
    if (!f) return;
    kolo_cuda_engine_close(&f->engine);
    if (f->split.release) f->split.release(f->split.state);
    free(f);
}

static void lay_roles(fused *f, enum kolo_op op)
{
    static const int stats[ROLES] = {0, 1, 2, 3, ABSENT, ABSENT}, norm_stats[ROLES] = {0, 1, 5, 6, 2, 7},
                     norm_weight[ROLES] = {0, 5, 1, ABSENT, 2, ABSENT};
    const int *at = op == KOLO_OP_conv_stats        ? stats
                    : op == KOLO_OP_norm_conv_stats ? norm_stats
                                                    : norm_weight;
    memcpy(f->at, at, sizeof f->at);
}

/* ---- the step ---- */

/* What follows cuDNN. */
static int cuda_conv_norm_finish(const fused *f, void *const part[KOLO_DNN_PARTS], double *sums, float *dw,
                                 void *scratch, const kolo_step *step, int slot)
{
    if (f->stats)
        return kolo_cuda_norm_take(f->stats, part[KOLO_DNN_SUM], part[KOLO_DNN_Y], sums, scratch, step, slot);
    return kolo_dnn_widen(kolo_cuda_of(f->split.backend), dw, part[KOLO_DNN_W], f->dtype, f->weights);
}

static int cuda_conv_norm_run(const kolo_kernel *k, void *const *args, void *workspace, const kolo_step *step,
                              int slot)
{
    const fused *f = k->state;
    char *own = workspace;
    void *scratch = own + f->scratch_at, *bias = own + (size_t)f->in * kolo_dtype_size(f->dtype);
    if (!f->engine.plan) return f->split.run(&f->split, args, workspace, step, slot);
    void *part[KOLO_DNN_PARTS] = {args[f->at[X]], f->weights ? own + f->weights_at : args[f->at[W]],
                                  args[f->at[Y]]};
    if (f->stats) {
        part[KOLO_DNN_SUM] = own + f->formed_at;
        part[KOLO_DNN_SQUARE] = (float *)part[KOLO_DNN_SUM] + f->out;
    }
    if (f->norm) {
        float *statistic = f->at[STATISTIC] < 0 ? NULL : args[f->at[STATISTIC]];
        part[KOLO_DNN_SCALE] = own;
        part[KOLO_DNN_BIAS] = bias;
        KOLO_TRY(kolo_cuda_norm_affine(f->norm, args + f->at[NORM], statistic, own, step, slot));
    }
    KOLO_TRY(kolo_dnn_plan_run(f->engine.plan, part, scratch));
    return cuda_conv_norm_finish(f, part, f->stats ? args[f->at[SUMS]] : NULL, args[f->at[W]], scratch, step,
                                 slot);
}

/* ---- in a trial: memory is a step, y's sums or dw, then x's sums, w, b and statistic ---- */

static const size_t step_room = (sizeof(kolo_step) + 255) / 256 * 256;

static void *trial_result(void *memory) { return (char *)memory + step_room; }

static int trial_split(void *argument, void *const *part, void *memory, void *workspace)
{
    const fused *f = argument;
    void *args[WIDEST] = {NULL};
    char *norm = (char *)memory + f->norm_at;
    args[f->at[X]] = part[KOLO_DNN_X];
    args[f->at[Y]] = part[KOLO_DNN_Y];
    args[f->at[W]] = f->weights ? trial_result(memory) : part[KOLO_DNN_W];
    if (f->stats) args[f->at[SUMS]] = trial_result(memory);
    if (f->norm) {
        const size_t sums = (size_t)(2 * f->channels + 1) * sizeof(double),
                     vector = (size_t)f->channels * sizeof(float);
        args[f->at[NORM]] = norm;
        args[f->at[NORM] + 1] = norm + sums;
        args[f->at[NORM] + 2] = norm + sums + vector;
        if (f->at[STATISTIC] >= 0) args[f->at[STATISTIC]] = norm + sums + 2 * vector;
    }
    return f->split.run(&f->split, args, workspace, memory, 0);
}

static int trial_finish(void *argument, void *const *part, void *memory, void *workspace)
{
    return cuda_conv_norm_finish(argument, part, trial_result(memory), trial_result(memory), workspace,
                                 memory, 0);
}

/* Numbers of mean 0 and variance 1, and a norm that leaves them so: as those of x are. */
static int trial_fill(void *argument, void *memory)
{
    const fused *f = argument;
    const size_t n = (size_t)f->channels, bytes = f->memory - f->norm_at;
    if (!f->norm) return 0;
    double *sums = kolo_alloc(bytes);
    if (!sums) return KOLO_ENOMEM;
    float *w = (float *)(sums + 2 * n + 1);
    for (size_t i = 0; i < n; i++) sums[n + i] = w[i] = 1;
    sums[2 * n] = 1;
    const int rc = kolo_backend_write(f->split.backend, (char *)memory + f->norm_at, sums, bytes);
    free(sums);
    return rc;
}

/* ---- the rows ---- */

static int cuda_conv_norm_describe(const kolo_kernel_request *r, const fused *f, kolo_dnn_conv *shape)
{
    const kolo_node *n = r->node;
    int tensor[3];
    for (int i = X; i <= Y; i++)
        tensor[i] = f->at[i] < n->n_in ? n->in[f->at[i]] : n->out[f->at[i] - n->n_in];
    KOLO_TRY(kolo_cuda_conv_describe(r, f->at[W] == 5 ? KOLO_DNN_WEIGHT : KOLO_DNN_FORWARD, tensor, shape));
    shape->statistics = f->stats != NULL;
    shape->prologue = f->norm != NULL;
    return 0;
}

/* The workspace of the fused form, and the memory of a trial. */
static void lay(const kolo_kernel_request *r, const kolo_dnn_conv *shape, fused *f)
{
    const size_t half = kolo_dtype_size(shape->dtype);
    const bool weight = shape->pass == KOLO_DNN_WEIGHT;
    f->in = shape->in;
    f->out = shape->out;
    f->dtype = shape->dtype;
    f->channels = r->graph->tensor[r->node->in[X]].dim[1];
    if (weight) f->weights = (int64_t)(r->layout[r->node->out[0]].bytes / sizeof(float));
    if (f->stats) f->sums = r->layout[r->node->out[f->at[SUMS] - r->node->n_in]].bytes;
    f->formed_at = f->norm ? kolo_round_up(2 * half * (size_t)f->in, 256) : 0;
    f->weights_at = f->formed_at + (f->stats ? kolo_round_up(2 * sizeof(float) * (size_t)f->out, 256) : 0);
    f->scratch_at = f->weights_at + kolo_round_up((size_t)f->weights * half, 256);
    f->norm_at = step_room + kolo_round_up(f->sums + (size_t)f->weights * sizeof(float), 256);
    f->memory = f->norm_at + (f->norm ? (size_t)(2 * f->channels + 1) * sizeof(double) +
                                            (size_t)(4 * f->channels + 2) * sizeof(float)
                                      : 0);
}

static int name_engine(const fused *f, kolo_kernel *k)
{
    const char *what = f->norm && f->stats ? "with norm and sums" : f->norm ? "with norm" : "with sums";
    const size_t own = f->engine.plan->workspace, after = f->stats ? f->stats->workspace : 0;
    k->workspace = f->scratch_at + (own > after ? own : after);
    const int named = snprintf(k->name, sizeof k->name, "%s, ", what);
    kolo_dnn_plan_name(f->engine.plan, k->name + named, sizeof k->name - (size_t)named);
    return 0;
}

static int cuda_conv_norm_prepare(const kolo_kernel_request *r, kolo_kernel *k)
{
    fused *f = kolo_alloc(sizeof *f);
    kolo_dnn_conv shape;
    if (!f) return KOLO_ENOMEM;
    k->state = f;
    k->release = cuda_conv_norm_release;
    k->run = cuda_conv_norm_run;
    lay_roles(f, r->node->op);
    f->split.backend = r->backend;
    KOLO_TRY(kolo_compose_prepare(r, &f->split));
    f->norm = kolo_composed_part(&f->split, KOLO_OP_norm_apply);
    f->stats = kolo_composed_part(&f->split, KOLO_OP_norm_stats);
    KOLO_TRY(cuda_conv_norm_describe(r, f, &shape));
    lay(r, &shape, f);
    const kolo_cuda_split split = {f->memory, f->split.workspace, trial_split, trial_finish, trial_fill, f};
    k->workspace = f->split.workspace;
    snprintf(k->name, sizeof k->name, "%s", f->split.name);
    /* f32 has no engines, and its gradient of the weights needs no second place */
    if (shape.dtype == KOLO_F32 && f->norm) return 0;
    KOLO_TRY(kolo_cuda_engine_choose(r, &shape, &split, &f->engine));
    return f->engine.plan ? name_engine(f, k) : 0;
}

const kolo_op_row kolo_cuda_conv_stats = {kolo_compose_layout, cuda_conv_norm_prepare};
const kolo_op_row kolo_cuda_norm_conv_stats = {kolo_compose_layout, cuda_conv_norm_prepare};
const kolo_op_row kolo_cuda_norm_conv_grad_weight = {kolo_compose_layout, cuda_conv_norm_prepare};
