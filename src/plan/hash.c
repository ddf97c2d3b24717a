/* The plan's hash: everything that decides which bits come out and what is sent, and nothing that differs
 * between equal ranks. */
#include <stdlib.h>
#include <string.h>

#include "base/hash.h"
#include "base/memory.h"
#include "plan/parts.h"
#include "plan/shard.h"

static uint64_t word(uint64_t h, uint64_t value) { return kolo_hash_word(h, value); }
static uint64_t text(uint64_t h, const char *s) { return word(h, kolo_hash_text(s)); }

static uint64_t real(uint64_t h, double value)
{
    uint64_t bits;
    memcpy(&bits, &value, sizeof bits);
    return word(h, bits);
}

static uint64_t binding(uint64_t h, const kolo_binding *b)
{
    return word(word(h, (uint64_t)b->arena), b->offset);
}

static uint64_t ring(uint64_t h, const kolo_ring *r)
{
    return word(word(word(h, (uint64_t)r->places), r->by_batch), r->stride);
}

/* kernels: hashes of what says which kernel a node has, [nodes][2]; NULL: not known */
static uint64_t node(uint64_t h, const kolo_plan *plan, int i, const uint64_t *kernels)
{
    const kolo_node *n = &plan->graph->node[i];
    h = kernels ? word(word(h, kernels[2 * i]), kernels[2 * i + 1])
                : text(text(h, kolo_kernel_key(plan->kernel[i])), kolo_kernel_name(plan->kernel[i]));
    h = word(h, n->backward);
    for (int k = 0; k < n->n_in; k++) h = word(h, (uint64_t)(int64_t)n->in[k]);
    for (int k = 0; k < n->n_out; k++) h = word(h, (uint64_t)(int64_t)n->out[k]);
    return h;
}

/* Tensors, layouts, arenas, buckets: what stands before the first action. The configuration
 * shows in the actions. */
static uint64_t frame(const kolo_plan *p)
{
    uint64_t h = 0x6b6f6c6f706c616eull;
    const kolo_graph *g = p->graph;
    for (int t = 0; t < g->tensors; t++) {
        h = text(h, g->tensor[t].name);
        h = word(h, (uint64_t)g->tensor[t].role | (uint64_t)g->tensor[t].dtype << 8 |
                        (uint64_t)g->tensor[t].decay << 16);
        for (int k = 0; k < g->tensor[t].rank; k++) h = word(h, (uint64_t)g->tensor[t].dim[k]);
        h = word(word(word(h, (uint64_t)p->layout[t].block), p->layout[t].hash), p->layout[t].bytes);
        h = word(h, p->layout[t].half);
        h = binding(h, &p->fixed[t]);
    }
    for (int a = 0; a < KOLO_ARENAS; a++) h = word(h, p->arena_bytes[a]);
    for (int b = 0; b < p->buckets; b++) h = word(word(h, p->bucket[b].offset), (uint64_t)p->bucket[b].count);
    for (int s = 0; s < p->segments; s++)
        h = real(word(word(word(h, (uint64_t)p->segment[s].begin), (uint64_t)p->segment[s].count),
                      p->segment[s].decay),
                 (double)p->segment[s].rate);
    for (int u = 0; u < p->units; u++) {
        h = word(word(h, p->unit[u].gradient), p->unit[u].gathered);
        for (int s = 0; s < p->config.shards; s++)
            h = word(word(h, (uint64_t)kolo_plan_part(p, u, s)->first),
                     (uint64_t)kolo_plan_part(p, u, s)->count);
    }
    return word(h, p->reduced_front);
}

static uint64_t action(uint64_t h, const kolo_plan *p, const kolo_action *a, const uint64_t *kernels)
{
    h = word(word(word(h, (uint64_t)a->kind), (uint64_t)a->slot), (uint64_t)(int64_t)a->bucket);
    h = word(word(h, (uint64_t)a->from), (uint64_t)a->to);
    int n = a->kind == KOLO_ACTION_LOAD   ? kolo_plan_loaded(p, NULL)
            : a->kind == KOLO_ACTION_COPY ? 2
            : a->kind == KOLO_ACTION_SUM  ? 1
                                          : 0;
    if (kolo_action_transfers(a->kind)) {
        const kolo_transfer *t = &p->transfer[a->transfer];
        h = word(word(word(h, (uint64_t)t->tensor), (uint64_t)t->slot), (uint64_t)t->peer << 1 | t->sends);
        n = 1;
    }
    if (a->kind == KOLO_ACTION_RUN) {
        n = p->graph->node[a->node].n_in + p->graph->node[a->node].n_out;
        h = node(h, p, a->node, kernels);
        if (a->again) h = word(h, 1);
    }
    if (kolo_action_changes_form(a->kind)) {
        h = word(word(h, (uint64_t)a->tensor), kolo_plan_form(p, a->tensor));
        n = 2;
    }
    for (int k = 0; k < n; k++) h = binding(h, &p->binding[a->binding + k]);
    for (int k = 0; k < n && p->ring; k++) h = ring(h, &p->ring[a->binding + k]);
    if (p->ring) h = word(word(h, (uint64_t)(int64_t)a->ahead), (uint64_t)(int64_t)a->tensor);
    if (a->kind >= KOLO_ACTION_FETCH) h = word(h, (uint64_t)a->unit);
    const kolo_plan_config *c = &p->config;
    if (a->kind == KOLO_ACTION_REDUCE || a->kind == KOLO_ACTION_SUM)
        h = word(h, (uint64_t)c->ranks << 3 | (uint64_t)c->adasum << 2 | (uint64_t)c->average << 1 |
                        c->canonical | (uint64_t)c->exchange << 32 | (uint64_t)c->late << 40);
    if (a->kind == KOLO_ACTION_REDUCE && c->group > 1) h = word(h, (uint64_t)c->group);
    if (a->kind == KOLO_ACTION_REDUCE && c->lag) h = word(word(h, (uint64_t)c->lag), (uint64_t)c->backup);
    if (a->kind == KOLO_ACTION_UPDATE && c->servers)
        h = word(h, (uint64_t)c->servers | (uint64_t)c->first_server << 32);
    if (a->kind == KOLO_ACTION_UPDATE || a->kind == KOLO_ACTION_DELTA || a->kind == KOLO_ACTION_APPLY)
        h = text(word(word(h, c->ema), c->lookahead), c->optimizer ? c->optimizer->name : "");
    return h;
}

void kolo_plan_hashes(const kolo_plan *plan, uint64_t *cumulative)
{
    const int nodes = plan->graph->nodes;
    uint64_t *kernels = kolo_alloc(2 * (size_t)nodes * sizeof *kernels); /* each is in a list many times */
    for (int i = 0; kernels && i < nodes; i++) {
        kernels[2 * i] = kolo_hash_text(kolo_kernel_key(plan->kernel[i]));
        kernels[2 * i + 1] = kolo_hash_text(kolo_kernel_name(plan->kernel[i]));
    }
    cumulative[0] = frame(plan);
    for (int64_t i = 0; i < plan->actions; i++)
        cumulative[i + 1] = action(cumulative[i], plan, &plan->action[i], kernels);
    free(kernels);
}
