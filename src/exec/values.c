/* Tensors in and out by name of what they are: initial values, and canonical copies for
 * checkpoints, export and tests. */
#include <stdlib.h>
#include <string.h>

#include "base/memory.h"
#include "exec/parts.h"
#include "plan/shard.h"
#include "kolo/error.h"

/* ---- whole arenas and the loss scale ---- */

kolo_comm *kolo_exec_comm(const kolo_exec *e) { return e->comm; }

int kolo_exec_read_arena(kolo_exec *e, enum kolo_arena arena, void *to)
{
    size_t bytes = e->plan->arena_bytes[arena];
    return bytes ? kolo_backend_read(e->backend, to, e->arena[arena], bytes) : 0;
}

/* The second part of the step block, which only the backend writes in a step. */
static int read_block(kolo_exec *e, kolo_step *block)
{
    return kolo_backend_read(e->backend, (char *)block + KOLO_STEP_HOST_BYTES,
                             (char *)e->step + KOLO_STEP_HOST_BYTES, sizeof *block - KOLO_STEP_HOST_BYTES);
}

int kolo_exec_get_scaler(kolo_exec *e, kolo_scaler *scaler)
{
    kolo_step block;
    KOLO_TRY(read_block(e, &block));
    *scaler = block.scaler;
    return 0;
}

int kolo_exec_set_scaler(kolo_exec *e, const kolo_scaler *scaler)
{
    kolo_step block = {.clip = 1 / scaler->scale, .scaler = *scaler};
    if (!(scaler->scale > 0) || (scaler->scale != 1 && !e->plan->config.scaled))
        return kolo_fail(KOLO_EINTERNAL, "executor: a loss scale of %g in a plan %s one",
                         (double)scaler->scale, e->plan->config.scaled ? "with" : "without");
    for (int i = 0; i < e->blocks; i++)
        KOLO_TRY(kolo_backend_write(e->backend, (char *)&e->block[i] + KOLO_STEP_HOST_BYTES,
                                    (char *)&block + KOLO_STEP_HOST_BYTES,
                                    sizeof block - KOLO_STEP_HOST_BYTES));
    return 0;
}

/* ---- initial values ---- */

static void initial_values(const kolo_tensor *t, uint64_t seed, float *values, int64_t count)
{
    enum { PIECE = 4096 };
#pragma omp parallel for schedule(static) if (count > 4 * PIECE)
    for (int64_t i = 0; i < count; i += PIECE)
        kolo_initial_values(t, seed, i, count - i < PIECE ? count - i : PIECE, values + i);
}

static int copy_to_average(kolo_exec *e)
{
    char *average = e->arena[KOLO_ARENA_EMA];
    size_t params = kolo_plan_stored_bytes(e->plan), buffers = e->plan->arena_bytes[KOLO_ARENA_BUFFER];
    if (!average) return 0;
    KOLO_TRY(exec_is_sharded(e) ? exec_begin_averages(e)
                                : kolo_backend_copy(e->backend, KOLO_LANE_COMPUTE, average,
                                                    e->arena[KOLO_ARENA_PARAM], params));
    return kolo_backend_copy(e->backend, KOLO_LANE_COMPUTE, average + params, e->arena[KOLO_ARENA_BUFFER],
                             buffers);
}

int kolo_exec_initialise(kolo_exec *e, uint64_t seed)
{
    const kolo_graph *g = e->plan->graph;
    float *values = kolo_alloc((size_t)kolo_plan_largest(e->plan) * sizeof *values);
    int rc = values ? 0 : KOLO_ENOMEM;
    for (int t = 0; t < g->tensors && rc == 0; t++) {
        const kolo_tensor *x = &g->tensor[t];
        if ((x->role != KOLO_ROLE_PARAM && x->role != KOLO_ROLE_BUFFER) || !kolo_plan_owns(e->plan, t) ||
            !exec_stores(e, "param", t))
            continue;
        initial_values(x, seed, values, kolo_tensor_count(x));
        rc = kolo_exec_set(e, "param", t, values);
    }
    free(values);
    KOLO_TRY(rc);
    if (e->arena[KOLO_ARENA_STATE] && e->file[KOLO_ARENA_STATE] < 0) /* a file begins with zeros */
        KOLO_TRY(kolo_backend_fill(e->backend, KOLO_LANE_COMPUTE, e->arena[KOLO_ARENA_STATE], 0,
                                   e->plan->arena_bytes[KOLO_ARENA_STATE]));
    KOLO_TRY(copy_to_average(e));
    exec_evict_all(e, KOLO_ARENA_PARAM);
    return kolo_backend_finish(e->backend);
}

