/* What actions begin, and what they wait for. */
#include "plan/play_game.h"

#include "base/memory.h"
#include "kolo/error.h"
#include "plan/order.h"
#include "plan/play_ranks.h"

static kolo_play_span span_of(const game *g, int stage, enum kolo_play_lane lane)
{
    const player *p = &g->player[stage];
    const kolo_action *a = &p->plan->action[p->at];
    const int pass = a->kind == KOLO_ACTION_RUN ? (int)kolo_plan_pass(p->plan, a->node) : -1;
    /* made a second time, it is part of the backward half */
    return (kolo_play_span){.stage = stage,
                            .lane = lane,
                            .kind = a->kind,
                            .pass = pass >= 0 && a->again ? KOLO_PASS_BACKWARD : pass,
                            .slot = a->slot,
                            .start = g->now};
}

void game_next(game *g, int stage)
{
    player *p = &g->player[stage];
    if (++p->at < p->plan->actions) return;
    p->at = 0;
    p->step++;
    if (p->step == g->begin) p->begun = g->now;
    if (p->step == g->end) g->play->stage[stage].end = g->now;
}

int game_start(game *g, const task *t)
{
    KOLO_TRY(kolo_grow(&g->task, &g->room, g->tasks, sizeof *g->task));
    g->task[g->tasks] = *t;
    g->task[g->tasks++].span.start = g->now;
    return 0;
}

static int enqueue(queue *q, const queued *item)
{
    KOLO_TRY(kolo_grow(&q->item, &q->room, q->count, sizeof *q->item));
    q->item[q->count++] = *item;
    return 0;
}

/* The first that waits, if its lane is free and the other side ready. */
static int dequeue(game *g, queue *q, bool *moved)
{
    if (q->busy || q->next == q->count) return 0;
    const queued *first = &q->item[q->next];
    if (first->ready && *first->ready < 0) return 0;
    q->busy = *moved = true;
    return game_start(g, &first->task);
}

static int compute(game *g, int stage)
{
    player *p = &g->player[stage];
    task t = {.span = span_of(g, stage, KOLO_PLAY_COMPUTE),
              .left = p->time[p->at].alone,
              .crowded = p->time[p->at].crowded,
              .cores = g->in->fabric->cores > 0 ? p->here * g->in->fabric->threads : 0,
              .link = -1,
              .noted = p->step == g->end - 1};
    t.crowded = t.left > 0 ? t.crowded / t.left : 1;
    p->computes = true;
    t.left += game_take_cores(g, p);
    return game_start(g, &t);
}

static int sum_over(game *g, int stage, const kolo_fabric_group *group, double sent, bool whole, double *done)
{
    player *p = &g->player[stage];
    const kolo_fabric_load l = kolo_fabric_sum(g->in->fabric, group, sent, whole);
    const queued item = {.task = {.span = span_of(g, stage, KOLO_PLAY_SUM),
                                  .latency = l.latency,
                                  .left = l.seconds,
                                  .network = l.network,
                                  .cores = l.cores,
                                  .done = done,
                                  .link = -1,
                                  .noted = p->step == g->end - 1}};
    *done = -1;
    if (game_counts(g, p)) g->play->stage[stage].sent += sent;
    return enqueue(&p->sums, &item);
}

/* A sum of all; of shards their parts of it, and where groups of them have copies, then each part over the
 * groups. */
static int reduce(game *g, int stage, double *done)
{
    player *p = &g->player[stage];
    const kolo_plan_config *c = &p->plan->config;
    const kolo_bucket *b = &p->plan->bucket[p->plan->action[p->at].bucket];
    const int groups = c->shards > 1 ? c->ranks / c->shards : 1;
    if (c->shards <= 1 || b->unit < 0) return sum_over(g, stage, &p->all, p->cost[p->at].sent, true, done);
    KOLO_TRY(sum_over(g, stage, &p->group, p->cost[p->at].sent, false, done));
    if (groups <= 1) return 0;
    const kolo_fabric_group over = {.ranks = groups,
                                    .nodes = p->all.nodes < groups ? p->all.nodes : groups,
                                    .beside = p->here < c->shards ? p->here : c->shards};
    const double bytes = (double)b->count * sizeof(float) / c->shards;
    p->sums.item[p->sums.count - 1].task.done = NULL; /* it is there when the second one is */
    return sum_over(g, stage, &over, 2.0 * (groups - 1) / groups * bytes, true, done);
}

static double *of_batch(const game *g, double *times, int transfer, int64_t batch)
{
    return &times[transfer * g->batches + batch];
}

static int send(game *g, int stage, int64_t batch)
{
    player *p = &g->player[stage];
    const int number = p->plan->action[p->at].transfer;
    const kolo_transfer *t = &p->plan->transfer[number];
    const int other = kolo_program_match(g->in->program, stage, number), link = stage * g->stages + t->peer;
    const bool near = kolo_play_same_node(g->in, stage, t->peer);
    const kolo_fabric_load l = kolo_fabric_send(g->in->fabric, near, p->here, (double)t->bytes);
    const queued item = {.task = {.span = span_of(g, stage, KOLO_PLAY_LINK),
                                  .left = l.seconds,
                                  .network = l.network,
                                  .cores = l.cores,
                                  .done = of_batch(g, p->sent, number, batch),
                                  .link = link,
                                  .noted = p->step == g->end - 1},
                         .ready = other >= 0 ? of_batch(g, g->player[t->peer].posted, other, batch) : NULL,
                         .flight = l.latency};
    if (game_counts(g, p)) g->play->stage[stage].sent += (double)t->bytes;
    if (g->link[link].next == g->link[link].count) g->open[g->opens++] = link;
    return enqueue(&g->link[link], &item);
}

