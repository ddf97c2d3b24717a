/* Groups and transfers: random programs of buckets of overlapping groups and of transfers, matched on
 * all ranks, which start them in orders of their own and wait for them later; every element of every
 * result is checked. mpiexec -n 2, 3, 4 or 7 comm_groups SEED; `late`: a rank starts nothing of a
 * group, or of a transfer. */
#include "comm_maps.h"

#include "base/thread.h"

enum { GROUPS = 5, BUCKETS = 14, PHASES = 6, LARGEST = 40000, RUNS = 4 };

static const map maps[] = {
    {2, "one node", {0}},
    {2, "1+1", {0, 1}},
    {3, "one node", {0}},
    {3, "2+1", {0, 0, 1}},
    {4, "one node", {0}},
    {4, "2+2", {0, 0, 1, 1}},
    {4, "2+2 cyclic", {0, 1, 0, 1}},
    {4, "1+1+1+1", {0, 1, 2, 3}},
    {7, "one node", {0}},
    {7, "4+3", {0, 0, 0, 0, 1, 1, 1}},
    {7, "cyclic over 4", {0, 1, 2, 3, 0, 1, 2}},
};

/* ---- random numbers, the same on all ranks, or of one ---- */

typedef struct dice {
    uint64_t seed, who, rolled;
} dice;

static int roll(dice *d, int below)
{
    return (int)(kolo_philox(d->seed, d->who, d->rolled++).v[0] % (uint32_t)below);
}

static void shuffle(dice *d, int *list, int n)
{
    for (int i = n - 1; i > 0; i--) {
        const int j = roll(d, i + 1), kept = list[i];
        list[i] = list[j];
        list[j] = kept;
    }
}

/* ---- a program ---- */

typedef struct operation {
    int group; /* -1: a transfer */
    int from, to;
    enum kolo_collective what;
    size_t at, to_at; /* elements of the arena */
    int64_t count;
    int ranks, rank[8]; /* that take part */
    int number, phase;  /* phase: of its last start */
    bool started;
} operation;

typedef struct program {
    kolo_comm *comm;
    int groups, group[GROUPS], ranks[GROUPS], rank[GROUPS][8];
    operation op[BUCKETS];
    size_t elements;
} program;

static bool takes_part(const operation *op)
{
    for (int r = 0; r < op->ranks; r++)
        if (op->rank[r] == rank) return true;
    return false;
}

static void draw_groups(program *p, dice *d)
{
    p->groups = 1 + roll(d, GROUPS);
    for (int g = 0; g < p->groups; g++) {
        p->ranks[g] = 0;
        while (p->ranks[g] == 0)
            for (int r = 0; r < size; r++)
                if (roll(d, 3) > 0) p->rank[g][p->ranks[g]++] = r;
    }
}

static void draw_operation(program *p, operation *op, dice *d)
{
    static const enum kolo_collective kinds[] = {KOLO_ALLREDUCE, KOLO_REDUCE_SCATTER, KOLO_ALLGATHER};
    const int kind = roll(d, 6);
    memset(op, 0, sizeof *op);
    op->count = roll(d, 3) ? 1 + roll(d, LARGEST) : 1 + roll(d, 40);
    op->at = p->elements;
    p->elements += (size_t)op->count;
    if (kind < 3) {
        op->group = roll(d, p->groups);
        op->what = kinds[kind];
        op->ranks = p->ranks[op->group];
        memcpy(op->rank, p->rank[op->group], sizeof op->rank);
        return;
    }
    op->group = -1;
    op->from = roll(d, size);
    op->to = (op->from + 1 + roll(d, size - 1)) % size;
    op->ranks = 2;
    op->rank[0] = op->from;
    op->rank[1] = op->to;
    op->to_at = p->elements;
    p->elements += (size_t)op->count;
}

static int declare(program *p, world *w, bool canonical)
{
    const kolo_comm_config config = {
        .arena_bytes = p->elements * 4, .timeout = 30, .spin = 20, .canonical = canonical};
    KOLO_TRY(kolo_comm_create(&p->comm, &w->launch, &config));
    for (int g = 0; g < p->groups; g++) {
        p->group[g] = kolo_comm_group(p->comm, p->rank[g], p->ranks[g]);
        KOLO_TRY(p->group[g]);
    }
    for (int b = 0; b < BUCKETS; b++) {
        operation *op = &p->op[b];
        op->number = op->group >= 0
                         ? kolo_comm_bucket_of(p->comm, p->group[op->group], op->what, op->at * 4, op->count)
                         : kolo_comm_transfer(p->comm, op->from, op->to, op->at * 4, op->to_at * 4,
                                              (size_t)op->count * 4);
        KOLO_TRY(op->number);
    }
    return kolo_comm_commit(p->comm);
}

