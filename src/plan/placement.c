#include "plan/placement.h"

#include <stdlib.h>
#include <string.h>

#include "base/memory.h"
#include "kolo/error.h"

int64_t kolo_graph_forward_nodes(const kolo_graph *g)
{
    int64_t n = 0;
    while (n < g->nodes && !g->node[n].backward) n++;
    return n;
}

/* Where in the chain an operation is: its forward operation. */
static int position(const kolo_graph *g, int64_t node)
{
    return g->node[node].backward ? g->node[node].of : (int)node;
}

/* Of the chain, the operations that have to do with a tensor: first and last. */
typedef struct span {
    int first, last;
} span;

static void widen(span *s, int at)
{
    if (s->last < 0) *s = (span){at, at};
    if (at < s->first) s->first = at;
    if (at > s->last) s->last = at;
}

/* span: [graph->tensors]. A parameter's is that of its gradient too, a buffer's that of its statistic. */
static void find_spans(const kolo_graph *g, span *of)
{
    for (int64_t t = 0; t < g->tensors; t++) of[t] = (span){0, -1};
    for (int64_t i = 0; i < g->nodes; i++) {
        const kolo_node *n = &g->node[i];
        for (int k = 0; k < n->n_in; k++)
            if (n->in[k] >= 0) widen(&of[n->in[k]], position(g, i));
        for (int k = 0; k < n->n_out; k++) {
            if (n->out[k] < 0) continue;
            const kolo_tensor *t = &g->tensor[n->out[k]];
            widen(&of[n->out[k]], position(g, i));
            if (t->of < 0) continue;
            widen(&of[t->of], position(g, i));
            if (t->role == KOLO_ROLE_STATISTIC) widen(&of[t->of + 1], position(g, i));
        }
    }
    for (int i = -1; i < kolo_graph_inputs(g); i++) { /* read by LOAD, which is of the first part */
        const int t = i < 0 ? g->label : kolo_graph_input(g, i);
        if (t >= 0 && of[t].last >= 0) of[t].first = 0;
    }
}

static bool may_cross(enum kolo_role role)
{
    return role == KOLO_ROLE_ACTIVATION || role == KOLO_ROLE_INPUT || role == KOLO_ROLE_LABEL;
}

int kolo_placement_cuts(const kolo_graph *g, const size_t *tensor_bytes, bool *allowed, double *crossing)
{
    const int64_t chain = kolo_graph_forward_nodes(g);
    span *of = kolo_alloc((size_t)g->tensors * sizeof *of);
    if (!of) return KOLO_ENOMEM;
    find_spans(g, of);
    for (int64_t i = 0; i < chain; i++) {
        allowed[i] = i < chain - 1;
        crossing[i] = 0;
    }
    for (int64_t t = 0; t < g->tensors; t++)
        for (int i = of[t].first; i < of[t].last; i++) {
            if (may_cross(g->tensor[t].role)) crossing[i] += (double)tensor_bytes[t];
            else allowed[i] = false;
        }
    free(of);
    return 0;
}

/* ---- a placement --------------------------------------------------------------------------------------- */

static int placement_alloc(kolo_placement **out, const kolo_graph *g, int stages, int chunks, int across,
                           enum kolo_pipeline order)
{
    kolo_placement *p = *out = kolo_alloc(sizeof *p);
    if (!p) return KOLO_ENOMEM;
    p->stages = stages;
    p->chunks = chunks;
    p->across = across;
    p->order = order;
    p->part = kolo_alloc((size_t)(g->nodes + 1) * sizeof *p->part);
    p->owner = kolo_alloc((size_t)(g->tensors + 1) * sizeof *p->owner);
    return p->part && p->owner ? 0 : KOLO_ENOMEM;
}

void kolo_placement_destroy(kolo_placement **placement)
{
    if (!*placement) return;
    free((*placement)->part);
    free((*placement)->owner);
    free(*placement);
    *placement = NULL;
}

/* Whose a tensor is: what reads a parameter or buffer, or makes a buffer's statistic; else what makes it. */
static void find_owners(kolo_placement *p, const kolo_graph *g)
{
    for (int64_t i = g->nodes - 1; i >= 0; i--) {
        const kolo_node *n = &g->node[i];
        for (int k = 0; k < n->n_in; k++) {
            const int t = n->in[k];
            if (t >= 0 && g->tensor[t].producer < 0 && t != g->input && t != g->label)
                p->owner[t] = p->part[i];
        }
        for (int k = 0; k < n->n_out; k++) {
            if (n->out[k] < 0) continue;
            const kolo_tensor *t = &g->tensor[n->out[k]];
            p->owner[n->out[k]] = p->part[i];
            if (t->role == KOLO_ROLE_STATISTIC && t->of >= 0)
                p->owner[t->of] = p->owner[t->of + 1] = p->part[i];
        }
    }
}

