/* How late the weights of a stage's plan are. */
#include <stdio.h>

#include "plan/parts.h"

/* The order of a plan that trains with late weights, or NULL. */
static const kolo_pipeline_order *late_order(const kolo_plan *plan)
{
    const kolo_placement *p = plan->config.placement;
    return p && plan->graph->train && kolo_pipeline_is_late(p->order) ? &kolo_pipeline[p->order] : NULL;
}

bool kolo_plan_is_late(const kolo_plan *plan) { return late_order(plan) != NULL; }

int kolo_plan_ahead(const kolo_plan *plan)
{
    const kolo_pipeline_order *order = late_order(plan);
    return order ? order->ahead(plan->config.placement->stages, plan->config.stage) : 0;
}

int kolo_plan_feed(const kolo_plan *plan)
{
    const kolo_pipeline_order *order = late_order(plan);
    return order ? order->ahead(plan->config.placement->stages, 0) : 0;
}

int kolo_plan_staleness(const kolo_plan *plan)
{
    const kolo_pipeline_order *order = late_order(plan);
    return order ? order->staleness(plan->config.placement->stages, plan->config.stage) : 0;
}

/* Also where no backward turn reads them: with them the forward turns that were under way at a checkpoint are
 * done again. */
int kolo_plan_weight_versions(const kolo_plan *plan) { return kolo_plan_staleness(plan); }

bool kolo_plan_predicts(const kolo_plan *plan)
{
    return plan->config.predict && kolo_plan_weight_versions(plan) > 0;
}

int kolo_action_bindings(const kolo_plan *plan, const kolo_action *a)
{
    const kolo_node *n = a->node >= 0 ? &plan->graph->node[a->node] : NULL;
    if (a->kind == KOLO_ACTION_RUN) return n->n_in + n->n_out;
    if (a->kind == KOLO_ACTION_LOAD) return kolo_plan_loaded(plan, NULL);
    if (a->kind == KOLO_ACTION_COPY || kolo_action_changes_form(a->kind)) return 2;
    return a->kind == KOLO_ACTION_SUM || kolo_action_transfers(a->kind);
}

/* A stage begins with the first operation that reads a parameter of its own: what stands in front of it,
 * without parameters, may be cut off or not. */
void kolo_plan_late_text(const kolo_plan *plan, char *text, size_t size)
{
    const kolo_placement *p = plan->config.placement;
    const kolo_graph *g = plan->graph;
    *text = 0;
    if (!kolo_plan_is_late(plan)) return;
    int used = snprintf(text, size, "%s, %d stages, cut=", kolo_pipeline[p->order].name, p->stages);
    for (int s = 1; s < p->stages; s++) {
        int t = 0;
        while (t < g->tensors && (g->tensor[t].role != KOLO_ROLE_PARAM || p->owner[t] != s)) t++;
        if (used < (int)size)
            used += snprintf(text + used, size - (size_t)used, "%s%s", s > 1 ? "," : "",
                             t < g->tensors ? g->tensor[t].name : "");
    }
}

void kolo_plan_version_name(int place, char *text) { snprintf(text, 16, "version%d", place); }