/* ---- one tensor ---- */

/* Where `which` of a tensor is, in backend memory; *tensor becomes the one whose layout it has (a
 * gradient's). NULL: error text set. */
static void *values_place(const kolo_exec *e, const char *which, int *tensor)
{
    const kolo_plan *p = e->plan;
    const kolo_graph *g = p->graph;
    if (*tensor < 0 || *tensor >= g->tensors) {
        kolo_fail(KOLO_EINTERNAL, "executor: no tensor %d", *tensor);
        return NULL;
    }
    const char *name = g->tensor[*tensor].name;
    kolo_binding fixed = p->fixed[*tensor];
    bool stored = fixed.arena == KOLO_ARENA_PARAM || fixed.arena == KOLO_ARENA_BUFFER;
    if (!strcmp(which, "param") && stored) return e->arena[fixed.arena] + fixed.offset;
    if (!strcmp(which, "ema") && stored && e->arena[KOLO_ARENA_EMA])
        return e->arena[KOLO_ARENA_EMA] + (fixed.arena == KOLO_ARENA_BUFFER ? kolo_plan_stored_bytes(p) : 0) +
               fixed.offset;
    if (!strcmp(which, "gradient")) {
        if (fixed.arena == KOLO_ARENA_PARAM && g->grad && g->grad[*tensor] >= 0) *tensor = g->grad[*tensor];
        fixed = p->fixed[*tensor];
        if (fixed.arena == KOLO_ARENA_GRADIENT) return exec_gradients(e, e->read_version) + fixed.offset;
    }
    if (!strcmp(which, "activation") && (p->config.keep || (!g->train && kolo_graph_is_output(g, *tensor)))) {
        fixed = kolo_plan_binding(p, *tensor, 0);
        if (fixed.arena == KOLO_ARENA_ACTIVATION || fixed.arena == KOLO_ARENA_TRANSFER)
            return e->arena[fixed.arena] + fixed.offset;
    }
    const int version = !strncmp(which, "version", 7) ? atoi(which + 7) : -1;
    if (version >= 0 && version < kolo_plan_weight_versions(p) && fixed.arena == KOLO_ARENA_PARAM)
        return e->arena[KOLO_ARENA_VERSION] + (size_t)version * p->param_bytes + fixed.offset;
    for (int k = 0; k < kolo_plan_states(p); k++)
        if (!strcmp(which, kolo_plan_state_name(p, k)) && fixed.arena == KOLO_ARENA_PARAM &&
            !g->tensor[*tensor].frozen)
            return e->arena[KOLO_ARENA_STATE] + (size_t)k * kolo_plan_state_bytes(p) + fixed.offset;
    kolo_fail(KOLO_EINTERNAL, "executor: %s has no \"%s\" here", name, which);
    return NULL;
}

/* What a layer-wise optimizer keeps of a tensor: one number. NULL: `which` is something else. */
static void *kept(const kolo_exec *e, const char *which, int tensor)
{
    int layer = strcmp(which, "layer") || tensor < 0 || tensor >= e->plan->graph->tensors
                    ? -1
                    : kolo_plan_layer(e->plan, tensor);
    if (layer < 0) return NULL;
    return e->arena[KOLO_ARENA_STATE] + kolo_plan_layers_offset(e->plan) +
           (size_t)layer * sizeof(kolo_layer) + offsetof(kolo_layer, kept);
}

