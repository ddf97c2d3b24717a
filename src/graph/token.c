/* Layers of transformers and of networks built like them: builders, shapes, gradients. */
#include <inttypes.h>
#include <stdio.h>

#include "graph/rules.h"
#include "kolo/error.h"

int kolo_layer_norm(kolo_graph *g, const char *name, int x, double epsilon)
{
    if (x < 0) return x;
    if (g->tensor[x].rank != 2 && g->tensor[x].rank != 4)
        return kolo_fail(KOLO_ECONFIG, "%s: layer norm takes (N,C,H,W) or (N,C), but %s has %d dimensions",
                         name, g->tensor[x].name, g->tensor[x].rank);
    if (!(epsilon > 0))
        return kolo_fail(KOLO_ECONFIG, "%s: epsilon is %g; it must be positive", name, epsilon);
    char part[300];
    const kolo_init one = {KOLO_INIT_CONSTANT, 1}, zero = {KOLO_INIT_CONSTANT, 0};
    int64_t channels = g->tensor[x].dim[1];
    int in[3] = {x, -1, -1};
    snprintf(part, sizeof part, "%s.weight", name);
    if ((in[1] = kolo_param(g, part, 1, &channels, one, false)) < 0) return in[1];
    snprintf(part, sizeof part, "%s.bias", name);
    if ((in[2] = kolo_param(g, part, 1, &channels, zero, false)) < 0) return in[2];
    return kolo_build_output(g, KOLO_OP_layer_norm, 3, in, 1, &(kolo_attributes){.epsilon = epsilon}, name);
}

int kolo_activate(kolo_graph *g, const char *name, int x, enum kolo_activation activation, double slope)
{
    if (x < 0) return x;
    const kolo_attributes a = {.activation = activation, .slope = slope};
    return kolo_build_output(g, KOLO_OP_activation, 1, &x, 1, &a, name);
}

static int check_drop(const char *name, double drop)
{
    if (drop >= 0 && drop < 1) return 0;
    return kolo_fail(KOLO_ECONFIG, "%s: the probability to drop is %g; it lies in [0, 1)", name, drop);
}

/* Evaluation drops nothing. */
static kolo_attributes draw(kolo_graph *g, double drop)
{
    kolo_attributes a = {0};
    if (g->train && drop > 0) {
        a.drop = drop;
        a.draw = g->draws++;
    }
    return a;
}

int kolo_residual(kolo_graph *g, const char *name, int x, int branch, int scale, double drop)
{
    if (x < 0) return x;
    if (branch < 0) return branch;
    if (scale < -1) return scale;
    KOLO_TRY(check_drop(name, drop));
    const kolo_attributes a = draw(g, drop);
    if (scale < 0 && !(a.drop > 0)) return kolo_add(g, name, x, branch);
    int in[] = {branch, scale, x};
    return kolo_build_output(g, KOLO_OP_residual, 3, in, 1, &a, name);
}

int kolo_dropout(kolo_graph *g, const char *name, int x, double drop)
{
    if (x < 0) return x;
    KOLO_TRY(check_drop(name, drop));
    const kolo_attributes a = draw(g, drop);
    return a.drop > 0 ? kolo_build_output(g, KOLO_OP_dropout, 1, &x, 1, &a, name) : x;
}

int kolo_gate(kolo_graph *g, const char *name, int x, int s)
{
    if (x < 0) return x;
    if (s < 0) return s;
    int in[] = {x, s};
    return kolo_build_output(g, KOLO_OP_gate, 2, in, 1, NULL, name);
}

int kolo_window_attention(kolo_graph *g, const char *name, int qkv, int64_t heads, int64_t window,
                          const int64_t shift[2])
{
    if (qkv < 0) return qkv;
    if (window < 1 || window > 64 || heads < 1)
        return kolo_fail(KOLO_ECONFIG,
                         "%s: %" PRId64 " heads, windows of %" PRId64 " pixels: 1 to 64 are possible", name,
                         heads, window);
    char part[300];
    snprintf(part, sizeof part, "%s.relative_position_bias_table", name);
    int64_t dim[] = {(2 * window - 1) * (2 * window - 1), heads};
    int in[2] = {qkv, kolo_param(g, part, 2, dim, (kolo_init){KOLO_INIT_NORMAL, 0.02}, false)};
    if (in[1] < 0) return in[1];
    const kolo_attributes a = {.kernel = {window, window},
                               .stride = {1, 1},
                               .pad = {shift[0], shift[1]},
                               .beyond = {shift[0], shift[1]},
                               .groups = heads};
    return kolo_build_output(g, KOLO_OP_window_attention, 2, in, 1, &a, name);
}

