/* One memory for plans that take turns: training at several batch and image sizes. */
#include <string.h>

#include "kolo/error.h"
#include "plan/parts.h"

size_t kolo_plan_scratch(const kolo_plan *plan)
{
    size_t bytes = 0;
    for (int a = 0; a < KOLO_ARENAS; a++)
        if (kolo_plan_is_scratch((enum kolo_arena)a) && kolo_arena_is_memory(a))
            bytes += plan->arena_bytes[a];
    return bytes;
}

static bool fit(const kolo_plan *a, const kolo_plan *b)
{
    for (int i = 0; i < KOLO_ARENAS; i++)
        if (!kolo_plan_is_scratch((enum kolo_arena)i) && a->arena_bytes[i] != b->arena_bytes[i]) return false;
    if (a->reduced_front != b->reduced_front || a->buckets != b->buckets || a->segments != b->segments)
        return false;
    for (int i = 0; i < a->buckets; i++)
        if (a->bucket[i].offset != b->bucket[i].offset || a->bucket[i].count != b->bucket[i].count)
            return false;
    for (int i = 0; i < a->segments; i++)
        if (a->segment[i].begin != b->segment[i].begin || a->segment[i].count != b->segment[i].count)
            return false;
    return true;
}

int kolo_plan_share(kolo_plan *const *plan, int plans)
{
    size_t bytes[KOLO_ARENAS];
    memcpy(bytes, plan[0]->arena_bytes, sizeof bytes);
    for (int i = 1; i < plans; i++) {
        if (!fit(plan[0], plan[i]))
            return kolo_fail(KOLO_EINTERNAL,
                             "plan: %s for batches of another shape has its gradients elsewhere",
                             plan[i]->graph->name);
        for (int a = 0; a < KOLO_ARENAS; a++)
            if (plan[i]->arena_bytes[a] > bytes[a]) bytes[a] = plan[i]->arena_bytes[a];
    }
    for (int i = 0; i < plans; i++) {
        memcpy(plan[i]->arena_bytes, bytes, sizeof bytes);
        KOLO_TRY(kolo_plan_set_hash(plan[i]));
    }
    return 0;
}

int kolo_plan_reserve(kolo_plan *plan, enum kolo_arena arena, size_t bytes)
{
    if (bytes <= plan->arena_bytes[arena]) return 0;
    plan->arena_bytes[arena] = bytes;
    return kolo_plan_set_hash(plan);
}
