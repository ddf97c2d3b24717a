/* Where the network is cut into the parts of a pipeline: as cut= says, or by a clock so that the slowest part
 * is as fast as any cut allows (plan/partition.h). With memory= of the cuts whose stages keep to it: what a
 * stage needs is what its plans say, so a cut is tried with them, and what they find too much for a stage is
 * a bound of the next search. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/log.h"
#include "base/memory.h"
#include "ckpt/ckpt.h"
#include "kolo/error.h"
#include "plan/fabric.h"
#include "plan/price.h"
#include "train/parts.h"
#include "train/times.h"
#include "train/pipeline.h"
#include "train/recompute.h"
#include "train/strategy.h"

/* Cuts that are tried to keep to memory=; how many it takes depends on how far they are from the fastest. */
enum { TRIES = 256 };

/* cut= to the first operations of parts 1, 2, ... */
static int parse_cut(const kolo_session *s, int64_t chain, int parts, int *first)
{
    const char *at = s->options->cut;
    int n = 0;
    for (; *at; n++) {
        const size_t length = strcspn(at, ",");
        char module[256];
        snprintf(module, sizeof module, "%.*s", (int)length, at);
        const int node = n < parts - 1 ? (int)kolo_graph_module(s->graph, chain, module) : 0;
        if (node < 0) return kolo_graph_module_unknown(s->graph, chain, "cut", module);
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

/* Where weights are late the cut is of the run: that of its newest checkpoint, which a clock here might
 * not come to again. Where the checkpoint has another order or number of stages, which is refused later,
 * or none, "". */
static int recorded_cut(const kolo_session *s, kolo_position *position)
{
    const kolo_options *o = s->options;
    char path[4096], head[64];
    *position = (kolo_position){.step = 0};
    if (!kolo_pipeline_is_late((enum kolo_pipeline)o->pipeline) || !(s->parts & KOLO_SESSION_TRAIN) ||
        !*o->run || *o->cut)
        return 0;
    const int found = kolo_checkpoint_pick(o->run, "newest", position, path, sizeof path);
    KOLO_TRY(found);
    const int length =
        snprintf(head, sizeof head, "%s, %ld stages, cut=", kolo_pipeline[o->pipeline].name, (long)o->stages);
    if (!found || strncmp(position->late, head, (size_t)length)) *position->late = 0;
    else memmove(position->late, position->late + length, strlen(position->late + length) + 1);
    return 0;
}

static void read_field(const char *text, int n, char *to, size_t size)
{
    for (; n > 0; n--) text += strcspn(text, ","), text += *text == ',';
    snprintf(to, size, "%.*s", (int)strcspn(text, ","), text);
}

/* The record has the first parameter of each stage, or nothing where a stage has none. A stage begins at the
 * last cut in front of what reads that, or in front of the next stage: only which stage has which weights
 * counts. */
static int parse_record(const kolo_session *s, const char *text, int64_t chain, const kolo_chain_layer *layer,
                        int parts, int *first)
{
    for (int n = parts - 2; n >= 0; n--) {
        char module[256];
        read_field(text, n, module, sizeof module);
        const int before = (n < parts - 2 ? first[n + 1] : (int)chain) - 1;
        int node = *module ? (int)kolo_graph_module(s->graph, chain, module) : before;
        while (node > 0 && !layer[node - 1].cut) node--;
        if (node < 1)
            return kolo_fail(KOLO_ECONFIG,
                             "run=%s: its stages cannot be cut again at %s; give the cut= it had",
                             s->options->run, text);
        first[n] = node;
    }
    return 0;
}

static double stored_each(const kolo_plan *p)
{
    const kolo_plan_config *c = &p->config;
    return 1 + (c->optimizer ? 1 + kolo_plan_states(p) : 0) + c->ema +
           (p->arena_bytes[KOLO_ARENA_SHADOW] ? .5 : 0);
}

/* By a clock here, or by the rates of the cluster that is planned for. */
static int time_nodes(const kolo_session *s, double *seconds)
{
    if (s->gpu && s->gpu->rates)
        return kolo_plan_roofline_nodes(s->plan, s->gpu->rates, s->options->precision == KOLO_precision_tf32,
                                        seconds);
    const int times = s->parts & KOLO_SESSION_QUIET ? 1 : 3; /* one of many ways that are looked at */
    return kolo_session_clock(s, s->plan, times, seconds, NULL);
}

/* A clock cuts where cut= can: behind node i if the next operation's name leads there, and not among what its
 * parts send each other. */
static bool has_name(const kolo_graph *g, int64_t chain, int64_t i)
{
    char name[KOLO_OPERATION_NAME];
    for (int64_t next = i + 1; next < chain; next++)
        if (kolo_operation_name(g, next, name)) return kolo_graph_module(g, chain, name) == i + 1;
    return false;
}

/* The chain as a partition sees it. */
static int describe_chain(kolo_session *s, int64_t chain, kolo_chain_layer *layer, bool *allowed,
                          double *crossing)
{
    const kolo_plan *p = s->plan;
    const kolo_graph *g = p->graph;
    double *seconds = s->node_seconds = kolo_alloc((size_t)(g->nodes + 1) * sizeof *seconds);
    size_t *bytes = kolo_alloc((size_t)(g->tensors + 1) * sizeof *bytes);
    int rc = seconds && bytes ? time_nodes(s, seconds) : KOLO_ENOMEM;
    for (int64_t t = 0; rc == 0 && t < g->tensors; t++) bytes[t] = p->layout[t].bytes;
    if (rc == 0) rc = kolo_placement_cuts(g, bytes, allowed, crossing);
    for (int64_t i = 0; rc == 0 && i < chain; i++)
        layer[i] = (kolo_chain_layer){.name = kolo_graph_node_name(g, i),
                                      .forward = seconds[i],
                                      .cut = allowed[i] && has_name(g, chain, i),
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

/* From the stages of a link of the chain to the next one's, from the last to the first. */
static kolo_link link_behind(const kolo_session *s, int link)
{
    const kolo_fabric *f = s->gpu ? s->gpu->fabric : NULL;
    if (!f) return kolo_link_assumed;
    const int stage = link * s->across, next = (stage + s->across) % s->grid.stages, of_node = (int)f->gpus;
    const bool same =
        kolo_grid_rank(&s->grid, stage, 0) / of_node == kolo_grid_rank(&s->grid, next, 0) / of_node;
    const kolo_fabric_load byte = kolo_fabric_send(f, same, 1, 1);
    return (kolo_link){byte.latency, 1 / byte.seconds};
}

/* What a stage needs that has these layers. Of several chunks it is said of the largest. */
typedef struct weighed {
    kolo_overfull of;
    size_t bytes;
} weighed;

/* What is known of the chain. */
typedef struct known {
    int64_t layers;
    kolo_chain_layer *layer;
    bool *allowed;
    double *crossing;
    kolo_link *link;         /* [stages] */
    weighed *weighed;        /* by the plans of cuts that were tried */
    kolo_overfull *overfull; /* [weighed] at most: those that need too much */
    int64_t n, capacity, capacity_overfull;
    int overfulls;
    kolo_position before; /* late: the cut that the run has, or "" */
} known;

static void close_known(known *k)
{
    free(k->layer);
    free(k->allowed);
    free(k->crossing);
    free(k->link);
    free(k->weighed);
    free(k->overfull);
}

static int open_known(kolo_session *s, known *k)
{
    const int64_t stages = s->options->stages;
    const size_t layers = (size_t)(k->layers = kolo_graph_forward_nodes(s->graph)) + 1;
    k->layer = kolo_alloc(layers * sizeof *k->layer);
    k->allowed = kolo_alloc(layers * sizeof *k->allowed);
    k->crossing = kolo_alloc(layers * sizeof *k->crossing);
    k->link = kolo_alloc((size_t)stages * sizeof *k->link);
    if (!k->layer || !k->allowed || !k->crossing || !k->link) return KOLO_ENOMEM;
    for (int64_t i = 0; i < stages; i++) k->link[i] = link_behind(s, (int)i);
    KOLO_TRY(recorded_cut(s, &k->before));
    return describe_chain(s, k->layers, k->layer, k->allowed, k->crossing);
}

/* 1: none is left beside what was found overfull. */
static int partition(const kolo_session *s, const known *k, int *cut)
{
    const kolo_options *o = s->options;
    const int parts = session_cut_parts(s);
    const kolo_partition_input input = {.layer = k->layer,
                                        .layers = (int)k->layers,
                                        .stages = (int)o->stages,
                                        .chunks = (int)o->chunks,
                                        .slots = s->slots,
                                        .order = (enum kolo_pipeline)o->pipeline,
                                        .link = k->link,
                                        .overfull = k->overfull,
                                        .overfulls = k->overfulls,
                                        /* of those side by side together: the chain is the whole network's */
                                        .limit = (int64_t)(o->memory_limit * 0x1p30 * s->across)};
    kolo_misfit why = {0};
    kolo_partition *found = NULL;
    int rc = 0;
    if (*o->cut || *k->before.late) {
        rc = *o->cut ? parse_cut(s, k->layers, parts, cut)
                     : parse_record(s, k->before.late, k->layers, k->layer, parts, cut);
        if (rc == 0) rc = kolo_partition_create_at(&found, &input, cut, &why);
    } else {
        rc = kolo_partition_create(&found, &input, &why);
    }
    rc = misfit(s, &why, rc);
    for (int q = 0; rc == 0 && q < parts - 1; q++) cut[q] = found->first[q + 1] - 1;
    for (int q = 0; rc == 0 && q < parts; q++)
        kolo_debug("part %d: %s .. %s, %.3f ms a micro-batch, %lld bytes cross behind it", q,
                   k->layer[found->first[q]].name, k->layer[found->first[q + 1] - 1].name,
                   found->seconds[q] * 1e3, (long long)found->crossing[q]);
    kolo_partition_destroy(&found);
    return rc;
}

/* ---- within memory= ------------------------------------------------------------------------------------ */

/* The bytes that a rank of every stage of the grid would need, cut there. Of the largest shape, whose memory
 * the others share. */
static int weigh(const kolo_session *s, const int *cut, size_t *bytes)
{
    kolo_shape shape = *s->shape;
    kolo_session trial = *s;
    trial.trial = true;
    trial.shape = &shape;
    trial.shapes = 1;
    trial.eval_plan = NULL;
    shape.form = s->shape->form ? kolo_alloc((size_t)s->graph->tensors + 1) : NULL;
    int rc = s->shape->form && !shape.form ? KOLO_ENOMEM : 0;
    shape.plan = NULL;
    if (rc == 0) rc = kolo_plan_create_forms(&shape.plan, s->plan, NULL, NULL);
    if (rc == 0 && s->eval_plan) rc = kolo_plan_create_forms(&trial.eval_plan, s->eval_plan, NULL, s->plan);
    trial.plan = shape.plan;
    if (rc == 0) rc = session_place(&trial, cut);
    for (int k = 0; rc == 0 && k < s->grid.stages; k++) bytes[k] = session_rank_bytes(&trial, k);
    trial.node_seconds = NULL; /* the session's */
    session_free_programs(&trial);
    kolo_plan_destroy(&shape.plan);
    kolo_plan_destroy(&trial.eval_plan);
    free(shape.form);
    return rc;
}

static int64_t held(const known *k, int first, int end)
{
    int64_t bytes = 0;
    for (int i = first; i < end; i++) bytes += k->layer[i].weights + k->layer[i].activations;
    return bytes;
}

static int note(const kolo_session *s, known *k, const int *cut, int stage, size_t bytes)
{
    const int parts = session_cut_parts(s);
    int64_t most = -1;
    KOLO_TRY(kolo_grow(&k->weighed, &k->capacity, k->n, sizeof *k->weighed));
    KOLO_TRY(kolo_grow(&k->overfull, &k->capacity_overfull, k->n, sizeof *k->overfull));
    for (int q = stage; q < parts; q += (int)s->options->stages) {
        const int first = q ? cut[q - 1] + 1 : 0, end = q < parts - 1 ? cut[q] + 1 : (int)k->layers;
        if (held(k, first, end) <= most) continue;
        most = held(k, first, end);
        k->weighed[k->n] = (weighed){{.part = q, .first = first, .end = end}, bytes};
    }
    k->n++;
    return 0;
}

/* The fastest cut of which nothing is known to need more. */
static int cut_within(const kolo_session *s, known *k, size_t bytes, int *cut)
{
    k->overfulls = 0;
    for (int64_t i = 0; i < k->n; i++)
        if (k->weighed[i].bytes > bytes) k->overfull[k->overfulls++] = k->weighed[i].of;
    return partition(s, k, cut);
}

/* The fastest cut within `limit`; where there is none, that which needs least. bytes: [stages of the grid]
 * scratch, best: [parts] scratch. */
static int search_within(const kolo_session *s, known *k, size_t limit, int *cut, int *best, size_t *bytes)
{
    const size_t cuts = (size_t)session_cut_parts(s) * sizeof *cut;
    size_t least = SIZE_MAX, target = limit;
    for (int tries = 0; tries < TRIES; tries++) {
        size_t worst = 0;
        KOLO_TRY(weigh(s, cut, bytes));
        for (int i = 0; i < s->grid.stages; i++) {
            KOLO_TRY(note(s, k, cut, i / s->across, bytes[i]));
            worst = bytes[i] > worst ? bytes[i] : worst;
        }
        if (worst < least) memcpy(best, cut, cuts);
        least = worst < least ? worst : least;
        if (worst <= limit) return 0;
        if (target > limit) target = least - 1;
        int rc = cut_within(s, k, target, cut);
        if (rc == 1 && target < least - 1) rc = cut_within(s, k, target = least - 1, cut);
        if (rc < 0) return rc;
        if (rc == 1) break;
    }
    memcpy(cut, best, cuts);
    return 0;
}

static int keep_within(const kolo_session *s, known *k, int *cut)
{
    size_t limit;
    KOLO_TRY(session_memory(s, &limit));
    if (!limit || *s->options->cut || *k->before.late) return 0;
    int *best = kolo_alloc((size_t)session_cut_parts(s) * sizeof *best);
    size_t *bytes = kolo_alloc((size_t)s->grid.stages * sizeof *bytes);
    const int rc = best && bytes ? search_within(s, k, limit, cut, best, bytes) : KOLO_ENOMEM;
    free(best);
    free(bytes);
    return rc; /* memory.c says what is lacking */
}

void session_cut_names(const kolo_session *s, char *text, size_t size)
{
    *text = 0;
    for (int64_t i = 1; s->placement && i < kolo_graph_forward_nodes(s->graph); i++) {
        const int from = kolo_placement_link(s->placement, s->placement->part[i - 1]),
                  to = kolo_placement_link(s->placement, s->placement->part[i]);
        if (to == from + 1)
            kolo_append(text, size, "%s\"%s\"", *text ? ", " : "", kolo_graph_node_name(s->graph, i));
    }
}

int session_choose_cut(kolo_session *s, int *cut)
{
    known k = {0};
    int rc = open_known(s, &k);
    if (rc == 0) rc = partition(s, &k, cut);
    if (rc == 0) rc = keep_within(s, &k, cut);
    close_known(&k);
    return rc;
}
