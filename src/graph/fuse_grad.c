/* Fusions of gradients for devices, after fuse_conv.c's example: data gradients of convolutions.
 *
 * What a convolution reads is mostly relu(norm(x) [+ residual]). Its gradient there, dx, is then read by
 * norm_grad_stats and norm_grad_apply, of one norm or, where the residual has its own, of two, and each first
 * makes g of it: dx where the relu let something through. conv_grad_norm makes g and forms the sums; dx is
 * never stored, g is read by norm_grad_apply, and is what a residual added as it is has for a gradient: it
 * lies where norm_grad_apply would have written it, so that all its readers come later than that; so
 * does what overwrites it there.
 *
 * Only in fp16, for which cuDNN has such engines on sm_90 (cuDNN 9.19; for bf16 it has none). Where it
 * declines all the same the operation is done as those that it was made of (ops/compose.h). */
#include <stdlib.h>

#include "base/memory.h"
#include "graph/rules.h"
#include "kolo/error.h"

enum { DY, X, Y, SUMS, W, B }; /* inputs of norm_grad_stats; norm_grad_apply has the first four */

/* A convolution's gradient and those who read it. */
typedef struct chain {
    int stats[2], norms, apply[2], applies;
    int forward; /* the norm_apply whose relu it is, where a residual was added; -1: none was */
} chain;

/* Whether nothing but gradients of a norm with relu read tensor t, and who. */
static bool fuse_grad_collect(const kolo_graph *g, int t, chain *c)
{
    for (int i = g->tensor[t].producer + 1; i < g->nodes; i++) {
        const kolo_node *n = &g->node[i];
        for (int k = 0; k < n->n_in; k++) {
            if (n->in[k] != t) continue;
            const bool stats = n->op == KOLO_OP_norm_grad_stats, apply = n->op == KOLO_OP_norm_grad_apply;
            if (k != DY || !n->a.relu || !(stats || apply)) return false;
            int *count = stats ? &c->norms : &c->applies, *list = stats ? c->stats : c->apply;
            if (*count == 2) return false;
            list[(*count)++] = i;
        }
    }
    return c->norms > 0;
}

/* Whether these are all the norms that one relu has behind it. */
static bool whole(const kolo_graph *g, chain *c)
{
    const kolo_node *first = &g->node[c->stats[0]], *second = c->norms > 1 ? &g->node[c->stats[1]] : NULL;
    const int y = first->in[Y];
    c->forward = y < 0 ? -1 : g->tensor[y].producer;
    if (c->forward < 0) return !second;
    const kolo_node *f = &g->node[c->forward];
    if (f->op != KOLO_OP_norm_apply || f->in[0] != first->in[X]) return false;
    return f->n_in == 5 ? !second : f->n_in == 8 && second && second->in[X] == f->in[4] && second->in[Y] == y;
}

/* Whether there are engines for it: for maps of more than one vector of channels; where the convolution has a
 * stride, only of a norm alone. */
static bool suits(const kolo_graph *g, const kolo_node *n, const chain *c)
{
    const kolo_tensor *x = &g->tensor[n->out[0]];
    const bool strided = n->a.stride[0] > 1 || n->a.stride[1] > 1;
    if (strided && (kolo_node_addend(n) >= 0 || c->forward >= 0)) return false;
    return n->a.groups <= 1 && x->rank == 4 && x->dim[1] > 8;
}

static void fuse(kolo_graph *g, int data, const chain *c, bool *dead)
{
    kolo_node *n = &g->node[data];
    int result = n->out[0];
    const int other = kolo_node_addend(n) >= 0 ? n->in[kolo_node_addend(n)] : -1;
    for (int i = 0; i < c->applies; i++) {
        kolo_node *apply = &g->node[c->apply[i]];
        if (apply->n_out > 1 && apply->out[1] >= 0) result = apply->out[1];
        apply->n_out = 1;
        apply->a.relu = false;
        apply->in[Y] = -1;
    }
    for (int i = 0; i < c->applies; i++) g->node[c->apply[i]].in[DY] = result;
    n->op = KOLO_OP_conv_grad_norm;
    n->a.epsilon = g->node[c->stats[0]].a.epsilon;
    n->in[2] = other;
    n->out[0] = result;
    n->n_in = 3;
    n->n_out = 1;
    for (int i = 0; i < c->norms; i++) {
        const kolo_node *stats = &g->node[c->stats[i]];
        const int in[] = {stats->in[X], stats->in[SUMS], stats->in[W], stats->in[B]};
        for (int k = 0; k < 4; k++) n->in[n->n_in++] = in[k];
        for (int k = 0; k < 3; k++) n->out[n->n_out++] = stats->out[k];
        dead[c->stats[i]] = true;
    }
    if (c->norms == 1 && c->forward >= 0) n->in[n->n_in++] = g->node[c->forward].in[4];
}

static bool is_read(const kolo_graph *g, int t, const bool *dead)
{
    for (int64_t i = 0; i < g->nodes; i++)
        for (int k = 0; k < g->node[i].n_in && !dead[i]; k++)
            if (g->node[i].in[k] == t) return true;
    return false;
}

/* Signs that nobody reads any more are not kept. */
static void drop_signs(kolo_graph *g, const bool *dead)
{
    for (int64_t i = 0; i < g->nodes; i++) {
        kolo_node *n = &g->node[i];
        if (n->op != KOLO_OP_norm_apply || n->n_out < 3 || n->out[2] < 0 || is_read(g, n->out[2], dead))
            continue;
        n->out[2] = -1;
        if (n->n_out == 3) n->n_out = 2;
    }
}

int kolo_graph_fuse_grad(kolo_graph *g)
{
    if (g->dtype != KOLO_F16) return 0;
    bool *dead = kolo_alloc((size_t)(g->nodes + 1) * sizeof *dead);
    if (!dead) return KOLO_ENOMEM;
    for (int i = 0; i < g->nodes; i++) {
        const kolo_node *n = &g->node[i];
        chain c = {.forward = -1};
        if (n->op != KOLO_OP_conv_grad_data || !fuse_grad_collect(g, n->out[0], &c)) continue;
        if (whole(g, &c) && suits(g, n, &c)) fuse(g, i, &c, dead);
    }
    drop_signs(g, dead);
    int rc = kolo_graph_compact(g, dead);
    free(dead);
    return rc;
}
