#include "plan/recompute.h"

#include <stdlib.h>
#include <string.h>

#include "base/memory.h"
#include "kolo/error.h"
#include "plan/parts.h"
#include "plan/spans.h"

struct kolo_recompute {
    const kolo_plan *plan;
    const double *seconds; /* [nodes] of the graph */
    int steps, backs;
    int *node;          /* [steps] forward operations in their order */
    int *back;          /* [backs] backward ones */
    int *step;          /* [graph nodes] of the forward operation itself, or whose gradients it forms; -1 */
    int *last;          /* [tensors] the last step that reads it; -1: none */
    int *final;         /* [tensors] the last of `back` that reads it; -1: none */
    int64_t *bytes;     /* [tensors] in ACTIVATION */
    int64_t *gradients; /* [backs] bytes alive at it that the backward half made */
    int64_t *before;    /* [backs] those without what it begins itself */
    int64_t base;       /* images and labels that gradients read */
    kolo_span_cost *stored, *again; /* again: spans of 1 to `longest` steps from each on */
    int longest;
};

/* ---- the chain ---- */

static const kolo_node *node_of(const kolo_recompute *r, int node) { return &r->plan->graph->node[node]; }

/* Step that makes a tensor; -1: it is no forward operation of this plan. */
static int maker(const kolo_recompute *r, int tensor)
{
    const int node = r->plan->graph->tensor[tensor].producer;
    return node < 0 || node_of(r, node)->backward ? -1 : r->step[node];
}

static bool is_forward(const kolo_recompute *r, int tensor)
{
    const int node = r->plan->graph->tensor[tensor].producer;
    return node < 0 || !node_of(r, node)->backward;
}

/* Partial sums and what crosses to other stages are kept in any case. */
static bool may_drop(const kolo_recompute *r, int tensor)
{
    return r->plan->graph->tensor[tensor].role == KOLO_ROLE_ACTIVATION && !r->plan->crosses[tensor] &&
           maker(r, tensor) >= 0;
}

static int open_arrays(kolo_recompute *r)
{
    const kolo_graph *g = r->plan->graph;
    const size_t nodes = (size_t)g->nodes + 1, tensors = (size_t)g->tensors + 1;
    r->node = kolo_alloc(nodes * sizeof *r->node);
    r->back = kolo_alloc(nodes * sizeof *r->back);
    r->step = kolo_alloc(nodes * sizeof *r->step);
    r->last = kolo_alloc(tensors * sizeof *r->last);
    r->final = kolo_alloc(tensors * sizeof *r->final);
    r->bytes = kolo_alloc(tensors * sizeof *r->bytes);
    r->gradients = kolo_alloc(nodes * sizeof *r->gradients);
    r->before = kolo_alloc(nodes * sizeof *r->before);
    if (!r->node || !r->back || !r->step || !r->last || !r->final || !r->bytes || !r->gradients || !r->before)
        return KOLO_ENOMEM;
    for (size_t i = 0; i < nodes; i++) r->step[i] = -1;
    for (size_t t = 0; t < tensors; t++) r->last[t] = r->final[t] = -1;
    return 0;
}

/* Operations in the order of the first micro-batch's actions. */
static void list_operations(kolo_recompute *r)
{
    const kolo_plan *p = r->plan;
    for (int64_t i = 0; i < p->actions; i++) {
        const kolo_action *a = &p->action[i];
        if (a->kind != KOLO_ACTION_RUN || a->slot > 0) continue;
        const kolo_node *n = node_of(r, a->node);
        if (n->backward) r->back[r->backs++] = a->node;
        else r->step[r->node[r->steps] = a->node] = r->steps, r->steps++;
    }
    for (int b = 0; b < r->backs; b++) {
        const int of = node_of(r, r->back[b])->of;
        r->step[r->back[b]] = of >= 0 ? r->step[of] : -1;
    }
}

