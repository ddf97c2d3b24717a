/* The list of actions of one step, in the order in which this rank carries them out. */
#include <stdlib.h>

#include "base/memory.h"
#include "kolo/error.h"
#include "plan/parts.h"
#include "plan/shard.h"

typedef struct list {
    kolo_plan *plan;
    int64_t action_capacity, binding_capacity;
    int *missing;   /* [slots][buckets] reduced tensors still to be written */
    char *arrived;  /* [transfers] received and waited for */
    char *remade;   /* [slots][tensors] dropped ones that are there again */
    char *started;  /* [buckets] gradients are sharded: being summed, in their window */
    char *waited;   /* [buckets] likewise: this rank has its part */
    int statistics; /* bucket that holds the last batch statistic, or -1 */
    int squares;    /* measured so far */
    int front;      /* buckets of statistics and metrics that are still to be completed */
    int turn;       /* whose actions are added; turns: behind the last */
    int *within; /* [withins] transfers within turns, in the order in which they come; `passed` have come */
    int withins, passed;
    int64_t ring_capacity;
} list;

/* Batches that the turn is ahead of the step. */
static int list_ahead(const list *l) { return l->turn < l->plan->turns ? l->plan->turn[l->turn].ahead : 0; }

/* ---- levels: where a slot's gradients are written, and how levels are folded ----
 *
 * fast: slot 0 writes level 0, every later one level 1, which is then added.
 * canonical: a binary counter. After s slots the levels hold one finished subtree for every 1 bit of s,
 * the largest lowest, so slot s writes level popcount(s) and then as many folds follow as s has trailing
 * ones. In the end what is left is folded from the top: the tree that splits n blocks at the largest
 * power of two below n.
 *
 * Where gradients are sharded, a slot that is folded as soon as it is complete is written to its bucket's
 * window, and so is the last one, to which all levels are added (shard.h). */

int kolo_plan_level_of(const kolo_plan_config *config, int slot)
{
    if (config->canonical) return __builtin_popcount((unsigned)slot);
    return slot > 0;
}

int kolo_plan_levels(const kolo_plan_config *config)
{
    int most = 0;
    for (int s = 0; s < config->slots; s++)
        if (kolo_plan_level_of(config, s) > most) most = kolo_plan_level_of(config, s);
    return most + 1;
}

int kolo_plan_folds_after(const kolo_plan_config *config, int slot)
{
    if (!config->canonical || slot == config->slots - 1) return kolo_plan_level_of(config, slot);
    return __builtin_ctz(~(unsigned)slot);
}

/* ---- actions ---- */

static int instantiate_add(list *l, kolo_action action)
{
    kolo_plan *p = l->plan;
    KOLO_TRY(kolo_grow(&p->action, &l->action_capacity, p->actions, sizeof *p->action));
    if (!kolo_action_transfers(action.kind)) action.ahead = list_ahead(l);
    action.turn = l->turn;
    p->action[p->actions++] = action;
    return 0;
}

/* A parameter as a late pipeline's turn reads it: the newest, or a copy of before some updates. */
static kolo_binding bind_version(const list *l, kolo_binding fixed, kolo_ring *ring)
{
    const kolo_plan *p = l->plan;
    const kolo_turn *turn = &p->turn[l->turn];
    const int versions = kolo_plan_weight_versions(p);
    const bool newest = turn->pass == KOLO_PASS_FORWARD ? turn->ahead == versions
                                                        : !kolo_pipeline[p->config.placement->order].stashes;
    if (newest && kolo_plan_predicts(p) && turn->pass == KOLO_PASS_FORWARD)
        return (kolo_binding){KOLO_ARENA_VERSION, fixed.offset + (size_t)versions * p->param_bytes};
    if (newest || versions == 0) return fixed;
    *ring = (kolo_ring){.places = versions, .by_batch = true, .stride = p->param_bytes};
    return (kolo_binding){KOLO_ARENA_VERSION, fixed.offset};
}

static int add_ring(list *l, kolo_ring ring)
{
    kolo_plan *p = l->plan;
    if (!kolo_plan_is_late(p)) return 0;
    KOLO_TRY(kolo_grow(&p->ring, &l->ring_capacity, p->bindings, sizeof *p->ring));
    p->ring[p->bindings] = ring;
    return 0;
}

