#include "ckpt/head.h"

#include <stdlib.h>

#include "base/memory.h"
#include "kolo/error.h"

int kolo_graph_head(const kolo_graph *g, bool *head)
{
    /* a layer with parameters comes behind this tensor */
    bool *before = kolo_alloc((size_t)g->tensors * sizeof *before + 1);
    if (!before) return KOLO_ENOMEM;
    for (int64_t t = 0; t < g->tensors; t++) head[t] = false;
    for (int64_t i = g->nodes; i-- > 0;) {
        const kolo_node *n = &g->node[i];
        bool later = false, has = false;
        if (n->backward) continue;
        for (int k = 0; k < n->n_out; k++) later |= n->out[k] >= 0 && before[n->out[k]];
        for (int k = 0; k < n->n_in; k++) has |= n->in[k] >= 0 && g->tensor[n->in[k]].role == KOLO_ROLE_PARAM;
        for (int k = 0; k < n->n_in; k++) {
            if (n->in[k] < 0) continue;
            if (g->tensor[n->in[k]].role == KOLO_ROLE_PARAM) head[n->in[k]] |= !later;
            else before[n->in[k]] |= later || has;
        }
    }
    free(before);
    return 0;
}
