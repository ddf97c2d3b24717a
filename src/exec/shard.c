/* Shards (plan/shard.h): which part is this rank's, the buckets that scatter and gather parts, and whole
 * tensors of what is stored in parts. */
#include "plan/shard.h"

#include <stdlib.h>
#include <string.h>

#include "base/failure.h"
#include "base/memory.h"
#include "exec/parts.h"
#include "kolo/error.h"

bool exec_is_sharded(const kolo_exec *e) { return e->plan->config.shards > 1; }

/* ---- which part ---------------------------------------------------------------------------------------- */

/* The ranks that share the buckets of a stage, ascending; returns how many. all: [ranks of the world] */
static int stage_ranks(const kolo_exec *e, int stage, int *all)
{
    const kolo_program *program = e->plan->program;
    const int n = e->plan->config.ranks;
    for (int r = 0; r < n; r++) all[r] = program ? kolo_grid_rank(program->grid, stage, r) : r;
    return n;
}

static int stages_of(const kolo_exec *e) { return e->plan->program ? e->plan->program->grid->stages : 1; }
static int own_stage(const kolo_exec *e) { return e->plan->program ? e->plan->program->grid->stage : 0; }

/* Rank of a shard in group `group` of a stage. */
static int rank_of(const kolo_exec *e, int stage, int group, int shard)
{
    return e->shard_rank[(stage * e->shard_groups + group) * e->plan->config.shards + shard];
}

int exec_open_shards(kolo_exec *e)
{
    const kolo_launch *launch = e->comm ? kolo_comm_launch(e->comm) : NULL;
    const int shards = e->plan->config.shards;
    if (!exec_is_sharded(e) || (!launch && !e->plan->config.optimizer)) return 0;
    if (!launch) return kolo_fail(KOLO_EINTERNAL, "executor: shard= without a communicator");
    int *all = kolo_alloc((size_t)launch->size * sizeof *all);
    e->shard_rank = kolo_alloc((size_t)stages_of(e) * (size_t)launch->size * sizeof *e->shard_rank);
    int rc = all && e->shard_rank ? 0 : KOLO_ENOMEM;
    for (int s = 0; rc >= 0 && s < stages_of(e); s++) {
        rc = kolo_shard_groups(launch, all, stage_ranks(e, s, all), shards, e->plan->config.shard_groups > 1,
                               e->shard_rank + s * (s ? e->shard_groups : 0) * shards);
        if (rc >= 0) e->shard_groups = rc;
    }
    e->shard = e->shard_group = -1;
    for (int g = 0; rc >= 0 && g < e->shard_groups; g++)
        for (int i = 0; i < shards; i++)
            if (rank_of(e, own_stage(e), g, i) == launch->rank) e->shard = i, e->shard_group = g;
    free(all);
    return rc < 0 ? rc : 0;
}

/* ---- buckets ------------------------------------------------------------------------------------------- */

/* Which shard and group of its stage a rank is. */
static void place_of(const kolo_exec *e, int stage, int rank, int *group, int *shard)
{
    for (int i = 0; i < e->shard_groups * e->plan->config.shards; i++)
        if (e->shard_rank[stage * e->shard_groups * e->plan->config.shards + i] == rank) {
            *group = i / e->plan->config.shards;
            *shard = i % e->plan->config.shards;
        }
}

/* Of a part that several groups have, what one of them sums. */
static kolo_part share_of(const kolo_exec *e, const kolo_part *part, int group)
{
    const int64_t begin = part->count * group / e->shard_groups,
                  end = part->count * (group + 1) / e->shard_groups;
    return (kolo_part){part->first + begin, end - begin, part->at + begin};
}

typedef struct cut {
    int *rank, *owner;     /* members; those that own parts, in comm's order */
    int64_t *first, *size; /* of theirs */
} cut;

static int cut_open(cut *c, const kolo_exec *e)
{
    const size_t n = (size_t)kolo_comm_launch(e->comm)->size;
    *c = (cut){kolo_alloc(n * sizeof *c->rank), kolo_alloc(n * sizeof *c->owner),
               kolo_alloc(n * sizeof *c->first), kolo_alloc(n * sizeof *c->size)};
    return c->rank && c->owner && c->first && c->size ? 0 : KOLO_ENOMEM;
}

