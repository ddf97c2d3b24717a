/* Placement in late pipelines. Steps follow one another without a border: a micro-batch's forward turn
 * lies in the list of one step and its backward turn in that of a later one, and between them others
 * begin. Every micro-batch is treated like the one before, one period later; so a value that lives for
 * less than a period has one place for all, and shares it as within a step (place.c); one that lives
 * longer has a ring of places, as many as there are of it at a time, which micro-batches take in turns. */
#include <stdlib.h>

#include "base/memory.h"
#include "kolo/error.h"
#include "plan/parts.h"

/* Of a value, as micro-batch 0 of batch 0 has it; begin and end hold for every one. */
typedef struct span {
    bool there;
    int begin, end;      /* time_of */
    int64_t first, last; /* actions */
    int places;
    int64_t owner; /* the value whose memory this one takes over, or itself */
    size_t bytes, offset;
} span;

typedef struct rings {
    kolo_plan *plan;
    span *of; /* [2 x tensors] values (kolo_plan_value) */
    int64_t values;
} rings;

static int tensor_of(const rings *r, int64_t value) { return (int)(value % r->plan->graph->tensors); }

/* There is one of it in a batch, not in every micro-batch. */
static bool is_by_batch(const rings *r, int64_t value)
{
    return tensor_of(r, value) == r->plan->graph->metrics;
}

static int arena_of(const rings *r, int64_t value)
{
    const kolo_plan *p = r->plan;
    return value < p->graph->tensors ? kolo_plan_placed_in(p, (int)value)
                                     : kolo_plan_value_arena(p, (int)value);
}

/* One place for all micro-batches, which others may have in the same step. */
static bool is_brief(const rings *r, int64_t value)
{
    return arena_of(r, value) == KOLO_ARENA_ACTIVATION && r->of[value].places == 1;
}

enum { TURN = 4 }; /* of time */

/* When an action needs what it binds, in turns counted through all steps. Before a turn places are offered
 * and what was sent has gone; behind the last one of a step, and before the next step's first, is the end
 * of it. */
static int time_of(const kolo_plan *p, const kolo_action *a)
{
    const bool before = a->kind == KOLO_ACTION_RECEIVE ||
                        (a->kind == KOLO_ACTION_TRANSFERRED && p->transfer[a->transfer].sends);
    return TURN * (a->turn - a->ahead * p->turns) - (a->turn == p->turns ? 2 : before);
}

/* From one micro-batch to the next, or from batch to batch. */
static int period_of(const rings *r, int64_t value)
{
    const kolo_plan *p = r->plan;
    return TURN * (is_by_batch(r, value) ? p->turns : p->turns / p->config.slots);
}

/* Both ends of a transfer take their places in turns, and comm is told of every pair of places that meet: as
 * many as the least common multiple of their numbers, 325 of 25 and 13. So long rings have 2^n or 3 x 2^n. */
static int even_places(int places)
{
    int even = 8;
    if (places <= even) return places;
    while (even < places) even += even % 3 ? even / 2 : even / 3;
    return even;
}

static void find_spans(rings *r)
{
    const kolo_plan *p = r->plan;
    int value[2 * KOLO_MAX_ARGS];
    for (int64_t i = 0; i < p->actions; i++) {
        const kolo_action *a = &p->action[i];
        const int n = kolo_plan_action_values(p, a, value);
        for (int k = 0; k < n; k++) {
            const int v = value[k];
            if (v < 0 || arena_of(r, v) < 0) continue;
            span *s = &r->of[v];
            const int slot = is_by_batch(r, v) ? 0 : a->slot, at = time_of(p, a) - slot * period_of(r, v);
            if (!s->there)
                *s = (span){true, at, at, i, i, 0, v, kolo_plan_tensor_bytes(p, tensor_of(r, v)), 0};
            if (at < s->begin) s->begin = at;
            if (at > s->end) s->end = at;
            if (slot == 0) s->last = i;
        }
    }
    for (int64_t v = 0; v < r->values; v++) {
        const int places = (r->of[v].end - r->of[v].begin) / period_of(r, v) + 1;
        r->of[v].places = arena_of(r, v) == KOLO_ARENA_TRANSFER ? even_places(places) : places;
    }
}

