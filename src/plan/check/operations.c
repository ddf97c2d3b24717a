/* What operations read and write, and what is made of values in the list itself: sums over ranks, copies. */
#include "plan/check/check.h"

#include "kolo/error.h"

int check_on_load(check *c, const kolo_action *a)
{
    const kolo_binding *b = check_bindings(c, a);
    int loaded[KOLO_MAX_LOADED];
    const int n = kolo_plan_loaded(c->plan, loaded);
    for (int i = 0; i < n; i++) KOLO_TRY(check_write(c, &b[i], loaded[i], (int)c->micro, false));
    return 0;
}

/* Statistics begin to count; metrics, summed, are put aside to be sent. */
int check_on_copy(check *c, const kolo_action *a)
{
    if (!c->plan->ring || a->tensor < 0 || a->tensor >= c->graph->tensors)
        return check_breach(c, "copies nothing of this plan", -1, 0);
    const enum kolo_role role = c->graph->tensor[a->tensor].role;
    const kolo_binding *b = check_bindings(c, a), *fixed = &c->plan->fixed[a->tensor];
    if (role == KOLO_ROLE_STATISTIC) {
        KOLO_TRY(check_read(c, &b[0], a->tensor, (int)c->micro));
        return check_write_reduced(c, &b[1], a->tensor, a->slot);
    }
    if (role != KOLO_ROLE_METRIC || b[0].arena != fixed->arena || b[0].offset != fixed->offset)
        return check_breach(c, "copies what is neither a statistic nor summed", a->tensor, a->slot);
    bool elsewhere;
    if (check_find(c, &b[1], a->tensor, (int)c->micro, &elsewhere))
        return check_breach(c, "is done twice", a->tensor, a->slot);
    if (!check_ready(c, kolo_plan_bucket_of(c->plan, fixed->offset)))
        return check_breach(c, "copies sums that are not complete", a->tensor, a->slot);
    return check_write(c, &b[1], a->tensor, (int)c->micro, false);
}

/* Inputs and outputs of one operation must not meet, but for out[0] on the input that it may overwrite; of a
 * sum that is any of its terms. */
static int meet(check *c, const kolo_node *n, const kolo_binding *b, int slot)
{
    const int may = kolo_op_table[n->op].overwrite, all = n->n_in + n->n_out;
    const bool any = n->op == KOLO_OP_total;
    for (int o = n->n_in; o < all; o++) {
        int out = n->out[o - n->n_in];
        if (out < 0) continue;
        for (int i = 0; i < all; i++) {
            int other = i < n->n_in ? n->in[i] : n->out[i - n->n_in];
            if (i == o || other < 0 || b[i].arena != b[o].arena) continue;
            if (!check_overlap(b[i].offset, c->plan->layout[other].bytes, b[o].offset,
                               c->plan->layout[out].bytes))
                continue;
            if (o == n->n_in && (i == may || (any && i < n->n_in)) && b[i].offset == b[o].offset &&
                c->plan->layout[other].bytes == c->plan->layout[out].bytes)
                continue;
            return check_breach(c, "writes over its own operand", out, slot);
        }
    }
    return 0;
}

/* A second time only what is of the forward half, after the first, and what it would count twice (statistics,
 * metrics, gradients) goes where nobody counts it: among the activations. */
static int check_again(check *c, const kolo_action *a)
{
    char *ran = &c->ran[c->micro * c->graph->nodes + a->node];
    if (!a->again && *ran) return check_breach(c, "is done twice", -1, 0);
    if (a->again && c->graph->node[a->node].backward)
        return check_breach(c, "is of the backward half, which nothing does again", -1, 0);
    if (a->again && !*ran) return check_breach(c, "is done again before it was done", -1, 0);
    *ran = 1;
    return 0;
}

static int write_output(check *c, const kolo_action *a, const kolo_binding *b, int tensor)
{
    const enum kolo_role role = c->graph->tensor[tensor].role;
    const bool waits =
        kolo_plan_ahead(c->plan) > 0 && role == KOLO_ROLE_STATISTIC && !c->graph->node[a->node].backward;
    if (c->plan->sum[tensor] >= 0) return check_write_term(c, b, tensor, c->plan->sum[tensor], a->slot);
    if (kolo_plan_placed(role) || waits || (a->again && kolo_plan_is_reduced(role)))
        return check_write(c, b, tensor, (int)c->micro, a->again);
    if (kolo_plan_is_reduced(role)) return check_write_reduced(c, b, tensor, a->slot);
    return check_breach(c, "writes a tensor that operations must not write", tensor, a->slot);
}

/* Signs serve who asks for nothing else; what came back rounded is read by all of the backward half, and by
 * nobody before. */
static int read_operand(check *c, const kolo_action *a, int k, const kolo_binding *b)
{
    const kolo_node *n = &c->graph->node[a->node];
    const int tensor = n->in[k], slot = kolo_plan_slot(c->plan, tensor, (int)c->micro);
    bool elsewhere;
    KOLO_TRY(check_read(c, b, tensor, slot));
    const region *r = check_find(c, b, tensor, slot, &elsewhere);
    if (r->only_signs && !kolo_op_reads_sign(n->op, k))
        return check_breach(c, "reads numbers where nothing but signs was kept", tensor, a->slot);
    if (!kolo_form_is_exact(kolo_plan_form(c->plan, tensor)) && r->again != (a->again || n->backward))
        return check_breach(c, "reads other numbers than its half of the step", tensor, a->slot);
    return 0;
}

int check_on_run(check *c, const kolo_action *a)
{
    if (a->node < 0 || a->node >= c->graph->nodes || !kolo_plan_has_node(c->plan, a->node) || a->slot < 0 ||
        a->slot >= c->plan->config.slots)
        return check_breach(c, "no such operation or micro-batch", -1, 0);
    const kolo_node *n = &c->graph->node[a->node];
    const kolo_binding *b = check_bindings(c, a);
    KOLO_TRY(check_again(c, a));
    for (int k = 0; k < n->n_in; k++) {
        if (n->in[k] < 0) continue;
        const int read = kolo_plan_read(c->plan, n->in[k]);
        if (read != n->in[k]) KOLO_TRY(check_read_binding(c, &b[k], read, a->slot));
        else if (kolo_plan_placed(c->graph->tensor[n->in[k]].role)) KOLO_TRY(read_operand(c, a, k, &b[k]));
        else if (c->plan->ring && c->graph->tensor[n->in[k]].role == KOLO_ROLE_PARAM)
            KOLO_TRY(check_read_version(c, n, &b[k], n->in[k]));
        else KOLO_TRY(check_read_binding(c, &b[k], n->in[k], a->slot));
    }
    KOLO_TRY(meet(c, n, b, a->slot));
    for (int k = 0; k < n->n_out; k++)
        if (n->out[k] >= 0) KOLO_TRY(write_output(c, a, &b[n->n_in + k], n->out[k]));
    return 0;
}

int check_on_sum(check *c, const kolo_action *a)
{
    const kolo_binding *b = check_bindings(c, a);
    for (int64_t i = 0; i < c->regions; i++) {
        region *r = &c->region[i];
        if (b->arena != r->arena || r->offset != b->offset || r->slot != c->micro || r->form) continue;
        if (c->graph->tensor[r->tensor].role != KOLO_ROLE_PARTIAL)
            return check_breach(c, "sums what is no partial sum", r->tensor, a->slot);
        if (r->summed || r->again || !check_must_sum(c))
            return check_breach(c, "sums twice, or where nothing is to be summed", r->tensor, a->slot);
        r->summed = true;
        return 0;
    }
    return check_breach(c, "sums what was never written", -1, 0);
}
