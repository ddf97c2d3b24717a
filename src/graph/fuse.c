/* Fusion: relu(norm(x)) and relu(norm(x) + r), r on either side, become one norm with relu and residual where
 * nothing else reads the tensors between; in training relu(norm(x) + norm(r)) too. The joined node stands
 * where the relu stood, so that r is there in any case.
 *
 * With g->pools max_pool(relu(norm(x))) becomes norm_max_pool where every element of the map lies in four
 * windows at most: it is normed anew for each. */
#include <stdlib.h>
#include <string.h>

#include "base/memory.h"
#include "graph/graph.h"
#include "kolo/error.h"

typedef struct fusion {
    kolo_graph *g;
    int *readers; /* [tensors] */
    bool *dead;   /* [nodes] */
} fusion;

/* The node that makes t if t is read once and is no result of the graph; else -1. */
static int private_producer(const fusion *f, int t)
{
    return t >= 0 && f->readers[t] == 1 && !kolo_graph_is_output(f->g, t) ? f->g->tensor[t].producer : -1;
}

/* A norm without relu and residual. */
static bool plain_norm(const fusion *f, int node)
{
    if (node < 0) return false;
    const kolo_node *n = &f->g->node[node];
    bool norm = n->op == KOLO_OP_norm_apply || n->op == KOLO_OP_norm_infer;
    return norm && !n->a.relu && n->n_in == kolo_op_table[n->op].min_in;
}

static bool same_norm(const kolo_attributes *a, const kolo_attributes *b)
{
    return !memcmp(&a->epsilon, &b->epsilon, sizeof a->epsilon) &&
           !memcmp(&a->momentum, &b->momentum, sizeof a->momentum);
}

/* What norm `other` makes is no residual: what it normalises is, and its norm goes with it. */
static void join_norm(fusion *f, kolo_node *joined, int other)
{
    const kolo_node *n = &f->g->node[other];
    for (int i = 0; i < 4; i++) joined->in[4 + i] = n->in[i];
    joined->n_in = 8;
    joined->out[3] = n->out[1];
    joined->n_out = 4;
    f->dead[other] = true;
}

static void fuse_join(fusion *f, int norm, int relu, int residual)
{
    kolo_node joined = f->g->node[norm];
    joined.a.relu = true;
    if (residual >= 0) joined.in[joined.n_in++] = residual;
    joined.out[0] = f->g->node[relu].out[0];
    const int other = private_producer(f, residual);
    if (joined.op == KOLO_OP_norm_apply && plain_norm(f, other) && same_norm(&joined.a, &f->g->node[other].a))
        join_norm(f, &joined, other);
    f->g->node[relu] = joined;
    f->dead[norm] = true;
}

static void fuse_relu(fusion *f, int relu)
{
    int before = private_producer(f, f->g->node[relu].in[0]);
    if (before < 0) return;
    if (plain_norm(f, before)) {
        fuse_join(f, before, relu, -1);
        return;
    }
    const kolo_node *add = &f->g->node[before];
    if (add->op != KOLO_OP_add) return;
    for (int side = 0; side < 2; side++) {
        int norm = private_producer(f, add->in[side]);
        if (!plain_norm(f, norm)) continue;
        fuse_join(f, norm, relu, add->in[1 - side]);
        f->dead[before] = true;
        return;
    }
}

static bool in_few_windows(const kolo_attributes *a)
{
    return a->kernel[0] <= 2 * a->stride[0] && a->kernel[1] <= 2 * a->stride[1];
}

static void fuse_pool(fusion *f, int pool)
{
    kolo_node *p = &f->g->node[pool];
    const int at = private_producer(f, p->in[0]);
    const kolo_node *norm = &f->g->node[at < 0 ? pool : at];
    if (norm->op != KOLO_OP_norm_apply || !norm->a.relu || norm->n_in != 4 || !in_few_windows(&p->a)) return;
    p->op = KOLO_OP_norm_max_pool;
    p->a.relu = true;
    p->a.epsilon = norm->a.epsilon;
    p->a.momentum = norm->a.momentum;
    for (int i = 0; i < norm->n_in; i++) p->in[i] = norm->in[i];
    p->n_in = norm->n_in;
    p->out[p->n_out++] = norm->out[1];
    f->dead[at] = true;
}

int kolo_graph_fuse(kolo_graph *g)
{
    if (g->grad)
        return kolo_fail(KOLO_EINTERNAL, "graph %s has gradients: fusion comes before kolo_graph_backward",
                         g->name);
    int rc = KOLO_ENOMEM;
    fusion f = {g, kolo_alloc((size_t)(g->tensors + 1) * sizeof *f.readers),
                kolo_alloc((size_t)(g->nodes + 1) * sizeof *f.dead)};
    if (!f.readers || !f.dead) goto done;
    for (int64_t i = 0; i < g->nodes; i++)
        for (int k = 0; k < g->node[i].n_in; k++)
            if (g->node[i].in[k] >= 0) f.readers[g->node[i].in[k]]++;
    for (int i = 0; i < (int)g->nodes; i++) {
        if (g->node[i].op == KOLO_OP_relu) fuse_relu(&f, i);
        if (g->node[i].op == KOLO_OP_max_pool && g->pools) fuse_pool(&f, i);
    }
    rc = kolo_graph_compact(g, f.dead);
done:
    free(f.readers);
    free(f.dead);
    return rc;
}
