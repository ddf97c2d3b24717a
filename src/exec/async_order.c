/* The bound is kept by deadlines: what began after `pulled` updates must be one of the next `bound` + 1. A
 * rank begins only if all that compute, and it, can be applied in the order of their deadlines, each in time;
 * and gradients that are there are applied only if the others can still be. So the one whose deadline is next
 * may always go, and somebody always does. */
#include "exec/async_order.h"

#include <stdlib.h>

#include "base/memory.h"
#include "kolo/error.h"

int async_order_create(async_order *o, int ranks, int64_t bound)
{
    *o = (async_order){.ranks = ranks, .bound = bound};
    o->of = kolo_alloc((size_t)ranks * sizeof *o->of);
    return o->of ? 0 : KOLO_ENOMEM;
}

void async_order_destroy(async_order *o)
{
    free(o->of);
    o->of = NULL;
}

void async_order_open(async_order *o, int64_t first, int64_t end)
{
    for (int r = 0; r < o->ranks; r++) o->of[r] = (async_rank){.pace = o->of[r].pace};
    o->next = o->updates = first;
    o->end = end;
}

/* Would all wait for this rank in the end, if it took one more block? Not if it is the fastest of those that
 * are still at work, so somebody always takes what is left. */
static bool is_too_slow(const async_order *o, int rank)
{
    const async_rank *r = &o->of[rank];
    double work = (double)(o->end - o->next), rate = 0, soonest = 0;
    for (int i = 0; i < o->ranks; i++) {
        const async_rank *other = &o->of[i];
        if (i == rank || other->held == 0) continue;
        if (!(other->pace > 0)) return false;
        const double next = (double)(other->held + 1) * other->pace;
        work += other->held;
        rate += 1 / other->pace;
        if (soonest == 0 || next < soonest) soonest = next;
    }
    const double others = rate > 0 ? work / rate : 0;
    return rate > 0 && (double)(r->held + 1) * r->pace > (others > soonest ? others : soonest);
}

int async_order_give(async_order *o, int rank, int64_t *block)
{
    async_rank *r = &o->of[rank];
    int n = 0;
    while (o->next < o->end && r->held < ASYNC_BLOCKS) {
        /* towards the end a block that waits behind another's is one that nobody else can take */
        if ((r->held > 0 && o->end - o->next <= 2 * o->ranks) || is_too_slow(o, rank)) break;
        block[n++] = o->next++;
        r->held++;
    }
    return n;
}

/* Can all that compute be applied in time, but `without`, when `more` others go first? */
static bool in_time(const async_order *o, int without, int64_t more)
{
    for (int i = 0; i < o->ranks; i++) {
        int64_t before = 0;
        if (!o->of[i].computes || i == without) continue;
        for (int k = 0; k < o->ranks; k++)
            before += k != i && k != without && o->of[k].computes &&
                      (o->of[k].pulled < o->of[i].pulled || (o->of[k].pulled == o->of[i].pulled && k < i));
        if (o->updates + more + before > o->of[i].pulled + o->bound) return false;
    }
    return true;
}

void async_order_ask(async_order *o, int rank)
{
    o->of[rank].begins = true;
    o->of[rank].since = o->asked++;
}

bool async_order_begin(async_order *o, int rank, double now)
{
    async_rank *r = &o->of[rank];
    int64_t computing = 0;
    for (int i = 0; i < o->ranks; i++) {
        if (o->of[i].begins && o->of[i].since < r->since) return false;
        computing += o->of[i].computes;
    }
    if (o->bound && computing > o->bound) return false;
    r->begins = false;
    r->computes = true;
    r->began = now;
    r->pulled = o->updates;
    return true;
}

bool async_order_push(async_order *o, int rank, double now, int64_t *update, int64_t *staleness)
{
    async_rank *r = &o->of[rank];
    if (o->bound && !in_time(o, rank, 1)) return false;
    *update = o->updates++;
    *staleness = *update - r->pulled;
    r->computes = false;
    const double took = now - r->began;
    r->pace = r->pace > 0 && took > 2 * r->pace ? 2 * r->pace : took; /* once is no pace */
    r->held--;
    return true;
}
