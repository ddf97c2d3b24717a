/* Memory: a job that cannot fit is refused, with the shortfall and the knob to turn. First by what no plan
 * of its graphs can do without, before anything is timed; then by the plans themselves, to the byte,
 * before any arena is allocated. */
#include <stdio.h>
#include <string.h>

#include "base/log.h"
#include "base/memory.h"
#include "kolo/error.h"
#include "plan/servers.h"
#include "plan/shard.h"
#include "train/async.h"
#include "train/compression.h"
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

/* Where it computes, of a rank of a stage: its arenas. */
static size_t arena_bytes(const kolo_session *s, int stage)
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
    need n = {arena_bytes(s, s->grid.stage), s->plan->arena_bytes, false};
    for (int k = 0; s->elsewhere && k < s->grid.stages; k++)
        if (arena_bytes(s, k) > n.bytes) n.bytes = arena_bytes(s, k);
    return n;
}

/* On the host of one rank, beside its plan and its process. */
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

static const char in_place_text[] =
    "a copy of what is saved does not fit: training waits while a checkpoint is written";

/* What a rank has beside arenas for ranks that differ: `sums` while it sums over nodes, `carried` once more
 * while a checkpoint is written, of `parts` ranks (rank_state.h). */
typedef struct apart {
    size_t sums, carried;
    int parts;
} apart;

static apart apart_of(const kolo_session *s, const kolo_plan *plan)
{
    const size_t *arena = plan->arena_bytes;
    const kolo_plan_config *c = &plan->config;
    apart a = {.parts = s->replicas};
    if (!(s->parts & KOLO_SESSION_TRAIN) || !c->optimizer) return a;
    if (kolo_compression_bytes(s, plan, &a.sums, &a.carried) < 0) a.sums = a.carried = 0; /* said later */
    if (s->comm) a.sums = kolo_comm_own_bytes(s->comm);
    if (c->adasum || c->local) a.carried = arena[KOLO_ARENA_STATE];
    if (c->local) a.carried += arena[KOLO_ARENA_PARAM] + arena[KOLO_ARENA_BUFFER];
    if (c->late) a.carried = arena[KOLO_ARENA_LATE], a.parts = 1;
    for (int k = 0; s->program && c->adasum && k < s->grid.stages; k++) /* rank 0 has a replica's */
        a.carried = (k ? a.carried : 0) + s->program->plan[k]->arena_bytes[KOLO_ARENA_STATE];
    return a;
}

static size_t apart_bytes(const kolo_session *s, const kolo_plan *plan)
{
    const apart a = apart_of(s, plan);
    return a.sums + a.carried;
}

/* What rank 0 copies for a checkpoint, its own and what others carry, and writes it by, unless that is
 * written in place. */
static size_t copy_bytes(const kolo_session *s)
{
    const size_t *arena = s->plan->arena_bytes;
    if (kolo_checkpoint_in_place(s->plan) || !(s->parts & KOLO_SESSION_TRAIN)) return 0;
    const apart a = apart_of(s, s->plan);
    return arena[KOLO_ARENA_PARAM] + arena[KOLO_ARENA_BUFFER] + arena[KOLO_ARENA_STATE] +
           arena[KOLO_ARENA_EMA] + a.carried * (size_t)(a.parts - 1) + kolo_checkpoint_scratch(0, false) -
           kolo_checkpoint_scratch(0, true);
}

/* Elements of the largest tensor of a rank as files have it: of one in parts (slabs) the whole. */
static int64_t largest_whole(const kolo_plan *plan)
{
    const kolo_graph *g = plan->graph;
    int64_t most = kolo_plan_largest(plan);
    for (int t = 0; t < g->tensors; t++) {
        char name[256];
        if (!g->tensor[t].slab.runs || !kolo_plan_owns(plan, t)) continue;
        const kolo_tensor whole = kolo_tensor_whole(&g->tensor[t], name);
        if (kolo_tensor_count(&whole) > most) most = kolo_tensor_count(&whole);
    }
    return most;
}

/* What a rank takes for initial values, and to read and save tensors of a plan, in canonical order, one at a
 * time; of parts a tensor is brought together as it is laid out, of slabs one is beside the whole. That of
 * initial values and of reading is free again before a step touches its activations. */