/* ---- what is brought, and what must come ---- */

static float value(const operation *op, int of, int64_t i, int phase)
{
    return (float)((i * 7 + of * 131 + op->number * 17 + phase * 29) % 1009);
}

static void bring(const program *p, const operation *op, int phase)
{
    float *arena = kolo_comm_arena(p->comm), *at = arena + op->at;
    int64_t first = 0, count = op->count;
    if (op->group < 0 && op->from != rank) return;
    if (op->what == KOLO_ALLGATHER) {
        for (int64_t i = 0; i < op->count; i++) at[i] = -1;
        kolo_comm_part(p->comm, op->number, rank, &first, &count);
    }
    for (int64_t i = first; i < first + count; i++) at[i] = value(op, rank, i, phase);
}

static float sum_of(const operation *op, int64_t i, int phase)
{
    float sum = 0;
    for (int r = 0; r < op->ranks; r++) sum += value(op, op->rank[r], i, phase);
    return sum;
}

static int64_t wrong_parts(const program *p, const operation *op, const float *at, int phase)
{
    int64_t bad = 0, covered = 0, first, count;
    for (int r = 0; r < op->ranks; r++) {
        if (kolo_comm_part(p->comm, op->number, op->rank[r], &first, &count) < 0) return 1;
        covered += count;
        if (op->what == KOLO_REDUCE_SCATTER && op->rank[r] != rank) continue;
        for (int64_t i = first; i < first + count; i++)
            bad += at[i] !=
                   (op->what == KOLO_ALLGATHER ? value(op, op->rank[r], i, phase) : sum_of(op, i, phase));
    }
    return bad + (covered != op->count);
}

static int64_t wrong_result(const program *p, const operation *op, int phase)
{
    float *arena = kolo_comm_arena(p->comm);
    int64_t bad = 0;
    if (op->group < 0 && op->from == rank) { /* it may be written again */
        for (int64_t i = 0; i < op->count; i++) arena[op->at + (size_t)i] = -2;
        return 0;
    }
    if (op->group >= 0 && op->what != KOLO_ALLREDUCE) return wrong_parts(p, op, arena + op->at, phase);
    for (int64_t i = 0; i < op->count; i++)
        bad += op->group < 0 ? arena[op->to_at + (size_t)i] != value(op, op->from, i, phase)
                             : arena[op->at + (size_t)i] != sum_of(op, i, phase);
    return bad;
}

/* ---- running it ---- */

static int order_key(const program *p, const operation *op)
{
    return op->group >= 0 ? p->group[op->group] : 1000 + op->from * 8 + op->to;
}

/* Orders of one group, or of one pair, stay as they were drawn; all else is each rank's own. */
static void reorder(const program *p, const int *order, dice *mine, int *own)
{
    int key[BUCKETS];
    bool taken[BUCKETS] = {0};
    for (int i = 0; i < BUCKETS; i++) key[i] = order_key(p, &p->op[order[i]]);
    shuffle(mine, key, BUCKETS);
    for (int i = 0; i < BUCKETS; i++) {
        int j = 0;
        while (taken[j] || order_key(p, &p->op[order[j]]) != key[i]) j++;
        taken[j] = true;
        own[i] = order[j];
    }
}

static int64_t wait_for(program *p, operation *op)
{
    if (!op->started) return 0;
    op->started = false;
    return kolo_comm_wait(p->comm, op->number) < 0 ? -1 : wrong_result(p, op, op->phase);
}

static int start(program *p, operation *op, int phase)
{
    op->phase = phase;
    bring(p, op, phase);
    op->started = true;
    return kolo_comm_start(p->comm, op->number);
}

