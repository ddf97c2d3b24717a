/* A plan is made: layouts, kernels, fixed bindings, buckets, actions, placement, hash. */
#include "plan/plan.h"

#include <stdlib.h>
#include <string.h>

#include "base/memory.h"
#include "kolo/error.h"
#include "plan/parts.h"
#include "plan/shard.h"

const char *const kolo_arena_name[KOLO_ARENAS] = {
    "parameters", "buffers", "gradients", "parts",    "optimizer", "average",     "versions",  "sums",
    "late",       "shadow",  "transfers", "gathered", "input",     "activations", "workspace", "offloaded",
};

static int check_config(const kolo_graph *graph, const kolo_plan_config *c)
{
    if (c->ranks < 1 || c->slots < 1)
        return kolo_fail(KOLO_EINTERNAL, "plan: %d ranks, %d micro-batches", c->ranks, c->slots);
    if (c->shards > c->ranks || (c->shards > 1 && c->adasum))
        return kolo_fail(KOLO_EINTERNAL, "plan: %d shards of %d ranks", c->shards, c->ranks);
    if (c->lag && (c->late || c->backup < 0 || c->backup >= c->ranks))
        return kolo_fail(KOLO_EINTERNAL, "plan: %d backup ranks of %d", c->backup, c->ranks);
    if (c->servers && (c->ranks != 1 || c->first_server < 0 || c->late || c->lag || !c->optimizer))
        return kolo_fail(KOLO_EINTERNAL, "plan: %d servers of %d ranks", c->servers, c->ranks);
    if (c->group > 1 && (!c->local || c->ranks % c->group))
        return kolo_fail(KOLO_EINTERNAL, "plan: %d ranks in groups of %d", c->ranks, c->group);
    if ((c->late || c->lag || c->servers) &&
        (c->adasum || c->placement || c->shards > 1 || c->local || c->noise || c->scaled || c->swa))
        return kolo_fail(KOLO_EINTERNAL, "plan: late gradients of ranks that do not sum whole gradients");
    if (c->slots > KOLO_MAX_SLOTS)
        return kolo_fail(KOLO_ECONFIG,
                         "%d micro-batches a rank and step are more than %d; set a larger micro_batch",
                         c->slots, KOLO_MAX_SLOTS);
    if (c->optimizer && !graph->train)
        return kolo_fail(KOLO_EINTERNAL, "plan: %s was built for evaluation and cannot be trained",
                         graph->name);
    if (c->optimizer && c->canonical && c->ranks > 1 && (c->slots & (c->slots - 1))) {
        int less = 1;
        while (less * 2 < c->slots) less *= 2;
        long long rows = graph->rows, share = rows * c->ranks;
        return kolo_fail(KOLO_ECONFIG,
                         "reduce=canonical on %d ranks: each rank has %d micro-batches of %lld rows, but "
                         "their number must be a "
                         "power of two; set batch=%lld or batch=%lld, or use another number of ranks",
                         c->ranks, c->slots, rows, share * less, share * less * 2);
    }
    return 0;
}

int kolo_plan_loaded(const kolo_plan *plan, int *tensor)
{
    const kolo_graph *g = plan->graph;
    const kolo_placement *p = plan->config.placement;
    const int stage = plan->config.stage;
    int n = 0;
    for (int i = 0; i < kolo_graph_inputs(g); i++) {
        const int t = kolo_graph_input(g, i);
        const bool apart = p && g->input_grid[0];
        if (stage != (apart ? kolo_placement_stage(p, p->owner[t]) : 0)) continue;
        if (tensor) tensor[n] = t;
        n++;
    }
    if (g->label >= 0 && stage == 0) {
        if (tensor) tensor[n] = g->label;
        n++;
    }
    return n;
}

