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

/* The parameter that t is, or is a copy of; else t. */
static int original(const kolo_graph *g, int t)
{
    return g->tensor[t].role == KOLO_ROLE_TERM && g->tensor[t].of >= 0 ? g->tensor[t].of : t;
}

/* How often the forward half reads parameter t, or copies of it. */
static int readings(const kolo_graph *g, int t)
{
    int n = 0;
    for (int64_t i = 0; i < g->nodes && !g->node[i].backward; i++)
        for (int k = 0; k < g->node[i].n_in && g->node[i].op != KOLO_OP_share; k++)
            n += g->node[i].in[k] >= 0 && original(g, g->node[i].in[k]) == t;
    return n;
}

/* A new tensor for a gradient, or a part of the gradient, of t. Of a parameter that is read several times, or
 * by another part than its own, it is a term. */
int kolo_gradient_tensor(kolo_graph *g, int t)
{
    t = original(g, t);
    kolo_tensor of = g->tensor[t]; /* a copy: the array may move */
    const bool param = of.role == KOLO_ROLE_PARAM, term = param && (of.part != g->part || readings(g, t) > 1);
    char name[300];
    snprintf(name, sizeof name, "grad:%s%s", of.name, term ? ":term" : "");
    for (int part = 1; kolo_graph_find(g, name) >= 0; part++)
        snprintf(name, sizeof name, "grad:%s%s:%d", of.name, term ? ":term" : "", part);
    const enum kolo_role role = term ? KOLO_ROLE_TERM : param ? KOLO_ROLE_GRADIENT : KOLO_ROLE_ACTIVATION;
    int made = kolo_graph_tensor(g, name, role, param ? KOLO_F32 : of.dtype, of.rank, of.dim);
    if (made >= 0 && param) g->tensor[made].of = t;
    return made;
}

/* Sum of n equal tensors, in their order; `sum` is made already. */
static int emit_total(kolo_graph *g, int n, const int *term, int sum)
{
    if (n > KOLO_MAX_ARGS)
        return kolo_fail(KOLO_EINTERNAL, "graph %s: %s has %d terms; %d are possible", g->name,
                         g->tensor[sum].name, n, KOLO_MAX_ARGS);
    return kolo_graph_node_with(g, KOLO_OP_total, n, term, 1, &sum, NULL);
}

/* The last of all terms of parameter t's gradient is there, of its first reading: they are added in the order
 * of the readings, whose gradients come backward. */
static int add_terms(kolo_graph *g, int t)
{
    const int n = readings(g, t);
    int term[KOLO_MAX_ARGS], found = 0;
    for (int i = (int)g->tensors - 1; i >= 0; i--) {
        const kolo_tensor *x = &g->tensor[i];
        if (x->role != KOLO_ROLE_TERM || x->of != t || x->producer < 0 || !g->node[x->producer].backward)
            continue;
        if (found < KOLO_MAX_ARGS) term[found] = i;
        found++;
    }
    if (found < n) return 0;
    char name[300];
    snprintf(name, sizeof name, "grad:%s", g->tensor[t].name);
    const kolo_tensor of = g->tensor[t];
    const int sum = kolo_graph_tensor(g, name, KOLO_ROLE_GRADIENT, KOLO_F32, of.rank, of.dim);
    if (sum < 0) return sum;
    g->tensor[sum].of = t;
    const int part = g->part;
    g->part = of.part;
    const int rc = emit_total(g, found, term, sum);
    g->part = part;
    g->grad[t] = sum;
    return rc < 0 ? rc : 0;
}

/* Where the gradient of t is collected that part `part` makes: with channels in parts each part adds up its
 * own, and only their sums are sent (add_parts). */
static int *collected(const kolo_graph *g, int t, int part)
{
    const int maker = g->tensor[t].producer;
    if (!g->added || maker < 0 || g->node[maker].part == part) return &g->grad[t];
    return &g->added[(int64_t)t * kolo_graph_parts(g) + part];
}

