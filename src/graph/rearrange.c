/* Operations that move numbers and compute none: builders, shapes, gradients. Each one's
 * gradient is the way back. */
#include <inttypes.h>
#include <stdio.h>
#include <string.h>

#include "graph/rules.h"
#include "kolo/error.h"

static int rearrange_build(kolo_graph *g, enum kolo_op op, const char *name, int x, const kolo_attributes *a)
{
    return x < 0 ? x : kolo_build_output(g, op, 1, &x, 1, a, name);
}

int kolo_pad(kolo_graph *g, const char *name, int x, int64_t rows, int64_t columns)
{
    return rearrange_build(g, KOLO_OP_pad, name, x, &(kolo_attributes){.pad = {rows, columns}});
}

int kolo_crop(kolo_graph *g, const char *name, int x, int64_t rows, int64_t columns)
{
    return rearrange_build(g, KOLO_OP_crop, name, x, &(kolo_attributes){.pad = {rows, columns}});
}

int kolo_space_to_depth(kolo_graph *g, const char *name, int x)
{
    return rearrange_build(g, KOLO_OP_space_to_depth, name, x, NULL);
}

int kolo_upsample(kolo_graph *g, const char *name, int x, int64_t times)
{
    return rearrange_build(g, KOLO_OP_upsample, name, x, &(kolo_attributes){.stride = {times, times}});
}

int kolo_slice_channels(kolo_graph *g, const char *name, int x, int64_t first, int64_t count)
{
    return rearrange_build(g, KOLO_OP_slice, name, x, &(kolo_attributes){.first = first, .count = count});
}

int kolo_concat(kolo_graph *g, const char *name, int n, const int *x)
{
    for (int i = 0; i < n; i++)
        if (x[i] < 0) return x[i];
    return kolo_build_output(g, KOLO_OP_concat, n, x, 1, NULL, name);
}

/* ---- shapes -------------------------------------------------------------------------------------------- */

static int resized(kolo_graph *g, kolo_node *node, const char *module, int64_t height, int64_t width)
{
    const kolo_tensor *x = &g->tensor[node->in[0]];
    int64_t dim[] = {x->dim[0], x->dim[1], height, width};
    return kolo_shape_make_like(g, node, 0, module, 4, dim);
}

int kolo_shape_pad(kolo_graph *g, kolo_node *node, const char *module)
{
    KOLO_TRY(kolo_shape_want_rank(g, node, 0, 4, module));
    const int64_t *dim = g->tensor[node->in[0]].dim, *pad = node->a.pad;
    if (pad[0] < 0 || pad[1] < 0)
        return kolo_fail(KOLO_EINTERNAL, "%s: %" PRId64 " rows and %" PRId64 " columns cannot be added",
                         module, pad[0], pad[1]);
    return resized(g, node, module, dim[2] + pad[0], dim[3] + pad[1]);
}

int kolo_shape_crop(kolo_graph *g, kolo_node *node, const char *module)
{
    KOLO_TRY(kolo_shape_want_rank(g, node, 0, 4, module));
    const int64_t *dim = g->tensor[node->in[0]].dim, *pad = node->a.pad;
    if (pad[0] < 0 || pad[1] < 0 || pad[0] >= dim[2] || pad[1] >= dim[3])
        return kolo_fail(KOLO_EINTERNAL,
                         "%s: %" PRId64 " rows and %" PRId64 " columns cannot be cut off %" PRId64
                         " x %" PRId64 " pixels",
                         module, pad[0], pad[1], dim[2], dim[3]);
    return resized(g, node, module, dim[2] - pad[0], dim[3] - pad[1]);
}

int kolo_shape_space_to_depth(kolo_graph *g, kolo_node *node, const char *module)
{
    KOLO_TRY(kolo_shape_want_rank(g, node, 0, 4, module));
    const int64_t *from = g->tensor[node->in[0]].dim;
    int64_t dim[] = {from[0], 4 * from[1], (from[2] + 1) / 2, (from[3] + 1) / 2};
    return kolo_shape_make_like(g, node, 0, module, 4, dim);
}

int kolo_shape_upsample(kolo_graph *g, kolo_node *node, const char *module)
{
    KOLO_TRY(kolo_shape_want_rank(g, node, 0, 4, module));
    const int64_t *dim = g->tensor[node->in[0]].dim, *times = node->a.stride;
    if (times[0] < 1 || times[1] < 1 || times[0] > 64 || times[1] > 64)
        return kolo_fail(KOLO_ECONFIG,
                         "%s: a map cannot be made %" PRId64 " times larger; 1 to 64 are possible", module,
                         times[0]);
    return resized(g, node, module, dim[2] * times[0], dim[3] * times[1]);
}

/* (N,C,H,W) or (N,C) */
int kolo_shape_slice(kolo_graph *g, kolo_node *node, const char *module)
{
    const kolo_tensor *x = &g->tensor[node->in[0]];
    if (x->rank != 2) KOLO_TRY(kolo_shape_want_rank(g, node, 0, 4, module));
    if (node->a.first < 0 || node->a.count < 1 || node->a.first > x->dim[1] - node->a.count)
        return kolo_fail(KOLO_ECONFIG, "%s: %s has no channels %" PRId64 " to %" PRId64, module, x->name,
                         node->a.first, node->a.first + node->a.count - 1);
    int64_t dim[] = {x->dim[0], node->a.count, x->dim[2], x->dim[3]};
    return kolo_shape_make_like(g, node, 0, module, x->rank, dim);
}