/* A value (parts.h). Activations are bound later, by place.c; here they get the arena alone. */
static int bind(list *l, int value, int slot)
{
    kolo_plan *p = l->plan;
    KOLO_TRY(kolo_grow(&p->binding, &l->binding_capacity, p->bindings, sizeof *p->binding));
    kolo_binding b = {-1, 0};
    kolo_ring ring = {0};
    if (value >= p->graph->tensors) {
        b = (kolo_binding){(int16_t)kolo_plan_value_arena(p, value), 0};
    } else if (value >= 0) {
        const int tensor = p->sum[value] >= 0 ? p->sum[value] : value, arena = kolo_plan_placed_in(p, value);
        const enum kolo_role role = p->graph->tensor[tensor].role;
        b = arena >= 0 ? (kolo_binding){(int16_t)arena, 0} : kolo_plan_read_binding(p, tensor);
        if (arena < 0 && b.arena >= 0 && kolo_plan_is_reduced(role))
            b = kolo_plan_level(p, b.offset, kolo_plan_write_level(p, slot, b.offset < p->reduced_front));
        if (b.arena < 0)
            return kolo_fail(KOLO_EINTERNAL, "plan: %s has no place", p->graph->tensor[value].name);
        if (role == KOLO_ROLE_PARAM && kolo_plan_is_late(p)) b = bind_version(l, b, &ring);
    }
    KOLO_TRY(add_ring(l, ring));
    p->binding[p->bindings++] = b;
    return 0;
}

/* ---- transfers ---- */

static int add_transfer(list *l, enum kolo_action_kind kind, int number)
{
    const kolo_plan *p = l->plan;
    const kolo_transfer *t = &p->transfer[number];
    KOLO_TRY(instantiate_add(l, (kolo_action){.kind = kind,
                                              .node = -1,
                                              .slot = t->slot,
                                              .bucket = -1,
                                              .transfer = number,
                                              .ahead = kind == KOLO_ACTION_SEND      ? list_ahead(l)
                                                       : kind == KOLO_ACTION_RECEIVE ? t->start_ahead
                                                                                     : t->end_ahead,
                                              .binding = p->bindings}));
    const bool fixed = t->sends && kolo_plan_placed_in(p, t->tensor) < 0;
    const bool copied = fixed && kolo_plan_is_late(p); /* metrics */
    return bind(l, copied ? t->tensor + (int)p->graph->tensors : t->tensor, fixed ? 0 : t->slot);
}

/* Before the operations of a turn (behind the last one: turn == turns): places are offered to what will come,
 * and what was sent has gone. */
static int turn_begin(list *l, int turn)
{
    const kolo_plan *p = l->plan;
    for (int i = 0; i < p->transfers; i++)
        if (p->transfer[i].sends && p->transfer[i].end == turn && p->transfer[i].start < turn &&
            p->transfer[i].gone < 0)
            KOLO_TRY(add_transfer(l, KOLO_ACTION_TRANSFERRED, i));
    for (int i = 0; i < p->transfers; i++)
        if (!p->transfer[i].sends && p->transfer[i].start == turn && p->transfer[i].post < 0)
            KOLO_TRY(add_transfer(l, KOLO_ACTION_RECEIVE, i));
    return 0;
}

/* ---- transfers within turns (plan.h: post, gone) ---- */

/* The first operation that transfer `i` stands before, and its turn. */
static int64_t moment(const kolo_transfer *t) { return t->sends ? t->gone + 1 : t->post; }
static int turn_of(const kolo_transfer *t) { return t->sends ? t->end : t->start; }

static int by_moment(const void *a, const void *b, void *plan)
{
    const kolo_transfer *all = ((const kolo_plan *)plan)->transfer;
    const int x = *(const int *)a, y = *(const int *)b;
    if (turn_of(&all[x]) != turn_of(&all[y])) return turn_of(&all[x]) - turn_of(&all[y]);
    if (moment(&all[x]) != moment(&all[y])) return moment(&all[x]) < moment(&all[y]) ? -1 : 1;
    return x - y;
}

