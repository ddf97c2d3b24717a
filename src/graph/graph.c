/* Storage of tensors and nodes, and finding them. */
#include "graph/graph.h"

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/memory.h"
#include "kolo/error.h"

int kolo_graph_create(kolo_graph **graph, const char *name, bool train, enum kolo_dtype dtype)
{
    *graph = NULL;
    if (dtype != KOLO_F32 && dtype != KOLO_BF16 && dtype != KOLO_F16)
        return kolo_fail(KOLO_ECONFIG, "graph %s: activations are f32, bf16 or f16, not %s", name,
                         kolo_dtype_name(dtype));
    kolo_graph *g = kolo_alloc(sizeof *g);
    if (!g) return KOLO_ENOMEM;
    g->train = train;
    g->dtype = dtype;
    g->input = g->label = g->logits = g->features = g->metrics = g->auxiliary = -1;
    snprintf(g->name, sizeof g->name, "%s", name);
    *graph = g;
    return 0;
}

void kolo_graph_destroy(kolo_graph **graph)
{
    kolo_graph *g = *graph;
    if (!g) return;
    for (int64_t i = 0; i < g->tensors; i++) free(g->tensor[i].name);
    free(g->tensor);
    free(g->node);
    free(g->grad);
    free(g->added);
    free(g);
    *graph = NULL;
}

int64_t kolo_tensor_count(const kolo_tensor *tensor)
{
    int64_t count = 1;
    for (int i = 0; i < tensor->rank; i++) count *= tensor->dim[i];
    return count;
}

int kolo_graph_find(const kolo_graph *g, const char *name)
{
    for (int64_t i = 0; i < g->tensors; i++)
        if (!strcmp(g->tensor[i].name, name)) return (int)i;
    return -1;
}

/* 2^56 elements keep every later product with an element size inside int64_t. */
static int check_dims(const kolo_graph *g, const char *name, int rank, const int64_t *dim)
{
    if (rank < 1 || rank > KOLO_MAX_DIM)
        return kolo_fail(KOLO_EINTERNAL, "graph %s: %s has %d dimensions; 1 to %d are possible", g->name,
                         name, rank, KOLO_MAX_DIM);
    int64_t count = 1;
    for (int i = 0; i < rank; i++) {
        if (dim[i] < 1)
            return kolo_fail(KOLO_ECONFIG,
                             "graph %s: %s would have the size %" PRId64
                             " in dimension %d; sizes are at least 1",
                             g->name, name, dim[i], i);
        if (__builtin_mul_overflow(count, dim[i], &count) || count > INT64_C(1) << 56)
            return kolo_fail(KOLO_ECONFIG,
                             "graph %s: %s is too large to count its elements; lower batch, size or classes",
                             g->name, name);
    }
    return 0;
}

int kolo_graph_tensor(kolo_graph *g, const char *name, enum kolo_role role, enum kolo_dtype dtype, int rank,
                      const int64_t *dim)
{
    KOLO_TRY(check_dims(g, name, rank, dim));
    if (kolo_graph_find(g, name) >= 0)
        return kolo_fail(KOLO_EINTERNAL, "graph %s: two tensors are called %s", g->name, name);
    kolo_tensor made = {.role = role, .dtype = dtype, .rank = rank, .producer = -1, .of = -1};
    memcpy(made.dim, dim, (size_t)rank * sizeof *dim); /* before growing: dim may point into g->tensor */
    KOLO_TRY(kolo_grow(&g->tensor, &g->tensor_capacity, g->tensors, sizeof *g->tensor));
    made.name = kolo_strdup(name);
    if (!made.name) return KOLO_ENOMEM;
    g->tensor[g->tensors] = made;
    return (int)g->tensors++;
}

/* A tensor that is not there is -1; anything lower is a builder's status and is passed on. */
static int check_args(const kolo_graph *g, enum kolo_op op, int n, int min, int max, const int *arg,
                      const char *what)
{
    const char *name = kolo_op_table[op].name;
    if (n < min || n > max)
        return kolo_fail(KOLO_EINTERNAL, "graph %s: %s has %d %s; %d to %d are possible", g->name, name, n,
                         what, min, max);
    for (int i = 0; arg && i < n; i++) {
        if (arg[i] < -1) return arg[i];
        if (arg[i] >= g->tensors)
            return kolo_fail(KOLO_EINTERNAL, "graph %s: %s names tensor %d of %" PRId64, g->name, name,
                             arg[i], g->tensors);
    }
    return 0;
}

