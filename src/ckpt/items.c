#include "ckpt/items.h"

#include <stdlib.h>

#include "base/memory.h"
#include "kolo/error.h"
#include "plan/program.h"
#include "plan/shard.h"

static bool saved(const kolo_plan *plan, int t)
{
    const kolo_tensor *x = &plan->graph->tensor[t];
    return (x->role == KOLO_ROLE_PARAM || x->role == KOLO_ROLE_BUFFER) && !kolo_tensor_is_later_slab(x);
}

/* prefix NULL: the tensor's own name. */
static int items_add(const kolo_plan *plan, item *to, const char *prefix, const char *which, int t,
                     enum kolo_arena arena, size_t base)
{
    char name[256];
    *to = (item){.which = which,
                 .tensor = t,
                 .stage = plan->config.stage,
                 .arena = arena,
                 .offset = base + plan->fixed[t].offset,
                 .whole = kolo_tensor_whole(&plan->graph->tensor[t], name),
                 .slabs = plan->graph->tensor[t].slab.runs > 0};
    to->name = prefix ? kolo_format("%s:%s", prefix, name) : kolo_strdup(name);
    to->whole.name = to->name;
    return to->name ? 0 : KOLO_ENOMEM;
}

/* What NovoGrad keeps of every tensor; its slabs have the same. */
static int fill_layers(const kolo_plan *whole, item *items, int *n)
{
    for (int t = 0; t < whole->graph->tensors; t++) {
        const kolo_plan *plan = kolo_program_owner(whole, t);
        int layer = plan->config.optimizer->layer.kind == KOLO_LAYER_NOVOGRAD ? kolo_plan_layer(plan, t) : -1;
        if (layer < 0 || !saved(plan, t)) continue;
        item *to = &items[(*n)++];
        KOLO_TRY(items_add(plan, to, "layer", "layer", t, KOLO_ARENA_STATE, 0));
        to->scalar = true;
        to->slabs = false;
        to->whole = (kolo_tensor){.name = to->name, .rank = 1, .dim = {1}};
        to->offset =
            kolo_plan_layers_offset(plan) + (size_t)layer * sizeof(kolo_layer) + offsetof(kolo_layer, kept);
    }
    return 0;
}

static int items_fill(const kolo_plan *whole, int states, int versions, bool ema, item *items, int *n)
{
    const kolo_graph *g = whole->graph;
    for (int t = 0; t < g->tensors; t++) {
        const kolo_plan *plan = kolo_program_owner(whole, t);
        if (saved(plan, t))
            KOLO_TRY(
                items_add(plan, &items[(*n)++], NULL, "param", t, (enum kolo_arena)plan->fixed[t].arena, 0));
    }
    for (int s = 0; s < states; s++)
        for (int t = 0; t < g->tensors; t++) {
            const kolo_plan *plan = kolo_program_owner(whole, t);
            const char *name = kolo_plan_state_name(plan, s);
            if (saved(plan, t) && g->tensor[t].role == KOLO_ROLE_PARAM && !g->tensor[t].frozen)
                KOLO_TRY(items_add(plan, &items[(*n)++], name, name, t, KOLO_ARENA_STATE,
                                   (size_t)s * kolo_plan_state_bytes(plan)));
        }
    if (states > 0) KOLO_TRY(fill_layers(whole, items, n));
    for (int v = 0; v < versions; v++)
        for (int t = 0; t < g->tensors; t++) {
            const kolo_plan *plan = kolo_program_owner(whole, t);
            char name[16];
            kolo_plan_version_name(v, name);
            if (g->tensor[t].role != KOLO_ROLE_PARAM || v >= kolo_plan_weight_versions(plan)) continue;
            item *to = &items[(*n)++];
            KOLO_TRY(items_add(plan, to, name, "", t, KOLO_ARENA_VERSION, (size_t)v * plan->param_bytes));
            to->which = to->name; /* the executor reads as far as the number */
        }
    for (int t = 0; ema && t < g->tensors; t++) {
        const kolo_plan *plan = kolo_program_owner(whole, t);
        if (saved(plan, t))
            KOLO_TRY(
                items_add(plan, &items[(*n)++], "ema", "ema", t, KOLO_ARENA_EMA,
                          g->tensor[t].role == KOLO_ROLE_BUFFER ? plan->arena_bytes[KOLO_ARENA_PARAM] : 0));
    }
    return 0;
}

int kolo_items_make(const kolo_plan *plan, bool state, bool ema, item **items, int *n)
{
    int states = state ? kolo_plan_states(plan) : 0, versions = 0;
    for (int s = 0; state && plan->program && s < plan->program->grid->stages; s++) {
        const int kept = kolo_plan_weight_versions(plan->program->plan[s]);
        if (kept > versions) versions = kept;
    }
    *n = 0;
    *items = kolo_alloc(sizeof **items * (size_t)plan->graph->tensors * (size_t)(3 + states + versions));
    int rc = *items ? items_fill(plan, states, versions, ema && plan->config.ema, *items, n) : KOLO_ENOMEM;
    if (rc < 0) kolo_items_free(items, *n);
    return rc;
}

void kolo_items_free(item **items, int n)
{
    for (int i = 0; *items && i < n; i++) free((*items)[i].name);
    free(*items);
    *items = NULL;
}