static int list_within(list *l)
{
    const kolo_plan *p = l->plan;
    l->within = kolo_alloc((size_t)(p->transfers + 1) * sizeof *l->within);
    if (!l->within) return KOLO_ENOMEM;
    for (int i = 0; i < p->transfers; i++)
        if (moment(&p->transfer[i]) > (p->transfer[i].sends ? 0 : -1)) l->within[l->withins++] = i;
    qsort_r(l->within, (size_t)l->withins, sizeof *l->within, by_moment, l->plan);
    return 0;
}

/* Before operation `node` of the turn; INT64_MAX: behind its last one. */
static int pass_within(list *l, int64_t node)
{
    const kolo_plan *p = l->plan;
    while (l->passed < l->withins) {
        const int i = l->within[l->passed];
        const kolo_transfer *t = &p->transfer[i];
        if (turn_of(t) != l->turn || moment(t) > node) return 0;
        l->passed++;
        KOLO_TRY(add_transfer(l, t->sends ? KOLO_ACTION_TRANSFERRED : KOLO_ACTION_RECEIVE, i));
    }
    return 0;
}

/* What the next operation reads is there. */
static int await_inputs(list *l, const kolo_node *n, int slot)
{
    const kolo_plan *p = l->plan;
    for (int k = 0; k < n->n_in; k++) {
        if (n->in[k] < 0 || !p->crosses[n->in[k]]) continue;
        for (int i = 0; i < p->transfers; i++) {
            const kolo_transfer *t = &p->transfer[i];
            if (t->sends || t->tensor != n->in[k] || l->arrived[i] ||
                t->slot != kolo_plan_slot(p, n->in[k], slot))
                continue;
            l->arrived[i] = 1;
            KOLO_TRY(add_transfer(l, KOLO_ACTION_TRANSFERRED, i));
        }
    }
    return 0;
}

/* What no operation of the turn has read: heads that are put out here. */
static int await_outputs(list *l, int turn)
{
    const kolo_plan *p = l->plan;
    for (int i = 0; i < p->transfers; i++) {
        if (p->transfer[i].sends || p->transfer[i].end != turn || l->arrived[i]) continue;
        l->arrived[i] = 1;
        KOLO_TRY(add_transfer(l, KOLO_ACTION_TRANSFERRED, i));
    }
    return 0;
}

static int add_sends(list *l, int tensor, int slot)
{
    const kolo_plan *p = l->plan;
    if (tensor < 0 || !p->crosses[tensor]) return 0;
    for (int i = 0; i < p->transfers; i++)
        if (p->transfer[i].sends && p->transfer[i].tensor == tensor && p->transfer[i].slot == slot)
            KOLO_TRY(add_transfer(l, KOLO_ACTION_SEND, i));
    return 0;
}

static int add_load(list *l, int slot)
{
    int loaded[KOLO_MAX_LOADED];
    const int n = kolo_plan_loaded(l->plan, loaded);
    if (n == 0) return 0;
    KOLO_TRY(instantiate_add(
        l,
        (kolo_action){
            .kind = KOLO_ACTION_LOAD, .node = -1, .slot = slot, .bucket = -1, .binding = l->plan->bindings}));
    for (int i = 0; i < n; i++) KOLO_TRY(bind(l, loaded[i], slot));
    for (int i = 0; i < n; i++) KOLO_TRY(add_sends(l, loaded[i], slot));
    return 0;
}

/* All gradients are needed before the first update: their norm is measured, or tensors have factors. */
static bool together(const kolo_plan_config *c)
{
    return c->clip_norm || c->scaled || c->noise || kolo_is_layerwise(c->optimizer);
}

/* Adasum: the step that this rank would take goes in the place of the gradients, and from
 * there to the others. */
static int add_delta(list *l, int bucket)
{
    const int slot = l->plan->config.slots - 1;
    KOLO_TRY(instantiate_add(
        l, (kolo_action){.kind = KOLO_ACTION_DELTA, .node = -1, .slot = slot, .bucket = bucket}));
    return instantiate_add(
        l, (kolo_action){.kind = KOLO_ACTION_REDUCE, .node = -1, .slot = slot, .bucket = bucket});
}

