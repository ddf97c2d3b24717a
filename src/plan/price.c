#include "plan/price.h"

#include <stdio.h>
#include <stdlib.h>

#include "base/file.h"
#include "base/memory.h"
#include "kolo/error.h"
#include "plan/parts.h"

static const struct {
    const char *what;
    bool matrix;
} classes[KOLO_CLASSES] = {
#define matrix true
#define vector false
#define CLASS(id, name, unit, what) {what, unit},
#include "graph/classes.def"
#undef CLASS
#undef matrix
#undef vector
};

typedef struct pricing {
    const kolo_plan *plan;
    const kolo_rates *rates; /* or NULL */
    kolo_price *price;
    kolo_stored stored;
    double matrix;    /* TFLOP/s of products */
    bool vector;      /* they are done in f32, without tensor cores */
    double now, lane; /* seconds: this rank's operations are done; its communication is done */
    double *done;     /* [buckets] when its sum is there */
} pricing;

/* ---- bytes ---- */

/* As operations read and write them: of a parameter that has a 16-bit copy, that. */
static size_t *stored_bytes(const kolo_plan *plan)
{
    const kolo_graph *g = plan->graph;
    size_t *bytes = kolo_alloc((size_t)(g->tensors + 1) * sizeof *bytes);
    for (int t = 0; bytes && t < g->tensors; t++) {
        const kolo_layout *l = &plan->layout[t];
        bytes[t] = g->tensor[t].role == KOLO_ROLE_PARAM && l->half ? l->bytes / 2 : l->bytes;
    }
    return bytes;
}

/* What an update moves for each parameter, in f32 words: gradient, weight and states are read, the latter two
 * written; the average and the 16-bit copy follow the weights. */
static kolo_cost update_cost(const kolo_plan *plan, const kolo_action *a)
{
    const double word = sizeof(float), n = (double)plan->bucket[a->bucket].params / plan->config.shards,
                 states = kolo_plan_states(plan);
    const bool applies = a->kind != KOLO_ACTION_DELTA, states_too = a->kind != KOLO_ACTION_APPLY;
    kolo_cost c = {.read = word * n * 2, .written = word * n};
    if (states_too) c.read += word * n * states, c.written += word * n * states;
    if (applies && plan->config.ema) c.read += word * n, c.written += word * n;
    if (applies && plan->arena_bytes[KOLO_ARENA_SHADOW]) c.written += word / 2 * n;
    c.flops = n * (4 + 4 * states);
    return c;
}

/* Gradients are looked at before they are used: once for the norm of all; with their weights for the norms of
 * every tensor, and by LAMB, whose step is what is measured, with its two states, which it writes. */
static kolo_cost grad_norm_cost(const kolo_plan *plan, const kolo_action *a)
{
    const double word = sizeof(float),
                 of_bucket = a->bucket >= 0 ? (double)plan->bucket[a->bucket].params : 0;
    const double params = (double)plan->trained_bytes / word / plan->config.shards, gradients = params;
    if (a->kind == KOLO_ACTION_SQUARE) return (kolo_cost){.read = word * of_bucket, .flops = 2 * of_bucket};
    if (a->kind == KOLO_ACTION_NORM) return (kolo_cost){.read = word * gradients, .flops = 2 * gradients};
    const bool lamb = plan->config.optimizer->layer.kind == KOLO_LAYER_LAMB;
    return (kolo_cost){.read = word * params * (lamb ? 4 : 2),
                       .written = lamb ? word * params * 2 : 0,
                       .flops = params * (lamb ? 12 : 4)};
}

static kolo_cost load_cost(const pricing *p)
{
    double bytes = 0;
    int loaded[KOLO_MAX_LOADED];
    const int n = kolo_plan_loaded(p->plan, loaded);
    for (int i = 0; i < n; i++) bytes += (double)p->stored.bytes[loaded[i]];
    return (kolo_cost){.read = bytes,
                       .written =
                           p->stored.device ? 2 * bytes : bytes}; /* uploaded, then copied to its slot */
}

static kolo_cost run_cost(const pricing *p, const kolo_node *n)
{
    const kolo_op_info *op = &kolo_op_table[n->op];
    const kolo_traffic t = op->bytes(p->plan->graph, n, &p->stored);
    return (kolo_cost){.read = t.read,
                       .written = t.written,
                       .spared = t.spared,
                       .flops = op->flops ? op->flops(p->plan->graph, n) : 0};
}