static int prepare_node(const kolo_graph *g, kolo_node *node, enum kolo_op op, int n_in, const int *in,
                        int n_out, const int *out, const kolo_attributes *a)
{
    if ((int)op < 0 || op >= KOLO_OP_COUNT)
        return kolo_fail(KOLO_EINTERNAL, "graph %s: no operation %d", g->name, (int)op);
    const kolo_op_info *info = &kolo_op_table[op];
    KOLO_TRY(check_args(g, op, n_in, info->min_in, info->max_in, in, "inputs"));
    KOLO_TRY(check_args(g, op, n_out, info->min_out, info->max_out, out, "outputs"));
    memset(node, 0, sizeof *node);
    node->op = op;
    node->n_in = n_in;
    node->n_out = n_out;
    node->of = -1;
    for (int i = 0; i < KOLO_MAX_ARGS; i++) {
        node->in[i] = i < n_in ? in[i] : -1;
        node->out[i] = out && i < n_out ? out[i] : -1;
    }
    if (a) node->a = *a;
    return 0;
}

static int push_node(kolo_graph *g, const kolo_node *node)
{
    KOLO_TRY(kolo_grow(&g->node, &g->node_capacity, g->nodes, sizeof *g->node));
    for (int i = 0; i < node->n_out; i++)
        if (node->out[i] >= 0) g->tensor[node->out[i]].producer = (int)g->nodes;
    g->node[g->nodes] = *node;
    g->node[g->nodes].part = g->part;
    return (int)g->nodes++;
}

int kolo_graph_node(kolo_graph *g, enum kolo_op op, int n_in, const int *in, int n_out,
                    const kolo_attributes *a, const char *name)
{
    kolo_node node;
    KOLO_TRY(prepare_node(g, &node, op, n_in, in, n_out, NULL, a));
    if (!kolo_op_table[op].shape)
        return kolo_fail(KOLO_EINTERNAL,
                         "graph %s: %s has no shape rule; its outputs are made by a gradient rule", g->name,
                         kolo_op_table[op].name);
    KOLO_TRY(kolo_op_table[op].shape(g, &node, name));
    return push_node(g, &node);
}

int kolo_graph_node_with(kolo_graph *g, enum kolo_op op, int n_in, const int *in, int n_out, const int *out,
                         const kolo_attributes *a)
{
    kolo_node node;
    KOLO_TRY(prepare_node(g, &node, op, n_in, in, n_out, out, a));
    node.backward = true;
    node.of = g->differentiated;
    return push_node(g, &node);
}

void kolo_graph_exchange(kolo_graph *g, kolo_graph *made)
{
    kolo_graph other = *g;
    g->tensor = made->tensor, g->node = made->node;
    g->tensors = made->tensors, g->nodes = made->nodes;
    g->tensor_capacity = made->tensor_capacity, g->node_capacity = made->node_capacity;
    made->tensor = other.tensor, made->node = other.node;
    made->tensors = other.tensors, made->nodes = other.nodes;
    made->tensor_capacity = other.tensor_capacity, made->node_capacity = other.node_capacity;
}

int kolo_graph_node_as(kolo_graph *g, const kolo_node *node)
{
    kolo_node copy;
    KOLO_TRY(prepare_node(g, &copy, node->op, node->n_in, node->in, node->n_out, node->out, &node->a));
    copy.channels = node->channels;
    return push_node(g, &copy);
}

int kolo_graph_undo_node(kolo_graph *g)
{
    const kolo_node *n = &g->node[g->nodes - 1];
    int64_t first = g->tensors;
    for (int i = 0; i < n->n_out; i++)
        if (n->out[i] >= 0 && n->out[i] < first) first = n->out[i];
    for (int i = 0; i < n->n_in; i++)
        if (n->in[i] >= 0 && n->in[i] < first && g->tensor[n->in[i]].role == KOLO_ROLE_PARAM)
            first = n->in[i];
    for (int64_t t = first; t < g->tensors; t++)
        if (g->tensor[t].role != KOLO_ROLE_PARAM && g->tensor[t].producer != g->nodes - 1)
            return kolo_fail(KOLO_EINTERNAL, "graph %s: %s is no part of the last node", g->name,
                             g->tensor[t].name);
    while (g->tensors > first) free(g->tensor[--g->tensors].name);
    g->nodes--;
    return 0;
}