/* What the binary counter, or the running sum, adds when a slot's gradients of the bucket are complete. */
static int add_folds(list *l, int bucket, int slot, bool window)
{
    const kolo_plan_config *c = &l->plan->config;
    const int folds = kolo_plan_folds_after(c, slot), level = kolo_plan_level_of(c, slot);
    for (int i = 0; i < folds; i++) {
        kolo_action fold = {.kind = KOLO_ACTION_FOLD,
                            .node = -1,
                            .slot = slot,
                            .bucket = bucket,
                            .from = window && i == 0 ? KOLO_WINDOW : level - i,
                            .to = level - i - 1};
        if (window && slot == c->slots - 1) fold.from = fold.to, fold.to = KOLO_WINDOW;
        KOLO_TRY(instantiate_add(l, fold));
    }
    return 0;
}

/* Tensors of the bucket do not fill the room that they have. */
static bool has_gaps(const kolo_plan *p, int bucket)
{
    for (int t = 0; t < p->graph->tensors; t++)
        if (p->graph->tensor[t].role == KOLO_ROLE_GRADIENT && p->fixed[t].arena >= 0 &&
            kolo_plan_bucket_of(p, p->fixed[t].offset) == bucket &&
            kolo_plan_tensor_bytes(p, t) > p->layout[t].bytes)
            return true;
    return false;
}

static int add_of_bucket(list *l, enum kolo_action_kind kind, int bucket, int from)
{
    return instantiate_add(l, (kolo_action){.kind = kind, .node = -1, .bucket = bucket, .from = from});
}

/* Ranks exchange weights. All statistics and metrics are there: what they say of this rank's batch goes into
 * its running statistics, and those in their place to the other ranks, with the metrics. */
static int add_front(list *l)
{
    const kolo_plan *p = l->plan;
    if (--l->front > 0) return 0;
    if (l->statistics >= 0) KOLO_TRY(add_of_bucket(l, KOLO_ACTION_BUFFERS, l->statistics, 0));
    for (int b = 0; b < p->buckets && p->bucket[b].params == 0; b++) {
        if (l->statistics >= b) KOLO_TRY(add_of_bucket(l, KOLO_ACTION_SHARE, b, KOLO_SHARE_WEIGHTS));
        KOLO_TRY(add_of_bucket(l, KOLO_ACTION_REDUCE, b, 0));
    }
    return 0;
}

/* The last gradient of the bucket is written: fold it, and in the last slot start its reduction, so that it
 * runs beside the rest of the backward half. */
static int instantiate_complete(list *l, int bucket, int slot)
{
    const kolo_plan_config *c = &l->plan->config;
    const bool params = l->plan->bucket[bucket].params > 0;
    const int level = kolo_plan_write_level(l->plan, slot, !params);
    if (level == KOLO_WINDOW && has_gaps(l->plan, bucket))
        KOLO_TRY(instantiate_add(
            l, (kolo_action){.kind = KOLO_ACTION_CLEAR, .node = -1, .slot = slot, .bucket = bucket}));
    if (c->noise && params)
        KOLO_TRY(instantiate_add(l, (kolo_action){.kind = KOLO_ACTION_SQUARE,
                                                  .node = -1,
                                                  .slot = slot,
                                                  .bucket = bucket,
                                                  .from = level,
                                                  .to = l->squares++ > 0}));
    KOLO_TRY(add_folds(l, bucket, slot, level == KOLO_WINDOW));
    if (slot < c->slots - 1 || !c->optimizer || !kolo_plan_reduces(c) || (c->adasum && params && together(c)))
        return 0;
    if (kolo_plan_exchanges_weights(c)) return params ? 0 : add_front(l);
    if (c->adasum && params) return add_delta(l, bucket);
    if (level == KOLO_WINDOW) l->started[bucket] = 1;
    return instantiate_add(
        l, (kolo_action){.kind = KOLO_ACTION_REDUCE, .node = -1, .slot = slot, .bucket = bucket});
}

