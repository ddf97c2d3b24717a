/* Byte rules: what an operation reads and writes where nothing is in a cache, each tensor as it is stored
 * (padding too), and what is read again. Scratch of own kernels (partial sums of columns: under a thousandth
 * of what they are of) is left out. */
#include "graph/rules.h"

/* Every tensor that is there once: one pass over the inputs, one over the outputs. */
kolo_traffic kolo_bytes_whole(const kolo_graph *g, const kolo_node *n, const kolo_stored *s)
{
    kolo_traffic t = {0};
    (void)g;
    for (int i = 0; i < n->n_in; i++)
        if (n->in[i] >= 0) t.read += (double)s->bytes[n->in[i]];
    for (int i = 0; i < n->n_out; i++)
        if (n->out[i] >= 0) t.written += (double)s->bytes[n->out[i]];
    return t;
}

/* Of its one input it reads no more than it writes. */
kolo_traffic kolo_bytes_part(const kolo_graph *g, const kolo_node *n, const kolo_stored *s)
{
    kolo_traffic t = kolo_bytes_whole(g, n, s);
    if (t.read > t.written) t.read = t.written;
    return t;
}

/* A kernel of its own that adds a bias to y, where the library has no such epilogue. */
static void add_bias(const kolo_node *n, const kolo_stored *s, kolo_traffic *t)
{
    if (!s->device || n->n_in < 3 || n->in[2] < 0) return;
    t->read += (double)s->bytes[n->out[0]];
    t->written += (double)s->bytes[n->out[0]];
}

/* The gradient of the weights: cuDNN writes that of 16-bit types in 16 bits, and a kernel widens it; the
 * bias's is a second pass over dy. */
static void add_weight_gradient(const kolo_graph *g, const kolo_node *n, const kolo_stored *s,
                                kolo_traffic *t)
{
    const int of = n->out[0] >= 0 ? g->tensor[n->out[0]].of : -1;
    if (!s->device) return;
    if (of >= 0 && s->bytes[of] < s->bytes[n->out[0]]) {
        t->read += (double)s->bytes[of];
        t->written += (double)s->bytes[of];
    }
    if (n->n_out > 1 && n->out[1] >= 0) t->read += (double)s->bytes[n->in[1]];
}

/* A filter smaller than its stride never touches some lines and columns of x. */
static double untouched(const kolo_node *n, double bytes)
{
    double part = 1;
    for (int i = 0; i < 2; i++)
        if (n->a.stride[i] > 1 && n->a.kernel[i] > 0 && n->a.kernel[i] < n->a.stride[i])
            part *= (double)n->a.kernel[i] / (double)n->a.stride[i];
    return bytes * (1 - part);
}

/* Whether the library has an engine for a convolution with what stands around it: cuDNN 9.19 for sm_90 has
 * them in f16, and in bf16, for sums of y alone, some that are compiled when the plan is made;
 * tests/toolkit asks it. */
static bool has_engine(const kolo_graph *g, const kolo_node *n, const kolo_stored *s)
{
    return s->device && g->tensor[n->in[0]].dtype != KOLO_F32 && g->tensor[n->in[0]].dim[1] > 8;
}

/* The sums of y: read again where no engine forms them with y. */
static void add_sums(const kolo_graph *g, const kolo_node *n, const kolo_stored *s, kolo_traffic *t)
{
    const double again = (double)s->bytes[n->out[0]];
    if (!has_engine(g, n, s)) t->read += again;
    else if (g->tensor[n->out[0]].dtype == KOLO_BF16) t->spared = again;
}

/* The normed map: written and read where no engine norms x as it reads it. */
static void add_norm(const kolo_graph *g, const kolo_node *n, const kolo_stored *s, kolo_traffic *t)
{
    const double map = (double)s->bytes[n->in[0]];
    if (has_engine(g, n, s) && g->tensor[n->in[0]].dtype == KOLO_F16) return;
    t->read += map;
    t->written += map;
}

/* Whether the library makes g and the sums of norms with the data gradient: cuDNN 9.19 has
 * such engines in f16. */
static bool forms_masked(const kolo_graph *g, const kolo_node *n, const kolo_stored *s)
{
    return s->device && g->tensor[n->out[0]].dtype == KOLO_F16 && g->tensor[n->out[0]].dim[1] > 8;
}

/* One after another: g is made, masked in its place, and read with what each norm is of. */
static void add_mask_and_sums(const kolo_node *n, const kolo_stored *s, kolo_traffic *t)
{
    const double g = (double)s->bytes[n->out[0]];
    t->read += g;
    t->written += g;
    for (int k = 1; k < n->n_out; k += 3) t->read += 2 * g;
}

kolo_traffic kolo_bytes_conv(const kolo_graph *g, const kolo_node *n, const kolo_stored *s)
{
    kolo_traffic t = kolo_bytes_whole(g, n, s);
    const bool data = n->op == KOLO_OP_conv_grad_data || n->op == KOLO_OP_conv_grad_norm;
    if (!data) t.read -= untouched(n, (double)s->bytes[n->in[0]]);
    if (n->op == KOLO_OP_conv_grad_norm && !forms_masked(g, n, s)) add_mask_and_sums(n, s, &t);
    if (n->op == KOLO_OP_conv) add_bias(n, s, &t);
    if (n->op == KOLO_OP_conv_stats || n->op == KOLO_OP_norm_conv_stats) add_sums(g, n, s, &t);
    if (n->op == KOLO_OP_norm_conv_stats || n->op == KOLO_OP_norm_conv_grad_weight) add_norm(g, n, s, &t);
    if (n->op == KOLO_OP_conv_grad_weight || n->op == KOLO_OP_norm_conv_grad_weight)
        add_weight_gradient(g, n, s, &t);
    return t;
}

/* cuBLASLt adds a bias to what it writes in f32 (the gradient of a weight is, whatever the type). */
kolo_traffic kolo_bytes_linear(const kolo_graph *g, const kolo_node *n, const kolo_stored *s)
{
    kolo_traffic t = kolo_bytes_whole(g, n, s);
    if (n->op == KOLO_OP_linear && g->tensor[n->out[0]].dtype != KOLO_F32) add_bias(n, s, &t);
    return t;
}

/* An operation's own, but for two that one row has in two parts: an addition of the backward half joins the
 * gradients of a tensor that is read twice (gradient.c makes no other), and a convolution of every channel by
 * itself is no matrix product. */
enum kolo_class kolo_node_class(const kolo_graph *g, const kolo_node *n)
{
    const bool conv =
        n->op == KOLO_OP_conv || n->op == KOLO_OP_conv_grad_data || n->op == KOLO_OP_conv_grad_weight;
    if (n->op == KOLO_OP_add && n->backward) return KOLO_CLASS_JOIN;
    if (conv && n->a.groups > 1) {
        const int w = n->op == KOLO_OP_conv_grad_weight ? n->out[0] : n->in[1];
        if (g->tensor[w].dim[1] == 1) return KOLO_CLASS_DEPTHWISE;
    }
    return kolo_op_table[n->op].class_of;
}