/* out[0] takes the memory of an input that dies there, where the operation allows it. */
static void take_over(rings *r)
{
    const kolo_plan *p = r->plan;
    const kolo_graph *g = p->graph;
    for (int64_t i = 0; i < p->actions; i++) {
        const kolo_action *a = &p->action[i];
        if (a->kind != KOLO_ACTION_RUN || a->slot > 0) continue;
        const kolo_node *n = &g->node[a->node];
        const int which = kolo_op_table[n->op].overwrite;
        if (which < 0 || which >= n->n_in || n->in[which] < 0 || n->out[0] < 0) continue;
        const int in = n->in[which], out = n->out[0];
        int uses = 0;
        for (int k = 0; k < n->n_in; k++) uses += n->in[k] == in;
        if (uses > 1 || g->tensor[in].role != KOLO_ROLE_ACTIVATION ||
            g->tensor[out].role != KOLO_ROLE_ACTIVATION || !r->of[in].there || !r->of[out].there ||
            !is_brief(r, in) || !is_brief(r, out) || r->of[in].last != i ||
            p->layout[in].bytes != p->layout[out].bytes)
            continue;
        span *owner = &r->of[r->of[in].owner];
        r->of[out].owner = r->of[in].owner;
        if (r->of[out].last > owner->last) owner->last = r->of[out].last;
    }
}

/* As within a step: turns of micro-batches do not overlap, so those of the first stand for all. */
static int place_brief(rings *r, size_t *peak)
{
    size_t least;
    int64_t n = 0;
    kolo_piece *piece = kolo_alloc((size_t)(r->values + 1) * sizeof *piece);
    int64_t *number = kolo_alloc((size_t)(r->values + 1) * sizeof *number);
    int rc = piece && number ? 0 : KOLO_ENOMEM;
    for (int64_t v = 0; rc == 0 && v < r->values; v++) {
        const span *s = &r->of[v];
        if (!s->there || !is_brief(r, v) || s->owner != v) continue;
        number[v] = n;
        piece[n++] = (kolo_piece){s->first, s->last, s->bytes, 0};
    }
    if (rc == 0) rc = kolo_place_pieces(n, piece, peak, &least);
    for (int64_t v = 0; rc == 0 && v < r->values; v++)
        if (r->of[v].there && is_brief(r, v)) r->of[v].offset = piece[number[r->of[v].owner]].offset;
    free(piece);
    free(number);
    return rc;
}

static void place_rings(rings *r, int arena, size_t *end)
{
    for (int64_t v = 0; v < r->values; v++) {
        span *s = &r->of[v];
        if (!s->there || arena_of(r, v) != arena || is_brief(r, v)) continue;
        s->offset = *end;
        *end += s->bytes * (size_t)s->places;
    }
}

static void bind_rings(const rings *r)
{
    kolo_plan *p = r->plan;
    int value[2 * KOLO_MAX_ARGS];
    for (int64_t i = 0; i < p->actions; i++) {
        const kolo_action *a = &p->action[i];
        const int n = kolo_plan_action_values(p, a, value);
        for (int k = 0; k < n; k++) {
            if (value[k] < 0 || arena_of(r, value[k]) < 0) continue;
            const span *s = &r->of[value[k]];
            p->binding[a->binding + k].offset = s->offset;
            if (s->places > 1)
                p->ring[a->binding + k] = (kolo_ring){s->places, is_by_batch(r, value[k]), s->bytes};
        }
        if (!kolo_action_transfers(a->kind)) continue;
        kolo_transfer *t = &p->transfer[a->transfer];
        t->offset = p->binding[a->binding].offset + kolo_plan_transfer_base(p);
        t->ring = p->ring[a->binding];
    }
}

int kolo_plan_place_rings(kolo_plan *plan)
{
    size_t *bytes = plan->arena_bytes;
    rings r = {.plan = plan, .values = 2 * (int64_t)plan->graph->tensors};
    r.of = kolo_alloc((size_t)(r.values + 1) * sizeof *r.of);
    if (!r.of) return KOLO_ENOMEM;
    find_spans(&r);
    take_over(&r);
    const int rc = place_brief(&r, &bytes[KOLO_ARENA_ACTIVATION]);
    place_rings(&r, KOLO_ARENA_ACTIVATION, &bytes[KOLO_ARENA_ACTIVATION]);
    place_rings(&r, KOLO_ARENA_TRANSFER, &bytes[KOLO_ARENA_TRANSFER]);
    plan->least_activation = bytes[KOLO_ARENA_ACTIVATION];
    if (rc == 0) bind_rings(&r);
    free(r.of);
    return rc;
}