static size_t input_bytes(const kolo_plan *plan)
{
    const kolo_graph *g = plan->graph;
    size_t slots = (size_t)plan->config.slots, bytes[2] = {0};
    int loaded[KOLO_MAX_LOADED];
    const int n = kolo_plan_loaded(plan, loaded);
    for (int i = 0; i < n; i++) bytes[loaded[i] == g->label] += plan->layout[loaded[i]].bytes * slots;
    return kolo_round_up(bytes[0], KOLO_ALIGN) + kolo_round_up(bytes[1], KOLO_ALIGN);
}

static int plan_prepare(kolo_plan *plan, kolo_backend *backend, const kolo_plan *like)
{
    const kolo_graph *g = plan->graph;
    KOLO_TRY(
        kolo_backend_layout(backend, g, like ? like->graph : NULL, like ? like->layout : NULL, plan->layout));
    plan->on_device = !kolo_backend_is_host(backend);
    for (int i = 0; i < g->nodes; i++) {
        KOLO_TRY(kolo_backend_prepare(backend, g, i, plan->layout, &plan->kernel[i], &plan->scratch[i]));
        plan->scratch[i] = kolo_round_up(plan->scratch[i], KOLO_ALIGN);
    }
    return 0;
}

int kolo_plan_set_hash(kolo_plan *plan)
{
    uint64_t *cumulative = kolo_alloc((size_t)(plan->actions + 1) * sizeof *cumulative);
    if (!cumulative) return KOLO_ENOMEM;
    kolo_plan_hashes(plan, cumulative);
    plan->hash = cumulative[plan->actions];
    free(cumulative);
    return 0;
}

static int start(kolo_plan **out, const kolo_graph *graph, const kolo_plan_config *config)
{
    *out = NULL;
    KOLO_TRY(check_config(graph, config));
    kolo_plan *plan = *out = kolo_alloc(sizeof *plan);
    if (!plan) return KOLO_ENOMEM;
    plan->graph = graph;
    plan->config = *config;
    if (plan->config.shards < 1) plan->config.shards = 1;
    plan->layout = kolo_alloc((size_t)graph->tensors * sizeof *plan->layout);
    plan->kernel = kolo_alloc((size_t)graph->nodes * sizeof(kolo_kernel *));
    plan->scratch = kolo_alloc((size_t)graph->nodes * sizeof *plan->scratch);
    return plan->layout && plan->kernel && plan->scratch ? 0 : KOLO_ENOMEM;
}

size_t kolo_plan_transfer_base(const kolo_plan *plan)
{
    return plan->config.optimizer ? kolo_round_up(plan->arena_bytes[KOLO_ARENA_GRADIENT], KOLO_ALIGN) : 0;
}

size_t kolo_plan_comm_bytes(const kolo_plan *plan)
{
    size_t gathered = plan->arena_bytes[KOLO_ARENA_GATHERED];
    if (plan->config.optimizer && kolo_plan_shards(plan, KOLO_shard_optimizer) &&
        !kolo_plan_shards(plan, KOLO_shard_parameters))
        gathered = plan->arena_bytes[KOLO_ARENA_PARAM];
    if (plan->config.servers) return kolo_plan_late_base(plan) + plan->arena_bytes[KOLO_ARENA_LATE];
    if (kolo_plan_versions(plan) > 1 && plan->config.optimizer)
        return kolo_plan_transfer_base(plan) + plan->arena_bytes[KOLO_ARENA_LATE] +
               (plan->config.lag ? kolo_agreement_bytes(plan->config.ranks) : 0);
    return gathered ? kolo_plan_gather_base(plan) + gathered
                    : kolo_plan_transfer_base(plan) + plan->arena_bytes[KOLO_ARENA_TRANSFER];
}

size_t kolo_plan_gather_base(const kolo_plan *plan)
{
    const size_t before = plan->config.servers ? 0 : plan->arena_bytes[KOLO_ARENA_TRANSFER];
    return kolo_round_up(kolo_plan_transfer_base(plan) + before, KOLO_ALIGN);
}

