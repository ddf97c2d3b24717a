#include "train/uneven.h"

#include <stdio.h>
#include <stdlib.h>

#include "base/memory.h"
#include "kolo/error.h"
#include "plan/fabric.h"
#include "plan/placement.h"
#include "plan/price.h"
#include "plan/replicate.h"

enum { MOST_RANKS = 64 };

typedef struct chain {
    kolo_replicate_layer *layer; /* [nodes] forward operations */
    double *seconds, *crossing;  /* [nodes] */
    size_t *bytes;               /* [tensors] */
    bool *allowed;               /* [nodes] */
    int64_t nodes;
} chain;

static int chain_open(chain *c, const kolo_session *s)
{
    const kolo_graph *g = s->graph;
    const size_t all = (size_t)g->nodes + 1;
    *c = (chain){.layer = kolo_alloc(all * sizeof *c->layer),
                 .seconds = kolo_alloc(all * sizeof *c->seconds),
                 .crossing = kolo_alloc(all * sizeof *c->crossing),
                 .bytes = kolo_alloc((size_t)(g->tensors + 1) * sizeof *c->bytes),
                 .allowed = kolo_alloc(all * sizeof *c->allowed),
                 .nodes = kolo_graph_forward_nodes(g)};
    return c->layer && c->seconds && c->crossing && c->bytes && c->allowed ? 0 : KOLO_ENOMEM;
}

static void chain_close(chain *c)
{
    free(c->layer);
    free(c->seconds);
    free(c->crossing);
    free(c->bytes);
    free(c->allowed);
}

static int describe(chain *c, const kolo_session *s)
{
    const kolo_plan *p = s->plan;
    const kolo_graph *g = s->graph;
    for (int64_t t = 0; t < g->tensors; t++) c->bytes[t] = p->layout[t].bytes;
    KOLO_TRY(kolo_placement_cuts(g, c->bytes, c->allowed, c->crossing));
    KOLO_TRY(
        kolo_plan_roofline_nodes(p, s->gpu->rates, s->options->precision == KOLO_precision_tf32, c->seconds));
    for (int64_t i = 0; i < g->nodes; i++) {
        const kolo_node *n = &g->node[i];
        kolo_replicate_layer *l = &c->layer[n->backward ? n->of : i];
        l->seconds += c->seconds[i];
        for (int k = 0; k < n->n_in && !n->backward; k++)
            if (n->in[k] >= 0 && g->tensor[n->in[k]].role == KOLO_ROLE_PARAM)
                l->weights += (double)c->bytes[n->in[k]];
    }
    for (int64_t i = 0; i < c->nodes; i++) {
        c->layer[i].activation = c->crossing[i] / 2; /* one way */
        c->layer[i].cut = i > 0 && c->allowed[i - 1];
    }
    return 0;
}

static void tell(const kolo_session *s, const kolo_replicate_stage *stage, int stages, const double *seconds,
                 char *text, size_t size)
{
    *text = 0;
    kolo_append(text, size, "stages of ");
    for (int k = 0; k < stages; k++) kolo_append(text, size, "%s%d", k ? "-" : "", stage[k].ranks);
    for (int k = 1; k < stages; k++)
        kolo_append(text, size, "%s%s", k > 1 ? ", " : " ranks, cut at ",
                    kolo_graph_node_name(s->graph, stage[k].first));
    kolo_append(
        text, size,
        " would take %.3f ms a micro-batch, copies %.3f ms, by PipeDream's objective; Kolo's stages have "
        "equally many ranks: it cannot be run",
        seconds[0] * 1e3, seconds[1] * 1e3);
}

int session_uneven(const kolo_session *s, char *text, size_t size)
{
    kolo_replicate_stage stage[MOST_RANKS], copies = {0, s->ranks};
    double seconds[2];
    int stages = 0;
    chain c;
    bool uneven = false;
    *text = 0;
    if (!s->gpu || !s->gpu->fabric || s->ranks < 2 || s->ranks > MOST_RANKS) return 0;
    const kolo_fabric *f = s->gpu->fabric;
    const double port = s->ranks > f->gpus ? f->network / f->gpus : f->link;
    int rc = chain_open(&c, s);
    if (rc == 0) rc = describe(&c, s);
    const kolo_replicate_input in = {
        .layer = c.layer, .layers = (int)c.nodes, .ranks = s->ranks, .bandwidth = port * 1e9 * f->share};
    if (rc == 0) rc = kolo_replicate(&in, stage, &stages, &seconds[0]);
    if (rc == 0) seconds[1] = kolo_replicate_seconds(&in, &copies, 1);
    for (int k = 1; rc == 0 && k < stages; k++) uneven = uneven || stage[k].ranks != stage[0].ranks;
    if (uneven) tell(s, stage, stages, seconds, text, size);
    chain_close(&c);
    return rc;
}
