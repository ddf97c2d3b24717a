/* Time goes from one end of a task to the next. Between two of them every task goes on at a constant rate,
 * which follows from what all of them use of a node. */
#include "plan/play.h"

#include <math.h>
#include <stdlib.h>

#include "base/memory.h"
#include "kolo/error.h"
#include "plan/order.h"
#include "plan/play_ranks.h"
#include "plan/price.h"

/* What is under way. Of a stage's lane one, of a link one, and any number of messages that have left it. */
typedef struct task {
    kolo_play_span span; /* its end is open */
    double latency;      /* seconds to come in which it uses nothing */
    double left;         /* of its work, in seconds at full rate */
    double crowded;      /* computing: how many times slower with all cores busy */
    double network, cores;
    double *done; /* where its end is noted; NULL: nobody asks */
    int link;     /* of a message: the number of its link; -1 */
} task;

/* A sum or a message that waits for its lane. */
typedef struct queued {
    task task;
    const double *ready; /* of a message: when the other side is ready for it; NULL: it is */
    double flight;       /* seconds behind the link */
} queued;

typedef struct queue {
    queued *item;
    int64_t count, next, room;
    bool busy;
} queue;

/* A stage while it plays. Times are -1 until they have come. */
typedef struct player {
    const kolo_plan *plan;
    const kolo_play_time *time; /* [actions] */
    kolo_cost *cost;            /* [actions] */
    int64_t at;                 /* next action */
    bool computes;
    queue sums;
    double *bucket, *unit;         /* [buckets], [units] when each is there */
    double *posted, *sent, *there; /* [transfers] the receiver's place is free; it has left; it is there */
    double sum;                    /* a blocking one, which has been started (summing) */
    bool summing;
    double *waits;                /* for what it waits; NULL: it does not */
    bool for_sums;                /* likewise: a sum, not another stage */
    bool met;                     /* it is in a sum in which all stages meet */
    kolo_fabric_group group, all; /* ranks of the stage, those of a shard's group or all of it */
    int here;                     /* its ranks on a node */
} player;

typedef struct game {
    const kolo_play_input *in;
    int stages;
    bool late; /* its batches overlap over the step's end */
    double now;
    kolo_play *play;
    player *player;
    queue *link;      /* [stages * stages] */
    int *open, opens; /* links on which something waits */
    task *task;       /* under way */
    int64_t tasks, room;
} game;

/* ---- what is seen ---- */

static int note(game *g, kolo_play_span span)
{
    kolo_play *p = g->play;
    if (span.end <= span.start) return 0;
    for (int64_t i = p->spans - 1; i >= 0 && i > p->spans - 4; i--) {
        kolo_play_span *last = &p->span[i];
        if (last->stage != span.stage || last->lane != span.lane) continue;
        const bool alike =
            last->pass == span.pass && last->slot == span.slot && (span.pass >= 0 || last->kind == span.kind);
        if (span.lane != KOLO_PLAY_COMPUTE || !alike || last->end < span.start) break;
        last->end = span.end;
        return 0;
    }
    KOLO_TRY(kolo_grow(&p->span, &p->room, p->spans, sizeof *p->span));
    p->span[p->spans++] = span;
    return 0;
}

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

/* ---- tasks ---- */

static int start(game *g, const task *t)
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
    return start(g, &first->task);
}

static int compute(game *g, int stage)
{
    player *p = &g->player[stage];
    task t = {.span = span_of(g, stage, KOLO_PLAY_COMPUTE),
              .left = p->time[p->at].alone,
              .crowded = p->time[p->at].crowded,
              .cores = g->in->fabric->cores > 0 ? p->here * g->in->fabric->threads : 0,
              .link = -1};
    t.crowded = t.left > 0 ? t.crowded / t.left : 1;
    p->computes = true;
    return start(g, &t);
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
                                  .link = -1}};
    *done = -1;
    g->play->stage[stage].sent += sent;
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

