/* When units of parameters are brought to where operations read them: with shard=parameters from the ranks
 * that have parts, with offload=parameters from a file. Of shards, operations read them in windows, where two
 * units may stand that follow one another; one that an operation needs is asked for as soon as a window is
 * free, and no sooner than its forerunner was needed, so that it is under way while that one is read. */
#include <stdlib.h>

#include "base/memory.h"
#include "kolo/error.h"
#include "plan/parts.h"
#include "plan/shard.h"

typedef struct asked {
    int64_t at; /* the action in front of which it stands */
    enum kolo_action_kind kind;
    int unit;
} asked;

typedef struct gathering {
    kolo_plan *plan;
    asked *list;
    int64_t n, capacity;
    int64_t *used; /* [units] last action that read it where it stands; -1: it does not stand */
    int64_t since; /* the action that needed the unit which came last */
    bool apart;    /* every unit has a window of its own */
    bool file;     /* units come from a file, and are evicted to make room */
} gathering;

static int ask(gathering *g, enum kolo_action_kind kind, int64_t at, int unit)
{
    KOLO_TRY(kolo_grow(&g->list, &g->capacity, g->n, sizeof *g->list));
    g->list[g->n++] = (asked){at, kind, unit};
    return 0;
}

/* 1: an operation reads two units that cannot stand together. */
static int need_unit(gathering *g, int unit, int64_t at)
{
    int64_t when = g->since;
    if (g->used[unit] >= 0) {
        g->used[unit] = at;
        return 0;
    }
    for (int u = 0; u < g->plan->units && !g->apart; u++) {
        if (g->used[u] < 0 || u == unit - 1 || u == unit + 1) continue;
        if (g->used[u] == at && g->file) continue;
        if (g->used[u] == at) return 1;
        if (g->used[u] + 1 > when) when = g->used[u] + 1;
    }
    for (int u = 0; u < g->plan->units && !g->apart; u++) {
        if (g->used[u] < 0 || g->used[u] == at || u == unit - 1 || u == unit + 1) continue;
        g->used[u] = -1;
        if (g->file) KOLO_TRY(ask(g, KOLO_ACTION_EVICT_PARAM, when, u));
    }
    g->used[unit] = g->since = at;
    if (g->file) return ask(g, KOLO_ACTION_FETCH_PARAM, when, unit);
    KOLO_TRY(ask(g, KOLO_ACTION_GATHER, when, unit));
    return ask(g, KOLO_ACTION_GATHERED, at, unit);
}

/* Of an operation, the k-th that it reads: its unit, or -1. */
static int unit_read(const gathering *g, const kolo_action *a, int k)
{
    const kolo_plan *p = g->plan;
    if (g->file && p->binding[a->binding + k].arena != KOLO_ARENA_PARAM) return -1; /* its 16-bit copy */
    return kolo_plan_unit_of(p, p->graph->node[a->node].in[k]);
}

static bool updates(const kolo_action *a)
{
    return a->kind == KOLO_ACTION_UPDATE || a->kind == KOLO_ACTION_DELTA || a->kind == KOLO_ACTION_APPLY;
}

static int gather_all(gathering *g)
{
    const kolo_plan *p = g->plan;
    int rc = 0;
    for (int u = 0; u < p->units; u++) g->used[u] = -1;
    g->since = g->n = 0;
    for (int64_t i = 0; i < p->actions && rc == 0; i++) {
        const kolo_action *a = &p->action[i];
        if (g->file && updates(a) && p->bucket[a->bucket].unit >= 0)
            rc = need_unit(g, p->bucket[a->bucket].unit, i);
        if (a->kind != KOLO_ACTION_RUN) continue;
        for (int k = 0; k < p->graph->node[a->node].n_in && rc == 0; k++) {
            const int unit = unit_read(g, a, k);
            if (unit >= 0) rc = need_unit(g, unit, i);
        }
    }
    for (int u = 0; u < p->units && g->file && rc == 0; u++)
        if (g->used[u] >= 0) rc = ask(g, KOLO_ACTION_EVICT_PARAM, p->actions, u);
    return rc;
}

/* Where an operation reads a parameter of a unit. */
static void bind_windows(kolo_plan *plan)
{
    for (int64_t i = 0; i < plan->actions; i++) {
        const kolo_action *a = &plan->action[i];
        if (a->kind != KOLO_ACTION_RUN) continue;
        const kolo_node *n = &plan->graph->node[a->node];
        for (int k = 0; k < n->n_in; k++)
            if (n->in[k] >= 0 && plan->graph->tensor[n->in[k]].role == KOLO_ROLE_PARAM)
                plan->binding[a->binding + k] = kolo_plan_read_binding(plan, n->in[k]);
    }
}

/* Puts the actions of g->list into the list of the plan. */
static int insert_actions(kolo_plan *plan, const gathering *g)
{
    kolo_action *action = kolo_alloc((size_t)(plan->actions + g->n + 1) * sizeof *action);
    int64_t n = 0, next = 0;
    if (!action) return KOLO_ENOMEM;
    for (int64_t i = 0; i <= plan->actions; i++) {
        for (; next < g->n && g->list[next].at <= i; next++)
            action[n++] = (kolo_action){.kind = g->list[next].kind,
                                        .node = -1,
                                        .slot = i < plan->actions ? plan->action[i].slot : 0,
                                        .bucket = -1,
                                        .unit = g->list[next].unit};
        if (i < plan->actions) action[n++] = plan->action[i];
    }
    free(plan->action);
    plan->action = action;
    plan->actions = n;
    return 0;
}

int kolo_plan_gathers(kolo_plan *plan)
{
    const bool windows = kolo_plan_shards(plan, KOLO_shard_parameters);
    gathering g = {.plan = plan, .apart = windows && !plan->config.reshard, .file = !windows};
    if (!windows && !(plan->config.offload & KOLO_OFFLOAD_PARAM)) return 0;
    g.used = kolo_alloc((size_t)(plan->units + 1) * sizeof *g.used);
    int rc = g.used ? gather_all(&g) : KOLO_ENOMEM;
    if (rc == 1) {
        g.apart = true;
        plan->arena_bytes[KOLO_ARENA_GATHERED] = kolo_plan_windows_apart(plan);
        if (plan->arena_bytes[KOLO_ARENA_SHADOW])
            plan->arena_bytes[KOLO_ARENA_SHADOW] = kolo_plan_shadow_bytes(plan);
        rc = gather_all(&g);
    }
    if (rc == 0) {
        if (windows) bind_windows(plan);
        rc = insert_actions(plan, &g);
    }
    free(g.list);
    free(g.used);
    return rc;
}

size_t kolo_plan_resident_param(const kolo_plan *plan, int units)
{
    const size_t all = plan->arena_bytes[KOLO_ARENA_PARAM];
    int64_t most = 0;
    if (plan->config.optimizer && kolo_is_layerwise(plan->config.optimizer))
        return all; /* its norms read all */
    for (int u = 0; u < plan->units; u++) {
        int64_t params = 0;
        for (int v = u; v < u + units && v < plan->units; v++) params += plan->unit[v].params;
        if (params > most) most = params;
    }
    return (size_t)most * sizeof(float) + all - (size_t)kolo_plan_rest(plan) * sizeof(float);
}
