#include "comm/schedule.h"

#include <stdlib.h>
#include <string.h>

#include "base/memory.h"
#include "kolo/error.h"

int64_t comm_part(int64_t count, int parts, int i)
{
    int64_t at = (count + 15) / 16 * i / parts * 16;
    return at < count ? at : count;
}

static void add(comm_schedule *s, comm_action action)
{
    if (s->status < 0) return;
    if (kolo_grow(&s->action, &s->capacity, s->actions, sizeof action) < 0) {
        s->status = KOLO_ECONFIG;
        return;
    }
    s->action[s->actions++] = action;
}

static comm_place own(int64_t at) { return (comm_place){COMM_OWN, at}; }
static comm_place scratch(int64_t at) { return (comm_place){COMM_SCRATCH, at}; }

static void send(comm_schedule *s, int peer, comm_place from, int64_t count)
{
    if (count <= 0) return;
    add(s, (comm_action){.kind = COMM_SEND, .peer = peer, .left = from, .count = count});
    s->posts++;
}

static void receive(comm_schedule *s, int peer, comm_place into, int64_t count)
{
    if (count <= 0) return;
    add(s, (comm_action){.kind = COMM_RECEIVE, .peer = peer, .out = into, .count = count});
    if (into.buffer == COMM_SCRATCH && into.at + count > s->scratch) s->scratch = into.at + count;
    s->posts++;
}

static void wait_until(comm_schedule *s, int64_t serial)
{
    if (serial >= 0) add(s, (comm_action){.kind = COMM_WAIT, .count = serial});
}

static void wait_all(comm_schedule *s) { wait_until(s, s->posts - 1); }

static void combine(comm_schedule *s, comm_place out, comm_place left, comm_place right, int64_t count)
{
    if (count > 0)
        add(s, (comm_action){.kind = COMM_COMBINE, .out = out, .left = left, .right = right, .count = count});
}

/* At level d the members form blocks of 2d, cut into a left half (always whole) and a right half of m <= d members. */
typedef struct level {
    int base, middle, right;
} level; /* right: m, 0 if there is none */

static level level_of(int me, int members, int d)
{
    int base = me & ~(2 * d - 1), middle = base + d, end = base + 2 * d < members ? base + 2 * d : members;
    return (level){base, middle, end > middle ? end - middle : 0};
}

/* Whole vectors, partners at distance 1, 2, 4, ...; where the right half is short, each of its members serves several
 * on the left, so that any n takes ceil(log2 n) steps. */
static void recursive_doubling(comm_schedule *s, int me, int members, int64_t count)
{
    for (int d = 1; d < members; d *= 2) {
        level v = level_of(me, members, d);
        if (!v.right) continue;
        if (me < v.middle) {
            int i = me - v.base;
            receive(s, v.middle + i % v.right, scratch(0), count);
            if (i < v.right) send(s, v.middle + i, own(0), count);
            wait_all(s);
            combine(s, own(0), own(0), scratch(0), count);
        } else {
            int i = me - v.middle;
            receive(s, v.base + i, scratch(0), count);
            for (int to = v.base + i; to < v.middle; to += v.right) send(s, to, own(0), count);
            wait_all(s);
            combine(s, own(0), scratch(0), own(0), count);
        }
    }
}

typedef struct range {
    int64_t from, to;
} range;

static range half_of(range r, int high)
{
    int64_t middle = r.from + (r.to - r.from) / 2;
    return high ? (range){middle, r.to} : (range){r.from, middle};
}

/* The piece that member i of a whole block of d holds after halving near first: bit 0 chose first. */
static range piece_of(int64_t count, int i, int d)
{
    range r = {0, count};
    for (int bit = 1; bit < d; bit *= 2) r = half_of(r, (i & bit) != 0);
    return r;
}

static int power_below_or_at(int n)
{
    int p = 1;
    while (p * 2 <= n) p *= 2;
    return p;
}

/* One level of the reduce-scatter. Returns false when this member hands over what it holds and rests. */
static bool halve(comm_schedule *s, int me, int d, level v, int64_t count, range *mine)
{
    bool left = me < v.middle;
    if (v.right == d) {
        int peer = me ^ d;
        range keep = half_of(*mine, !left), give = half_of(*mine, left);
        receive(s, peer, scratch(0), keep.to - keep.from);
        send(s, peer, own(give.from), give.to - give.from);
        wait_all(s);
        combine(s, own(keep.from), left ? own(keep.from) : scratch(0), left ? scratch(0) : own(keep.from),
                keep.to - keep.from);
        *mine = keep;
        return true;
    }
    int holders = power_below_or_at(v.right); /* of the right half's sum: its first members */
    if (left) {
        receive(s, v.middle + (me - v.base) % holders, scratch(0), mine->to - mine->from);
        wait_all(s);
        combine(s, own(mine->from), own(mine->from), scratch(0), mine->to - mine->from);
        return true;
    }
    for (int i = me - v.middle; i < d; i += holders) {
        range r = piece_of(count, i, d);
        send(s, v.base + i, own(r.from), r.to - r.from);
    }
    wait_all(s);
    return false;
}

