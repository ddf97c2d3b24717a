/* Weights that ranks average: actions SHARE and TAKE, and the mean of all ranks' weights as an evaluation, a
 * checkpoint or an export has it. What travels stands in the place of gradients, which the step has used. */
#include "exec/parts.h"
#include "optim/outer.h"
#include "plan/shard.h"
#include "kolo/error.h"

enum { ANCHOR, MOMENTUM }; /* of an outer optimizer */

void kolo_exec_exchange(kolo_exec *e, enum kolo_exchange exchange) { e->exchange = exchange; }

int exec_sum_number(const kolo_exec *e, int bucket, int version)
{
    const enum kolo_exchange exchange = e->current->plan->config.exchange;
    if (exchange == KOLO_EXCHANGE_NODE) return e->node.number[bucket];
    if (exchange == KOLO_EXCHANGE_GRADIENTS && e->group.number) return e->group.number[bucket];
    return e->bucket_number[version * e->plan->buckets + bucket];
}

/* Of a bucket of parameters: its weights, its average, or a state of the optimizer. */
static char *average_place(const kolo_exec *e, enum kolo_arena arena, int state, int bucket)
{
    const size_t begin = (size_t)e->plan->bucket[bucket].param * sizeof(float);
    return e->arena[arena] + (size_t)state * kolo_plan_state_bytes(e->plan) + begin;
}

/* Where a bucket's gradients are, statistics and metrics that it may begin with aside. */
static float *gradients(const kolo_exec *e, int bucket)
{
    const size_t begin = (size_t)e->plan->bucket[bucket].param * sizeof(float);
    return (float *)(e->arena[KOLO_ARENA_GRADIENT] + e->plan->reduced_front + begin);
}

static bool is_in(const kolo_exec *e, const kolo_running *k, int bucket)
{
    const kolo_bucket *b = &e->plan->bucket[bucket];
    const size_t at = (size_t)((const char *)k->statistic - e->arena[KOLO_ARENA_GRADIENT]);
    return at >= b->offset && at < b->offset + (size_t)b->count * sizeof(float);
}

/* Running statistics to the place of the batch's. */
static int share_running(kolo_exec *e, int bucket)
{
    const kolo_updater_config *u = &e->updater[0]->config;
    for (int i = 0; i < u->runnings; i++) {
        const kolo_running *k = &u->running[i];
        const size_t bytes = (size_t)k->channels * sizeof(float);
        for (int j = 0; j < 2 && is_in(e, k, bucket); j++)
            KOLO_TRY(kolo_backend_copy(e->backend, KOLO_LANE_COMPUTE,
                                       (float *)(uintptr_t)k->statistic + j * k->channels, k->running[j],
                                       bytes));
    }
    return 0;
}

/* And back: to themselves, or to their average. */
static int take_running(kolo_exec *e, int bucket, float ranks, bool average)
{
    const kolo_updater_config *u = &e->updater[0]->config;
    for (int i = 0; i < u->runnings; i++) {
        const kolo_running *k = &u->running[i];
        for (int j = 0; j < 2 && is_in(e, k, bucket); j++)
            KOLO_TRY(kolo_backend_divide(e->backend, average ? k->ema[j] : k->running[j],
                                         k->statistic + j * k->channels, ranks, k->channels));
    }
    return 0;
}

int exec_share(kolo_exec *e, int bucket, int what)
{
    const size_t bytes = (size_t)e->plan->bucket[bucket].params * sizeof(float);
    if (bytes == 0) return share_running(e, bucket);
    const bool weights = what == KOLO_SHARE_WEIGHTS;
    return kolo_backend_copy(e->backend, KOLO_LANE_COMPUTE, gradients(e, bucket),
                             average_place(e, weights ? KOLO_ARENA_PARAM : KOLO_ARENA_STATE,
                                           weights ? 0 : what - KOLO_SHARE_STATE, bucket),
                             bytes);
}

static float *outer_state(const kolo_exec *e, int state, int bucket)
{
    const kolo_plan *p = e->plan;
    if (state >= kolo_outer_states(p->config.outer)) return NULL;
    return (float *)(void *)average_place(e, KOLO_ARENA_STATE, kolo_plan_own_states(p) + state, bucket);
}

/* The mean stands in the place of gradients; host memory. */
static void outer_step(kolo_exec *e, int bucket, float *param, int64_t count)
{
    const kolo_outer outer = kolo_outer_of(e->options, e->plan->config.ranks);
    kolo_outer_update(&outer, e->in_flight[e->begun % e->flights].step.lr, param,
                      outer_state(e, ANCHOR, bucket), outer_state(e, MOMENTUM, bucket), gradients(e, bucket),
                      count);
}

int kolo_exec_anchor(kolo_exec *e)
{
    const kolo_plan *p = e->plan;
    for (int b = 0; b < p->buckets && p->config.outer; b++) {
        const size_t bytes = (size_t)p->bucket[b].params * sizeof(float);
        float *momentum = outer_state(e, MOMENTUM, b);
        if (!bytes) continue;
        KOLO_TRY(kolo_backend_copy(e->backend, KOLO_LANE_COMPUTE, outer_state(e, ANCHOR, b),
                                   average_place(e, KOLO_ARENA_PARAM, 0, b), bytes));
        if (momentum) KOLO_TRY(kolo_backend_fill(e->backend, KOLO_LANE_COMPUTE, momentum, 0, bytes));
    }
    return 0;
}