/* An all-reduce that uses its links well sends 2 (n-1)/n of what it sums, and takes as much in. */
static kolo_cost send_cost(const kolo_plan *plan, double bytes)
{
    const int ranks = kolo_plan_summed(&plan->config);
    const double part = 2.0 * (ranks - 1) / ranks * bytes;
    return (kolo_cost){.read = part, .written = part, .sent = part};
}

/* The half of it that a shard's part of a sum is, or all parts of the updated weights. */
static kolo_cost part_cost(const kolo_plan *plan, double bytes)
{
    const double part = (double)(plan->config.shards - 1) / plan->config.shards * bytes;
    return (kolo_cost){.read = part, .written = part, .sent = part};
}

static double unit_bytes(const kolo_plan *plan, const kolo_action *a)
{
    return (double)plan->unit[a->unit].params * sizeof(float);
}

static double sum_bytes(const kolo_plan *plan, const kolo_action *a)
{
    return (double)plan->layout[plan->graph->node[a->node].out[a->from]].bytes;
}

/* What an action is counted as; KOLO_CLASSES: nothing. */
static enum kolo_class cost_of(const pricing *p, const kolo_action *a, kolo_cost *c)
{
    const kolo_plan *plan = p->plan;
    const double bucket = a->bucket >= 0 && a->bucket < plan->buckets
                              ? (double)plan->bucket[a->bucket].count * sizeof(float)
                              : 0;
    const double params = bucket > 0 ? (double)plan->bucket[a->bucket].params * sizeof(float) : 0;
    *c = (kolo_cost){0};
    switch (a->kind) {
    case KOLO_ACTION_RUN:
        *c = run_cost(p, &plan->graph->node[a->node]);
        return kolo_node_class(plan->graph, &plan->graph->node[a->node]);
    case KOLO_ACTION_LOAD: *c = load_cost(p); return KOLO_CLASS_LOAD;
    case KOLO_ACTION_FOLD:
        *c = (kolo_cost){.read = 2 * bucket, .written = bucket, .flops = bucket / sizeof(float)};
        return KOLO_CLASS_FOLD;
    case KOLO_ACTION_REDUCE:
        *c = plan->config.shards > 1 && plan->bucket[a->bucket].unit >= 0 ? part_cost(plan, bucket)
                                                                          : send_cost(plan, bucket);
        return KOLO_CLASS_SEND;
    case KOLO_ACTION_GATHER: *c = part_cost(plan, unit_bytes(plan, a)); return KOLO_CLASS_SEND;
    case KOLO_ACTION_COLLECT:
        *c = (kolo_cost){.read = bucket / plan->config.shards, .written = bucket / plan->config.shards};
        return KOLO_CLASS_FOLD;
    case KOLO_ACTION_SHARE:
    case KOLO_ACTION_TAKE: *c = (kolo_cost){.read = bucket, .written = bucket}; return KOLO_CLASS_FOLD;
    case KOLO_ACTION_COPY: {
        const double b = (double)plan->layout[a->tensor].bytes;
        *c = (kolo_cost){.read = b, .written = b};
        return KOLO_CLASS_FOLD;
    }
    case KOLO_ACTION_PREDICT:
        *c = (kolo_cost){.read = 2 * params, .written = params};
        return KOLO_CLASS_UPDATE;
    case KOLO_ACTION_STASH: *c = (kolo_cost){.read = params, .written = params}; return KOLO_CLASS_UPDATE;
    case KOLO_ACTION_SUM: *c = send_cost(plan, sum_bytes(plan, a)); return KOLO_CLASS_SEND;
    case KOLO_ACTION_NOISE: *c = send_cost(plan, sizeof(double)); return KOLO_CLASS_SEND;
    case KOLO_ACTION_SQUARE:
    case KOLO_ACTION_NORM:
    case KOLO_ACTION_LAYERS: *c = grad_norm_cost(plan, a); return KOLO_CLASS_GRAD_NORM;
    case KOLO_ACTION_UPDATE:
    case KOLO_ACTION_DELTA:
    case KOLO_ACTION_APPLY: *c = update_cost(plan, a); return KOLO_CLASS_UPDATE;
    case KOLO_ACTION_BUFFERS: {
        const double b = (double)plan->arena_bytes[KOLO_ARENA_BUFFER];
        *c = (kolo_cost){.read = 2 * b, .written = b};
        return KOLO_CLASS_UPDATE;
    }
    case KOLO_ACTION_SEND: {
        const double b = (double)plan->transfer[a->transfer].bytes;
        *c = (kolo_cost){.read = b, .sent = b};
        return KOLO_CLASS_SEND;
    }
    case KOLO_ACTION_RECEIVE:
        *c = (kolo_cost){.written = (double)plan->transfer[a->transfer].bytes};
        return KOLO_CLASS_SEND;
    case KOLO_ACTION_TRANSFERRED:
    case KOLO_ACTION_CLEAR:
    case KOLO_ACTION_FETCH:
    case KOLO_ACTION_EVICT:
    case KOLO_ACTION_FETCH_PARAM:
    case KOLO_ACTION_EVICT_PARAM:
    case KOLO_ACTION_GATHERED:
    case KOLO_ACTION_STORE:
    case KOLO_ACTION_STORED:
    case KOLO_ACTION_RETRIEVE:
    case KOLO_ACTION_RETRIEVED:
    case KOLO_ACTION_WAIT: break;
    case KOLO_ACTION_ENCODE:
    case KOLO_ACTION_DECODE: {
        const double own = (double)plan->layout[a->tensor].bytes,
                     formed = (double)kolo_plan_form_bytes(plan, a->tensor);
        const bool back = a->kind == KOLO_ACTION_DECODE;
        *c = (kolo_cost){.read = back ? formed : own, .written = back ? own : formed};
        return KOLO_CLASS_ELEMENT;
    }
    }
    return KOLO_CLASSES;
}