static size_t canonical_bytes(const kolo_plan *plan, bool reads, bool saves)
{
    const size_t largest = (size_t)kolo_plan_largest(plan) * sizeof(float),
                 whole = saves ? (size_t)largest_whole(plan) * sizeof(float) : largest;
    const bool parts = kolo_plan_shards(plan, reads ? KOLO_shard_optimizer : KOLO_shard_parameters);
    return (saves ? kolo_checkpoint_scratch(whole, true) : whole) + (parts ? largest : 0) +
           (whole > largest ? largest : 0);
}

/* ---- a process ---- */

/* Beside arenas and batches a process will hold this more than when its data is open: 14 to 24 MB (code that
 * is generated for operations, plans, what steps read of the program), of which 3 to 6 MB are to come when
 * its plans are there (readers, the executor); code of matrix products (7 MB) and what timing left (up to
 * 16 MB of depthwise convolutions) are there then, too. Where ranks meet, comm's segments: 2 MB. And MPI,
 * where it is not started: 13 MB. Measured with 13 networks, by steps of 4 to 64 images. */
static const size_t ahead_of_plans = 24 << 20, behind_plans = 6 << 20, of_comm = 2 << 20, of_mpi = 16 << 20;

/* It is planned for ranks that are not here. */
static bool adds_mpi(const kolo_session *s) { return s->elsewhere && s->ranks > 1 && s->launch->size == 1; }

static size_t held_now(void)
{
    kolo_trim();
    return kolo_memory_shared() + kolo_memory_beside_pages();
}

void session_weigh_process(kolo_session *s, bool planned)
{
    static size_t opened; /* once: plans that were tried before leave some behind */
    const bool other = s->parts & KOLO_SESSION_PLAN_ONLY; /* another process will train */
    if (!opened) opened = held_now();
    size_t bytes = opened + ahead_of_plans;
    if (adds_mpi(s)) bytes += of_mpi;
    if (planned && !other && held_now() + behind_plans > bytes) bytes = held_now() + behind_plans;
    if (s->ranks > 1) bytes += of_comm;
    /* coarse, as pages of libraries come and go: the same plan for the same command */
    bytes = kolo_round_up(bytes, 4 << 20);
    if (bytes > s->process_bytes) s->process_bytes = bytes;
}

/* Of a rank on the host: 0 where the budget is a GPU's. */
size_t session_beside_bytes(const kolo_session *s, const kolo_plan *plan)
{
    const need n = {0, plan->arena_bytes, false};
    if (s->cuda) return 0;
    return host_bytes(s, &n) + s->process_bytes + canonical_bytes(plan, true, true) + apart_bytes(s, plan);
}

size_t session_rank_bytes(const kolo_session *s, int stage)
{
    return arena_bytes(s, stage) + session_beside_bytes(s, s->program ? s->program->plan[stage] : s->plan);
}

/* Of a node: what a rank takes there. */
static size_t on_node(const kolo_session *s, const need *n)
{
    const size_t process = n->bound || s->cuda ? 0 : s->process_bytes + canonical_bytes(s->plan, true, true);
    return host_bytes(s, n) + process + (n->bound ? 0 : apart_bytes(s, s->plan)) + (s->cuda ? 0 : n->bytes);
}

/* All ranks of this node. */
static size_t node_bytes(const kolo_session *s, const need *n)
{
    const kolo_launch *l = s->launch;
    size_t bytes = 0;
    if (!s->program || s->elsewhere || l->size == 1 || s->cuda) return on_node(s, n) * (size_t)l->local_size;
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
    s->unshared_peak = kolo_memory_peak();
}

/* What the first steps touch of the program and, where ranks meet, of comm's segments and MPI. */
static size_t first_steps_bytes(const kolo_session *s) { return s->launch->size > 1 ? 2 << 20 : 1 << 20; }