static void cut_close(cut *c)
{
    free(c->rank);
    free(c->owner);
    free(c->first);
    free(c->size);
}

enum share { SHARE_SUM, SHARE_GROUPS, SHARE_UNIT };

/* A bucket of the members of `c` over a unit (SHARE_GROUPS: over a shard's part of it) at byte `offset` of
 * comm's memory; its number. */
static int declare_cut(kolo_exec *e, cut *c, int members, int stage, int unit, enum share what, int shard,
                       size_t offset)
{
    const kolo_plan *p = e->plan->program ? e->plan->program->plan[stage] : e->plan;
    const kolo_part *of = kolo_plan_part(p, unit, shard);
    const int64_t begin = what == SHARE_GROUPS ? of->first : p->unit[unit].param,
                  count = what == SHARE_GROUPS ? of->count : p->unit[unit].params;
    const int owners = kolo_comm_owners(kolo_comm_launch(e->comm), c->rank, members, c->owner);
    KOLO_TRY(owners);
    for (int i = 0; i < owners; i++) {
        int g = 0, s = 0;
        place_of(e, stage, c->owner[i], &g, &s);
        kolo_part part = *kolo_plan_part(p, unit, s);
        if (what != SHARE_UNIT) part = share_of(e, &part, g);
        c->first[i] = part.first - begin;
        c->size[i] = part.count;
    }
    const int group = kolo_comm_group(e->comm, c->rank, members);
    KOLO_TRY(group);
    return kolo_comm_bucket_cut(e->comm, group, what == SHARE_SUM ? KOLO_REDUCE_SCATTER : KOLO_ALLGATHER,
                                offset, count, c->first, c->size);
}

static int ascending(const void *a, const void *b) { return *(const int *)a - *(const int *)b; }

/* Sums of a bucket of parameters: to all parts, and where groups have copies, from those that each has formed
 * of a part to the other groups. own: this rank's stage. */
static int declare_sums(kolo_exec *e, cut *c, const kolo_plan *p, int stage, int bucket, size_t offset)
{
    const bool own = stage == own_stage(e);
    const int unit = p->bucket[bucket].unit,
              number = declare_cut(e, c, stage_ranks(e, stage, c->rank), stage, unit, SHARE_SUM, 0, offset);
    KOLO_TRY(number);
    if (own) e->bucket_number[bucket] = number;
    for (int s = 0; s < p->config.shards && e->shard_groups > 1; s++) {
        for (int g = 0; g < e->shard_groups; g++) c->rank[g] = rank_of(e, stage, g, s);
        qsort(c->rank, (size_t)e->shard_groups, sizeof *c->rank, ascending);
        const size_t at = (size_t)(kolo_plan_part(p, unit, s)->first - p->unit[unit].param) * sizeof(float);
        const int shared = declare_cut(e, c, e->shard_groups, stage, unit, SHARE_GROUPS, s, offset + at);
        KOLO_TRY(shared);
        if (own && s == e->shard) e->share_number[bucket] = shared;
    }
    return 0;
}

static int declare_units(kolo_exec *e, cut *c, const kolo_plan *p, int stage, size_t front)
{
    for (int u = 0; u < p->units; u++) {
        const size_t at =
            front + kolo_plan_gather_base(p) +
            (kolo_plan_shards(p, KOLO_shard_parameters) ? p->unit[u].gathered
                                                        : (size_t)p->unit[u].param * sizeof(float));
        for (int g = 0; g < e->shard_groups; g++) {
            for (int s = 0; s < p->config.shards; s++) c->rank[s] = rank_of(e, stage, g, s);
            int members = p->config.shards;
            if (e->shard_groups == 1) members = stage_ranks(e, stage, c->rank);
            qsort(c->rank, (size_t)members, sizeof *c->rank, ascending);
            const int number = declare_cut(e, c, members, stage, u, SHARE_UNIT, 0, at);
            KOLO_TRY(number);
            if (stage == own_stage(e) && (g == e->shard_group || e->shard_groups == 1))
                e->unit_number[u] = number;
        }
    }
    return 0;
}