static int open_pricing(pricing *p, const kolo_plan *plan)
{
    size_t *bytes = stored_bytes(plan);
    *p = (pricing){.plan = plan, .stored = {bytes, plan->on_device}};
    p->done = kolo_alloc((size_t)(plan->buckets + plan->units + 1) * sizeof *p->done);
    return bytes && p->done ? 0 : KOLO_ENOMEM;
}

static void close_pricing(pricing *p)
{
    free((void *)(uintptr_t)p->stored.bytes);
    free(p->done);
}

int kolo_plan_costs(const kolo_plan *plan, kolo_cost *cost)
{
    pricing p;
    const int rc = open_pricing(&p, plan);
    for (int64_t i = 0; rc == 0 && i < plan->actions; i++) cost_of(&p, &plan->action[i], &cost[i]);
    close_pricing(&p);
    return rc;
}

/* ---- time ---- */

/* Sums use all ports of a node at once where they leave it. */
static double send_seconds(const kolo_rates *r, int ranks, double bytes)
{
    double rate = r->link;
    if (ranks > r->gpus && r->network * r->gpus < rate) rate = r->network * r->gpus;
    return bytes / (rate * 1e9 * r->link_share) + r->latency * 1e-6;
}

/* The weights of a convolution that Winograd's minimal filtering (Lavin & Gray, arXiv:1509.09308) can do in
 * f32: 3x3, of stride 1; NULL: it cannot. */
static const kolo_tensor *winograd_weights(const pricing *p, const kolo_action *a)
{
    const kolo_graph *g = p->plan->graph;
    if (p->rates->winograd < 2 || !p->vector || a->kind != KOLO_ACTION_RUN) return NULL;
    const kolo_node *n = &g->node[a->node];
    if (n->a.groups > 1 || n->a.stride[0] != 1 || n->a.stride[1] != 1) return NULL;
    for (int k = 0; k < n->n_in + n->n_out; k++) {
        const int t = k < n->n_in ? n->in[k] : n->out[k - n->n_in];
        const kolo_tensor *w = t < 0 ? NULL : &g->tensor[t];
        const bool weights = w && (w->role == KOLO_ROLE_PARAM || kolo_tensor_is_gradient(w));
        if (weights && w->rank == 4) return w->dim[2] == 3 && w->dim[3] == 3 ? w : NULL;
    }
    return NULL;
}

/* The fastest of what a library has for a convolution, as its clock chooses: products as they are; in tiles
 * of 2 x 2 pixels of y, which stay in registers and take 16 products instead of 36; in larger ones, which
 * take fewer still, but whose maps and weights are written and read once more in the transformed form. */
