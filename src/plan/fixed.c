/* Homes: where parameters, buffers and reduced tensors live for the whole run. */
#include <math.h>
#include <stdlib.h>

#include "base/memory.h"
#include "kolo/error.h"
#include "optim/outer.h"
#include "plan/parts.h"
#include "plan/servers.h"
#include "plan/shard.h"

size_t kolo_plan_tensor_bytes(const kolo_plan *plan, int tensor)
{
    return kolo_round_up(plan->layout[tensor].bytes, KOLO_ALIGN);
}

kolo_binding kolo_plan_read_binding(const kolo_plan *plan, int tensor)
{
    const kolo_binding b = plan->fixed[tensor];
    return b.arena == KOLO_ARENA_PARAM ? kolo_plan_param(plan, b.offset, plan->layout[tensor].half) : b;
}

static void bind_fixed(kolo_plan *plan, int tensor, enum kolo_arena arena)
{
    plan->fixed[tensor] = (kolo_binding){(int16_t)arena, plan->arena_bytes[arena]};
    plan->arena_bytes[arena] += kolo_plan_tensor_bytes(plan, tensor);
}

/* Statistics and metrics first, then gradients: that is the order in which they are made, because the former
 * come from the forward half. A parameter follows its gradient, so PARAM and GRADIENT run in parallel. */
static int settle_reduced(kolo_plan *plan)
{
    const kolo_graph *g = plan->graph;
    bool gradients = false;
    for (int64_t i = 0; i < plan->nodes; i++)
        for (int k = 0; k < g->node[plan->node[i]].n_out; k++) {
            int t = g->node[plan->node[i]].out[k];
            if (t < 0 || !kolo_plan_is_reduced(g->tensor[t].role)) continue;
            if (plan->fixed[t].arena >= 0)
                return kolo_fail(KOLO_EINTERNAL, "plan: %s is written by two operations", g->tensor[t].name);
            if (g->tensor[t].role == KOLO_ROLE_GRADIENT) {
                if (!gradients) plan->reduced_front = plan->arena_bytes[KOLO_ARENA_GRADIENT];
                gradients = true;
                int of = g->tensor[t].of;
                if (of < 0 || plan->fixed[of].arena >= 0)
                    return kolo_fail(KOLO_EINTERNAL,
                                     "plan: %s is no gradient of a parameter, or the second one",
                                     g->tensor[t].name);
                if (plan->layout[of].bytes != plan->layout[t].bytes)
                    return kolo_fail(KOLO_EINTERNAL, "plan: %s and its parameter differ in layout",
                                     g->tensor[t].name);
                bind_fixed(plan, of, KOLO_ARENA_PARAM);
            } else if (gradients) {
                return kolo_fail(KOLO_EINTERNAL, "plan: %s is made after the first gradient",
                                 g->tensor[t].name);
            }
            bind_fixed(plan, t, KOLO_ARENA_GRADIENT);
        }
    if (!gradients) plan->reduced_front = plan->arena_bytes[KOLO_ARENA_GRADIENT];
    plan->trained_bytes = plan->arena_bytes[KOLO_ARENA_GRADIENT] - plan->reduced_front;
    return 0;
}

/* The first of a gradient's terms that this stage makes, in the same turn as their sum, and sends to nobody
 * stands where the sum will. Not in windows, which are taken when the sum is made. */
static void settle_terms(kolo_plan *plan, const kolo_node *n)
{
    const kolo_graph *g = plan->graph;
    const int sum = n->out[0];
    if (n->op != KOLO_OP_total || g->tensor[sum].role != KOLO_ROLE_GRADIENT) return;
    const enum kolo_pass pass = kolo_plan_pass(plan, g->tensor[sum].producer);
    for (int k = 0; k < n->n_in; k++) {
        const int t = n->in[k];
        const int64_t maker = g->tensor[t].producer;
        if (g->tensor[t].role != KOLO_ROLE_TERM || plan->crosses[t] || !kolo_plan_owns(plan, t) ||
            kolo_plan_pass(plan, maker) != pass || plan->layout[t].bytes != plan->layout[sum].bytes)
            continue;
        plan->sum[t] = sum;
        return;
    }
}

