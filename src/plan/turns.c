/* The operations of this rank's stage, its turns, and what crosses the borders of the stage in them. One
 * stage is a pipeline like any: its turns are the forward and the backward half of one micro-batch after the
 * other. */
#include <stdlib.h>

#include "base/memory.h"
#include "kolo/error.h"
#include "plan/parts.h"

static int chunk_of(const kolo_plan *plan, int64_t node)
{
    const kolo_placement *p = plan->config.placement;
    return p ? kolo_placement_chunk(p, p->part[node]) : 0;
}

static int stage_of(const kolo_plan *plan, int64_t node)
{
    const kolo_placement *p = plan->config.placement;
    return p ? kolo_placement_stage(p, p->part[node]) : 0;
}

/* Of the backward half: only gradients of parameters, or terms of them? */
static bool makes_gradients_alone(const kolo_graph *g, const kolo_node *n)
{
    for (int k = 0; k < n->n_out; k++)
        if (n->out[k] >= 0 && !kolo_tensor_is_gradient(&g->tensor[n->out[k]])) return false;
    return true;
}

/* The sum of terms has the pass of its terms. So a norm's gradients are of one pass whether its map is cut
 * into parts or not, which depends on the size of the images. */
enum kolo_pass kolo_plan_pass(const kolo_plan *plan, int64_t node)
{
    const kolo_placement *p = plan->config.placement;
    const kolo_graph *g = plan->graph;
    const kolo_node *n = &g->node[node];
    if (!n->backward) return KOLO_PASS_FORWARD;
    if (!p || !kolo_pipeline[p->order].weights_apart) return KOLO_PASS_BACKWARD;
    if (n->op == KOLO_OP_total && g->tensor[n->in[0]].role == KOLO_ROLE_TERM)
        n = &g->node[g->tensor[n->in[0]].producer];
    return makes_gradients_alone(g, n) ? KOLO_PASS_WEIGHT : KOLO_PASS_BACKWARD;
}

/* What one kind of turn does is of one class, and classes are in the order in which they complete what is
 * reduced: forward from the first chunk on, then backward from the last. */
int kolo_plan_class(const kolo_plan *plan, int64_t node)
{
    const int chunk = chunk_of(plan, node),
              chunks = plan->config.placement ? plan->config.placement->chunks : 1;
    const enum kolo_pass pass = kolo_plan_pass(plan, node);
    if (pass == KOLO_PASS_FORWARD) return chunk;
    return chunks + 2 * (chunks - 1 - chunk) + (pass == KOLO_PASS_WEIGHT);
}

static int list_nodes(kolo_plan *plan)
{
    const kolo_graph *g = plan->graph;
    const int chunks = plan->config.placement ? plan->config.placement->chunks : 1, classes = 3 * chunks;
    plan->node = kolo_alloc((size_t)(g->nodes + 1) * sizeof *plan->node);
    if (!plan->node) return KOLO_ENOMEM;
    plan->nodes = 0;
    for (int c = 0; c < classes; c++)
        for (int64_t i = 0; i < g->nodes; i++)
            if (kolo_plan_has_node(plan, i) && kolo_plan_class(plan, i) == c)
                plan->node[plan->nodes++] = (int)i;
    return 0;
}

/* Of any stage: every rank knows the turns of all. */
static int create_turns(const kolo_plan *plan, int stage, kolo_turn **turn, int *turns)
{
    const kolo_placement *p = plan->config.placement;
    const bool backward = plan->graph->train;
    const int across = p ? p->across : 1;
    return (backward ? kolo_turns_create : kolo_turns_create_forward)(
        p ? p->order : KOLO_PIPELINE_1F1B, p ? p->stages / across : 1, stage / across, p ? p->chunks : 1,
        plan->config.slots, turn, turns);
}

static int find_turn(const kolo_turn *turn, int turns, enum kolo_pass pass, int chunk, int slot)
{
    for (int i = 0; i < turns; i++)
        if (turn[i].pass == pass && turn[i].chunk == chunk && turn[i].slot == slot) return i;
    return turns;
}

/* ---- transfers ----------------------------------------------------------------------------------------- */

/* A tensor that one stage makes and another one reads. */
typedef struct edge {
    int tensor, peer;
    bool sends;
    /* of the turns in which it is made and, by the receiver, first read */
    enum kolo_pass made, read;
    int made_chunk, read_chunk;
    int from, to;   /* parts */
    int64_t order;  /* of what the sender makes in a turn */
    int64_t reader; /* the first operation that reads it */
} edge;