static double conv_seconds(const pricing *p, const kolo_tensor *w, const kolo_cost *c, double memory,
                           double arithmetic)
{
    const double direct = memory > arithmetic ? memory : arithmetic, least = arithmetic * 16 / 36,
                 fused = memory > least ? memory : least;
    double best = direct < fused ? direct : fused;
    for (double m = 4; m <= p->rates->winograd; m += 2) {
        const double weights = (double)w->dim[0] * (double)w->dim[1] * 9 * sizeof(float),
                     maps = c->read + c->written - weights, tile = (m + 2) * (m + 2),
                     again = 2 * (maps * tile / (m * m) + weights * tile / 9),
                     each = memory / (c->read + c->written),
                     seconds = arithmetic * tile / (9 * m * m) + (c->read + c->written + again) * each;
        if (seconds < best) best = seconds;
    }
    return best;
}

static void take_time(const pricing *p, enum kolo_class class, const kolo_action *a, kolo_cost *c)
{
    const kolo_rates *r = p->rates;
    if (!r) return;
    if (class == KOLO_CLASS_SEND) {
        c->seconds = send_seconds(r, kolo_plan_summed(&p->plan->config), c->sent);
        return;
    }
    const double share = r->bytes_of[class] > 0 ? r->bytes_of[class] : r->bytes,
                 reach = r->flops_of[class] > 0 ? r->flops_of[class] : r->flops;
    const double memory = (c->read + c->written) / (r->bandwidth * 1e9 * share);
    const double arithmetic = c->flops / ((classes[class].matrix ? p->matrix : r->f32) * 1e12 * reach);
    const kolo_tensor *w = winograd_weights(p, a);
    c->seconds = w ? conv_seconds(p, w, c, memory, arithmetic) : memory > arithmetic ? memory : arithmetic;
    c->seconds += (r->launch_of[class] > 0 ? r->launch_of[class] : r->launch) * 1e-6;
    if (memory > arithmetic) c->memory = c->seconds;
}

/* Two lanes, as the executor has them: operations one after the other, and beside them reductions over ranks,
 * each after what is in it. */
static void pass_time(pricing *p, const kolo_action *a, const kolo_cost *c)
{
    const bool gathers = a->kind == KOLO_ACTION_GATHER || a->kind == KOLO_ACTION_GATHERED;
    double *done = gathers                                          ? &p->done[p->plan->buckets + a->unit]
                   : a->bucket >= 0 && a->bucket < p->plan->buckets ? &p->done[a->bucket]
                                                                    : NULL;
    double until = p->now;
    if ((a->kind == KOLO_ACTION_REDUCE || a->kind == KOLO_ACTION_GATHER) && done) {
        p->lane = (p->lane > p->now ? p->lane : p->now) + c->seconds;
        *done = p->lane;
        return;
    }
    if ((a->kind == KOLO_ACTION_WAIT || a->kind == KOLO_ACTION_GATHERED) && done) until = *done;
    if (a->kind == KOLO_ACTION_SUM || a->kind == KOLO_ACTION_NOISE)
        until = p->lane = (p->lane > p->now ? p->lane : p->now) + c->seconds;
    else p->now += c->seconds, until += c->seconds;
    if (until > p->now) {
        p->price->waited += until - p->now;
        p->now = until;
    }
}

static void add_cost(kolo_cost *to, const kolo_cost *c)
{
    to->calls++;
    to->read += c->read;
    to->written += c->written;
    to->spared += c->spared;
    to->flops += c->flops;
    to->sent += c->sent;
    to->seconds += c->seconds;
    to->memory += c->memory;
}

static void take_rates(pricing *p, const kolo_rates *rates, bool tf32)
{
    const enum kolo_dtype dtype = p->plan->graph->dtype;
    p->rates = rates;
    p->vector = dtype == KOLO_F32 && !tf32;
    if (rates)
        p->matrix = dtype == KOLO_BF16  ? rates->bf16
                    : dtype == KOLO_F16 ? rates->fp16
                    : tf32              ? rates->tf32
                                        : rates->f32;
}

int kolo_plan_roofline(const kolo_plan *plan, const kolo_rates *rates, bool tf32, kolo_cost *cost)
{
    pricing p;
    const int rc = open_pricing(&p, plan);
    take_rates(&p, rates, tf32);
    for (int64_t i = 0; rc == 0 && i < plan->actions; i++) {
        const enum kolo_class class = cost_of(&p, &plan->action[i], &cost[i]);
        if (class < KOLO_CLASSES && class != KOLO_CLASS_SEND)
            take_time(&p, class, &plan->action[i], &cost[i]);
    }
    close_pricing(&p);
    return rc;
}

