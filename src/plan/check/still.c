/* What stands still in a plan, for the checker (check.c): fixed bindings, units and their parts, buckets,
 * segments, transfers. */
#include "base/memory.h"
#include "kolo/error.h"
#include "plan/check/check.h"
#include "plan/shard.h"

/* Homes are counted as if nothing were sharded. */
static size_t arena_room(const kolo_plan *p, int arena)
{
    if (arena == KOLO_ARENA_PARAM) return p->param_bytes;
    if (arena == KOLO_ARENA_GRADIENT && p->units) return p->reduced_front + p->param_bytes;
    return p->arena_bytes[arena];
}

/* Parts cover their units, one after the other, cut at leaves of 4,096 elements of tensors, and what a shard
 * stores of them lies one behind the other. */
static int check_parts(const kolo_plan *p)
{
    for (int u = 0; u < p->units; u++) {
        int64_t next = p->unit[u].param;
        for (int s = 0; s < p->config.shards; s++) {
            const kolo_part *one = kolo_plan_part(p, u, s), *before = u ? kolo_plan_part(p, u - 1, s) : NULL;
            if (one->first != next || one->count < 0 || one->at + one->count > p->stored ||
                one->at != (before ? before->at + before->count : 0))
                return kolo_fail(KOLO_EINTERNAL, "plan: part %d of unit %d does not follow the one before", s,
                                 u);
            next += one->count;
            for (int t = 0; t < p->graph->tensors; t++) {
                const int64_t begin = (int64_t)(p->fixed[t].offset / sizeof(float)),
                              count = (int64_t)(p->layout[t].bytes / sizeof(float));
                if (p->fixed[t].arena == KOLO_ARENA_PARAM && begin < next && next < begin + count &&
                    (next - begin) % 4096)
                    return kolo_fail(KOLO_EINTERNAL, "plan: %s is cut between leaves",
                                     p->graph->tensor[t].name);
            }
        }
        if (next != p->unit[u].param + p->unit[u].params)
            return kolo_fail(KOLO_EINTERNAL, "plan: parts do not cover unit %d", u);
    }
    return 0;
}

static int check_fixed_bindings(const kolo_plan *p)
{
    for (int t = 0; t < p->graph->tensors; t++) {
        const kolo_binding *h = &p->fixed[t];
        if (h->arena < 0) continue;
        const size_t room = arena_room(p, h->arena);
        if (h->offset % KOLO_ALIGN || h->offset + p->layout[t].bytes > room)
            return kolo_fail(KOLO_EINTERNAL,
                             "plan: the fixed binding of %s is outside its arena or unaligned",
                             p->graph->tensor[t].name);
        bool half =
            h->arena == KOLO_ARENA_PARAM && p->layout[t].half && !kolo_plan_shards(p, KOLO_shard_parameters);
        if (half && (h->offset + p->layout[t].bytes) / 2 > p->arena_bytes[KOLO_ARENA_SHADOW])
            return kolo_fail(KOLO_EINTERNAL, "plan: there is no room for the 16-bit copy of %s",
                             p->graph->tensor[t].name);
        for (int u = 0; u < t; u++)
            if (p->fixed[u].arena == h->arena &&
                check_overlap(h->offset, p->layout[t].bytes, p->fixed[u].offset, p->layout[u].bytes))
                return kolo_fail(KOLO_EINTERNAL, "plan: the fixed bindings of %s and %s overlap",
                                 p->graph->tensor[t].name, p->graph->tensor[u].name);
        if (p->graph->tensor[t].role == KOLO_ROLE_GRADIENT &&
            p->fixed[p->graph->tensor[t].of].offset + p->reduced_front != h->offset)
            return kolo_fail(KOLO_EINTERNAL, "plan: the gradient %s is not at its parameter's offset",
                             p->graph->tensor[t].name);
    }
    return 0;
}

