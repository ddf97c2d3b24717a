/* Parameters: where each stands when it is read, and in which version. */
#include "plan/check/check.h"

#include "kolo/error.h"
#include "plan/shard.h"

/* A parameter where its unit has been gathered, or among those that all ranks have. */
static int read_unit(check *c, const kolo_binding *b, int tensor, int slot)
{
    const kolo_plan *p = c->plan;
    const size_t fixed = p->fixed[tensor].offset, width = p->layout[tensor].half ? 2 : 1;
    for (int u = 0; u < p->units; u++) {
        const kolo_unit *one = &p->unit[u];
        const size_t begin = (size_t)one->param * sizeof(float), bytes = (size_t)one->params * sizeof(float);
        if (fixed < begin || fixed >= begin + bytes) continue;
        if (b->arena != (width == 2 ? KOLO_ARENA_SHADOW : KOLO_ARENA_GATHERED) ||
            b->offset * width != one->gathered + fixed - begin)
            return check_breach(c, "reads another place than the window of its unit", tensor, slot);
        return c->gathered[u] == DONE ? 0 : check_breach(c, "reads what has not been gathered", tensor, slot);
    }
    return 0;
}

/* Into a window, where what stood there is gone; or, behind its update, where every rank keeps it. */
int check_on_gather(check *c, const kolo_action *a)
{
    const kolo_plan *p = c->plan;
    if (a->unit < 0 || a->unit >= p->units) return check_breach(c, "no such unit", -1, 0);
    const kolo_unit *own = &p->unit[a->unit];
    char *state = &c->gathered[a->unit];
    if (a->kind == KOLO_ACTION_GATHERED) {
        if (*state != STARTED) return check_breach(c, "waits for parts that are not under way", -1, 0);
        *state = DONE;
        return 0;
    }
    if (*state == STARTED) return check_breach(c, "gathers twice", -1, 0);
    *state = STARTED;
    if (!kolo_plan_shards(p, KOLO_shard_parameters)) {
        for (int b = 0; b < p->buckets; b++)
            if (p->bucket[b].unit == a->unit && !c->updated[b])
                return check_breach(c, "gathers what is not updated yet", -1, 0);
        return 0;
    }
    const size_t bytes = (size_t)own->params * sizeof(float);
    if (own->gathered + bytes > p->arena_bytes[KOLO_ARENA_GATHERED])
        return check_breach(c, "gathers outside the arena", -1, 0);
    for (int u = 0; u < p->units; u++) {
        const kolo_unit *k = &p->unit[u];
        if (u == a->unit ||
            !check_overlap(own->gathered, bytes, k->gathered, (size_t)k->params * sizeof(float)))
            continue;
        if (c->gathered[u] == STARTED)
            return check_breach(c, "gathers into a window that is being filled", -1, 0);
        c->gathered[u] = UNTOUCHED;
    }
    return 0;
}

/* The optimizer's state of a unit: at most two are here. */
int check_on_state(check *c, const kolo_action *a)
{
    const bool goes = a->kind == KOLO_ACTION_EVICT;
    int here = 0;
    if (a->unit < 0 || a->unit >= c->plan->units || !(c->plan->config.offload & KOLO_OFFLOAD_STATE))
        return check_breach(c, "no such unit, or nothing is in a file", -1, 0);
    if (c->fetched[a->unit] != (goes ? STARTED : UNTOUCHED))
        return check_breach(c, "fetches twice, or lets go what is not here", -1, 0);
    for (int b = 0; goes && b < c->plan->buckets; b++)
        if (c->plan->bucket[b].unit == a->unit && !c->updated[b])
            return check_breach(c, "lets go what is still to be updated", -1, 0);
    c->fetched[a->unit] = goes ? DONE : STARTED;
    for (int u = 0; u < c->plan->units; u++) here += c->fetched[u] == STARTED;
    return here > 2 ? check_breach(c, "has more than two units here", -1, 0) : 0;
}

int check_on_file_param(check *c, const kolo_action *a)
{
    const bool goes = a->kind == KOLO_ACTION_EVICT_PARAM;
    if (a->unit < 0 || a->unit >= c->plan->units || !(c->plan->config.offload & KOLO_OFFLOAD_PARAM))
        return check_breach(c, "no such unit, or parameters are in no file", -1, 0);
    if (c->here[a->unit] != goes) return check_breach(c, "fetches twice, or lets go what is not here", -1, 0);
    c->here[a->unit] = !goes;
    return 0;
}

bool check_is_away(const check *c, int unit)
{
    return (c->plan->config.offload & KOLO_OFFLOAD_PARAM) && unit >= 0 && !c->here[unit];
}

