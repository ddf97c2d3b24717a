/* Sums of gradients without additions: where a tensor has several readers, the operation that makes a further
 * part of its gradient adds what is there already, in whose memory the sum then lies. One pass over the
 * memory instead of three, and a tensor less alive.
 *
 *   d = conv_grad_data(dy, w); sum = add(before, d)   becomes   sum = conv_grad_data(dy, w, before)
 *
 * Which operations can is said by ops.def: those whose optional input may be overwritten. `before` is
 * overwritten, so it must die there: where it is read later still (it may be the gradient of other tensors
 * too) the addition stays. */
#include <stdlib.h>

#include "base/memory.h"
#include "graph/rules.h"
#include "kolo/error.h"

/* Whether node `maker` can make `sum` of `before` and what it makes now, whose only reader is node `add`. */
static bool can_add(const kolo_graph *g, const int *readers, int maker, int add)
{
    const kolo_node *m = &g->node[maker], *a = &g->node[add];
    const int before = a->in[0], part = a->in[1], addend = kolo_op_addend(m->op);
    if (addend < 0 || kolo_node_addend(m) >= 0) return false;
    if (m->out[0] != part || readers[part] != 1 || before == part) return false;
    for (int i = maker; i < g->nodes; i++)
        for (int k = 0; i != add && k < g->node[i].n_in; k++)
            if (g->node[i].in[k] == before) return false;
    return g->tensor[before].producer < maker;
}

int kolo_gradient_accumulate(kolo_graph *g)
{
    int rc = KOLO_ENOMEM;
    int *readers = kolo_alloc((size_t)(g->tensors + 1) * sizeof *readers);
    bool *dead = kolo_alloc((size_t)(g->nodes + 1) * sizeof *dead);
    if (!readers || !dead) goto done;
    for (int i = 0; i < g->nodes; i++)
        for (int k = 0; k < g->node[i].n_in; k++)
            if (g->node[i].in[k] >= 0) readers[g->node[i].in[k]]++;
    for (int i = 0; i < g->nodes; i++) {
        const kolo_node *add = &g->node[i];
        if (!add->backward || add->op != KOLO_OP_add) continue;
        const int maker = g->tensor[add->in[1]].producer;
        if (maker < 0 || !can_add(g, readers, maker, i)) continue;
        kolo_node *m = &g->node[maker];
        const int addend = kolo_op_addend(m->op);
        m->in[addend] = add->in[0];
        m->n_in = addend + 1;
        m->out[0] = add->out[0];
        g->tensor[m->out[0]].producer = maker;
        dead[i] = true;
    }
    rc = kolo_graph_compact(g, dead);
done:
    free(readers);
    free(dead);
    return rc;
}
