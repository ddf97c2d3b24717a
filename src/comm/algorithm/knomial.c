/* Trees from a root: broadcasts, gather and scatter. The builder counts members from the root on. */
#include "comm/algorithm/build.h"

#include "comm/algorithm/stages.h"

/* Each receives from the member that lacks its lowest digit in base k (or in mixed bases), and sends to those
 * that have one more, farthest first. */
static int broadcast(comm_schedule *schedule, const comm_problem *p, const comm_radices *k)
{
    int radix[COMM_STAGES], steps = comm_radices_of(COMM_DIGITS, p->members, k, radix), i = 0;
    comm_build b = comm_build_begin(schedule, p);
    int64_t d = 1, up;
    b.brought = b.me == 0 && !p->in_place;
    for (; i < steps && b.me % (d * radix[i]) == 0; i++) d *= radix[i];
    if (i < steps) {
        up = d * radix[i];
        comm_build_receive(&b, (int)(b.me / up * up), comm_own(0), p->count);
        comm_build_wait_all(&b);
    }
    while (i-- > 0) {
        d /= radix[i];
        for (int j = 1; j < radix[i] && b.me + j * d < b.n; j++)
            comm_build_send(&b, (int)(b.me + j * d), comm_build_mine(&b, 0), p->count);
    }
    comm_build_wait_all(&b);
    return comm_build_end(&b, (comm_range){0, p->count});
}

COMM_MAKE(broadcast, binomial) { return broadcast(schedule, p, &(comm_radices){{2}}); }

COMM_MAKE(broadcast, knomial) { return broadcast(schedule, p, &p->radix); }

/* Members v, v + 1, ... below `end` are under v: as many as v's lowest bit. */
static int end_of(int v, int n)
{
    int64_t end = v ? (int64_t)v + (v & -v) : n;
    return end < n ? (int)end : n;
}

/* van de Geijn: part v goes to member v of a binomial tree, whose inner members then hold more of the
 * ring than their own. */
COMM_MAKE(broadcast, scatter_allgather)
{
    comm_build b = comm_build_begin(schedule, p);
    int n = p->members, v = b.me, *held = comm_build_memory(&b, (size_t)n * sizeof *held);
    const comm_parts parts = comm_parts_even(&b, p->count);
    const int64_t *at = parts.at;
    if (!held || !at) return schedule->status;
    for (int i = 0; i < n; i++) held[i] = end_of(i, n) - i;
    b.brought = v == 0 && !p->in_place;
    if (v > 0) {
        comm_build_receive(&b, v & (v - 1), comm_own(at[v]), at[end_of(v, n)] - at[v]);
        comm_build_wait_all(&b);
    } else {
        comm_build_end(&b, (comm_range){0, p->count});
    }
    for (int d = v ? (v & -v) / 2 : comm_power_until(n); d >= 1; d /= 2)
        if (v + d < n) comm_build_send(&b, v + d, comm_own(at[v + d]), at[end_of(v + d, n)] - at[v + d]);
    comm_build_wait_all(&b);
    comm_ring_gather(&b, &parts, held);
    return schedule->status;
}

/* ---- gather and scatter -------------------------------------------------------------------------------- */

typedef struct rooted {
    comm_parts part; /* in the root's memory */
    int64_t *at;     /* [n + 1] elements of the members before one */
} rooted;

static bool find_parts(rooted *t, comm_build *b, const comm_problem *p)
{
    t->part = comm_parts_of(b, p->counts);
    t->at = t->part.at ? comm_offsets(b, t->part.count, b->n) : NULL;
    return t->at != NULL;
}

/* They lie in one piece in the root's memory. Others are put together by the root, in scratch. */
static bool in_one_piece(const rooted *t, int from, int to)
{
    int i = from + 1;
    while (i < to && t->part.at[i] == t->part.at[i - 1] + t->part.count[i - 1]) i++;
    return i >= to;
}

/* Parts of members from .. to - 1, to or from `peer`. Here they lie at the root's places in `whole`, or,
 * elsewhere, in scratch behind this member's own; a leaf's lie in `leaf`. */
static void move(comm_build *b, const rooted *t, bool sending, int peer, int from, int to, int32_t whole,
                 comm_place leaf)
{
    comm_place at = comm_scratch(t->at[from] - t->at[b->me]);
    if (b->me == 0 && in_one_piece(t, from, to)) at = (comm_place){whole, t->part.at[from]};
    else if (b->me && end_of(b->me, b->n) == b->me + 1) at = leaf;
    if (sending) comm_build_send(b, peer, at, t->at[to] - t->at[from]);
    else comm_build_receive(b, peer, at, t->at[to] - t->at[from]);
}

/* The root puts its child's parts together, or where they belong. */
static void knomial_put(comm_build *b, const rooted *t, int child, bool together)
{
    int to = end_of(child, b->n);
    for (int i = child; !in_one_piece(t, child, to) && i < to; i++) {
        if (together) comm_build_copy(b, comm_scratch(t->at[i]), comm_input(t->part.at[i]), t->part.count[i]);
        else comm_build_copy(b, comm_own(t->part.at[i]), comm_scratch(t->at[i]), t->part.count[i]);
    }
}

COMM_MAKE(gather, binomial)
{
    comm_build b = comm_build_begin(schedule, p);
    rooted t;
    if (!find_parts(&t, &b, p)) return schedule->status;
    int n = b.n, v = b.me, end = end_of(v, n);
    if (v == 0 && !p->in_place) comm_build_copy(&b, comm_own(t.part.at[0]), comm_input(0), t.part.count[0]);
    if (v > 0 && end > v + 1) comm_build_copy(&b, comm_scratch(0), comm_input(0), t.part.count[v]);
    for (int d = 1; v + d < end; d *= 2)
        move(&b, &t, false, v + d, v + d, end_of(v + d, n), COMM_OWN, comm_own(0));
    comm_build_wait_all(&b);
    for (int d = 1; v == 0 && d < n; d *= 2) knomial_put(&b, &t, d, false);
    if (v > 0) move(&b, &t, true, v & (v - 1), v, end, COMM_OWN, comm_input(0));
    comm_build_wait_all(&b);
    return schedule->status;
}

COMM_MAKE(scatter, binomial)
{
    comm_build b = comm_build_begin(schedule, p);
    rooted t;
    if (!find_parts(&t, &b, p)) return schedule->status;
    int n = b.n, v = b.me, end = end_of(v, n);
    if (v > 0) {
        move(&b, &t, false, v & (v - 1), v, end, COMM_INPUT, comm_own(0));
        comm_build_wait_all(&b);
    }
    for (int d = comm_power_until(n); d >= 1; d /= 2) {
        if (v + d >= end || (v && d >= (v & -v))) continue;
        if (v == 0) knomial_put(&b, &t, d, true);
        move(&b, &t, true, v + d, v + d, end_of(v + d, n), COMM_INPUT, comm_own(0));
    }
    comm_build_wait_all(&b);
    if (v > 0 && end > v + 1) comm_build_copy(&b, comm_own(0), comm_scratch(0), t.part.count[v]);
    if (v == 0 && !(p->in_place && t.part.at[0] == 0))
        comm_build_copy(&b, comm_own(0), comm_input(t.part.at[0]), t.part.count[0]);
    return schedule->status;
}