/* This rank's part of the bucket's sum is there; a window is free again. */
static int add_wait(list *l, int bucket)
{
    kolo_action a = {.kind = KOLO_ACTION_WAIT,
                     .node = -1,
                     .slot = l->started[bucket] ? l->plan->config.slots - 1 : 0,
                     .bucket = bucket};
    if (l->waited[bucket]) return 0;
    l->waited[bucket] = 1;
    KOLO_TRY(instantiate_add(l, a));
    a.kind = KOLO_ACTION_COLLECT;
    return l->started[bucket] ? instantiate_add(l, a) : 0;
}

/* A gradient is about to be written: beside its bucket's window only that of the one before is in use. */
static int take_window(list *l, int tensor, int slot)
{
    const kolo_plan *p = l->plan;
    if (tensor < 0 || p->graph->tensor[tensor].role != KOLO_ROLE_GRADIENT ||
        kolo_plan_write_level(p, slot, false) != KOLO_WINDOW)
        return 0;
    const int bucket = kolo_plan_bucket_of(p, p->fixed[tensor].offset);
    for (int b = 0; b < p->buckets; b++)
        if (l->started[b] && b != bucket - 1) KOLO_TRY(add_wait(l, b));
    return 0;
}

/* The operation with its operands. */
static int add_operation(list *l, int node, int slot, bool again)
{
    const kolo_plan *p = l->plan;
    const kolo_node *n = &p->graph->node[node];
    const kolo_action a = {.kind = KOLO_ACTION_RUN,
                           .node = node,
                           .slot = slot,
                           .bucket = -1,
                           .again = again,
                           .binding = p->bindings};
    KOLO_TRY(instantiate_add(l, a));
    for (int k = 0; k < n->n_in; k++) KOLO_TRY(bind(l, kolo_plan_value(p, &a, n->in[k], false), slot));
    for (int k = 0; k < n->n_out; k++) KOLO_TRY(bind(l, kolo_plan_value(p, &a, n->out[k], true), slot));
    return 0;
}

/* A dropped tensor is needed: what makes it runs again, after what makes that operation's own inputs. */
static int remake(list *l, int tensor, int slot)
{
    const kolo_plan *p = l->plan;
    if (tensor < 0 || kolo_plan_form(p, tensor) != KOLO_FORM_DROPPED) return 0;
    char *remade = l->remade + (int64_t)slot * p->graph->tensors;
    if (remade[tensor]) return 0;
    const int maker = p->graph->tensor[tensor].producer;
    const kolo_node *n = &p->graph->node[maker];
    for (int k = 0; k < n->n_in; k++) KOLO_TRY(remake(l, n->in[k], slot));
    for (int k = 0; k < n->n_out; k++)
        if (n->out[k] >= 0) remade[n->out[k]] = 1;
    return add_operation(l, maker, slot, true);
}

static int add_run(list *l, int node, int slot)
{
    const kolo_plan *p = l->plan;
    const kolo_node *n = &p->graph->node[node];
    KOLO_TRY(await_inputs(l, n, slot));
    for (int k = 0; k < n->n_in && n->backward; k++) KOLO_TRY(remake(l, n->in[k], slot));
    for (int k = 0; k < n->n_out; k++) KOLO_TRY(take_window(l, n->out[k], slot));
    KOLO_TRY(add_operation(l, node, slot, false));
    for (int k = 0; k < n->n_out; k++) {
        if (n->out[k] < 0) continue;
        enum kolo_role role = p->graph->tensor[n->out[k]].role;
        if (role == KOLO_ROLE_PARTIAL && p->config.bn == KOLO_bn_sync && p->config.ranks > 1 &&
            p->graph->train) {
            KOLO_TRY(instantiate_add(l, (kolo_action){.kind = KOLO_ACTION_SUM,
                                                      .node = node,
                                                      .slot = slot,
                                                      .bucket = -1,
                                                      .from = k,
                                                      .binding = p->bindings}));
            KOLO_TRY(bind(l, n->out[k], slot));
        }
        const bool waits = !n->backward && role == KOLO_ROLE_STATISTIC && kolo_plan_ahead(p) > 0;
        if (kolo_plan_is_reduced(role) && !waits) {
            int bucket = kolo_plan_bucket_of(p, p->fixed[n->out[k]].offset);
            if (--l->missing[slot * p->buckets + bucket] == 0)
                KOLO_TRY(instantiate_complete(l, bucket, slot));
        }
        if (role != KOLO_ROLE_METRIC) KOLO_TRY(add_sends(l, n->out[k], slot));
    }
    return 0;
}

