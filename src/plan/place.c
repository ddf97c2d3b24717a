/* Placement: who lives when, and where in the ACTIVATION arena. */
#include <stdlib.h>
#include <string.h>

#include "base/memory.h"
#include "kolo/error.h"
#include "plan/parts.h"

/* ---- pieces: offsets for a set of lifetimes ----
 * Greedy: pieces in some order, each to a gap between those already placed that are alive together with it.
 * No order is best for all networks, so a few are tried; the bound says how much is left to gain. */

typedef struct ranked {
    double key;
    int64_t piece;
} ranked;

enum order { BY_SIZE, BY_AREA, BY_LENGTH, BY_BEGIN, BY_END, ORDERS };

static double key_of(const kolo_piece *p, enum order order)
{
    double length = (double)(p->end - p->begin + 1);
    switch (order) {
    case BY_SIZE: return -(double)p->bytes;
    case BY_AREA: return -(double)p->bytes * length;
    case BY_LENGTH: return -length;
    case BY_END: return -(double)p->end;
    default: return (double)p->begin;
    }
}

static int place_compare(const void *a, const void *b)
{
    const ranked *x = a, *y = b;
    if (x->key != y->key) return x->key < y->key ? -1 : 1;
    return x->piece < y->piece ? -1 : x->piece > y->piece;
}

/* Pieces that were placed, by offset: all of them, and those that are alive in each of some spans of time, so
 * that a short-lived one is held against its contemporaries alone. */
enum { SPANS = 64 };
typedef struct shelf {
    int64_t *piece; /* [n] */
    int64_t count;
} shelf;

typedef struct shelves {
    shelf of[SPANS + 1]; /* the last one has all */
    int64_t *memory;
    int64_t last; /* moment at which a piece begins: behind it they only end */
} shelves;

static int shelves_open(shelves *s, int64_t n, const kolo_piece *piece)
{
    s->last = 0;
    for (int64_t i = 0; i < n; i++)
        if (piece[i].begin > s->last) s->last = piece[i].begin;
    s->memory = kolo_alloc((size_t)(SPANS + 1) * (size_t)(n + 1) * sizeof *s->memory);
    for (int k = 0; s->memory && k <= SPANS; k++) s->of[k] = (shelf){s->memory + k * (n + 1), 0};
    return s->memory ? 0 : KOLO_ENOMEM;
}

static int span_of(const shelves *s, int64_t moment)
{
    const int64_t at = moment < s->last ? moment : s->last; /* a piece may stay for ever */
    return at <= 0 ? 0 : (int)(at * SPANS / (s->last + 1));
}

/* Behind those of the same offset. */
static void shelf_add(shelf *s, const kolo_piece *piece, int64_t number)
{
    int64_t low = 0, high = s->count++;
    const int64_t end = high;
    while (low < high) {
        const int64_t middle = (low + high) / 2;
        if (piece[s->piece[middle]].offset > piece[number].offset) high = middle;
        else low = middle + 1;
    }
    memmove(&s->piece[low + 1], &s->piece[low], (size_t)(end - low) * sizeof *s->piece);
    s->piece[low] = number;
}

/* Chooses the lowest gap that fits, or the tightest. */
static size_t gap_for(const kolo_piece *piece, const shelves *s, const kolo_piece *p, bool tightest)
{
    const int first = span_of(s, p->begin), last = span_of(s, p->end);
    const shelf *placed = &s->of[first == last ? first : SPANS];
    size_t end = 0, best = SIZE_MAX, slack = SIZE_MAX;
    for (int64_t i = 0; i < placed->count; i++) {
        const kolo_piece *q = &piece[placed->piece[i]];
        if (q->begin > p->end || q->end < p->begin) continue;
        if (q->offset >= end + p->bytes && q->offset - end - p->bytes < slack) {
            best = end;
            slack = q->offset - end - p->bytes;
            if (!tightest) return best;
        }
        if (q->offset + q->bytes > end) end = q->offset + q->bytes;
    }
    return best == SIZE_MAX ? end : best;
}