/* The same level on the way back: what was given away returns. before: what this member held before that level. */
static void unfold(comm_schedule *s, int me, int d, level v, int64_t count, range mine, range before)
{
    bool left = me < v.middle;
    if (v.right == d) {
        range other = half_of(before, left);
        receive(s, me ^ d, own(other.from), other.to - other.from);
        send(s, me ^ d, own(mine.from), mine.to - mine.from);
    } else if (left) {
        send(s, v.middle + (me - v.base) % power_below_or_at(v.right), own(mine.from), mine.to - mine.from);
    } else {
        for (int i = me - v.middle; i < d; i += power_below_or_at(v.right)) {
            range r = piece_of(count, i, d);
            receive(s, v.base + i, own(r.from), r.to - r.from);
        }
    }
    wait_all(s);
}

/* Recursive halving near first, then doubling back; sizes that are no power of two in binary blocks. */
static void rabenseifner(comm_schedule *s, int me, int members, int64_t count)
{
    range before[32], mine = {0, count};
    int levels = 0;
    bool active = true;
    for (int d = 1; d < members && active; d *= 2, levels++) {
        level v = level_of(me, members, d);
        before[levels] = mine;
        if (v.right) active = halve(s, me, d, v, count, &mine);
    }
    for (int l = levels - 1; l >= 0; l--) {
        level v = level_of(me, members, 1 << l);
        if (v.right) unfold(s, me, 1 << l, v, count, mine, before[l]);
        mine = before[l];
    }
}

enum { RING_SEGMENT = 65536 }; /* elements */

typedef struct ring {
    int me, members;
    int64_t count, segments;
} ring;

/* Segment k of the chunk that this member sends (step = 0: its own) in a step. */
static range ring_piece(const ring *g, int step, int64_t k)
{
    int chunk = ((g->me - step) % g->members + g->members) % g->members;
    int64_t from = comm_part(g->count, g->members, chunk), to = comm_part(g->count, g->members, chunk + 1);
    from = from + k * RING_SEGMENT < to ? from + k * RING_SEGMENT : to;
    return (range){from, from + RING_SEGMENT < to ? from + RING_SEGMENT : to};
}

/* Posts the receive of item t of `items` ahead of its turn; returns its serial number or the last one posted. */
static int64_t ring_ahead(comm_schedule *s, const ring *g, int64_t t, int64_t items, bool gather)
{
    if (t < items) {
        range r = ring_piece(g, (int)(t / g->segments) + (gather ? 0 : 1), t % g->segments);
        comm_place into = gather ? own(r.from) : scratch(t % 2 * RING_SEGMENT);
        receive(s, (g->me + g->members - 1) % g->members, into, r.to - r.from);
    }
    return s->posts - 1;
}

/* Bandwidth-optimal for any n; the order of an element's sum depends on its chunk. One segment is received ahead, so
 * that combining and the network overlap. */
static void ring_allreduce(comm_schedule *s, int me, int members, int64_t count)
{
    ring g = {me, members, count, 1};
    for (int i = 0; i < members; i++) {
        int64_t chunk = comm_part(count, members, i + 1) - comm_part(count, members, i);
        if ((chunk + RING_SEGMENT - 1) / RING_SEGMENT > g.segments)
            g.segments = (chunk + RING_SEGMENT - 1) / RING_SEGMENT;
    }
    int64_t items = (members - 1) * g.segments;
    for (int gather = 0; gather < 2; gather++) {
        int64_t due = ring_ahead(s, &g, 0, items, gather);
        for (int64_t t = 0; t < items; t++) {
            int step = (int)(t / g.segments);
            int64_t k = t % g.segments, next = ring_ahead(s, &g, t + 1, items, gather);
            range out = ring_piece(&g, step - gather, k), in = ring_piece(&g, step + 1 - gather, k);
            send(s, (me + 1) % members, own(out.from), out.to - out.from);
            wait_until(s, due);
            if (!gather) combine(s, own(in.from), own(in.from), scratch(t % 2 * RING_SEGMENT), in.to - in.from);
            due = next;
        }
        wait_all(s);
    }
}