static int make_sums(kolo_plan *plan)
{
    const kolo_plan_config *c = &plan->config;
    const bool windows = c->optimizer && kolo_plan_shards(plan, KOLO_shard_gradients);
    plan->sum = kolo_alloc((size_t)plan->graph->tensors * sizeof *plan->sum);
    if (!plan->sum) return KOLO_ENOMEM;
    for (int64_t t = 0; t < plan->graph->tensors; t++) plan->sum[t] = -1;
    for (int64_t i = 0; i < plan->nodes && !windows && !c->keep; i++)
        settle_terms(plan, &plan->graph->node[plan->node[i]]);
    return 0;
}

static int settle_like(kolo_plan *plan, const kolo_plan *like)
{
    const kolo_graph *g = plan->graph;
    for (int t = 0; t < g->tensors; t++) {
        enum kolo_role role = g->tensor[t].role;
        if ((role != KOLO_ROLE_PARAM && role != KOLO_ROLE_BUFFER) || !kolo_plan_owns(plan, t)) continue;
        int same = kolo_graph_find(like->graph, g->tensor[t].name);
        if (same < 0 || like->graph->tensor[same].role != role)
            return kolo_fail(KOLO_EINTERNAL, "plan: the training graph has no %s", g->tensor[t].name);
        const kolo_layout *a = &like->layout[same], *b = &plan->layout[t];
        if (a->hash != b->hash || a->bytes != b->bytes || a->half != b->half)
            return kolo_fail(KOLO_EINTERNAL, "plan: %s has another layout in the training plan",
                             g->tensor[t].name);
        plan->fixed[t] = like->fixed[same];
    }
    plan->shares = true;
    plan->param_bytes = like->param_bytes;
    plan->arena_bytes[KOLO_ARENA_PARAM] = like->arena_bytes[KOLO_ARENA_PARAM];
    plan->arena_bytes[KOLO_ARENA_BUFFER] = like->arena_bytes[KOLO_ARENA_BUFFER];
    plan->arena_bytes[KOLO_ARENA_EMA] = like->arena_bytes[KOLO_ARENA_EMA];
    return 0;
}

/* Runs of parameters with the same decay and rate (each alone where every tensor has a factor of its own);
 * the padding between two of them is zero and may be updated with them. */
static int make_segments(kolo_plan *plan)
{
    const kolo_graph *g = plan->graph;
    const double factor = plan->config.layer_decay;
    int64_t capacity = 0;
    int *depth = kolo_alloc((size_t)(g->tensors + 1) * sizeof *depth),
        depths = depth ? kolo_plan_depths(g, depth) : 0, rc = depth ? 0 : KOLO_ENOMEM;
    for (int64_t i = 0; i < plan->nodes && rc == 0; i++)
        for (int k = 0; k < g->node[plan->node[i]].n_out && rc == 0; k++) {
            int t = g->node[plan->node[i]].out[k];
            if (t < 0 || g->tensor[t].role != KOLO_ROLE_GRADIENT) continue;
            int of = g->tensor[t].of;
            bool decay = g->tensor[of].decay || plan->config.decay_norms;
            float rate = factor > 0 ? (float)pow(factor, depths - 1 - depth[of]) : 1;
            int64_t count = (int64_t)(kolo_plan_tensor_bytes(plan, of) / sizeof(float));
            kolo_segment *last = plan->segments ? &plan->segment[plan->segments - 1] : NULL;
            if (last && last->decay == decay && last->rate == rate &&
                !kolo_is_layerwise(plan->config.optimizer)) {
                last->count += count;
                continue;
            }
            rc = kolo_grow(&plan->segment, &capacity, plan->segments, sizeof *plan->segment);
            if (rc == 0)
                plan->segment[plan->segments++] =
                    (kolo_segment){(int64_t)(plan->fixed[of].offset / sizeof(float)), count, decay, rate};
        }
    free(depth);
    return rc;
}

