/* Arenas are allocated, every binding of the plan becomes a pointer: once, before the first step. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/memory.h"
#include "base/failure.h"
#include "exec/parts.h"
#include "plan/shard.h"
#include "optim/grad_scaler.h"

/* ---- arenas ---- */

static bool is_kept(int a) { return a == KOLO_ARENA_PARAM || a == KOLO_ARENA_BUFFER || a == KOLO_ARENA_EMA; }

/* Training and evaluation take turns, so scratch that is large enough is used by both. */
static bool is_shared(int a, const kolo_plan *plan, const kolo_plan *with)
{
    if (!with) return false;
    if (a == KOLO_ARENA_ACTIVATION && kolo_plan_is_late(with)) return false; /* micro-batches are under way */
    return is_kept(a) || (a >= KOLO_ARENA_INPUT && with->arena_bytes[a] >= plan->arena_bytes[a]);
}

size_t kolo_exec_bytes(const kolo_plan *plan, const kolo_plan *share)
{
    size_t bytes = 0;
    for (int a = 0; a < KOLO_ARENAS; a++)
        if (!is_shared(a, plan, share)) bytes += kolo_plan_resident(plan, (enum kolo_arena)a);
    return bytes - kolo_plan_resident_apart(plan);
}

static int allocate(kolo_exec *e, enum kolo_arena a)
{
    size_t bytes = e->plan->arena_bytes[a];
    if (bytes == 0 || e->arena[a] || !kolo_arena_is_memory(a)) return 0;
    e->arena[a] = kolo_backend_alloc(e->backend, bytes);
    if (!e->arena[a])
        return kolo_fail_in(kolo_error_status(), "memory for %s (%zu bytes): ", kolo_arena_name[a], bytes);
    e->own[a] = true;
    return 0;
}

/* What is reduced, and what is sent, lies in comm's memory. */
static int take_comm_memory(kolo_exec *e)
{
    const size_t *bytes = e->plan->arena_bytes;
    const bool reduces = e->comm && e->plan->config.optimizer && bytes[KOLO_ARENA_GRADIENT];
    if (e->plan->program && !e->comm)
        return kolo_fail(KOLO_EINTERNAL, "executor: a stage of a pipeline needs its communication");
    const bool gathers = e->comm && bytes[KOLO_ARENA_GATHERED];
    if (!e->comm || (!reduces && !bytes[KOLO_ARENA_TRANSFER] && !gathers)) return 0;
    char *arena = kolo_comm_arena(e->comm);
    if (!arena) return kolo_fail(KOLO_EINTERNAL, "executor: comm was made without an arena");
    if (e->plan->program) arena += e->plan->program->sum_bytes;
    if (reduces) e->arena[KOLO_ARENA_GRADIENT] = arena;
    if (reduces && e->plan->config.servers)
        e->arena[KOLO_ARENA_PARAM] = arena + kolo_plan_gather_base(e->plan);
    if (reduces && bytes[KOLO_ARENA_LATE]) e->arena[KOLO_ARENA_LATE] = arena + kolo_plan_late_base(e->plan);
    if (bytes[KOLO_ARENA_TRANSFER]) e->arena[KOLO_ARENA_TRANSFER] = arena + kolo_plan_transfer_base(e->plan);
    if (gathers) e->arena[KOLO_ARENA_GATHERED] = arena + kolo_plan_gather_base(e->plan);
    else if (reduces && exec_is_sharded(e))
        e->arena[KOLO_ARENA_PARAM] = arena + kolo_plan_gather_base(e->plan);
    return 0;
}

int exec_allocate(kolo_exec *e, kolo_exec *share)
{
    KOLO_TRY(take_comm_memory(e));
    for (int a = 0; a < KOLO_ARENAS; a++) {
        if (is_shared(a, e->plan, share ? share->plan : NULL)) e->arena[a] = share->arena[a];
        KOLO_TRY(allocate(e, (enum kolo_arena)a));
    }
    const size_t offloaded = e->plan->arena_bytes[KOLO_ARENA_OFFLOADED];
    if (!offloaded) return 0;
    int64_t copies = 0;
    for (int64_t i = 0; i < e->plan->actions; i++)
        copies +=
            e->plan->action[i].kind == KOLO_ACTION_STORE || e->plan->action[i].kind == KOLO_ACTION_RETRIEVE;
    return exec_offloaded_open(&e->offloaded, e->backend, e->options->offload_path, offloaded, copies + 8);
}

