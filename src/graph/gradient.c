/* Reverse-mode differentiation: gradient rules emit backward nodes.
 *
 * While kolo_graph_backward walks, g->grad[t] is the gradient of t collected so far, NONE, or UNWANTED if no
 * parameter is reachable from t. A gradient tensor may stand for several forward tensors (both inputs of an
 * addition): nothing here writes into a tensor twice, and memory is shared only by lifetime, when the plan is
 * made. Sums of gradients are additions here; accumulate.c then does without most of them. */
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>

#include "base/memory.h"
#include "graph/rules.h"
#include "kolo/error.h"

enum { NONE = -1, UNWANTED = -2 };

bool kolo_gradient_wanted(const kolo_graph *g, int t) { return t >= 0 && g->grad[t] != UNWANTED; }

/* A new tensor for a gradient, or a part of the gradient, of t. */
int kolo_gradient_tensor(kolo_graph *g, int t)
{
    kolo_tensor of = g->tensor[t]; /* a copy: the array may move */
    bool param = of.role == KOLO_ROLE_PARAM;
    char name[300];
    snprintf(name, sizeof name, "grad:%s", of.name);
    for (int part = 1; kolo_graph_find(g, name) >= 0; part++)
        snprintf(name, sizeof name, "grad:%s:%d", of.name, part);
    int made = kolo_graph_tensor(g, name, param ? KOLO_ROLE_GRADIENT : KOLO_ROLE_ACTIVATION,
                                 param ? KOLO_F32 : of.dtype, of.rank, of.dim);
    if (made >= 0 && param) g->tensor[made].of = t;
    return made;
}

/* Adds d to the gradient of t. */
int kolo_gradient_contribute(kolo_graph *g, int t, int d)
{
    if (!kolo_gradient_wanted(g, t)) return 0;
    int before = g->grad[t];
    g->grad[t] = d;
    if (before == NONE) return 0;
    if (g->tensor[t].role == KOLO_ROLE_PARAM)
        return kolo_fail(KOLO_EINTERNAL,
                         "graph %s: %s is used by two operations; give each its own parameter", g->name,
                         g->tensor[t].name);
    int in[] = {before, d}, sum = kolo_gradient_tensor(g, t);
    if (sum < 0) return sum;
    KOLO_TRY(kolo_graph_node_with(g, KOLO_OP_add, 2, in, 1, &sum, NULL));
    g->grad[t] = sum;
    return 0;
}

/* Emits `op` whose only output is the gradient of t. */
int kolo_gradient_emit(kolo_graph *g, enum kolo_op op, int n_in, const int *in, const kolo_attributes *a,
                       int t)
{
    if (!kolo_gradient_wanted(g, t)) return 0;
    int d = kolo_gradient_tensor(g, t);
    if (d < 0) return d;
    KOLO_TRY(kolo_graph_node_with(g, op, n_in, in, 1, &d, a));
    return kolo_gradient_contribute(g, t, d);
}

/* Convolution and linear. The weight's gradient comes first: it is ready for its reduction
 * while dx is computed. */
static int product(kolo_graph *g, int index, enum kolo_op weight_op, enum kolo_op data_op)
{
    kolo_node n = g->node[index];
    int dy = g->grad[n.out[0]];
    int bias = n.n_in > 2 ? n.in[2] : -1;
    if (kolo_gradient_wanted(g, n.in[1])) {
        int in[] = {n.in[0], dy}, out[2] = {-1, -1};
        if ((out[0] = kolo_gradient_tensor(g, n.in[1])) < 0) return out[0];
        if (bias >= 0 && (out[1] = kolo_gradient_tensor(g, bias)) < 0) return out[1];
        KOLO_TRY(kolo_graph_node_with(g, weight_op, 2, in, bias >= 0 ? 2 : 1, out, &n.a));
        KOLO_TRY(kolo_gradient_contribute(g, n.in[1], out[0]));
        if (bias >= 0) KOLO_TRY(kolo_gradient_contribute(g, bias, out[1]));
    }
    int in[] = {dy, n.in[1]};
    return kolo_gradient_emit(g, data_op, 2, in, &n.a, n.in[0]);
}

int kolo_gradient_conv(kolo_graph *g, int node)
{
    return product(g, node, KOLO_OP_conv_grad_weight, KOLO_OP_conv_grad_data);
}
int kolo_gradient_linear(kolo_graph *g, int node)
{
    return product(g, node, KOLO_OP_linear_grad_weight, KOLO_OP_linear_grad_data);
}

/* The whole gradient of x, through the statistics too, comes from norm_apply's rule. */
int kolo_gradient_norm_nothing(kolo_graph *g, int node)
{
    (void)g;
    (void)node;
    return 0;
}