static void find_uses(kolo_recompute *r)
{
    const kolo_plan *p = r->plan;
    for (int64_t t = 0; t < p->graph->tensors; t++)
        if (kolo_plan_placed_in(p, (int)t) == KOLO_ARENA_ACTIVATION)
            r->bytes[t] = (int64_t)kolo_plan_tensor_bytes(p, (int)t);
    for (int s = 0; s < r->steps; s++)
        for (int k = 0; k < node_of(r, r->node[s])->n_in; k++)
            if (node_of(r, r->node[s])->in[k] >= 0) r->last[node_of(r, r->node[s])->in[k]] = s;
    for (int b = 0; b < r->backs; b++)
        for (int k = 0; k < node_of(r, r->back[b])->n_in; k++)
            if (node_of(r, r->back[b])->in[k] >= 0) r->final[node_of(r, r->back[b])->in[k]] = b;
    for (int64_t t = 0; t < p->graph->tensors; t++)
        if (is_forward(r, (int)t) && maker(r, (int)t) < 0 && r->final[t] >= 0) r->base += r->bytes[t];
}

/* The operand whose memory an output may take over, or -1. */
static int taken_over(const kolo_recompute *r, const kolo_node *n)
{
    const kolo_graph *g = r->plan->graph;
    const int which = kolo_op_table[n->op].overwrite;
    if (which < 0 || which >= n->n_in || n->in[which] < 0 || n->out[0] < 0) return -1;
    const int in = n->in[which], out = n->out[0];
    int uses = 0;
    for (int k = 0; k < n->n_in; k++) uses += n->in[k] == in;
    return uses == 1 && r->bytes[in] && r->bytes[in] == r->bytes[out] &&
                   g->tensor[in].role == KOLO_ROLE_ACTIVATION && g->tensor[out].role == KOLO_ROLE_ACTIVATION
               ? in
               : -1;
}

/* Bytes of the backward half's own values: its order stays as it is, so they do. */
static void weigh_gradients(kolo_recompute *r)
{
    for (int b = 0; b < r->backs; b++) {
        const kolo_node *n = node_of(r, r->back[b]);
        const int in = taken_over(r, n);
        for (int k = 0; k < n->n_out; k++) {
            const int t = n->out[k];
            if (t < 0 || !r->bytes[t]) continue;
            const int end = r->final[t] > b ? r->final[t] : b;
            const bool over = k == 0 && in >= 0 && r->final[in] == b;
            for (int i = over ? b + 1 : b; i <= end; i++) r->gradients[i] += r->bytes[t];
            for (int i = b + 1; i <= end; i++) r->before[i] += r->bytes[t];
        }
    }
}

/* ---- the costs of a span ---- */

/* What happens to a span on the way back: operations that run again, and those of the backward half. */
typedef struct span {
    const kolo_recompute *r;
    int begin, end; /* steps, both included */
    bool again;
    int events;
    int *node;      /* [events] */
    int64_t *fixed; /* [events] bytes of gradients at it */
    double seconds; /* of those that run again */
    /* values (parts.h) that are alive in it, and which events they are alive from and to */
    int *value, values;
    int *from, *to, *mark; /* [2 x tensors]; mark: `from` and `to` are of what is at hand */
    int number;
    bool *kept;      /* [tensors] of those it makes */
    int64_t *change; /* [events, or steps, + 2] */
} span;

static int tensors_of(const span *s) { return (int)s->r->plan->graph->tensors; }

static bool inside(const span *s, int tensor)
{
    const int made = maker(s->r, tensor);
    return made >= s->begin && made <= s->end;
}

static bool drops(const span *s, int tensor)
{
    return s->again && may_drop(s->r, tensor) && inside(s, tensor) && s->r->last[tensor] <= s->end;
}

static bool is_alive(const span *s, int value) { return s->mark[value] == s->number; }

static void live(span *s, int value, int from, int to)
{
    if (!is_alive(s, value)) {
        s->mark[value] = s->number;
        s->value[s->values++] = value;
        s->from[value] = s->to[value] = from;
    }
    if (to > s->to[value]) s->to[value] = to;
}

static int value_of(const span *s, int tensor) { return drops(s, tensor) ? tensor + tensors_of(s) : tensor; }

/* The next event. What it reads of the forward half is there from the beginning, or made again; what spans
 * before keep for themselves is in their account. */
