/* Shape rules: each checks the inputs of one kind of operation and makes its outputs. */
#include <inttypes.h>
#include <stdio.h>

#include "graph/rules.h"
#include "kolo/error.h"

/* Makes output i, called MODULE or MODULE:i. */
int kolo_shape_make(kolo_graph *g, kolo_node *node, int i, const char *module, enum kolo_role role,
                    enum kolo_dtype dtype, int rank, const int64_t *dim)
{
    char name[256];
    int length =
        i ? snprintf(name, sizeof name, "%s:%d", module, i) : snprintf(name, sizeof name, "%s", module);
    if (length >= (int)sizeof name)
        return kolo_fail(KOLO_EINTERNAL, "graph %s: the name %s is too long", g->name, module);
    int made = kolo_graph_tensor(g, name, role, dtype, rank, dim);
    if (made < 0) return made;
    node->out[i] = made;
    return 0;
}

/* Output i: an activation with the type of input 0. */
int kolo_shape_make_like(kolo_graph *g, kolo_node *node, int i, const char *module, int rank,
                         const int64_t *dim)
{
    return kolo_shape_make(g, node, i, module, KOLO_ROLE_ACTIVATION, g->tensor[node->in[0]].dtype, rank, dim);
}

int kolo_shape_want_rank(const kolo_graph *g, const kolo_node *node, int input, int rank, const char *module)
{
    int t = node->in[input];
    if (t < 0)
        return kolo_fail(KOLO_EINTERNAL, "%s: %s lacks its input %d", module, kolo_op_table[node->op].name,
                         input);
    if (g->tensor[t].rank != rank)
        return kolo_fail(KOLO_ECONFIG, "%s: %s takes %d dimensions, but %s has %d", module,
                         kolo_op_table[node->op].name, rank, g->tensor[t].name, g->tensor[t].rank);
    return 0;
}

int kolo_shape_want_vector(const kolo_graph *g, const kolo_node *node, int input, int64_t count,
                           const char *module)
{
    KOLO_TRY(kolo_shape_want_rank(g, node, input, 1, module));
    const kolo_tensor *t = &g->tensor[node->in[input]];
    if (t->dim[0] != count)
        return kolo_fail(KOLO_ECONFIG, "%s: %s has %" PRId64 " elements, but %" PRId64 " are needed", module,
                         t->name, t->dim[0], count);
    return 0;
}

int kolo_shape_want_same(const kolo_graph *g, const kolo_node *node, int a, int b, const char *module)
{
    const kolo_tensor *x = &g->tensor[node->in[a]], *y = &g->tensor[node->in[b]];
    bool same = x->rank == y->rank && x->dtype == y->dtype;
    for (int i = 0; same && i < x->rank; i++) same = x->dim[i] == y->dim[i];
    if (same) return 0;
    return kolo_fail(KOLO_ECONFIG, "%s: %s and %s differ in shape or type and cannot be added", module,
                     x->name, y->name);
}

/* Size of a window operation's output along one axis, or a failure that names the module. */
static int64_t window_output(const kolo_attributes *a, int axis, int64_t size, const char *module)
{
    int64_t kernel = a->kernel[axis], stride = a->stride[axis], pad = a->pad[axis],
            dilation = a->dilation[axis];
    int64_t limit = INT64_C(1) << 30;
    if (kernel < 1 || stride < 1 || pad < 0 || dilation < 1 || kernel > limit || stride > limit ||
        pad > limit || dilation > limit)
        return kolo_fail(KOLO_ECONFIG,
                         "%s: kernel %" PRId64 ", stride %" PRId64 ", pad %" PRId64 ", dilation %" PRId64
                         " are out of range",
                         module, kernel, stride, pad, dilation);
    int64_t reach = dilation * (kernel - 1) + 1;
    const int64_t room = size + 2 * pad + a->beyond[axis];
    if (room < reach)
        return kolo_fail(KOLO_ECONFIG,
                         "%s: a window of %" PRId64 " does not fit into %" PRId64 " pixels with pad %" PRId64
                         "; use larger images (size=)",
                         module, reach, size, pad);
    return (room - reach) / stride + 1;
}