typedef struct edges {
    edge *of;
    int64_t n, capacity;
} edges;

static int add_edge(edges *all, edge one)
{
    for (int64_t i = 0; i < all->n; i++)
        if (all->of[i].tensor == one.tensor && all->of[i].peer == one.peer) return 0; /* read again */
    KOLO_TRY(kolo_grow(&all->of, &all->capacity, all->n, sizeof *all->of));
    all->of[all->n++] = one;
    return 0;
}

/* Operation `node` reads tensor t: an edge, if another stage than its own makes it, and one of both is
 * this. */
static int add_read(const kolo_plan *plan, edges *all, int64_t node, int t)
{
    const kolo_graph *g = plan->graph;
    const bool loaded =
        t == g->label || (t == g->input && !g->input_grid[0]); /* parts: where they are read */
    if (t < 0 || (g->tensor[t].producer < 0 && !loaded)) return 0;
    const int64_t maker = loaded ? -1 : g->tensor[t].producer;
    const int from = loaded ? 0 : stage_of(plan, maker), to = stage_of(plan, node), me = plan->config.stage;
    if (from == to || (from != me && to != me)) return 0;
    return add_edge(all, (edge){.tensor = t,
                                .peer = from == me ? to : from,
                                .sends = from == me,
                                .made = loaded ? KOLO_PASS_FORWARD : kolo_plan_pass(plan, maker),
                                .read = kolo_plan_pass(plan, node),
                                .made_chunk = loaded ? 0 : chunk_of(plan, maker),
                                .read_chunk = chunk_of(plan, node),
                                .from = loaded ? 0 : plan->config.placement->part[maker],
                                .to = plan->config.placement->part[node],
                                .order = loaded ? t == g->label : maker + 2,
                                .reader = node});
}

/* An evaluation ends with a detector's heads, which several stages may make and which are looked at together:
 * by the stage of the last part. */
static int add_head(const kolo_plan *plan, edges *all, int t)
{
    const kolo_placement *p = plan->config.placement;
    const int64_t maker = plan->graph->tensor[t].producer;
    const int last = p->stages * p->chunks - 1, from = stage_of(plan, maker), me = plan->config.stage;
    const int to = kolo_placement_stage(p, last);
    if (from == to || (from != me && to != me)) return 0;
    return add_edge(all, (edge){.tensor = t,
                                .peer = from == me ? to : from,
                                .sends = from == me,
                                .made = KOLO_PASS_FORWARD,
                                .read = KOLO_PASS_FORWARD,
                                .made_chunk = chunk_of(plan, maker),
                                .read_chunk = kolo_placement_chunk(p, last),
                                .from = p->part[maker],
                                .to = last,
                                .order = maker + 2,
                                .reader = plan->graph->nodes}); /* behind the last operation */
}

/* Reads in the order of passes, so that an edge has the first one. */
static int find_edges(const kolo_plan *plan, edges *all)
{
    const kolo_graph *g = plan->graph;
    for (int pass = 0; pass < KOLO_PASSES; pass++)
        for (int64_t i = 0; i < g->nodes; i++)
            for (int k = 0; k < g->node[i].n_in && (int)kolo_plan_pass(plan, i) == pass; k++)
                KOLO_TRY(add_read(plan, all, i, g->node[i].in[k]));
    for (int i = 0; i < g->heads && !g->train; i++) KOLO_TRY(add_head(plan, all, g->head[i]));
    return 0;
}

/* Before which turn a sender waits until what it sent has gone. Where the micro-batch comes back, its
 * backward turn: what depends on the transfer has come from the receiver then, so nobody waits. Else when it
 * makes the one after the next: two of an edge are on their way. With several chunks a group of as many
 * micro-batches as stages goes through one after the other (order.c), and what the receiver does before may
 * need this stage's other chunks: the one of the next group. */
static int end_of(const kolo_plan *plan, const edge *e, int slot)
{
    const bool back = e->made == KOLO_PASS_FORWARD && plan->graph->train;
    const kolo_placement *p = plan->config.placement;
    const int next = slot + (p->chunks > 1 && p->stages > 2 ? p->stages : 2);
    if (back) return find_turn(plan->turn, plan->turns, KOLO_PASS_BACKWARD, e->made_chunk, slot);
    return next < plan->config.slots ? find_turn(plan->turn, plan->turns, e->made, e->made_chunk, next)
                                     : plan->turns;
}

/* A transfer and its place in the order of its sender's starts. */
typedef struct ranked {
    kolo_transfer of;
    int turn;
    int64_t order;
} ranked;

