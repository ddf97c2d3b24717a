/* What a program sends, to comm: every rank declares the buckets and transfers of all, in one order. */
#include <stdlib.h>
#include <string.h>

#include "base/memory.h"
#include "exec/parts.h"
#include "plan/shard.h"
#include "kolo/error.h"

/* Of a plan, over the ranks of a group that share it. own: it is this rank's. */
static int declare_buckets(kolo_exec *e, const kolo_plan *p, int group, bool own, int version)
{
    const size_t late = version ? kolo_plan_late_base(p) + (size_t)(version - 1) * kolo_plan_version_bytes(p)
                                : 0,
                 front = e->plan->program ? e->plan->program->sum_bytes : late;
    int64_t *count = kolo_alloc((size_t)(p->graph->tensors + 1) * sizeof *count);
    int number = count ? 0 : KOLO_ENOMEM;
    for (int b = 0; b < p->buckets && p->config.optimizer && number >= 0; b++) {
        const kolo_bucket *k = &p->bucket[b];
        if (k->params > 0 && kolo_plan_shards(p, KOLO_shard_optimizer)) continue; /* shard.c */
        if (p->config.adasum && k->params > 0)
            number = kolo_comm_bucket_adasum(e->comm, group, front + k->offset, count,
                                             kolo_plan_bucket_tensors(p, b, count), p->config.average);
        else number = kolo_comm_bucket_of(e->comm, group, KOLO_ALLREDUCE, front + k->offset, k->count);
        if (own) e->bucket_number[version * p->buckets + b] = number;
    }
    free(count);
    return number < 0 ? number : 0;
}

static int places_of(const kolo_transfer *t) { return t->ring.places ? t->ring.places : 1; }

/* Pairs of a place at one end and one at the other, which a transfer takes in turns. */
static int pairs_of(const kolo_transfer *a, const kolo_transfer *b)
{
    int x = places_of(a), y = places_of(b);
    const int product = x * y;
    while (y) {
        const int rest = x % y;
        x = y;
        y = rest;
    }
    return product / x;
}

int exec_transfer_pairs(const kolo_plan *plan, int transfer)
{
    const int other = plan->program ? kolo_program_match(plan->program, plan->config.stage, transfer) : -1;
    if (other < 0) return 1;
    const kolo_plan *peer = plan->program->plan[plan->transfer[transfer].peer];
    return pairs_of(&plan->transfer[transfer], &peer->transfer[other]);
}

static size_t place_at(const kolo_program *program, const kolo_transfer *t, int pair)
{
    return program->sum_bytes + t->offset + (size_t)(pair % places_of(t)) * t->ring.stride;
}

/* Of one transfer of a stage, from a pair of places: of all replicas. */
static int declare_pair(kolo_exec *e, plan_variant *variant, int stage, int i, int other, int pair)
{
    const kolo_program *program = variant->plan->program;
    const kolo_grid *grid = program->grid;
    const kolo_transfer *from = &program->plan[stage]->transfer[i],
                        *to = &program->plan[from->peer]->transfer[other];
    for (int r = 0; r < grid->replicas; r++) {
        const int number =
            kolo_comm_transfer(e->comm, kolo_grid_rank(grid, stage, r), kolo_grid_rank(grid, from->peer, r),
                               place_at(program, from, pair), place_at(program, to, pair), from->bytes);
        KOLO_TRY(number);
        if (r != grid->replica) continue;
        if (stage == grid->stage) variant->transfer_number[i * variant->transfer_places + pair] = number;
        if (from->peer == grid->stage)
            variant->transfer_number[other * variant->transfer_places + pair] = number;
    }
    return 0;
}

/* What a stage sends in one of the plans, of every replica. */
static int declare_transfers(kolo_exec *e, plan_variant *variant, int stage)
{
    const kolo_program *program = variant->plan->program;
    const kolo_plan *p = program->plan[stage];
    for (int i = 0; i < p->transfers; i++) {
        if (!p->transfer[i].sends) continue;
        const int other = kolo_program_match(program, stage, i);
        const int pairs = pairs_of(&p->transfer[i], &program->plan[p->transfer[i].peer]->transfer[other]);
        for (int pair = 0; pair < pairs; pair++) KOLO_TRY(declare_pair(e, variant, stage, i, other, pair));
    }
    return 0;
}

static int declare_sum(kolo_exec *e, int group, bool mine, const kolo_action *a, int64_t count,
                       int64_t *before)
{
    const int number = kolo_comm_bucket_f64(e->comm, group, 0, count);
    KOLO_TRY(number);
    if (!mine) return 0;
    KOLO_TRY(kolo_grow(&e->sum, before, e->sums, sizeof *e->sum));
    e->sum[e->sums++] = (exec_sum){a->kind, count, number};
    return 0;
}

/* Every length once: which tensor or step it is of does not matter. */
static bool is_first(const kolo_plan *p, int64_t action, int64_t count)
{
    for (int64_t i = 0; i < action; i++)
        if (p->action[i].kind == p->action[action].kind && kolo_plan_sum_count(p, &p->action[i]) == count)
            return false;
    return true;
}

/* Over the replicas of a stage. */
static int declare_stage(kolo_exec *e, int stage, int64_t *capacity)
{
    const kolo_program *program = e->plan->program;
    const kolo_grid *grid = program->grid;
    const kolo_plan *p = program->plan[stage];
    const int group = kolo_comm_group(e->comm, &grid->rank[stage * grid->replicas], grid->replicas);
    KOLO_TRY(group);
    KOLO_TRY(declare_buckets(e, p, group, stage == grid->stage, 0));
    if (exec_is_sharded(e)) KOLO_TRY(exec_declare_shards(e, stage));
    for (int64_t i = 0; i < p->actions; i++) {
        const int64_t count = kolo_plan_sum_count(p, &p->action[i]);
        if (!kolo_plan_meets(p, p->action[i].kind) && count > 0 && is_first(p, i, count))
            KOLO_TRY(declare_sum(e, group, stage == grid->stage, &p->action[i], count, capacity));
    }
    return 0;
}