int kolo_shape_normalize(kolo_graph *g, kolo_node *node, const char *module)
{
    KOLO_TRY(kolo_shape_want_rank(g, node, 0, 4, module));
    const kolo_tensor *x = &g->tensor[node->in[0]];
    if (x->dtype != KOLO_U8)
        return kolo_fail(KOLO_EINTERNAL, "%s: pixels are u8, not %s", module, kolo_dtype_name(x->dtype));
    if (x->dim[3] > 4)
        return kolo_fail(KOLO_ECONFIG, "%s: images have 1 to 4 channels, not %" PRId64, module, x->dim[3]);
    for (int64_t c = 0; c < x->dim[3]; c++)
        if (!(node->a.std[c] > 0))
            return kolo_fail(KOLO_ECONFIG,
                             "%s: the standard deviation of channel %" PRId64 " is %g; it must be positive",
                             module, c, (double)node->a.std[c]);
    int64_t dim[] = {x->dim[0], x->dim[3], x->dim[1], x->dim[2]};
    return kolo_shape_make(g, node, 0, module, KOLO_ROLE_ACTIVATION, g->dtype, 4, dim);
}

int kolo_shape_conv(kolo_graph *g, kolo_node *node, const char *module)
{
    KOLO_TRY(kolo_shape_want_rank(g, node, 0, 4, module));
    KOLO_TRY(kolo_shape_want_rank(g, node, 1, 4, module));
    const kolo_tensor *x = &g->tensor[node->in[0]], *w = &g->tensor[node->in[1]];
    int64_t groups = node->a.groups;
    if (groups < 1 || x->dim[1] % groups || w->dim[0] % groups)
        return kolo_fail(KOLO_ECONFIG,
                         "%s: %" PRId64 " groups do not divide %" PRId64 " input and %" PRId64
                         " output channels",
                         module, groups, x->dim[1], w->dim[0]);
    if (x->dim[1] / groups != w->dim[1])
        return kolo_fail(KOLO_ECONFIG,
                         "%s: the input has %" PRId64 " channels, but the weight is made for %" PRId64,
                         module, x->dim[1], w->dim[1] * groups);
    if (w->dim[2] != node->a.kernel[0] || w->dim[3] != node->a.kernel[1])
        return kolo_fail(KOLO_EINTERNAL, "%s: kernel and weight differ in size", module);
    int64_t channels = w->dim[0], dim[] = {x->dim[0], channels, 0, 0};
    for (int axis = 0; axis < 2; axis++) {
        dim[2 + axis] = window_output(&node->a, axis, x->dim[2 + axis], module);
        if (dim[2 + axis] < 0) return (int)dim[2 + axis];
    }
    if (node->n_in > 2 && node->in[2] >= 0) KOLO_TRY(kolo_shape_want_vector(g, node, 2, channels, module));
    return kolo_shape_make_like(g, node, 0, module, 4, dim);
}

int kolo_shape_conv_stats(kolo_graph *g, kolo_node *node, const char *module)
{
    KOLO_TRY(kolo_shape_conv(g, node, module));
    const int64_t dim = 2 * g->tensor[node->out[0]].dim[1] + 1;
    return kolo_shape_make(g, node, 1, module, KOLO_ROLE_PARTIAL, KOLO_F64, 1, &dim);
}

/* (N,C,H,W) or (N,C) */
static int want_channels(const kolo_graph *g, const kolo_node *node, const char *module)
{
    if (node->in[0] >= 0 && g->tensor[node->in[0]].rank == 2) return 0;
    return kolo_shape_want_rank(g, node, 0, 4, module);
}

int kolo_shape_norm_stats(kolo_graph *g, kolo_node *node, const char *module)
{
    KOLO_TRY(want_channels(g, node, module));
    int64_t dim = 2 * g->tensor[node->in[0]].dim[1] + 1;
    return kolo_shape_make(g, node, 0, module, KOLO_ROLE_PARTIAL, KOLO_F64, 1, &dim);
}