int kolo_plan_own_states(const kolo_plan *plan)
{
    return plan->config.optimizer ? plan->config.optimizer->states + plan->config.lookahead : 0;
}

int kolo_plan_states(const kolo_plan *plan)
{
    const int own = kolo_plan_own_states(plan);
    return plan->config.optimizer ? own + kolo_outer_states(plan->config.outer) : 0;
}

const char *kolo_plan_state_name(const kolo_plan *plan, int state)
{
    static const char *const outer[] = {"anchor", "outer_momentum"};
    const int own = kolo_plan_own_states(plan);
    if (state >= own) return outer[state - own];
    return state < plan->config.optimizer->states ? plan->config.optimizer->state_name[state] : "slow";
}

size_t kolo_plan_layers_offset(const kolo_plan *plan)
{
    return kolo_plan_state_bytes(plan) * (size_t)kolo_plan_states(plan);
}

int kolo_plan_layer(const kolo_plan *plan, int tensor)
{
    if (!kolo_is_layerwise(plan->config.optimizer) || plan->fixed[tensor].arena != KOLO_ARENA_PARAM)
        return -1;
    for (int s = 0; s < plan->segments; s++)
        if (plan->segment[s].begin * (int64_t)sizeof(float) == (int64_t)plan->fixed[tensor].offset) return s;
    return -1;
}

int kolo_plan_bind_fixed(kolo_plan *plan, const kolo_plan *like)
{
    const kolo_graph *g = plan->graph;
    plan->fixed = kolo_alloc((size_t)g->tensors * sizeof *plan->fixed);
    if (!plan->fixed) return KOLO_ENOMEM;
    for (int t = 0; t < g->tensors; t++) plan->fixed[t].arena = -1;
    KOLO_TRY(settle_reduced(plan));
    KOLO_TRY(make_sums(plan));
    if (like) {
        KOLO_TRY(settle_like(plan, like));
    } else {
        for (int t = 0; t < g->tensors; t++) {
            if (plan->fixed[t].arena >= 0 || !kolo_plan_owns(plan, t)) continue;
            if (g->tensor[t].role == KOLO_ROLE_PARAM) bind_fixed(plan, t, KOLO_ARENA_PARAM);
            if (g->tensor[t].role == KOLO_ROLE_BUFFER) bind_fixed(plan, t, KOLO_ARENA_BUFFER);
        }
    }
    size_t *bytes = plan->arena_bytes;
    if (!like) plan->param_bytes = bytes[KOLO_ARENA_PARAM];
    for (int t = 0; t < g->tensors; t++)
        if (g->tensor[t].role == KOLO_ROLE_PARAM && plan->layout[t].half)
            bytes[KOLO_ARENA_SHADOW] = plan->param_bytes / 2;
    if (plan->config.optimizer) {
        KOLO_TRY(make_segments(plan));
        bytes[KOLO_ARENA_STATE] = kolo_plan_layers_offset(plan);
        if (kolo_is_layerwise(plan->config.optimizer))
            bytes[KOLO_ARENA_STATE] += (size_t)plan->segments * sizeof(kolo_layer);
    }
    bytes[KOLO_ARENA_VERSION] =
        (size_t)(kolo_plan_weight_versions(plan) + kolo_plan_predicts(plan)) * plan->param_bytes;
    if (plan->config.ema && !like) bytes[KOLO_ARENA_EMA] = bytes[KOLO_ARENA_PARAM] + bytes[KOLO_ARENA_BUFFER];
    bytes[KOLO_ARENA_LATE] = plan->config.optimizer ? kolo_round_up(bytes[KOLO_ARENA_GRADIENT], KOLO_ALIGN) *
                                                          (size_t)(kolo_plan_versions(plan) - 1)
                                                    : 0;
    if (plan->config.servers) bytes[KOLO_ARENA_LATE] = kolo_plan_servers(plan).bytes;
    bytes[KOLO_ARENA_PART] = bytes[KOLO_ARENA_GRADIENT] * (size_t)(kolo_plan_levels(&plan->config) - 1);
    return 0;
}