/* A norm of norm_apply: its own, or that of its residual; or that of norm_max_pool. */
typedef struct norm_of {
    int x, sums, w, b;
    enum kolo_op stats, apply; /* its gradients */
} norm_of;

/* The first of them; the new tensor dsums. y: as ops.def says */
static int norm_sums(kolo_graph *g, const norm_of *n, const kolo_attributes *a, int dy, int y)
{
    char name[300];
    snprintf(name, sizeof name, "grad:%s", g->tensor[n->sums].name);
    int64_t dim = 2 * g->tensor[n->x].dim[1];
    int dsums = kolo_graph_tensor(g, name, KOLO_ROLE_PARTIAL, KOLO_F64, 1, &dim);
    if (dsums < 0) return dsums;
    int dw = kolo_gradient_tensor(g, n->w);
    if (dw < 0) return dw;
    int db = kolo_gradient_tensor(g, n->b);
    if (db < 0) return db;
    int in[] = {dy, n->x, y, n->sums, n->w, n->b}, out[] = {dsums, dw, db};
    KOLO_TRY(kolo_graph_node_with(g, n->stats, 6, in, 3, out, a));
    KOLO_TRY(kolo_gradient_contribute(g, n->w, dw));
    KOLO_TRY(kolo_gradient_contribute(g, n->b, db));
    return dsums;
}

/* The signs of y, which the forward node then makes too. */
static int norm_signs(kolo_graph *g, int index)
{
    const kolo_tensor y = g->tensor[g->node[index].out[0]];
    char name[300];
    snprintf(name, sizeof name, "signs:%s", y.name);
    int made = kolo_graph_tensor(g, name, KOLO_ROLE_ACTIVATION, KOLO_U8, y.rank, y.dim);
    if (made < 0) return made;
    kolo_node *n = &g->node[index];
    g->tensor[made].producer = index;
    n->out[2] = made;
    if (n->n_out < 3) n->n_out = 3;
    return made;
}

/* Gradients of one norm; residual: what is added as it is, or -1. */
static int norm_gradient(kolo_graph *g, const norm_of *n, const kolo_attributes *a, int dy, int y,
                         int residual)
{
    int dsums = norm_sums(g, n, a, dy, y);
    if (dsums < 0) return dsums;
    if (!kolo_gradient_wanted(g, n->x) && !kolo_gradient_wanted(g, residual)) return 0;
    int in[] = {dy, n->x, y, n->sums, dsums, n->w, n->b}, out[2] = {-1, -1};
    if ((out[0] = kolo_gradient_tensor(g, n->x)) < 0) return out[0];
    bool branch = kolo_gradient_wanted(g, residual);
    if (branch && (out[1] = kolo_gradient_tensor(g, residual)) < 0) return out[1];
    KOLO_TRY(kolo_graph_node_with(g, n->apply, 7, in, branch ? 2 : 1, out, a));
    KOLO_TRY(kolo_gradient_contribute(g, n->x, out[0]));
    return branch ? kolo_gradient_contribute(g, residual, out[1]) : 0;
}

int kolo_gradient_norm_apply(kolo_graph *g, int index)
{
    kolo_node n = g->node[index];
    const enum kolo_op stats = KOLO_OP_norm_grad_stats, apply = KOLO_OP_norm_grad_apply;
    const norm_of own = {n.in[0], n.in[1], n.in[2], n.in[3], stats, apply},
                  other = {n.in[4], n.in[5], n.in[6], n.in[7], stats, apply};
    const bool two = n.n_in > 5;
    const int residual = n.n_in > 4 ? n.in[4] : -1, dy = g->grad[n.out[0]];
    /* only for the sign of the relu */
    const int y = !n.a.relu || residual < 0 ? -1 : g->signs ? norm_signs(g, index) : n.out[0];
    if (y < -1) return y;
    KOLO_TRY(norm_gradient(g, &own, &n.a, dy, y, two ? -1 : residual));
    return two ? norm_gradient(g, &other, &n.a, dy, y, -1) : 0;
}

int kolo_gradient_norm_max_pool(kolo_graph *g, int index)
{
    const kolo_node n = g->node[index];
    const norm_of own = {n.in[0],
                         n.in[1],
                         n.in[2],
                         n.in[3],
                         KOLO_OP_norm_max_pool_grad_stats,
                         KOLO_OP_norm_max_pool_grad_apply};
    return norm_gradient(g, &own, &n.a, g->grad[n.out[0]], n.out[1], -1);
}

int kolo_gradient_relu(kolo_graph *g, int index)
{
    kolo_node n = g->node[index];
    int in[] = {g->grad[n.out[0]], n.out[0]};
    return kolo_gradient_emit(g, KOLO_OP_relu_grad, 2, in, NULL, n.in[0]);
}

