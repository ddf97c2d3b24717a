/* Reduced tensors: gradients, statistics, metrics. Which micro-batches a level of a bucket is the sum of. */
#include "plan/check/check.h"

#include "base/memory.h"
#include "kolo/error.h"
#include "plan/shard.h"

content *check_content(check *c, int bucket, int level)
{
    return &c->content[(int64_t)bucket * c->levels + level];
}

bool check_in_window(const check *c, int bucket) { return c->windows && c->plan->bucket[bucket].params > 0; }

/* The level in which the sum of all micro-batches is formed. */
static int last_level(const check *c, int bucket) { return check_in_window(c, bucket) ? c->levels - 1 : 0; }

/* The level that a binding is in, where a tensor with its fixed binding at `fixed` has the place in it that
 * it should; below 0: another place. */
static int level_at(const check *c, const kolo_binding *b, size_t fixed, int bucket)
{
    const kolo_plan *p = c->plan;
    const size_t front = p->reduced_front, all = p->param_bytes;
    size_t size = p->arena_bytes[KOLO_ARENA_GRADIENT], begin = 0;
    if (check_in_window(c, bucket)) {
        const kolo_unit *u = &p->unit[p->bucket[bucket].unit];
        size = (size_t)kolo_plan_rest(p) * sizeof(float);
        if (b->arena == KOLO_ARENA_GRADIENT)
            return b->offset - u->gradient == fixed - (size_t)u->param * sizeof(float) ? c->levels - 1 : -1;
        if (b->arena != KOLO_ARENA_PART || size > all || b->offset % size != fixed - front) return -1;
        return (int)(b->offset / size);
    }
    if (b->arena == KOLO_ARENA_GRADIENT) return b->offset == fixed ? 0 : -1;
    if (b->arena != KOLO_ARENA_PART) return -1;
    if (c->windows) { /* behind the levels of parameters */
        size = front;
        begin = p->arena_bytes[KOLO_ARENA_PART] - (size_t)(kolo_plan_levels(&p->config) - 1) * front;
    }
    if (b->offset < begin || (b->offset - begin) % size != fixed) return -1;
    return 1 + (int)((b->offset - begin) / size);
}

/* No bucket that still needs its window meets that of `bucket`. */
static int free_window(check *c, int bucket, int tensor, int slot)
{
    const kolo_plan *p = c->plan;
    const kolo_unit *own = &p->unit[p->bucket[bucket].unit];
    for (int b = 0; b < p->buckets; b++) {
        if (b == bucket || !check_in_window(c, b) || !check_content(c, b, c->levels - 1)->end) continue;
        const kolo_unit *u = &p->unit[p->bucket[b].unit];
        if (check_overlap(own->gradient, (size_t)own->params * sizeof(float), u->gradient,
                          (size_t)u->params * sizeof(float)))
            return check_breach(c, "writes into the window of a bucket that is still needed", tensor, slot);
    }
    return 0;
}

int check_write_reduced(check *c, const kolo_binding *b, int tensor, int slot)
{
    const size_t fixed = c->plan->fixed[tensor].offset;
    const int bucket = kolo_plan_bucket_of(c->plan, fixed), level = level_at(c, b, fixed, bucket);
    if (level < 0 || level >= c->levels ||
        b->offset + c->plan->layout[tensor].bytes > c->plan->arena_bytes[b->arena])
        return check_breach(c, "writes outside its place in the gradients", tensor, slot);
    content *k = check_content(c, bucket, level);
    if (level == last_level(c, bucket) && c->started[bucket])
        return check_breach(c, "writes into a bucket whose reduction has begun", tensor, slot);
    if (check_in_window(c, bucket) && level == c->levels - 1) KOLO_TRY(free_window(c, bucket, tensor, slot));
    if (c->written[tensor] == slot + 1) return check_breach(c, "writes twice", tensor, slot);
    if (k->end && (k->begin != slot || k->end != slot + 1 || k->written == c->tensors[bucket]))
        return check_breach(c, "overwrites gradients that are not folded yet", tensor, slot);
    k->begin = slot;
    k->end = slot + 1;
    k->written++;
    if (check_in_window(c, bucket) && level == c->levels - 1)
        c->unclear[bucket] |= c->plan->layout[tensor].bytes % KOLO_ALIGN != 0;
    c->written[tensor] = slot + 1;
    return check_forget(c, b, tensor, slot, c->plan->layout[tensor].bytes); /* terms of it */
}

