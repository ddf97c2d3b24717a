/* Time goes from one end of a task to the next. Between two of them every task goes on at a constant rate,
 * which follows from what all of them use of a node. */
#include "plan/play.h"

#include <math.h>
#include <stdlib.h>

#include "base/memory.h"
#include "kolo/error.h"
#include "plan/play_game.h"
#include "plan/play_ranks.h"

static int note(game *g, const task *t)
{
    kolo_play *p = g->play;
    const kolo_play_span span = t->span;
    if (!t->noted || span.end <= span.start) return 0;
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

/* What all tasks use of a node together. */
typedef struct usage {
    double cores, network;
} usage;

/* Of what a task needs, the share that it has. */
static double held_by(const game *g, const task *t)
{
    const player *p = &g->player[t->span.stage];
    return t->span.lane == KOLO_PLAY_COMPUTE ? (double)p->held / p->here : 1;
}

/* How fast a task goes on beside all others. */
static double rate_of(const game *g, const task *t, const usage *u)
{
    const double all = g->in->fabric->cores, cores = u->cores, network = u->network;
    double rate = held_by(g, t);
    if (t->network > 0 && network > 1) rate /= network;
    if (t->cores <= 0) return rate;
    if (t->span.lane == KOLO_PLAY_COMPUTE && t->crowded > 1 && all > 1) {
        const double others = fmin(cores, all) - fmin(g->in->fabric->threads, all),
                     room = all - fmin(g->in->fabric->threads, all);
        if (room > 0) rate /= 1 + (t->crowded - 1) * fmax(others, 0) / room;
    }
    return rate / fmax(cores / all, 1);
}

static void account(game *g, double dt)
{
    for (int s = 0; s < g->stages; s++) {
        const player *p = &g->player[s];
        kolo_play_stage *of = &g->play->stage[s];
        if (!game_counts(g, p)) continue;
        if (p->computes) of->busy += dt;
        else if (p->met || (p->waits && !p->for_sums)) of->idle += dt;
        else if (p->waits) of->exposed += dt;
    }
}

/* Of a message to this player: on a node whoever looks for it sees it at once. */
static double flight_to(const game *g, const player *to, const double *there, double seconds)
{
    const kolo_fabric *f = g->in->fabric;
    return f->cores > 0 && (to->waits != there || g->now - to->waiting < f->poll) ? 0 : seconds;
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
        if (game_meets(g, p, kind)) p->met = true;
        else if (kind == KOLO_ACTION_GATHER) p->copied = true;
        else game_next(g, s);
        return note(g, &t);
    }
    if (t.span.lane == KOLO_PLAY_SUM) {
        p->sums.busy = false;
        p->sums.next++;
        if (game_counts(g, p)) g->play->stage[s].sums += t.span.end - t.span.start;
        return note(g, &t);
    }
    if (t.link < 0) return 0;
    queue *q = &g->link[t.link];
    const queued *item = &q->item[q->next++];
    const int64_t place = t.done - p->sent, batch = place % g->batches;
    const int number = (int)(place / g->batches), other = kolo_program_match(g->in->program, s, number);
    q->busy = false;
    if (other >= 0) {
        const player *to = &g->player[p->plan->transfer[number].peer];
        double *there = &to->there[other * g->batches + batch];
        const task flight = {
            .span = t.span, .latency = flight_to(g, to, there, item->flight), .done = there, .link = -1};
        KOLO_TRY(game_start(g, &flight));
    }
    return note(g, &t);
}

