/* Recursive multiplying: at level d, groups of d members form blocks of k groups, and each member exchanges
 * whole vectors with one of every other group of its block. Where a group is short, each of its members
 * serves several. k may differ from level to level. k = 2 is recursive doubling, k >= n the one shot in which
 * everybody sends everything to everybody. With k a power of two the sum is the tree of schedule.h. */
#include "comm/algorithm/build.h"
#include "comm/algorithm/stages.h"

typedef struct block {
    int base, d, n; /* members base, base + 1, ... in groups of d, until n members of the team */
} block;

static int group_size(const block *v, int g)
{
    int64_t left = (int64_t)v->n - v->base - (int64_t)g * v->d;
    return left <= 0 ? 0 : left < v->d ? (int)left : v->d;
}

static void level(comm_build *b, comm_range r, const block *v, int k, bool raw, comm_place *place)
{
    int mine = (b->me - v->base) / v->d, i = (b->me - v->base) % v->d, size = group_size(v, mine), groups = 0;
    int64_t slot = b->spare, count = comm_length(r);
    while (groups < k && group_size(v, groups) > 0) groups++;
    if (groups == 1) return;
    for (int g = 0; g < groups; g++) {
        place[g] = g == mine ? comm_build_mine(b, r.from) : comm_build_slot(slot, count, raw);
        if (g == mine) continue;
        comm_build_receive(b, v->base + g * v->d + i % group_size(v, g), place[g], count);
        slot += count;
    }
    for (int t = 1; t < groups; t++) {
        int g = (mine + t) % groups;
        for (int to = i; to < group_size(v, g); to += size)
            comm_build_send(b, v->base + g * v->d + to, comm_build_mine(b, r.from), count);
    }
    comm_build_wait_all(b);
    comm_build_fold(b, place, groups, mine, comm_build_sum(b, r.from), count);
    b->brought = false;
}

/* The product of radix: members or more. */
static void multiply(comm_build *b, comm_range r, const int *radix, int steps)
{
    int largest = 2;
    int64_t d = 1;
    bool raw = comm_build_raw(b);
    for (int i = 0; i < steps; i++) largest = radix[i] > largest ? radix[i] : largest;
    comm_place *place = comm_build_memory(b, (size_t)largest * sizeof *place);
    for (int i = 0; place && i < steps; d *= radix[i++]) {
        block v = {(int)(b->me - b->me % (d * radix[i])), (int)d, b->n};
        if (i > 0) comm_build_widen(b, r);
        level(b, r, &v, radix[i], raw && i == 0, place);
    }
}

void comm_double(comm_build *b, comm_range r)
{
    const comm_radices twos = {{2}};
    int radix[COMM_STAGES], steps = comm_radices_of(COMM_POWERS, b->n, &twos, radix);
    multiply(b, r, radix, steps);
}

static int multiplying_make(comm_schedule *schedule, const comm_problem *p, const comm_radices *k)
{
    comm_build b = comm_build_begin(schedule, p);
    int radix[COMM_STAGES], steps = comm_radices_of(COMM_POWERS, p->members, k, radix);
    multiply(&b, (comm_range){0, p->count}, radix, steps);
    return comm_build_end(&b, (comm_range){0, p->count});
}

COMM_MAKE(allreduce, recursive_doubling) { return multiplying_make(schedule, p, &(comm_radices){{2}}); }
COMM_MAKE(allreduce, recursive_multiplying) { return multiplying_make(schedule, p, &p->radix); }

COMM_MAKE(allreduce, one_shot)
{
    comm_radices all = {{2}};
    while (all.k[0] < p->members) all.k[0] *= 2;
    return multiplying_make(schedule, p, &all);
}