/* ---- bindings ---- */

static void *pointer(const kolo_exec *e, kolo_binding b, bool average)
{
    if (b.arena < 0 || !kolo_arena_is_memory(b.arena)) return NULL;
    /* shards have them change places */
    if (average && b.arena == KOLO_ARENA_PARAM && !exec_is_sharded(e))
        return e->arena[KOLO_ARENA_EMA] + b.offset;
    if (average && b.arena == KOLO_ARENA_BUFFER)
        return e->arena[KOLO_ARENA_EMA] + kolo_plan_stored_bytes(e->plan) + b.offset;
    return e->arena[b.arena] + b.offset;
}

/* Where gradients, statistics and metrics are, of that version. */
static void *pointer_of(const kolo_exec *e, kolo_binding b, bool average, int version)
{
    if (b.arena == KOLO_ARENA_GRADIENT) return exec_gradients(e, version) + b.offset;
    return pointer(e, b, average);
}

static void **pointers(const kolo_exec *e, const kolo_plan *p, bool average, int version)
{
    void **args = kolo_alloc((size_t)(p->bindings + 1) * sizeof(void *));
    for (int64_t i = 0; args && i < p->bindings; i++)
        args[i] = pointer_of(e, p->binding[i], average, version);
    return args;
}

/* ---- what UPDATE and BUFFERS work on ---- */

typedef struct slices {
    kolo_slice *slice;
    int64_t n, capacity;
    int version;
    const exec_served *served;  /* NULL: all of them, where arenas have them */
    kolo_leaf_run *own, *whole; /* [tensors] of gradients: their leaves, and those of all slabs */
    kolo_leaf_run *leaf;        /* [segments] layer-wise: leaves of each tensor, of slabs all of them */
    int64_t *first;             /* [segments] likewise: its own first one */
} slices;

static kolo_layer *layers_of(const kolo_exec *e)
{
    return (kolo_layer *)(e->arena[KOLO_ARENA_STATE] + kolo_plan_layers_offset(e->plan));
}

/* Where the sum of a gradient stands, of an element as parameters are counted. */
static float *gradient_at(const kolo_exec *e, int version, int unit, int64_t element)
{
    if (kolo_plan_shards(e->plan, KOLO_shard_gradients))
        return (float *)e->arena[KOLO_ARENA_SUM] + exec_stored_at(e, unit, element);
    return (float *)(exec_gradients(e, version) + e->plan->reduced_front) + element;
}

static bool corrects_spikes(const kolo_exec *e)
{
    const int how = e->options->late_correction;
    return how == KOLO_late_correction_spike || how == KOLO_late_correction_both;
}

/* Elements [from, to) of a bucket that this rank updates. */
static int add_slice(const kolo_exec *e, slices *all, int unit, int64_t from, int64_t to, int segment)
{
    const kolo_plan *p = e->plan;
    const int64_t at = exec_stored_at(e, unit, from);
    const exec_served *served = all->served;
    char *half = exec_is_sharded(e) || served ? NULL : e->arena[KOLO_ARENA_SHADOW];
    float *average = p->config.ema && !p->config.local ? (float *)e->arena[KOLO_ARENA_EMA] : NULL;
    KOLO_TRY(kolo_grow(&all->slice, &all->capacity, all->n, sizeof *all->slice));
    kolo_slice *k = &all->slice[all->n++];
    *k = (kolo_slice){.param = served ? served->param + (from - served->first)
                                      : (float *)e->arena[KOLO_ARENA_PARAM] +
                                            (kolo_plan_shards(p, KOLO_shard_parameters) ? at : from),
                      .grad = served ? served->grad + (from - served->first)
                                     : gradient_at(e, all->version, unit, from),
                      .ema = average ? average + at : NULL,
                      .half = half ? half + from * 2 : NULL,
                      .half_type = p->graph->dtype,
                      .count = to - from,
                      .decay = p->segment[segment].decay,
                      .late = corrects_spikes(e) ? kolo_plan_staleness(p) : 0,
                      .rate = p->segment[segment].rate};
    for (int i = 0; i < kolo_plan_own_states(p); i++) {
        float *state = (float *)(e->arena[KOLO_ARENA_STATE] + (size_t)i * kolo_plan_state_bytes(p)) + at;
        *(i < p->config.optimizer->states ? &k->state[i] : &k->slow) = state;
    }
    if (!kolo_is_layerwise(p->config.optimizer)) return 0;
    k->layer = layers_of(e) + segment;
    k->leaf = all->first[segment] + (from - p->segment[segment].begin) / KOLO_LEAF;
    return 0;
}

