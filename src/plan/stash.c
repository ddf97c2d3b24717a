#include "plan/stash.h"

#include <stdlib.h>
#include <string.h>

#include "base/memory.h"
#include "kolo/error.h"
#include "plan/parts.h"
#include "plan/price.h"

enum { ANY_DEPTH = 1 << 20 };
/* Operations that may run again one after the other; the first alone: none does. */
static const int depths[] = {0, 1, 2, 3, ANY_DEPTH};
enum { DEPTHS = sizeof depths / sizeof *depths };

/* What the backward half reads of a tensor. */
enum use { UNREAD, SIGN, VALUES };

typedef struct stash {
    const kolo_plan *plan;
    const kolo_graph *graph;
    unsigned char *use; /* [tensors] enum use */
    int *node;          /* [nodes] operations whose results change their form, in the graph's order */
    int nodes;
    kolo_form *wanted; /* [tensors] if nothing is taken back */
    kolo_form *form;   /* [tensors] */
    size_t best;       /* bytes of ACTIVATION */
    int grain;         /* fewer operations than these are not told apart */
} stash;

static bool is_forward(const stash *s, int tensor)
{
    const int node = s->graph->tensor[tensor].producer;
    return s->graph->tensor[tensor].role == KOLO_ROLE_ACTIVATION && node >= 0 &&
           !s->graph->node[node].backward;
}

static void find_uses(stash *s)
{
    const kolo_graph *g = s->graph;
    for (int64_t i = 0; i < g->nodes; i++) {
        const kolo_node *n = &g->node[i];
        for (int k = 0; k < n->n_in && n->backward; k++) {
            if (n->in[k] < 0) continue;
            const unsigned char use = kolo_op_reads_sign(n->op, k) ? SIGN : VALUES;
            if (s->use[n->in[k]] < use) s->use[n->in[k]] = use;
        }
    }
}

/* ---- rules ---- */

static bool is_cheap(const stash *s, const kolo_node *n)
{
    const enum kolo_class of = kolo_node_class(s->graph, n);
    return of == KOLO_CLASS_ELEMENT || of == KOLO_CLASS_NORM_APPLY || of == KOLO_CLASS_POOL ||
           of == KOLO_CLASS_MOVE;
}

/* How many operations run again one after the other for what node `i` makes, if it does too; 0: it may not.
 * depth: [nodes] of those before. */
static int depth_of(const stash *s, int64_t i, const int *depth)
{
    const kolo_node *n = &s->graph->node[i];
    int most = 0;
    bool wanted = false;
    if (n->backward || !is_cheap(s, n)) return 0;
    for (int k = 0; k < n->n_out; k++)
        if (n->out[k] >= 0 && is_forward(s, n->out[k]) && s->use[n->out[k]] == VALUES) wanted = true;
    for (int k = 0; k < n->n_in && wanted; k++) {
        if (n->in[k] < 0 || s->graph->tensor[n->in[k]].role != KOLO_ROLE_ACTIVATION) continue;
        if (s->use[n->in[k]] != VALUES) return 0; /* would have to be kept for it */
        const int producer = s->graph->tensor[n->in[k]].producer;
        if (producer >= 0 && depth[producer] > most) most = depth[producer];
    }
    return wanted ? most + 1 : 0;
}

/* Operations run again where no more than `limit` do one after the other. */
static int drop_cheap(stash *s, int limit)
{
    const kolo_graph *g = s->graph;
    int *depth = kolo_alloc((size_t)(g->nodes + 1) * sizeof *depth);
    if (!depth) return KOLO_ENOMEM;
    for (int64_t i = 0; i < g->nodes; i++) {
        const kolo_node *n = &g->node[i];
        depth[i] = depth_of(s, i, depth);
        if (depth[i] > limit) depth[i] = 0;
        for (int k = 0; k < n->n_out && depth[i] > 0; k++)
            if (n->out[k] >= 0 && is_forward(s, n->out[k]) && s->use[n->out[k]])
                s->wanted[n->out[k]] = KOLO_FORM_DROPPED;
    }
    free(depth);
    return 0;
}