int kolo_exec_average_at_anchor(kolo_exec *e)
{
    const kolo_plan *p = e->plan;
    KOLO_TRY(kolo_exec_average(e));
    for (int b = 0; b < p->buckets && p->config.outer; b++)
        if (p->bucket[b].params)
            KOLO_TRY(kolo_backend_copy(e->backend, KOLO_LANE_COMPUTE, average_place(e, KOLO_ARENA_EMA, 0, b),
                                       outer_state(e, ANCHOR, b),
                                       (size_t)p->bucket[b].params * sizeof(float)));
    return kolo_backend_finish(e->backend);
}

int exec_take(kolo_exec *e, int bucket, int what)
{
    const int64_t count = e->plan->bucket[bucket].params;
    const bool weights = what == KOLO_SHARE_WEIGHTS;
    const bool node = e->current->plan->config.exchange == KOLO_EXCHANGE_NODE;
    const float ranks = (float)(node ? e->node.ranks : e->plan->config.ranks);
    if (count == 0) return take_running(e, bucket, ranks, false);
    float *to = (float *)(void *)average_place(e, weights ? KOLO_ARENA_PARAM : KOLO_ARENA_STATE,
                                               weights ? 0 : what - KOLO_SHARE_STATE, bucket);
    const bool outer = weights && !node && e->plan->config.outer;
    KOLO_TRY(kolo_backend_divide(e->backend, outer ? gradients(e, bucket) : to, gradients(e, bucket), ranks,
                                 count));
    if (outer) outer_step(e, bucket, to, count);
    if (!weights || !e->arena[KOLO_ARENA_SHADOW]) return 0;
    return kolo_backend_narrow(
        e->backend, e->arena[KOLO_ARENA_SHADOW] + (size_t)e->plan->bucket[bucket].param * sizeof(uint16_t),
        e->plan->graph->dtype, to, count);
}

static int take_average(kolo_exec *e, int bucket, float ranks)
{
    const int64_t count = e->plan->bucket[bucket].params;
    if (count == 0) return take_running(e, bucket, ranks, true);
    return kolo_backend_divide(e->backend, (float *)(void *)average_place(e, KOLO_ARENA_EMA, 0, bucket),
                               gradients(e, bucket), ranks, count);
}

/* The bucket takes no part in a sum. */
static int share_nothing(kolo_exec *e, int bucket)
{
    const kolo_bucket *b = &e->plan->bucket[bucket];
    return kolo_backend_fill(e->backend, KOLO_LANE_COMPUTE, e->arena[KOLO_ARENA_GRADIENT] + b->offset, 0,
                             (size_t)b->count * sizeof(float));
}

/* EMA becomes the sum of what those that share have, divided by their number. */
static int form_average(kolo_exec *e, bool shares, float number)
{
    const kolo_plan *p = e->plan;
    const bool many = p->config.ranks > 1;
    if (!p->config.local || e->reported < e->issued)
        return kolo_fail(KOLO_EINTERNAL, "executor: no averages of ranks, or a step is under way");
    for (int b = 0; b < p->buckets; b++) {
        KOLO_TRY(shares ? exec_share(e, b, KOLO_SHARE_WEIGHTS) : share_nothing(e, b));
        if (many) KOLO_TRY(kolo_comm_start(e->comm, e->bucket_number[b]));
    }
    for (int b = 0; b < p->buckets; b++) {
        if (many) KOLO_TRY(exec_await_ranks(e, e->bucket_number[b]));
        KOLO_TRY(take_average(e, b, number));
    }
    e->changes++;
    return kolo_backend_finish(e->backend);
}

int kolo_exec_average(kolo_exec *e) { return form_average(e, true, (float)e->plan->config.ranks); }

int kolo_exec_average_of(kolo_exec *e, int replica)
{
    const int own = e->plan->config.ranks > 1 ? kolo_comm_launch(e->comm)->rank : 0;
    return form_average(e, own == replica, 1);
}

int kolo_exec_adopt_average(kolo_exec *e)
{
    const kolo_plan *p = e->plan;
    const size_t params = p->param_bytes, buffers = p->arena_bytes[KOLO_ARENA_BUFFER];
    const char *average = e->arena[KOLO_ARENA_EMA];
    if (!p->config.local) return kolo_fail(KOLO_EINTERNAL, "executor: no averages of ranks");
    KOLO_TRY(kolo_backend_copy(e->backend, KOLO_LANE_COMPUTE, e->arena[KOLO_ARENA_PARAM], average, params));
    if (buffers)
        KOLO_TRY(kolo_backend_copy(e->backend, KOLO_LANE_COMPUTE, e->arena[KOLO_ARENA_BUFFER],
                                   average + params, buffers));
    e->changes++;
    return kolo_backend_finish(e->backend);
}

int kolo_exec_reset_optimizer(kolo_exec *e)
{
    const size_t bytes = e->plan->arena_bytes[KOLO_ARENA_STATE];
    return bytes ? kolo_backend_fill(e->backend, KOLO_LANE_COMPUTE, e->arena[KOLO_ARENA_STATE], 0, bytes) : 0;
}