static void happen(span *s, int node, bool again, int64_t fixed)
{
    const kolo_node *n = node_of(s->r, node);
    const int e = s->events++;
    s->node[e] = node;
    s->fixed[e] = fixed;
    if (again) s->seconds += s->r->seconds[node];
    for (int k = 0; k < n->n_in; k++) {
        const int t = n->in[k];
        if (t < 0 || !s->r->bytes[t] || !is_forward(s->r, t)) continue;
        if (inside(s, t) || s->r->final[t] < 0) live(s, value_of(s, t), 0, e);
    }
    for (int k = 0; k < n->n_out && again; k++)
        if (n->out[k] >= 0) live(s, n->out[k] + tensors_of(s), e, e);
}

/* As instantiate.c does it. */
static void remake(span *s, int tensor, int64_t fixed)
{
    if (tensor < 0 || !drops(s, tensor) || is_alive(s, tensor + tensors_of(s))) return;
    const int node = s->r->plan->graph->tensor[tensor].producer;
    for (int k = 0; k < node_of(s->r, node)->n_in; k++) remake(s, node_of(s->r, node)->in[k], fixed);
    happen(s, node, true, fixed);
}

static void walk_back(span *s)
{
    const kolo_recompute *r = s->r;
    for (int b = 0; b < r->backs; b++) {
        const int step = r->step[r->back[b]];
        if (step < s->begin || step > s->end) continue;
        const kolo_node *n = node_of(r, r->back[b]);
        for (int k = 0; k < n->n_in; k++) remake(s, n->in[k], r->before[b]);
        happen(s, r->back[b], false, r->gradients[b]);
    }
}

/* The most bytes of values alive together with what is fixed. */
static int64_t peak_of(span *s, int moments)
{
    int64_t most = 0, alive = 0;
    memset(s->change, 0, (size_t)(moments + 2) * sizeof *s->change);
    for (int i = 0; i < s->values; i++) {
        const int v = s->value[i];
        const int64_t bytes = s->r->bytes[v % tensors_of(s)];
        if (s->from[v] > s->to[v]) continue;
        s->change[s->from[v]] += bytes;
        s->change[s->to[v] + 1] -= bytes;
    }
    for (int e = 0; e < moments; e++) {
        alive += s->change[e];
        if (alive + s->fixed[e] > most) most = alive + s->fixed[e];
    }
    return most;
}

/* Where out[0] takes over its operand's memory it is there a moment later. */
static void take_over(span *s, int at, int in, int out)
{
    if (is_alive(s, in) && is_alive(s, out) && s->to[in] == at && s->from[out] == at) s->from[out]++;
}

/* What it makes and keeps until its way back, and what of others it reads again there. */
static int64_t bytes_kept(span *s)
{
    int64_t kept = 0;
    for (int i = s->begin; i <= s->end; i++) {
        const kolo_node *n = node_of(s->r, s->r->node[i]);
        for (int k = 0; k < n->n_out; k++) {
            const int t = n->out[k];
            if (t < 0) continue;
            s->kept[t] = !drops(s, t) && (s->r->final[t] >= 0 || is_alive(s, t));
            if (s->kept[t]) kept += s->r->bytes[t];
        }
    }
    for (int i = 0; i < s->values; i++)
        if (s->value[i] < tensors_of(s) && !inside(s, s->value[i])) kept += s->r->bytes[s->value[i]];
    return kept;
}

static int64_t peak_back(span *s)
{
    for (int e = 0; e < s->events; e++) {
        const kolo_node *n = node_of(s->r, s->node[e]);
        const int in = n->backward ? -1 : taken_over(s->r, n);
        if (in >= 0) take_over(s, e, value_of(s, in), n->out[0] + tensors_of(s));
    }
    return peak_of(s, s->events);
}

static void open_span(span *s)
{
    s->number++;
    s->values = s->events = 0;
}

static void walk_forward(span *s)
{
    const kolo_recompute *r = s->r;
    for (int i = s->begin; i <= s->end; i++) {
        const kolo_node *n = node_of(r, r->node[i]);
        const int at = s->events++;
        s->fixed[at] = 0;
        for (int k = 0; k < n->n_in; k++)
            if (n->in[k] >= 0 && (inside(s, n->in[k]) || r->final[n->in[k]] < 0)) live(s, n->in[k], at, at);
        for (int k = 0; k < n->n_out; k++)
            if (n->out[k] >= 0) live(s, n->out[k], at, at);
    }
}