static int number_leaves(const kolo_plan *p, slices *all)
{
    const size_t tensors = (size_t)p->graph->tensors + 1, segments = (size_t)p->segments + 1;
    all->own = kolo_alloc(tensors * sizeof *all->own);
    all->whole = kolo_alloc(tensors * sizeof *all->whole);
    all->leaf = kolo_alloc(segments * sizeof *all->leaf);
    all->first = kolo_alloc(segments * sizeof *all->first);
    if (!all->own || !all->whole || !all->leaf || !all->first) return KOLO_ENOMEM;
    KOLO_TRY(kolo_plan_number_leaves(p, all->own, all->whole));
    for (int t = 0; t < p->graph->tensors; t++) {
        const int64_t count = kolo_plan_gradient_count(p, t);
        const int layer = count ? kolo_plan_layer(p, p->graph->tensor[t].of) : -1;
        if (layer < 0) continue;
        all->leaf[layer] = all->whole[t];
        all->first[layer] = all->own[t].first;
    }
    return 0;
}

/* The part of each segment that lies in each bucket, and is this rank's. */
static int make_slices(kolo_exec *e, slices *all)
{
    const kolo_plan *p = e->plan;
    KOLO_TRY(number_leaves(p, all));
    for (int b = 0; b < p->buckets; b++) {
        int64_t begin = p->bucket[b].param, end = begin + p->bucket[b].params;
        if (!all->served) e->first_slice[b] = (int)all->n;
        if (begin < end) exec_own_range(e, p->bucket[b].unit, &begin, &end);
        if (all->served && begin < all->served->first) begin = all->served->first;
        if (all->served && end > all->served->last) end = all->served->last;
        for (int s = 0; s < p->segments; s++) {
            int64_t from = p->segment[s].begin, to = from + p->segment[s].count;
            from = from > begin ? from : begin;
            to = to < end ? to : end;
            if (from < to) KOLO_TRY(add_slice(e, all, p->bucket[b].unit, from, to, s));
        }
        if (!all->served) e->first_slice[b + 1] = (int)all->n;
    }
    return 0;
}

static int make_runnings(const kolo_exec *e, const slices *of, kolo_running *all, int *count)
{
    const kolo_graph *g = e->plan->graph;
    const bool served = of->served != NULL;
    if (served && !of->served->front) return 0;
    for (int t = 0; t < g->tensors; t++) {
        if (g->tensor[t].role != KOLO_ROLE_STATISTIC || g->tensor[t].of < 0 || e->plan->fixed[t].arena < 0)
            continue;
        kolo_running *k = &all[(*count)++];
        k->statistic = served ? (void *)(of->served->front + e->plan->fixed[t].offset)
                              : pointer_of(e, e->plan->fixed[t], false, of->version);
        k->channels = kolo_tensor_count(&g->tensor[g->tensor[t].of]);
        k->momentum = (float)g->node[g->tensor[t].producer].a.momentum;
        for (int i = 0; i < 2; i++) {
            k->running[i] = pointer(e, e->plan->fixed[g->tensor[t].of + i], false);
            k->ema[i] =
                e->arena[KOLO_ARENA_EMA] ? pointer(e, e->plan->fixed[g->tensor[t].of + i], true) : NULL;
        }
        if (kolo_tensor_count(&g->tensor[t]) != 2 * k->channels + 1 || !k->running[0] || !k->running[1])
            return kolo_fail(KOLO_EINTERNAL, "executor: %s does not fit its buffers", g->tensor[t].name);
    }
    return 0;
}

/* The leaves of this stage's gradients that this rank has; where groups of ranks have copies, the first one's
 * count. all: [kolo_plan_leaves]. */
