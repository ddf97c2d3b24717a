/* What a rank has of its own as one canonical vector: the optimizer's state, and with local steps weights and
 * running statistics. */
#include <stdlib.h>
#include <string.h>

#include "base/memory.h"
#include "exec/parts.h"
#include "kolo/error.h"

/* Elements of `kind` that a tensor has. */
static int64_t count_of(const kolo_exec *e, const char *kind, int tensor)
{
    const kolo_tensor *t = &e->plan->graph->tensor[tensor];
    if (!strcmp(kind, "param") && t->role == KOLO_ROLE_BUFFER) return kolo_tensor_count(t);
    if (t->role != KOLO_ROLE_PARAM || t->frozen) return 0;
    return strcmp(kind, "layer") ? kolo_tensor_count(t)
                                 : kolo_plan_layer(kolo_program_owner(e->plan, tensor), tensor) >= 0;
}

/* One tensor's, which begins at element `at` of the vector. */
typedef int visitor(kolo_exec *e, const char *kind, int tensor, void *context, int64_t at);

static int visit(kolo_exec *e, visitor *one, void *context, int64_t *count)
{
    const int states = kolo_plan_states(e->plan), layers = kolo_is_layerwise(e->plan->config.optimizer),
              kinds = states + layers + e->plan->config.local;
    *count = 0;
    for (int k = 0; k < kinds; k++)
        for (int t = 0; t < e->plan->graph->tensors; t++) {
            const char *kind = k < states            ? kolo_plan_state_name(e->plan, k)
                               : k < states + layers ? "layer"
                                                     : "param";
            int64_t n = count_of(e, kind, t);
            if (n && one) KOLO_TRY(one(e, kind, t, context, *count));
            *count += n;
        }
    return 0;
}

int64_t kolo_exec_state_count(kolo_exec *e)
{
    int64_t count;
    visit(e, NULL, NULL, &count);
    return count;
}

typedef struct reading {
    int replica;
    float *to;   /* NULL: another rank reads, */
    float *pass; /* through this; as large as the largest tensor */
} reading;

static int read_one(kolo_exec *e, const char *kind, int tensor, void *context, int64_t at)
{
    const reading *r = context;
    float *values = r->to ? r->to + at : r->pass;
    return e->plan->program ? exec_get_of(e, kind, tensor, r->replica, values)
                            : kolo_exec_get(e, kind, tensor, values);
}

int kolo_exec_state_read(kolo_exec *e, int replica, float *to)
{
    const kolo_graph *g = e->plan->graph;
    reading r = {.replica = replica, .to = to};
    int64_t count, most = 1;
    for (int t = 0; !to && t < g->tensors; t++)
        if (g->tensor[t].role == KOLO_ROLE_PARAM && kolo_tensor_count(&g->tensor[t]) > most)
            most = kolo_tensor_count(&g->tensor[t]);
    if (!to && !(r.pass = kolo_alloc((size_t)most * sizeof *r.pass))) return KOLO_ENOMEM;
    const int rc = visit(e, read_one, &r, &count);
    free(r.pass);
    return rc;
}

static int write_one(kolo_exec *e, const char *kind, int tensor, void *context, int64_t at)
{
    const float *from = context;
    return kolo_exec_set(e, kind, tensor, from + at);
}

int kolo_exec_state_write(kolo_exec *e, const float *from)
{
    int64_t count;
    return visit(e, write_one, (float *)(uintptr_t)from, &count);
}
