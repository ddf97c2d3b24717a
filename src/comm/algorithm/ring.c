/* Rings: everything moves to the next member, n - 1 times. Bandwidth-optimal for any n and gentle to any
 * network; but an element's order of sums depends on where it lies. Patarasuk and Yuan, JPDC 2009. */
#include "comm/algorithm/build.h"

enum { RING_SEGMENT = 65536 }; /* elements */

typedef struct ring {
    comm_range whole;
    int64_t segment, segments; /* of the largest chunk */
} ring;

static comm_range chunk_of(const comm_build *b, const ring *g, int chunk)
{
    int64_t count = comm_length(g->whole), from = comm_part(count, b->n, chunk),
            to = comm_part(count, b->n, chunk + 1);
    return (comm_range){g->whole.from + from, g->whole.from + to};
}

/* Segment k of the chunk that this member sends (step = 0: its own) in a step. */
static comm_range ring_piece(const comm_build *b, const ring *g, int step, int64_t k)
{
    comm_range r = chunk_of(b, g, ((b->me - step) % b->n + b->n) % b->n);
    r.from = r.from + k * g->segment < r.to ? r.from + k * g->segment : r.to;
    r.to = r.from + g->segment < r.to ? r.from + g->segment : r.to;
    return r;
}

static comm_place slot(const comm_build *b, const ring *g, int64_t item)
{
    return comm_scratch(b->spare + item % 2 * g->segment);
}

/* Posts the receive of item t of `items` ahead of its turn; returns its serial number or the last one
 * posted. */
static int64_t ring_ahead(comm_build *b, const ring *g, int64_t t, int64_t items, bool gather)
{
    if (t < items) {
        comm_range r = ring_piece(b, g, (int)(t / g->segments) + (gather ? 0 : 1), t % g->segments);
        comm_place into = gather ? comm_build_result(b, r.from) : slot(b, g, t);
        comm_build_receive(b, (b->me + b->n - 1) % b->n, into, comm_length(r));
    }
    return b->s->posts - 1;
}

/* One segment is received ahead, so that combining and the network overlap. */
static void allreduce_ring(comm_build *b, comm_range r, int64_t segment)
{
    ring g = {r, 0, 1};
    int64_t largest = 1;
    for (int i = 0; i < b->n; i++) {
        comm_range chunk = chunk_of(b, &g, i);
        if (comm_length(chunk) > largest) largest = comm_length(chunk);
    }
    g.segment = segment > 0 && segment < largest ? segment : largest;
    g.segments = (largest + g.segment - 1) / g.segment;
    int64_t items = (b->n - 1) * g.segments;
    comm_build_widen(b, r);
    for (int gather = 0; gather < 2; gather++) {
        int64_t due = ring_ahead(b, &g, 0, items, gather);
        for (int64_t t = 0; t < items; t++) {
            int step = (int)(t / g.segments);
            int64_t k = t % g.segments, next = ring_ahead(b, &g, t + 1, items, gather);
            comm_range out = ring_piece(b, &g, step - gather, k),
                       in = ring_piece(b, &g, step + 1 - gather, k);
            bool first = !gather && step == 0;
            comm_build_send(b, (b->me + 1) % b->n,
                            first    ? comm_build_mine(b, out.from)
                            : gather ? comm_build_result(b, out.from)
                                     : comm_build_sum(b, out.from),
                            comm_length(out));
            comm_build_wait(b, due);
            if (!gather)
                comm_build_combine(b, comm_build_sum(b, in.from), comm_build_mine(b, in.from), slot(b, &g, t),
                                   comm_length(in));
            due = next;
        }
        comm_build_wait_all(b);
        b->brought = b->brought && b->n == 1;
        if (!gather) comm_build_settle(b, chunk_of(b, &g, (b->me + 1) % b->n));
    }
}

static int allreduce(comm_schedule *schedule, const comm_problem *p, int64_t segment)
{
    comm_build b = comm_build_begin(schedule, p);
    allreduce_ring(&b, (comm_range){0, p->count}, segment);
    return comm_build_end(&b, (comm_range){0, p->count});
}

COMM_MAKE(allreduce, ring) { return allreduce(schedule, p, 0); }

COMM_MAKE(allreduce, segmented_ring)
{
    return allreduce(schedule, p, p->segment > 0 ? p->segment : RING_SEGMENT);
}

/* The part of the member before me is the first that I send: so my own is the last that I receive. */
COMM_MAKE(reduce_scatter, ring)
{
    comm_build b = comm_build_begin(schedule, p);
    comm_parts part = comm_parts_of(&b, p->counts);
    int n = p->members, next = (b.me + 1) % n, previous = (b.me + n - 1) % n;
    int64_t largest = 0, at = 0;
    if (!part.at) return KOLO_ENOMEM;
    for (int i = 0; i < n; i++)
        if (part.count[i] > largest) largest = part.count[i];
    /* at step t the part of me - 1 - t is complete up to this member */
    for (int step = 0; step < n; step++) {
        int of = ((b.me - 1 - step) % n + n) % n;
        int64_t count = part.count[of];
        comm_place sum = comm_scratch(at), brought = comm_input(part.at[of]);
        if (step > 0) comm_build_combine(&b, sum, sum, brought, count);
        if (step == n - 1) {
            if (n > 1) comm_build_copy(&b, comm_own(0), sum, count);
            else if (!p->in_place) comm_build_copy(&b, comm_own(0), brought, count);
            break;
        }
        at = largest - at;
        comm_build_receive(&b, previous, comm_scratch(at), part.count[((of - 1) % n + n) % n]);
        comm_build_send(&b, next, step ? sum : brought, count);
        comm_build_wait_all(&b);
    }
    return schedule->status;
}

static bool holds(const comm_build *b, const int *held, int member, int part)
{
    return (part - member + b->n) % b->n < (held ? held[member] : 1);
}

void comm_ring_gather(comm_build *b, const comm_parts *parts, const int *held)
{
    int n = b->n, next = (b->me + 1) % n, previous = (b->me + n - 1) % n;
    for (int step = 0; step < n - 1; step++) {
        int out = (b->me - step + n) % n, in = (b->me - step - 1 + n) % n;
        if (!holds(b, held, b->me, in))
            comm_build_receive(b, previous, comm_own(parts->at[in]), parts->count[in]);
        if (!holds(b, held, next, out)) comm_build_send(b, next, comm_own(parts->at[out]), parts->count[out]);
        comm_build_wait_all(b);
    }
}

COMM_MAKE(allgather, ring)
{
    comm_build b = comm_build_begin(schedule, p);
    comm_parts part = comm_parts_of(&b, p->counts);
    if (!part.at) return KOLO_ENOMEM;
    if (!p->in_place) comm_build_copy(&b, comm_own(part.at[b.me]), comm_input(0), part.count[b.me]);
    comm_ring_gather(&b, &part, NULL);
    return schedule->status;
}