static int64_t make_measured(const kolo_exec *e, int version, const kolo_leaf_run *leaf, kolo_measured *all)
{
    const kolo_plan *p = e->plan;
    int64_t n = 0;
    for (int t = 0; t < p->graph->tensors; t++) {
        const int64_t count = kolo_plan_gradient_count(p, t);
        if (count == 0 || p->fixed[t].arena < 0 || (exec_is_sharded(e) && e->shard_group != 0)) continue;
        const int unit = kolo_plan_unit_of(p, p->graph->tensor[t].of);
        const int64_t begin = (int64_t)((p->fixed[t].offset - p->reduced_front) / sizeof(float));
        int64_t from = begin, to = begin + count;
        exec_own_range(e, unit, &from, &to);
        for (int64_t at = from; at < to; at += KOLO_LEAF)
            all[n++] = (kolo_measured){.value = gradient_at(e, version, unit, at),
                                       .count = to - at < KOLO_LEAF ? to - at : KOLO_LEAF,
                                       .sum = leaf[t].first + (at - begin) / KOLO_LEAF};
    }
    return n;
}

size_t exec_squares_bytes(const kolo_exec *e)
{
    const size_t each = kolo_is_layerwise(e->plan->config.optimizer) ? 2 : 1;
    return each * (size_t)(kolo_plan_leaves(e->plan) + 1) * sizeof *e->squares;
}

int exec_make_updater(kolo_exec *e, int version, const exec_served *served, kolo_updater **updater)
{
    const kolo_plan *p = e->plan;
    slices all = {.version = version, .served = served};
    int runnings = 0, rc = KOLO_ENOMEM;
    kolo_running *running = kolo_alloc((size_t)(p->graph->tensors + 1) * sizeof *running);
    kolo_measured *measured = kolo_alloc((size_t)(kolo_plan_leaves(p) + 1) * sizeof *measured);
    if (!e->first_slice) e->first_slice = kolo_alloc((size_t)(p->buckets + 1) * sizeof *e->first_slice);
    if (!running || !measured || !e->first_slice) goto fail;
    bool layerwise = kolo_is_layerwise(p->config.optimizer);
    KOLO_TRY_GOTO(rc, make_slices(e, &all));
    KOLO_TRY_GOTO(rc, make_runnings(e, &all, running, &runnings));
    kolo_updater_config config = {.backend = e->backend,
                                  .optimizer = p->config.optimizer,
                                  .options = e->options,
                                  .slice = all.slice,
                                  .slices = (int)all.n,
                                  .running = running,
                                  .runnings = runnings,
                                  .layer = layerwise ? layers_of(e) : NULL,
                                  .segment = p->segment,
                                  .leaf = all.leaf,
                                  .layers = layerwise ? p->segments : 0,
                                  .measured = measured,
                                  .measures = served ? 0 : make_measured(e, version, all.own, measured),
                                  .dynamic_scale = e->dynamic};
    rc = kolo_updater_create(updater, &config);
fail:
    free(all.slice);
    free(all.own);
    free(all.whole);
    free(all.leaf);
    free(all.first);
    free(running);
    free(measured);
    return rc;
}

/* ---- what goes to and fro between the host and the steps ---- */

static int make_input(const kolo_exec *e, plan_variant *f)
{
    const kolo_plan *p = f->plan;
    const kolo_graph *g = p->graph;
    int loaded[KOLO_MAX_LOADED];
    const int n = kolo_plan_loaded(p, loaded);
    for (int i = 0; i < n; i++)
        *(loaded[i] == g->label ? &f->label_bytes : &f->input_bytes) += p->layout[loaded[i]].bytes;
    size_t bytes = f->input_bytes * (size_t)p->config.slots;
    if (g->input >= 0 && g->tensor[g->input].dtype != KOLO_U8 && kolo_plan_loads(p)) {
        f->converted = kolo_pages_alloc(bytes);
        if (!f->converted) return KOLO_ENOMEM;
        KOLO_TRY(kolo_backend_pin(e->backend, f->converted, bytes));
    }
    if (kolo_backend_is_host(e->backend) || !kolo_plan_loads(p)) return 0;
    f->pixels = e->arena[KOLO_ARENA_INPUT];
    f->labels = (const int32_t *)(e->arena[KOLO_ARENA_INPUT] + kolo_round_up(bytes, KOLO_ALIGN));
    return 0;
}