int check_read_binding(check *c, const kolo_binding *b, int tensor, int slot)
{
    const kolo_plan *p = c->plan;
    const kolo_binding *h = &p->fixed[tensor];
    if (h->arena == KOLO_ARENA_PARAM && kolo_plan_shards(p, KOLO_shard_parameters)) {
        KOLO_TRY(read_unit(c, b, tensor, slot));
    } else if (h->arena == KOLO_ARENA_PARAM && p->layout[tensor].half) {
        if (b->arena != KOLO_ARENA_SHADOW || b->offset * 2 != h->offset)
            return check_breach(c, "reads another place than its 16-bit copy", tensor, slot);
    } else if (h->arena < 0 || b->arena != h->arena || b->offset != h->offset) {
        return check_breach(c, "reads from a place that is not its fixed binding", tensor, slot);
    } else if (h->arena == KOLO_ARENA_PARAM && check_is_away(c, kolo_plan_unit_of(p, tensor))) {
        return check_breach(c, "reads a parameter that is still in its file", tensor, slot);
    }
    for (int k = 0; k < p->buckets; k++) {
        size_t begin = (size_t)p->bucket[k].param * sizeof(float),
               bytes = (size_t)p->bucket[k].params * sizeof(float);
        if (h->arena == KOLO_ARENA_PARAM && c->updated[k] && check_overlap(begin, bytes, h->offset, 1))
            return check_breach(c, "reads a parameter that is updated already", tensor, slot);
    }
    return 0;
}

/* Which updates of a parameter its place shows. While a late pipeline fills, the newest weights are those of
 * before the first step, among the versions. */
static int64_t updates_at(const check *c, const kolo_binding *b, int bucket)
{
    const int versions = kolo_plan_weight_versions(c->plan);
    const bool fills = c->step < 0 && versions > 0;
    const bool foreseen = kolo_plan_predicts(c->plan) && b->arena == KOLO_ARENA_VERSION &&
                          b->offset / c->plan->param_bytes == (size_t)versions,
               now = b->arena != KOLO_ARENA_VERSION || foreseen;
    if (foreseen && !fills) return c->predicted[bucket] ? c->step : -1;
    if (now && !fills) return c->step + c->updated[bucket];
    const size_t place = fills && now ? (size_t)(c->batch % versions) : b->offset / c->plan->param_bytes;
    return place < (size_t)versions ? c->version[bucket * versions + (int64_t)place] : -1;
}

/* A late pipeline's operation reads the version of its batch (order.h). */
int check_read_version(check *c, const kolo_node *n, const kolo_binding *b, int tensor)
{
    const kolo_plan *p = c->plan;
    const kolo_binding *h = &p->fixed[tensor];
    const bool copy = b->arena == KOLO_ARENA_VERSION;
    if ((!copy && b->arena != KOLO_ARENA_PARAM) || p->layout[tensor].half || h->arena != KOLO_ARENA_PARAM ||
        (copy ? b->offset % p->param_bytes : b->offset) != h->offset)
        return check_breach(c, "reads from a place that is not its fixed binding", tensor, (int)c->micro);
    const bool stashes = kolo_pipeline[p->config.placement->order].stashes;
    const int64_t late = c->batch - kolo_plan_staleness(p);
    const int64_t want = n->backward && !stashes ? c->step : late > 0 ? late : 0;
    for (int k = 0; k < p->buckets; k++) {
        const size_t begin = (size_t)p->bucket[k].param * sizeof(float),
                     bytes = (size_t)p->bucket[k].params * sizeof(float);
        if (check_overlap(begin, bytes, h->offset, 1) && updates_at(c, b, k) != want)
            return check_breach(c, "reads weights of another version than its batch's", tensor,
                                (int)c->micro);
    }
    return 0;
}

int check_on_stash(check *c, int b)
{
    const int versions = kolo_plan_weight_versions(c->plan);
    if (b < 0 || b >= c->plan->buckets || versions == 0) return check_breach(c, "keeps no version", -1, 0);
    if (c->step < 0 || c->updated[b] || c->stashed[b] || (kolo_plan_predicts(c->plan) && !c->predicted[b]))
        return check_breach(c, "keeps a version that is none", -1, 0);
    c->version[(int64_t)b * versions + c->step % versions] = c->step;
    c->stashed[b] = 1;
    return 0;
}

int check_on_predict(check *c, int b)
{
    if (b < 0 || b >= c->plan->buckets || !kolo_plan_predicts(c->plan))
        return check_breach(c, "predicts nothing here", -1, 0);
    if (c->step < 0 || c->updated[b] || c->predicted[b])
        return check_breach(c, "predicts out of turn", -1, 0);
    c->predicted[b] = 1;
    return 0;
}