bool kolo_graph_is_output(const kolo_graph *g, int tensor)
{
    bool is = tensor >= 0 && (tensor == g->logits || tensor == g->features);
    for (int i = 0; i < g->heads; i++) is |= tensor == g->head[i];
    return is;
}

static void renumber(int *tensor, const int *to)
{
    if (*tensor >= 0) *tensor = to[*tensor];
}

/* to: [tensors] new index, -1: made by no node that is kept. A backward node whose forward node goes belongs
 * to the one before that. */
static void compact_nodes(kolo_graph *g, const bool *dead, int *to)
{
    int64_t kept = 0;
    for (int64_t t = 0; t < g->tensors; t++) to[t] = g->tensor[t].producer < 0 ? 0 : -1;
    for (int64_t i = g->nodes - 1; i >= 0; i--) {
        int *of = &g->node[i].of, before = 0;
        for (int k = 0; k <= *of; k++) before += !dead[k];
        if (*of >= 0) *of = before > 0 ? before - 1 : 0;
    }
    for (int64_t i = 0; i < g->nodes; i++) {
        if (dead[i]) continue;
        for (int k = 0; k < g->node[i].n_out; k++)
            if (g->node[i].out[k] >= 0) to[g->node[i].out[k]] = 0;
        g->node[kept++] = g->node[i];
    }
    g->nodes = kept;
}

static void compact_tensors(kolo_graph *g, int *to)
{
    int64_t kept = 0;
    for (int64_t t = 0; t < g->tensors; t++) {
        if (to[t] < 0) {
            free(g->tensor[t].name);
            continue;
        }
        to[t] = (int)kept;
        if (g->grad) g->grad[kept] = g->grad[t];
        g->tensor[kept] = g->tensor[t];
        g->tensor[kept++].producer = -1;
    }
    g->tensors = kept;
}

int kolo_graph_compact(kolo_graph *g, const bool *dead)
{
    int *to = kolo_alloc((size_t)(g->tensors + 1) * sizeof *to);
    if (!to) return KOLO_ENOMEM;
    compact_nodes(g, dead, to);
    compact_tensors(g, to);
    for (int64_t t = 0; t < g->tensors; t++) {
        renumber(&g->tensor[t].of, to);
        if (g->grad) renumber(&g->grad[t], to);
    }
    for (int64_t i = 0; i < g->nodes; i++) {
        kolo_node *n = &g->node[i];
        for (int k = 0; k < n->n_in; k++) renumber(&n->in[k], to);
        for (int k = 0; k < n->n_out; k++) {
            renumber(&n->out[k], to);
            if (n->out[k] >= 0) g->tensor[n->out[k]].producer = (int)i;
        }
    }
    int *const result[] = {&g->input, &g->label, &g->logits, &g->features, &g->metrics, &g->auxiliary};
    for (int i = 0; i < 6; i++) renumber(result[i], to);
    for (int i = 0; i < g->input_grid[0] * g->input_grid[1]; i++) renumber(&g->image_part[i], to);
    for (int i = 0; i < g->heads; i++) renumber(&g->head[i], to);
    free(to);
    return 0;
}

int kolo_graph_prune(kolo_graph *g)
{
    bool *dead = kolo_alloc((size_t)(g->nodes + 1) * sizeof *dead),
         *wanted = kolo_alloc((size_t)(g->tensors + 1) * sizeof *wanted);
    int rc = KOLO_ENOMEM;
    if (!dead || !wanted) goto fail;
    for (int64_t t = 0; t < g->tensors; t++) wanted[t] = t == g->metrics || kolo_graph_is_output(g, (int)t);
    for (int64_t i = g->nodes; i-- > 0;) {
        const kolo_node *n = &g->node[i];
        dead[i] = true;
        for (int k = 0; k < n->n_out; k++)
            if (n->out[k] >= 0 && wanted[n->out[k]]) dead[i] = false;
        for (int k = 0; !dead[i] && k < n->n_in; k++)
            if (n->in[k] >= 0) wanted[n->in[k]] = true;
    }
    rc = kolo_graph_compact(g, dead);
fail:
    free(dead);
    free(wanted);
    return rc;
}
