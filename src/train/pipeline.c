#include "train/pipeline.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/log.h"
#include "base/memory.h"
#include "exec/clock.h"
#include "kolo/error.h"
#include "train/parts.h"
#include "train/forms.h"

int session_cut_parts(const kolo_session *s) { return (int)(s->options->stages * s->options->chunks); }

/* ---- the grid ------------------------------------------------------------------------------------------ */

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
static int check_alone(const kolo_options *o)
{
    const char *idle = *o->cut ? "cut" : *o->timeline ? "timeline" : o->rank >= 0 ? "rank" : NULL;
    if (!idle) return 0;
    return kolo_fail(KOLO_ECONFIG,
                     "%s= is of pipelines, and stages=1 is none: give stages=N, or leave %s= out", idle,
                     idle);
}

/* `kolo plan ranks=`: nobody knows the nodes. */
static int grid_elsewhere(kolo_session *s)
{
    kolo_launch there = {.size = s->ranks, .nodes = 1};
    there.node_of = kolo_alloc((size_t)s->ranks * sizeof *there.node_of);
    there.local_of = kolo_alloc((size_t)s->ranks * sizeof *there.local_of);
    int rc = there.node_of && there.local_of ? 0 : KOLO_ENOMEM;
    for (int r = 0; rc == 0 && r < s->ranks; r++) there.local_of[r] = r;
    if (rc == 0) rc = kolo_grid_create(&s->grid, &there, (int)s->options->stages, false);
    free(there.node_of);
    free(there.local_of);
    return rc;
}

/* auto: within a node where every node has whole pipelines, as activations are most of what is sent. */
static int grid_here(kolo_session *s)
{
    const kolo_options *o = s->options;
    const bool within = o->stages_in_node != KOLO_stages_in_node_false;
    const int rc = kolo_grid_create(&s->grid, s->launch, (int)o->stages, within);
    if (rc != KOLO_ECONFIG || o->stages_in_node != KOLO_stages_in_node_auto) return rc;
    return kolo_grid_create(&s->grid, s->launch, (int)o->stages, false);
}

int session_open_grid(kolo_session *s)
{
    const kolo_options *o = s->options;
    s->replicas = s->ranks;
    if (o->stages * o->chunks <= 1) {
        KOLO_TRY(check_alone(o));
        s->grid = (kolo_grid){.stages = 1, .replicas = s->ranks, .replica = s->launch->rank};
        return 0;
    }
    if (s->parts & KOLO_SESSION_TRAIN) KOLO_TRY(check_combination(s)); /* an evaluation sums no gradients */
    if (s->elsewhere && s->ranks % o->stages)
        return kolo_fail(KOLO_ECONFIG, "ranks=%d is no multiple of stages=%ld", s->ranks, (long)o->stages);
    KOLO_TRY(s->elsewhere ? grid_elsewhere(s) : grid_here(s));
    s->replicas = s->grid.replicas;
    if (o->rank >= s->ranks) return kolo_fail(KOLO_ECONFIG, "rank=%ld of %d ranks", (long)o->rank, s->ranks);
    if ((s->parts & KOLO_SESSION_PLAN_ONLY) && o->rank >= 0)
        s->grid.stage = kolo_grid_stage(&s->grid, (int)o->rank);
    return 0;
}

/* ---- where to cut -------------------------------------------------------------------------------------- */

static const char *layer_name(const kolo_graph *g, int64_t node)
{
    const kolo_node *n = &g->node[node];
    return n->out[0] >= 0 ? g->tensor[n->out[0]].name : "";
}

/* Is `name` the module, or of it? A norm's sums are "bn1:sums". */
static bool is_of(const char *name, const char *module, size_t length)
{
    return !strncmp(name, module, length) && (!name[length] || name[length] == '.' || name[length] == ':');
}

/* The first operation of a module: what makes a tensor of it, or reads a parameter of it. -1: there is
 * none. */
static int first_of(const kolo_graph *g, int64_t chain, const char *module, size_t length)
{
    for (int64_t i = 0; i < chain; i++) {
        if (is_of(layer_name(g, i), module, length)) return (int)i;
        for (int k = 0; k < g->node[i].n_in; k++) {
            const int t = g->node[i].in[k];
            if (t >= 0 && g->tensor[t].role == KOLO_ROLE_PARAM && is_of(g->tensor[t].name, module, length))
                return (int)i;
        }
    }
    return -1;
}

static int unknown_module(const kolo_graph *g, int64_t chain, const char *module)
{
    const char **names = kolo_alloc((size_t)(chain + 1) * sizeof *names);
    if (!names) return KOLO_ENOMEM;
    for (int64_t i = 0; i < chain; i++) names[i] = layer_name(g, i);
    const char *near = kolo_nearest(module, names, (int)chain);
    const int rc = kolo_fail(KOLO_ECONFIG, "cut=: %s has no module %s%s%s", g->name, module,
                             near ? "; did you mean " : "", near ? near : "");
    free(names);
    return rc;
}

/* cut= to the first operations of parts 1, 2, ... */
static int parse_cut(const kolo_session *s, int64_t chain, int parts, int *first)
{
    const char *at = s->options->cut;
    int n = 0;
    for (; *at; n++) {
        const size_t length = strcspn(at, ",");
        char module[256];
        snprintf(module, sizeof module, "%.*s", (int)length, at);
        const int node = n < parts - 1 ? first_of(s->graph, chain, module, strlen(module)) : 0;
        if (node < 0) return unknown_module(s->graph, chain, module);
        if (n > 0 && n < parts - 1 && node <= first[n - 1])
            return kolo_fail(KOLO_ECONFIG,
                             "cut=%s: %s is not behind the module in front of it; name them "
                             "in the network's order",
                             s->options->cut, module);
        if (n < parts - 1) first[n] = node;
        at += length + (at[length] == ',');
    }
    if (n == parts - 1) return 0;
    return kolo_fail(KOLO_ECONFIG, "cut=%s names %d modules; %d parts (stages x chunks) need %d",
                     s->options->cut, n, parts, parts - 1);
}

