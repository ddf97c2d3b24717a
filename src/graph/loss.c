/* Losses, and the layer of cosines that one of them wants: builders, shapes, gradients. */
#include <inttypes.h>
#include <stdio.h>
#include <string.h>

#include "graph/rules.h"
#include "kolo/error.h"

/* What the layer takes whose outputs are logits, or cosines with or without a margin. */
static int last_input(const kolo_graph *g, int logits)
{
    const kolo_node *n = g->tensor[logits].producer < 0 ? NULL : &g->node[g->tensor[logits].producer];
    if (n && n->op == KOLO_OP_arc_margin) n = &g->node[g->tensor[n->in[0]].producer];
    const bool last = n && (n->op == KOLO_OP_linear || n->op == KOLO_OP_cosine);
    return last && g->tensor[n->in[0]].rank == 2 ? n->in[0] : -1;
}

static int classes_loss(kolo_graph *g, enum kolo_op op, int logits, double smoothing)
{
    if (logits < 0) return logits;
    if (g->label < 0)
        return kolo_fail(KOLO_EINTERNAL, "graph %s has no labels: kolo_input comes first", g->name);
    if (!(smoothing >= 0 && smoothing <= 1))
        return kolo_fail(KOLO_ECONFIG, "label smoothing is %g; it lies in [0, 1]", smoothing);
    const bool two = g->train && g->auxiliary >= 0;
    kolo_attributes a = {.smoothing = smoothing, .weight = two ? g->auxiliary_weight : 0};
    int in[] = {logits, g->label, g->auxiliary};
    int metrics = kolo_build_output(g, op, two ? 3 : 2, in, 1, &a, "metrics");
    if (metrics < 0) return metrics;
    if (g->tensor[logits].dim[1] > INT32_MAX)
        return kolo_fail(KOLO_ECONFIG, "graph %s: too many classes", g->name);
    g->logits = logits;
    g->features = last_input(g, logits);
    g->metrics = metrics;
    g->classes = (int)g->tensor[logits].dim[1];
    return metrics;
}

int kolo_cross_entropy(kolo_graph *g, int logits, double smoothing)
{
    return classes_loss(g, KOLO_OP_cross_entropy, logits, smoothing);
}

int kolo_bce(kolo_graph *g, int logits, double smoothing)
{
    return classes_loss(g, KOLO_OP_bce, logits, smoothing);
}

/* A detector that is evaluated has outputs but no loss. */
int kolo_detect_loss(kolo_graph *g, const char *detector, int heads, const int *head, int anchors, bool found,
                     const kolo_attributes *a)
{
    if (heads < 1 || heads > KOLO_MAX_HEADS)
        return kolo_fail(KOLO_EINTERNAL, "graph %s: %d heads; 1 to %d are possible", g->name, heads,
                         KOLO_MAX_HEADS);
    int in[KOLO_MAX_HEADS + 1];
    for (int i = 0; i < heads; i++) {
        if (head[i] < 0) return head[i];
        const kolo_tensor *t = &g->tensor[head[i]];
        if (t->rank != 4 || t->dim[1] % anchors || t->dim[1] / anchors < 6 ||
            t->dim[1] != g->tensor[head[0]].dim[1])
            return kolo_fail(KOLO_EINTERNAL, "graph %s: %s is no head of a detector", g->name, t->name);
        in[i] = g->head[i] = head[i];
    }
    g->heads = heads;
    g->detector = detector;
    memcpy(g->anchor, a->anchor, sizeof g->anchor);
    memcpy(g->mask, a->mask, sizeof g->mask);
    g->classes = (int)(g->tensor[head[0]].dim[1] / anchors - 5);
    if (!g->train) return 0;
    in[heads] = g->label;
    kolo_attributes mine = *a;
    mine.detector = detector;
    const int metrics =
        kolo_build_output(g, KOLO_OP_detect_loss, heads + 1, in, found ? 3 : 1, &mine, "metrics");
    if (metrics >= 0) g->metrics = metrics;
    return metrics;
}

