#include "train/times.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/memory.h"
#include "base/thread.h"
#include "comm/algorithm/algorithm.h"
#include "exec/clock.h"
#include "kolo/error.h"
#include "plan/price.h"
#include "plan/shard.h"
#include "train/known_times.h"
#include "train/parts.h"

/* ---- of a plan ---- */

typedef struct times {
    const kolo_session *session;
    kolo_choices known;
    kolo_play_time *node; /* [graph->nodes] */
    double crowd;         /* how much longer things take with all cores busy, where that is not known */
    kolo_byte_seconds byte;
    double varies; /* share of a step, on average; 0: not known */
    kolo_times_from from;
} times;

/* Operations that were measured; of the rest those of all. */
static void find_nodes(times *t)
{
    const kolo_plan *p = t->session->plan;
    double alone = 0, crowded = 0;
    for (int i = 0; i < p->graph->nodes; i++) {
        char key[128];
        known_kernel_key(p, i, key, sizeof key);
        if (!known_times_find(&t->known, key, &t->node[i])) continue;
        t->from.measured++;
        alone += t->node[i].alone;
        crowded += t->node[i].crowded;
    }
    t->from.operations = (int)p->graph->nodes;
    kolo_play_time varies, beside;
    if (known_times_find(&t->known, "a step varies by", &varies)) t->varies = fmin(varies.crowded, .2);
    if (known_times_find(&t->known, "others beside", &beside)) t->crowd = beside.crowded;
    if (alone > 0) t->crowd = crowded / alone;
}

/* ---- alone ---- */

static void alone_key(const kolo_plan *p, int64_t node, char *key, size_t size)
{
    char kernel[96];
    known_kernel_key(p, node, kernel, sizeof kernel);
    snprintf(key, size, "alone %s", kernel);
}

/* What was timed now; of equal kernels one. */
static int keep_alone(kolo_choices *known, const kolo_plan *p, const double *seconds, const bool *timed)
{
    int rc = 0;
    for (int64_t i = 0; rc == 0 && i < p->graph->nodes; i++) {
        char key[128];
        kolo_play_time was;
        alone_key(p, i, key, sizeof key);
        if (timed[i] && !known_times_find(known, key, &was))
            rc = known_times_keep(known, key, (kolo_play_time){seconds[i], seconds[i]});
    }
    return rc;
}

static int clock_rest(const kolo_session *s, kolo_choices *known, const kolo_plan *p, int tries,
                      double *seconds, bool *timed)
{
    const int64_t nodes = p->graph->nodes;
    bool *now = kolo_alloc((size_t)(nodes + 1) * sizeof *now);
    if (!now) return KOLO_ENOMEM;
    for (int64_t i = 0; i < nodes; i++) {
        char key[128];
        kolo_play_time t;
        alone_key(p, i, key, sizeof key);
        timed[i] = seconds[i] <= 0 && known_times_find(known, key, &t) && t.alone > 0;
        if (timed[i]) seconds[i] = t.alone;
    }
    int rc = kolo_exec_clock(p, s->backend, s->untimed ? 0 : tries, seconds, now);
    if (rc == 0) rc = keep_alone(known, p, seconds, now);
    for (int64_t i = 0; i < nodes; i++) timed[i] = timed[i] || now[i];
    free(now);
    return rc;
}

/* In steps; where ranks fill the cores, with all of them busy. Returns how many. */
static int find_measured(const kolo_session *s, kolo_choices *known, const kolo_plan *p, double *seconds,
                         bool *measured)
{
    const bool crowded = s->ranks * s->options->threads >= kolo_node_cpu_count();
    int count = 0;
    for (int64_t i = 0; i < p->graph->nodes; i++) {
        char key[128];
        kolo_play_time t;
        known_kernel_key(p, i, key, sizeof key);
        measured[i] = seconds[i] <= 0 && known_times_find(known, key, &t) && t.alone > 0;
        if (measured[i]) seconds[i] = crowded ? t.crowded : t.alone;
        count += measured[i];
    }
    return count;
}

int kolo_session_clock(const kolo_session *s, const kolo_plan *p, int tries, double *seconds, bool *timed)
{
    kolo_choices known;
    const size_t nodes = (size_t)p->graph->nodes;
    bool *all = kolo_alloc((nodes + 1) * sizeof *all), *measured = kolo_alloc((nodes + 1) * sizeof *measured);
    int rc = all && measured ? known_times_open(s, &known) : KOLO_ENOMEM;
    if (rc == 0 && find_measured(s, &known, p, seconds, measured) < (int)nodes)
        rc = clock_rest(s, &known, p, tries, seconds, all);
    for (size_t i = 0; rc == 0 && timed && i < nodes; i++) timed[i] = all[i] || measured[i];
    if (all && measured) kolo_choices_close(&known);
    free(all);
    free(measured);
    return rc;
}