static int64_t peak_forward(span *s)
{
    const kolo_recompute *r = s->r;
    for (int i = s->begin; i <= s->end; i++) {
        const kolo_node *n = node_of(r, r->node[i]);
        for (int k = 0; k < n->n_out; k++)
            if (n->out[k] >= 0 && (s->kept[n->out[k]] || r->last[n->out[k]] > s->end))
                s->to[n->out[k]] = s->events - 1;
        const int in = taken_over(r, n);
        if (in >= 0 && r->last[in] == i && !(inside(s, in) && s->kept[in]) && r->final[in] < 0)
            take_over(s, i - s->begin, in, n->out[0]);
    }
    return peak_of(s, s->events);
}

static kolo_span_cost cost_of(span *s, int begin, int end, bool again)
{
    s->begin = begin;
    s->end = end;
    s->again = again;
    s->seconds = 0;
    open_span(s);
    walk_back(s);
    kolo_span_cost cost = {.kept = bytes_kept(s), .seconds = s->seconds};
    cost.peak = peak_back(s);
    open_span(s);
    walk_forward(s);
    const int64_t forward = peak_forward(s);
    if (forward > cost.peak) cost.peak = forward;
    return cost;
}

static int span_alloc(span *s, const kolo_recompute *r)
{
    const size_t moments = (size_t)(r->steps + r->backs + 2),
                 values = 2 * (size_t)r->plan->graph->tensors + 1;
    *s = (span){.r = r};
    s->node = kolo_alloc(moments * sizeof *s->node);
    s->fixed = kolo_alloc(moments * sizeof *s->fixed);
    s->change = kolo_alloc((moments + 2) * sizeof *s->change);
    s->value = kolo_alloc(values * sizeof *s->value);
    s->from = kolo_alloc(values * sizeof *s->from);
    s->to = kolo_alloc(values * sizeof *s->to);
    s->mark = kolo_alloc(values * sizeof *s->mark);
    s->kept = kolo_alloc(values);
    return s->node && s->fixed && s->change && s->value && s->from && s->to && s->mark && s->kept
               ? 0
               : KOLO_ENOMEM;
}

static void span_free(span *s)
{
    free(s->node);
    free(s->fixed);
    free(s->change);
    free(s->value);
    free(s->from);
    free(s->to);
    free(s->mark);
    free(s->kept);
}

static int weigh_stored(kolo_recompute *r)
{
    span s;
    int rc = span_alloc(&s, r);
    r->stored = kolo_alloc((size_t)(r->steps + 1) * sizeof *r->stored);
    if (rc == 0 && !r->stored) rc = KOLO_ENOMEM;
    for (int i = 0; rc == 0 && i < r->steps; i++) r->stored[i] = cost_of(&s, i, i, false);
    span_free(&s);
    return rc;
}

/* Of a chain of n steps all spans take n^3 / 6 looks at a step. Those of a long one are no longer than what
 * makes it as many as of LOOKED_AT steps; parts of images make chains of thousands. */
enum { LOOKED_AT = 700 };
static int longest_of(int64_t n)
{
    int64_t longest = n;
    while (n > LOOKED_AT && n * longest * longest * 3 > (int64_t)LOOKED_AT * LOOKED_AT * LOOKED_AT) longest--;
    return (int)longest;
}

/* When they are asked for: blocks need none of the others. */
static int weigh_spans(kolo_recompute *r)
{
    span s;
    if (r->again) return 0;
    r->longest = longest_of(r->steps);
    int rc = span_alloc(&s, r);
    r->again = kolo_alloc(((size_t)r->steps * (size_t)r->longest + 1) * sizeof *r->again);
    if (rc == 0 && !r->again) rc = KOLO_ENOMEM;
    for (int i = 0; rc == 0 && i < r->steps; i++)
        for (int k = 0; k < r->longest && i + k < r->steps; k++)
            r->again[(int64_t)i * r->longest + k] = cost_of(&s, i, i + k, true);
    span_free(&s);
    return rc;
}