static double stored_each(const kolo_plan *p)
{
    const kolo_plan_config *c = &p->config;
    return 1 + (c->optimizer ? 1 + kolo_plan_states(p) : 0) + c->ema +
           (p->arena_bytes[KOLO_ARENA_SHADOW] ? .5 : 0);
}

/* The chain as a partition sees it. */
static int describe_chain(kolo_session *s, int64_t chain, kolo_chain_layer *layer, bool *allowed,
                          double *crossing)
{
    const kolo_plan *p = s->plan;
    const kolo_graph *g = p->graph;
    double *seconds = s->node_seconds = kolo_alloc((size_t)(g->nodes + 1) * sizeof *seconds);
    size_t *bytes = kolo_alloc((size_t)(g->tensors + 1) * sizeof *bytes);
    int rc = seconds && bytes ? kolo_exec_clock(p, s->backend, s->untimed ? 0 : 3, seconds) : KOLO_ENOMEM;
    for (int64_t t = 0; rc == 0 && t < g->tensors; t++) bytes[t] = p->layout[t].bytes;
    if (rc == 0) rc = kolo_placement_cuts(g, bytes, allowed, crossing);
    for (int64_t i = 0; rc == 0 && i < chain; i++)
        layer[i] = (kolo_chain_layer){.name = layer_name(g, i),
                                      .forward = seconds[i],
                                      .cut = allowed[i],
                                      .crossing = (int64_t)crossing[i]};
    for (int64_t i = 0; rc == 0 && i < g->nodes; i++) {
        const kolo_node *n = &g->node[i];
        kolo_chain_layer *l = &layer[n->backward ? n->of : i];
        if (n->backward) l->backward += seconds[i];
        for (int k = 0; k < n->n_in; k++) { /* what backward reads of forward is kept */
            const int t = n->in[k];
            if (t < 0) continue;
            if (g->tensor[t].role == KOLO_ROLE_PARAM && !n->backward)
                l->weights += (int64_t)((double)bytes[t] * stored_each(p));
            const int from = g->tensor[t].producer;
            if (n->backward && from >= 0 && !g->node[from].backward && bytes[t]) {
                layer[from].activations += (int64_t)bytes[t];
                bytes[t] = 0;
            }
        }
    }
    free(bytes);
    return rc;
}

static int misfit(const kolo_session *s, const kolo_misfit *m, int rc)
{
    if (rc == 0 || m->shortfall <= 0) return rc;
    if (m->stages)
        return kolo_fail(
            KOLO_ECONFIG,
            "stages=%ld: no cut fits into memory_limit=%g GiB a rank, %lld bytes short; stages=%d would",
            (long)s->options->stages, s->options->memory_limit, (long long)m->shortfall, m->stages);
    return rc;
}

static int partition(kolo_session *s, int64_t chain, const kolo_chain_layer *layer, int *cut)
{
    const kolo_options *o = s->options;
    const int parts = session_cut_parts(s);
    kolo_link *link = kolo_alloc((size_t)o->stages * sizeof *link);
    if (!link) return KOLO_ENOMEM;
    for (int64_t k = 0; k < o->stages; k++) link[k] = kolo_link_assumed;
    const kolo_partition_input input = {.layer = layer,
                                        .layers = (int)chain,
                                        .stages = (int)o->stages,
                                        .chunks = (int)o->chunks,
                                        .slots = s->slots,
                                        .order = (enum kolo_pipeline)o->pipeline,
                                        .link = link,
                                        .limit = (int64_t)(o->memory_limit * 0x1p30)};
    kolo_misfit why = {0};
    kolo_partition *found = NULL;
    int rc = 0;
    if (*o->cut) {
        rc = parse_cut(s, chain, parts, cut);
        if (rc == 0) rc = kolo_partition_create_at(&found, &input, cut, &why);
    } else {
        rc = kolo_partition_create(&found, &input, &why);
    }
    rc = misfit(s, &why, rc);
    for (int q = 0; rc == 0 && q < parts - 1; q++) cut[q] = found->first[q + 1] - 1;
    for (int q = 0; rc == 0 && q < parts; q++)
        kolo_debug("part %d: %s .. %s, %.3f ms a micro-batch, %lld bytes cross behind it", q,
                   layer[found->first[q]].name, layer[found->first[q + 1] - 1].name, found->seconds[q] * 1e3,
                   (long long)found->crossing[q]);
    kolo_partition_destroy(&found);
    free(link);
    return rc;
}

int session_choose_cut(kolo_session *s, int *cut)
{
    const int64_t chain = kolo_graph_forward_nodes(s->graph);
    kolo_chain_layer *layer = kolo_alloc((size_t)(chain + 1) * sizeof *layer);
    bool *allowed = kolo_alloc((size_t)(chain + 1) * sizeof *allowed);
    double *crossing = kolo_alloc((size_t)(chain + 1) * sizeof *crossing);
    int rc = layer && allowed && crossing ? describe_chain(s, chain, layer, allowed, crossing) : KOLO_ENOMEM;
    if (rc == 0) rc = partition(s, chain, layer, cut);
    free(layer);
    free(allowed);
    free(crossing);
    return rc;
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
        KOLO_TRY(kolo_placement_create(&shape->placement, shape->graph, (int)o->stages, (int)o->chunks,
                                       (enum kolo_pipeline)o->pipeline, cut));
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