int kolo_shape_concat(kolo_graph *g, kolo_node *node, const char *module)
{
    for (int i = 0; i < node->n_in; i++)
        if (node->in[i] < 0) return kolo_fail(KOLO_EINTERNAL, "%s: concat lacks its input %d", module, i);
    const kolo_tensor *x = &g->tensor[node->in[0]];
    if (x->rank != 2) KOLO_TRY(kolo_shape_want_rank(g, node, 0, 4, module));
    int64_t dim[] = {x->dim[0], 0, x->dim[2], x->dim[3]};
    for (int i = 0; i < node->n_in; i++) {
        const kolo_tensor *t = &g->tensor[node->in[i]];
        bool fits = t->rank == x->rank && t->dtype == x->dtype && t->dim[0] == x->dim[0];
        if (fits && x->rank == 4) fits = t->dim[2] == x->dim[2] && t->dim[3] == x->dim[3];
        if (!fits)
            return kolo_fail(KOLO_ECONFIG,
                             "%s: %s and %s differ in size or type and cannot be put together; detectors "
                             "want images whose sides are multiples of 32 (size=)",
                             module, x->name, t->name);
        dim[1] += t->dim[1];
    }
    return kolo_shape_make_like(g, node, 0, module, x->rank, dim);
}

/* ---- gradients ----------------------------------------------------------------------------------------- */

int kolo_gradient_pad(kolo_graph *g, int node) { return kolo_gradient_unary(g, node, KOLO_OP_crop); }
int kolo_gradient_crop(kolo_graph *g, int node) { return kolo_gradient_unary(g, node, KOLO_OP_pad); }
int kolo_gradient_space_to_depth(kolo_graph *g, int node)
{
    return kolo_gradient_unary(g, node, KOLO_OP_space_to_depth_grad);
}
int kolo_gradient_upsample(kolo_graph *g, int node)
{
    return kolo_gradient_unary(g, node, KOLO_OP_upsample_grad);
}
/* slice: [a.groups of node `index`, itself a slice] all slices of the same map, in the order of the nodes. */
static void find_slices(const kolo_graph *g, int index, int slice[])
{
    const kolo_node *own = &g->node[index];
    int n = 0;
    for (int i = 0; n < own->a.groups; i++)
        if (g->node[i].op == KOLO_OP_slice && g->node[i].in[0] == own->in[0]) slice[n++] = i;
}

/* d[0..n) behind each other, as few at once as concat takes. Of them all: the gradient of x. */
static int join_gradients(kolo_graph *g, int x, int n, const int *d)
{
    const int most = kolo_op_table[KOLO_OP_concat].max_in;
    int in[KOLO_MAX_ARGS], k = 0;
    int64_t dim[KOLO_MAX_DIM];
    memcpy(dim, g->tensor[x].dim, sizeof dim);
    dim[1] = 0;
    for (int i = 0; i < n; i++) {
        const bool last = i + 1 == n;
        in[k++] = d[i];
        dim[1] += g->tensor[d[i]].dim[1];
        if (k < most && !last) continue;
        char name[300];
        snprintf(name, sizeof name, "grad:%s:to%d", g->tensor[x].name, i);
        const int sum = last ? kolo_gradient_tensor(g, x)
                             : kolo_graph_tensor(g, name, KOLO_ROLE_ACTIVATION, g->tensor[x].dtype,
                                                 g->tensor[x].rank, dim);
        if (sum < 0) return sum;
        KOLO_TRY(kolo_graph_node_with(g, KOLO_OP_concat, k, in, 1, &sum, NULL));
        in[0] = sum;
        k = 1;
    }
    return kolo_gradient_contribute(g, x, in[0]);
}

/* Of slices that are all of a map, when the walk has come to the first: their gradients behind each other. */
int kolo_gradient_slice(kolo_graph *g, int node)
{
    const int x = g->node[node].in[0], n = (int)g->node[node].a.groups;
    int slice[KOLO_MAX_ARGS], d[KOLO_MAX_ARGS];
    if (n < 2) return kolo_gradient_unary(g, node, KOLO_OP_slice_grad);
    find_slices(g, node, slice);
    if (node != slice[0] || !kolo_gradient_wanted(g, x)) return 0;
    for (int i = 0; i < n; i++) d[i] = g->grad[g->node[slice[i]].out[0]];
    return join_gradients(g, x, n, d);
}

int kolo_gradient_concat(kolo_graph *g, int index)
{
    kolo_node n = g->node[index];
    int dy = g->grad[n.out[0]];
    kolo_attributes a = {0};
    for (int i = 0; i < n.n_in; i++, a.first += a.count) {
        a.count = g->tensor[n.in[i]].dim[1];
        KOLO_TRY(kolo_gradient_emit(g, KOLO_OP_slice, 1, &dy, &a, n.in[i]));
    }
    return 0;
}

/* Of each input: the pixels of dy that it gave. */
int kolo_gradient_tile(kolo_graph *g, int index)
{
    const kolo_node n = g->node[index];
    const int dy = g->grad[n.out[0]];
    for (int i = 0; i < n.n_in; i++) {
        kolo_attributes a = {.at = {n.a.from[i][0], n.a.from[i][1]}, .from = {{n.a.at[0], n.a.at[1]}}};
        KOLO_TRY(kolo_gradient_emit(g, KOLO_OP_tile_grad, 1, &dy, &a, n.in[i]));
    }
    return 0;
}