/* ---- choices ---- */

int kolo_recompute_create(kolo_recompute **out, const kolo_plan *plan, const double *seconds)
{
    kolo_recompute *r = *out = kolo_alloc(sizeof *r);
    if (!r) return KOLO_ENOMEM;
    r->plan = plan;
    r->seconds = seconds;
    int rc = open_arrays(r);
    if (rc == 0) {
        list_operations(r);
        find_uses(r);
        weigh_gradients(r);
        rc = weigh_stored(r);
    }
    if (rc < 0) kolo_recompute_destroy(out);
    return rc;
}

void kolo_recompute_destroy(kolo_recompute **recompute)
{
    kolo_recompute *r = *recompute;
    if (!r) return;
    free(r->node);
    free(r->back);
    free(r->step);
    free(r->last);
    free(r->final);
    free(r->bytes);
    free(r->gradients);
    free(r->before);
    free(r->stored);
    free(r->again);
    free(r);
    *recompute = NULL;
}

static kolo_spans chain_of(const kolo_recompute *r)
{
    return (kolo_spans){.steps = r->steps, .longest = r->longest, .stored = r->stored, .again = r->again};
}

int64_t kolo_recompute_plain(const kolo_recompute *r)
{
    int64_t kept = 0, most = 0;
    for (int i = 0; i < r->steps; kept += r->stored[i++].kept)
        if (kept + r->stored[i].peak > most) most = kept + r->stored[i].peak;
    return r->base + most;
}

int kolo_recompute_least(kolo_recompute *r, int64_t *bytes)
{
    KOLO_TRY(weigh_spans(r));
    const kolo_spans chain = chain_of(r);
    *bytes = r->base + kolo_spans_least(&chain);
    return 0;
}

/* first: [steps] as kolo_spans_solve says it */
static void drop(const kolo_recompute *r, const int *first, kolo_form *form)
{
    for (int i = 0, end = 0; i < r->steps; i++) {
        const kolo_node *n = node_of(r, r->node[i]);
        for (end = i > end ? i : end; end + 1 < r->steps && first[end + 1] == first[i];) end++;
        for (int k = 0; k < n->n_out; k++)
            if (n->out[k] >= 0)
                form[n->out[k]] = first[i] >= 0 && may_drop(r, n->out[k]) && r->last[n->out[k]] <= end
                                      ? KOLO_FORM_DROPPED
                                      : KOLO_FORM_KEPT;
    }
}

int kolo_recompute_choose(kolo_recompute *r, int64_t budget, kolo_form *form, kolo_recompute_choice *choice)
{
    KOLO_TRY(weigh_spans(r));
    const kolo_spans chain = chain_of(r);
    int *first = kolo_alloc((size_t)(r->steps + 1) * sizeof *first);
    int rc = first ? kolo_spans_solve(&chain, budget - r->base, first, &choice->seconds, &choice->exact)
                   : KOLO_ENOMEM;
    if (rc == 0) drop(r, first, form);
    free(first);
    return rc;
}

/* The block of every step: that of the first parameter it reads, or of the step before. */
static void find_blocks(const kolo_recompute *r, const int *depth, int *block)
{
    const kolo_graph *g = r->plan->graph;
    for (int i = 0; i < r->steps; i++) {
        const kolo_node *n = node_of(r, r->node[i]);
        block[i] = i > 0 ? block[i - 1] : 0;
        for (int k = n->n_in - 1; k >= 0; k--)
            if (n->in[k] >= 0 && g->tensor[n->in[k]].role == KOLO_ROLE_PARAM) block[i] = depth[n->in[k]];
    }
}