static int check_arenas(const kolo_exec *e, const kolo_plan *plan)
{
    if (!memcmp(plan->arena_bytes, e->plan->arena_bytes, sizeof plan->arena_bytes)) return 0;
    return kolo_fail(KOLO_EINTERNAL, "executor: these plans were not laid in one memory (kolo_plan_share)");
}

/* Ranks of a pipeline do different things: which stage and micro-batch comes first, where a report is cut. */
static int describe_actions(plan_variant *f)
{
    const kolo_plan *p = f->plan;
    char text[256], where[EXEC_ACTION_TEXT];
    f->action_text = kolo_alloc((size_t)(p->actions + 1) * sizeof *f->action_text);
    if (!f->action_text) return KOLO_ENOMEM;
    for (int64_t i = 0; i < p->actions; i++) {
        const kolo_action *a = &p->action[i];
        kolo_plan_action_text(p, i, text, sizeof text);
        snprintf(where, sizeof where, "stage %d, micro-batch %d: ", p->config.stage, a->slot);
        snprintf(f->action_text[i], sizeof f->action_text[i], "%.28s%.*s", where,
                 EXEC_ACTION_TEXT - 1 - (int)strnlen(where, 28), text);
    }
    return 0;
}

/* Where the metrics are: made here, or received; arena -1: neither. */
static kolo_binding metrics_place(const kolo_plan *p)
{
    for (int64_t i = 0; i < p->actions; i++)
        if (p->action[i].kind == KOLO_ACTION_RECEIVE &&
            p->transfer[p->action[i].transfer].tensor == p->graph->metrics)
            return p->binding[p->action[i].binding];
    return p->fixed[p->graph->metrics];
}

int exec_add_variant(kolo_exec *e, const kolo_plan *plan)
{
    KOLO_TRY(check_arenas(e, plan));
    plan_variant *form = realloc(e->variant, (size_t)(e->variants + 1) * sizeof *form);
    if (!form) return kolo_fail(KOLO_ENOMEM, "no memory for %d plans", e->variants + 1);
    e->variant = form;
    form += e->variants++;
    *form = (plan_variant){.plan = plan};
    form->weights = kolo_alloc((size_t)e->versions * sizeof *form->weights);
    for (int v = 0; form->weights && v < e->versions; v++)
        if (!(form->weights[v].args = pointers(e, plan, false, v))) return KOLO_ENOMEM;
    if (!form->weights) return KOLO_ENOMEM;
    if (plan->program) KOLO_TRY(describe_actions(form));
    if (plan->graph->metrics >= 0) form->metrics = pointer(e, metrics_place(plan), false);
    if (!(form->transfer_pairs = kolo_alloc((size_t)(plan->transfers + 1) * sizeof *form->transfer_pairs)))
        return KOLO_ENOMEM;
    for (int i = 0; i < plan->transfers; i++) {
        form->transfer_pairs[i] = exec_transfer_pairs(plan, i);
        if (form->transfer_pairs[i] > form->transfer_places) form->transfer_places = form->transfer_pairs[i];
    }
    form->transfer_number = kolo_alloc((size_t)(plan->transfers + 1) * (size_t)form->transfer_places *
                                       sizeof *form->transfer_number);
    if (!form->transfer_number) return KOLO_ENOMEM;
    if (plan->arena_bytes[KOLO_ARENA_OFFLOADED] &&
        !(form->copy =
              kolo_alloc((size_t)plan->config.slots * (size_t)plan->graph->tensors * sizeof *form->copy)))
        return KOLO_ENOMEM;
    if (e->arena[KOLO_ARENA_EMA] && !(form->average.args = pointers(e, plan, true, 0))) return KOLO_ENOMEM;
    return make_input(e, form);
}

static void free_form(const kolo_exec *e, plan_variant *f)
{
    for (int v = 0; f->weights && v < e->versions; v++) {
        kolo_replay_destroy(&f->weights[v].replay);
        free(f->weights[v].args);
    }
    kolo_replay_destroy(&f->average.replay);
    if (f->converted) kolo_backend_unpin(e->backend, f->converted);
    kolo_pages_free(&f->converted, f->input_bytes * (size_t)f->plan->config.slots);
    free(f->action_text);
    free(f->transfer_number);
    free(f->transfer_pairs);
    free(f->copy);
    free(f->weights);
    free(f->average.args);
}