/* `tensor` as it was made in a forward turn, or formed, to another place of it. to_home: to where it is
 * summed; else from there. */
static int add_copy(list *l, int tensor, int slot, bool to_home)
{
    const int copy = tensor + (int)l->plan->graph->tensors;
    KOLO_TRY(instantiate_add(l, (kolo_action){.kind = KOLO_ACTION_COPY,
                                              .node = -1,
                                              .slot = slot,
                                              .bucket = -1,
                                              .tensor = tensor,
                                              .binding = l->plan->bindings}));
    KOLO_TRY(bind(l, to_home ? copy : tensor, to_home ? slot : 0));
    return bind(l, to_home ? tensor : copy, to_home ? slot : 0);
}

/* In the backward turn of a late pipeline the statistics of its micro-batch, whose forward turn is long past,
 * begin to count: sums over micro-batches are of one batch. */
static int add_statistics(list *l, int slot)
{
    const kolo_plan *p = l->plan;
    for (int t = 0; t < p->graph->tensors && kolo_plan_ahead(p) > 0; t++) {
        if (p->graph->tensor[t].role != KOLO_ROLE_STATISTIC || p->fixed[t].arena < 0) continue;
        KOLO_TRY(add_copy(l, t, slot, true));
        const int bucket = kolo_plan_bucket_of(p, p->fixed[t].offset);
        if (--l->missing[slot * p->buckets + bucket] == 0) KOLO_TRY(instantiate_complete(l, bucket, slot));
    }
    return 0;
}

static void count_missing(list *l)
{
    const kolo_plan *p = l->plan;
    l->statistics = -1;
    for (int b = 0; b < p->buckets; b++) l->front += p->bucket[b].params == 0;
    for (int t = 0; t < p->graph->tensors; t++) {
        if (!kolo_plan_is_reduced(p->graph->tensor[t].role) || p->fixed[t].arena < 0) continue;
        int bucket = kolo_plan_bucket_of(p, p->fixed[t].offset);
        for (int slot = 0; slot < p->config.slots; slot++) l->missing[slot * p->buckets + bucket]++;
        if (p->graph->tensor[t].role == KOLO_ROLE_STATISTIC && bucket > l->statistics) l->statistics = bucket;
    }
}

/* What is decided of all gradients together, once their sums are there (with Adasum: of this rank's own). */
static int add_gradient_norms(list *l)
{
    const kolo_plan_config *c = &l->plan->config;
    const kolo_action all = {.node = -1, .bucket = -1};
    kolo_action noise = all, norm = all, layers = all;
    noise.kind = KOLO_ACTION_NOISE;
    noise.to = l->squares > 0;
    norm.kind = KOLO_ACTION_NORM;
    layers.kind = KOLO_ACTION_LAYERS;
    if (c->noise && (c->ranks > 1 || c->placement)) KOLO_TRY(instantiate_add(l, noise));
    if (c->clip_norm || c->scaled || c->noise) KOLO_TRY(instantiate_add(l, norm));
    return kolo_is_layerwise(c->optimizer) ? instantiate_add(l, layers) : 0;
}

/* What ranks have updated of a unit goes to all. */
static int add_gather(list *l, enum kolo_action_kind kind, int unit)
{
    const kolo_plan *p = l->plan;
    if (!kolo_plan_shards(p, KOLO_shard_optimizer) || kolo_plan_shards(p, KOLO_shard_parameters)) return 0;
    return instantiate_add(l, (kolo_action){.kind = kind, .node = -1, .bucket = -1, .unit = unit});
}

/* The optimizer's state of a unit comes from its file, or goes there. */
static int add_state(list *l, enum kolo_action_kind kind, int unit)
{
    if (!(l->plan->config.offload & KOLO_OFFLOAD_STATE)) return 0;
    return instantiate_add(l, (kolo_action){.kind = kind, .node = -1, .bucket = -1, .unit = unit});
}

