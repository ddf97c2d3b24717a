#include "train/pipeline.h"

#include <stdio.h>
#include <stdlib.h>

#include "base/memory.h"
#include "kolo/error.h"
#include "plan/fabric.h"
#include "train/parts.h"
#include "train/forms.h"
#include "train/late.h"

int session_cut_parts(const kolo_session *s) { return (int)(s->options->stages * s->options->chunks); }

int session_parts(const kolo_session *s)
{
    const kolo_cuts cuts = {
        .parts = {s->spatial[0], s->spatial[1]}, .range = s->cut_range, .ranges = s->cut_ranges};
    return kolo_cuts_parts(&cuts) * (int)s->options->tensor;
}

void session_parts_text(const kolo_session *s, char text[64])
{
    const bool spatial = s->spatial[0] * s->spatial[1] > 1, tensor = s->options->tensor > 1;
    *text = 0;
    if (s->cut_ranges && s->cut_range[s->cut_ranges - 1].channels) {
        snprintf(text, 64, "spatial=%.50s", s->options->spatial);
        return;
    }
    if (spatial || !tensor) snprintf(text, 64, "spatial=%dx%d", s->spatial[0], s->spatial[1]);
    const size_t used = strlen(text);
    if (tensor) snprintf(text + used, 64 - used, "%stensor=%d", used ? " " : "", (int)s->options->tensor);
}

/* ---- the grid ------------------------------------------------------------------------------------------ */

/* Ranks go to the parts of maps first; what is left of them to stages and replicas. Fewer ranks than parts
 * have several parts each. */
static int divide_parts(kolo_session *s)
{
    const int parts = session_parts(s), stages = (int)s->options->stages,
              ranks = s->ranks / stages > 0 ? s->ranks / stages : 1;
    s->across = ranks < parts ? ranks : parts;
    if (parts == 1 || s->ranks % stages || ranks % s->across + parts % s->across == 0) return 0;
    char text[64];
    session_parts_text(s, text);
    return kolo_fail(KOLO_ECONFIG,
                     "%s: %d ranks cannot be divided evenly among %d parts%s; start %d times a divisor of "
                     "%d, or a multiple of %d",
                     text, s->ranks, parts, stages > 1 ? " and the stages" : "", stages, parts,
                     stages * parts);
}

/* Stages of the grid: those of the pipeline, and in each the ranks side by side. */
static int grid_stages(const kolo_session *s) { return (int)s->options->stages * s->across; }

/* Spike compensation is a form of SGD's momentum, and by it weights are predicted. */
static int check_correction(const kolo_options *o)
{
    const char *with = o->pipeline != KOLO_pipeline_pipelined ? "pipeline= other than pipelined"
                       : strcmp(o->optimizer, "sgd")          ? "optimizer= other than sgd"
                       : o->nesterov                          ? "nesterov=true"
                       : o->dampening > 0                     ? "dampening="
                                                              : NULL;
    if (o->late_correction == KOLO_late_correction_none || !with) return 0;
    return kolo_fail(KOLO_ECONFIG,
                     "late_correction=%s is of SGD's momentum, and for pipeline=pipelined; it does not go "
                     "with %s: leave one of them out",
                     kolo_option_find("late_correction")->choices[o->late_correction], with);
}

/* What a pipeline with late weights does not go with, and why. */
static int check_late(const kolo_session *s)
{
    const kolo_options *o = s->options;
    static const char step[] = "it is of one step, and micro-batches here are under way over several";
    const bool predicts =
        o->late_correction == KOLO_late_correction_predict || o->late_correction == KOLO_late_correction_both;
    const struct {
        bool given;
        const char *name, *why;
    } refused[] = {
        {(s->cuda || s->gpu) && predicts, "late_correction=predict or both and device=cuda",
         "weights are predicted in host memory"},
        {session_parts(s) > o->tensor, "spatial", "its parts are stages side by side"},
        {o->tensor > 1, "tensor", "its parts are stages side by side"},
        {o->shard != KOLO_shard_none, "shard", "versions of the weights are kept whole"},
        {o->offload != KOLO_offload_none, "offload", step},
        {o->recompute != KOLO_recompute_none, "recompute", step},
        {o->stash > KOLO_stash_none, "stash", step},
        {kolo_is_adasum(o), "reduce=adasum", "its steps are taken from weights that all ranks have just now"},
        {kolo_late(o) > 0, "sync=stale", "weights would be late twice"},
        {kolo_is_local(o), "local_steps, swap or tournament", "stages have other ranks' weights"},
        {o->swa > 0, "swa", "it forms statistics by passes that this pipeline does not make"},
        {o->loss_scale > 0 || o->precision == KOLO_precision_fp16, "precision=fp16 or loss_scale",
         "what is skipped by a scale is decided before the next batch goes in"},
        {s->phases > 1 || s->shapes > 1, "batch_ramp, size_ramp or multi_scale",
         "batches of two shapes would be under way together"},
    };
    if (!kolo_pipeline_is_late((enum kolo_pipeline)o->pipeline)) return 0;
    for (size_t i = 0; i < sizeof refused / sizeof *refused; i++)
        if (refused[i].given)
            return kolo_fail(KOLO_ECONFIG,
                             "pipeline=%s and %s: not together: %s; leave one of them out, or take "
                             "pipeline=1f1b",
                             kolo_pipeline[o->pipeline].name, refused[i].name, refused[i].why);
    return 0;
}

