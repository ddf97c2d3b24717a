/* Counts: FLOP rules, parameters, multiply-accumulates. */
#include "graph/rules.h"

static double count(const kolo_graph *g, int tensor) { return (double)kolo_tensor_count(&g->tensor[tensor]); }

/* Every element of y takes one multiply-add for every weight of its output channel. */
static double products(const kolo_graph *g, int y, int w)
{
    return 2 * count(g, y) * count(g, w) / (double)g->tensor[w].dim[0];
}

double kolo_flops_conv(const kolo_graph *g, const kolo_node *node)
{
    return products(g, node->out[0], node->in[1]);
}
double kolo_flops_linear(const kolo_graph *g, const kolo_node *node)
{
    return products(g, node->out[0], node->in[1]);
}

double kolo_flops_conv_grad(const kolo_graph *g, const kolo_node *node)
{
    return node->out[0] >= 0 && kolo_tensor_is_gradient(&g->tensor[node->out[0]])
               ? products(g, node->in[1], node->out[0])
               : products(g, node->in[0], node->in[1]);
}

/* Queries by keys, and weights by values: each element of y takes part in window's pixels of both; backward
 * four such products and the weights once more. */
double kolo_flops_attention(const kolo_graph *g, const kolo_node *node)
{
    return 4 * count(g, node->out[0]) * (double)(node->a.kernel[0] * node->a.kernel[1]);
}
double kolo_flops_attention_grad(const kolo_graph *g, const kolo_node *node)
{
    return 10 * count(g, node->in[0]) * (double)(node->a.kernel[0] * node->a.kernel[1]);
}

double kolo_flops_linear_grad(const kolo_graph *g, const kolo_node *node)
{
    return kolo_flops_conv_grad(g, node);
}

double kolo_flops_elementwise(const kolo_graph *g, const kolo_node *node)
{
    double sum = 0;
    for (int i = 0; i < node->n_in; i++)
        if (node->in[i] >= 0) sum += count(g, node->in[i]);
    return sum;
}

int64_t kolo_graph_parameters(const kolo_graph *g)
{
    int64_t sum = 0;
    for (int64_t i = 0; i < g->tensors; i++)
        if (g->tensor[i].role == KOLO_ROLE_PARAM) sum += kolo_tensor_count(&g->tensor[i]);
    return sum;
}

int64_t kolo_graph_buffers(const kolo_graph *g)
{
    int64_t count = 0;
    for (int64_t i = 0; i < g->tensors; i++) count += g->tensor[i].role == KOLO_ROLE_BUFFER;
    return count;
}

double kolo_graph_macs(const kolo_graph *g)
{
    double flops = 0;
    for (int64_t i = 0; i < g->nodes; i++) {
        const kolo_node *node = &g->node[i];
        const enum kolo_class of = kolo_op_table[node->op].class_of;
        const bool multiplies = of == KOLO_CLASS_CONV || of == KOLO_CLASS_CONV_NORM ||
                                of == KOLO_CLASS_LINEAR || of == KOLO_CLASS_ATTENTION;
        if (!node->backward && multiplies) flops += kolo_op_table[node->op].flops(g, node);
    }
    return g->rows > 0 ? flops / 2 / (double)g->rows : 0;
}