static int send(game *g, int stage)
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
                                  .done = &p->sent[number],
                                  .link = link},
                         .ready = other >= 0 ? &g->player[t->peer].posted[other] : NULL,
                         .flight = l.latency};
    g->play->stage[stage].sent += (double)t->bytes;
    if (g->link[link].next == g->link[link].count) g->open[g->opens++] = link;
    return enqueue(&g->link[link], &item);
}

/* ---- actions ---- */

/* 1: it has to wait. */
static int wait_for(player *p, double *until, bool sums)
{
    p->for_sums = sums;
    p->waits = *until < 0 ? until : NULL;
    return p->waits != NULL;
}

/* Sums over all ranks, in which all stages meet. */
static bool is_meeting(const game *g, const player *p, enum kolo_action_kind kind)
{
    return g->stages > 1 && kolo_plan_meets(p->plan, kind);
}

/* The next action of a stage; 1: it cannot go on for now. What computes is counted when it has ended. */
static int act(game *g, int stage)
{
    player *p = &g->player[stage];
    const kolo_action *a = &p->plan->action[p->at];
    switch (a->kind) {
    case KOLO_ACTION_REDUCE: KOLO_TRY(reduce(g, stage, &p->bucket[a->bucket])); break;
    case KOLO_ACTION_GATHER:
        KOLO_TRY(sum_over(g, stage, &p->group, p->cost[p->at].sent, false, &p->unit[a->unit]));
        break;
    case KOLO_ACTION_WAIT:
        /* gradients that are applied late are there, or nearly so */
        if (p->plan->config.late == 0 && wait_for(p, &p->bucket[a->bucket], true)) return 1;
        break;
    case KOLO_ACTION_GATHERED:
        if (wait_for(p, &p->unit[a->unit], true)) return 1;
        break;
    case KOLO_ACTION_SEND:
        if (g->late) g->play->stage[stage].sent += (double)p->plan->transfer[a->transfer].bytes;
        else KOLO_TRY(send(g, stage));
        break;
    case KOLO_ACTION_RECEIVE: p->posted[a->transfer] = g->now; break;
    case KOLO_ACTION_TRANSFERRED: {
        if (g->late) break; /* it is of another step: play_steady.c */
        double *until = p->plan->transfer[a->transfer].sends ? &p->sent[a->transfer] : &p->there[a->transfer];
        if (wait_for(p, until, false)) return 1;
        break;
    }
    case KOLO_ACTION_SUM:
    case KOLO_ACTION_NOISE:
        if (is_meeting(g, p, a->kind)) return compute(g, stage) < 0 ? KOLO_ENOMEM : 1;
        if (!p->summing) KOLO_TRY(sum_over(g, stage, &p->all, p->cost[p->at].sent, true, &p->sum));
        p->summing = wait_for(p, &p->sum, true);
        if (p->summing) return 1;
        break;
    default: return compute(g, stage) < 0 ? KOLO_ENOMEM : 1;
    }
    p->at++;
    return 0;
}

/* As far as a stage comes by itself. */
static int go_on(game *g, int stage, bool *moved)
{
    player *p = &g->player[stage];
    while (p->at < p->plan->actions && !p->computes && !p->met) {
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
        p->at++;
        wait_for(p, &p->sum, true);
        KOLO_TRY(start(g, &t));
    }
    *moved = true;
    return 0;
}

/* ---- time ---- */

/* How fast a task goes on where all together use so much of a node. */
static double rate_of(const game *g, const task *t, double cores, double network)
{
    const double all = g->in->fabric->cores;
    double rate = 1;
    if (t->network > 0 && network > 1) rate = 1 / network;
    if (t->cores <= 0) return rate;
    if (t->span.lane == KOLO_PLAY_COMPUTE && t->crowded > 1 && all > 1) {
        const double others = fmin(cores, all) - fmin(g->in->fabric->threads, all),
                     room = all - fmin(g->in->fabric->threads, all);
        if (room > 0) rate /= 1 + (t->crowded - 1) * fmax(others, 0) / room;
    }
    return cores > all ? rate * all / cores : rate;
}

