/* The optimizer's state as one canonical vector: of a rank whose state is its own. */
#include <string.h>

#include "exec/parts.h"
#include "kolo/error.h"

/* Elements of `kind` that a tensor has. */
static int64_t count_of(const kolo_exec *e, const char *kind, int tensor)
{
    const kolo_tensor *t = &e->plan->graph->tensor[tensor];
    if (t->role != KOLO_ROLE_PARAM) return 0;
    return strcmp(kind, "layer") ? kolo_tensor_count(t) : kolo_plan_layer(e->plan, tensor) >= 0;
}

static int visit(kolo_exec *e, int (*one)(kolo_exec *, const char *, int, float *), float *values,
                 int64_t *count)
{
    const int states = kolo_plan_states(e->plan),
              kinds = states + kolo_is_layerwise(e->plan->config.optimizer);
    *count = 0;
    for (int k = 0; k < kinds; k++)
        for (int t = 0; t < e->plan->graph->tensors; t++) {
            const char *kind = k < states ? kolo_plan_state_name(e->plan, k) : "layer";
            int64_t n = count_of(e, kind, t);
            if (n && one) KOLO_TRY(one(e, kind, t, values + *count));
            *count += n;
        }
    return 0;
}

static int state_set(kolo_exec *e, const char *kind, int tensor, float *values)
{
    return kolo_exec_set(e, kind, tensor, values);
}

int64_t kolo_exec_state_count(kolo_exec *e)
{
    int64_t count;
    visit(e, NULL, NULL, &count);
    return count;
}

int kolo_exec_state_read(kolo_exec *e, float *to)
{
    int64_t count;
    return visit(e, kolo_exec_get, to, &count);
}

int kolo_exec_state_write(kolo_exec *e, const float *from)
{
    int64_t count;
    return visit(e, state_set, (float *)(uintptr_t)from, &count);
}