/* Vectors in[first..last] of `count` elements, then the optional residual, then y. */
static int norm_output(kolo_graph *g, kolo_node *node, int first, int last, const char *module)
{
    const kolo_tensor *x = &g->tensor[node->in[0]];
    for (int i = first; i <= last; i++) KOLO_TRY(kolo_shape_want_vector(g, node, i, x->dim[1], module));
    if (node->n_in > last + 1 && node->in[last + 1] >= 0)
        KOLO_TRY(kolo_shape_want_same(g, node, 0, last + 1, module));
    return kolo_shape_make_like(g, node, 0, module, x->rank, x->dim);
}

int kolo_shape_norm_apply(kolo_graph *g, kolo_node *node, const char *module)
{
    KOLO_TRY(want_channels(g, node, module));
    int64_t statistic = 2 * g->tensor[node->in[0]].dim[1] + 1;
    KOLO_TRY(kolo_shape_want_vector(g, node, 1, statistic, module));
    KOLO_TRY(norm_output(g, node, 2, 3, module));
    return kolo_shape_make(g, node, 1, module, KOLO_ROLE_STATISTIC, KOLO_F32, 1, &statistic);
}

int kolo_shape_norm_infer(kolo_graph *g, kolo_node *node, const char *module)
{
    KOLO_TRY(want_channels(g, node, module));
    return norm_output(g, node, 1, 4, module);
}

int kolo_shape_same(kolo_graph *g, kolo_node *node, const char *module)
{
    for (int i = 0; i < node->n_in; i++) {
        if (node->in[i] < 0)
            return kolo_fail(KOLO_EINTERNAL, "%s: %s lacks its input %d", module,
                             kolo_op_table[node->op].name, i);
        KOLO_TRY(kolo_shape_want_same(g, node, 0, i, module));
    }
    const kolo_tensor *x = &g->tensor[node->in[0]];
    return kolo_shape_make_like(g, node, 0, module, x->rank, x->dim);
}

int kolo_shape_pool(kolo_graph *g, kolo_node *node, const char *module)
{
    KOLO_TRY(kolo_shape_want_rank(g, node, 0, 4, module));
    const kolo_tensor *x = &g->tensor[node->in[0]];
    int64_t dim[] = {x->dim[0], x->dim[1], 0, 0};
    for (int axis = 0; axis < 2; axis++) {
        if (node->a.pad[axis] > node->a.kernel[axis] / 2) /* else a window may lie in the padding only */
            return kolo_fail(KOLO_ECONFIG, "%s: pad %" PRId64 " is more than half of the window of %" PRId64,
                             module, node->a.pad[axis], node->a.kernel[axis]);
        dim[2 + axis] = window_output(&node->a, axis, x->dim[2 + axis], module);
        if (dim[2 + axis] < 0) return (int)dim[2 + axis];
    }
    const bool maximum = node->op != KOLO_OP_avg_pool;
    if (maximum && node->a.kernel[0] * node->a.kernel[1] > 256)
        return kolo_fail(KOLO_ECONFIG,
                         "%s: a window of %" PRId64 " x %" PRId64
                         " is too large for max pooling (256 pixels)",
                         module, node->a.kernel[0], node->a.kernel[1]);
    KOLO_TRY(kolo_shape_make_like(g, node, 0, module, 4, dim));
    return maximum ? kolo_shape_make(g, node, 1, module, KOLO_ROLE_ACTIVATION, KOLO_U8, 4, dim) : 0;
}

int kolo_shape_norm_max_pool(kolo_graph *g, kolo_node *node, const char *module)
{
    KOLO_TRY(kolo_shape_want_rank(g, node, 0, 4, module));
    const int64_t channels = g->tensor[node->in[0]].dim[1], statistic = 2 * channels + 1;
    KOLO_TRY(kolo_shape_want_vector(g, node, 1, statistic, module));
    for (int i = 2; i < 4; i++) KOLO_TRY(kolo_shape_want_vector(g, node, i, channels, module));
    KOLO_TRY(kolo_shape_pool(g, node, module));
    return kolo_shape_make(g, node, 2, module, KOLO_ROLE_STATISTIC, KOLO_F32, 1, &statistic);
}