/* All that stage `stage` scatters and gathers; buckets of parameters only. */
int exec_declare_shards(kolo_exec *e, int stage)
{
    const kolo_plan *p = e->plan->program ? e->plan->program->plan[stage] : e->plan;
    const size_t front = e->plan->program ? e->plan->program->sum_bytes : 0;
    cut c;
    if (!p->config.optimizer && !kolo_plan_shards(p, KOLO_shard_parameters)) return 0;
    int rc = cut_open(&c, e);
    if (!e->unit_number) {
        e->unit_number = kolo_alloc((size_t)(e->plan->units + 1) * sizeof *e->unit_number);
        e->share_number = kolo_alloc((size_t)(e->plan->buckets + 1) * sizeof *e->share_number);
        if (!e->unit_number || !e->share_number) rc = KOLO_ENOMEM;
    }
    for (int b = 0; rc == 0 && p->config.optimizer && b < p->buckets; b++) {
        if (p->bucket[b].params == 0) continue;
        const int level = kolo_plan_shards(p, KOLO_shard_gradients) ? KOLO_WINDOW : 0;
        rc = declare_sums(e, &c, p, stage, b, front + kolo_plan_level(p, p->bucket[b].offset, level).offset);
    }
    if (rc == 0) rc = declare_units(e, &c, p, stage, front);
    cut_close(&c);
    return rc < 0 ? rc : 0;
}

/* ---- in a step ----------------------------------------------------------------------------------------- */

static const kolo_part *own_part(const kolo_exec *e, int unit)
{
    static const kolo_part none;
    return e->shard < 0 ? &none : kolo_plan_part(e->plan, unit, e->shard);
}

/* Where this rank stores an element of a unit that is in its part; without shards all are. */
int64_t exec_stored_at(const kolo_exec *e, int unit, int64_t element)
{
    if (!exec_is_sharded(e)) return element;
    const kolo_part *part = own_part(e, unit);
    return part->at + element - part->first;
}

/* What of elements [*from, *to) of a unit is this rank's. */
void exec_own_range(const kolo_exec *e, int unit, int64_t *from, int64_t *to)
{
    if (!exec_is_sharded(e)) return;
    const kolo_part *part = own_part(e, unit);
    if (*from < part->first) *from = part->first;
    if (*to > part->first + part->count) *to = part->first + part->count;
}

int exec_wait_sum(kolo_exec *e, int bucket)
{
    KOLO_TRY(exec_await_ranks(e, exec_sum_number(e, bucket, e->applied_version)));
    if (!exec_is_sharded(e) || e->shard_groups == 1 || e->plan->bucket[bucket].params == 0 || e->shard < 0)
        return 0;
    KOLO_TRY(kolo_comm_start(e->comm, e->share_number[bucket]));
    return exec_await_ranks(e, e->share_number[bucket]);
}

/* Updates and norms expect zeros between tensors, where a window has what stood there before. */
int exec_clear_gaps(kolo_exec *e, int bucket)
{
    const kolo_plan *p = e->plan;
    const kolo_bucket *b = &p->bucket[bucket];
    for (int t = 0; t < p->graph->tensors; t++) {
        const kolo_binding *h = &p->fixed[t];
        if (h->arena != KOLO_ARENA_GRADIENT || h->offset < b->offset ||
            h->offset >= b->offset + (size_t)b->count * sizeof(float))
            continue;
        const size_t end = h->offset + p->layout[t].bytes,
                     all = (size_t)kolo_plan_gradient_count(p, t) * sizeof(float);
        if (all <= p->layout[t].bytes) continue;
        KOLO_TRY(
            kolo_backend_fill(e->backend, KOLO_LANE_COMPUTE,
                              e->arena[KOLO_ARENA_GRADIENT] + kolo_plan_level(p, end, KOLO_WINDOW).offset, 0,
                              all - p->layout[t].bytes));
    }
    return 0;
}

int exec_collect(kolo_exec *e, int bucket)
{
    const kolo_plan *p = e->plan;
    const kolo_part *part = own_part(e, p->bucket[bucket].unit);
    const size_t at = p->reduced_front + (size_t)part->first * sizeof(float);
    if (part->count == 0) return 0;
    return kolo_backend_copy(e->backend, KOLO_LANE_COMPUTE,
                             e->arena[KOLO_ARENA_SUM] + (size_t)part->at * sizeof(float),
                             e->arena[KOLO_ARENA_GRADIENT] + kolo_plan_level(p, at, KOLO_WINDOW).offset,
                             (size_t)part->count * sizeof(float));
}

