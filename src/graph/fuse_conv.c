/* Fusions for devices whose library does several operations at once (cuDNN's runtime fusion and its fixed
 * graphs). They come after the gradients: what is joined has the same tensors, and no rule of its own is
 * needed.
 *
 * conv -> norm_stats becomes conv_stats: y is not read again for its sums. Where the library has no such
 * engine the operation is done as the two that it was made of (ops/compose.h). */
#include <stdlib.h>

#include "base/memory.h"
#include "graph/rules.h"
#include "kolo/error.h"

/* The convolution that makes x, where its sums can be formed with it: y is what is stored, without a bias,
 * and its channels are not cut into groups, for which there are kernels of their own. */
static int convolution_of(const kolo_graph *g, int x)
{
    const int at = x >= 0 ? g->tensor[x].producer : -1;
    if (at < 0) return -1;
    const kolo_node *n = &g->node[at];
    return n->op == KOLO_OP_conv && n->n_in == 2 && n->a.groups <= 1 ? at : -1;
}

int kolo_graph_fuse_conv(kolo_graph *g)
{
    bool *dead = kolo_alloc((size_t)(g->nodes + 1) * sizeof *dead);
    if (!dead) return KOLO_ECONFIG;
    for (int64_t i = 0; i < g->nodes; i++) {
        const kolo_node *stats = &g->node[i];
        const int at = stats->op == KOLO_OP_norm_stats ? convolution_of(g, stats->in[0]) : -1;
        if (at < 0) continue;
        kolo_node *conv = &g->node[at];
        conv->op = KOLO_OP_conv_stats;
        conv->out[conv->n_out++] = stats->out[0];
        dead[i] = true;
    }
    int rc = kolo_graph_compact(g, dead);
    free(dead);
    return rc;
}