int kolo_cosine(kolo_graph *g, const char *name, int x, int64_t out, kolo_init weight)
{
    if (x < 0) return x;
    KOLO_TRY(g->tensor[x].rank == 2 ? 0
                                    : kolo_fail(KOLO_ECONFIG,
                                                "%s: cosines are between rows (N,F), but %s has %d "
                                                "dimensions",
                                                name, g->tensor[x].name, g->tensor[x].rank));
    int64_t dim[] = {out, g->tensor[x].dim[1]};
    int in[3] = {x, -1, -1};
    KOLO_TRY(kolo_build_weights(g, name, 2, dim, weight, false, weight, in));
    return kolo_build_output(g, KOLO_OP_cosine, 2, in, 1, NULL, name);
}

int kolo_arc_margin(kolo_graph *g, const char *name, int cosines, double margin, double scale)
{
    if (cosines < 0) return cosines;
    if (!(margin >= 0 && margin < 1.5) || !(scale > 0))
        return kolo_fail(KOLO_ECONFIG, "%s: margin %g, scale %g: a margin lies in [0, 1.5), a scale above 0",
                         name, margin, scale);
    const kolo_attributes a = {.margin = margin, .scale = scale};
    int in[] = {cosines, g->label};
    return kolo_build_output(g, KOLO_OP_arc_margin, 2, in, 1, &a, name);
}

/* ---- shapes -------------------------------------------------------------------------------------------- */

/* (N) classes, (N,2) a class and a factor, (N,3) two classes and a weight, or (N,C) numbers */
static int want_labels(const kolo_graph *g, const kolo_node *node, int input, const char *module)
{
    const kolo_tensor *x = &g->tensor[node->in[0]],
                      *label = node->in[input] < 0 ? NULL : &g->tensor[node->in[input]];
    if (!label)
        return kolo_fail(KOLO_EINTERNAL, "%s: %s lacks its labels", module, kolo_op_table[node->op].name);
    bool classes = label->dtype == KOLO_I32 &&
                   (label->rank == 1 || (label->rank == 2 && (label->dim[1] == 2 || label->dim[1] == 3)));
    bool numbers = label->dtype == KOLO_F32 && label->rank == 2 && label->dim[1] == x->dim[1];
    if ((classes || numbers) && label->dim[0] == x->dim[0]) return 0;
    return kolo_fail(KOLO_EINTERNAL, "%s: labels are i32 (N), (N,2) or (N,3), or f32 (N,C)", module);
}

int kolo_shape_cross_entropy(kolo_graph *g, kolo_node *node, const char *module)
{
    KOLO_TRY(kolo_shape_want_rank(g, node, 0, 2, module));
    const kolo_tensor *x = &g->tensor[node->in[0]], *label = node->in[1] < 0 ? NULL : &g->tensor[node->in[1]];
    /* of image labels */
    const bool weights = node->op == KOLO_OP_bce && label && label->dtype == KOLO_F32 && label->rank == 3;
    if (!weights) KOLO_TRY(want_labels(g, node, 1, module));
    else if (label->dim[0] != x->dim[0] || label->dim[1] != 2 || label->dim[2] != x->dim[1])
        return kolo_fail(KOLO_EINTERNAL, "%s: image labels are f32 (N,2,C)", module);
    const kolo_tensor *second = node->n_in > 2 ? &g->tensor[node->in[2]] : x;
    if (second->rank != 2 || second->dim[0] != x->dim[0] || second->dim[1] != x->dim[1])
        return kolo_fail(KOLO_EINTERNAL, "%s: auxiliary logits have the shape of logits", module);
    int64_t dim = 4;
    return kolo_shape_make(g, node, 0, module, KOLO_ROLE_METRIC, KOLO_F32, 1, &dim);
}

int kolo_shape_cosine(kolo_graph *g, kolo_node *node, const char *module)
{
    return kolo_shape_linear(g, node, module);
}

int kolo_shape_arc_margin(kolo_graph *g, kolo_node *node, const char *module)
{
    KOLO_TRY(kolo_shape_want_rank(g, node, 0, 2, module));
    KOLO_TRY(want_labels(g, node, 1, module));
    return kolo_shape_make_like(g, node, 0, module, 2, g->tensor[node->in[0]].dim);
}

