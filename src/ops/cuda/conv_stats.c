/* A convolution and the sums of its result at once, where cuDNN has an engine for both: in f16 they are there
 * for all but the narrowest inputs, in bf16 they are compiled for each shape (cuDNN 9.19, sm_90). Else, or
 * where it is faster, one after the other.
 *
 * cuDNN's sums are of all rows. Where not all are valid the sums are formed from y as norm_stats does it
 * (norm.cuh). */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/memory.h"
#include "ops/compose.h"
#include "ops/cuda/engine.h"

enum { X, W, Y, SUMS, ARGS };

typedef struct conv_stats {
    kolo_kernel split; /* the convolution, then norm_stats */
    kolo_cuda_engine engine;
    int64_t stored; /* channels of y */
    size_t formed;  /* bytes in front of the workspace: cuDNN's two sums */
    size_t sums;    /* bytes of the result */
} conv_stats;

static void release(void *state)
{
    conv_stats *c = state;
    if (!c) return;
    kolo_cuda_engine_close(&c->engine);
    if (c->split.release) c->split.release(c->split.state);
    free(c);
}

static int finish_sums(const conv_stats *c, const float *formed, const void *y, double *sums, void *workspace,
                       const kolo_step *step, int slot)
{
    return kolo_cuda_norm_take(kolo_composed_part(&c->split, 1), formed, y, sums, workspace, step, slot);
}

static int run(const kolo_kernel *k, void *const *args, void *workspace, const kolo_step *step, int slot)
{
    const conv_stats *c = k->state;
    float *formed = workspace;
    void *scratch = (char *)workspace + c->formed;
    if (!c->engine.plan) return c->split.run(&c->split, args, workspace, step, slot);
    void *const part[KOLO_DNN_PARTS] = {[KOLO_DNN_X] = args[X],
                                        [KOLO_DNN_W] = args[W],
                                        [KOLO_DNN_Y] = args[Y],
                                        [KOLO_DNN_SUM] = formed,
                                        [KOLO_DNN_SQUARE] = formed + c->stored};
    KOLO_TRY(kolo_dnn_plan_run(c->engine.plan, part, scratch));
    return finish_sums(c, formed, args[Y], args[SUMS], scratch, step, slot);
}

/* ---- in a trial: memory is a step, then the sums ---- */

static const size_t step_room = (sizeof(kolo_step) + 255) / 256 * 256;

static double *trial_sums(void *memory) { return (double *)((char *)memory + step_room); }

static int trial_split(void *argument, void *const *part, void *memory, void *workspace)
{
    const conv_stats *c = argument;
    void *const args[ARGS] = {part[KOLO_DNN_X], part[KOLO_DNN_W], part[KOLO_DNN_Y], trial_sums(memory)};
    return c->split.run(&c->split, args, workspace, memory, 0);
}

static int trial_finish(void *argument, void *const *part, void *memory, void *workspace)
{
    return finish_sums(argument, part[KOLO_DNN_SUM], part[KOLO_DNN_Y], trial_sums(memory), workspace, memory,
                       0);
}

/* ---- the row ---- */

static int prepare(const kolo_kernel_request *r, kolo_kernel *k)
{
    conv_stats *c = kolo_alloc(sizeof *c);
    if (!c) return KOLO_ECONFIG;
    k->state = c;
    k->release = release;
    k->run = run;
    c->split.backend = r->backend;
    KOLO_TRY(kolo_compose_prepare(r, &c->split));
    const kolo_node *n = r->node;
    kolo_dnn_conv shape;
    KOLO_TRY(
        kolo_cuda_conv_describe(r, KOLO_DNN_FORWARD, (const int[]){n->in[X], n->in[W], n->out[0]}, &shape));
    shape.statistics = true;
    c->stored = shape.out;
    c->sums = r->layout[n->out[1]].bytes;
    c->formed = kolo_round_up(2 * sizeof(float) * (size_t)c->stored, 256);
    const kolo_cuda_split split = {step_room + c->sums, c->split.workspace, trial_split, trial_finish, c};
    KOLO_TRY(kolo_cuda_engine_choose(r, &shape, &split, &c->engine));
    k->workspace = c->split.workspace;
    snprintf(k->name, sizeof k->name, "%s", c->split.name);
    if (!c->engine.plan) return 0;
    const size_t own = c->engine.plan->workspace, after = kolo_composed_part(&c->split, 1)->workspace;
    k->workspace = c->formed + (own > after ? own : after);
    const int named = snprintf(k->name, sizeof k->name, "with sums, ");
    kolo_dnn_plan_name(c->engine.plan, k->name + named, sizeof k->name - (size_t)named);
    return 0;
}

const kolo_op_row kolo_cuda_conv_stats = {kolo_compose_layout, prepare};