static int check_buckets(const kolo_plan *p)
{
    size_t end = 0;
    for (int b = 0; b < p->buckets; b++) {
        const kolo_bucket *k = &p->bucket[b];
        size_t front = p->reduced_front, next = k->offset + (size_t)k->count * sizeof(float);
        size_t first = k->offset > front ? k->offset : front, params = next > first ? next - first : 0;
        if (k->offset != end || k->count <= 0)
            return kolo_fail(KOLO_EINTERNAL, "plan: bucket %d does not follow bucket %d", b, b - 1);
        if ((size_t)k->param * sizeof(float) != first - front || (size_t)k->params * sizeof(float) != params)
            return kolo_fail(KOLO_EINTERNAL, "plan: bucket %d covers other parameters than gradients", b);
        end = next;
    }
    if (end != (p->units && p->config.optimizer ? p->reduced_front + (size_t)kolo_plan_rest(p) * sizeof(float)
                                                : p->arena_bytes[KOLO_ARENA_GRADIENT]))
        return kolo_fail(KOLO_EINTERNAL, "plan: buckets do not cover the gradients");
    for (int t = 0; t < p->graph->tensors; t++) {
        if (p->fixed[t].arena != KOLO_ARENA_GRADIENT) continue;
        const kolo_bucket *k = &p->bucket[kolo_plan_bucket_of(p, p->fixed[t].offset)];
        if (p->fixed[t].offset < k->offset ||
            p->fixed[t].offset + p->layout[t].bytes > k->offset + (size_t)k->count * sizeof(float))
            return kolo_fail(KOLO_EINTERNAL, "plan: %s lies across two buckets", p->graph->tensor[t].name);
    }
    return 0;
}

static int check_segments(const kolo_plan *p)
{
    for (int s = 1; s < p->segments; s++)
        if (p->segment[s].begin < p->segment[s - 1].begin + p->segment[s - 1].count)
            return kolo_fail(KOLO_EINTERNAL, "plan: segment %d overlaps the one before", s);
    for (int t = 0; t < p->graph->tensors && p->config.optimizer; t++) {
        const kolo_tensor *x = &p->graph->tensor[t];
        if (x->role != KOLO_ROLE_GRADIENT || p->fixed[t].arena < 0) continue;
        int64_t begin = (int64_t)(p->fixed[x->of].offset / sizeof(float)),
                count = (int64_t)(p->layout[x->of].bytes / sizeof(float));
        bool decay = p->graph->tensor[x->of].decay || p->config.decay_norms, in = false;
        for (int s = 0; s < p->segments; s++)
            if (p->segment[s].begin <= begin && begin + count <= p->segment[s].begin + p->segment[s].count)
                in = p->segment[s].decay == decay;
        if (!in)
            return kolo_fail(KOLO_EINTERNAL, "plan: %s is in no segment of its decay",
                             p->graph->tensor[x->of].name);
    }
    return 0;
}

static int check_transfers(const kolo_plan *p)
{
    const int stages = p->config.placement ? p->config.placement->stages : 1;
    for (int i = 0; i < p->transfers; i++) {
        const kolo_transfer *t = &p->transfer[i];
        if (t->tensor < 0 || t->tensor >= p->graph->tensors || t->slot < 0 || t->slot >= p->config.slots ||
            t->peer < 0 || t->peer >= stages || t->peer == p->config.stage)
            return kolo_fail(KOLO_EINTERNAL, "plan: transfer %d has no such tensor, micro-batch or stage", i);
        if (t->bytes != p->layout[t->tensor].bytes)
            return kolo_fail(KOLO_EINTERNAL, "plan: transfer %d has %zu bytes of %s, which has %zu", i,
                             t->bytes, p->graph->tensor[t->tensor].name, p->layout[t->tensor].bytes);
    }
    return 0;
}

int kolo_plan_check_still(const kolo_plan *plan)
{
    KOLO_TRY(check_fixed_bindings(plan));
    KOLO_TRY(check_buckets(plan));
    KOLO_TRY(check_segments(plan));
    KOLO_TRY(check_parts(plan));
    return check_transfers(plan);
}