size_t kolo_session_planned_bytes(const kolo_session *s, bool saves)
{
    need n = need_of_plans(s);
    if (s->plan->config.servers && !s->elsewhere) n.bytes -= kolo_plan_spared(s->plan, s->launch->rank);
    const bool root = s->launch->rank == 0, writes = saves && (root || kolo_checkpoint_in_place(s->plan));
    const apart a = apart_of(s, s->plan);
    const bool holds = root || !(s->plan->config.late || s->program);
    const size_t carried = saves && holds ? a.carried : 0, tensor = canonical_bytes(s->plan, saves, writes);
    const size_t own = writes             ? carried + tensor
                       : carried > tensor ? carried /* a tensor is read at the start, before that */
                                          : tensor;
    const size_t bytes = s->held_bytes + first_steps_bytes(s) + a.sums + own + host_bytes(s, &n) +
                         (s->cuda ? 0 : n.bytes) + (saves && root ? copy_bytes(s) : 0);
    return bytes > s->highest_bytes ? bytes : s->highest_bytes;
}

size_t kolo_session_peak_bytes(const kolo_session *s)
{
    size_t others = kolo_comm_peer_bytes(s->comm);
    if (s->eval_comm) others += kolo_comm_peer_bytes(s->eval_comm);
    const size_t peak = kolo_memory_peak(), own = peak > others ? peak - others : peak;
    /* before it had seen others' memory it may have held more: of plans, of initial values */
    return own > s->unshared_peak ? own : s->unshared_peak;
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
    if (s->cuda)
        return (s->backend ? kolo_backend_memory(s->backend, &source) : s->device.memory_bytes) /
               (size_t)s->gpu_ranks;
    return node_limit(s, &source) / (size_t)s->launch->local_size;
}

/* Memory goes to a copy last: training then goes on while rank 0 writes. */
int session_choose_copy(kolo_session *s)
{
    const char *source = "";
    size_t given;
    const size_t copy = copy_bytes(s);
    if (!copy) return 0;
    KOLO_TRY(session_memory(s, &given));
    const need n = need_of_plans(s);
    const bool here = !s->gpu || s->options->memory_limit > 0;
    s->plan->config.in_place = (given && !s->cuda && session_rank_bytes(s, 0) + copy > given) ||
                               (here && node_bytes(s, &n) + copy > node_limit(s, &source));
    return 0;
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
        "memory=%s: a rank needs %zu bytes, %zu of them beside its plan, %zu bytes short; %slower "
        "micro_batch (now %ld)%s, or use shard= or stages= (kolo plan says what each would need)",
        s->options->memory, bytes, session_beside_bytes(s, s->plan), bytes - limit, cure, (long)s->rows,
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

void kolo_session_report_copy(const kolo_session *s)
{
    if (s->plan->config.in_place) kolo_log0(KOLO_LOG_INFO, "%s", in_place_text);
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

/* What that is made of, beside the plan. */
static void print_beside(const kolo_session *s, const need *n, FILE *file)
{
    const size_t copy = copy_bytes(s);
    fprintf(file,
            "  beside its plan: %zu bytes of batches, %zu of a tensor as files have it, about %zu of the "
            "process (as much as this one has now, %zu MiB that training adds%s)\n",
            host_bytes(s, n), canonical_bytes(s->plan, true, true), s->process_bytes, ahead_of_plans >> 20,
            adds_mpi(s) ? ", MPI" : "");
    const apart a = apart_of(s, s->plan);
    if (a.sums + a.carried)
        fprintf(file,
                "  of its own: %zu bytes for sums between nodes, %zu for a checkpoint's copy of its state\n",
                a.sums, a.carried);
    if (copy) fprintf(file, "  rank 0, where there is room: %zu bytes, a copy of what it saves\n", copy);
    else if (s->plan->config.in_place) fprintf(file, "  %s\n", in_place_text);
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
    if (!s->gpu || s->options->memory_limit > 0) {
        fprintf(file, "memory of a rank: %zu bytes (%.2f GiB) of its node; %s allows %.2f GiB\n", bytes,
                (double)bytes / 0x1p30, source, (double)limit / 0x1p30);
        if (!s->cuda) print_beside(s, &n, file);
    }
    fflush(file); /* before the words of an error */
    if (rc == 0 || s->gpu || !s->elsewhere || s->options->memory_limit > 0 || *s->options->memory) return rc;
    fprintf(file,
            "It does not fit on this machine, but was asked for %d rank%s, which may run on others: %s\n",
            s->ranks, s->ranks > 1 ? "s" : "", kolo_error_text());
    return 0;
}
