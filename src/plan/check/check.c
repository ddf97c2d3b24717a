/* The checker: plays the list of actions on paper and proves what plan.h promises. It shares no code with the
 * parts that made the plan: it knows only which bytes hold what. */
#include "plan/check/check.h"

#include <stdlib.h>
#include <string.h>

#include "base/memory.h"
#include "kolo/error.h"
#include "plan/shard.h"

int check_breach(const check *c, const char *what, int tensor, int slot)
{
    char text[256];
    kolo_plan_action_text(c->plan, c->at, text, sizeof text);
    if (tensor < 0)
        return kolo_fail(KOLO_EINTERNAL, "plan: action %lld (%s): %s", (long long)c->at, text, what);
    return kolo_fail(KOLO_EINTERNAL, "plan: action %lld (%s): %s: %s, micro-batch %d", (long long)c->at, text,
                     what, c->graph->tensor[tensor].name, slot);
}

/* The batch of a late pipeline's action is there. What there is one of in a batch counts as its
 * micro-batch 0. */
static bool find_batch(check *c, const kolo_action *a)
{
    const kolo_plan *p = c->plan;
    const bool transfers =
        p->ring && kolo_action_transfers(a->kind) && a->transfer >= 0 && a->transfer < p->transfers;
    const bool metrics = transfers && p->transfer[a->transfer].tensor == c->graph->metrics;
    c->batch = c->step + (p->ring ? a->ahead : 0);
    c->micro = c->batch * p->config.slots + (metrics ? 0 : a->slot);
    return c->batch >= 0 && c->batch < c->steps;
}

const kolo_binding *check_bindings(check *c, const kolo_action *a)
{
    const kolo_plan *p = c->plan;
    for (int k = 0; k < kolo_action_bindings(p, a); k++) {
        c->bound[k] = p->binding[a->binding + k];
        if (p->ring)
            c->bound[k].offset +=
                (size_t)kolo_ring_place(&p->ring[a->binding + k], c->batch, p->config.slots, a->slot) *
                p->ring[a->binding + k].stride;
    }
    return c->bound;
}

static int play_action(check *c, const kolo_action *a)
{
    switch (a->kind) {
    case KOLO_ACTION_LOAD: return check_on_load(c, a);
    case KOLO_ACTION_RUN: return check_on_run(c, a);
    case KOLO_ACTION_SUM: return check_on_sum(c, a);
    case KOLO_ACTION_FOLD: return check_on_fold(c, a);
    case KOLO_ACTION_REDUCE:
    case KOLO_ACTION_WAIT:
    case KOLO_ACTION_CLEAR:
    case KOLO_ACTION_COLLECT:
    case KOLO_ACTION_SQUARE:
    case KOLO_ACTION_DELTA:
    case KOLO_ACTION_APPLY:
    case KOLO_ACTION_UPDATE: return check_on_bucket(c, a);
    case KOLO_ACTION_SHARE:
    case KOLO_ACTION_TAKE: return check_on_share(c, a);
    case KOLO_ACTION_COPY: return check_on_copy(c, a);
    case KOLO_ACTION_STASH: return check_on_stash(c, a->bucket);
    case KOLO_ACTION_PREDICT: return check_on_predict(c, a->bucket);
    case KOLO_ACTION_SEND:
    case KOLO_ACTION_RECEIVE:
    case KOLO_ACTION_TRANSFERRED: return check_on_transfer(c, a);
    case KOLO_ACTION_FETCH:
    case KOLO_ACTION_EVICT: return check_on_state(c, a);
    case KOLO_ACTION_FETCH_PARAM:
    case KOLO_ACTION_EVICT_PARAM: return check_on_file_param(c, a);
    case KOLO_ACTION_GATHER:
    case KOLO_ACTION_GATHERED: return check_on_gather(c, a);
    case KOLO_ACTION_NOISE:
    case KOLO_ACTION_NORM:
    case KOLO_ACTION_LAYERS:
    case KOLO_ACTION_BUFFERS: return check_on_all(c, a);
    case KOLO_ACTION_ENCODE:
    case KOLO_ACTION_DECODE:
    case KOLO_ACTION_STORE:
    case KOLO_ACTION_STORED:
    case KOLO_ACTION_RETRIEVE:
    case KOLO_ACTION_RETRIEVED: return check_on_form(c, a);
    default: return check_breach(c, "unknown kind", -1, 0);
    }
}