static int by_sender(const void *a, const void *b)
{
    const ranked *x = a, *y = b;
    if (x->of.sends != y->of.sends) return x->of.sends - y->of.sends;
    if (x->of.peer != y->of.peer) return x->of.peer - y->of.peer;
    if (x->turn != y->turn) return x->turn - y->turn;
    if (x->order != y->order) return x->order < y->order ? -1 : 1;
    return x->of.tensor - y->of.tensor;
}

/* What a late pipeline sends lies in a ring of places, and micro-batches follow one another over the
 * borders of steps: the turn before which what was sent in the backward half has gone may be of a later
 * step. */
static void end_late(const kolo_plan *plan, const edge *e, kolo_transfer *t)
{
    const int slots = plan->config.slots, next = t->slot + 2;
    if (!t->sends) {
        t->end_ahead = plan->turn[t->end].ahead;
        return;
    }
    if (e->made == KOLO_PASS_FORWARD) return; /* its backward turn, of this step's batch */
    t->end = find_turn(plan->turn, plan->turns, e->made, e->made_chunk, next % slots);
    t->end_ahead = -(next / slots);
}

/* Stages side by side do the same turns, and in each of them operations in the order of the graph, so what
 * one makes and the other reads in one turn needs its places for so long only: the receiver's from when it is
 * made, the sender's until it is read, and a few operations more, so that nobody waits. No two stages wait in
 * a circle, as each waits for operations of smaller number alone. */
enum { SLACK = 16 };
static void within_turn(const kolo_plan *plan, const edge *e, int need, kolo_transfer *t)
{
    const kolo_placement *p = plan->config.placement;
    if (kolo_plan_is_late(plan) || e->made != e->read || e->made_chunk != e->read_chunk ||
        e->peer / p->across != plan->config.stage / p->across)
        return;
    if (t->sends) {
        t->end = find_turn(plan->turn, plan->turns, e->made, e->made_chunk, t->slot);
        t->gone = e->reader + SLACK;
    } else {
        t->start = need;
        t->post = e->order >= 2 ? e->order - 2 : -1; /* a batch is loaded as the turn begins */
    }
}

/* The transfers of one edge, one a micro-batch; theirs: the sender's turns. */
static int64_t rank_edge(const kolo_plan *plan, const edge *e, const kolo_turn *theirs, int turns, ranked *to)
{
    const int slots = kolo_plan_is_shared(plan, e->tensor) ? 1 : plan->config.slots;
    for (int slot = 0; slot < slots; slot++) {
        const int need = find_turn(plan->turn, plan->turns, e->read, e->read_chunk, slot);
        to[slot] = (ranked){.of = {.tensor = e->tensor,
                                   .slot = slot,
                                   .peer = e->peer,
                                   .from = e->from,
                                   .to = e->to,
                                   .sends = e->sends,
                                   .start = e->sends ? -1 : need - 1,
                                   .end = e->sends ? end_of(plan, e, slot) : need,
                                   .post = -1,
                                   .gone = -1},
                            .turn = find_turn(theirs, turns, e->made, e->made_chunk, slot),
                            .order = e->order};
        if (kolo_plan_is_late(plan)) end_late(plan, e, &to[slot].of);
        within_turn(plan, e, need, &to[slot].of);
    }
    return slots;
}

/* Transfers from one stage begin in the order in which it sends them, so none may begin later than one that
 * follows it; each at least a turn before it is read, to come beside that turn's work, but within_turn. */
static void begin_in_order(ranked *all, int64_t n)
{
    for (int64_t i = n - 1; i >= 0; i--) {
        kolo_transfer *t = &all[i].of;
        const kolo_transfer *next = i + 1 < n ? &all[i + 1].of : NULL;
        if (t->sends) continue;
        if (t->start < 0) t->start = 0;
        if (!next || next->sends || next->peer != t->peer || next->start > t->start) continue;
        if (next->start < t->start || next->post < t->post) t->post = next->post;
        t->start = next->start;
    }
}

/* Turns counted through all steps, where those of batch 0 are done. */
static int through(const kolo_plan *plan, int turn, int ahead) { return turn - ahead * plan->turns; }

/* The same in a late pipeline, where what the first transfer of a batch follows is the last one of the batch
 * before: so twice through those of a peer, from the last to the first. A place may be offered in the list of
 * the step before, if the batch is known by then. */