int kolo_exec_get_own(kolo_exec *e, const char *which, int tensor, float *values)
{
    const void *one = kept(e, which, tensor);
    if (one) return kolo_backend_read(e->backend, values, one, sizeof *values);
    const void *from = values_place(e, which, &tensor);
    if (!from) return KOLO_EINTERNAL;
    const kolo_tensor *t = &e->plan->graph->tensor[tensor];
    const kolo_layout *layout = &e->plan->layout[tensor];
    if (kolo_backend_is_host(e->backend)) {
        const int rc = kolo_backend_to_canonical(e->backend, t, layout, from, values);
        exec_evict_pages(e, from, layout->bytes);
        return rc;
    }
    void *host = kolo_alloc(layout->bytes);
    if (!host) return KOLO_ENOMEM;
    int rc = kolo_backend_read(e->backend, host, from, layout->bytes);
    if (rc >= 0) rc = kolo_backend_to_canonical(e->backend, t, layout, host, values);
    free(host);
    return rc;
}

static size_t values_bytes(const kolo_exec *e, const char *which, int tensor)
{
    return (!strcmp(which, "layer") ? 1 : (size_t)kolo_tensor_count(&e->plan->graph->tensor[tensor])) *
           sizeof(float);
}

/* From the stage that has it, one replica's; to all ranks. */
int exec_get_of(kolo_exec *e, const char *which, int tensor, int replica, float *values)
{
    const kolo_grid *grid = e->plan->program->grid;
    const kolo_placement *p = e->plan->config.placement;
    const int stage = kolo_placement_stage(p, p->owner[tensor]);
    if (stage == grid->stage && replica == grid->replica)
        KOLO_TRY(kolo_exec_get_own(e, which, tensor, values));
    return kolo_comm_broadcast(e->comm, values, values_bytes(e, which, tensor),
                               kolo_grid_rank(grid, stage, replica));
}

int kolo_exec_get_parts(kolo_exec *e, const char *which, int tensor, float *values)
{
    return exec_get_sharded(e->owner, which, tensor, values);
}

/* From the stage that has it, whose replicas all have the same. What belongs to a batch is read where it
 * is. */
int kolo_exec_get(kolo_exec *e, const char *which, int tensor, float *values)
{
    const kolo_program *program = e->plan->program;
    const int rc = exec_get_sharded(e->owner, which, tensor, values);
    if (rc != 0) return rc < 0 ? rc : 0;
    if (!program || tensor < 0 || tensor >= e->plan->graph->tensors || !strcmp(which, "activation"))
        return kolo_exec_get_own(e, which, tensor, values);
    return exec_get_of(e, which, tensor, 0, values);
}

int kolo_exec_set(kolo_exec *e, const char *which, int tensor, const float *values)
{
    if (tensor >= 0 && tensor < e->plan->graph->tensors && !kolo_plan_owns(e->plan, tensor)) return 0;
    void *one = kept(e, which, tensor);
    if (one) return kolo_backend_write(e->backend, one, values, sizeof *values);
    const int parts = exec_set_sharded(e, which, tensor, values);
    if (parts != 0) {
        e->owner->changes++;
        return parts < 0 ? parts : 0;
    }
    void *to = values_place(e, which, &tensor);
    if (!to) return KOLO_EINTERNAL;
    const kolo_tensor *t = &e->plan->graph->tensor[tensor];
    const kolo_layout *layout = &e->plan->layout[tensor];
    e->owner->changes++;
    e->has_versions |= !strncmp(which, "version", 7);
    if (kolo_backend_is_host(e->backend)) {
        const int rc = kolo_backend_from_canonical(e->backend, t, layout, values, to);
        exec_evict_pages(e, to, layout->bytes);
        return rc;
    }
    void *host = kolo_alloc(layout->bytes);
    if (!host) return KOLO_ENOMEM;
    int rc = kolo_backend_from_canonical(e->backend, t, layout, values, host);
    if (rc >= 0) rc = kolo_backend_write(e->backend, to, host, layout->bytes);
    free(host);
    return rc;
}