/* Index of a window's maximum below 16. */
static bool is_small_index(const stash *s, int tensor)
{
    const kolo_node *n = &s->graph->node[s->graph->tensor[tensor].producer];
    const bool pool = n->op == KOLO_OP_max_pool || n->op == KOLO_OP_norm_max_pool;
    return pool && n->n_out > 1 && n->out[1] == tensor && n->a.kernel[0] * n->a.kernel[1] <= 16;
}

static void encode(stash *s, enum kolo_form_kind numbers)
{
    for (int t = 0; t < s->graph->tensors; t++) {
        const enum kolo_dtype dtype = s->graph->tensor[t].dtype;
        s->wanted[t] = KOLO_FORM_KEPT;
        if (s->use[t] == UNREAD || !is_forward(s, t)) continue;
        if (s->use[t] == SIGN && kolo_form_takes(KOLO_FORM_SIGNS, dtype)) s->wanted[t] = KOLO_FORM_SIGNS;
        else if (is_small_index(s, t) && kolo_form_takes(KOLO_FORM_NIBBLES, dtype))
            s->wanted[t] = KOLO_FORM_NIBBLES;
        else if (kolo_form_takes(numbers, dtype)) s->wanted[t] = (kolo_form)numbers;
    }
}

/* ---- exact forms: those that make the plan smaller ---- */

static int weigh(const stash *s, const kolo_form *form, size_t *bytes)
{
    kolo_plan *plan = NULL;
    const int rc = kolo_plan_create_forms(&plan, s->plan, form, NULL);
    if (rc == 0) *bytes = plan->arena_bytes[KOLO_ARENA_ACTIVATION];
    kolo_plan_destroy(&plan);
    return rc;
}

static void list_nodes(stash *s)
{
    s->nodes = 0;
    for (int64_t i = 0; i < s->graph->nodes; i++) {
        const kolo_node *n = &s->graph->node[i];
        bool changes = false;
        for (int k = 0; k < n->n_out && !n->backward; k++)
            changes |= n->out[k] >= 0 && s->form[n->out[k]] != KOLO_FORM_KEPT;
        if (changes) s->node[s->nodes++] = (int)i;
    }
}

/* What operations [begin, end) of the list make is kept as it is, or (false) as wanted. */
static void keep(stash *s, int begin, int end, bool kept)
{
    for (int i = begin; i < end; i++) {
        const kolo_node *n = &s->graph->node[s->node[i]];
        for (int k = 0; k < n->n_out; k++)
            if (n->out[k] >= 0) s->form[n->out[k]] = kept ? KOLO_FORM_KEPT : s->wanted[n->out[k]];
    }
}

/* Each operation may be weighed twice, each time by a plan of its own. Of a large plan (parts, many
 * micro-batches) that would take minutes, so groups of operations stand or fall there: so many actions in all
 * take seconds. */
static int grain_of(const stash *s)
{
    const double enough = 1e6;
    return 1 + (int)(2.0 * s->nodes * (double)s->plan->actions / enough);
}

/* Takes back what spares nothing: all of it, or what does of each half. */
static int take_back(stash *s, int begin, int end)
{
    size_t bytes = 0;
    if (begin >= end) return 0;
    keep(s, begin, end, true);
    KOLO_TRY(weigh(s, s->form, &bytes));
    if (bytes <= s->best) return 0;
    keep(s, begin, end, false);
    if (end - begin <= s->grain) return 0;
    const int middle = (begin + end) / 2;
    KOLO_TRY(take_back(s, middle, end));
    return take_back(s, begin, middle);
}