/* To the next end of a task. */
static int pass_time(game *g)
{
    usage u = {0};
    double dt = INFINITY;
    for (int64_t i = 0; i < g->tasks; i++) {
        const task *t = &g->task[i];
        if (t->latency > 0) continue;
        u.cores += t->cores * held_by(g, t);
        u.network += t->network;
    }
    for (int64_t i = 0; i < g->tasks; i++) {
        const task *t = &g->task[i];
        const double to = t->latency > 0 ? t->latency : t->left / rate_of(g, t, &u);
        if (to < dt) dt = to;
    }
    g->now += dt;
    account(g, dt);
    const int64_t before = g->tasks;
    for (int64_t i = 0; i < before; i++) {
        task *t = &g->task[i];
        if (t->latency > 0) t->latency = t->latency - dt <= dt * 1e-12 ? 0 : t->latency - dt;
        else t->left -= dt * rate_of(g, t, &u);
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

static int play_all(game *g)
{
    for (bool any = true; any;) {
        any = false;
        KOLO_TRY(game_advance(g, &any));
        any = any || g->tasks;
        if (g->tasks) KOLO_TRY(pass_time(g));
    }
    for (int s = 0; s < g->stages; s++)
        if (g->player[s].step <= g->last)
            return kolo_fail(KOLO_EINTERNAL, "play: stage %d waits at action %lld for ever", s,
                             (long long)g->player[s].at);
    return 0;
}

/* ---- from beginning to end ---- */

static double *times_unknown(int64_t count)
{
    double *t = kolo_alloc((size_t)(count + 1) * sizeof *t);
    for (int64_t i = 0; t && i < count; i++) t[i] = -1;
    return t;
}

static int player_open(game *g, int stage)
{
    player *p = &g->player[stage];
    const kolo_plan *plan = g->in->program ? g->in->program->plan[stage] : g->in->plan;
    const int replicas = plan->config.ranks,
              shards = plan->config.shards > 1 ? plan->config.shards : replicas;
    *p = (player){.plan = plan, .time = g->in->time[stage], .sum = -1, .step = p->step};
    p->cost = kolo_alloc((size_t)(plan->actions + 1) * sizeof *p->cost);
    p->bucket = times_unknown(plan->buckets);
    p->unit = times_unknown(plan->units);
    p->posted = times_unknown(plan->transfers * g->batches);
    p->sent = times_unknown(plan->transfers * g->batches);
    p->there = times_unknown(plan->transfers * g->batches);
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

/* Times are of one of the steps that count; what is seen begins at 0. */
static void average_steps(const game *g)
{
    kolo_play *p = g->play;
    const double steps = (double)(g->end - g->begin);
    double first = INFINITY;
    for (int s = 0; s < p->stages; s++) {
        kolo_play_stage *of = &p->stage[s];
        of->busy /= steps;
        of->sums /= steps;
        of->exposed /= steps;
        of->idle /= steps;
        of->sent /= steps;
        of->end = (of->end - g->player[s].begun) / steps;
    }
    for (int64_t i = 0; i < p->spans; i++) first = fmin(first, p->span[i].start);
    for (int64_t i = 0; i < p->spans; i++) {
        p->span[i].start -= first;
        p->span[i].end -= first;
    }
}

/* Ranks that have the same to do, more of them than cores and no multiple, do not end together: who ends last
 * is, on average, half a turn ahead of cores that are idle by then. */
static double end_unevenly(const game *g, double step)
{
    const int here = g->player[0].here, cores = (int)g->in->fabric->cores;
    if (!g->turns || g->stages > 1 || here <= cores || here % cores == 0) return 0;
    return fmin(g->in->fabric->turn, step * cores / here) / 2 * (cores - 1) / cores;
}

static void conclude(const game *g)
{
    kolo_play *p = g->play;
    double idle = 0, step = g->now;
    if (g->batches > 1) {
        average_steps(g);
        step = 0;
        for (int s = 0; s < p->stages; s++) step = fmax(step, p->stage[s].end);
    }
    const double wait = g->in->varies * largest_of(g->in->ranks) * step + end_unevenly(g, step);
    for (int s = 0; s < p->stages; s++) p->stage[s].exposed += wait;
    p->step = step + wait;
    for (int s = 0; s < p->stages; s++) idle += p->step - p->stage[s].busy - p->stage[s].exposed;
    if (p->step > 0 && p->stages > 1) p->bubble = idle / (p->step * p->stages);
}

/* A step; of a late pipeline so many that those in the middle are alike. */
static void choose_steps(game *g)
{
    int ahead = 0, behind = 0;
    g->batches = g->end = 1;
    for (int s = 0; g->in->program && s < g->stages; s++) {
        const kolo_plan *plan = g->in->program->plan[s];
        for (int64_t i = 0; plan->ring && i < plan->actions; i++) {
            if (plan->action[i].ahead > ahead) ahead = plan->action[i].ahead;
            if (-plan->action[i].ahead > behind) behind = -plan->action[i].ahead;
        }
    }
    if (g->in->program && kolo_plan_is_late(g->in->program->plan[0])) {
        const int fill = 2 * g->stages + behind, count = 2 * g->stages;
        g->begin = fill;
        g->end = fill + count;
        g->batches = g->end + ahead;
    }
    g->last = g->batches - 1 + behind;
    for (int s = 0; s < g->stages; s++) g->player[s].step = -ahead;
}

static void share_cores(game *g)
{
    const kolo_fabric *f = g->in->fabric;
    g->free = (int)f->cores;
    g->turns = f->turn > 0 && g->in->ranks > g->free;
}

int kolo_play_create(kolo_play **play, const kolo_play_input *in)
{
    const int stages = in->program ? in->program->grid->stages : 1;
    game g = {.in = in, .stages = stages};
    *play = g.play = kolo_alloc(sizeof **play);
    g.player = kolo_alloc((size_t)stages * sizeof *g.player);
    g.link = kolo_alloc((size_t)stages * (size_t)stages * sizeof *g.link);
    g.open = kolo_alloc((size_t)stages * (size_t)stages * sizeof *g.open);
    if (g.play) {
        g.play->stages = stages;
        g.play->stage = kolo_alloc((size_t)stages * sizeof *g.play->stage);
    }
    int rc = g.play && g.player && g.link && g.open && g.play->stage ? 0 : KOLO_ENOMEM;
    if (rc == 0) choose_steps(&g);
    if (rc == 0) share_cores(&g);
    for (int s = 0; rc == 0 && s < stages; s++) rc = player_open(&g, s);
    if (rc == 0) rc = play_all(&g);
    if (rc == 0) conclude(&g);
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