/* The peak; as soon as it is not below `most`, SIZE_MAX. */
static size_t try_order(int64_t n, kolo_piece *piece, enum order order, bool tightest, size_t most,
                        ranked *rank, shelves *s)
{
    for (int64_t i = 0; i < n; i++) rank[i] = (ranked){key_of(&piece[i], order), i};
    qsort(rank, (size_t)n, sizeof *rank, place_compare);
    for (int k = 0; k <= SPANS; k++) s->of[k].count = 0;
    size_t peak = 0;
    for (int64_t i = 0; i < n; i++) {
        kolo_piece *p = &piece[rank[i].piece];
        p->offset = gap_for(piece, s, p, tightest);
        if (p->offset + p->bytes > peak) peak = p->offset + p->bytes;
        if (peak >= most) return SIZE_MAX;
        for (int k = span_of(s, p->begin); k <= span_of(s, p->end); k++)
            shelf_add(&s->of[k], piece, rank[i].piece);
        shelf_add(&s->of[SPANS], piece, rank[i].piece);
    }
    return peak;
}

/* The most bytes alive together; it is reached where some piece begins. */
static size_t most_alive(int64_t n, const kolo_piece *piece, ranked *begin, ranked *end)
{
    size_t most = 0, alive = 0;
    for (int64_t i = 0; i < n; i++) {
        begin[i] = (ranked){(double)piece[i].begin, i};
        end[i] = (ranked){(double)piece[i].end, i};
    }
    qsort(begin, (size_t)n, sizeof *begin, place_compare);
    qsort(end, (size_t)n, sizeof *end, place_compare);
    for (int64_t i = 0, ended = 0; i < n; i++) {
        for (; ended < i && end[ended].key < begin[i].key; ended++) alive -= piece[end[ended].piece].bytes;
        alive += piece[begin[i].piece].bytes;
        if (alive > most) most = alive;
    }
    return most;
}

int kolo_place_pieces(int64_t n, kolo_piece *piece, size_t *peak, size_t *least)
{
    shelves s = {.memory = NULL};
    ranked *rank = kolo_alloc((size_t)(n + 1) * sizeof *rank),
           *end = kolo_alloc((size_t)(n + 1) * sizeof *end);
    size_t *best = kolo_alloc((size_t)(n + 1) * sizeof *best);
    int rc = rank && end && best ? shelves_open(&s, n, piece) : KOLO_ENOMEM;
    if (rc < 0) goto fail;
    *peak = SIZE_MAX;
    *least = most_alive(n, piece, rank, end);
    for (int trial = 0; trial<2 * ORDERS && * peak> * least; trial++) {
        const size_t got = try_order(n, piece, (enum order)(trial / 2), trial % 2, *peak, rank, &s);
        if (got >= *peak) continue;
        *peak = got;
        for (int64_t i = 0; i < n; i++) best[i] = piece[i].offset;
    }
    for (int64_t i = 0; i < n; i++) piece[i].offset = best[i];
    if (n == 0) *peak = 0;
fail:
    free(rank);
    free(end);
    free(best);
    free(s.memory);
    return rc;
}

/* ---- the plan's values ----
 * A value is a tensor of one micro-batch, as the forward half makes it, as it comes back, or in the form in
 * which it is kept between (parts.h).
 * Where micro-batches are done one after another, the lifetimes of the first one are those of all, and so are
 * the places. */

typedef struct life {
    int slots;      /* that are placed by themselves: all, or the first for all */
    int64_t values; /* of a slot: 3 x tensors */
    kolo_piece *of; /* [slots][values] begin -1: has no memory here */
    int64_t *owner; /* [slots][values] the value whose memory this one takes over, or itself */
    int64_t *piece; /* [slots][values] */
} life;

static int64_t value_of(const life *l, int value, int slot)
{
    return (int64_t)(slot < l->slots ? slot : 0) * l->values + value;
}

static int tensor_of(const kolo_plan *plan, int64_t value) { return (int)(value % plan->graph->tensors); }

/* It is that in which an activation is kept. */
static bool is_formed(const life *l, const kolo_plan *plan, int64_t value)
{
    return value % l->values >= 2 * plan->graph->tensors;
}

/* The arena of a value; -1: it has a fixed place. */
static int arena_of(const life *l, const kolo_plan *plan, int64_t value)
{
    const int tensor = tensor_of(plan, value);
    if (value % l->values < plan->graph->tensors) return kolo_plan_placed_in(plan, tensor);
    const bool offloaded = is_formed(l, plan, value) && kolo_plan_form(plan, tensor) == KOLO_FORM_OFFLOADED;
    return offloaded ? KOLO_ARENA_OFFLOADED : KOLO_ARENA_ACTIVATION;
}