int kolo_attention_of_all(kolo_graph *g, const char *name, int qkv, int64_t heads)
{
    if (qkv < 0) return qkv;
    KOLO_TRY(heads < 1 ? kolo_fail(KOLO_ECONFIG, "%s: %" PRId64 " heads", name, heads) : 0);
    const int64_t *dim = g->tensor[qkv].dim;
    const kolo_attributes a = {.kernel = {dim[2], dim[3]}, .stride = {1, 1}, .groups = heads};
    return kolo_build_output(g, KOLO_OP_window_attention, 1, &qkv, 1, &a, name);
}

int kolo_embed(kolo_graph *g, const char *name, int x, int first, int position)
{
    const int in[] = {x, first, position};
    for (int i = 0; i < 3; i++)
        if (in[i] < 0) return in[i];
    return kolo_build_output(g, KOLO_OP_embed, 3, in, 1, NULL, name);
}

/* ---- shapes -------------------------------------------------------------------------------------------- */

int kolo_shape_layer_norm(kolo_graph *g, kolo_node *node, const char *module)
{
    const kolo_tensor *x = &g->tensor[node->in[0]];
    for (int i = 1; i < 3; i++) KOLO_TRY(kolo_shape_want_vector(g, node, i, x->dim[1], module));
    return kolo_shape_make_like(g, node, 0, module, x->rank, x->dim);
}

/* branch, scale or -1, x or -1 */
int kolo_shape_residual(kolo_graph *g, kolo_node *node, const char *module)
{
    const kolo_tensor *x = &g->tensor[node->in[0]];
    if (x->rank != 2) KOLO_TRY(kolo_shape_want_rank(g, node, 0, 4, module));
    if (node->n_in > 1 && node->in[1] >= 0 && kolo_tensor_count(&g->tensor[node->in[1]]) != x->dim[1])
        return kolo_fail(KOLO_ECONFIG, "%s: %s does not have the %" PRId64 " channels of %s", module,
                         g->tensor[node->in[1]].name, x->dim[1], x->name);
    if (node->n_in > 2 && node->in[2] >= 0) KOLO_TRY(kolo_shape_want_same(g, node, 0, 2, module));
    return kolo_shape_make_like(g, node, 0, module, x->rank, x->dim);
}

int kolo_shape_gate(kolo_graph *g, kolo_node *node, const char *module)
{
    KOLO_TRY(kolo_shape_want_rank(g, node, 0, 4, module));
    KOLO_TRY(kolo_shape_want_rank(g, node, 1, 2, module));
    const kolo_tensor *x = &g->tensor[node->in[0]], *s = &g->tensor[node->in[1]];
    if (x->dim[0] != s->dim[0] || x->dim[1] != s->dim[1] || x->dtype != s->dtype)
        return kolo_fail(KOLO_ECONFIG, "%s: %s has no factor for each channel of %s", module, s->name,
                         x->name);
    return kolo_shape_make_like(g, node, 0, module, 4, x->dim);
}

