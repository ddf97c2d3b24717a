/* What a plan sends to other stages and receives from them, by what it is. */
#include <stdio.h>

#include "plan/parts.h"

enum sent_kind { MAPS, GRADIENTS, SUMS, COPIES, PARAM_GRADIENTS, OTHERS, KINDS };
static const char *const kind_name[KINDS] = {
    "activations and halos", "gradients of these",      "sums of norms, of losses",
    "copies of parameters",  "gradients of parameters", "metrics, labels",
};

static enum sent_kind kind_of(const kolo_graph *g, int tensor)
{
    const kolo_tensor *t = &g->tensor[tensor];
    const kolo_node *maker = t->producer >= 0 ? &g->node[t->producer] : NULL;
    const bool of_param = t->of >= 0 && g->tensor[t->of].role == KOLO_ROLE_PARAM;
    if (maker && maker->op == KOLO_OP_share) return COPIES;
    if (t->role == KOLO_ROLE_TERM && of_param) return PARAM_GRADIENTS;
    if (t->role == KOLO_ROLE_TERM || t->role == KOLO_ROLE_PARTIAL) return SUMS;
    if (t->role == KOLO_ROLE_ACTIVATION) return maker && maker->backward ? GRADIENTS : MAPS;
    return t->role == KOLO_ROLE_INPUT ? MAPS : OTHERS;
}

/* Of the whole network, a micro-batch, forward. */
static void print_halos(const kolo_graph *g, FILE *file)
{
    double flops = 0;
    for (int64_t i = 0; i < g->nodes; i++)
        if (kolo_op_table[g->node[i].op].flops) flops += kolo_op_table[g->node[i].op].flops(g, &g->node[i]);
    if (!g->halo.maps) return;
    fprintf(file,
            "halo=wide: of %d of %d maps parts make what they read beyond their borders: between parts %d "
            "messages a micro-batch instead of %d, %.0f bytes instead of %.0f, %.2f %% more computed\n",
            g->halo.made, g->halo.maps, g->halo.messages[1], g->halo.messages[0], g->halo.bytes[1],
            g->halo.bytes[0], flops > 0 ? 100 * g->halo.flops / (flops - g->halo.flops) : 0);
}

void kolo_plan_print_transfers(const kolo_plan *plan, void *file)
{
    size_t bytes[KINDS][2] = {{0}};
    int messages[KINDS][2] = {{0}};
    for (int i = 0; i < plan->transfers; i++) {
        const kolo_transfer *t = &plan->transfer[i];
        const enum sent_kind kind = kind_of(plan->graph, t->tensor);
        messages[kind][t->sends]++;
        bytes[kind][t->sends] += t->bytes;
    }
    print_halos(plan->graph, file);
    if (plan->transfers == 0) return;
    fprintf(file, "\nto and from other stages    sent         bytes  received         bytes\n");
    for (int k = 0; k < KINDS; k++)
        if (messages[k][0] + messages[k][1])
            fprintf(file, "  %-25s %5d %13zu     %5d %13zu\n", kind_name[k], messages[k][1], bytes[k][1],
                    messages[k][0], bytes[k][0]);
}