size_t kolo_plan_late_base(const kolo_plan *plan)
{
    const size_t before = plan->config.servers ? plan->arena_bytes[KOLO_ARENA_PARAM] : 0;
    return kolo_round_up(kolo_plan_transfer_base(plan) + before, KOLO_ALIGN);
}

int64_t kolo_plan_largest(const kolo_plan *plan)
{
    const kolo_graph *g = plan->graph;
    int64_t most = 1;
    for (int t = 0; t < g->tensors; t++) {
        const enum kolo_role role = g->tensor[t].role;
        if ((role != KOLO_ROLE_PARAM && role != KOLO_ROLE_BUFFER) || !kolo_plan_owns(plan, t)) continue;
        if (kolo_tensor_count(&g->tensor[t]) > most) most = kolo_tensor_count(&g->tensor[t]);
    }
    return most;
}

/* With the layouts known. */
static int lay_out(kolo_plan *plan, const kolo_plan *like)
{
    KOLO_TRY(kolo_plan_create_turns(plan));
    if (plan->on_device && kolo_plan_loads(plan)) plan->arena_bytes[KOLO_ARENA_INPUT] = input_bytes(plan);
    size_t *workspace = &plan->arena_bytes[KOLO_ARENA_WORKSPACE];
    for (int64_t i = 0; i < plan->nodes; i++)
        if (plan->scratch[plan->node[i]] > *workspace) *workspace = plan->scratch[plan->node[i]];
    KOLO_TRY(kolo_plan_bind_fixed(plan, like));
    KOLO_TRY(kolo_plan_buckets(plan));
    KOLO_TRY(kolo_plan_make_shards(plan, like));
    KOLO_TRY(kolo_plan_instantiate(plan));
    KOLO_TRY(kolo_plan_add_forms(plan));
    KOLO_TRY(kolo_plan_gathers(plan));
    return kolo_plan_is_late(plan) ? kolo_plan_place_rings(plan) : kolo_plan_place(plan);
}

int kolo_plan_create(kolo_plan **out, const kolo_graph *graph, kolo_backend *backend,
                     const kolo_plan_config *config, const kolo_plan *like)
{
    int rc = start(out, graph, config);
    if (rc == 0) rc = plan_prepare(*out, backend, like);
    if (rc == 0) rc = lay_out(*out, like);
    if (rc == 0) rc = kolo_plan_set_hash(*out);
    if (rc < 0) kolo_plan_destroy(out);
    return rc;
}

/* With the layouts and algorithms of another plan of that network. */
static int create_of(kolo_plan **out, const kolo_plan *of, const kolo_plan_config *config,
                     const kolo_plan *like)
{
    int rc = start(out, of->graph, config);
    if (rc == 0) {
        kolo_plan *p = *out;
        memcpy(p->layout, of->layout, (size_t)of->graph->tensors * sizeof *p->layout);
        memcpy(p->kernel, of->kernel, (size_t)of->graph->nodes * sizeof(kolo_kernel *));
        memcpy(p->scratch, of->scratch, (size_t)of->graph->nodes * sizeof *p->scratch);
        p->on_device = of->on_device;
        rc = lay_out(p, like);
    }
    if (rc == 0) rc = kolo_plan_set_hash(*out);
    if (rc < 0) kolo_plan_destroy(out);
    return rc;
}

int kolo_plan_create_stage(kolo_plan **out, const kolo_plan *of, const kolo_placement *placement, int stage,
                           const kolo_plan *like)
{
    kolo_plan_config config = of->config;
    config.placement = placement;
    config.stage = stage;
    return create_of(out, of, &config, like);
}

int kolo_plan_create_forms(kolo_plan **out, const kolo_plan *of, const kolo_form *form, const kolo_plan *like)
{
    kolo_plan_config config = of->config;
    config.form = form;
    return create_of(out, of, &config, like);
}

int kolo_plan_create_exchange(kolo_plan **out, const kolo_plan *of, enum kolo_exchange exchange)
{
    kolo_plan_config config = of->config;
    config.exchange = exchange;
    return create_of(out, of, &config, of);
}

