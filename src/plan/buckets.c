/* Buckets: GRADIENT cut into slices in order of production. A slice closes when it holds bucket_bytes. The
 * last one, which nothing is left to hide behind, is at most an eighth of that: its reduction is what the
 * step waits for. With Adasum what is summed as ever (statistics, metrics) and what is combined are never in
 * one bucket; with swa what is summed also without a backward half, and gradients; with local steps running
 * statistics and weights; with shards what all ranks need, and gradients. */
#include <stdlib.h>

#include "base/memory.h"
#include "kolo/error.h"
#include "plan/parts.h"

typedef struct ends {
    size_t *end; /* byte at which each reduced tensor ends */
    int *class;  /* of the turns that complete it */
    int64_t n, capacity;
} ends;

static int buckets_collect(const kolo_plan *plan, ends *e)
{
    const kolo_graph *g = plan->graph;
    for (int64_t i = 0; i < plan->nodes; i++)
        for (int k = 0; k < g->node[plan->node[i]].n_out; k++) {
            int t = g->node[plan->node[i]].out[k];
            if (t < 0 || !kolo_plan_is_reduced(g->tensor[t].role)) continue;
            int64_t capacity = e->capacity;
            KOLO_TRY(kolo_grow(&e->end, &e->capacity, e->n, sizeof *e->end));
            KOLO_TRY(kolo_grow(&e->class, &capacity, e->n, sizeof *e->class));
            e->class[e->n] = kolo_plan_class(plan, plan->node[i]);
            e->end[e->n++] = plan->fixed[t].offset + kolo_plan_tensor_bytes(plan, t);
        }
    return 0;
}

static void buckets_add(kolo_plan *plan, size_t begin, size_t end)
{
    size_t front = plan->reduced_front, first = begin > front ? begin : front;
    plan->bucket[plan->buckets++] = (kolo_bucket){
        .offset = begin,
        .count = (int64_t)((end - begin) / sizeof(float)),
        .param = (int64_t)((first - front) / sizeof(float)),
        .params = end > first ? (int64_t)((end - first) / sizeof(float)) : 0,
    };
}

int kolo_plan_buckets(kolo_plan *plan)
{
    ends e = {0};
    int rc;
    KOLO_TRY_GOTO(rc, buckets_collect(plan, &e));
    plan->bucket = kolo_alloc((size_t)(e.n + 1) * sizeof *plan->bucket);
    if (!plan->bucket) {
        rc = KOLO_ENOMEM;
        goto fail;
    }
    size_t all = plan->arena_bytes[KOLO_ARENA_GRADIENT], begin = 0;
    int64_t tail = e.n - 1; /* the last bucket begins with this tensor */
    while (tail > 0 && (double)(all - (tail > 1 ? e.end[tail - 2] : 0)) <= plan->config.bucket_bytes / 8)
        tail--;
    for (int64_t i = 0; i < e.n; i++) {
        bool front =
            (plan->config.adasum || plan->config.swa || plan->config.local || plan->config.shards > 1) &&
            e.end[i] == plan->reduced_front;
        /* in a pipeline several micro-batches are under way; a bucket is complete within one turn */
        bool apart = plan->config.placement && i + 1 < e.n && e.class[i] != e.class[i + 1];
        if (!front && !apart && i != tail - 1 && i != e.n - 1 &&
            (i >= tail || (double)(e.end[i] - begin) < plan->config.bucket_bytes))
            continue;
        buckets_add(plan, begin, e.end[i]);
        begin = e.end[i];
    }
    rc = 0;
fail:
    free(e.end);
    free(e.class);
    return rc;
}

int kolo_plan_bucket_tensors(const kolo_plan *plan, int bucket, int64_t *count)
{
    const kolo_graph *g = plan->graph;
    const kolo_bucket *b = &plan->bucket[bucket];
    const size_t end = b->offset + (size_t)b->count * sizeof(float);
    int n = 0;
    for (int64_t i = 0; i < plan->nodes; i++) /* in the order of settle_reduced */
        for (int k = 0; k < g->node[plan->node[i]].n_out; k++) {
            int t = g->node[plan->node[i]].out[k];
            if (t < 0 || g->tensor[t].role != KOLO_ROLE_GRADIENT) continue;
            if (plan->fixed[t].offset >= b->offset && plan->fixed[t].offset < end)
                count[n++] = (int64_t)(kolo_plan_tensor_bytes(plan, t) / sizeof(float));
        }
    return n;
}

int kolo_plan_bucket_of(const kolo_plan *plan, size_t offset)
{
    int low = 0, high = plan->buckets - 1;
    while (low < high) {
        int middle = (low + high + 1) / 2;
        if (plan->bucket[middle].offset <= offset) low = middle;
        else high = middle - 1;
    }
    return low;
}