static void begin_in_order_late(const kolo_plan *plan, ranked *all, int64_t n)
{
    for (int64_t last = n - 1; last >= 0;) {
        int64_t first = last;
        while (first > 0 && all[first - 1].of.peer == all[last].of.peer &&
               all[first - 1].of.sends == all[last].of.sends)
            first--;
        int bound = INT32_MAX;
        for (int64_t k = 2 * (last - first + 1) - 1; k >= 0 && !all[last].of.sends; k--) {
            kolo_transfer *t = &all[first + k % (last - first + 1)].of;
            const bool again = k < last - first + 1;
            int at = through(plan, t->start, again ? t->start_ahead : t->end_ahead);
            if (at > bound) at = bound;
            if (at < -kolo_plan_feed(plan) * plan->turns) at = -kolo_plan_feed(plan) * plan->turns;
            t->start_ahead = at < 0 ? (-at + plan->turns - 1) / plan->turns : 0;
            t->start = at + t->start_ahead * plan->turns;
            bound = k == last - first + 1 ? at + plan->turns : at;
        }
        last = first - 1;
    }
}

/* The metrics go from the stage that has them to all others, behind all else. In a late pipeline from a place
 * of their own, as those of the next batch are formed before the furthest stage asks for these; it does so
 * beside its last turn. */
static void add_metrics(const kolo_plan *plan, ranked *all, int64_t *n)
{
    const kolo_placement *p = plan->config.placement;
    const int metrics = plan->graph->metrics, slot = plan->config.slots - 1;
    if (!p || metrics < 0 || !plan->config.optimizer) return;
    const int from = kolo_placement_stage(p, p->owner[metrics]);
    const bool late = kolo_plan_is_late(plan), mine = from == plan->config.stage;
    for (int s = 0; s < p->stages; s++)
        if (from == plan->config.stage ? s != from : s == from)
            all[(*n)++] = (ranked){.of = {.tensor = metrics,
                                          .slot = slot,
                                          .peer = s,
                                          .sends = mine,
                                          .start = !late  ? plan->turns
                                                   : mine ? -1
                                                          : plan->turns - 1,
                                          .end = late && mine ? 0 : plan->turns,
                                          .end_ahead = late && mine ? -kolo_plan_feed(plan) - 1 : 0,
                                          .post = -1,
                                          .gone = -1},
                                   .turn = INT32_MAX};
}

static int rank_edges(const kolo_plan *plan, const edges *all, ranked *to, int64_t *n)
{
    for (int64_t i = 0; i < all->n; i++) {
        kolo_turn *turn = NULL;
        int turns = 0;
        KOLO_TRY(create_turns(plan, all->of[i].sends ? plan->config.stage : all->of[i].peer, &turn, &turns));
        *n += rank_edge(plan, &all->of[i], turn, turns, to + *n);
        free(turn);
    }
    add_metrics(plan, to, n);
    return 0;
}

static int create_transfers(kolo_plan *plan)
{
    edges all = {0};
    int64_t n = 0;
    ranked *list = NULL;
    int rc = find_edges(plan, &all);
    const int64_t most =
        all.n * plan->config.slots + (plan->config.placement ? plan->config.placement->stages : 0);
    if (rc == 0 && !(list = kolo_alloc((size_t)(most + 1) * sizeof *list))) rc = KOLO_ENOMEM;
    if (rc == 0) rc = rank_edges(plan, &all, list, &n);
    if (rc == 0 && !(plan->transfer = kolo_alloc((size_t)(n + 1) * sizeof *plan->transfer))) rc = KOLO_ENOMEM;
    if (rc == 0) {
        qsort(list, (size_t)n, sizeof *list, by_sender);
        if (kolo_plan_is_late(plan)) begin_in_order_late(plan, list, n);
        else begin_in_order(list, n);
        for (int64_t i = 0; i < n; i++) {
            plan->transfer[i] = list[i].of;
            plan->transfer[i].bytes = plan->layout[list[i].of.tensor].bytes;
        }
        plan->transfers = (int)n;
    }
    free(list);
    free(all.of);
    return rc;
}

int kolo_plan_create_turns(kolo_plan *plan)
{
    KOLO_TRY(list_nodes(plan));
    KOLO_TRY(create_turns(plan, plan->config.stage, &plan->turn, &plan->turns));
    plan->crosses = kolo_alloc((size_t)plan->graph->tensors + 1);
    if (!plan->crosses) return KOLO_ENOMEM;
    if (!plan->config.placement) return 0;
    KOLO_TRY(create_transfers(plan));
    for (int i = 0; i < plan->transfers; i++) plan->crosses[plan->transfer[i].tensor] = true;
    return 0;
}
