#include "ckpt/items.h"

#include <stdlib.h>

#include "base/memory.h"
#include "kolo/error.h"
#include "plan/program.h"

static bool saved(const kolo_plan *plan, int t)
{
    enum kolo_role role = plan->graph->tensor[t].role;
    return role == KOLO_ROLE_PARAM || role == KOLO_ROLE_BUFFER;
}

/* prefix NULL: the tensor's own name. */
static int items_add(const kolo_plan *plan, item *to, const char *prefix, const char *which, int t,
                     enum kolo_arena arena, size_t base)
{
    const char *name = plan->graph->tensor[t].name;
    *to = (item){.which = which,
                 .tensor = t,
                 .stage = plan->config.stage,
                 .arena = arena,
                 .offset = base + plan->home[t].offset};
    to->name = prefix ? kolo_format("%s:%s", prefix, name) : kolo_strdup(name);
    return to->name ? 0 : KOLO_ENOMEM;
}

const kolo_tensor *kolo_item_tensor(const kolo_graph *graph, const item *one)
{
    static const kolo_tensor number = {.rank = 1, .dim = {1}};
    return one->scalar ? &number : &graph->tensor[one->tensor];
}

/* What NovoGrad keeps of every tensor. */
static int fill_layers(const kolo_plan *whole, item *items, int *n)
{
    for (int t = 0; t < whole->graph->tensors; t++) {
        const kolo_plan *plan = kolo_program_owner(whole, t);
        int layer = plan->config.optimizer->layer.kind == KOLO_LAYER_NOVOGRAD ? kolo_plan_layer(plan, t) : -1;
        if (layer < 0) continue;
        item *to = &items[(*n)++];
        KOLO_TRY(items_add(plan, to, "layer", "layer", t, KOLO_ARENA_STATE, 0));
        to->scalar = true;
        to->offset =
            kolo_plan_layers_offset(plan) + (size_t)layer * sizeof(kolo_layer) + offsetof(kolo_layer, kept);
    }
    return 0;
}

static int items_fill(const kolo_plan *whole, int states, bool ema, item *items, int *n)
{
    const kolo_graph *g = whole->graph;
    for (int t = 0; t < g->tensors; t++) {
        const kolo_plan *plan = kolo_program_owner(whole, t);
        if (saved(plan, t))
            KOLO_TRY(
                items_add(plan, &items[(*n)++], NULL, "param", t, (enum kolo_arena)plan->home[t].arena, 0));
    }
    for (int s = 0; s < states; s++)
        for (int t = 0; t < g->tensors; t++) {
            const kolo_plan *plan = kolo_program_owner(whole, t);
            const char *name = kolo_plan_state_name(plan, s);
            if (g->tensor[t].role == KOLO_ROLE_PARAM)
                KOLO_TRY(items_add(plan, &items[(*n)++], name, name, t, KOLO_ARENA_STATE,
                                   (size_t)s * plan->arena_bytes[KOLO_ARENA_PARAM]));
        }
    if (states > 0) KOLO_TRY(fill_layers(whole, items, n));
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
    int states = state ? kolo_plan_states(plan) : 0;
    *n = 0;
    *items = kolo_alloc(sizeof **items * (size_t)plan->graph->tensors * (size_t)(3 + states));
    int rc = *items ? items_fill(plan, states, ema && plan->config.ema, *items, n) : KOLO_ENOMEM;
    if (rc < 0) kolo_items_free(items, *n);
    return rc;
}

void kolo_items_free(item **items, int n)
{
    for (int i = 0; *items && i < n; i++) free((*items)[i].name);
    free(*items);
    *items = NULL;
}