static void account(game *g, double dt)
{
    for (int s = 0; s < g->stages; s++) {
        const player *p = &g->player[s];
        kolo_play_stage *of = &g->play->stage[s];
        if (p->computes) of->busy += dt;
        else if (p->met || (p->waits && !p->for_sums)) of->idle += dt;
        else if (p->waits) of->exposed += dt;
    }
}

static int finish(game *g, task t)
{
    const int s = t.span.stage;
    player *p = &g->player[s];
    t.span.end = g->now;
    if (t.done) *t.done = g->now;
    if (t.span.lane == KOLO_PLAY_COMPUTE) {
        const enum kolo_action_kind kind = p->plan->action[p->at].kind;
        p->computes = false;
        if (is_meeting(g, p, kind)) p->met = true;
        else p->at++;
        return note(g, t.span);
    }
    if (t.span.lane == KOLO_PLAY_SUM) {
        p->sums.busy = false;
        p->sums.next++;
        g->play->stage[s].sums += t.span.end - t.span.start;
        return note(g, t.span);
    }
    if (t.link < 0) return 0;
    queue *q = &g->link[t.link];
    const queued *item = &q->item[q->next++];
    const int number = (int)(t.done - p->sent), other = kolo_program_match(g->in->program, s, number);
    q->busy = false;
    if (other >= 0) {
        const task flight = {.span = t.span,
                             .latency = item->flight,
                             .done = &g->player[p->plan->transfer[number].peer].there[other],
                             .link = -1};
        KOLO_TRY(start(g, &flight));
    }
    return note(g, t.span);
}

/* To the next end of a task. */
static int pass_time(game *g)
{
    double cores = 0, network = 0, dt = INFINITY;
    for (int64_t i = 0; i < g->tasks; i++)
        if (g->task[i].latency <= 0) cores += g->task[i].cores, network += g->task[i].network;
    for (int64_t i = 0; i < g->tasks; i++) {
        const task *t = &g->task[i];
        const double to = t->latency > 0 ? t->latency : t->left / rate_of(g, t, cores, network);
        if (to < dt) dt = to;
    }
    g->now += dt;
    account(g, dt);
    const int64_t before = g->tasks;
    for (int64_t i = 0; i < before; i++) {
        task *t = &g->task[i];
        if (t->latency > 0) t->latency = t->latency - dt <= dt * 1e-12 ? 0 : t->latency - dt;
        else t->left -= dt * rate_of(g, t, cores, network);
    }
    int64_t kept = 0;
    for (int64_t i = 0; i < g->tasks; i++) { /* those that begin meanwhile stand behind them */
        const task t = g->task[i];
        const bool ends = i < before && t.latency <= 0 && t.left <= 1e-12 + dt * 1e-12;
        if (ends) KOLO_TRY(finish(g, t));
        else g->task[kept++] = t;
    }
    g->tasks = kept;
    return 0;
}