/* What was not measured in steps. */
static int clock_nodes(times *t)
{
    const kolo_session *s = t->session;
    const int nodes = (int)s->graph->nodes;
    double *seconds = kolo_alloc((size_t)(nodes + 1) * sizeof *seconds);
    bool *timed = kolo_alloc((size_t)(nodes + 1) * sizeof *timed);
    int rc = seconds && timed ? 0 : KOLO_ENOMEM;
    for (int i = 0; rc == 0 && i < nodes; i++) seconds[i] = t->node[i].alone;
    if (rc == 0) rc = clock_rest(s, &t->known, s->plan, 3, seconds, timed);
    for (int i = 0; rc == 0 && i < nodes; i++) {
        t->from.timed += timed[i];
        if (t->node[i].alone <= 0) t->node[i] = (kolo_play_time){seconds[i], seconds[i] * t->crowd};
    }
    free(seconds);
    free(timed);
    return rc;
}

static int times_open(times *t, const kolo_session *s)
{
    *t = (times){.session = s, .crowd = 1};
    t->node = kolo_alloc((size_t)(s->graph->nodes + 1) * sizeof *t->node);
    if (!t->node) return KOLO_ENOMEM;
    KOLO_TRY(known_times_open(s, &t->known));
    find_nodes(t);
    return 0;
}

static void times_close(times *t)
{
    kolo_choices_close(&t->known);
    free(t->node);
}

/* A byte that is copied: memory is read, and what is written is read, too, before it is written. */
enum { COPIED = 3 };

/* Bytes through memory of what is no operation. A rank first copies its own part of what it gathers. */
static double bytes_of(const kolo_plan *p, const kolo_action *a, const kolo_cost *cost)
{
    switch (a->kind) {
    case KOLO_ACTION_GATHER:
        if (!kolo_plan_shards(p, KOLO_shard_parameters)) return 0;
        return COPIED * (double)p->unit[a->unit].params * sizeof(float) / p->config.shards;
    case KOLO_ACTION_COLLECT:
    case KOLO_ACTION_SHARE:
    case KOLO_ACTION_TAKE:
    case KOLO_ACTION_COPY:
    case KOLO_ACTION_STASH: return COPIED * cost->written;
    default: return cost->read + cost->written;
    }
}

/* By what was measured of it, or by the rate of memory. */
static kolo_play_time other(times *t, const kolo_plan *p, const kolo_action *a, const kolo_cost *cost)
{
    char key[128];
    kolo_play_time byte;
    const double bytes = bytes_of(p, a, cost);
    if (bytes <= 0) return (kolo_play_time){0, 0};
    known_action_key(p, a->kind, key, sizeof key);
    if (!known_times_find(&t->known, key, &byte)) byte = (kolo_play_time){t->byte.alone, t->byte.crowded};
    return (kolo_play_time){byte.alone * bytes, byte.crowded * bytes};
}

static int time_plan(times *t, const kolo_plan *p, kolo_play_time *time)
{
    const kolo_session *s = t->session;
    const bool rates = s->gpu && s->gpu->rates;
    kolo_cost *cost = kolo_alloc((size_t)(p->actions + 1) * sizeof *cost);
    int rc = KOLO_ENOMEM;
    if (cost)
        rc = rates ? kolo_plan_roofline(p, s->gpu->rates, s->options->precision == KOLO_precision_tf32, cost)
                   : kolo_plan_costs(p, cost);
    for (int64_t i = 0; rc == 0 && i < p->actions; i++) {
        const kolo_action *a = &p->action[i];
        if (rates) time[i] = (kolo_play_time){cost[i].seconds, cost[i].seconds};
        else if (a->kind == KOLO_ACTION_RUN) time[i] = t->node[a->node];
        else time[i] = other(t, p, a, &cost[i]);
    }
    free(cost);
    return rc;
}

/* ---- the node ---- */

/* Of a core by itself; 0: not known. */
static double own_cache_bytes(void)
{
    const long bytes = sysconf(_SC_LEVEL2_CACHE_SIZE);
    return bytes > 0 ? (double)bytes : 0;
}

/* 0: ranks do not take turns. */
static double turn_of(const kolo_session *s)
{
    const bool turns = kolo_exec_takes_turns(s->plan, s->options);
    return turns ? kolo_comm_turn_seconds(s->ranks, kolo_node_cpu_count()) : 0;
}

/* Of a core: what a rank leaves in its cache and what the next one needs go through memory, which is .1 to
 * .3 ms a turn of three ranks on two cores with 1 MiB each, as their steps have it. */
static double handover_seconds(const node_times *node)
{
    return node->wake + 2 * COPIED * own_cache_bytes() * node->byte.crowded;
}

/* What is added and copied between ranks: as `kolo bench --tune` found it, or by the rate of memory. A
 * thread that copies is woken, and then wakes the thread that waits for the copy. */