/* All of a phase is started before anything of it is waited for; a quarter only where it is started again. */
static int64_t run_phase(program *p, dice *all, dice *mine, int phase)
{
    int order[BUCKETS], own[BUCKETS];
    int64_t bad = 0, rc;
    for (int b = 0; b < BUCKETS; b++) order[b] = b;
    shuffle(all, order, BUCKETS);
    reorder(p, order, mine, own);
    for (int i = 0; i < BUCKETS; i++) {
        operation *op = &p->op[own[i]];
        if (!takes_part(op)) continue;
        if ((rc = wait_for(p, op)) < 0 || start(p, op, phase) < 0) return -1;
        bad += rc;
        if (roll(mine, 40) == 0) usleep((useconds_t)roll(mine, 2000));
    }
    shuffle(mine, own, BUCKETS);
    for (int i = 0; i < BUCKETS; i++) {
        if (phase < PHASES - 1 && roll(mine, 4) == 0) continue;
        if ((rc = wait_for(p, &p->op[own[i]])) < 0) return rc;
        bad += rc;
    }
    return bad;
}

static int64_t run(const map *m, uint64_t seed, bool canonical)
{
    static program p;
    dice all = {seed, 1000, 0}, mine = {seed, (uint64_t)rank, 0};
    memset(&p, 0, sizeof p);
    draw_groups(&p, &all);
    for (int b = 0; b < BUCKETS; b++) draw_operation(&p, &p.op[b], &all);
    int64_t bad = declare(&p, place(m), canonical) < 0 ? -1 : 0;
    for (int phase = 0; phase < PHASES && bad == 0; phase++) bad = run_phase(&p, &all, &mine, phase);
    if (bad < 0) fprintf(stderr, "# rank %d: %s\n", rank, kolo_error_text());
    kolo_comm_destroy(&p.comm);
    return bad < 0 ? 1000000 : bad;
}

/* ---- a rank that starts nothing ---- */

static void check_late(bool transfer, const map *m)
{
    const kolo_comm_config config = {.arena_bytes = 1 << 20, .timeout = 1, .spin = -1};
    const int last = size - 1, pair[] = {0, last};
    kolo_comm *comm = NULL;
    char want[64];
    int group = 0, number = 0, rc = kolo_comm_create(&comm, &place(m)->launch, &config);
    if (rc == 0 && !transfer) rc = group = kolo_comm_group(comm, pair, 2);
    if (rc >= 0)
        rc = number = transfer ? kolo_comm_transfer(comm, last, 0, 0, 0, 1 << 20)
                               : kolo_comm_bucket_of(comm, group, KOLO_ALLREDUCE, 0, 1 << 18);
    if (rc >= 0) rc = kolo_comm_commit(comm);
    if (rank == last) usleep(6000000);
    const double begin = kolo_time();
    if (rc == 0 && rank == 0) rc = kolo_comm_start(comm, number);
    if (rc == 0 && rank == 0) rc = kolo_comm_wait(comm, number);
    if (rank != 0) usleep(8000000);
    const double seconds = kolo_time() - begin;
    snprintf(want, sizeof want, "rank %d on host n%d", last, m->node_of[last]);
    is_int(rc, KOLO_ELAUNCH, "%s, %s: a rank that starts nothing ends the wait", m->name,
           transfer ? "transfer" : "group");
    ok(strstr(kolo_error_text(), want), "it is named: %s", kolo_error_text());
    ok(seconds > 0.9 && seconds < 5, "within the deadline (%.2f s)", seconds);
    done_testing();
    fflush(stdout);
    usleep(300000); /* mpiexec drops what it has not passed on yet */
    MPI_Abort(MPI_COMM_WORLD, 0);
}

int main(int argc, char **argv)
{
    begin_mpi(&argc, &argv);
    const char *how = argc > 1 ? argv[1] : "1";
    for (size_t i = 0; i < sizeof maps / sizeof *maps; i++) {
        const map *m = &maps[i];
        if (m->size != size) continue;
        if (strncmp(how, "late", 4) == 0) {
            if (argc > 2 && strcmp(argv[2], m->name) == 0) check_late(strcmp(how, "late-transfer") == 0, m);
            continue;
        }
        for (int n = 0; n < RUNS; n++)
            report(run(m, strtoull(how, NULL, 10) * RUNS + (uint64_t)n, n % 2 == 1),
                   n % 2 ? "random groups and transfers, canonical" : "random groups and transfers", m->name);
    }
    MPI_Finalize();
    return rank == 0 ? done_testing() : 0;
}
