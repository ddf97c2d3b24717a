/* Strips beside parts become operations: those that send them, those that make them again (halo.c chose). */
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/memory.h"
#include "graph/halo.h"
#include "kolo/error.h"

static bool equal(const kolo_area *a, const kolo_area *b) { return !memcmp(a, b, sizeof *a); }

/* ---- the strips ---------------------------------------------------------------------------------------- */

static int add_node(widen *w, const kolo_node *node, int part, int64_t behind)
{
    w->g->part = part;
    KOLO_TRY(kolo_graph_node_as(w->g, node));
    KOLO_TRY(kolo_grow(&w->behind, &w->room, w->made_nodes, sizeof *w->behind));
    w->behind[w->made_nodes++] = behind;
    return node->out[0];
}

/* A tensor like t, but of the pixels of `a`. */
static int add_map(kolo_graph *g, int t, int home, const char *what, const kolo_area *a)
{
    const kolo_tensor x = g->tensor[t];
    int64_t dim[KOLO_MAX_DIM];
    char name[400];
    memcpy(dim, x.dim, sizeof dim);
    for (int i = 0; i < 2; i++) dim[kolo_split_axis(&x) + i] = a->end[i] - a->at[i];
    snprintf(name, sizeof name, "%.300s:%s%d", x.name, what, home);
    return kolo_graph_tensor(g, name, x.role, x.dtype, x.rank, dim);
}

/* The tensor that has pixels of t beside part `home`, and which. */
static int seen(const widen *w, int t, int home, kolo_area *area)
{
    if (halo_home(w->g, t) == home) {
        *area = halo_whole(&w->g->tensor[t]);
        return t;
    }
    *area = halo_strip(w, t, home)->area;
    return halo_strip(w, t, home)->tensor;
}

/* `need` of tensor t, of which `from` has `area`. */
static int cut_out(widen *w, int from, const kolo_area *area, const kolo_area *need, int t, int part,
                   const char *what, int home, int64_t behind)
{
    kolo_node tile = {.op = KOLO_OP_tile, .n_in = 1, .n_out = 1, .in = {from}};
    memcpy(tile.a.from[0], area->at, sizeof tile.a.from[0]);
    memcpy(tile.a.at, need->at, sizeof tile.a.at);
    KOLO_TRY(tile.out[0] = add_map(w->g, t, home, what, need));
    return add_node(w, &tile, part, behind);
}

static int send_strip(widen *w, int t, int home, int64_t behind)
{
    const kolo_area all = halo_whole(&w->g->tensor[t]);
    return cut_out(w, t, &all, &halo_strip(w, t, home)->area, t, halo_home(w->g, t), "to", home, behind);
}

static int repeat_tile(widen *w, const kolo_node *n, int home, const kolo_area *made, int64_t behind)
{
    kolo_node own = {.op = KOLO_OP_tile, .n_out = 1};
    kolo_area area, both;
    for (int i = 0; i < 2; i++) own.a.at[i] = n->a.at[i] + made->at[i];
    for (int k = 0; k < n->n_in; k++) {
        int64_t from[2];
        const int x = halo_source(w, n, k, from);
        for (int i = 0; i < 2; i++) from[i] -= n->a.at[i];
        const int t = seen(w, x, home, &area);
        if (!halo_common(&area, from, made, &both)) continue;
        own.in[own.n_in] = t;
        for (int i = 0; i < 2; i++) own.a.from[own.n_in][i] = n->a.at[i] + from[i] + area.at[i];
        own.n_in++;
        for (int i = 0; i < 2; i++) area.at[i] += from[i], area.end[i] += from[i];
        if (equal(&area, made)) return t; /* it is there as it is */
    }
    if (own.n_in == 0)
        return kolo_fail(KOLO_EINTERNAL, "%s: a strip beside part %d is made of nothing",
                         w->g->tensor[n->out[0]].name, home);
    KOLO_TRY(own.out[0] = add_map(w->g, n->out[0], home, "at", made));
    return add_node(w, &own, home, behind);
}

/* Output k beside part `home`; what is no map nobody reads there. */
static int add_output(kolo_graph *g, const kolo_node *n, int k, int home, const kolo_area *made)
{
    const kolo_tensor x = g->tensor[n->out[k]];
    char name[400];
    if (kolo_split_is_map(&x)) return add_map(g, n->out[k], home, "at", made);
    snprintf(name, sizeof name, "%.300s:at%d", x.name, home);
    return kolo_graph_tensor(g, name, KOLO_ROLE_TERM, x.dtype, x.rank, x.dim);
}