/* Member k owns part k: gets every fragment's share of it, merges them in the tree, hands the result to all. */
static int direct(comm_schedule *s, int me, int members, int64_t count, const comm_tree *tree)
{
    int64_t from = comm_part(count, members, me), mine = comm_part(count, members, me + 1) - from, slots = 0;
    if (s->places < tree->fragments) {
        free(s->place);
        s->place = kolo_alloc((size_t)tree->fragments * sizeof *s->place);
        s->places = s->place ? tree->fragments : 0;
        if (!s->place) return KOLO_ECONFIG;
    }
    comm_place *place = s->place;
    for (int f = 0; f < tree->fragments; f++) {
        const comm_fragment *fragment = &tree->fragment[f];
        if (fragment->node == me) {
            place[f] = (comm_place){COMM_PART + fragment->index, from};
            for (int k = 1; k < members; k++) {
                int to = (me + k) % members;
                int64_t at = comm_part(count, members, to);
                send(s, to, (comm_place){COMM_PART + fragment->index, at}, comm_part(count, members, to + 1) - at);
            }
        } else {
            place[f] = scratch(slots++ * mine);
            receive(s, fragment->node, place[f], mine);
        }
    }
    wait_all(s);
    for (int m = 0; m < tree->merges; m++) {
        comm_place left = place[tree->merge[m].left], right = place[tree->merge[m].right];
        combine(s, m == tree->merges - 1 ? own(from) : left, left, right, mine);
    }
    for (int k = 1; k < members; k++) {
        int to = (me + k) % members, of = (me + members - k) % members;
        int64_t at = comm_part(count, members, of);
        receive(s, of, own(at), comm_part(count, members, of + 1) - at);
        send(s, to, own(from), mine);
    }
    wait_all(s);
    return 0;
}

static void clear(comm_schedule *s)
{
    s->actions = s->posts = s->scratch = 0;
    s->status = 0;
}

int comm_schedule_allreduce(comm_schedule *schedule, int algorithm, int me, int members, int64_t count,
                            const comm_tree *tree)
{
    clear(schedule);
    if (members == 1) return 0;
    switch (algorithm) {
    case COMM_RECURSIVE_DOUBLING: recursive_doubling(schedule, me, members, count); break;
    case COMM_RABENSEIFNER: rabenseifner(schedule, me, members, count); break;
    case COMM_RING: ring_allreduce(schedule, me, members, count); break;
    case COMM_DIRECT: KOLO_TRY(direct(schedule, me, members, count, tree)); break;
    default: return kolo_fail(KOLO_EINTERNAL, "comm: algorithm %d has no schedule", algorithm);
    }
    return schedule->status;
}

/* Binomial tree, renumbered so that the root is 0. */
int comm_schedule_broadcast(comm_schedule *schedule, int me, int members, int root, int64_t count)
{
    clear(schedule);
    int v = (me - root + members) % members, d = 1;
    while (d < members) d *= 2;
    for (d /= 2; d >= 1; d /= 2) {
        if (v % (2 * d) == 0 && v + d < members) {
            send(schedule, (v + d + root) % members, own(0), count);
        } else if (v % (2 * d) == d) {
            receive(schedule, (v - d + root) % members, own(0), count);
            wait_all(schedule);
        }
    }
    wait_all(schedule);
    return schedule->status;
}

int comm_schedule_gather(comm_schedule *schedule, int me, int root, int64_t count, int size, const int *node_of,
                         const int *local_of)
{
    clear(schedule);
    int to = node_of[root];
    for (int r = 0; r < size; r++) {
        if (node_of[r] == me && me != to) send(schedule, to, (comm_place){COMM_PART + local_of[r], 0}, count);
        if (node_of[r] != me && me == to) receive(schedule, node_of[r], own(r * count), count);
    }
    wait_all(schedule);
    return schedule->status;
}

void comm_schedule_free(comm_schedule *schedule)
{
    free(schedule->action);
    free(schedule->place);
    *schedule = (comm_schedule){0};
}

static const char *const algorithms[] = {"auto", "recursive_doubling", "rabenseifner", "ring", "direct"};

int comm_algorithm_find(const char *name)
{
    if (!name) return COMM_AUTO;
    for (int i = 0; i < (int)(sizeof algorithms / sizeof *algorithms); i++)
        if (strcmp(name, algorithms[i]) == 0) return i;
    return kolo_fail(KOLO_ECONFIG,
                     "comm: unknown algorithm \"%s\"; known: auto, recursive_doubling, rabenseifner, ring, direct",
                     name);
}

const char *comm_algorithm_name(int algorithm) { return algorithms[algorithm]; }

int comm_algorithm_choose(int members, int64_t bytes)
{
    /* seconds a message, a byte moved, a byte combined: a 100 Gb/s network and one core */
    const double alpha = 2.5e-6, beta = 1 / 12.5e9, gamma = 1 / 20e9;
    double levels = 0, n = (double)bytes, share = 1 - 1.0 / members;
    for (int d = 1; d < members; d *= 2) levels++;
    double doubling = levels * (alpha + n * (beta + gamma));
    double halving = 2 * levels * alpha + share * n * (2 * beta + gamma);
    return doubling <= halving ? COMM_RECURSIVE_DOUBLING : COMM_RABENSEIFNER;
}