static int ascending(const void *a, const void *b) { return *(const int *)a - *(const int *)b; }

/* Over the stages of every replica; all ranks, where replicas have parts. */
static int declare_meeting(kolo_exec *e, const kolo_action *a, int64_t *capacity)
{
    const kolo_grid *grid = e->plan->program->grid;
    const int64_t count = kolo_plan_sum_count(e->plan, a);
    if (exec_is_sharded(e)) return declare_sum(e, 0, true, a, count, capacity);
    int *rank = kolo_alloc((size_t)grid->stages * sizeof *rank), rc = rank ? 0 : KOLO_ENOMEM;
    for (int r = 0; rc >= 0 && r < grid->replicas; r++) {
        for (int s = 0; s < grid->stages; s++) rank[s] = kolo_grid_rank(grid, s, r);
        qsort(rank, (size_t)grid->stages, sizeof *rank, ascending);
        const int group = rc = kolo_comm_group(e->comm, rank, grid->stages);
        if (rc >= 0) rc = declare_sum(e, group, r == grid->replica, a, count, capacity);
    }
    free(rank);
    return rc < 0 ? rc : 0;
}

static int declare_meetings(kolo_exec *e, int64_t *capacity)
{
    const kolo_plan *p = e->plan;
    for (int64_t i = 0; i < p->actions; i++)
        if (kolo_plan_meets(p, p->action[i].kind) && kolo_plan_sum_count(p, &p->action[i]) > 0)
            KOLO_TRY(declare_meeting(e, &p->action[i], capacity));
    return 0;
}

static bool exchanges_on_nodes(const kolo_exec *e)
{
    int i = 0;
    while (i < e->variants && e->variant[i].plan->config.exchange != KOLO_EXCHANGE_NODE) i++;
    return i < e->variants;
}

/* The buckets once more, for sets of ranks by themselves. set_of: [ranks]; *own: this rank's. */
static int declare_sets(kolo_exec *e, const int *set_of, int sets, exec_set *own)
{
    const kolo_launch *launch = kolo_comm_launch(e->comm);
    int *all = e->bucket_number, *rank = kolo_alloc((size_t)launch->size * sizeof *rank), rc = 0;
    own->number = kolo_alloc((size_t)(e->plan->buckets + 1) * sizeof *own->number);
    own->rank = kolo_alloc((size_t)launch->size * sizeof *own->rank);
    if (!rank || !own->number || !own->rank) rc = KOLO_ENOMEM;
    for (int n = 0; rc >= 0 && n < sets; n++) {
        int count = 0;
        for (int r = 0; r < launch->size; r++)
            if (set_of[r] == n) rank[count++] = r;
        const bool is_own = set_of[launch->rank] == n;
        if (is_own) {
            memcpy(own->rank, rank, (size_t)count * sizeof *rank);
            own->ranks = count;
            e->bucket_number = own->number;
        }
        rc = kolo_comm_group(e->comm, rank, count);
        if (rc >= 0) rc = declare_buckets(e, e->plan, rc, is_own, 0);
        e->bucket_number = all;
    }
    free(rank);
    return rc < 0 ? rc : 0;
}

/* Of plans in which groups of ranks share a network. */
static int declare_groups(kolo_exec *e)
{
    const kolo_launch *launch = kolo_comm_launch(e->comm);
    const int group = e->plan->config.group;
    if (group <= 1) return 0;
    int *of = kolo_alloc((size_t)launch->size * sizeof *of);
    for (int r = 0; of && r < launch->size; r++) of[r] = kolo_launch_by_node(launch, r) / group;
    const int rc = of ? declare_sets(e, of, launch->size / group, &e->group) : KOLO_ENOMEM;
    free(of);
    return rc;
}

int exec_declare(kolo_exec *e)
{
    const kolo_program *program = e->plan->program;
    const size_t numbers = (size_t)(e->versions * e->plan->buckets + 1);
    e->bucket_number = kolo_alloc(numbers * sizeof *e->bucket_number);
    if (!e->bucket_number) return KOLO_ENOMEM;
    if (e->plan->config.servers) return 0; /* async.c */
    for (int v = e->plan->config.lag ? 1 : 0; !program && v < e->versions; v++)
        KOLO_TRY(declare_buckets(e, e->plan, 0, true, v));
    const kolo_launch *launch = kolo_comm_launch(e->comm);
    if (!program && exchanges_on_nodes(e))
        KOLO_TRY(declare_sets(e, launch->node_of, launch->nodes, &e->node));
    if (!program) KOLO_TRY(declare_groups(e));
    if (!program && e->plan->config.pairs) KOLO_TRY(exec_declare_pairs(e));
    if (!program) return exec_is_sharded(e) ? exec_declare_shards(e, 0) : 0;
    int64_t capacity = 0;
    for (int s = 0; s < program->grid->stages; s++) KOLO_TRY(declare_stage(e, s, &capacity));
    KOLO_TRY(declare_meetings(e, &capacity));
    for (int i = 0; i < e->variants; i++)
        for (int s = 0; s < program->grid->stages; s++) KOLO_TRY(declare_transfers(e, &e->variant[i], s));
    return 0;
}