int kolo_plan_least(const kolo_graph *graph, const kolo_plan_config *config, size_t arena_bytes[KOLO_ARENAS])
{
    kolo_plan *plan;
    int rc = start(&plan, graph, config);
    for (int64_t t = 0; rc == 0 && t < graph->tensors; t++)
        plan->layout[t] = kolo_layout_plain(&graph->tensor[t]);
    if (rc == 0) rc = lay_out(plan, NULL);
    if (rc == 0) {
        memcpy(arena_bytes, plan->arena_bytes, sizeof plan->arena_bytes);
        arena_bytes[KOLO_ARENA_ACTIVATION] = plan->least_activation;
    }
    kolo_plan_destroy(&plan);
    return rc;
}

void kolo_plan_destroy(kolo_plan **plan)
{
    if (!*plan) return;
    kolo_plan *p = *plan;
    free(p->layout);
    free(p->kernel);
    free(p->scratch);
    free(p->node);
    free(p->turn);
    free(p->transfer);
    free(p->crosses);
    free(p->action);
    free(p->binding);
    free(p->ring);
    free(p->bucket);
    free(p->segment);
    free(p->unit);
    free(p->part);
    free(p->fixed);
    free(p->sum);
    free(p);
    *plan = NULL;
}

size_t kolo_plan_bytes(const kolo_plan *plan)
{
    size_t sum = 0;
    for (int a = 0; a < KOLO_ARENAS; a++) {
        bool shared =
            plan->shares && (a == KOLO_ARENA_PARAM || a == KOLO_ARENA_BUFFER || a == KOLO_ARENA_EMA);
        if (!shared) sum += kolo_plan_resident(plan, (enum kolo_arena)a);
    }
    return sum - kolo_plan_resident_apart(plan);
}

size_t kolo_plan_resident_apart(const kolo_plan *plan)
{
    const int both = KOLO_OFFLOAD_PARAM | KOLO_OFFLOAD_STATE;
    if ((plan->config.offload & both) != both || !plan->config.optimizer) return 0;
    const size_t read = kolo_plan_resident(plan, KOLO_ARENA_PARAM),
                 state = kolo_plan_resident(plan, KOLO_ARENA_STATE),
                 updated = kolo_plan_resident_param(plan, 1) + state;
    return read + state - (read > updated ? read : updated);
}

size_t kolo_plan_resident(const kolo_plan *plan, enum kolo_arena arena)
{
    if (!kolo_arena_is_memory(arena)) return 0;
    if (arena == KOLO_ARENA_PARAM && (plan->config.offload & KOLO_OFFLOAD_PARAM))
        return kolo_plan_resident_param(plan, 2);
    if (arena != KOLO_ARENA_STATE || !(plan->config.offload & KOLO_OFFLOAD_STATE) ||
        !plan->config.optimizer ||
        plan->config.optimizer->layer.kind == KOLO_LAYER_LAMB) /* which measures by all of it */
        return plan->arena_bytes[arena];
    int64_t most = 0;
    for (int u = 0; u < plan->units; u++)
        for (int s = 0; s < plan->config.shards; s++)
            if (kolo_plan_part(plan, u, s)->count > most) most = kolo_plan_part(plan, u, s)->count;
    return (size_t)kolo_plan_states(plan) * (size_t)most * sizeof(float);
}

int64_t kolo_plan_gradient_count(const kolo_plan *plan, int tensor)
{
    if (plan->graph->tensor[tensor].role != KOLO_ROLE_GRADIENT) return 0;
    return (int64_t)(kolo_plan_tensor_bytes(plan, tensor) / sizeof(float));
}

int64_t kolo_plan_leaves(const kolo_plan *plan)
{
    int64_t n = 0;
    for (int t = 0; t < plan->graph->tensors; t++) n += kolo_leaves(kolo_plan_gradient_count(plan, t));
    return n;
}