/* heads, then boxes */
int kolo_shape_detect_loss(kolo_graph *g, kolo_node *node, const char *module)
{
    const kolo_tensor *label = node->in[node->n_in - 1] < 0 ? NULL : &g->tensor[node->in[node->n_in - 1]];
    if (!label || label->dtype != KOLO_I32 || label->rank != 2 || label->dim[1] < 6 || label->dim[1] % 5 != 1)
        return kolo_fail(KOLO_EINTERNAL, "%s: boxes are i32 (N, 1 + 5 M)", module);
    int64_t cells[] = {label->dim[0], 0}, metrics = KOLO_METRICS;
    for (int i = 0; i + 1 < node->n_in; i++) {
        KOLO_TRY(kolo_shape_want_rank(g, node, i, 4, module));
        cells[1] += g->tensor[node->in[i]].dim[2] * g->tensor[node->in[i]].dim[3];
    }
    KOLO_TRY(kolo_shape_make(g, node, 0, module, KOLO_ROLE_METRIC, KOLO_F32, 1, &metrics));
    if (node->n_out == 1) return 0;
    KOLO_TRY(kolo_shape_make(g, node, 1, module, KOLO_ROLE_ACTIVATION, KOLO_I32, 2, cells));
    return kolo_shape_make(g, node, 2, module, KOLO_ROLE_ACTIVATION, KOLO_F32, 2, cells);
}

/* ---- gradients ----------------------------------------------------------------------------------------- */

/* Of the logits, and of the auxiliary ones so much less. */
static int classes_gradient(kolo_graph *g, int index, enum kolo_op op)
{
    kolo_node n = g->node[index];
    const int second[] = {n.in[2], n.in[1]};
    kolo_attributes whole = n.a;
    whole.weight = 0;
    KOLO_TRY(kolo_gradient_emit(g, op, 2, n.in, &whole, n.in[0]));
    return n.n_in > 2 ? kolo_gradient_emit(g, op, 2, second, &n.a, n.in[2]) : 0;
}

int kolo_gradient_cross_entropy(kolo_graph *g, int index)
{
    return classes_gradient(g, index, KOLO_OP_cross_entropy_grad);
}

/* One node for each part of the classes. */
int kolo_gradient_class_loss(kolo_graph *g, int index)
{
    const kolo_node loss = g->node[index], total = g->node[g->tensor[loss.in[0]].producer];
    for (int p = total.n_in - 1; p >= 0; p--) {
        const kolo_node terms = g->node[g->tensor[total.in[p]].producer];
        const int in[] = {terms.in[0], terms.in[1], terms.in[2], loss.in[0]};
        g->part = terms.part;
        KOLO_TRY(kolo_gradient_emit(g, KOLO_OP_class_grad, 4, in, &terms.a, terms.in[0]));
    }
    return 0;
}

int kolo_gradient_bce(kolo_graph *g, int index) { return classes_gradient(g, index, KOLO_OP_bce_grad); }

int kolo_gradient_arc_margin(kolo_graph *g, int index)
{
    kolo_node n = g->node[index];
    int in[] = {g->grad[n.out[0]], n.in[0], n.in[1]};
    return kolo_gradient_emit(g, KOLO_OP_arc_margin_grad, 3, in, &n.a, n.in[0]);
}

int kolo_gradient_cosine(kolo_graph *g, int index)
{
    kolo_node n = g->node[index];
    int in[] = {g->grad[n.out[0]], n.out[0], n.in[0], n.in[1]};
    return kolo_gradient_emit_all(g, KOLO_OP_cosine_grad, 4, in, &n.a, 2, n.in);
}

/* One node for the gradients of all heads; it reads what the loss read and what it found
 * out (outputs 1, ...). */
int kolo_gradient_detect_loss(kolo_graph *g, int index)
{
    kolo_node n = g->node[index];
    int in[KOLO_MAX_ARGS], inputs = n.n_in;
    memcpy(in, n.in, (size_t)n.n_in * sizeof *in);
    for (int i = 1; i < n.n_out; i++) in[inputs++] = n.out[i];
    return kolo_gradient_emit_all(g, KOLO_OP_detect_loss_grad, inputs, in, &n.a, n.n_in - 1, n.in);
}
