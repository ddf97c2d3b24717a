/* Units and parts of shards, windows, and the sizes of what a rank stores of them. */
#include "plan/shard.h"

#include <stdlib.h>
#include <string.h>

#include "base/memory.h"
#include "comm/buckets/trainer.h"
#include "kolo/error.h"
#include "plan/parts.h"

/* ---- ranks --------------------------------------------------------------------------------------------- */

/* Number of rank `of` among those of its node; *node_ranks: how many those are. */
static int within_node(const kolo_launch *l, const int *ranks, int count, int of, int *node_ranks)
{
    int before = 0;
    *node_ranks = 0;
    for (int i = 0; i < count; i++) {
        if (l->node_of[ranks[i]] != l->node_of[of]) continue;
        before += l->local_of[ranks[i]] < l->local_of[of];
        ++*node_ranks;
    }
    return before;
}

/* Nodes of `ranks` before that of rank `of`. */
static int nodes_before(const kolo_launch *l, const int *ranks, int count, int of)
{
    int nodes = 0;
    for (int i = 0, k; i < count; i++) {
        for (k = 0; k < i && l->node_of[ranks[k]] != l->node_of[ranks[i]];) k++;
        nodes += k == i && l->node_of[ranks[i]] < l->node_of[of];
    }
    return nodes;
}

int kolo_shard_groups(const kolo_launch *launch, const int *ranks, int count, int shards, bool nodes,
                      int *rank)
{
    const int groups = count / shards;
    int first = 0;
    if (!nodes) {
        const int owners = kolo_comm_owners(launch, ranks, count, rank);
        return owners < 0 ? owners : 1;
    }
    within_node(launch, ranks, count, ranks[0], &first);
    const int all = first > 0 ? count / first : 0;
    for (int i = 0; i < count; i++) {
        int here;
        const int local = within_node(launch, ranks, count, ranks[i], &here);
        if (here != first || here % shards)
            return kolo_fail(
                KOLO_ECONFIG,
                "shard_group=: a node has %d ranks and another one %d of a stage, and groups are of %d: "
                "start as many ranks on every node, a multiple of that",
                here, first, shards);
        const int group = local / shards * all + nodes_before(launch, ranks, count, ranks[i]);
        rank[group * shards + local % shards] = ranks[i];
    }
    return groups;
}

/* ---- parts --------------------------------------------------------------------------------------------- */

/* The leaf border of a unit that is nearest to an element. tensor: [tensors + 1] where its tensors begin. */
static int64_t nearest_border(const int64_t *tensor, int tensors, int64_t element)
{
    int t = 0;
    while (t + 1 < tensors && tensor[t + 1] <= element) t++;
    const int64_t leaves = (element - tensor[t] + KOLO_LEAF / 2) / KOLO_LEAF,
                  border = tensor[t] + leaves * KOLO_LEAF;
    return border < tensor[t + 1] ? border : tensor[t + 1];
}

/* Where the tensors of a unit begin, in elements of PARAM; returns how many. */
static int unit_tensors(const kolo_plan *plan, const kolo_unit *unit, int64_t *tensor)
{
    const kolo_graph *g = plan->graph;
    int n = 0;
    for (int64_t i = 0; i < plan->nodes; i++)
        for (int k = 0; k < g->node[plan->node[i]].n_out; k++) {
            const int t = g->node[plan->node[i]].out[k];
            if (t < 0 || g->tensor[t].role != KOLO_ROLE_GRADIENT) continue;
            const int64_t at = (int64_t)(plan->fixed[g->tensor[t].of].offset / sizeof(float));
            if (at >= unit->param && at < unit->param + unit->params) tensor[n++] = at;
        }
    tensor[n] = unit->param + unit->params;
    return n;
}

/* About equal parts; stored: [shards] elements that each has by now. */
static void cut_unit(const kolo_plan *plan, int number, const int64_t *tensor, int tensors, int64_t *stored)
{
    const kolo_unit *unit = &plan->unit[number];
    const int shards = plan->config.shards;
    int64_t begin = unit->param;
    for (int s = 0; s < shards; s++) {
        const int64_t ideal = unit->param + unit->params * (s + 1) / shards;
        int64_t end = s + 1 < shards ? nearest_border(tensor, tensors, ideal) : unit->param + unit->params;
        if (end < begin) end = begin;
        plan->part[(int64_t)number * shards + s] = (kolo_part){begin, end - begin, stored[s]};
        stored[s] += end - begin;
        begin = end;
    }
}

static int cut_units(kolo_plan *plan)
{
    int64_t *tensor = kolo_alloc((size_t)(plan->graph->tensors + 1) * sizeof *tensor);
    int64_t *stored = kolo_alloc((size_t)plan->config.shards * sizeof *stored);
    const int rc = tensor && stored ? 0 : KOLO_ENOMEM;
    for (int u = 0; rc == 0 && u < plan->units; u++)
        cut_unit(plan, u, tensor, unit_tensors(plan, &plan->unit[u], tensor), stored);
    for (int s = 0; rc == 0 && s < plan->config.shards; s++)
        if (stored[s] > plan->stored) plan->stored = stored[s];
    free(tensor);
    free(stored);
    return rc;
}