static int repeat_node(widen *w, const kolo_node *n, int home, const kolo_area *made, int64_t behind)
{
    kolo_node own = *n;
    for (int k = 0; k < n->n_in; k++) {
        const int x = n->in[k];
        if (x < 0) continue;
        if (!kolo_split_is_map(&w->g->tensor[x])) {
            own.in[k] = halo_read_at(w, x, home);
            continue;
        }
        kolo_area area;
        const kolo_area need = halo_needed(w->g, n, x, made, &own.a);
        own.in[k] = seen(w, x, home, &area);
        char what[32];
        snprintf(what, sizeof what, "of%" PRId64 "in%d:at", behind, k);
        if (!equal(&area, &need))
            KOLO_TRY(own.in[k] = cut_out(w, own.in[k], &area, &need, x, home, what, home, behind));
    }
    for (int k = 0; k < n->n_out; k++)
        if (n->out[k] >= 0) KOLO_TRY(own.out[k] = add_output(w->g, n, k, home, made));
    return add_node(w, &own, home, behind);
}

/* All strips of tensor t, which node `behind` makes. */
static int make_strips(widen *w, int t, int64_t behind)
{
    for (int home = 0; home < w->homes; home++) {
        strip *s = halo_strip(w, t, home);
        if (!halo_is_wanted(s)) continue;
        if (halo_is_sent(w, t, home)) {
            s->tensor = send_strip(w, t, home, behind);
        } else {
            const kolo_node n = w->g->node[behind];
            const kolo_area made = s->area;
            s->tensor = (n.op == KOLO_OP_tile ? repeat_tile : repeat_node)(w, &n, home, &made, behind);
        }
        KOLO_TRY(s->tensor);
    }
    return 0;
}

/* New tensors have no gradients. */
static int widen_grad(const widen *w)
{
    kolo_graph *g = w->g;
    if (!g->grad) return 0;
    int *grad = kolo_alloc((size_t)(g->tensors + 1) * sizeof *grad);
    if (!grad) return KOLO_ENOMEM;
    for (int64_t t = 0; t < g->tensors; t++) grad[t] = t < w->tensors ? g->grad[t] : -1;
    free(g->grad);
    g->grad = grad;
    return 0;
}

int halo_make_strips(widen *w)
{
    for (int64_t t = 0; t < w->tensors; t++)
        if (w->g->tensor[t].producer < 0) KOLO_TRY(make_strips(w, (int)t, -1));
    for (int64_t i = 0; i < w->nodes; i++)
        if (w->g->node[i].out[0] >= 0) KOLO_TRY(make_strips(w, w->g->node[i].out[0], i));
    w->g->part = 0;
    return widen_grad(w);
}

/* ---- the graph ----------------------------------------------------------------------------------------- */

/* Tiles read strips in the place of halos. dead: halos that nobody reads any more. */
void halo_read_strips(widen *w, bool *dead)
{
    kolo_graph *g = w->g;
    for (int h = 0; h < w->halos; h++)
        dead[w->halo[h].node] =
            halo_is_wanted(halo_strip(w, g->node[w->halo[h].node].in[0], w->halo[h].home));
    for (int64_t i = 0; i < w->nodes; i++) {
        kolo_node *n = &g->node[i];
        for (int k = 0; n->op == KOLO_OP_tile && k < n->n_in; k++) {
            const int maker = g->tensor[n->in[k]].producer;
            if (maker < 0 || maker >= w->nodes || !dead[maker]) continue;
            int64_t from[2];
            const strip *s = halo_strip(w, halo_source(w, n, k, from), w->halo[w->halo_of[maker]].home);
            for (int j = 0; j < 2; j++) n->a.from[k][j] = from[j] + s->area.at[j];
            n->in[k] = s->tensor;
        }
    }
}

/* Every new node goes to its place; to: [nodes] where each then is. */
int halo_order_nodes(widen *w, const bool *dead)
{
    kolo_graph *g = w->g;
    const int64_t n = g->nodes;
    int rc = KOLO_ENOMEM;
    int64_t *to = kolo_alloc((size_t)(n + 1) * sizeof *to),
            *count = kolo_alloc((size_t)(n + 2) * sizeof *count);
    kolo_node *node = kolo_alloc((size_t)(n + 1) * sizeof *node);
    bool *gone = kolo_alloc((size_t)n + 1);
    if (!to || !count || !node || !gone) goto fail;
    for (int64_t j = 0; j < w->made_nodes; j++) count[w->behind[j] + 2]++; /* [i + 1]: in front of node i */
    for (int64_t i = 0; i <= w->nodes; i++) count[i + 1] += count[i];
    for (int64_t i = 0; i < w->nodes; i++) to[i] = i + count[i + 1];
    for (int64_t j = 0; j < w->made_nodes; j++) {
        const int64_t behind = w->behind[j];
        to[w->nodes + j] = behind + 1 + count[behind + 1]++;
    }
    for (int64_t i = 0; i < n; i++) {
        node[to[i]] = g->node[i];
        gone[to[i]] = i < w->nodes && dead[i];
    }
    for (int64_t i = 0; i < n; i++) {
        if (node[i].of >= 0) node[i].of = (int)to[node[i].of];
        for (int k = 0; k < node[i].n_out; k++)
            if (node[i].out[k] >= 0) g->tensor[node[i].out[k]].producer = (int)i;
    }
    memcpy(g->node, node, (size_t)n * sizeof *node);
    rc = kolo_graph_compact(g, gone);
fail:
    free(to);
    free(count);
    free(node);
    free(gone);
    return rc;
}