static int check_combination(const kolo_session *s)
{
    const kolo_options *o = s->options;
    if (o->batch == 0)
        return kolo_fail(
            KOLO_ECONFIG,
            "stages=%ld and batch=auto: a stage holds as many micro-batches however large the "
            "batch is, so memory does not bound it; give batch= of about 4 x stages micro-batches "
            "for each of the %ld replicas, and as large a micro_batch= as fits",
            (long)o->stages, (long)(s->ranks / o->stages > 0 ? s->ranks / o->stages : 1));
    if (o->chunks > 1 && !kolo_pipeline[o->pipeline].takes_chunks)
        return kolo_fail(KOLO_ECONFIG,
                         "chunks=%ld: pipeline=%s has one part a stage; give pipeline=interleaved",
                         (long)o->chunks, kolo_pipeline[o->pipeline].name);
    return 0;
}

/* What says something of stages alone would be read and forgotten. */
static int check_alone(const kolo_session *s)
{
    const kolo_options *o = s->options;
    if (kolo_pipeline_is_late((enum kolo_pipeline)o->pipeline) && (s->parts & KOLO_SESSION_TRAIN))
        return kolo_fail(KOLO_ECONFIG,
                         "pipeline=%s is of stages, and stages=1 has none whose weights could be late: give "
                         "stages=N",
                         kolo_pipeline[o->pipeline].name);
    const char *idle = *o->cut ? "cut" : s->across == 1 && o->rank >= 0 ? "rank" : NULL;
    if (!idle) return 0;
    return kolo_fail(KOLO_ECONFIG,
                     "%s= is of pipelines, and stages=1 is none: give stages=N, or leave %s= out", idle,
                     idle);
}

/* auto: within a node where every node has whole pipelines, as activations are most of what is sent. */
static int grid_on(kolo_session *s, const kolo_launch *launch)
{
    const kolo_options *o = s->options;
    const bool within = o->stages_in_node != KOLO_stages_in_node_false;
    const int rc = kolo_grid_create(&s->grid, launch, grid_stages(s), within);
    if (rc != KOLO_ECONFIG || o->stages_in_node != KOLO_stages_in_node_auto) return rc;
    return kolo_grid_create(&s->grid, launch, grid_stages(s), false);
}

/* `kolo plan ranks=`: nobody knows the nodes, but for those of cluster=. */
static int grid_elsewhere(kolo_session *s)
{
    const int of_node = s->gpu && s->gpu->fabric ? (int)s->gpu->fabric->gpus : s->ranks;
    kolo_launch there = {.size = s->ranks, .nodes = (s->ranks + of_node - 1) / of_node};
    there.node_of = kolo_alloc((size_t)s->ranks * sizeof *there.node_of);
    there.local_of = kolo_alloc((size_t)s->ranks * sizeof *there.local_of);
    int rc = there.node_of && there.local_of ? 0 : KOLO_ENOMEM;
    for (int r = 0; rc == 0 && r < s->ranks; r++) {
        there.node_of[r] = r / of_node;
        there.local_of[r] = r % of_node;
    }
    if (rc == 0)
        rc = of_node < s->ranks ? grid_on(s, &there)
                                : kolo_grid_create(&s->grid, &there, grid_stages(s), false);
    free(there.node_of);
    free(there.local_of);
    return rc;
}