/* Of bucket `bucket`, whose sum is there. */
static int add_update(list *l, int bucket)
{
    const kolo_plan *p = l->plan;
    const enum kolo_action_kind update = p->config.adasum ? KOLO_ACTION_APPLY : KOLO_ACTION_UPDATE;
    const int unit = p->bucket[bucket].unit;
    if (p->bucket[bucket].params == 0) return 0;
    if (kolo_plan_weight_versions(p) > 0)
        KOLO_TRY(instantiate_add(l, (kolo_action){.kind = KOLO_ACTION_STASH, .node = -1, .bucket = bucket}));
    if (unit + 1 < p->units) KOLO_TRY(add_state(l, KOLO_ACTION_FETCH, unit + 1));
    KOLO_TRY(instantiate_add(l, (kolo_action){.kind = update, .node = -1, .bucket = bucket}));
    KOLO_TRY(add_state(l, KOLO_ACTION_EVICT, unit));
    return add_gather(l, KOLO_ACTION_GATHER, p->bucket[bucket].unit);
}

/* What each rank made of its weights (or of its optimizer's state) goes to the others, bucket behind bucket,
 * and comes back as their mean. */
static int add_average(list *l, int what)
{
    const kolo_plan *p = l->plan;
    for (int b = 0; b < p->buckets; b++) {
        if (p->bucket[b].params == 0) continue;
        if (what == KOLO_SHARE_WEIGHTS) KOLO_TRY(add_update(l, b));
        KOLO_TRY(add_of_bucket(l, KOLO_ACTION_SHARE, b, what));
        KOLO_TRY(add_of_bucket(l, KOLO_ACTION_REDUCE, b, 0));
    }
    for (int b = 0; b < p->buckets; b++) {
        const bool front = p->bucket[b].params == 0;
        if (front && what != KOLO_SHARE_WEIGHTS) continue;
        KOLO_TRY(add_of_bucket(l, KOLO_ACTION_WAIT, b, 0));
        if (!front || l->statistics >= b) KOLO_TRY(add_of_bucket(l, KOLO_ACTION_TAKE, b, what));
    }
    return 0;
}

static int add_averages(list *l)
{
    const kolo_plan *p = l->plan;
    KOLO_TRY(add_gradient_norms(l));
    KOLO_TRY(add_average(l, KOLO_SHARE_WEIGHTS));
    for (int k = 0; p->config.average_state && k < kolo_plan_own_states(p); k++)
        KOLO_TRY(add_average(l, KOLO_SHARE_STATE + k));
    return 0;
}

/* Updates follow the order of the buckets, each as soon as its sum is there; clipping, loss scaling and norms
 * of tensors need all sums first. */
static int add_updates(list *l)
{
    const kolo_plan *p = l->plan;
    const kolo_plan_config *c = &p->config;
    const bool all = together(c), many = kolo_plan_reduces(c);
    if (kolo_plan_exchanges_weights(c)) return add_averages(l);
    for (int b = 0; all && many && !c->adasum && b < p->buckets; b++) KOLO_TRY(add_wait(l, b));
    if (p->units > 0) KOLO_TRY(add_state(l, KOLO_ACTION_FETCH, 0));
    KOLO_TRY(add_gradient_norms(l));
    for (int b = 0; all && c->adasum && b < p->buckets; b++)
        if (p->bucket[b].params > 0) KOLO_TRY(add_delta(l, b));
    for (int b = 0; b < p->buckets; b++) {
        if (many && (!all || c->adasum)) KOLO_TRY(add_wait(l, b));
        KOLO_TRY(add_update(l, b));
        if (b == l->statistics)
            KOLO_TRY(instantiate_add(l, (kolo_action){.kind = KOLO_ACTION_BUFFERS, .node = -1, .bucket = b}));
    }
    for (int u = 0; u < p->units; u++) KOLO_TRY(add_gather(l, KOLO_ACTION_GATHERED, u));
    return 0;
}