int kolo_shape_global_avg_pool(kolo_graph *g, kolo_node *node, const char *module)
{
    KOLO_TRY(kolo_shape_want_rank(g, node, 0, 4, module));
    return kolo_shape_make_like(g, node, 0, module, 2, g->tensor[node->in[0]].dim);
}

/* The kernels count the pixels of a side in 32 bits. */
int kolo_shape_adaptive_avg_pool(kolo_graph *g, kolo_node *node, const char *module)
{
    KOLO_TRY(kolo_shape_want_rank(g, node, 0, 4, module));
    const int64_t *from = g->tensor[node->in[0]].dim, *to = node->a.kernel;
    int64_t dim[] = {from[0], from[1], to[0], to[1]};
    for (int axis = 0; axis < 2; axis++)
        if (to[axis] < 1 || to[axis] >= INT32_MAX || from[2 + axis] >= INT32_MAX)
            return kolo_fail(KOLO_ECONFIG,
                             "%s: %" PRId64 " x %" PRId64 " pixels cannot be averaged to %" PRId64
                             " x %" PRId64,
                             module, from[2], from[3], to[0], to[1]);
    return kolo_shape_make_like(g, node, 0, module, 4, dim);
}

int kolo_shape_flatten(kolo_graph *g, kolo_node *node, const char *module)
{
    KOLO_TRY(kolo_shape_want_rank(g, node, 0, 4, module));
    const kolo_tensor *x = &g->tensor[node->in[0]];
    int64_t dim[] = {x->dim[0], x->dim[1] * x->dim[2] * x->dim[3]};
    return kolo_shape_make_like(g, node, 0, module, 2, dim);
}

/* x (N,F) or (N,C,H,W); w (O,F) or (O,F,1,1) */
int kolo_shape_linear(kolo_graph *g, kolo_node *node, const char *module)
{
    KOLO_TRY(want_channels(g, node, module));
    if (node->in[1] >= 0 && g->tensor[node->in[1]].rank != 4)
        KOLO_TRY(kolo_shape_want_rank(g, node, 1, 2, module));
    const kolo_tensor *x = &g->tensor[node->in[0]], *w = &g->tensor[node->in[1]];
    if (w->rank == 4 && w->dim[2] * w->dim[3] != 1)
        return kolo_fail(KOLO_ECONFIG, "%s: the weight of a linear layer has one pixel", module);
    if (x->dim[1] != w->dim[1])
        return kolo_fail(KOLO_ECONFIG,
                         "%s: the input has %" PRId64 " features, but the weight is made for %" PRId64,
                         module, x->dim[1], w->dim[1]);
    int64_t dim[] = {x->dim[0], w->dim[0], x->dim[2], x->dim[3]};
    if (node->n_in > 2 && node->in[2] >= 0) KOLO_TRY(kolo_shape_want_vector(g, node, 2, w->dim[0], module));
    return kolo_shape_make_like(g, node, 0, module, x->rank, dim);
}

/* pad[0]: zero channels on each side */
int kolo_shape_shortcut_a(kolo_graph *g, kolo_node *node, const char *module)
{
    KOLO_TRY(kolo_shape_want_rank(g, node, 0, 4, module));
    const kolo_tensor *x = &g->tensor[node->in[0]];
    if (node->a.pad[0] < 0) return kolo_fail(KOLO_ECONFIG, "%s: a shortcut cannot lose channels", module);
    int64_t dim[] = {x->dim[0], x->dim[1] + 2 * node->a.pad[0], (x->dim[2] + 1) / 2, (x->dim[3] + 1) / 2};
    return kolo_shape_make_like(g, node, 0, module, 4, dim);
}
