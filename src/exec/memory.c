/* Arenas are mapped and touched, every binding of the plan becomes a pointer: once, before the first step. */
#include <stdlib.h>

#include "base/memory.h"
#include "exec/parts.h"
#include "kolo/error.h"

static int map(kolo_exec *e, enum kolo_arena a)
{
    size_t bytes = e->plan->arena_bytes[a];
    if (bytes == 0 || e->arena[a]) return 0;
    e->arena[a] = kolo_pages_alloc(bytes);
    if (!e->arena[a]) return kolo_fail_in(KOLO_ECONFIG, "memory for %s (%zu bytes): ", kolo_arena_name[a], bytes);
    e->own[a] = true;
    return 0;
}

int exec_allocate(kolo_exec *e, const kolo_exec *share)
{
    if (e->comm && e->plan->config.optimizer && e->plan->arena_bytes[KOLO_ARENA_GRADIENT]) {
        e->arena[KOLO_ARENA_GRADIENT] = kolo_comm_arena(e->comm);
        if (!e->arena[KOLO_ARENA_GRADIENT])
            return kolo_fail(KOLO_EINTERNAL, "executor: comm was made without an arena");
    }
    if (share) {
        static const enum kolo_arena kept[] = {KOLO_ARENA_PARAM, KOLO_ARENA_BUFFER, KOLO_ARENA_EMA};
        for (int i = 0; i < 3; i++) e->arena[kept[i]] = share->arena[kept[i]];
        /* training and evaluation take turns, so scratch that is large enough is used by both */
        for (int a = KOLO_ARENA_ACTIVATION; a <= KOLO_ARENA_WORKSPACE; a++)
            if (share->plan->arena_bytes[a] >= e->plan->arena_bytes[a]) e->arena[a] = share->arena[a];
    }
    for (int a = 0; a < KOLO_ARENAS; a++) KOLO_TRY(map(e, (enum kolo_arena)a));
    return 0;
}

static void *pointer(const kolo_exec *e, kolo_binding b, bool average)
{
    if (b.arena < 0) return NULL;
    if (average && b.arena == KOLO_ARENA_PARAM) return e->arena[KOLO_ARENA_EMA] + b.offset;
    if (average && b.arena == KOLO_ARENA_BUFFER)
        return e->arena[KOLO_ARENA_EMA] + e->plan->arena_bytes[KOLO_ARENA_PARAM] + b.offset;
    return e->arena[b.arena] + b.offset;
}

static void **pointers(const kolo_exec *e, bool average)
{
    void **args = kolo_alloc((size_t)(e->plan->bindings + 1) * sizeof(void *));
    for (int64_t i = 0; args && i < e->plan->bindings; i++) args[i] = pointer(e, e->plan->binding[i], average);
    return args;
}

/* The part of each segment that lies in each bucket. */
static int make_slices(kolo_exec *e)
{
    const kolo_plan *p = e->plan;
    int64_t capacity = 0, n = 0;
    e->first_slice = kolo_alloc((size_t)(p->buckets + 1) * sizeof *e->first_slice);
    if (!e->first_slice) return KOLO_ECONFIG;
    float *param = (float *)e->arena[KOLO_ARENA_PARAM], *state = (float *)e->arena[KOLO_ARENA_STATE];
    float *average = p->config.ema ? (float *)e->arena[KOLO_ARENA_EMA] : NULL;
    const float *grad = (const float *)(e->arena[KOLO_ARENA_GRADIENT] + p->reduced_front);
    int64_t all = (int64_t)(p->arena_bytes[KOLO_ARENA_PARAM] / sizeof(float));
    for (int b = 0; b < p->buckets && p->config.optimizer; b++) {
        int64_t begin = p->bucket[b].param, end = begin + p->bucket[b].params;
        e->first_slice[b] = (int)n;
        for (int s = 0; s < p->segments; s++) {
            int64_t from = p->segment[s].begin, to = from + p->segment[s].count;
            from = from > begin ? from : begin;
            to = to < end ? to : end;
            if (from >= to) continue;
            KOLO_TRY(kolo_grow(&e->slice, &capacity, n, sizeof *e->slice));
            kolo_slice *k = &e->slice[n++];
            *k = (kolo_slice){.param = param + from,
                              .grad = grad + from,
                              .ema = average ? average + from : NULL,
                              .count = to - from,
                              .decay = p->segment[s].decay};
            for (int i = 0; i < p->config.optimizer->states; i++) k->state[i] = state + i * all + from;
        }
        e->first_slice[b + 1] = (int)n;
    }
    return 0;
}

static int make_buffers(kolo_exec *e)
{
    const kolo_graph *g = e->plan->graph;
    e->buffers = kolo_alloc((size_t)(g->tensors + 1) * sizeof *e->buffers);
    if (!e->buffers) return KOLO_ECONFIG;
    for (int t = 0; t < g->tensors; t++) {
        if (g->tensor[t].role != KOLO_ROLE_STATISTIC || g->tensor[t].of < 0) continue;
        exec_buffers *k = &e->buffers[e->buffers_count++];
        k->statistic = pointer(e, e->plan->home[t], false);
        k->channels = kolo_tensor_count(&g->tensor[g->tensor[t].of]);
        k->momentum = (float)g->node[g->tensor[t].producer].a.momentum;
        for (int i = 0; i < 2; i++) {
            k->running[i] = pointer(e, e->plan->home[g->tensor[t].of + i], false);
            k->ema[i] = e->arena[KOLO_ARENA_EMA] ? pointer(e, e->plan->home[g->tensor[t].of + i], true) : NULL;
        }
        if (kolo_tensor_count(&g->tensor[t]) != 2 * k->channels + 1 || !k->running[0] || !k->running[1])
            return kolo_fail(KOLO_EINTERNAL, "executor: %s does not fit its buffers", g->tensor[t].name);
    }
    return 0;
}

int exec_resolve(kolo_exec *e)
{
    const kolo_graph *g = e->plan->graph;
    e->args = pointers(e, false);
    if (!e->args) return KOLO_ECONFIG;
    if (e->arena[KOLO_ARENA_EMA] && !(e->ema_args = pointers(e, true))) return KOLO_ECONFIG;
    e->now = e->args;
    KOLO_TRY(make_slices(e));
    KOLO_TRY(make_buffers(e));
    if (g->metrics >= 0) e->metrics = pointer(e, e->plan->home[g->metrics], false);
    if (g->input >= 0) {
        const kolo_tensor *x = &g->tensor[g->input];
        e->input_bytes = (size_t)kolo_tensor_count(x) * kolo_dtype_size(x->dtype == KOLO_U8 ? KOLO_U8 : KOLO_F32);
    }
    return 0;
}

void exec_release(kolo_exec *e)
{
    for (int a = 0; a < KOLO_ARENAS; a++)
        if (e->own[a]) kolo_pages_free(&e->arena[a], e->plan->arena_bytes[a]);
    free(e->args);
    free(e->ema_args);
    free(e->slice);
    free(e->first_slice);
    free(e->buffers);
}
