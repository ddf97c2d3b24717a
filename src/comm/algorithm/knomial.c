/* Trees from a root: broadcasts, gather and scatter. Members are renumbered so that the root is 0. */
#include "comm/algorithm/build.h"

#include <stdlib.h>

#include "base/memory.h"

/* Each receives from the member that lacks its lowest digit in base k, and sends to those that have one more, farthest first. */
void comm_knomial(comm_build *b, int root, int k, comm_place from, int64_t count)
{
    int v = (b->me - root + b->n) % b->n;
    int64_t d = 1;
    for (; d < b->n; d *= k) {
        if (v % (d * k) == 0) continue;
        comm_build_receive(b, (int)(v / (d * k) * (d * k) + root) % b->n, comm_own(0), count);
        comm_build_wait_all(b);
        break;
    }
    for (d /= k; d >= 1; d /= k)
        for (int j = 1; j < k && v + j * d < b->n; j++)
            comm_build_send(b, (int)(v + j * d + root) % b->n, v ? comm_own(0) : from, count);
    comm_build_wait_all(b);
}

static int broadcast(comm_schedule *schedule, const comm_problem *p, int k)
{
    comm_build b = comm_build_begin(schedule, p);
    b.brought = p->me == p->root && !p->in_place;
    comm_knomial(&b, p->root, k, comm_build_mine(&b, 0), p->count);
    return comm_build_end(&b, (comm_range){0, p->count});
}

int comm_make_broadcast_binomial(comm_schedule *schedule, const comm_problem *p) { return broadcast(schedule, p, 2); }

int comm_make_broadcast_knomial(comm_schedule *schedule, const comm_problem *p)
{
    return broadcast(schedule, p, p->radix >= 2 ? p->radix : 4);
}

/* Members v, v + 1, ... below `end` are under v: as many as v's lowest bit. */
static int end_of(int v, int n)
{
    int64_t end = v ? (int64_t)v + (v & -v) : n;
    return end < n ? (int)end : n;
}

/* van de Geijn: part v goes to member v of a binomial tree, whose inner members then hold more of the ring than their own. */
int comm_make_broadcast_scatter_allgather(comm_schedule *schedule, const comm_problem *p)
{
    comm_build b = comm_build_begin(schedule, p);
    int n = p->members, v = (p->me - p->root + n) % n, *team = kolo_alloc((size_t)(2 * n) * sizeof *team);
    int64_t *offset = kolo_alloc((size_t)(n + 1) * sizeof *offset);
    if (!team || !offset) {
        free(team);
        free(offset);
        return KOLO_ECONFIG;
    }
    int *held = team + n;
    for (int i = 0; i < n; i++) {
        team[i] = (i + p->root) % n;
        held[i] = end_of(i, n) - i;
        offset[i + 1] = comm_part(p->count, n, i + 1);
    }
    b.member = team;
    b.me = v;
    b.brought = v == 0 && !p->in_place;
    if (v > 0) {
        comm_build_receive(&b, v & (v - 1), comm_own(offset[v]), offset[end_of(v, n)] - offset[v]);
        comm_build_wait_all(&b);
    } else {
        comm_build_end(&b, (comm_range){0, p->count});
    }
    for (int d = v ? (v & -v) / 2 : comm_power_until(n); d >= 1; d /= 2)
        if (v + d < n) comm_build_send(&b, v + d, comm_own(offset[v + d]), offset[end_of(v + d, n)] - offset[v + d]);
    comm_build_wait_all(&b);
    comm_ring_gather(&b, offset, held);
    free(team);
    free(offset);
    return schedule->status;
}

/* ---- gather and scatter ------------------------------------------------------------------------------------------------------- */

typedef struct rooted {
    const comm_problem *p;
    int v, wrap;      /* v: of this member; members from `wrap` on stand before the root in its memory */
    int64_t *at, *by; /* [n + 1] elements before v in the order of v; [n + 1] before a member in the root's memory */
} rooted;