static void seen(life *l, const kolo_plan *plan, int value, int slot, int64_t at)
{
    if (value < 0 || arena_of(l, plan, value) < 0) return;
    const int tensor = tensor_of(plan, value);
    kolo_piece *p = &l->of[value_of(l, value, kolo_plan_slot(plan, tensor, slot))];
    const bool formed = is_formed(l, plan, value);
    if (p->begin < 0)
        *p = (kolo_piece){
            at, at, formed ? kolo_plan_form_bytes(plan, tensor) : kolo_plan_tensor_bytes(plan, tensor), 0};
    p->end = at;
}

int kolo_plan_action_values(const kolo_plan *plan, const kolo_action *a, int *value)
{
    const kolo_graph *g = plan->graph;
    int n = 0;
    if (a->kind == KOLO_ACTION_LOAD) {
        n = kolo_plan_loaded(plan, value);
    } else if (a->kind == KOLO_ACTION_RUN) {
        const kolo_node *node = &g->node[a->node];
        for (int k = 0; k < node->n_in; k++) value[n++] = kolo_plan_value(plan, a, node->in[k], false);
        for (int k = 0; k < node->n_out; k++) value[n++] = kolo_plan_value(plan, a, node->out[k], true);
    } else if (a->kind == KOLO_ACTION_SUM) {
        value[n++] = g->node[a->node].out[a->from];
    } else if (a->kind == KOLO_ACTION_COPY) {
        const bool sent = a->tensor == g->metrics;
        value[n++] = sent ? a->tensor : a->tensor + (int)g->tensors;
        value[n++] = sent ? a->tensor + (int)g->tensors : a->tensor;
    } else if (kolo_action_changes_form(a->kind)) {
        const int tensors = (int)g->tensors, formed = a->tensor + 2 * tensors;
        const bool back = kolo_action_restores(a->kind);
        value[n++] = back ? formed : a->tensor;
        value[n++] = back ? a->tensor + tensors : formed;
    } else if (kolo_action_transfers(a->kind)) {
        const kolo_transfer *t = &plan->transfer[a->transfer];
        const bool copied = t->sends && kolo_plan_is_late(plan) && kolo_plan_placed_in(plan, t->tensor) < 0;
        value[n++] = copied ? t->tensor + (int)g->tensors : t->tensor;
    }
    return n;
}

static void find_lives(life *l, const kolo_plan *plan)
{
    int value[2 * KOLO_MAX_ARGS];
    for (int64_t i = 0; i < plan->actions; i++) {
        const kolo_action *a = &plan->action[i];
        int n = a->slot < l->slots ? kolo_plan_action_values(plan, a, value) : 0;
        for (int k = 0; k < n; k++) seen(l, plan, value[k], a->slot, i);
    }
}

/* May the memory of a value become that of another one? */
static bool passes_on(const life *l, const kolo_plan *plan, int value)
{
    return plan->graph->tensor[tensor_of(plan, value)].role == KOLO_ROLE_ACTIVATION &&
           arena_of(l, plan, value) == KOLO_ARENA_ACTIVATION;
}

/* out[0] takes the memory of an input that dies there, where the operation allows it. */
static void take_over(life *l, const kolo_plan *plan)
{
    const kolo_graph *g = plan->graph;
    for (int64_t i = 0; i < plan->actions; i++) {
        const kolo_action *a = &plan->action[i];
        if (a->kind != KOLO_ACTION_RUN || a->slot >= l->slots) continue;
        const kolo_node *n = &g->node[a->node];
        int which = kolo_op_table[n->op].overwrite;
        if (which < 0 || which >= n->n_in || n->in[which] < 0 || n->out[0] < 0) continue;
        const int in = kolo_plan_value(plan, a, n->in[which], false),
                  out = kolo_plan_value(plan, a, n->out[0], true);
        int uses = 0;
        for (int k = 0; k < n->n_in; k++) uses += n->in[k] == n->in[which];
        if (uses > 1 || !passes_on(l, plan, in) || !passes_on(l, plan, out)) continue;
        const int64_t from = value_of(l, in, a->slot), to = value_of(l, out, a->slot);
        if (l->of[from].begin < 0 || l->of[from].end != i ||
            plan->layout[n->in[which]].bytes != plan->layout[n->out[0]].bytes)
            continue;
        l->owner[to] = l->owner[from];
        if (l->of[to].end > l->of[l->owner[from]].end) l->of[l->owner[from]].end = l->of[to].end;
    }
}