static int play(check *c)
{
    for (c->at = 0; c->at < c->plan->actions; c->at++) {
        const kolo_action *a = &c->plan->action[c->at];
        const int rc = find_batch(c, a) ? play_action(c, a) : 0;
        if (rc < 0) return rc;
    }
    return 0;
}

/* ---- after the last action ---- */

static int check_end(check *c)
{
    const kolo_plan *p = c->plan;
    int measured = 0;
    for (int b = 0; b < p->buckets; b++) measured += p->bucket[b].params > 0 ? p->config.slots : 0;
    if (p->config.noise &&
        (c->squares != measured || c->noises != (p->config.ranks > 1 || p->config.placement)))
        return kolo_fail(KOLO_EINTERNAL, "plan: %d of %d parts are measured for the noise scale", c->squares,
                         measured);
    if (p->config.optimizer && !c->norms && (p->config.clip_norm || p->config.scaled || p->config.noise))
        return kolo_fail(KOLO_EINTERNAL, "plan: the norm of the gradients is never measured");
    if (p->config.optimizer && !c->layers && kolo_is_layerwise(p->config.optimizer))
        return kolo_fail(KOLO_EINTERNAL,
                         "plan: no LAYERS action decides the tensors' factors (LARS, LAMB, NovoGrad)");
    for (int b = 0; b < p->buckets; b++) {
        if (check_in_window(c, b) ? !c->collected[b] : !check_finished(c, b))
            return kolo_fail(KOLO_EINTERNAL, "plan: bucket %d is not complete at the end of the step", b);
        if (!p->config.optimizer) continue;
        if (kolo_plan_reduces(&p->config) && !c->waited[b])
            return kolo_fail(KOLO_EINTERNAL, "plan: bucket %d is never reduced", b);
        if (c->averaged[b] != check_averages(c, b))
            return kolo_fail(KOLO_EINTERNAL, "plan: not all of bucket %d is averaged", b);
        if (p->bucket[b].params > 0 && !c->updated[b])
            return kolo_fail(KOLO_EINTERNAL, "plan: bucket %d is never updated", b);
    }
    for (int u = 0; u < p->units; u++)
        if (c->here[u]) return kolo_fail(KOLO_EINTERNAL, "plan: the parameters of unit %d stay here", u);
    for (int u = 0; u < p->units && (p->config.offload & KOLO_OFFLOAD_STATE); u++)
        if (c->fetched[u] != DONE)
            return kolo_fail(KOLO_EINTERNAL, "plan: the state of unit %d stays here", u);
    for (int u = 0; u < p->units && p->config.shards > 1 && !kolo_plan_shards(p, KOLO_shard_parameters); u++)
        if (p->config.optimizer && c->gathered[u] != DONE)
            return kolo_fail(KOLO_EINTERNAL, "plan: unit %d is not gathered behind its update", u);
    for (int t = 0; t < p->graph->tensors; t++) {
        bool reduced = p->fixed[t].arena == KOLO_ARENA_GRADIENT;
        if (reduced && c->written[t] != p->config.slots)
            return kolo_fail(KOLO_EINTERNAL, "plan: %s is not written in every micro-batch",
                             p->graph->tensor[t].name);
        if (reduced && p->graph->tensor[t].role == KOLO_ROLE_STATISTIC && p->config.optimizer && !c->buffers)
            return kolo_fail(KOLO_EINTERNAL, "plan: the running statistics are never updated");
    }
    return 0;
}

/* Of a late pipeline behind the last step. */
static int check_transferred(const check *c)
{
    const kolo_plan *p = c->plan;
    for (int64_t i = 0; i < p->transfers * c->steps; i++)
        if (c->transfer[i] != DONE)
            return kolo_fail(KOLO_EINTERNAL,
                             "plan: transfer %d (%s) is not waited for by the end of the step",
                             (int)(i / c->steps), p->graph->tensor[p->transfer[i / c->steps].tensor].name);
    for (int64_t i = 0; i < c->regions; i++)
        if (c->region[i].incoming || c->region[i].outgoing)
            return kolo_fail(KOLO_EINTERNAL, "plan: a copy of %s is not waited for by the end of the step",
                             p->graph->tensor[c->region[i].tensor].name);
    return 0;
}

