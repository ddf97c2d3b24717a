/* Memory: a job that cannot fit is refused, with the shortfall and the knob to turn. First by what no plan
 * of its graphs can do without, before anything is timed; then by the plans themselves, to the byte,
 * before any arena is allocated. */
#include <stdio.h>
#include <string.h>

#include "base/log.h"
#include "base/memory.h"
#include "kolo/error.h"
#include "plan/servers.h"
#include "train/async.h"
#include "train/parts.h"
#include "train/pipeline.h"
#include "train/recompute.h"
#include "train/shard.h"

/* What a rank needs where it computes. */
typedef struct need {
    size_t bytes;
    const size_t *arena; /* [KOLO_ARENAS] of its plan */
    bool bound;          /* a lower bound */
} need;

/* Of a rank of a stage. */
size_t session_rank_bytes(const kolo_session *s, int stage)
{
    const kolo_plan *plan = s->program ? s->program->plan[stage] : s->plan,
                    *evaluation = s->eval_program ? s->eval_program->plan[stage] : s->eval_plan;
    const size_t sums =
        (s->program ? s->program->sum_bytes : 0) + (s->eval_program ? s->eval_program->sum_bytes : 0);
    return sums + kolo_exec_bytes(plan, NULL) + (evaluation ? kolo_exec_bytes(evaluation, plan) : 0);
}

/* Planned for other machines: the largest rank's. */
static need need_of_plans(const kolo_session *s)
{
    need n = {session_rank_bytes(s, s->grid.stage), s->plan->arena_bytes, false};
    for (int k = 0; s->elsewhere && k < s->grid.stages; k++)
        if (session_rank_bytes(s, k) > n.bytes) n.bytes = session_rank_bytes(s, k);
    return n;
}

/* On the host of one rank, beside what computes. */
static size_t host_bytes(const kolo_session *s, const need *n)
{
    const kolo_options *o = s->options;
    const int workers = kolo_session_workers(s);
    int64_t pixels = 0; /* of a batch, in the phase with most */
    for (int i = 0; i < s->phases; i++) {
        const int64_t side = s->phase[i].sides.high,
                      all = s->phase[i].batch / workers * (side ? side * side : s->height * s->width);
        if (all > pixels) pixels = all;
    }
    if (session_loads_parts(s)) pixels = (pixels + s->across - 1) / s->across;
    size_t bytes = (size_t)(o->prefetch + 1) * (size_t)(pixels * o->channels);
    if (s->tournament) /* a loader of its own, and pieces of as many rows as an evaluation's */
        bytes += (size_t)(o->prefetch + 1) * (size_t)(s->eval_rows * s->height * s->width * o->channels);
    if (s->cuda && !n->bound) bytes += n->arena[KOLO_ARENA_OFFLOADED];
    if (s->cuda && s->launch->size > 1 && (s->gpu_ranks > 1 || !strcmp(o->reducer, "staged")))
        bytes += n->arena[KOLO_ARENA_GRADIENT];
    return bytes;
}

/* Of a plan that has not been made yet all of the GPU's memory is the limit; what is free of it is asked
 * when there is a backend. */
static int check_gpu(kolo_session *s, const need *n)
{
    const char *source = s->device.name;
    size_t limit = s->device.memory_bytes;
    if (!n->bound) limit = s->device_bytes = kolo_backend_memory(s->backend, &source);
    const size_t bytes = n->bytes * (size_t)s->gpu_ranks;
    if (bytes <= limit) return 0;
    return kolo_fail(KOLO_ECONFIG,
                     "%s%s%s%s: the plan needs %s%zu bytes (%.2f GiB), %zu are %s, %zu bytes short; lower "
                     "micro_batch (now %ld)%s%s",
                     s->gpu ? "" : "node ", s->gpu ? "" : s->launch->host, s->gpu ? "" : ", ", source,
                     n->bound ? "at least " : "", bytes, (double)bytes / 0x1p30, limit,
                     n->bound || s->gpu ? "there" : "free", bytes - limit, (long)s->rows,
                     session_dtype(s) == KOLO_F32 ? ", use precision=bf16" : "",
                     s->gpu_ranks > 1 ? ", or start one rank a GPU" : "");
}

/* Stages and shards write their part of a checkpoint from where it is; else rank 0 does, from a copy. */
static bool saves_together(const kolo_session *s)
{
    return s->program || s->shards > 1 || session_offloads(s->options);
}

