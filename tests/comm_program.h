/* Random programs of buckets of overlapping groups and of transfers, matched on all ranks: what they declare,
 * in which order each rank starts and waits, and what must come. For host memory (mpi/comm_groups.c) and a
 * GPU's (cuda/comm_groups.c), which bring their own arenas. */
#ifndef TESTS_COMM_PROGRAM_H
#define TESTS_COMM_PROGRAM_H

#include <stdbool.h>
#include <string.h>

#include "base/philox.h"
#include "comm/buckets/trainer.h"
#include "kolo/comm.h"
#include "kolo/error.h"

enum { PROGRAM_GROUPS = 5, PROGRAM_BUCKETS = 14, PROGRAM_LARGEST = 40000 };

/* ---- random numbers, the same on all ranks, or of one ---- */

typedef struct dice {
    uint64_t seed, who, rolled;
} dice;

static inline int roll(dice *d, int below)
{
    return (int)(kolo_philox(d->seed, d->who, d->rolled++).v[0] % (uint32_t)below);
}

static inline void shuffle(dice *d, int *list, int n)
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
    uint64_t cut;       /* 0: its parts are the library's; else the dice that cut them */
    int number, phase;  /* phase: of its last start */
    bool started;
} operation;

typedef struct program {
    kolo_comm *comm;
    int me, size;
    int groups, group[PROGRAM_GROUPS], ranks[PROGRAM_GROUPS], rank[PROGRAM_GROUPS][8];
    operation op[PROGRAM_BUCKETS];
    size_t elements;
} program;

static inline bool takes_part(const program *p, const operation *op)
{
    for (int r = 0; r < op->ranks; r++)
        if (op->rank[r] == p->me) return true;
    return false;
}

static inline void draw_groups(program *p, dice *d)
{
    p->groups = 1 + roll(d, PROGRAM_GROUPS);
    for (int g = 0; g < p->groups; g++) {
        p->ranks[g] = 0;
        while (p->ranks[g] == 0)
            for (int r = 0; r < p->size; r++)
                if (roll(d, 3) > 0) p->rank[g][p->ranks[g]++] = r;
    }
}

static inline void draw_operation(program *p, operation *op, dice *d)
{
    static const enum kolo_collective kinds[] = {KOLO_ALLREDUCE, KOLO_REDUCE_SCATTER, KOLO_ALLGATHER};
    const int kind = roll(d, 6);
    memset(op, 0, sizeof *op);
    op->count = roll(d, 3) ? 1 + roll(d, PROGRAM_LARGEST) : 1 + roll(d, 40);
    op->at = p->elements;
    p->elements += (size_t)op->count;
    if (kind < 3) {
        op->group = roll(d, p->groups);
        op->what = kinds[kind];
        op->ranks = p->ranks[op->group];
        if (op->what != KOLO_ALLREDUCE && roll(d, 2)) op->cut = 1 + (uint64_t)roll(d, 1000000);
        memcpy(op->rank, p->rank[op->group], sizeof op->rank);
        return;
    }
    op->group = -1;
    op->from = roll(d, p->size);
    op->to = (op->from + 1 + roll(d, p->size - 1)) % p->size;
    op->ranks = 2;
    op->rank[0] = op->from;
    op->rank[1] = op->to;
    op->to_at = p->elements;
    p->elements += (size_t)op->count;
}

/* Of these ranks; the same with the same seed. */
static inline void draw(program *p, int me, int ranks, dice *d)
{
    memset(p, 0, sizeof *p);
    p->me = me;
    p->size = ranks;
    draw_groups(p, d);
    for (int b = 0; b < PROGRAM_BUCKETS; b++) draw_operation(p, &p->op[b], d);
}

/* Parts of `count` elements at random: `slices` runs of `nodes` parts, in an order of their own; some are
 * empty, some all there is, some as even as can be, those of seed 0 always. */
static inline void cut_parts(dice *d, int64_t count, int slices, int nodes, int64_t *first, int64_t *length)
{
    int64_t border[9] = {0}, at = 0;
    int order[8];
    const int parts = slices * nodes, one = d->seed == 0 || roll(d, 5) ? -1 : roll(d, parts);
    const bool even = d->seed == 0 || roll(d, 5) == 0;
    for (int i = 1; i < parts; i++)
        border[i] = even ? count * i / parts : roll(d, 4) ? roll(d, (int)count + 1) : border[i - 1];
    border[parts] = count;
    for (int i = 1; i <= parts; i++) /* ascending */
        for (int k = i; k > 0 && border[k] < border[k - 1]; k--) {
            const int64_t kept = border[k];
            border[k] = border[k - 1];
            border[k - 1] = kept;
        }
    for (int s = 0; s < slices; s++) order[s] = s;
    if (!even) shuffle(d, order, slices);
    for (int i = 0; i < parts; i++) {
        const int part = order[i / nodes] * nodes + i % nodes;
        first[part] = at;
        length[part] = one < 0 ? border[i + 1] - border[i] : part == one ? count : 0;
        at += length[part];
    }
}

