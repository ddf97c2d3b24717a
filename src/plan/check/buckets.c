/* Buckets: sums over ranks, what is measured of them, and updates, each in its turn. */
#include "plan/check/check.h"

#include "kolo/error.h"

static bool combined(const check *c, int bucket)
{
    return c->plan->config.adasum && c->plan->bucket[bucket].params > 0;
}

/* The optimizer's rule, on sums of all ranks or, for Adasum, on this rank's own. */
static int on_update(check *c, int b)
{
    const kolo_plan_config *config = &c->plan->config;
    if (combined(c, b) ? !check_finished(c, b) : !check_ready(c, b))
        return check_breach(c, "updates before the gradients are complete", -1, 0);
    if (c->updated[b] || c->stepped[b]) return check_breach(c, "updates twice", -1, 0);
    if ((config->clip_norm || config->scaled || config->noise) && !c->norms)
        return check_breach(c, "updates before the norm of the gradients is measured", -1, 0);
    if (kolo_is_layerwise(config->optimizer) && !c->layers)
        return check_breach(c, "updates before the tensors' factors are known", -1, 0);
    if (check_is_away(c, c->plan->bucket[b].unit))
        return check_breach(c, "updates what is still in its file", -1, 0);
    if (kolo_plan_weight_versions(c->plan) > 0 && !c->stashed[b])
        return check_breach(c, "updates weights of which a version is to be kept", -1, 0);
    if ((config->offload & KOLO_OFFLOAD_STATE) && c->fetched[c->plan->bucket[b].unit] != STARTED)
        return check_breach(c, "updates a state that is not here", -1, 0);
    if (combined(c, b)) c->stepped[b] = 1;
    else c->updated[b] = 1;
    return 0;
}

/* Something of the bucket is averaged over ranks. */
static bool averages(const check *c, int bucket)
{
    const kolo_plan *p = c->plan;
    if (!kolo_plan_exchanges_weights(&p->config)) return false;
    if (p->bucket[bucket].params > 0) return true;
    for (int t = 0; t < c->graph->tensors; t++)
        if (c->graph->tensor[t].role == KOLO_ROLE_STATISTIC && p->fixed[t].arena == KOLO_ARENA_GRADIENT &&
            kolo_plan_bucket_of(p, p->fixed[t].offset) == bucket)
            return true;
    return false;
}

/* How often: weights, and each of the optimizer's states. */
int check_averages(const check *c, int bucket)
{
    const kolo_plan *p = c->plan;
    const bool states = p->config.average_state && p->bucket[bucket].params > 0;
    return averages(c, bucket) ? 1 + (states ? kolo_plan_own_states(p) : 0) : 0;
}

/* What a rank has made by itself goes to the others, or comes back. */
int check_on_share(check *c, const kolo_action *a)
{
    const int b = a->bucket;
    if (b < 0 || b >= c->plan->buckets || !averages(c, b))
        return check_breach(c, "averages nothing here", -1, 0);
    if (a->from != c->averaged[b] || a->from >= check_averages(c, b))
        return check_breach(c, "averages out of turn", -1, 0);
    if (a->kind == KOLO_ACTION_TAKE) {
        if (!c->shared[b] || !c->waited[b]) return check_breach(c, "takes what is not averaged yet", -1, 0);
        c->shared[b] = 0;
        c->averaged[b]++;
        return 0;
    }
    if (c->shared[b] || (c->started[b] && !c->waited[b]))
        return check_breach(c, "writes into a bucket whose reduction has begun", -1, 0);
    if (c->plan->bucket[b].params > 0 ? !c->updated[b] : !c->buffers)
        return check_breach(c, "shares what this step has not changed yet", -1, 0);
    c->shared[b] = 1;
    c->started[b] = c->waited[b] = 0;
    return 0;
}