/* What rank 0 copies for a checkpoint. */
static size_t snapshot_bytes(const kolo_session *s, const need *n)
{
    const size_t *arena = n->arena;
    if (saves_together(s) || !(s->parts & KOLO_SESSION_TRAIN)) return 0;
    return arena[KOLO_ARENA_PARAM] + arena[KOLO_ARENA_BUFFER] + arena[KOLO_ARENA_STATE] +
           arena[KOLO_ARENA_EMA];
}

/* All ranks of this node. */
static size_t node_bytes(const kolo_session *s, const need *n)
{
    const kolo_launch *l = s->launch;
    size_t bytes = host_bytes(s, n) * (size_t)l->local_size + (l->rank == 0 ? snapshot_bytes(s, n) : 0);
    if (s->cuda) return bytes;
    if (!s->program || s->elsewhere || l->size == 1) return bytes + n->bytes * (size_t)l->local_size;
    for (int r = 0; r < l->size; r++)
        if (l->node_of[r] == l->node) bytes += session_rank_bytes(s, kolo_grid_stage(&s->grid, r));
    return bytes;
}

static size_t node_limit(const kolo_session *s, const char **source)
{
    if (s->options->memory_limit <= 0) return kolo_memory_limit(source);
    *source = "memory_limit=";
    return (size_t)(s->options->memory_limit * 0x1p30);
}

void kolo_session_settle(kolo_session *s)
{
    kolo_trim(); /* what initial values took is free again, and planned for as canonical_bytes */
    const size_t now = s->shared_bytes + kolo_memory_beside_pages();
    if (now > s->held_bytes) s->held_bytes = now;
}

/* What this rank takes to read and write tensors in canonical order, one at a time; of parts a tensor is
 * brought together as it is laid out. Initial values are gone before the optimizer's state is touched. */
static size_t canonical_bytes(const kolo_session *s, const need *n, bool saves)
{
    const size_t largest = (size_t)kolo_plan_largest(s->plan) * sizeof(float);
    const size_t all = largest * (s->shards > 1 ? 2 : 1);
    const size_t later = session_offloads(s->options) ? 0 : n->arena[KOLO_ARENA_STATE];
    if (!saves) return all > later ? all - later : 0;
    if (s->launch->rank > 0 && !saves_together(s)) return all;
    return kolo_checkpoint_scratch(largest, saves_together(s)) + all - largest;
}

size_t kolo_session_planned_bytes(const kolo_session *s, bool saves)
{
    need n = need_of_plans(s);
    if (s->plan->config.servers && !s->elsewhere) n.bytes -= kolo_plan_spared(s->plan, s->launch->rank);
    const size_t bytes = s->held_bytes + host_bytes(s, &n) + (s->cuda ? 0 : n.bytes) +
                         canonical_bytes(s, &n, saves) +
                         (saves && s->launch->rank == 0 ? snapshot_bytes(s, &n) : 0);
    return bytes > s->highest_bytes ? bytes : s->highest_bytes;
}

size_t kolo_session_peak_bytes(const kolo_session *s)
{
    size_t others = kolo_comm_peer_bytes(s->comm);
    if (s->eval_comm) others += kolo_comm_peer_bytes(s->eval_comm);
    const size_t peak = kolo_memory_peak(), own = peak > others ? peak - others : peak;
    /* before it had seen others' memory it may have held more: where plans were made */
    return own > s->highest_bytes ? own : s->highest_bytes;
}

size_t kolo_session_stage_bytes(const kolo_session *s, int stage) { return session_rank_bytes(s, stage); }

size_t kolo_session_rank_bytes(const kolo_session *s)
{
    size_t most = 0;
    for (int k = 0; k < (s->program ? s->grid.stages : 1); k++)
        if (session_rank_bytes(s, k) > most) most = session_rank_bytes(s, k);
    return most;
}

int kolo_session_memory(const kolo_session *s, size_t *bytes)
{
    KOLO_TRY(session_memory(s, bytes));
    if (*bytes == 0) *bytes = session_rank_limit(s);
    return 0;
}

size_t session_rank_limit(const kolo_session *s)
{
    const char *source = "";
    const need n = need_of_plans(s);
    size_t limit = node_limit(s, &source), beside = node_bytes(s, &n);
    if (s->cuda)
        return (s->backend ? kolo_backend_memory(s->backend, &source) : s->device.memory_bytes) /
               (size_t)s->gpu_ranks;
    for (int r = 0; r < s->launch->local_size; r++) beside -= beside > n.bytes ? n.bytes : 0;
    return limit > beside ? (limit - beside) / (size_t)s->launch->local_size : 0;
}