/* ---- windows ------------------------------------------------------------------------------------------- */

/* Two units that follow one another are there together, never others: every second one stands at the front,
 * those between at the end. */
static size_t lay_windows(kolo_plan *plan, bool gathered)
{
    size_t most = 0;
    for (int u = 0; u < plan->units; u++) {
        const kolo_unit *one = &plan->unit[u], *next = u + 1 < plan->units ? one + 1 : NULL;
        const size_t both = kolo_round_up((size_t)one->params * sizeof(float), KOLO_ALIGN) +
                            (next ? kolo_round_up((size_t)next->params * sizeof(float), KOLO_ALIGN) : 0);
        if (both > most) most = both;
    }
    for (int u = 0; u < plan->units; u++) {
        kolo_unit *one = &plan->unit[u];
        const size_t at = u % 2 ? most - kolo_round_up((size_t)one->params * sizeof(float), KOLO_ALIGN) : 0;
        *(gathered ? &one->gathered : &one->gradient) = at;
    }
    return most;
}

size_t kolo_plan_windows_apart(kolo_plan *plan)
{
    for (int u = 0; u < plan->units; u++)
        plan->unit[u].gathered = (size_t)plan->unit[u].param * sizeof(float);
    return (size_t)kolo_plan_rest(plan) * sizeof(float);
}

/* ---- sizes --------------------------------------------------------------------------------------------- */

size_t kolo_plan_stored_bytes(const kolo_plan *plan)
{
    if (!kolo_plan_shards(plan, KOLO_shard_optimizer)) return plan->param_bytes;
    return kolo_round_up((size_t)plan->stored * sizeof(float), KOLO_ALIGN) + plan->param_bytes -
           (size_t)kolo_plan_rest(plan) * sizeof(float);
}

size_t kolo_plan_state_bytes(const kolo_plan *plan)
{
    if (!kolo_plan_shards(plan, KOLO_shard_optimizer) || !plan->units) return plan->trained_bytes;
    return kolo_round_up((size_t)plan->stored * sizeof(float), KOLO_ALIGN);
}

size_t kolo_plan_shadow_bytes(const kolo_plan *plan)
{
    return (plan->arena_bytes[KOLO_ARENA_GATHERED] + plan->param_bytes -
            (size_t)kolo_plan_rest(plan) * sizeof(float)) /
           2;
}

/* Levels that hold gradients of parameters from one micro-batch to another. */
static int kept_levels(const kolo_plan *plan)
{
    int most = 0;
    for (int s = 0; s < plan->config.slots; s++) {
        const int level = kolo_plan_write_level(plan, s, false);
        if (level >= most) most = level + 1;
    }
    return most;
}

static void size_arenas(kolo_plan *plan, const kolo_plan *like)
{
    size_t *bytes = plan->arena_bytes;
    const kolo_plan_config *c = &plan->config;
    const size_t front = plan->reduced_front;
    if (c->optimizer && kolo_plan_shards(plan, KOLO_shard_gradients)) {
        const size_t params = bytes[KOLO_ARENA_GRADIENT] - front;
        bytes[KOLO_ARENA_GRADIENT] = front + lay_windows(plan, false);
        bytes[KOLO_ARENA_SUM] = kolo_round_up((size_t)plan->stored * sizeof(float), KOLO_ALIGN);
        bytes[KOLO_ARENA_PART] =
            (size_t)kept_levels(plan) * params + (size_t)(kolo_plan_levels(c) - 1) * front;
    }
    if (kolo_plan_shards(plan, KOLO_shard_parameters)) {
        bytes[KOLO_ARENA_PARAM] = kolo_plan_stored_bytes(plan);
        bytes[KOLO_ARENA_GATHERED] = c->reshard ? lay_windows(plan, true) : kolo_plan_windows_apart(plan);
        if (bytes[KOLO_ARENA_SHADOW]) bytes[KOLO_ARENA_SHADOW] = kolo_plan_shadow_bytes(plan);
    }
    if (c->optimizer) {
        const size_t layers = bytes[KOLO_ARENA_STATE] - (size_t)kolo_plan_states(plan) * plan->trained_bytes;
        bytes[KOLO_ARENA_STATE] = kolo_plan_layers_offset(plan) + layers;
    }
    if (c->ema && !like) bytes[KOLO_ARENA_EMA] = kolo_plan_stored_bytes(plan) + bytes[KOLO_ARENA_BUFFER];
}

/* ---- the making of ------------------------------------------------------------------------------------- */

static int take_units(kolo_plan *plan, const kolo_plan *like)
{
    plan->units = like->units;
    plan->stored = like->stored;
    memcpy(plan->unit, like->unit, (size_t)like->units * sizeof *plan->unit);
    memcpy(plan->part, like->part, (size_t)like->units * (size_t)like->config.shards * sizeof *plan->part);
    return 0;
}