static int open_rooted(rooted *t, const comm_problem *p)
{
    int n = p->members;
    *t = (rooted){.p = p, .v = (p->me - p->root + n) % n, .wrap = n - p->root};
    t->by = comm_offsets(p->counts, n);
    t->at = kolo_alloc((size_t)(n + 1) * sizeof *t->at);
    if (!t->by || !t->at) {
        free(t->by);
        free(t->at);
        return KOLO_ECONFIG;
    }
    for (int v = 0; v < n; v++) t->at[v + 1] = t->at[v] + p->counts[(v + p->root) % n];
    return 0;
}

static void close_rooted(rooted *t)
{
    free(t->by);
    free(t->at);
}

/* Members from .. to - 1 to or from `peer` (by v), in two messages where their data lies in two places at the root. Here they lie at the root's places in `whole`, or,
 * elsewhere, behind this member's own in scratch; a leaf's lie in `leaf`. */
static void move(comm_build *b, const rooted *t, bool sending, int peer, int from, int to, int32_t whole,
                 comm_place leaf)
{
    int n = t->p->members, who = (peer + t->p->root) % n;
    int cut[3] = {from, t->wrap > from && t->wrap < to ? t->wrap : to, to};
    for (int i = 0; i < 2; i++) {
        int64_t count = t->at[cut[i + 1]] - t->at[cut[i]];
        comm_place at = comm_scratch(t->at[cut[i]] - t->at[t->v]);
        if (t->v == 0) at = (comm_place){whole, t->by[(cut[i] + t->p->root) % n]};
        else if (end_of(t->v, n) == t->v + 1) at = leaf;
        if (sending) comm_build_send(b, who, at, count);
        else comm_build_receive(b, who, at, count);
    }
}

int comm_make_gather_binomial(comm_schedule *schedule, const comm_problem *p)
{
    comm_build b = comm_build_begin(schedule, p);
    rooted t;
    if (open_rooted(&t, p) < 0) return KOLO_ECONFIG;
    int n = p->members, end = end_of(t.v, n);
    int64_t mine = p->counts[p->me];
    if (t.v == 0 && !p->in_place) comm_build_copy(&b, comm_own(t.by[p->me]), comm_input(0), mine);
    if (t.v > 0 && end > t.v + 1) comm_build_copy(&b, comm_scratch(0), comm_input(0), mine);
    for (int d = 1; t.v + d < end; d *= 2)
        move(&b, &t, false, t.v + d, t.v + d, end_of(t.v + d, n), COMM_OWN, comm_own(0));
    comm_build_wait_all(&b);
    if (t.v > 0) move(&b, &t, true, t.v & (t.v - 1), t.v, end, COMM_OWN, comm_input(0));
    comm_build_wait_all(&b);
    close_rooted(&t);
    return schedule->status;
}

int comm_make_scatter_binomial(comm_schedule *schedule, const comm_problem *p)
{
    comm_build b = comm_build_begin(schedule, p);
    rooted t;
    if (open_rooted(&t, p) < 0) return KOLO_ECONFIG;
    int n = p->members, end = end_of(t.v, n);
    int64_t mine = p->counts[p->me];
    if (t.v > 0) {
        move(&b, &t, false, t.v & (t.v - 1), t.v, end, COMM_INPUT, comm_own(0));
        comm_build_wait_all(&b);
    }
    for (int d = comm_power_until(n); d >= 1; d /= 2)
        if (t.v + d < end && (t.v == 0 || d < (t.v & -t.v)))
            move(&b, &t, true, t.v + d, t.v + d, end_of(t.v + d, n), COMM_INPUT, comm_own(0));
    comm_build_wait_all(&b);
    if (t.v > 0 && end > t.v + 1) comm_build_copy(&b, comm_own(0), comm_scratch(0), mine);
    if (t.v == 0 && !(p->in_place && t.by[p->me] == 0)) comm_build_copy(&b, comm_own(0), comm_input(t.by[p->me]), mine);
    close_rooted(&t);
    return schedule->status;
}