/* All that can be started at this moment; whether anything was. */
static int start_all(game *g, bool *any)
{
    for (bool moved = true; moved; *any = *any || moved) {
        moved = false;
        for (int s = 0; s < g->stages; s++) {
            KOLO_TRY(go_on(g, s, &moved));
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
    for (int s = 0; s < g->stages; s++) {
        const player *p = &g->player[s];
        kolo_play_stage *of = &g->play->stage[s];
        if (p->at == p->plan->actions && !p->computes && of->end == 0) of->end = g->now;
    }
    return 0;
}

static int play_all(game *g)
{
    for (bool any = true; any;) {
        any = false;
        KOLO_TRY(start_all(g, &any));
        any = any || g->tasks;
        if (g->tasks) KOLO_TRY(pass_time(g));
    }
    for (int s = 0; s < g->stages; s++)
        if (g->player[s].at < g->player[s].plan->actions)
            return kolo_fail(KOLO_EINTERNAL, "play: stage %d waits at action %lld for ever", s,
                             (long long)g->player[s].at);
    return 0;
}

/* ---- from beginning to end ---- */

static double *times_unknown(int count)
{
    double *t = kolo_alloc((size_t)(count + 1) * sizeof *t);
    for (int i = 0; t && i < count; i++) t[i] = -1;
    return t;
}

static int player_open(game *g, int stage)
{
    player *p = &g->player[stage];
    const kolo_plan *plan = g->in->program ? g->in->program->plan[stage] : g->in->plan;
    const int replicas = plan->config.ranks,
              shards = plan->config.shards > 1 ? plan->config.shards : replicas;
    *p = (player){.plan = plan, .time = g->in->time[stage], .sum = -1};
    p->cost = kolo_alloc((size_t)(plan->actions + 1) * sizeof *p->cost);
    p->bucket = times_unknown(plan->buckets);
    p->unit = times_unknown(plan->units);
    p->posted = times_unknown(plan->transfers);
    p->sent = times_unknown(plan->transfers);
    p->there = times_unknown(plan->transfers);
    if (!p->cost || !p->bucket || !p->unit || !p->posted || !p->sent || !p->there) return KOLO_ENOMEM;
    p->all = kolo_play_group(g->in, stage, 0, replicas);
    p->group = kolo_play_group(g->in, stage, 0, shards);
    p->here = kolo_play_here(g->in, stage, replicas);
    return kolo_plan_costs(plan, p->cost);
}

static void game_close(game *g)
{
    for (int s = 0; g->player && s < g->stages; s++) {
        player *p = &g->player[s];
        free(p->cost);
        free(p->bucket);
        free(p->unit);
        free(p->posted);
        free(p->sent);
        free(p->there);
        free(p->sums.item);
    }
    for (int i = 0; g->link && i < g->stages * g->stages; i++) free(g->link[i].item);
    free(g->player);
    free(g->link);
    free(g->open);
    free(g->task);
}

/* The largest of n normal draws, in mean deviations above their mean (Blom 1958). */
static double largest_of(int n)
{
    static const double few[] = {0, 0, 0.564, 0.846, 1.029, 1.163, 1.267, 1.352, 1.424};
    const double deviation = 1.2533; /* of mean deviations: sqrt(pi / 2) */
    return deviation * (n <= 8 ? few[n] : sqrt(2 * log(n)) - 0.6);
}

static void conclude(const game *g)
{
    kolo_play *p = g->play;
    double idle = 0;
    const double wait = g->in->varies * largest_of(g->in->ranks) * g->now;
    for (int s = 0; s < p->stages; s++) p->stage[s].exposed += wait;
    p->step = g->now + wait;
    for (int s = 0; s < p->stages; s++) idle += p->step - p->stage[s].busy - p->stage[s].exposed;
    if (p->step > 0 && p->stages > 1) p->bubble = idle / (p->step * p->stages);
}

int kolo_play_create(kolo_play **play, const kolo_play_input *in)
{
    const int stages = in->program ? in->program->grid->stages : 1;
    game g = {.in = in, .stages = stages, .late = in->program && kolo_plan_is_late(in->program->plan[0])};
    *play = g.play = kolo_alloc(sizeof **play);
    g.player = kolo_alloc((size_t)stages * sizeof *g.player);
    g.link = kolo_alloc((size_t)stages * (size_t)stages * sizeof *g.link);
    g.open = kolo_alloc((size_t)stages * (size_t)stages * sizeof *g.open);
    if (g.play) {
        g.play->stages = stages;
        g.play->stage = kolo_alloc((size_t)stages * sizeof *g.play->stage);
    }
    int rc = g.play && g.player && g.link && g.open && g.play->stage ? 0 : KOLO_ENOMEM;
    for (int s = 0; rc == 0 && s < stages; s++) rc = player_open(&g, s);
    if (rc == 0) rc = play_all(&g);
    if (rc == 0) conclude(&g);
    if (rc == 0 && g.late) rc = kolo_play_steady(g.play, in->program->plan[0]);
    game_close(&g);
    if (rc < 0) kolo_play_destroy(play);
    return rc;
}

void kolo_play_destroy(kolo_play **play)
{
    if (!*play) return;
    free((*play)->stage);
    free((*play)->span);
    free(*play);
    *play = NULL;
}