int kolo_recompute_blocks(const kolo_recompute *r, kolo_form *form, kolo_recompute_choice *choice)
{
    const int n = r->steps;
    int *depth = kolo_alloc((size_t)(r->plan->graph->tensors + 1) * sizeof *depth),
        *first = kolo_alloc((size_t)(n + 1) * sizeof *first),
        *block = kolo_alloc((size_t)(n + 1) * sizeof *block);
    span s;
    int rc = span_alloc(&s, r);
    if (rc == 0 && (!depth || !first || !block)) rc = KOLO_ENOMEM;
    *choice = (kolo_recompute_choice){.exact = true};
    if (rc == 0) {
        kolo_plan_depths(r->plan->graph, depth);
        find_blocks(r, depth, block);
        for (int i = 0, end; i < n; i = end) {
            for (end = i; end < n && block[end] == block[i];) end++;
            for (int k = i; k < end; k++) first[k] = end == n ? -1 : i;
            if (end < n) choice->seconds += cost_of(&s, i, end - 1, true).seconds;
        }
        drop(r, first, form);
    }
    span_free(&s);
    free(depth);
    free(first);
    free(block);
    return rc;
}

/* ---- what no choice can do without ---- */

typedef struct goods {
    double seconds, bytes;
} goods;

static int by_price(const void *a, const void *b)
{
    const goods *x = a, *y = b;
    const double left = x->seconds * y->bytes, right = y->seconds * x->bytes;
    return left < right ? -1 : left > right;
}

/* At backward operation b: what else is alive, and the operations that make what could be dropped. */
static int goods_at(const kolo_recompute *r, int b, goods *of, double *alive)
{
    const kolo_node *now = node_of(r, r->back[b]);
    int n = 0;
    *alive = (double)r->gradients[b];
    for (int t = 0; t < r->plan->graph->tensors; t++)
        if (is_forward(r, t) && r->final[t] >= b) *alive += (double)r->bytes[t];
    for (int i = 0; i < r->steps; i++) {
        const kolo_node *made = node_of(r, r->node[i]);
        goods all = {.seconds = r->seconds[r->node[i]]};
        for (int k = 0; k < made->n_out; k++) {
            const int t = made->out[k];
            bool read = false;
            for (int m = 0; m < now->n_in; m++) read |= now->in[m] == t;
            if (t >= 0 && may_drop(r, t) && r->final[t] >= b && !read) all.bytes += (double)r->bytes[t];
        }
        if (all.bytes > 0) of[n++] = all;
    }
    return n;
}

int kolo_recompute_bound(const kolo_recompute *r, int64_t budget, double *seconds)
{
    goods *of = kolo_alloc((size_t)(r->steps + 1) * sizeof *of);
    *seconds = 0;
    for (int b = 0; of && b < r->backs; b++) {
        double alive, sum = 0;
        const int n = goods_at(r, b, of, &alive);
        double excess = alive - (double)budget;
        if (excess <= 0) continue;
        qsort(of, (size_t)n, sizeof *of, by_price);
        for (int i = 0; i < n && excess > 0; excess -= of[i++].bytes)
            sum += of[i].seconds * (of[i].bytes <= excess ? 1 : excess / of[i].bytes);
        if (sum > *seconds) *seconds = sum;
    }
    free(of);
    return of ? 0 : KOLO_ENOMEM;
}

/* ---- what a plan does ---- */

int kolo_plan_recomputed(const kolo_plan *p, const double *seconds, kolo_recomputed *c)
{
    const kolo_graph *g = p->graph;
    bool *read = kolo_alloc((size_t)g->tensors + 1);
    *c = (kolo_recomputed){0};
    if (!read) return KOLO_ENOMEM;
    for (int64_t i = 0; i < p->actions; i++) {
        const kolo_action *a = &p->action[i];
        if (a->kind != KOLO_ACTION_RUN || a->slot > 0) continue;
        const kolo_node *n = &g->node[a->node];
        c->all += seconds[a->node];
        if (a->again) c->operations++, c->seconds += seconds[a->node];
        for (int k = 0; k < n->n_in && (n->backward || a->again); k++)
            if (n->in[k] >= 0) read[n->in[k]] = true;
    }
    for (int t = 0; t < g->tensors; t++) {
        const int node = g->tensor[t].producer;
        if (!read[t] || g->tensor[t].role != KOLO_ROLE_ACTIVATION || node < 0 || g->node[node].backward)
            continue;
        const double bytes = (double)p->layout[t].bytes;
        const bool keeps = !kolo_plan_returns(p, t);
        c->activations++, c->bytes += bytes;
        if (keeps) c->kept++, c->kept_bytes += bytes;
    }
    free(read);
    return 0;
}