/* Of a parameter the leaves of its gradient, which begin with number `first`. */
static int64_t number_one(const kolo_plan *plan, const int *gradient, int param, int64_t first,
                          kolo_leaf_run *own)
{
    const int64_t leaves = kolo_leaves(kolo_plan_gradient_count(plan, gradient[param]));
    own[gradient[param]] = (kolo_leaf_run){first, leaves};
    return leaves;
}

/* Of a parameter, or of all slabs of one. */
static int64_t number_parameter(const kolo_plan *plan, const int *gradient, int param, int64_t first,
                                kolo_leaf_run *own, kolo_leaf_run *whole)
{
    const kolo_graph *g = plan->graph;
    int64_t leaves = 0;
    for (int t = param; t >= 0; t = kolo_graph_next_slab(g, t))
        leaves += number_one(plan, gradient, t, first + leaves, own);
    for (int t = param; t >= 0; t = kolo_graph_next_slab(g, t))
        whole[gradient[t]] = (kolo_leaf_run){first, leaves};
    return leaves;
}

int kolo_plan_number_leaves(const kolo_plan *plan, kolo_leaf_run *own, kolo_leaf_run *whole)
{
    const kolo_graph *g = plan->graph;
    int64_t next = 0;
    int *gradient = kolo_alloc((size_t)(g->tensors + 1) * sizeof *gradient);
    if (!gradient) return KOLO_ENOMEM;
    for (int t = 0; t < g->tensors; t++)
        if (g->tensor[t].role == KOLO_ROLE_GRADIENT) gradient[g->tensor[t].of] = t;
    for (int t = 0; t < g->tensors; t++) {
        if (g->tensor[t].role != KOLO_ROLE_GRADIENT || kolo_tensor_is_later_slab(&g->tensor[g->tensor[t].of]))
            continue;
        next += number_parameter(plan, gradient, g->tensor[t].of, next, own, whole);
    }
    free(gradient);
    return 0;
}

bool kolo_plan_meets(const kolo_plan *plan, enum kolo_action_kind kind)
{
    if (!plan->config.placement) return false;
    return kind == KOLO_ACTION_NORM || kind == KOLO_ACTION_NOISE ||
           (kind == KOLO_ACTION_LAYERS && plan->graph->parts[2] > 1);
}

int64_t kolo_plan_sum_count(const kolo_plan *plan, const kolo_action *a)
{
    const kolo_graph *g = plan->graph;
    if (a->kind == KOLO_ACTION_SUM) return kolo_tensor_count(&g->tensor[g->node[a->node].out[a->from]]);
    if (!plan->config.placement && plan->config.shards == 1) return 0;
    if (a->kind == KOLO_ACTION_LAYERS && (plan->config.shards > 1 || kolo_plan_meets(plan, a->kind)))
        return 2 * kolo_plan_leaves(plan);
    return a->kind == KOLO_ACTION_NORM ? kolo_plan_leaves(plan) : 0;
}

kolo_binding kolo_plan_binding(const kolo_plan *plan, int tensor, int slot)
{
    const kolo_graph *g = plan->graph;
    for (int64_t i = 0; i < plan->actions; i++) {
        const kolo_action *a = &plan->action[i];
        if (a->slot != slot) continue;
        if (a->kind == KOLO_ACTION_RECEIVE && plan->transfer[a->transfer].tensor == tensor)
            return plan->binding[a->binding];
        if (a->kind == KOLO_ACTION_LOAD) {
            int loaded[KOLO_MAX_LOADED];
            const int n = kolo_plan_loaded(plan, loaded);
            for (int k = 0; k < n; k++)
                if (loaded[k] == tensor) return plan->binding[a->binding + k];
        }
        if (a->kind != KOLO_ACTION_RUN || a->again) continue;
        const kolo_node *n = &g->node[a->node];
        for (int k = 0; k < n->n_out; k++)
            if (n->out[k] == tensor) return plan->binding[a->binding + n->n_in + k];
    }
    return plan->fixed[tensor];
}
