#include "cmd/plan_step.h"

#include <stdlib.h>

#include "base/memory.h"
#include "exec/clock.h"
#include "plan/partition.h"
#include "plan/price.h"

/* Two lanes, as the executor has them. */
typedef struct lanes {
    double now, lane;      /* when computing, and communication, has come to its end */
    double *bucket, *unit; /* [buckets], [units] when each is there */
} lanes;

static double link_seconds(const kolo_cost *cost)
{
    return kolo_link_assumed.latency + cost->sent / kolo_link_assumed.bandwidth;
}

static double send(lanes *l, const kolo_cost *cost)
{
    return l->lane = (l->lane > l->now ? l->lane : l->now) + link_seconds(cost);
}

static void pass(lanes *l, const kolo_action *a, const kolo_cost *cost, double seconds)
{
    switch (a->kind) {
    case KOLO_ACTION_REDUCE: l->bucket[a->bucket] = send(l, cost); return;
    case KOLO_ACTION_GATHER: l->unit[a->unit] = send(l, cost); return;
    case KOLO_ACTION_SUM:
    case KOLO_ACTION_NOISE: l->now = send(l, cost); return;
    case KOLO_ACTION_WAIT:
        if (l->bucket[a->bucket] > l->now) l->now = l->bucket[a->bucket];
        return;
    case KOLO_ACTION_GATHERED:
        if (l->unit[a->unit] > l->now) l->now = l->unit[a->unit];
        return;
    default: l->now += seconds;
    }
}

int kolo_plan_step(const kolo_session *s, const double *node, double *seconds)
{
    const kolo_plan *p = s->plan;
    kolo_cost *cost = kolo_alloc((size_t)(p->actions + 1) * sizeof *cost);
    lanes l = {.bucket = kolo_alloc((size_t)(p->buckets + 1) * sizeof(double)),
               .unit = kolo_alloc((size_t)(p->units + 1) * sizeof(double))};
    int rc = cost && l.bucket && l.unit ? kolo_plan_costs(p, cost) : KOLO_ENOMEM;
    const double rate = rc == 0 ? kolo_exec_memory_rate(s->backend, s->untimed ? 0 : 3) : 1;
    for (int64_t i = 0; rc == 0 && i < p->actions; i++) {
        const kolo_action *a = &p->action[i];
        pass(&l, a, &cost[i],
             a->kind == KOLO_ACTION_RUN ? node[a->node] : (cost[i].read + cost[i].written) / rate);
    }
    *seconds = l.now;
    free(cost);
    free(l.bucket);
    free(l.unit);
    return rc;
}