/* tries: how many of `depths`. */
static int choose_exact(stash *s, bool encodes, int tries)
{
    const size_t bytes = (size_t)s->graph->tensors * sizeof *s->form;
    kolo_form *best = kolo_alloc(bytes + 1);
    int rc = best ? 0 : KOLO_ENOMEM;
    s->best = SIZE_MAX;
    for (int i = 0; rc == 0 && i < tries; i++) {
        size_t needs = 0;
        if (encodes) encode(s, KOLO_FORM_KEPT);
        else memset(s->wanted, KOLO_FORM_KEPT, bytes);
        rc = drop_cheap(s, depths[i]);
        if (rc == 0) rc = weigh(s, s->wanted, &needs);
        if (rc < 0 || needs >= s->best) continue;
        s->best = needs;
        memcpy(best, s->wanted, bytes);
    }
    if (rc == 0) {
        memcpy(s->wanted, best, bytes);
        memcpy(s->form, best, bytes);
        list_nodes(s);
        s->grain = grain_of(s);
        rc = take_back(s, 0, s->nodes);
    }
    free(best);
    return rc;
}

static int stash_open(stash *s, const kolo_plan *plan, kolo_form *form)
{
    *s = (stash){.plan = plan, .graph = plan->graph, .form = form};
    s->use = kolo_alloc((size_t)plan->graph->tensors + 1);
    s->node = kolo_alloc((size_t)(plan->graph->nodes + 1) * sizeof *s->node);
    s->wanted = kolo_alloc((size_t)(plan->graph->tensors + 1) * sizeof *s->wanted);
    if (!s->use || !s->node || !s->wanted) return KOLO_ENOMEM;
    find_uses(s);
    return 0;
}

static void stash_close(stash *s)
{
    free(s->use);
    free(s->node);
    free(s->wanted);
}

int kolo_stash_choose(const kolo_plan *plan, enum kolo_form_kind numbers, bool encodes, kolo_form *form)
{
    stash s;
    int rc = stash_open(&s, plan, form);
    if (rc == 0 && numbers == KOLO_FORM_KEPT) rc = choose_exact(&s, encodes, DEPTHS);
    else if (rc == 0) {
        encode(&s, numbers);
        memcpy(form, s.wanted, (size_t)plan->graph->tensors * sizeof *form);
    }
    stash_close(&s);
    return rc;
}

/* ---- what costs no time ---- */

/* A core as most are: 10 GB/s of memory, 60 GFLOP/s in f32. What counts is how many operations it does while
 * a byte comes: the more, the dearer are bytes. In 16 bits there are half the bytes, and twice the rate. */
static int price_of(const kolo_plan *plan, double *price)
{
    const kolo_rates core = {
        .bandwidth = 10, .f32 = .06, .tf32 = .06, .bf16 = .12, .fp16 = .12, .bytes = 1, .flops = 1};
    kolo_cost *cost = kolo_alloc((size_t)(plan->actions + 1) * sizeof *cost);
    const int rc = cost ? kolo_plan_roofline(plan, &core, false, cost) : KOLO_ENOMEM;
    double all = 0, forms = 0;
    for (int64_t i = 0; rc == 0 && i < plan->actions; i++) {
        const enum kolo_action_kind kind = plan->action[i].kind;
        all += cost[i].seconds;
        if (kind == KOLO_ACTION_ENCODE || kind == KOLO_ACTION_DECODE) forms += cost[i].seconds;
    }
    *price = all > 0 ? forms / all : 0;
    free(cost);
    return rc;
}

int kolo_stash_choose_free(const kolo_plan *plan, kolo_form *form, kolo_stash_worth *worth)
{
    stash s;
    kolo_plan *formed = NULL;
    *worth = (kolo_stash_worth){0};
    int rc = stash_open(&s, plan, form);
    if (rc == 0) rc = choose_exact(&s, true, 1);
    if (rc == 0) rc = kolo_plan_create_forms(&formed, plan, form, NULL);
    if (rc == 0) rc = price_of(formed, &worth->price);
    if (rc == 0) {
        const double all = (double)plan->arena_bytes[KOLO_ARENA_ACTIVATION],
                     own = (double)formed->arena_bytes[KOLO_ARENA_ACTIVATION];
        worth->spared = all > 0 ? 1 - own / all : 0;
        worth->taken = worth->spared >= KOLO_STASH_SPARED && worth->price <= KOLO_STASH_PRICE;
        if (!worth->taken) memset(form, KOLO_FORM_KEPT, (size_t)plan->graph->tensors * sizeof *form);
    }
    kolo_plan_destroy(&formed);
    stash_close(&s);
    return rc;
}