static int describe_node(times *t, kolo_fabric *fabric)
{
    const kolo_session *s = t->session;
    comm_selector *selector = NULL;
    node_times node;
    KOLO_TRY(node_times_measure(s, &t->known, false, &node));
    t->byte = node.byte;
    kolo_fabric_host h = {.cores = kolo_node_cpu_count(),
                          .threads = (int)s->options->threads,
                          .copy = COPIED * node.byte.alone,
                          .add = 3 * node.byte.alone,
                          .crowd = node.byte.crowded / node.byte.alone,
                          .turn = turn_of(s),
                          .handover = handover_seconds(&node),
                          .poll = kolo_comm_poll_seconds(s->ranks, kolo_node_cpu_count()),
                          .latency = 2 * node.wake};
    KOLO_TRY(comm_table_open(&selector, s->options->comm_table, NULL));
    const comm_cost *c = comm_selector_costs(selector);
    if (comm_selector_is_measured(selector)) {
        h.copy = c->beta[0];
        h.add = c->gamma;
        h.crowd = 1; /* they were measured between ranks */
        if (c->alpha[0] > h.latency) h.latency = c->alpha[0];
    }
    comm_selector_close(&selector);
    *fabric = kolo_fabric_node(&h);
    return 0;
}

/* ---- playing ---- */

static int play(times *t, const kolo_fabric *fabric, kolo_play **play)
{
    const kolo_session *s = t->session;
    const int stages = s->program ? s->grid.stages : 1;
    kolo_play_time **time = kolo_alloc((size_t)stages * sizeof *time);
    int rc = time ? 0 : KOLO_ENOMEM;
    for (int k = 0; rc == 0 && k < stages; k++) {
        const kolo_plan *p = s->program ? s->program->plan[k] : s->plan;
        time[k] = kolo_alloc((size_t)(p->actions + 1) * sizeof **time);
        rc = time[k] ? time_plan(t, p, time[k]) : KOLO_ENOMEM;
    }
    const kolo_play_input in = {.program = s->program,
                                .plan = s->plan,
                                .ranks = s->ranks,
                                .fabric = fabric,
                                .time = time,
                                .varies = t->varies};
    if (rc == 0) rc = kolo_play_create(play, &in);
    for (int k = 0; time && k < stages; k++) free(time[k]);
    free(time);
    return rc;
}

int kolo_session_play(const kolo_session *s, kolo_play **out, kolo_times_from *from)
{
    times t = {.session = s};
    kolo_fabric node;
    const bool there = s->gpu && s->gpu->rates;
    *out = NULL;
    if (s->cuda && !there)
        return kolo_fail(KOLO_ECONFIG, "a step on GPUs is played for a cluster: give cluster=NAME ranks=N");
    int rc = there ? 0 : times_open(&t, s);
    if (rc == 0 && !there) rc = clock_nodes(&t);
    if (rc == 0 && !there) rc = describe_node(&t, &node);
    if (rc == 0) rc = play(&t, there ? s->gpu->fabric : &node, out);
    if (from) *from = t.from;
    times_close(&t);
    return rc;
}

int kolo_session_work(const kolo_session *s, double *seconds)
{
    const int nodes = (int)s->graph->nodes;
    const bool rates = s->gpu && s->gpu->rates;
    times t = {.session = s};
    double *each = kolo_alloc((size_t)(nodes + 1) * sizeof *each);
    int rc = each ? 0 : KOLO_ENOMEM;
    if (rc == 0 && rates)
        rc = kolo_plan_roofline_nodes(s->plan, s->gpu->rates, s->options->precision == KOLO_precision_tf32,
                                      each);
    if (rc == 0 && !rates) rc = times_open(&t, s);
    if (rc == 0 && !rates) rc = clock_nodes(&t);
    *seconds = 0;
    for (int i = 0; rc == 0 && i < nodes; i++) *seconds += rates ? each[i] : t.node[i].alone;
    times_close(&t);
    free(each);
    return rc;
}

/* What steps of the whole network have not, such as halos, `kolo bench --tune kernels` has timed alone. */
static bool all_known(times *t)
{
    const kolo_plan *p = t->session->plan;
    for (int64_t i = 0; t->from.measured && i < p->graph->nodes; i++) {
        char key[128];
        kolo_play_time alone;
        if (t->node[i].alone > 0) continue;
        alone_key(p, i, key, sizeof key);
        if (!known_times_find(&t->known, key, &alone)) return false;
    }
    return t->from.measured > 0;
}

bool kolo_session_is_measured(const kolo_session *s)
{
    times t = {0};
    if (s->cuda || s->gpu || s->launch->nodes > 1 || !s->plan->config.optimizer) return false;
    const bool all = times_open(&t, s) == 0 && all_known(&t) && node_times_known(&t.known);
    times_close(&t);
    return all;
}