/* No node: both inputs have y's gradient. */
int kolo_gradient_add(kolo_graph *g, int index)
{
    kolo_node n = g->node[index];
    int dy = g->grad[n.out[0]];
    KOLO_TRY(kolo_gradient_contribute(g, n.in[0], dy));
    return kolo_gradient_contribute(g, n.in[1], dy);
}

int kolo_gradient_max_pool(kolo_graph *g, int index)
{
    kolo_node n = g->node[index];
    int in[] = {g->grad[n.out[0]], n.out[1]};
    return kolo_gradient_emit(g, KOLO_OP_max_pool_grad, 2, in, &n.a, n.in[0]);
}

int kolo_gradient_unary(kolo_graph *g, int index, enum kolo_op op)
{
    kolo_node n = g->node[index];
    int dy = g->grad[n.out[0]];
    return kolo_gradient_emit(g, op, 1, &dy, &n.a, n.in[0]);
}

int kolo_gradient_emit_all(kolo_graph *g, enum kolo_op op, int n_in, const int *in, const kolo_attributes *a,
                           int n, const int *t)
{
    int out[KOLO_MAX_ARGS];
    for (int i = 0; i < KOLO_MAX_ARGS; i++) out[i] = -1;
    for (int i = 0; i < n; i++)
        if (kolo_gradient_wanted(g, t[i]) && (out[i] = kolo_gradient_tensor(g, t[i])) < 0) return out[i];
    KOLO_TRY(kolo_graph_node_with(g, op, n_in, in, n, out, a));
    for (int i = n - 1; i >= 0; i--) /* parameters first: ready for their reduction */
        if (out[i] >= 0) KOLO_TRY(kolo_gradient_contribute(g, t[i], out[i]));
    return 0;
}

int kolo_gradient_avg_pool(kolo_graph *g, int node)
{
    return kolo_gradient_unary(g, node, KOLO_OP_avg_pool_grad);
}
int kolo_gradient_global_avg_pool(kolo_graph *g, int node)
{
    return kolo_gradient_unary(g, node, KOLO_OP_global_avg_pool_grad);
}
int kolo_gradient_adaptive_avg_pool(kolo_graph *g, int node)
{
    return kolo_gradient_unary(g, node, KOLO_OP_adaptive_avg_pool_grad);
}
int kolo_gradient_flatten(kolo_graph *g, int node)
{
    return kolo_gradient_unary(g, node, KOLO_OP_flatten_grad);
}
int kolo_gradient_shortcut_a(kolo_graph *g, int node)
{
    return kolo_gradient_unary(g, node, KOLO_OP_shortcut_a_grad);
}

static void mark_unwanted(kolo_graph *g)
{
    for (int64_t t = 0; t < g->tensors; t++)
        g->grad[t] = g->tensor[t].role == KOLO_ROLE_PARAM ? NONE : UNWANTED;
    for (int64_t i = 0; i < g->nodes; i++) {
        const kolo_node *n = &g->node[i];
        bool reaches = false;
        for (int k = 0; k < n->n_in; k++) reaches |= kolo_gradient_wanted(g, n->in[k]);
        if (!reaches || !kolo_op_table[n->op].gradient) continue;
        for (int k = 0; k < n->n_out; k++)
            if (n->out[k] >= 0) g->grad[n->out[k]] = NONE;
    }
}

/* The loss has no gradient tensor: it starts the walk. */
static bool gradient_arrives(const kolo_graph *g, const kolo_node *n)
{
    if (!kolo_op_table[n->op].gradient) return false;
    return n->out[0] == g->metrics || g->grad[n->out[0]] >= 0;
}

int kolo_graph_backward(kolo_graph *g)
{
    if (!g->train)
        return kolo_fail(KOLO_EINTERNAL, "graph %s is built for evaluation and has no gradients", g->name);
    if (g->metrics < 0)
        return kolo_fail(KOLO_EINTERNAL, "graph %s has no loss: kolo_cross_entropy comes first", g->name);
    if (g->grad) return kolo_fail(KOLO_EINTERNAL, "graph %s has gradients already", g->name);
    int64_t forward = g->tensors;
    g->grad = kolo_alloc((size_t)forward * sizeof *g->grad);
    if (!g->grad) return KOLO_ENOMEM;
    mark_unwanted(g);
    for (int i = (int)g->nodes - 1; i >= 0; i--) {
        g->differentiated = i;
        if (gradient_arrives(g, &g->node[i])) KOLO_TRY(kolo_op_table[g->node[i].op].gradient(g, i));
    }
    int *all = kolo_alloc((size_t)g->tensors * sizeof *all);
    if (!all) return KOLO_ENOMEM;
    for (int64_t t = 0; t < g->tensors; t++) all[t] = t < forward && g->grad[t] >= 0 ? g->grad[t] : -1;
    free(g->grad);
    g->grad = all;
    return kolo_gradient_accumulate(g);
}