static int make_units(kolo_plan *plan)
{
    for (int b = 0; b < plan->buckets; b++) {
        kolo_bucket *k = &plan->bucket[b];
        if (k->params == 0) continue;
        k->unit = plan->units;
        plan->unit[plan->units++] = (kolo_unit){.param = k->param, .params = k->params};
    }
    return cut_units(plan);
}

int kolo_plan_make_shards(kolo_plan *plan, const kolo_plan *like)
{
    const bool trains = plan->config.optimizer;
    for (int b = 0; b < plan->buckets; b++) plan->bucket[b].unit = -1;
    if (like && !trains && like->config.shards == 1) plan->config.shards = 1;
    if (!trains) plan->config.offload &= like ? like->config.offload & KOLO_OFFLOAD_PARAM : 0;
    if (plan->config.shards == 1 && !plan->config.offload) return 0;
    const size_t most = (size_t)(trains ? plan->buckets : like ? like->units : 0) + 1;
    plan->unit = kolo_alloc(most * sizeof *plan->unit);
    plan->part = kolo_alloc(most * (size_t)plan->config.shards * sizeof *plan->part);
    if (!plan->unit || !plan->part) return KOLO_ENOMEM;
    if (trains) KOLO_TRY(make_units(plan));
    else if (like) KOLO_TRY(take_units(plan, like));
    if (plan->config.shards > 1) size_arenas(plan, like);
    return 0;
}

/* ---- parameters ---------------------------------------------------------------------------------------- */

int kolo_plan_unit_of(const kolo_plan *plan, int tensor)
{
    if (tensor < 0 || plan->graph->tensor[tensor].role != KOLO_ROLE_PARAM) return -1;
    const int64_t at = (int64_t)(plan->fixed[tensor].offset / sizeof(float));
    for (int u = 0; u < plan->units; u++)
        if (at >= plan->unit[u].param && at < plan->unit[u].param + plan->unit[u].params) return u;
    return -1;
}

kolo_binding kolo_plan_param(const kolo_plan *plan, size_t offset, bool half)
{
    const size_t rest = (size_t)kolo_plan_rest(plan) * sizeof(float),
                 gathered = plan->arena_bytes[KOLO_ARENA_GATHERED];
    if (!kolo_plan_shards(plan, KOLO_shard_parameters))
        return half ? (kolo_binding){KOLO_ARENA_SHADOW, offset / 2}
                    : (kolo_binding){KOLO_ARENA_PARAM, offset};
    if (offset >= rest && half) return (kolo_binding){KOLO_ARENA_SHADOW, (gathered + offset - rest) / 2};
    if (offset >= rest)
        return (kolo_binding){KOLO_ARENA_PARAM, kolo_plan_stored_bytes(plan) - plan->param_bytes + offset};
    int u = 0;
    while (u + 1 < plan->units && (size_t)plan->unit[u + 1].param * sizeof(float) <= offset) u++;
    const size_t at = plan->unit[u].gathered + offset - (size_t)plan->unit[u].param * sizeof(float);
    return half ? (kolo_binding){KOLO_ARENA_SHADOW, at / 2} : (kolo_binding){KOLO_ARENA_GATHERED, at};
}

/* ---- levels -------------------------------------------------------------------------------------------- */

kolo_binding kolo_plan_level(const kolo_plan *plan, size_t offset, int level)
{
    const size_t front = plan->reduced_front, *bytes = plan->arena_bytes;
    if (!plan->config.optimizer || !kolo_plan_shards(plan, KOLO_shard_gradients)) {
        if (level == 0) return (kolo_binding){KOLO_ARENA_GRADIENT, offset};
        return (kolo_binding){KOLO_ARENA_PART, (size_t)(level - 1) * bytes[KOLO_ARENA_GRADIENT] + offset};
    }
    const size_t params = (size_t)kolo_plan_rest(plan) * sizeof(float);
    if (offset < front) {
        if (level == 0) return (kolo_binding){KOLO_ARENA_GRADIENT, offset};
        const size_t kept = (size_t)kept_levels(plan) * params;
        return (kolo_binding){KOLO_ARENA_PART, kept + (size_t)(level - 1) * front + offset};
    }
    offset -= front;
    if (level >= 0) return (kolo_binding){KOLO_ARENA_PART, (size_t)level * params + offset};
    int u = 0;
    while (u + 1 < plan->units && (size_t)plan->unit[u + 1].param * sizeof(float) <= offset) u++;
    return (kolo_binding){KOLO_ARENA_GRADIENT, front + plan->unit[u].gradient + offset -
                                                   (size_t)plan->unit[u].param * sizeof(float)};
}

int kolo_plan_write_level(const kolo_plan *plan, int slot, bool front)
{
    const kolo_plan_config *c = &plan->config;
    const bool windows = c->optimizer && kolo_plan_shards(plan, KOLO_shard_gradients) && !front;
    if (windows && (slot == c->slots - 1 || kolo_plan_folds_after(c, slot) > 0)) return KOLO_WINDOW;
    return kolo_plan_level_of(c, slot);
}