int check_write_term(check *c, const kolo_binding *b, int tensor, int sum, int slot)
{
    const size_t fixed = c->plan->fixed[sum].offset, bytes = c->plan->layout[tensor].bytes;
    const int bucket = kolo_plan_bucket_of(c->plan, fixed), level = level_at(c, b, fixed, bucket);
    if (check_in_window(c, bucket) || level < 0 || level >= c->levels || c->graph->tensor[sum].of < 0 ||
        c->graph->tensor[sum].of != c->graph->tensor[tensor].of || bytes > c->plan->layout[sum].bytes)
        return check_breach(c, "writes outside the place of its sum", tensor, slot);
    const content *k = check_content(c, bucket, level);
    if (level == last_level(c, bucket) && c->started[bucket])
        return check_breach(c, "writes into a bucket whose reduction has begun", tensor, slot);
    if (c->written[sum] == slot + 1 || (k->end && (k->begin != slot || k->end != slot + 1)))
        return check_breach(c, "overwrites gradients that are not folded yet", tensor, slot);
    return check_place(c, b, tensor, slot, bytes);
}

bool check_whole(check *c, int bucket, int level)
{
    const content *k = check_content(c, bucket, level);
    const bool unclear = check_in_window(c, bucket) && level == c->levels - 1 && c->unclear[bucket];
    return k->end && k->written == c->tensors[bucket] && !unclear;
}

bool check_finished(check *c, int bucket) /* all slots summed on this rank */
{
    const int last = last_level(c, bucket);
    const content *k = check_content(c, bucket, last);
    for (int l = 0; l < c->levels; l++)
        if (l != last && check_content(c, bucket, l)->end) return false;
    return check_whole(c, bucket, last) && k->begin == 0 && k->end == c->plan->config.slots;
}

/* summed over ranks too */
bool check_ready(check *c, int bucket)
{
    const kolo_plan_config *config = &c->plan->config;
    if (check_in_window(c, bucket)) return c->collected[bucket];
    if (config->ranks > 1 && config->exchange == KOLO_EXCHANGE_GRADIENTS) return c->waited[bucket];
    return check_finished(c, bucket) && !c->shared[bucket] && !c->averaged[bucket];
}

/* Of a fold: a level by its number in the list of actions. */
int check_level(const check *c, int bucket, int level)
{
    return level == KOLO_WINDOW && check_in_window(c, bucket) ? c->levels - 1 : level;
}

int check_on_fold(check *c, const kolo_action *a)
{
    if (a->bucket < 0 || a->bucket >= c->plan->buckets) return check_breach(c, "no such bucket", -1, 0);
    const int last = c->levels - 1, t = check_level(c, a->bucket, a->to),
              f = check_level(c, a->bucket, a->from);
    const bool window = check_in_window(c, a->bucket) && (t == last) != (f == last);
    if (t < 0 || f < 0 || t > last || f > last || (!window && f != t + 1))
        return check_breach(c, "no such levels", -1, 0);
    if (c->started[a->bucket]) return check_breach(c, "folds into a bucket whose reduction has begun", -1, 0);
    if (!check_whole(c, a->bucket, f) || !check_whole(c, a->bucket, t))
        return check_breach(c, "folds a level whose gradients are not all written", -1, 0);
    content *to = check_content(c, a->bucket, t), *from = check_content(c, a->bucket, f);
    const content *before = to->begin < from->begin ? to : from, *after = before == to ? from : to;
    if (before->end != after->begin)
        return check_breach(c, "folds micro-batches that are not neighbours", -1, 0);
    int n = after->end - before->begin, half = 1;
    while (half * 2 < n) half *= 2;
    if (c->plan->config.canonical && before->end - before->begin != half)
        return check_breach(c, "leaves the canonical tree", -1, 0);
    *to = (content){before->begin, after->end, to->written};
    *from = (content){0};
    return 0;
}
