/* Everybody with everybody: allgather by doubling, alltoall, barrier. */
#include "comm/algorithm/build.h"

static int after(const comm_build *b, int d) { return (b->me + d) % b->n; }
static int before(const comm_build *b, int d) { return (b->me + b->n - d) % b->n; }

/* Parts of `parts` members from `first` on, around the end: two messages there. base: where those of member
 * 0, 1, ... begin; offset: behind it. */
static void move_parts(comm_build *b, bool sending, int peer, int first, int parts, comm_place base,
                       const int64_t *offset)
{
    int head = first + parts <= b->n ? parts : b->n - first;
    for (int i = 0; i < 2; i++) {
        int from = i ? 0 : first, to = i ? parts - head : first + head;
        comm_place at = comm_shift(base, offset[from]);
        if (sending) comm_build_send(b, peer, at, offset[to] - offset[from]);
        else comm_build_receive(b, peer, at, offset[to] - offset[from]);
    }
}

static void gather_parts(comm_build *b, bool pairs, comm_place base, const int64_t *offset)
{
    for (int d = 1; d < b->n; d *= 2) {
        if (pairs) { /* this member holds the parts of its block of d */
            move_parts(b, false, b->me ^ d, (b->me ^ d) & ~(d - 1), d, base, offset);
            move_parts(b, true, b->me ^ d, b->me & ~(d - 1), d, base, offset);
        } else { /* its own and those of the d - 1 members behind it */
            int parts = d < b->n - d ? d : b->n - d;
            move_parts(b, false, after(b, d), after(b, d), parts, base, offset);
            move_parts(b, true, before(b, d), b->me, parts, base, offset);
        }
        comm_build_wait_all(b);
    }
}

/* What is sent doubles, so the first steps go between the nodes, where there are no more bytes then than
 * every node must get, and the last ones stay within them: members are counted in turns. Unless that is by
 * their numbers, neighbours' parts do not lie side by side in the result; they are gathered in scratch, so
 * that a step stays a message. */
static int allgather(comm_schedule *schedule, const comm_problem *p, bool pairs)
{
    comm_build b = comm_build_begin(schedule, p);
    comm_build_deal(&b, p);
    comm_parts part = comm_parts_of(&b, p->counts);
    int64_t *offset = part.at ? comm_offsets(&b, part.count, b.n) : NULL;
    comm_place base = b.member ? comm_scratch(0) : comm_own(0);
    if (!offset) return schedule->status;
    if (b.member || !p->in_place)
        comm_build_copy(&b, comm_shift(base, offset[b.me]), comm_input(0), part.count[b.me]);
    gather_parts(&b, pairs, base, offset);
    for (int i = 0; b.member && i < b.n; i++)
        comm_build_copy(&b, comm_own(part.at[i]), comm_scratch(offset[i]), part.count[i]);
    return schedule->status;
}

COMM_MAKE(allgather, recursive_doubling) { return allgather(schedule, p, true); }

/* Bruck et al., IEEE TPDS 1997; every part goes to its place at once. */
COMM_MAKE(allgather, bruck) { return allgather(schedule, p, false); }

static int alltoall(comm_schedule *schedule, const comm_problem *p, bool one_by_one)
{
    comm_build b = comm_build_begin(schedule, p);
    comm_parts to = comm_parts_of(&b, p->send), from = comm_parts_of(&b, p->receive);
    comm_place input = comm_input(0);
    if (!to.at || !from.at) return schedule->status;
    if (p->in_place) {
        int64_t all = 0;
        for (int i = 0; i < b.n; i++) all += to.count[i];
        input = comm_scratch(0);
        comm_build_copy(&b, input, comm_own(0), all);
    }
    comm_build_copy(&b, comm_own(from.at[b.me]), comm_shift(input, to.at[b.me]), to.count[b.me]);
    for (int d = 1; d < b.n; d++) {
        int next = after(&b, d), previous = before(&b, d);
        comm_build_receive(&b, previous, comm_own(from.at[previous]), from.count[previous]);
        comm_build_send(&b, next, comm_shift(input, to.at[next]), to.count[next]);
        if (one_by_one) comm_build_wait_all(&b);
    }
    comm_build_wait_all(&b);
    return schedule->status;
}

COMM_MAKE(alltoall, direct) { return alltoall(schedule, p, false); }
COMM_MAKE(alltoall, pairwise) { return alltoall(schedule, p, true); }

/* Block i is for the member i further; those with bit d set in i travel d members at a time (Bruck et
 * al., IEEE TPDS 1997). */
COMM_MAKE(alltoall, bruck)
{
    comm_build b = comm_build_begin(schedule, p);
    int n = p->members;
    int64_t c = p->count, pack = n * c, arrive = pack + (n + 1) / 2 * c;
    for (int i = 0; i < n; i++)
        comm_build_copy(&b, comm_scratch(i * c), comm_input(comm_member(&b, after(&b, i)) * c), c);
    for (int d = 1; d < n; d *= 2) {
        int64_t blocks = 0;
        /* runs of d blocks are packed; what came is put in their place */
        for (int out = 1; out >= 0; out--) {
            blocks = 0;
            for (int i = d; i < n; i += 2 * d) {
                int64_t run = i + d < n ? d : n - i;
                comm_place block = comm_scratch(i * c);
                if (out) comm_build_copy(&b, comm_scratch(pack + blocks * c), block, run * c);
                else comm_build_copy(&b, block, comm_scratch(arrive + blocks * c), run * c);
                blocks += run;
            }
            if (!out) break;
            comm_build_receive(&b, before(&b, d), comm_scratch(arrive), blocks * c);
            comm_build_send(&b, after(&b, d), comm_scratch(pack), blocks * c);
            comm_build_wait_all(&b);
        }
    }
    for (int i = 0; i < n; i++)
        comm_build_copy(&b, comm_own(comm_member(&b, before(&b, i)) * c), comm_scratch(i * c), c);
    return schedule->status;
}

COMM_MAKE(barrier, dissemination)
{
    comm_build b = comm_build_begin(schedule, p);
    for (int d = 1; d < p->members; d *= 2) {
        comm_build_receive(&b, before(&b, d), comm_scratch(1), 1);
        comm_build_send(&b, after(&b, d), comm_scratch(0), 1);
        comm_build_wait_all(&b);
    }
    return schedule->status;
}
