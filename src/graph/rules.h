/* The rules that ops.def names, one function each: kolo_shape_X (shapes.c), kolo_gradient_X (gradient.c),
 * kolo_flops_X (flops.c). Declared from the table, so that a rule without a row, or a row without a rule, does not build. */
#ifndef KOLO_GRAPH_RULES_H
#define KOLO_GRAPH_RULES_H

#include "graph/graph.h"

#define OP(name, min_in, max_in, min_out, max_out, overwrite, shape, gradient, flops) \
    int kolo_shape_##shape(kolo_graph *graph, kolo_node *node, const char *module);   \
    int kolo_gradient_##gradient(kolo_graph *graph, int node);                        \
    double kolo_flops_##flops(const kolo_graph *graph, const kolo_node *node);
#include "graph/ops.def"
#undef OP

#endif