/* Those of one arena. */
static int place_lives(life *l, kolo_plan *plan, int arena, size_t *peak, size_t *least)
{
    const int64_t values = l->slots * l->values;
    int64_t n = 0;
    kolo_piece *piece = kolo_alloc((size_t)(values + 1) * sizeof *piece);
    if (!piece) return KOLO_ENOMEM;
    for (int64_t v = 0; v < values; v++)
        if (l->of[v].begin >= 0 && l->owner[v] == v && arena_of(l, plan, v) == arena) {
            l->piece[v] = n;
            piece[n++] = l->of[v];
        }
    int rc = kolo_place_pieces(n, piece, peak, least);
    for (int64_t v = 0; v < values && rc == 0; v++)
        if (l->of[v].begin >= 0 && arena_of(l, plan, v) == arena)
            l->of[v].offset = piece[l->piece[l->owner[v]]].offset;
    free(piece);
    return rc;
}

static void bind_all(const life *l, kolo_plan *plan, size_t slot_bytes)
{
    int value[2 * KOLO_MAX_ARGS];
    for (int64_t i = 0; i < plan->actions; i++) {
        const kolo_action *a = &plan->action[i];
        int n = kolo_plan_action_values(plan, a, value);
        for (int k = 0; k < n; k++) {
            kolo_binding *b = &plan->binding[a->binding + k];
            if (b->arena != KOLO_ARENA_ACTIVATION && b->arena != KOLO_ARENA_TRANSFER &&
                b->arena != KOLO_ARENA_OFFLOADED)
                continue;
            const int slot = value[k] < 0 ? 0 : kolo_plan_slot(plan, tensor_of(plan, value[k]), a->slot);
            b->offset = l->of[value_of(l, value[k], slot)].offset + (size_t)slot * slot_bytes;
        }
        if (!kolo_action_transfers(a->kind)) continue;
        const kolo_binding *b = &plan->binding[a->binding];
        plan->transfer[a->transfer].offset =
            b->offset + (b->arena == KOLO_ARENA_TRANSFER ? kolo_plan_transfer_base(plan) : 0);
    }
}

static void live_to_the_end(life *l, const kolo_plan *plan, bool outputs_only)
{
    for (int64_t v = 0; v < l->slots * l->values; v++)
        if (!outputs_only || (kolo_graph_is_output(plan->graph, tensor_of(plan, v)) && l->of[v].begin >= 0))
            l->of[v].end = INT64_MAX - 1;
}

/* Micro-batches are under way together in a pipeline only. */
static int life_open(life *l, const kolo_plan *plan)
{
    l->slots = plan->config.placement ? plan->config.slots : 1;
    l->values = 3 * plan->graph->tensors;
    const size_t values = (size_t)l->slots * (size_t)l->values + 1;
    l->of = kolo_alloc(values * sizeof *l->of);
    l->owner = kolo_alloc(values * sizeof *l->owner);
    l->piece = kolo_alloc(values * sizeof *l->piece);
    if (!l->of || !l->owner || !l->piece) return KOLO_ENOMEM;
    for (size_t v = 0; v < values; v++) {
        l->of[v].begin = -1;
        l->owner[v] = (int64_t)v;
    }
    return 0;
}

int kolo_plan_place(kolo_plan *plan)
{
    size_t *bytes = plan->arena_bytes, least;
    life l = {0};
    int rc;
    KOLO_TRY_GOTO(rc, life_open(&l, plan));
    find_lives(&l, plan);
    if (!plan->graph->train) live_to_the_end(&l, plan, true); /* what an evaluation is for */
    if (plan->config.keep) live_to_the_end(&l, plan, false);
    else take_over(&l, plan);
    KOLO_TRY_GOTO(rc, place_lives(&l, plan, KOLO_ARENA_TRANSFER, &bytes[KOLO_ARENA_TRANSFER], &least));
    KOLO_TRY_GOTO(rc, place_lives(&l, plan, KOLO_ARENA_OFFLOADED, &bytes[KOLO_ARENA_OFFLOADED], &least));
    KOLO_TRY_GOTO(rc, place_lives(&l, plan, KOLO_ARENA_ACTIVATION, &bytes[KOLO_ARENA_ACTIVATION],
                                  &plan->least_activation));
    const bool apart = plan->config.keep && l.slots == 1;
    bind_all(&l, plan, apart ? bytes[KOLO_ARENA_ACTIVATION] : 0);
    if (apart) {
        bytes[KOLO_ARENA_ACTIVATION] *= (size_t)plan->config.slots;
        plan->least_activation *= (size_t)plan->config.slots;
    }
fail:
    free(l.of);
    free(l.owner);
    free(l.piece);
    return rc;
}