int kolo_shape_window_attention(kolo_graph *g, kolo_node *node, const char *module)
{
    KOLO_TRY(kolo_shape_want_rank(g, node, 0, 4, module));
    const bool biased = node->n_in > 1;
    if (biased) KOLO_TRY(kolo_shape_want_rank(g, node, 1, 2, module));
    const kolo_tensor *x = &g->tensor[node->in[0]], *table = biased ? &g->tensor[node->in[1]] : NULL;
    const kolo_attributes *a = &node->a;
    if (x->dim[1] % (3 * a->groups))
        return kolo_fail(KOLO_ECONFIG,
                         "%s: %" PRId64 " channels are no queries, keys and values of %" PRId64 " heads",
                         module, x->dim[1], a->groups);
    for (int axis = 0; axis < 2; axis++)
        if (x->dim[2 + axis] % a->kernel[axis] || a->pad[axis] < 0 || a->pad[axis] >= a->kernel[axis])
            return kolo_fail(KOLO_ECONFIG,
                             "%s: windows of %" PRId64 " pixels, shifted by %" PRId64
                             ", do not fill a map of %" PRId64,
                             module, a->kernel[axis], a->pad[axis], x->dim[2 + axis]);
    if (!biased && (a->pad[0] || a->pad[1] || a->kernel[0] != x->dim[2] || a->kernel[1] != x->dim[3]))
        return kolo_fail(KOLO_EINTERNAL, "%s: windows without a bias are no part of a map", module);
    if (table &&
        (table->dim[0] != (2 * a->kernel[0] - 1) * (2 * a->kernel[1] - 1) || table->dim[1] != a->groups))
        return kolo_fail(KOLO_EINTERNAL, "%s: the table of relative positions has another size", module);
    int64_t dim[] = {x->dim[0], x->dim[1] / 3, x->dim[2], x->dim[3]};
    return kolo_shape_make_like(g, node, 0, module, 4, dim);
}

int kolo_shape_embed(kolo_graph *g, kolo_node *node, const char *module)
{
    KOLO_TRY(kolo_shape_want_rank(g, node, 0, 4, module));
    const kolo_tensor *x = &g->tensor[node->in[0]];
    const int64_t dim[] = {x->dim[0], x->dim[1], 1 + x->dim[2] * x->dim[3], 1};
    if (kolo_tensor_count(&g->tensor[node->in[1]]) != dim[1] ||
        kolo_tensor_count(&g->tensor[node->in[2]]) != dim[1] * dim[2])
        return kolo_fail(KOLO_EINTERNAL, "%s: no position for each of %" PRId64 " tokens", module, dim[2]);
    return kolo_shape_make_like(g, node, 0, module, 4, dim);
}

/* ---- gradients ----------------------------------------------------------------------------------------- */

int kolo_gradient_layer_norm(kolo_graph *g, int index)
{
    kolo_node n = g->node[index];
    int in[] = {g->grad[n.out[0]], n.in[0], n.in[1]};
    return kolo_gradient_emit_all(g, KOLO_OP_layer_norm_grad, 3, in, &n.a, 3, n.in);
}

int kolo_gradient_activation(kolo_graph *g, int index)
{
    kolo_node n = g->node[index];
    int in[] = {g->grad[n.out[0]], n.in[0]};
    return kolo_gradient_emit(g, KOLO_OP_activation_grad, 2, in, &n.a, n.in[0]);
}

/* x has y's gradient, without a node. */
int kolo_gradient_residual(kolo_graph *g, int index)
{
    kolo_node n = g->node[index];
    int dy = g->grad[n.out[0]], scale = n.n_in > 1 ? n.in[1] : -1;
    int in[] = {dy, scale >= 0 ? n.in[0] : -1, scale}, t[] = {n.in[0], scale};
    if (n.n_in > 2 && n.in[2] >= 0) KOLO_TRY(kolo_gradient_contribute(g, n.in[2], dy));
    return kolo_gradient_emit_all(g, KOLO_OP_residual_grad, 3, in, &n.a, 2, t);
}

int kolo_gradient_dropout(kolo_graph *g, int node)
{
    return kolo_gradient_unary(g, node, KOLO_OP_dropout_grad);
}

int kolo_gradient_gate(kolo_graph *g, int index)
{
    kolo_node n = g->node[index];
    int in[] = {g->grad[n.out[0]], n.in[0], n.in[1]};
    return kolo_gradient_emit_all(g, KOLO_OP_gate_grad, 3, in, &n.a, 2, n.in);
}

int kolo_gradient_window_attention(kolo_graph *g, int index)
{
    kolo_node n = g->node[index];
    const int table = n.n_in > 1 ? n.in[1] : -1;
    int in[] = {g->grad[n.out[0]], n.in[0], table}, t[] = {n.in[0], table};
    return kolo_gradient_emit_all(g, KOLO_OP_window_attention_grad, 3, in, &n.a, 2, t);
}

int kolo_gradient_embed(kolo_graph *g, int index)
{
    kolo_node n = g->node[index];
    int dy = g->grad[n.out[0]];
    return kolo_gradient_emit_all(g, KOLO_OP_embed_grad, 1, &dy, &n.a, 3, n.in);
}