/* ---- actions ---- */

/* 1: it has to wait. */
static int wait_for(const game *g, player *p, double *until, bool sums)
{
    p->waiting = g->now;
    p->for_sums = sums;
    p->waits = *until < 0 ? until : NULL;
    return p->waits != NULL;
}

bool game_meets(const game *g, const player *p, enum kolo_action_kind kind)
{
    return g->stages > 1 && kolo_plan_meets(p->plan, kind);
}

/* The next action of a stage; 1: it cannot go on for now. What computes is counted when it has ended. */
static int act(game *g, int stage)
{
    player *p = &g->player[stage];
    const kolo_action *a = &p->plan->action[p->at];
    const int64_t batch = p->step + (p->plan->ring ? a->ahead : 0);
    if (batch < 0 || batch >= g->batches) {
        game_next(g, stage);
        return 0;
    }
    switch (a->kind) {
    case KOLO_ACTION_REDUCE: KOLO_TRY(reduce(g, stage, &p->bucket[a->bucket])); break;
    case KOLO_ACTION_GATHER:
        if (!p->copied && p->time[p->at].alone > 0) return compute(g, stage) < 0 ? KOLO_ENOMEM : 1;
        p->copied = false;
        KOLO_TRY(sum_over(g, stage, &p->group, p->cost[p->at].sent, false, &p->unit[a->unit]));
        break;
    case KOLO_ACTION_WAIT:
        /* gradients that are applied late are there, or nearly so */
        if (p->plan->config.late == 0 && wait_for(g, p, &p->bucket[a->bucket], true)) return 1;
        break;
    case KOLO_ACTION_GATHERED:
        if (wait_for(g, p, &p->unit[a->unit], true)) return 1;
        break;
    case KOLO_ACTION_SEND: KOLO_TRY(send(g, stage, batch)); break;
    case KOLO_ACTION_RECEIVE: *of_batch(g, p->posted, a->transfer, batch) = g->now; break;
    case KOLO_ACTION_TRANSFERRED: {
        double *times = p->plan->transfer[a->transfer].sends ? p->sent : p->there;
        if (wait_for(g, p, of_batch(g, times, a->transfer, batch), false)) return 1;
        break;
    }
    case KOLO_ACTION_SUM:
    case KOLO_ACTION_NOISE:
        if (game_meets(g, p, a->kind)) return compute(g, stage) < 0 ? KOLO_ENOMEM : 1;
        if (!p->summing) KOLO_TRY(sum_over(g, stage, &p->all, p->cost[p->at].sent, true, &p->sum));
        p->summing = wait_for(g, p, &p->sum, true);
        if (p->summing) return 1;
        break;
    default: return compute(g, stage) < 0 ? KOLO_ENOMEM : 1;
    }
    game_next(g, stage);
    return 0;
}

/* As far as a stage comes by itself. */
static int go_on(game *g, int stage, bool *moved)
{
    player *p = &g->player[stage];
    while (p->step <= g->last && !p->computes && !p->met) {
        if (p->waits && *p->waits < 0) return 0;
        p->waits = NULL;
        const int rc = act(g, stage);
        KOLO_TRY(rc);
        *moved = *moved || rc == 0 || p->computes;
        if (rc == 1) return 0;
    }
    return 0;
}

/* All stages are in a sum of all: when it is there each goes on. */
static int meet(game *g, bool *moved)
{
    for (int s = 0; s < g->stages; s++)
        if (!g->player[s].met) return 0;
    const kolo_fabric_group line = {.ranks = g->stages,
                                    .nodes = kolo_play_same_node(g->in, 0, g->stages - 1) ? 1 : g->stages,
                                    .beside = 1};
    const kolo_fabric_load l = kolo_fabric_sum(g->in->fabric, &line, 0, true);
    for (int s = 0; s < g->stages; s++) {
        player *p = &g->player[s];
        const task t = {
            .span = span_of(g, s, KOLO_PLAY_LINK), .latency = l.latency, .done = &p->sum, .link = -1};
        p->met = false;
        p->sum = -1;
        game_next(g, s);
        wait_for(g, p, &p->sum, true);
        KOLO_TRY(game_start(g, &t));
    }
    *moved = true;
    return 0;
}

int game_advance(game *g, bool *any)
{
    for (bool moved = true; moved; *any = *any || moved) {
        moved = false;
        for (int s = 0; s < g->stages; s++) {
            KOLO_TRY(go_on(g, s, &moved));
            if (!g->player[s].computes) game_leave_cores(g, &g->player[s]);
            KOLO_TRY(dequeue(g, &g->player[s].sums, &moved));
        }
        int opens = 0;
        for (int i = 0; i < g->opens; i++) {
            queue *q = &g->link[g->open[i]];
            KOLO_TRY(dequeue(g, q, &moved));
            if (q->next < q->count) g->open[opens++] = g->open[i];
        }
        g->opens = opens;
        KOLO_TRY(meet(g, &moved));
    }
    return 0;
}