/* The part of the placement that has what node `i` does of part q of the chain: of those side by side the one
 * with the node's part of the maps. */
static int side_by_side(const kolo_placement *p, const kolo_graph *g, int64_t i, int q)
{
    const int groups = p->stages / p->across, parts = kolo_graph_parts(g);
    const int place = p->across > 1 ? g->node[i].part * p->across / parts : 0;
    return q / groups * p->stages + q % groups * p->across + place;
}

static const char *made_by(const kolo_graph *g, int64_t node)
{
    for (int k = 0; k < g->node[node].n_out; k++)
        if (g->node[node].out[k] >= 0) return g->tensor[g->node[node].out[k]].name;
    return kolo_op_table[g->node[node].op].name;
}

static int check_cuts(const kolo_graph *g, int parts, const int *cut)
{
    const int64_t chain = kolo_graph_forward_nodes(g);
    bool *allowed = kolo_alloc((size_t)(chain + 1) * sizeof *allowed);
    double *crossing = kolo_alloc((size_t)(chain + 1) * sizeof *crossing);
    size_t *bytes = kolo_alloc((size_t)(g->tensors + 1) * sizeof *bytes);
    int rc = allowed && crossing && bytes ? kolo_placement_cuts(g, bytes, allowed, crossing) : KOLO_ENOMEM;
    for (int q = 0; rc == 0 && q < parts - 1; q++) {
        if (cut[q] < 0 || cut[q] >= chain || (q > 0 && cut[q] <= cut[q - 1]))
            rc = kolo_fail(KOLO_EINTERNAL, "placement: part %d ends behind operation %d of %lld", q, cut[q],
                           (long long)chain);
        else if (!allowed[cut[q]])
            rc = kolo_fail(
                KOLO_ECONFIG,
                "%s cannot be cut behind %s: a norm, or a parameter and its gradient, would be apart",
                g->name, made_by(g, cut[q]));
    }
    free(allowed);
    free(crossing);
    free(bytes);
    return rc;
}

int kolo_placement_create(kolo_placement **out, const kolo_graph *g, int stages, int chunks, int across,
                          enum kolo_pipeline order, const int *cut)
{
    const int parts = stages / across * chunks;
    *out = NULL;
    KOLO_TRY(check_cuts(g, parts, cut));
    int rc = placement_alloc(out, g, stages, chunks, across, order);
    for (int64_t i = 0; rc == 0 && i < g->nodes; i++) {
        int q = 0;
        while (q < parts - 1 && position(g, i) > cut[q]) q++;
        (*out)->part[i] = side_by_side(*out, g, i, q);
    }
    if (rc == 0) find_owners(*out, g);
    else kolo_placement_destroy(out);
    return rc;
}

/* A forward operation without parameters is where `of` makes the tensor of this name, else with the one
 * before; gradients are with their operation. */
int kolo_placement_like(kolo_placement **out, const kolo_graph *g, const kolo_graph *of,
                        const kolo_placement *like)
{
    *out = NULL;
    int rc = placement_alloc(out, g, like->stages, like->chunks, like->across, like->order), last = 0;
    for (int64_t i = 0; rc == 0 && i < g->nodes; i++) {
        const kolo_node *n = &g->node[i];
        int own = n->backward ? kolo_placement_link(like, (*out)->part[n->of]) : -1, same = -1;
        for (int k = 0; k < n->n_in && own < 0; k++) {
            const enum kolo_role role = n->in[k] >= 0 ? g->tensor[n->in[k]].role : KOLO_ROLE_ACTIVATION;
            if (role != KOLO_ROLE_PARAM && role != KOLO_ROLE_BUFFER) continue;
            const int t = kolo_graph_find(of, g->tensor[n->in[k]].name);
            if (t >= 0) own = kolo_placement_link(like, like->owner[t]);
        }
        for (int k = 0; k < n->n_out && own < 0; k++) {
            const int t = n->out[k] >= 0 ? kolo_graph_find(of, g->tensor[n->out[k]].name) : -1;
            if (t >= 0 && of->tensor[t].producer >= 0) same = kolo_placement_link(like, like->owner[t]);
        }
        const int q = own >= 0 ? own : same;
        if (q > last) last = q;
        (*out)->part[i] = side_by_side(*out, g, i, own >= 0 ? own : last);
    }
    if (rc == 0) find_owners(*out, g);
    else kolo_placement_destroy(out);
    return rc;
}