int session_open_grid(kolo_session *s)
{
    const kolo_options *o = s->options;
    s->replicas = s->ranks;
    KOLO_TRY(divide_parts(s));
    if (s->parts & KOLO_SESSION_TRAIN) KOLO_TRY(check_correction(o));
    if (o->stages * o->chunks <= 1) KOLO_TRY(check_alone(s));
    if (o->stages * o->chunks * s->across <= 1) {
        s->grid = (kolo_grid){.stages = 1, .replicas = s->ranks, .replica = s->launch->rank};
        return 0;
    }
    if (s->parts & KOLO_SESSION_TRAIN) KOLO_TRY(check_combination(s)); /* an evaluation sums no gradients */
    if (s->elsewhere && s->ranks % o->stages)
        return kolo_fail(KOLO_ECONFIG, "ranks=%d is no multiple of stages=%ld", s->ranks, (long)o->stages);
    KOLO_TRY(s->elsewhere ? grid_elsewhere(s) : grid_on(s, s->launch));
    s->replicas = s->grid.replicas;
    if (o->rank >= s->ranks) return kolo_fail(KOLO_ECONFIG, "rank=%ld of %d ranks", (long)o->rank, s->ranks);
    if ((s->parts & KOLO_SESSION_PLAN_ONLY) && o->rank >= 0)
        s->grid.stage = kolo_grid_stage(&s->grid, (int)o->rank);
    return 0;
}

/* ---- programs ------------------------------------------------------------------------------------------ */

/* *plan, of the whole network, becomes this stage's. */
static int make_program(const kolo_session *s, kolo_plan **plan, const kolo_placement *placement,
                        const kolo_program *like, kolo_program **program)
{
    kolo_plan *own = NULL;
    KOLO_TRY(kolo_plan_create_stage(&own, *plan, placement, s->grid.stage,
                                    like ? like->plan[s->grid.stage] : NULL));
    kolo_plan_destroy(plan);
    *plan = own;
    KOLO_TRY(kolo_program_create(program, &s->grid, own, like));
    return kolo_program_check(*program);
}

/* Of one shape of a batch; the first is cut, the others as it is. */
static int place_shape(kolo_session *s, kolo_shape *shape, const int *cut)
{
    const kolo_options *o = s->options;
    const kolo_shape *first = &s->shape[0];
    if (shape == first)
        KOLO_TRY(kolo_placement_create(&shape->placement, shape->graph, s->grid.stages, (int)o->chunks,
                                       s->across, (enum kolo_pipeline)o->pipeline, cut));
    else KOLO_TRY(kolo_placement_like(&shape->placement, shape->graph, first->graph, first->placement));
    KOLO_TRY(session_choose_stage_forms(s, shape));
    KOLO_TRY(make_program(s, &shape->plan, shape->placement, shape == first ? NULL : first->program,
                          &shape->program));
    shape->scratch = kolo_plan_scratch(shape->plan);
    if (shape == first) s->plan = shape->plan; /* the next shapes ask for its memory */
    return 0;
}

static int place_shapes(kolo_session *s, const int *cut)
{
    kolo_program **all = kolo_alloc((size_t)s->shapes * sizeof *all);
    int rc = all ? 0 : KOLO_ENOMEM;
    for (int i = 0; rc == 0 && i < s->shapes; i++) {
        rc = place_shape(s, &s->shape[i], cut);
        all[i] = s->shape[i].program;
    }
    if (rc == 0) rc = kolo_program_share(all, s->shapes);
    free(all);
    s->plan = s->shape[0].plan;
    s->placement = s->shape[0].placement;
    s->program = s->shape[0].program;
    return rc;
}

int session_place(kolo_session *s, const int *cut)
{
    if (s->parts & KOLO_SESSION_TRAIN) KOLO_TRY(check_late(s));
    KOLO_TRY(place_shapes(s, cut));
    if (!s->eval_graph) return 0;
    KOLO_TRY(kolo_placement_like(&s->eval_placement, s->eval_graph, s->graph, s->placement));
    return make_program(s, &s->eval_plan, s->eval_placement, s->program, &s->eval_program);
}

void session_free_programs(kolo_session *s)
{
    kolo_program_destroy(&s->eval_program);
    kolo_placement_destroy(&s->eval_placement);
    for (int i = 0; i < s->shapes; i++) {
        kolo_program_destroy(&s->shape[i].program);
        kolo_placement_destroy(&s->shape[i].placement);
    }
    s->program = NULL;
    s->placement = NULL;
    free(s->node_seconds);
    s->node_seconds = NULL;
}