int exec_gather(kolo_exec *e, int unit)
{
    const kolo_unit *u = &e->plan->unit[unit];
    const kolo_part *part = own_part(e, unit);
    if (part->count > 0 && kolo_plan_shards(e->plan, KOLO_shard_parameters))
        KOLO_TRY(kolo_backend_copy(e->backend, KOLO_LANE_COMPUTE,
                                   e->arena[KOLO_ARENA_GATHERED] + u->gathered +
                                       (size_t)(part->first - u->param) * sizeof(float),
                                   e->arena[KOLO_ARENA_PARAM] + (size_t)part->at * sizeof(float),
                                   (size_t)part->count * sizeof(float)));
    return kolo_comm_start(e->comm, e->unit_number[unit]);
}

int exec_gathered(kolo_exec *e, int unit)
{
    const kolo_unit *u = &e->plan->unit[unit];
    const bool windows = kolo_plan_shards(e->plan, KOLO_shard_parameters);
    const size_t at = windows ? u->gathered : (size_t)u->param * sizeof(float);
    KOLO_TRY(exec_await_ranks(e, e->unit_number[unit]));
    if (!e->arena[KOLO_ARENA_SHADOW]) return 0;
    const char *from = e->arena[windows ? KOLO_ARENA_GATHERED : KOLO_ARENA_PARAM] + at;
    return kolo_backend_narrow(e->backend, e->arena[KOLO_ARENA_SHADOW] + at / 2, e->plan->graph->dtype,
                               (const float *)(const void *)from, u->params);
}

/* ---- averages ------------------------------------------------------------------------------------------ */

/* Bytes change places, by way of scratch. */
static int swap(kolo_exec *e, char *a, char *b, char *scratch, size_t bytes)
{
    if (bytes == 0) return 0;
    KOLO_TRY(kolo_backend_copy(e->backend, KOLO_LANE_COMPUTE, scratch, a, bytes));
    KOLO_TRY(kolo_backend_copy(e->backend, KOLO_LANE_COMPUTE, a, b, bytes));
    return kolo_backend_copy(e->backend, KOLO_LANE_COMPUTE, b, scratch, bytes);
}

/* What is not in a unit: in PARAM, and behind what is stored. */
static size_t rest_bytes(const kolo_plan *p)
{
    return p->param_bytes - (size_t)kolo_plan_rest(p) * sizeof(float);
}

static char *param_rest(const kolo_exec *e)
{
    return e->arena[KOLO_ARENA_PARAM] + e->plan->arena_bytes[KOLO_ARENA_PARAM] - rest_bytes(e->plan);
}

static char *stored_param(const kolo_exec *e, const kolo_part *part)
{
    const int64_t at = kolo_plan_shards(e->plan, KOLO_shard_parameters) ? part->at : part->first;
    return e->arena[KOLO_ARENA_PARAM] + (size_t)at * sizeof(float);
}

/* Gradients are no longer needed between steps; parameters without one are few. */
static int swap_rest(kolo_exec *e, char *average)
{
    const size_t bytes = rest_bytes(e->plan);
    if (bytes == 0) return 0;
    char *scratch = kolo_backend_alloc(e->backend, bytes);
    if (!scratch) return kolo_error_status();
    int rc = swap(e, param_rest(e), average + kolo_plan_stored_bytes(e->plan) - bytes, scratch, bytes);
    if (rc >= 0) rc = kolo_backend_finish(e->backend);
    kolo_backend_free(e->backend, (void **)&scratch, bytes);
    return rc;
}

int exec_show_averages(kolo_exec *e, bool averages)
{
    const kolo_plan *p = e->plan;
    if (!exec_is_sharded(e) || !e->arena[KOLO_ARENA_EMA] || !p->config.optimizer || e->swapped == averages)
        return 0;
    e->swapped = averages;
    const bool apart = kolo_plan_shards(p, KOLO_shard_gradients);
    char *average = e->arena[KOLO_ARENA_EMA],
         *scratch = apart ? e->arena[KOLO_ARENA_SUM] : e->arena[KOLO_ARENA_GRADIENT] + p->reduced_front;
    for (int u = 0; u < p->units; u++) {
        const kolo_part *part = own_part(e, u);
        KOLO_TRY(swap(e, stored_param(e, part), average + (size_t)part->at * sizeof(float),
                      scratch + (size_t)(apart ? part->at : part->first) * sizeof(float),
                      (size_t)part->count * sizeof(float)));
    }
    KOLO_TRY(swap_rest(e, average));
    e->changes++;
    if (kolo_plan_shards(p, KOLO_shard_parameters)) return 0;
    for (int u = 0; u < p->units; u++) KOLO_TRY(kolo_comm_start(e->comm, e->unit_number[u]));
    for (int u = 0; u < p->units; u++) KOLO_TRY(kolo_comm_wait(e->comm, e->unit_number[u]));
    return 0;
}