/* What would bring a rank's bytes down to the limit, or nearer. */
static int recompute_cure(const kolo_session *s, size_t bytes, size_t limit, char *text, size_t size)
{
    const int how = s->options->recompute;
    size_t least;
    KOLO_TRY(session_recompute_least(s, &least));
    if (how == KOLO_recompute_blocks) snprintf(text, size, "recompute=auto may need less, ");
    else if (how != KOLO_recompute_none) snprintf(text, size, "that is the least of recompute=, ");
    else if (least && least <= limit) snprintf(text, size, "use recompute=auto (down to %zu), ", least);
    else if (least && least < bytes) snprintf(text, size, "recompute=all would need %zu, ", least);
    return 0;
}

/* memory=: what a rank of any stage may take. */
static int check_given(const kolo_session *s)
{
    size_t limit;
    const size_t bytes = kolo_session_rank_bytes(s);
    char cure[160] = "";
    KOLO_TRY(session_memory(s, &limit));
    if (!limit || bytes <= limit) return 0;
    KOLO_TRY(recompute_cure(s, bytes, limit, cure, sizeof cure));
    return kolo_fail(
        KOLO_ECONFIG,
        "memory=%s: a rank needs %zu bytes, %zu bytes short; %slower micro_batch (now %ld)%s, or "
        "use shard= or stages= (kolo plan says what each would need)",
        s->options->memory, bytes, bytes - limit, cure, (long)s->rows,
        session_dtype(s) == KOLO_F32 ? ", use precision=bf16" : "");
}

static int memory_check(kolo_session *s, const need *n)
{
    if (!n->bound) KOLO_TRY(check_given(s));
    const char *source = "";
    const size_t limit = node_limit(s, &source), bytes = node_bytes(s, n);
    const int ranks = s->launch->local_size;
    if (s->cuda) KOLO_TRY(check_gpu(s, n));
    if (bytes <= limit || (s->gpu && s->options->memory_limit <= 0)) return 0; /* this is not its node */
    return kolo_fail(
        KOLO_ECONFIG,
        "this node cannot hold the job: %d rank%s%s %.2f GiB, %s allows %.2f GiB, %zu bytes short; %s, or "
        "ask for more memory or nodes",
        ranks, ranks > 1 ? "s need" : " needs", n->bound ? " at least" : "", (double)bytes / 0x1p30, source,
        (double)limit / 0x1p30, bytes - limit,
        s->cuda ? "lower prefetch" : "lower micro_batch, use precision=bf16");
}

int session_check_least(kolo_session *s)
{
    size_t arena[KOLO_ARENAS];
    KOLO_TRY(session_least_arenas(s, arena));
    need n = {.arena = arena, .bound = true};
    for (int a = 0; a < KOLO_ARENAS; a++) n.bytes += arena[a];
    return memory_check(s, &n);
}

int session_check_memory(kolo_session *s)
{
    const need n = need_of_plans(s);
    return memory_check(s, &n);
}

int kolo_session_print_memory(kolo_session *s, void *file)
{
    const char *source = "";
    const need n = need_of_plans(s);
    const size_t limit = node_limit(s, &source), bytes = node_bytes(s, &n);
    const int rc = memory_check(s, &n);
    if (s->cuda)
        fprintf(file, "memory of a rank: %zu bytes (%.2f GiB) on its GPU; %s has %.2f GiB\n", n.bytes,
                (double)n.bytes / 0x1p30, s->device.name, (double)s->device.memory_bytes / 0x1p30);
    if (!s->gpu || s->options->memory_limit > 0)
        fprintf(file, "memory of a rank: %zu bytes (%.2f GiB) of its node; %s allows %.2f GiB\n", bytes,
                (double)bytes / 0x1p30, source, (double)limit / 0x1p30);
    fflush(file); /* before the words of an error */
    if (rc == 0 || s->gpu || !s->elsewhere || s->options->memory_limit > 0 || *s->options->memory) return rc;
    fprintf(file,
            "It does not fit on this machine, but was asked for %d rank%s, which may run on others: %s\n",
            s->ranks, s->ranks > 1 ? "s" : "", kolo_error_text());
    return 0;
}