/* A bucket of a group, cut by these dice; its number. */
static inline int declare_cut(kolo_comm *comm, int group, const int *members, int ranks,
                              enum kolo_collective what, size_t offset, int64_t count, dice d)
{
    const kolo_launch *l = kolo_comm_launch(comm);
    int owner[8], nodes = 1;
    int64_t first[8], length[8];
    const int owners = kolo_comm_owners(l, members, ranks, owner);
    KOLO_TRY(owners);
    while (nodes < owners && l->node_of[owner[nodes]] != l->node_of[owner[0]]) nodes++;
    cut_parts(&d, count, owners / nodes, nodes, first, length);
    const int number = kolo_comm_bucket_cut(comm, group, what, offset, count, first, length);
    KOLO_TRY(number);
    for (int i = 0; i < owners; i++) {
        int64_t f, n;
        if (kolo_comm_part(comm, number, owner[i], &f, &n) == 0 && (n != length[i] || f != first[i]))
            return kolo_fail(KOLO_EINTERNAL, "part %d of bucket %d is %ld elements from %ld on", i, number,
                             (long)n, (long)f);
    }
    return number;
}

/* In p->comm, which is open. */
static inline int declare(program *p)
{
    for (int g = 0; g < p->groups; g++) {
        p->group[g] = kolo_comm_group(p->comm, p->rank[g], p->ranks[g]);
        KOLO_TRY(p->group[g]);
    }
    for (int b = 0; b < PROGRAM_BUCKETS; b++) {
        operation *op = &p->op[b];
        op->number = op->group >= 0 && op->cut
                         ? declare_cut(p->comm, p->group[op->group], op->rank, op->ranks, op->what,
                                       op->at * 4, op->count, (dice){.seed = op->cut})
                     : op->group >= 0
                         ? kolo_comm_bucket_of(p->comm, p->group[op->group], op->what, op->at * 4, op->count)
                         : kolo_comm_transfer(p->comm, op->from, op->to, op->at * 4, op->to_at * 4,
                                              (size_t)op->count * 4);
        KOLO_TRY(op->number);
    }
    return kolo_comm_commit(p->comm);
}

/* ---- what is brought, and what must come ---- */

static inline float value(const operation *op, int of, int64_t i, int phase)
{
    return (float)((i * 7 + of * 131 + op->number * 17 + phase * 29) % 1009);
}

/* Into the arena, or a copy of it. */
static inline void bring(const program *p, const operation *op, int phase, float *arena)
{
    float *at = arena + op->at;
    int64_t first = 0, count = op->count;
    if (op->group < 0 && op->from != p->me) return;
    if (op->what == KOLO_ALLGATHER) {
        for (int64_t i = 0; i < op->count; i++) at[i] = -1;
        kolo_comm_part(p->comm, op->number, p->me, &first, &count);
    }
    for (int64_t i = first; i < first + count; i++) at[i] = value(op, p->me, i, phase);
}

static inline float sum_of(const operation *op, int64_t i, int phase)
{
    float sum = 0;
    for (int r = 0; r < op->ranks; r++) sum += value(op, op->rank[r], i, phase);
    return sum;
}

static inline int64_t wrong_parts(const program *p, const operation *op, const float *at, int phase)
{
    int64_t bad = 0, covered = 0, first, count;
    for (int r = 0; r < op->ranks; r++) {
        if (kolo_comm_part(p->comm, op->number, op->rank[r], &first, &count) < 0) return 1;
        covered += count;
        if (op->what == KOLO_REDUCE_SCATTER && op->rank[r] != p->me) continue;
        for (int64_t i = first; i < first + count; i++)
            bad += at[i] !=
                   (op->what == KOLO_ALLGATHER ? value(op, op->rank[r], i, phase) : sum_of(op, i, phase));
    }
    return bad + (covered != op->count);
}

static inline int64_t wrong_result(const program *p, const operation *op, int phase, float *arena)
{
    int64_t bad = 0;
    if (op->group < 0 && op->from == p->me) { /* it may be written again */
        for (int64_t i = 0; i < op->count; i++) arena[op->at + (size_t)i] = -2;
        return 0;
    }
    if (op->group >= 0 && op->what != KOLO_ALLREDUCE) return wrong_parts(p, op, arena + op->at, phase);
    for (int64_t i = 0; i < op->count; i++)
        bad += op->group < 0 ? arena[op->to_at + (size_t)i] != value(op, op->from, i, phase)
                             : arena[op->at + (size_t)i] != sum_of(op, i, phase);
    return bad;
}

/* ---- orders ---- */

static inline int order_key(const program *p, const operation *op)
{
    return op->group >= 0 ? p->group[op->group] : 1000 + op->from * 8 + op->to;
}

/* Orders of one group, or of one pair, stay as they were drawn; all else is each rank's own. */
static inline void reorder(const program *p, const int *order, dice *mine, int *own)
{
    int key[PROGRAM_BUCKETS];
    bool taken[PROGRAM_BUCKETS] = {0};
    for (int i = 0; i < PROGRAM_BUCKETS; i++) key[i] = order_key(p, &p->op[order[i]]);
    shuffle(mine, key, PROGRAM_BUCKETS);
    for (int i = 0; i < PROGRAM_BUCKETS; i++) {
        int j = 0;
        while (taken[j] || order_key(p, &p->op[order[j]]) != key[i]) j++;
        taken[j] = true;
        own[i] = order[j];
    }
}

#endif