/* The average of the parameters begins as they are. */
int exec_begin_averages(kolo_exec *e)
{
    char *average = e->arena[KOLO_ARENA_EMA];
    const size_t rest = rest_bytes(e->plan);
    for (int u = 0; u < e->plan->units; u++) {
        const kolo_part *part = own_part(e, u);
        if (part->count > 0)
            KOLO_TRY(kolo_backend_copy(e->backend, KOLO_LANE_COMPUTE,
                                       average + (size_t)part->at * sizeof(float), stored_param(e, part),
                                       (size_t)part->count * sizeof(float)));
    }
    if (rest == 0) return 0;
    return kolo_backend_copy(e->backend, KOLO_LANE_COMPUTE, average + kolo_plan_stored_bytes(e->plan) - rest,
                             param_rest(e), rest);
}

/* ---- tensors ------------------------------------------------------------------------------------------- */

/* A number for every parameter, in parts: where this rank has them. */
typedef struct sharded {
    char *base;
    bool stored; /* its parts alone, one behind the other; else all, of which its parts count */
} sharded;

/* false: `which` of the tensor is whole on every rank of its stage. */
static bool find_sharded(const kolo_exec *e, const char *which, int tensor, sharded *found)
{
    const kolo_plan *p = e->plan;
    if (!exec_is_sharded(e) || tensor < 0 || tensor >= p->graph->tensors) return false;
    if (p->graph->tensor[tensor].role != KOLO_ROLE_PARAM) return false;
    if (!strcmp(which, "param")) {
        *found = (sharded){e->arena[KOLO_ARENA_PARAM], true};
        return kolo_plan_shards(p, KOLO_shard_parameters);
    }
    if (!strcmp(which, "ema")) {
        *found = (sharded){e->arena[KOLO_ARENA_EMA], true};
        return found->base != NULL;
    }
    for (int k = 0; k < kolo_plan_states(p); k++)
        if (!strcmp(which, kolo_plan_state_name(p, k))) {
            *found = (sharded){e->arena[KOLO_ARENA_STATE] + (size_t)k * kolo_plan_state_bytes(p), true};
            return true;
        }
    *found = kolo_plan_shards(p, KOLO_shard_gradients)
                 ? (sharded){e->arena[KOLO_ARENA_SUM], true}
                 : (sharded){e->arena[KOLO_ARENA_GRADIENT] + p->reduced_front, false};
    return !strcmp(which, "gradient") && p->graph->grad && p->graph->grad[tensor] >= 0;
}

/* What of a tensor one shard has. */
typedef struct tensor_piece {
    size_t offset, bytes; /* in the tensor as it is laid out */
    int64_t first, at;    /* its first element, and where the shard stores it */
} tensor_piece;

static tensor_piece piece_of(const kolo_plan *p, int tensor, int shard)
{
    const int64_t begin = (int64_t)(p->fixed[tensor].offset / sizeof(float)),
                  count = (int64_t)(p->layout[tensor].bytes / sizeof(float)), rest = kolo_plan_rest(p);
    if (begin >= rest) /* every rank has it: the first shard's counts */
        return (tensor_piece){0, shard == 0 ? p->layout[tensor].bytes : 0, begin,
                              (int64_t)(kolo_plan_stored_bytes(p) / sizeof(float)) -
                                  (int64_t)(p->param_bytes / sizeof(float)) + begin};
    int u = 0;
    while (begin >= p->unit[u].param + p->unit[u].params) u++;
    const kolo_part *part = kolo_plan_part(p, u, shard);
    const int64_t from = begin > part->first ? begin : part->first,
                  end = begin + count < part->first + part->count ? begin + count : part->first + part->count;
    if (from >= end) return (tensor_piece){0};
    return (tensor_piece){(size_t)(from - begin) * sizeof(float), (size_t)(end - from) * sizeof(float), from,
                          part->at + from - part->first};
}

