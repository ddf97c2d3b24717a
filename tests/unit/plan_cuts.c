/* Where a network may be cut, and what a cut leaves on which side: against a count tensor by tensor. */
#include "program_rig.h"

static int position(const kolo_graph *g, int64_t node)
{
    return g->node[node].backward ? g->node[node].of : (int)node;
}

/* Which sides of a cut behind forward operation `cut` have to do with each tensor: bit 0 the front, bit 1 the
 * back. A gradient has to do with its parameter, a statistic with its buffers. side: [graph->tensors] */
static void find_sides(const kolo_graph *g, int cut, unsigned *side)
{
    for (int t = 0; t < g->tensors; t++) side[t] = t == g->input || t == g->label;
    for (int64_t i = 0; i < g->nodes; i++) {
        const kolo_node *n = &g->node[i];
        const unsigned here = position(g, i) <= cut ? 1 : 2;
        for (int k = 0; k < n->n_in; k++)
            if (n->in[k] >= 0) side[n->in[k]] |= here;
        for (int k = 0; k < n->n_out; k++) {
            if (n->out[k] < 0) continue;
            const kolo_tensor *t = &g->tensor[n->out[k]];
            side[n->out[k]] |= here;
            if (t->of >= 0) side[t->of] |= here;
            if (t->of >= 0 && t->role == KOLO_ROLE_STATISTIC) side[t->of + 1] |= here;
        }
    }
}

static bool crosses_as_activation(enum kolo_role role)
{
    return role == KOLO_ROLE_ACTIVATION || role == KOLO_ROLE_INPUT || role == KOLO_ROLE_LABEL;
}

static bool placed_well(const kolo_graph *g, const kolo_placement *p)
{
    for (int t = 0; t < g->tensors; t++) { /* a parameter is where its gradient is, a buffer its statistic */
        const enum kolo_role role = g->tensor[t].role;
        const int of = g->tensor[t].of;
        if ((role == KOLO_ROLE_GRADIENT || role == KOLO_ROLE_STATISTIC) && of >= 0 &&
            p->owner[t] != p->owner[of])
            return false;
        if (role == KOLO_ROLE_STATISTIC && of >= 0 && p->owner[of + 1] != p->owner[of]) return false;
    }
    for (int64_t i = 0; i < g->nodes; i++) { /* all else than activations is read where it is */
        const kolo_node *n = &g->node[i];
        if (p->part[i] != p->part[position(g, i)]) return false;
        for (int k = 0; k < n->n_in; k++)
            if (n->in[k] >= 0 && !crosses_as_activation(g->tensor[n->in[k]].role) &&
                p->owner[n->in[k]] != p->part[i])
                return false;
    }
    return true;
}

static void test_cuts_of(const char *what, const kolo_graph *g)
{
    cuts c;
    int right = 0, weighed = 0, placed = 0, refused = 0, allowed = 0;
    unsigned *side = calloc((size_t)g->tensors + 1, sizeof *side);
    cuts_open(&c, g);
    for (int cut = 0; cut < c.chain; cut++) {
        bool apart = cut == c.chain - 1; /* nothing would be behind it */
        double bytes = 0;
        find_sides(g, cut, side);
        for (int t = 0; t < g->tensors; t++) {
            if (side[t] != 3) continue;
            if (crosses_as_activation(g->tensor[t].role)) bytes += (double)c.bytes[t];
            else apart = true;
        }
        right += c.allowed[cut] == !apart;
        weighed += c.crossing[cut] == bytes;
        allowed += c.allowed[cut];
        kolo_placement *p = NULL;
        const int rc = kolo_placement_create(&p, g, 2, 1, 1, KOLO_PIPELINE_1F1B, &cut);
        if (c.allowed[cut]) placed += rc == 0 && placed_well(g, p);
        else refused += rc == KOLO_ECONFIG && strstr(kolo_error_text(), "cannot be cut behind");
        kolo_placement_destroy(&p);
    }
    ok(right == c.chain && allowed > 0, "%s: %d of %d cuts, all that leave sums and parameters whole", what,
       allowed, c.chain);
    is_int(weighed, c.chain, "%s: bytes that cross them, counted tensor by tensor", what);
    is_int(placed, allowed, "%s: with gradients and running statistics where their parameters are", what);
    is_int(refused, c.chain - allowed, "%s: the others are refused", what);
    cuts_close(&c);
    free(side);
}

static void test_cuts(void)
{
    static const struct {
        const char *name;
        int64_t side;
        bool boxes;
    } net[] = {{"lenet5", 28, false},   {"resnet20", 16, false},      {"resnet50", 64, false},
               {"swin_t", 64, false},   {"convnext_tiny", 64, false}, {"yolox_nano", 64, true},
               {"vgg16_bn", 32, false}, {"darknet53", 64, false}};
    for (size_t i = 0; i < sizeof net / sizeof *net; i++) {
        kolo_graph *g = NULL;
        const kolo_model_config c = {.rows = 2,
                                     .height = net[i].side,
                                     .width = net[i].side,
                                     .channels = 3,
                                     .classes = 10,
                                     .words = net[i].boxes ? 1 + 5 * 4 : 1,
                                     .train = true,
                                     .mean = {.5f, .5f, .5f},
                                     .std = {.25f, .25f, .25f}};
        if (kolo_model_graph(&g, net[i].name, &c) < 0) ok(0, "%s: %s", net[i].name, kolo_error_text());
        else test_cuts_of(net[i].name, g);
        kolo_graph_destroy(&g);
    }
}

int main(void)
{
    if (!rig_begin()) return 1;
    test_cuts();
    return rig_end();
}
