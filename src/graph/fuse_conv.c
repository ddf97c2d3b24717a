/* Fusions for devices whose library does several operations at once (cuDNN's runtime fusion and its
 * fixed graphs). They come after the gradients: what is joined has the same tensors, and no rule of
 * its own is needed. Where the library has no such engine an operation is done as those that it was
 * made of (ops/compose.h).
 *
 *   conv -> norm_stats                   conv_stats: y is not read again for its sums
 *   norm_apply with relu -> conv_stats   norm_conv_stats, and norm_conv_grad_weight in the weight's gradient:
 *                                        the normed map is neither written nor read, and takes no memory
 *   norm_grad_apply, twice               norms_grad_apply, of two norms whose results were added: their
 *                                        gradient is read once */
#include <stdlib.h>
#include <string.h>

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

static void join_sums(kolo_graph *g, bool *dead)
{
    for (int64_t i = 0; i < g->nodes; i++) {
        const kolo_node *stats = &g->node[i];
        const int at = stats->op == KOLO_OP_norm_stats ? convolution_of(g, stats->in[0]) : -1;
        if (at < 0) continue;
        kolo_node *conv = &g->node[at];
        conv->op = KOLO_OP_conv_stats;
        conv->out[conv->n_out++] = stats->out[0];
        dead[i] = true;
    }
}

/* The two that read a normed map, where nothing else does; -1: not found. */
typedef struct readers {
    int forward, weight;
} readers;

static readers readers_of(const kolo_graph *g, int t)
{
    readers r = {-1, -1};
    for (int i = 0; i < (int)g->nodes; i++) {
        const kolo_node *n = &g->node[i];
        for (int k = 0; k < n->n_in; k++) {
            if (n->in[k] != t) continue;
            int *at = n->op == KOLO_OP_conv_stats                          ? &r.forward
                      : n->op == KOLO_OP_conv_grad_weight && n->n_out == 1 ? &r.weight
                                                                           : NULL;
            if (k || !at || *at >= 0) return (readers){-1, -1};
            *at = i;
        }
    }
    return r;
}

/* Node `reader` reads what `norm` makes of x: it becomes `op`, which reads x and what `norm` reads. */
static void take_norm(const kolo_node *norm, kolo_node *reader, enum kolo_op op)
{
    reader->op = op;
    reader->in[0] = norm->in[0];
    for (int i = 0; i < 3; i++) reader->in[2 + i] = norm->in[1 + i];
    reader->n_in = 5;
    reader->a.relu = true;
    reader->a.epsilon = norm->a.epsilon;
    reader->a.momentum = norm->a.momentum;
}

/* cuDNN has engines where x has more than one vector of channels (tests/toolkit). */
static void join_norms(kolo_graph *g, bool *dead)
{
    for (int64_t i = 0; i < g->nodes; i++) {
        const kolo_node *norm = &g->node[i];
        if (dead[i] || norm->op != KOLO_OP_norm_apply || !norm->a.relu || norm->n_in != 4) continue;
        const kolo_tensor *y = &g->tensor[norm->out[0]];
        if (y->rank != 4 || y->dim[1] <= 8 || kolo_graph_is_output(g, norm->out[0])) continue;
        const readers r = readers_of(g, norm->out[0]);
        if (r.forward < 0 || r.weight < 0) continue;
        kolo_node *conv = &g->node[r.forward];
        take_norm(norm, conv, KOLO_OP_norm_conv_stats);
        take_norm(norm, &g->node[r.weight], KOLO_OP_norm_conv_grad_weight);
        conv->out[conv->n_out++] = norm->out[1];
        dead[i] = true;
    }
}

/* The next gradient of a norm that reads what `first` reads of the sum; -1: there is none,
 * or it comes too late. */
static int second_gradient(const kolo_graph *g, int first)
{
    const kolo_node *a = &g->node[first];
    for (int i = first + 1; i < (int)g->nodes; i++) {
        const kolo_node *b = &g->node[i];
        if (b->op == KOLO_OP_norm_grad_apply && b->in[0] == a->in[0] && b->in[2] == a->in[2] &&
            b->n_out == 1 && b->a.relu == a->a.relu &&
            !memcmp(&b->a.epsilon, &a->a.epsilon, sizeof a->a.epsilon))
            return i;
        for (int k = 0; k < b->n_in; k++)
            if (b->in[k] == a->out[0]) return -1;
    }
    return -1;
}

static void join_gradients(kolo_graph *g, bool *dead)
{
    enum { DY, X, Y, SUMS, DSUMS, W };
    for (int i = 0; i < (int)g->nodes; i++) {
        const kolo_node *a = &g->node[i];
        const bool plain = a->op == KOLO_OP_norm_grad_apply && a->n_out == 1 && (!a->a.relu || a->in[Y] >= 0);
        const int at = plain && !dead[i] ? second_gradient(g, i) : -1;
        if (at < 0) continue;
        kolo_node *b = &g->node[at];
        const int in[] = {a->in[DY], a->in[X], a->in[Y],    a->in[SUMS],  a->in[DSUMS],
                          a->in[W],  b->in[X], b->in[SUMS], b->in[DSUMS], b->in[W]};
        b->op = KOLO_OP_norms_grad_apply;
        b->out[1] = b->out[0];
        b->out[0] = a->out[0];
        b->n_out = 2;
        b->n_in = sizeof in / sizeof *in;
        memcpy(b->in, in, sizeof in);
        dead[i] = true;
    }
}

int kolo_graph_fuse_conv(kolo_graph *g, bool norms)
{
    bool *dead = kolo_alloc((size_t)(g->nodes + 1) * sizeof *dead);
    if (!dead) return KOLO_ENOMEM;
    join_sums(g, dead);
    join_gradients(g, dead);
    int rc = kolo_graph_compact(g, dead);
    memset(dead, 0, (size_t)g->nodes * sizeof *dead);
    if (norms && rc == 0) {
        join_norms(g, dead);
        rc = kolo_graph_compact(g, dead);
    }
    free(dead);
    return rc;
}