static char *piece_place(const sharded *what, const tensor_piece *piece)
{
    return what->base + (size_t)(what->stored ? piece->at : piece->first) * sizeof(float);
}

/* What a rank needs of memory to send its part of a tensor that others want. */
enum { TRAVEL = 1 << 20 };

/* Collective: the tensor as it is laid out comes to the ranks that want it whole; `memory` of others has
 * TRAVEL bytes, for what they send. */
static int bring_together(kolo_exec *e, const sharded *what, const kolo_plan *p, int stage, int tensor,
                          char *memory, bool whole)
{
    const int me = kolo_comm_launch(e->comm)->rank;
    for (int s = 0; s < p->config.shards; s++) {
        const tensor_piece piece = piece_of(p, tensor, s);
        const int owner = rank_of(e, stage, 0, s);
        for (size_t done = 0; done < piece.bytes; done += TRAVEL) {
            const size_t left = piece.bytes - done, bytes = left < TRAVEL ? left : TRAVEL;
            char *to = memory + (whole ? piece.offset + done : 0);
            if (owner == me)
                KOLO_TRY(kolo_backend_read(e->backend, to, piece_place(what, &piece) + done, bytes));
            KOLO_TRY(kolo_comm_broadcast(e->comm, whole || owner == me ? to : NULL, bytes, owner));
        }
    }
    return 0;
}

/* 1: done. 0: it is no sharded one. Collective. */
int exec_get_sharded(kolo_exec *e, const char *which, int tensor, float *values)
{
    sharded what;
    if (!strcmp(which, "activation")) return 0;
    KOLO_TRY(exec_show_averages(e, false));
    if (!find_sharded(e, which, tensor, &what)) return 0;
    const kolo_plan *p = kolo_program_owner(e->plan, tensor);
    const kolo_placement *placement = e->plan->config.placement;
    const int stage = placement ? kolo_placement_stage(placement, placement->owner[tensor]) : 0;
    const bool whole = values != NULL;
    const size_t bytes = p->layout[tensor].bytes;
    char *memory = kolo_alloc(whole || bytes < TRAVEL ? bytes : TRAVEL);
    int rc = memory ? bring_together(e, &what, p, stage, tensor, memory, whole) : KOLO_ENOMEM;
    if (rc >= 0 && whole)
        rc = kolo_backend_to_canonical(e->backend, &p->graph->tensor[tensor], &p->layout[tensor], memory,
                                       values);
    free(memory);
    return rc < 0 ? rc : 1;
}

/* Likewise, of this rank's stage: what is its part. Not collective. */
/* 0 bytes: this rank has nothing of it. */
static tensor_piece own_piece(const kolo_exec *e, int tensor)
{
    const kolo_plan *p = e->plan;
    const bool rest = (int64_t)(p->fixed[tensor].offset / sizeof(float)) >= kolo_plan_rest(p);
    if (!rest && e->shard < 0) return (tensor_piece){0};
    return piece_of(p, tensor, rest ? 0 : e->shard);
}

bool exec_stores(const kolo_exec *e, const char *which, int tensor)
{
    sharded what;
    return !find_sharded(e, which, tensor, &what) || own_piece(e, tensor).bytes > 0;
}

int exec_set_sharded(kolo_exec *e, const char *which, int tensor, const float *values)
{
    sharded what;
    const kolo_plan *p = e->plan;
    if (!strcmp(which, "activation")) return 0;
    KOLO_TRY(exec_show_averages(e, false));
    if (!find_sharded(e, which, tensor, &what)) return 0;
    const tensor_piece piece = own_piece(e, tensor);
    if (piece.bytes == 0) return 1;
    char *whole = kolo_alloc(p->layout[tensor].bytes);
    int rc = whole ? kolo_backend_from_canonical(e->backend, &p->graph->tensor[tensor], &p->layout[tensor],
                                                 values, whole)
                   : KOLO_ENOMEM;
    if (rc >= 0)
        rc = kolo_backend_write(e->backend, piece_place(&what, &piece), whole + piece.offset, piece.bytes);
    exec_evict_pages(e, piece_place(&what, &piece), piece.bytes);
    free(whole);
    return rc < 0 ? rc : 1;
}