/* What a step begins with. */
static void begin_step(check *c)
{
    const kolo_plan *p = c->plan;
    const size_t buckets = (size_t)p->buckets + 1;
    memset(c->content, 0, buckets * (size_t)c->levels * sizeof *c->content);
    memset(c->written, 0, ((size_t)p->graph->tensors + 1) * sizeof *c->written);
    memset(c->started, 0, 10 * buckets);
    memset(c->squared, 0, (size_t)p->config.slots * buckets);
    c->squares = c->norms = c->layers = c->buffers = c->noises = 0;
}

/* So many steps that every place of every ring is taken twice, the filling before and what is waited for
 * behind. */
static int play_all(check *c)
{
    const kolo_plan *p = c->plan;
    int first = 0, last = 0;
    for (int64_t i = 0; i < p->actions && p->ring; i++) {
        if (p->action[i].ahead > first) first = p->action[i].ahead;
        if (-p->action[i].ahead > last) last = -p->action[i].ahead;
    }
    for (c->step = -first; c->step < c->steps + last; c->step++) {
        begin_step(c);
        KOLO_TRY(play(c));
        if (c->step >= 0 && c->step < c->steps) KOLO_TRY(check_end(c));
    }
    return check_transferred(c);
}

static int make_room(check *c)
{
    const kolo_plan *p = c->plan;
    size_t buckets = (size_t)p->buckets + 1;
    c->steps = 1;
    for (int64_t i = 0; i < p->bindings && p->ring; i++)
        if (2 * p->ring[i].places + 1 > c->steps) c->steps = 2 * p->ring[i].places + 1;
    c->windows = p->config.optimizer && kolo_plan_shards(p, KOLO_shard_gradients);
    c->levels = kolo_plan_levels(&p->config) + c->windows;
    c->content = kolo_alloc(buckets * (size_t)c->levels * sizeof *c->content);
    c->tensors = kolo_alloc(buckets * sizeof *c->tensors);
    c->written = kolo_alloc(((size_t)p->graph->tensors + 1) * sizeof *c->written);
    c->started = kolo_alloc(10 * buckets);
    c->version = kolo_alloc(buckets * (size_t)(kolo_plan_weight_versions(p) + 1) * sizeof *c->version);
    c->gathered = kolo_alloc(3 * (size_t)p->units + 1);
    c->transfer = kolo_alloc((size_t)p->transfers * (size_t)c->steps + 1);
    c->squared = kolo_alloc((size_t)p->config.slots * buckets);
    c->ran = kolo_alloc((size_t)c->steps * (size_t)p->config.slots * (size_t)p->graph->nodes + 1);
    if (!c->content || !c->tensors || !c->written || !c->started || !c->transfer || !c->ran || !c->gathered ||
        !c->squared || !c->version)
        return KOLO_ENOMEM;
    c->waited = c->started + buckets;
    c->updated = c->waited + buckets;
    c->stepped = c->updated + buckets;
    c->fetched = c->gathered + p->units;
    c->here = c->fetched + p->units;
    c->collected = c->stepped + buckets;
    c->unclear = c->collected + buckets;
    c->shared = c->unclear + buckets;
    c->averaged = c->shared + buckets;
    c->stashed = c->averaged + buckets;
    c->predicted = c->stashed + buckets;
    for (int t = 0; t < p->graph->tensors; t++)
        if (p->fixed[t].arena == KOLO_ARENA_GRADIENT)
            c->tensors[kolo_plan_bucket_of(p, p->fixed[t].offset)]++;
    return 0;
}

int kolo_plan_check(const kolo_plan *plan)
{
    check c = {.plan = plan, .graph = plan->graph};
    int rc;
    KOLO_TRY(kolo_plan_check_still(plan));
    KOLO_TRY_GOTO(rc, make_room(&c));
    KOLO_TRY_GOTO(rc, play_all(&c));
fail:
    free(c.region);
    free(c.content);
    free(c.tensors);
    free(c.written);
    free(c.started);
    free(c.gathered);
    free(c.transfer);
    free(c.ran);
    free(c.squared);
    free(c.version);
    return rc;
}
