/* What an executor holds between steps, as one canonical vector: to go on with another plan of the same network, or to keep what is this rank's alone. */
#include <stdlib.h>
#include <string.h>

#include "base/memory.h"
#include "exec/parts.h"
#include "kolo/error.h"

static int kinds_of(const kolo_exec *e, bool all, const char **kind)
{
    int n = 0;
    if (all) kind[n++] = "param";
    if (all && e->arena[KOLO_ARENA_EMA]) kind[n++] = "ema";
    for (int s = 0; s < kolo_plan_states(e->plan); s++) kind[n++] = kolo_plan_state_name(e->plan, s);
    if (kolo_is_layerwise(e->plan->config.optimizer)) kind[n++] = "layer";
    return n;
}

/* Elements of `kind` that a tensor has. */
static int64_t count_of(const kolo_exec *e, const char *kind, int tensor)
{
    const kolo_tensor *t = &e->plan->graph->tensor[tensor];
    bool whole = !strcmp(kind, "param") || !strcmp(kind, "ema");
    if (t->role != KOLO_ROLE_PARAM && (!whole || t->role != KOLO_ROLE_BUFFER)) return 0;
    return strcmp(kind, "layer") ? kolo_tensor_count(t) : kolo_plan_layer(e->plan, tensor) >= 0;
}

static int visit(kolo_exec *e, bool all, int (*one)(kolo_exec *, const char *, int, float *), float *values, int64_t *count)
{
    const char *kind[8];
    int kinds = kinds_of(e, all, kind);
    *count = 0;
    for (int k = 0; k < kinds; k++)
        for (int t = 0; t < e->plan->graph->tensors; t++) {
            int64_t n = count_of(e, kind[k], t);
            if (n && one) KOLO_TRY(one(e, kind[k], t, values + *count));
            *count += n;
        }
    return 0;
}

static int set(kolo_exec *e, const char *kind, int tensor, float *values) { return kolo_exec_set(e, kind, tensor, values); }

int64_t kolo_exec_snapshot_count(kolo_exec *e, bool all)
{
    int64_t count;
    visit(e, all, NULL, NULL, &count);
    return count;
}

int kolo_exec_snapshot_read(kolo_exec *e, bool all, float *to)
{
    int64_t count;
    return visit(e, all, kolo_exec_get, to, &count);
}

int kolo_exec_snapshot_write(kolo_exec *e, bool all, const float *from)
{
    int64_t count;
    return visit(e, all, set, (float *)(uintptr_t)from, &count);
}
