/* The rules that ops.def names, one function each: kolo_shape_X, kolo_gradient_X, kolo_flops_X (flops.c),
 * kolo_bytes_X (bytes.c). Those of convolutions, products, pools and batch norm stand in build.c, shapes.c,
 * gradient.c; all three of rearrange.c, token.c, loss.c are together. Declared from the table, so that a rule
 * without a row, or a row without a rule, does not build. */
#ifndef KOLO_GRAPH_RULES_H
#define KOLO_GRAPH_RULES_H

#include "graph/graph.h"

#define OP(name, min_in, max_in, min_out, max_out, overwrite, shape, gradient, flops, kind, bytes, cut, \
           channels)                                                                                    \
    int kolo_shape_##shape(kolo_graph *graph, kolo_node *node, const char *module);                     \
    int kolo_gradient_##gradient(kolo_graph *graph, int node);                                          \
    double kolo_flops_##flops(const kolo_graph *graph, const kolo_node *node);                          \
    kolo_traffic kolo_bytes_##bytes(const kolo_graph *graph, const kolo_node *node,                     \
                                    const kolo_stored *stored);
#include "graph/ops.def"
#undef OP

/* For shape rules (shapes.c). Output i of a node, called MODULE or MODULE:i. */
int kolo_shape_make(kolo_graph *g, kolo_node *node, int i, const char *module, enum kolo_role role,
                    enum kolo_dtype dtype, int rank, const int64_t *dim);
/* An activation with the type of input 0. */
int kolo_shape_make_like(kolo_graph *g, kolo_node *node, int i, const char *module, int rank,
                         const int64_t *dim);
int kolo_shape_want_rank(const kolo_graph *g, const kolo_node *node, int input, int rank, const char *module);
int kolo_shape_want_vector(const kolo_graph *g, const kolo_node *node, int input, int64_t count,
                           const char *module);
int kolo_shape_want_same(const kolo_graph *g, const kolo_node *node, int a, int b, const char *module);

/* For builders (build.c). The first output of a new node; NAME.weight and, where asked for,
 * NAME.bias as in[1], in[2]. */
int kolo_build_output(kolo_graph *g, enum kolo_op op, int n_in, const int *in, int n_out,
                      const kolo_attributes *a, const char *name);
int kolo_build_weights(kolo_graph *g, const char *name, int rank, const int64_t *dim, kolo_init weight_init,
                       bool bias, kolo_init bias_init, int in[3]);

/* For gradient rules (gradient.c), while kolo_graph_backward walks: whether anything wants the gradient
 * of t (-1: no); a new tensor for it, or for a part of it; adding d to it; `op` with the one output that
 * is the gradient of t. */
bool kolo_gradient_wanted(const kolo_graph *g, int t);
int kolo_gradient_tensor(kolo_graph *g, int t);
int kolo_gradient_contribute(kolo_graph *g, int t, int d);
int kolo_gradient_emit(kolo_graph *g, enum kolo_op op, int n_in, const int *in, const kolo_attributes *a,
                       int t);
/* `op` with these inputs and, as outputs, the gradients of t[0..n). */
int kolo_gradient_emit_all(kolo_graph *g, enum kolo_op op, int n_in, const int *in, const kolo_attributes *a,
                           int n, const int *t);
/* `op` of the gradient of the node's only output, for its first input. */
int kolo_gradient_unary(kolo_graph *g, int node, enum kolo_op op);

/* The rules of all nodes, the last first; g->grad says what is there already. */
int kolo_gradient_walk(kolo_graph *g);

/* After differentiation (accumulate.c): additions of gradients are left to the operations that
 * make the second part. */
int kolo_gradient_accumulate(kolo_graph *g);

#endif