static int make_turns(kolo_exec *e)
{
    if (e->blocks < e->versions) e->blocks = e->versions;
    e->flights = KOLO_EXEC_AHEAD + e->versions;
    if (e->flights < e->blocks) e->flights = e->blocks; /* batches on their way in go by these, too */
    const size_t bytes = (size_t)e->flights * sizeof *e->in_flight;
    e->in_flight = kolo_pages_alloc(bytes);
    e->done = kolo_alloc((size_t)e->flights * sizeof(kolo_event *));
    e->arrived = kolo_alloc((size_t)e->versions * sizeof *e->arrived);
    if (!e->in_flight || !e->done || !e->arrived) return KOLO_ENOMEM;
    KOLO_TRY(kolo_backend_pin(e->backend, e->in_flight, bytes));
    for (int i = 0; i < e->flights; i++) KOLO_TRY(kolo_event_create(e->backend, &e->done[i], false));
    e->step = e->block = kolo_backend_alloc(e->backend, (size_t)e->blocks * sizeof *e->block);
    if (!e->block) return kolo_error_status();
    const double fixed = e->options->loss_scale;
    const kolo_scaler scaler = {.scale = !e->plan->config.scaled ? 1
                                         : e->dynamic            ? KOLO_SCALE_START
                                                                 : (float)fixed};
    return kolo_exec_set_scaler(e, &scaler);
}

int exec_resolve(kolo_exec *e)
{
    if (e->plan->config.optimizer) {
        e->squares = kolo_backend_alloc(e->backend, exec_squares_bytes(e));
        if (!e->squares) return kolo_error_status();
        e->updater = kolo_alloc((size_t)e->versions * sizeof(kolo_updater *));
        if (!e->updater) return KOLO_ENOMEM;
        for (int v = 0; v < e->versions; v++) KOLO_TRY(exec_make_updater(e, v, NULL, &e->updater[v]));
    }
    KOLO_TRY(make_turns(e));
    if (!kolo_backend_is_host(e->backend)) {
        KOLO_TRY(kolo_event_create(e->backend, &e->full, false));
        KOLO_TRY(kolo_event_create(e->backend, &e->emptied, false));
    }
    return 0;
}

void exec_release(kolo_exec *e)
{
    kolo_backend *b = e->backend;
    /* What was issued may still use all of this; but where a peer is gone it would never end. */
    const kolo_exec *owner = e->owner;
    if (e->issued && (!owner->comm || kolo_comm_status(owner->comm) == 0)) kolo_backend_finish(b);
    exec_backup_close(e);
    exec_async_close(e);
    exec_offloaded_close(&e->offloaded);
    for (int i = 0; i < e->variants; i++) free_form(e, &e->variant[i]);
    for (int v = 0; e->updater && v < e->versions; v++) kolo_updater_destroy(&e->updater[v]);
    free(e->updater);
    for (int i = 0; e->done && i < e->flights; i++) kolo_event_destroy(&e->done[i]);
    free(e->done);
    free(e->arrived);
    for (int64_t i = 0; e->mark && i <= e->plan->actions; i++) kolo_event_destroy(&e->mark[i]);
    kolo_event_destroy(&e->full);
    kolo_event_destroy(&e->emptied);
    if (e->in_flight) kolo_backend_unpin(b, e->in_flight);
    kolo_pages_free(&e->in_flight, (size_t)e->flights * sizeof *e->in_flight);
    kolo_backend_free(b, (void **)&e->block, (size_t)e->blocks * sizeof *e->block);
    exec_offload_close(e);
    for (int a = 0; a < KOLO_ARENAS; a++)
        if (e->own[a]) kolo_backend_free(b, (void **)&e->arena[a], e->plan->arena_bytes[a]);
    free(e->mark);
    free(e->used);
    free(e->variant);
    free(e->first_slice);
    if (e->squares) kolo_backend_free(b, (void **)&e->squares, exec_squares_bytes(e));
    free(e->sum);
    free(e->bucket_number);
    free(e->node.number);
    free(e->node.rank);
    free(e->group.number);
    free(e->group.rank);
    free(e->pair_number);
    free(e->shard_rank);
    free(e->share_number);
    free(e->unit_number);
}