int check_on_bucket(check *c, const kolo_action *a)
{
    int b = a->bucket, from;
    if (b < 0 || b >= c->plan->buckets) return check_breach(c, "no such bucket", -1, 0);
    switch (a->kind) {
    case KOLO_ACTION_REDUCE:
        if (c->started[b]) return check_breach(c, "the reduction has begun before", -1, 0);
        if (!check_finished(c, b)) return check_breach(c, "the bucket is not complete", -1, 0);
        if (!kolo_plan_reduces(&c->plan->config))
            return check_breach(c, "sums what is this rank's own", -1, 0);
        if (averages(c, b) && !c->shared[b])
            return check_breach(c, "gradients would be averaged instead of weights", -1, 0);
        if (combined(c, b) && !c->stepped[b])
            return check_breach(c, "gradients would be combined instead of steps", -1, 0);
        c->started[b] = 1;
        return 0;
    case KOLO_ACTION_WAIT:
        if (!c->started[b] || c->waited[b])
            return check_breach(c, "waits for a reduction that is not under way", -1, 0);
        c->waited[b] = 1;
        return 0;
    case KOLO_ACTION_CLEAR:
        if (!check_in_window(c, b) || c->started[b] ||
            check_content(c, b, c->levels - 1)->written != c->tensors[b])
            return check_breach(c, "clears what is not complete in its window", -1, 0);
        c->unclear[b] = 0;
        return 0;
    case KOLO_ACTION_COLLECT:
        if (!check_in_window(c, b) || !c->waited[b] || c->collected[b])
            return check_breach(c, "collects what is not summed, or a second time", -1, 0);
        c->collected[b] = 1;
        *check_content(c, b, c->levels - 1) = (content){0};
        return 0;
    case KOLO_ACTION_SQUARE:
        from = check_level(c, b, a->from);
        if (from < 0 || from >= c->levels || !check_whole(c, b, from) || c->started[b])
            return check_breach(c, "measures gradients that are not complete, or not there any more", -1, 0);
        if (check_content(c, b, from)->begin != a->slot || check_content(c, b, from)->end != a->slot + 1)
            return check_breach(c, "measures more than one micro-batch", -1, 0);
        if (c->plan->bucket[b].params == 0) return check_breach(c, "measures no gradients", -1, 0);
        if (c->squared[a->slot * c->plan->buckets + b]++)
            return check_breach(c, "measures a micro-batch twice", -1, 0);
        if ((a->to != 0) != (c->squares++ > 0))
            return check_breach(c, "adds to nothing, or begins anew", -1, 0);
        return 0;
    case KOLO_ACTION_APPLY:
        if (!c->stepped[b] || !c->waited[b])
            return check_breach(c, "applies what is no step of all ranks", -1, 0);
        if (c->updated[b]) return check_breach(c, "updates twice", -1, 0);
        c->updated[b] = 1;
        return 0;
    default:
        if ((a->kind == KOLO_ACTION_DELTA) != combined(c, b))
            return check_breach(c, "is no action of this plan", -1, 0);
        return on_update(c, b);
    }
}

int check_on_all(check *c, const kolo_action *a)
{
    bool statistics = a->kind == KOLO_ACTION_BUFFERS;
    int *done = statistics                     ? &c->buffers
                : a->kind == KOLO_ACTION_NORM  ? &c->norms
                : a->kind == KOLO_ACTION_NOISE ? &c->noises
                                               : &c->layers;
    const kolo_plan_config *config = &c->plan->config;
    if (a->kind == KOLO_ACTION_LAYERS && (config->clip_norm || config->scaled || config->noise) && !c->norms)
        return check_breach(c, "measures gradients before their norm is measured", -1, 0);
    for (int t = 0; t < c->graph->tensors; t++) {
        enum kolo_role role = c->graph->tensor[t].role;
        if (c->plan->fixed[t].arena != KOLO_ARENA_GRADIENT || (statistics && role != KOLO_ROLE_STATISTIC))
            continue;
        int b = kolo_plan_bucket_of(c->plan, c->plan->fixed[t].offset);
        const bool front = c->plan->bucket[b].params == 0;
        if (combined(c, b)                  ? !check_finished(c, b) || c->stepped[b]
            : !statistics && config->adasum ? false
            : !statistics && front && kolo_plan_exchanges_weights(config) ? false
                                                                          : !check_ready(c, b))
            return check_breach(c, "uses sums that are not complete", t, 0);
    }
    if ((*done)++) return check_breach(c, "is done twice", -1, 0);
    return 0;
}