int kolo_stash_encodable(const kolo_graph *graph, size_t *bytes)
{
    stash s;
    const kolo_plan plan = {.graph = graph};
    int rc = stash_open(&s, &plan, NULL);
    *bytes = 0;
    if (rc == 0) encode(&s, KOLO_FORM_KEPT);
    for (int t = 0; rc == 0 && t < graph->tensors; t++)
        if (s.wanted[t] != KOLO_FORM_KEPT)
            *bytes += (size_t)kolo_tensor_count(&graph->tensor[t]) * kolo_dtype_size(graph->tensor[t].dtype);
    stash_close(&s);
    return rc;
}

/* ---- offloaded ---- */

/* The first `count` operations of the list have what they make, and gradients read, offloaded. */
static void offload_first(stash *s, int count)
{
    for (int i = 0; i < s->nodes; i++) {
        const kolo_node *n = &s->graph->node[s->node[i]];
        for (int k = 0; k < n->n_out; k++)
            if (n->out[k] >= 0 && s->wanted[n->out[k]] == KOLO_FORM_OFFLOADED)
                s->form[n->out[k]] = i < count ? KOLO_FORM_OFFLOADED : KOLO_FORM_KEPT;
    }
}

int kolo_stash_offload(const kolo_plan *plan, size_t budget, kolo_form *form)
{
    stash s;
    size_t bytes = 0;
    int rc = stash_open(&s, plan, form);
    for (int64_t i = 0; rc == 0 && i < plan->graph->nodes; i++) {
        const kolo_node *n = &plan->graph->node[i];
        bool any = false;
        for (int k = 0; k < n->n_out && !n->backward; k++) {
            const int t = n->out[k];
            if (t < 0 || s.use[t] == UNREAD || form[t] != KOLO_FORM_KEPT || !is_forward(&s, t)) continue;
            s.wanted[t] = KOLO_FORM_OFFLOADED;
            any = true;
        }
        if (any) s.node[s.nodes++] = (int)i;
    }
    int low = 0, high = s.nodes; /* the least that fits is in [low, high], if any does */
    while (rc == 0 && low < high) {
        const int middle = (low + high) / 2;
        offload_first(&s, middle);
        rc = weigh(&s, form, &bytes);
        if (bytes <= budget) high = middle;
        else low = middle + 1;
    }
    if (rc == 0) offload_first(&s, low);
    stash_close(&s);
    return rc;
}

/* ---- what a plan does ---- */

int kolo_plan_stashed(const kolo_plan *plan, kolo_stashed *count)
{
    stash s;
    *count = (kolo_stashed){0};
    int rc = stash_open(&s, plan, NULL);
    for (int t = 0; rc == 0 && t < plan->graph->tensors; t++) {
        if (s.use[t] == UNREAD || !is_forward(&s, t)) continue;
        const enum kolo_form_kind form = kolo_plan_form(plan, t);
        const double bytes = (double)plan->layout[t].bytes;
        count->activations++;
        count->of[form]++;
        count->bytes += bytes;
        if (form == KOLO_FORM_OFFLOADED) count->offloaded += bytes;
        else if (kolo_form_is_encoded(form)) count->waiting += (double)kolo_plan_form_bytes(plan, t);
        else if (form == KOLO_FORM_KEPT) count->waiting += bytes;
    }
    for (int64_t i = 0; i < plan->actions; i++)
        count->operations += plan->action[i].slot == 0 && plan->action[i].again;
    stash_close(&s);
    return rc;
}