int kolo_plan_roofline_nodes(const kolo_plan *plan, const kolo_rates *rates, bool tf32, double *seconds)
{
    kolo_cost *cost = kolo_alloc((size_t)(plan->actions + 1) * sizeof *cost);
    const int rc = cost ? kolo_plan_roofline(plan, rates, tf32, cost) : KOLO_ENOMEM;
    for (int i = 0; i < plan->graph->nodes; i++) seconds[i] = 0;
    for (int64_t i = 0; rc == 0 && i < plan->actions; i++) {
        const kolo_action *a = &plan->action[i];
        if (a->kind == KOLO_ACTION_RUN && a->slot == 0) seconds[a->node] = cost[i].seconds;
    }
    free(cost);
    return rc;
}

int kolo_plan_price(const kolo_plan *plan, const kolo_rates *rates, bool tf32, kolo_price *price)
{
    pricing p;
    const int rc = open_pricing(&p, plan);
    take_rates(&p, rates, tf32);
    p.price = price;
    *price = (kolo_price){0};
    for (int64_t i = 0; rc == 0 && i < plan->actions; i++) {
        kolo_cost c;
        const enum kolo_class class = cost_of(&p, &plan->action[i], &c);
        if (class < KOLO_CLASSES) {
            take_time(&p, class, &plan->action[i], &c);
            add_cost(&price->of[class], &c);
            if (class != KOLO_CLASS_SEND) add_cost(&price->all, &c);
        }
        pass_time(&p, &plan->action[i], &c);
    }
    price->step = p.now;
    close_pricing(&p);
    return rc;
}

/* ---- as text ---- */

static void print_cost(FILE *f, const char *what, const kolo_cost *c, bool timed, double step)
{
    fprintf(f, "  %-36s %6lld %9.2f %9.2f %9.2f %11.1f", what, (long long)c->calls, c->read / 1e9,
            c->written / 1e9, (c->read + c->written) / 1e9, c->flops / 1e9);
    if (timed)
        fprintf(f, " %9.3f %5.1f %%  %s", c->seconds * 1e3, 100 * c->seconds / step,
                c->memory >= c->seconds / 2 ? "memory" : "arithmetic");
    fprintf(f, "\n");
}

int kolo_price_print(const kolo_price *price, const kolo_plan *plan, const kolo_rates *rates,
                     const char *where, void *file)
{
    FILE *f = file;
    const bool timed = rates && price->step > 0;
    const kolo_cost *send = &price->of[KOLO_CLASS_SEND];
    fprintf(f, "\na step of one rank%s%s (GB: 10^9 bytes of its memory; padding counted, caches not)\n",
            timed ? ", priced for " : "", timed ? where : "");
    fprintf(f, "  %-36s %6s %9s %9s %9s %11s%s\n", "", "calls", "GB read", "written", "together", "GFLOP",
            timed ? "        ms   share  bound by" : "");
    for (int k = 0; k < KOLO_CLASSES; k++)
        if (k != KOLO_CLASS_SEND && price->of[k].calls)
            print_cost(f, classes[k].what, &price->of[k], timed, price->step);
    print_cost(f, "in all", &price->all, timed, price->step);
    if (price->all.spared > 0)
        fprintf(f,
                "  sums of convolutions in bf16 are counted as formed by engines compiled at the start; "
                "where the GPU's "
                "clock prefers two passes: %.2f GB more\n",
                price->all.spared / 1e9);
    if (send->calls)
        fprintf(f, "  %-36s %6lld  %.3f GB leave this rank%s", classes[KOLO_CLASS_SEND].what,
                (long long)send->calls, send->sent / 1e9, timed ? "" : "\n");
    if (send->calls && timed)
        fprintf(f, ", %.3f ms beside the rest, %.3f ms waited for\n", send->seconds * 1e3,
                price->waited * 1e3);
    if (timed) {
        const double rows = (double)plan->graph->rows * plan->config.slots * plan->config.ranks;
        fprintf(f, "  roofline of the step: %.3f ms, %.0f img/s (%.0f a rank); nothing was timed\n",
                price->step * 1e3, rows / price->step, rows / price->step / plan->config.ranks);
    }
    return kolo_stream_status(f);
}