/* Metrics, summed over the ranks of their stage, go to the other stages. */
static int add_metrics(list *l)
{
    const kolo_plan *p = l->plan;
    const int metrics = p->graph->metrics;
    const bool late = kolo_plan_is_late(p);
    bool copied = !late;
    KOLO_TRY(turn_begin(l, p->turns));
    for (int i = 0; i < p->transfers; i++) {
        const kolo_transfer *t = &p->transfer[i];
        if (!t->sends || (late ? t->tensor != metrics : t->start != p->turns)) continue;
        if (!copied) KOLO_TRY(add_copy(l, metrics, 0, false));
        copied = true;
        KOLO_TRY(add_transfer(l, KOLO_ACTION_SEND, i));
    }
    for (int i = 0; i < p->transfers; i++)
        if (late ? p->transfer[i].tensor == metrics && !p->transfer[i].sends
                 : p->transfer[i].start == p->turns)
            KOLO_TRY(add_transfer(l, KOLO_ACTION_TRANSFERRED, i));
    return 0;
}

/* A copy of a parameter is made once a step, for other stages alone. */
static bool is_needless(const kolo_plan *p, const kolo_node *n, int slot)
{
    const int made = n->out[0];
    return n->op == KOLO_OP_share && kolo_plan_is_shared(p, made) &&
           (slot > 0 || (!p->crosses[made] && kolo_plan_read(p, made) != made));
}

static int add_turn(list *l, const kolo_turn *turn)
{
    const kolo_plan *p = l->plan;
    const kolo_placement *placement = p->config.placement;
    if (turn->pass == KOLO_PASS_FORWARD && turn->chunk == 0 && kolo_plan_loads(p))
        KOLO_TRY(add_load(l, turn->slot));
    if (turn->pass == KOLO_PASS_BACKWARD) KOLO_TRY(add_statistics(l, turn->slot));
    for (int64_t i = 0; i < p->graph->nodes; i++) {
        if (!kolo_plan_has_node(p, i) || kolo_plan_pass(p, i) != turn->pass) continue;
        if (placement && kolo_placement_chunk(placement, placement->part[i]) != turn->chunk) continue;
        if (is_needless(p, &p->graph->node[i], turn->slot)) continue;
        KOLO_TRY(pass_within(l, i));
        KOLO_TRY(add_run(l, (int)i, turn->slot));
    }
    KOLO_TRY(pass_within(l, INT64_MAX));
    return await_outputs(l, (int)(turn - p->turn));
}

/* Of the newest weights, before this step's first turn. */
static int add_predictions(list *l)
{
    const kolo_plan *p = l->plan;
    for (int b = 0; kolo_plan_predicts(p) && b < p->buckets; b++) {
        if (p->bucket[b].params == 0) continue;
        KOLO_TRY(instantiate_add(l, (kolo_action){.kind = KOLO_ACTION_PREDICT, .node = -1, .bucket = b}));
        l->plan->action[p->actions - 1].ahead = 0; /* it is of the step, whatever the first turn is of */
    }
    return 0;
}

int kolo_plan_instantiate(kolo_plan *plan)
{
    list l = {.plan = plan};
    int rc = 0;
    l.missing = kolo_alloc((size_t)(plan->config.slots * plan->buckets + 1) * sizeof *l.missing);
    l.arrived = kolo_alloc((size_t)plan->transfers + 1);
    l.remade = kolo_alloc((size_t)plan->config.slots * (size_t)plan->graph->tensors + 1);
    l.started = kolo_alloc((size_t)plan->buckets + 1);
    l.waited = kolo_alloc((size_t)plan->buckets + 1);
    if (!l.missing || !l.arrived || !l.remade || !l.started || !l.waited) KOLO_TRY_GOTO(rc, KOLO_ENOMEM);
    KOLO_TRY_GOTO(rc, list_within(&l));
    count_missing(&l);
    KOLO_TRY_GOTO(rc, add_predictions(&l));
    for (l.turn = 0; l.turn < plan->turns; l.turn++) {
        KOLO_TRY_GOTO(rc, turn_begin(&l, l.turn));
        KOLO_TRY_GOTO(rc, add_turn(&l, &plan->turn[l.turn]));
    }
    if (plan->config.optimizer) KOLO_TRY_GOTO(rc, add_updates(&l));
    KOLO_TRY_GOTO(rc, add_metrics(&l));
fail:
    free(l.missing);
    free(l.arrived);
    free(l.remade);
    free(l.started);
    free(l.waited);
    free(l.within);
    return rc;
}