/* Adds d to the gradient of t. */
int kolo_gradient_contribute(kolo_graph *g, int t, int d)
{
    if (!kolo_gradient_wanted(g, t)) return 0;
    if (g->tensor[d].role == KOLO_ROLE_TERM) return add_terms(g, original(g, t));
    int *to = collected(g, t, g->part), before = *to;
    *to = d;
    if (before == NONE) return 0;
    int in[] = {before, d}, sum = kolo_gradient_tensor(g, t);
    if (sum < 0) return sum;
    KOLO_TRY(kolo_graph_node_with(g, KOLO_OP_add, 2, in, 1, &sum, NULL));
    *to = sum;
    return 0;
}

/* Nothing is added to the gradient of t any more: what the parts have made of it becomes one. */
static int add_parts(kolo_graph *g, int t)
{
    int term[KOLO_MAX_ARGS], n = 0;
    if (!g->added || !kolo_gradient_wanted(g, t)) return 0;
    for (int p = 0; p < kolo_graph_parts(g); p++) {
        const int d = *collected(g, t, p);
        if (d >= 0) term[n++] = d;
    }
    if (n > 0) g->grad[t] = term[0];
    if (n < 2) return 0;
    const int sum = kolo_gradient_tensor(g, t);
    if (sum < 0) return sum;
    KOLO_TRY(emit_total(g, n, term, sum));
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

/* What a tile put together is not kept for the backward half: it is done again, of what is. */
static int tile_again(kolo_graph *g, int t)
{
    const int producer = g->tensor[t].producer;
    if (producer < 0) return t;
    const kolo_node n = g->node[producer];
    if (n.op != KOLO_OP_tile || n.backward || n.part != g->part) return t;
    char name[300];
    snprintf(name, sizeof name, "again:%s", g->tensor[t].name);
    int made = kolo_graph_find(g, name);
    if (made >= 0) return made;
    const kolo_tensor of = g->tensor[t];
    made = kolo_graph_tensor(g, name, of.role, of.dtype, of.rank, of.dim);
    if (made < 0) return made;
    KOLO_TRY(kolo_graph_node_with(g, KOLO_OP_tile, n.n_in, n.in, 1, &made, &n.a));
    return made;
}

/* Convolution and linear. The weight's gradient comes first: it is ready for its reduction
 * while dx is computed. */
static int product(kolo_graph *g, int index, enum kolo_op weight_op, enum kolo_op data_op)
{
    kolo_node n = g->node[index];
    int dy = g->grad[n.out[0]];
    int bias = n.n_in > 2 ? n.in[2] : -1;
    if (kolo_gradient_wanted(g, n.in[1])) {
        int in[] = {tile_again(g, n.in[0]), dy}, out[2] = {-1, -1};
        if (in[0] < 0) return in[0];
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

/* A norm of norm_apply: its own, or that of its residual; or that of norm_max_pool. Of a part of the maps,
 * where they are cut. */
typedef struct norm_of {
    int x, sums, w, b;
    enum kolo_op stats, apply; /* its gradients */
    int dy, y;                 /* y: as ops.def says */
    int residual;              /* what is added as it is, or -1 */
    int part;
} norm_of;

/* The first of them, of a part; the new tensor dsums, or a term of it. */
static int norm_sums(kolo_graph *g, const norm_of *n, const kolo_attributes *a, bool term)
{
    char name[300];
    snprintf(name, sizeof name, term ? "grad:%s:part%d" : "grad:%s", g->tensor[n->sums].name, n->part);
    int64_t dim = 2 * g->tensor[n->x].dim[1];
    int dsums = kolo_graph_tensor(g, name, term ? KOLO_ROLE_TERM : KOLO_ROLE_PARTIAL, KOLO_F64, 1, &dim);
    if (dsums < 0) return dsums;
    int dw = kolo_gradient_tensor(g, n->w);
    if (dw < 0) return dw;
    int in[] = {n->dy, n->x, n->y, n->sums, n->w, n->b}, out[] = {dsums, dw, kolo_gradient_tensor(g, n->b)};
    if (out[2] < 0) return out[2];
    KOLO_TRY(kolo_graph_node_with(g, n->stats, 6, in, 3, out, a));
    KOLO_TRY(kolo_gradient_contribute(g, n->w, dw));
    KOLO_TRY(kolo_gradient_contribute(g, n->b, out[2]));
    return dsums;
}

/* Of all parts: their sums' sum. Backward like the walk, so that the terms of parameters are in order. */
static int norm_all_sums(kolo_graph *g, const norm_of *n, int parts, const kolo_attributes *a)
{
    int term[KOLO_MAX_ARGS];
    for (int i = parts - 1; i >= 0; i--) {
        g->part = n[i].part;
        if ((term[i] = norm_sums(g, &n[i], a, parts > 1)) < 0) return term[i];
    }
    if (parts == 1) return term[0];
    g->part = n[0].part;
    char name[300];
    snprintf(name, sizeof name, "grad:%s", g->tensor[n->sums].name);
    const int64_t dim = g->tensor[term[0]].dim[0];
    const int sum = kolo_graph_tensor(g, name, KOLO_ROLE_PARTIAL, KOLO_F64, 1, &dim);
    if (sum < 0) return sum;
    KOLO_TRY(emit_total(g, parts, term, sum));
    return sum;
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

static int norm_apply_gradient(kolo_graph *g, const norm_of *n, const kolo_attributes *a, int dsums)
{
    if (!kolo_gradient_wanted(g, n->x) && !kolo_gradient_wanted(g, n->residual)) return 0;
    int in[] = {n->dy, n->x, n->y, n->sums, dsums, n->w, n->b}, out[2] = {-1, -1};
    if ((out[0] = kolo_gradient_tensor(g, n->x)) < 0) return out[0];
    bool branch = kolo_gradient_wanted(g, n->residual);
    if (branch && (out[1] = kolo_gradient_tensor(g, n->residual)) < 0) return out[1];
    KOLO_TRY(kolo_graph_node_with(g, n->apply, 7, in, branch ? 2 : 1, out, a));
    KOLO_TRY(kolo_gradient_contribute(g, n->x, out[0]));
    return branch ? kolo_gradient_contribute(g, n->residual, out[1]) : 0;
}

/* Gradients of one norm, of all its parts. */
static int norm_gradient(kolo_graph *g, const norm_of *n, int parts, const kolo_attributes *a)
{
    const int dsums = norm_all_sums(g, n, parts, a);
    if (dsums < 0) return dsums;
    for (int i = parts - 1; i >= 0; i--) {
        g->part = n[i].part;
        KOLO_TRY(norm_apply_gradient(g, &n[i], a, dsums));
    }
    return 0;
}

/* Node `index` applies the same norm as the one before it, to another part. */
static bool norm_follows(const kolo_graph *g, int index)
{
    const kolo_node *n = &g->node[index], *before = n - 1;
    return index > 0 && before->op == n->op && before->in[1] == n->in[1];
}

/* All parts of a norm at once, when the walk has come to the first: their gradients depend on
 * sums over all. */
int kolo_gradient_norm_apply(kolo_graph *g, int index)
{
    const enum kolo_op stats = KOLO_OP_norm_grad_stats, apply = KOLO_OP_norm_grad_apply;
    norm_of own[KOLO_MAX_ARGS], other[KOLO_MAX_ARGS];
    int parts = 0;
    if (norm_follows(g, index)) return 0;
    const kolo_attributes a = g->node[index].a;
    const bool two = g->node[index].n_in > 5;
    do {
        if (parts == KOLO_MAX_ARGS) return kolo_fail(KOLO_EINTERNAL, "graph %s: too many parts", g->name);
        const kolo_node n = g->node[index + parts];
        const int residual = n.n_in > 4 ? n.in[4] : -1, dy = g->grad[n.out[0]];
        /* only for the sign of the relu */
        const int y = !a.relu || residual < 0 ? -1 : g->signs ? norm_signs(g, index + parts) : n.out[0];
        if (y < -1) return y;
        own[parts] =
            (norm_of){n.in[0], n.in[1], n.in[2], n.in[3], stats, apply, dy, y, two ? -1 : residual, n.part};
        other[parts] = (norm_of){n.in[4], n.in[5], n.in[6], n.in[7], stats, apply, dy, y, -1, n.part};
        parts++;
    } while (index + parts < g->nodes && norm_follows(g, index + parts));
    KOLO_TRY(norm_gradient(g, own, parts, &a));
    return two ? norm_gradient(g, other, parts, &a) : 0;
}

int kolo_gradient_norm_max_pool(kolo_graph *g, int index)
{
    const kolo_node n = g->node[index];
    const norm_of own = {n.in[0],
                         n.in[1],
                         n.in[2],
                         n.in[3],
                         KOLO_OP_norm_max_pool_grad_stats,
                         KOLO_OP_norm_max_pool_grad_apply,
                         g->grad[n.out[0]],
                         n.out[1],
                         -1,
                         n.part};
    return norm_gradient(g, &own, 1, &n.a);
}

int kolo_gradient_relu(kolo_graph *g, int index)
{
    kolo_node n = g->node[index];
    int in[] = {g->grad[n.out[0]], n.out[0]};
    return kolo_gradient_emit(g, KOLO_OP_relu_grad, 2, in, NULL, n.in[0]);
}

/* No node: all terms have the sum's gradient. */
int kolo_gradient_total(kolo_graph *g, int index)
{
    const kolo_node n = g->node[index];
    for (int k = 0; k < n.n_in; k++) KOLO_TRY(kolo_gradient_contribute(g, n.in[k], g->grad[n.out[0]]));
    return 0;
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
        g->grad[t] = g->tensor[t].role == KOLO_ROLE_PARAM && !g->tensor[t].frozen ? NONE : UNWANTED;
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

static int walk_back(kolo_graph *g)
{
    for (int i = (int)g->nodes - 1; i >= 0; i--) {
        g->differentiated = i;
        g->part = g->node[i].part;
        for (int k = 0; k < g->node[i].n_out; k++)
            if (g->node[i].out[k] >= 0) KOLO_TRY(add_parts(g, g->node[i].out[k]));
        if (gradient_arrives(g, &g->node[i])) KOLO_TRY(kolo_op_table[g->node[i].op].gradient(g, i));
    }
    g->part = 0;
    return 0;
}

static int open_parts(kolo_graph *g)
{
    const int64_t places = g->tensors * kolo_graph_parts(g);
    if (g->parts[2] < 2) return 0;
    g->added = kolo_alloc((size_t)places * sizeof *g->added);
    if (!g->added) return KOLO_ENOMEM;
    for (int64_t i = 0; i < places; i++) g->added[i] = NONE;
    return 0;
}

int kolo_gradient_walk(kolo_graph *g)
{
    KOLO_TRY(open_parts(g));
    const int rc = walk_back(g);
    free(g->added);
    g->added = NULL;
    return rc;
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
    KOLO_TRY(kolo_gradient_walk(g));
    for (int64_t t = 0; t < g->tensors; t++) {
        const int64_t of = kolo_tensor_is_gradient(&g->tensor[t]) ? g->tensor[t].of : -1;
        if (of < 0 || g->grad[of] >= 0 || g->tensor[of].role != KOLO_ROLE_PARAM) continue;
        if (g->tensor[of].frozen) continue; /* a copy for another part (share), not a gradient */
        return kolo_fail(KOLO_EINTERNAL, "graph %s: not all that reads %s reaches the loss", g->name,
                         g->tensor[of].name);
    }
    int *all = kolo_alloc((size_t)g->tensors * sizeof *all);
    if (!all) return KOLO_ENOMEM;
    for (int64_t t = 0; t < g->tensors; t++) all[t] = t < forward && g->grad[t] >= 0 ? g->grad[t] : -1;
    free(g->grad);
    g->grad = all;
    return kolo_gradient_accumulate(g);
}
