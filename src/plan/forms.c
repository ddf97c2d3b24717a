/* Forms that activations have between the two halves: encoded behind the last reader of the forward half and
 * decoded in front of the first of the backward half; or offloaded and retrieved, beside other work.
 *
 * Of what is offloaded two copies are under way at most each way. A copy is waited for when the next but one
 * begins, or when the backward half does, and retrieved when the second before it is needed. Each micro-batch
 * by itself, so that all do the same. */
#include <stdlib.h>

#include "base/memory.h"
#include "kolo/error.h"
#include "plan/parts.h"

enum { UNDER_WAY = 2 };
/* The order in front of one action: copies are waited for before others begin, where they have begun. */
enum { WAIT_STORE, START_STORE, WAIT_STORE_AT_ONCE, RETRIEVE_AT_ONCE, WAIT_RETRIEVE, RETRIEVE_AHEAD };

typedef struct insertion {
    int64_t at; /* the action in front of which it stands */
    int order;  /* among those there */
    enum kolo_action_kind kind;
    int tensor, slot;
} insertion;

/* A tensor of one micro-batch that changes its form. */
typedef struct formed {
    int tensor;
    int64_t after, before;    /* the action that reads it last, and the one that reads it first again */
    int64_t stored, retrieve; /* offloaded: in front of which actions these stand */
} formed;

typedef struct forming {
    kolo_plan *plan;
    int64_t *last, *first; /* [tensors] of the slot, -1: none */
    int64_t back;          /* where the slot's backward half begins, -1 */
    insertion *list;
    int64_t n, capacity;
    formed *offloaded;
    int64_t offloads, offloaded_capacity;
} forming;

int64_t kolo_plan_form_count(const kolo_plan *plan, int tensor)
{
    return (int64_t)(plan->layout[tensor].bytes / kolo_dtype_size(plan->graph->tensor[tensor].dtype));
}

size_t kolo_plan_form_bytes(const kolo_plan *plan, int tensor)
{
    const enum kolo_form_kind form = kolo_plan_form(plan, tensor);
    if (!kolo_form_is_encoded(form)) return kolo_plan_tensor_bytes(plan, tensor);
    return kolo_round_up(kolo_form_bytes(form, (size_t)kolo_plan_form_count(plan, tensor)), KOLO_ALIGN);
}

/* ---- who reads what ---- */

static void see_run(forming *f, const kolo_action *a, int64_t at)
{
    const kolo_plan *p = f->plan;
    const kolo_node *n = &p->graph->node[a->node];
    const bool back = a->again || n->backward;
    if (back && f->back < 0) f->back = at;
    for (int k = 0; k < n->n_in; k++) {
        if (n->in[k] < 0) continue;
        if (!back) f->last[n->in[k]] = at;
        else if (f->first[n->in[k]] < 0) f->first[n->in[k]] = at;
    }
    for (int k = 0; k < n->n_out && !back; k++)
        if (n->out[k] >= 0) f->last[n->out[k]] = at;
}

static void see_slot(forming *f, int slot)
{
    const kolo_plan *p = f->plan;
    f->back = -1;
    for (int64_t t = 0; t < p->graph->tensors; t++) f->last[t] = f->first[t] = -1;
    for (int64_t i = 0; i < p->actions; i++) {
        const kolo_action *a = &p->action[i];
        if (a->slot != slot) continue;
        if (a->kind == KOLO_ACTION_RUN) see_run(f, a, i);
        if (a->kind != KOLO_ACTION_TRANSFERRED || p->transfer[a->transfer].sends) continue;
        f->last[p->transfer[a->transfer].tensor] = i; /* arrived */
    }
}

/* ---- what is put in ---- */

static int insert(forming *f, int64_t at, int order, enum kolo_action_kind kind, int tensor, int slot)
{
    KOLO_TRY(kolo_grow(&f->list, &f->capacity, f->n, sizeof *f->list));
    f->list[f->n++] = (insertion){at, order, kind, tensor, slot};
    return 0;
}

static int by_place(const void *a, const void *b)
{
    const insertion *x = a, *y = b;
    if (x->at != y->at) return x->at < y->at ? -1 : 1;
    if (x->order != y->order) return x->order - y->order;
    return x->tensor - y->tensor;
}

static int by_last(const void *a, const void *b)
{
    const formed *x = a, *y = b;
    return x->after != y->after ? (x->after < y->after ? -1 : 1) : x->tensor - y->tensor;
}

static int by_first(const void *a, const void *b)
{
    const formed *x = a, *y = b;
    return x->before != y->before ? (x->before < y->before ? -1 : 1) : x->tensor - y->tensor;
}

/* Those of a slot that are offloaded. */
static int insert_offloaded(forming *f, int slot)
{
    formed *all = f->offloaded;
    const int64_t n = f->offloads;
    if (n > 1) qsort(all, (size_t)n, sizeof *all, by_last);
    for (int64_t i = 0; i < n; i++)
        all[i].stored =
            i + UNDER_WAY < n && all[i + UNDER_WAY].after < f->back ? all[i + UNDER_WAY].after + 1 : f->back;
    if (n > 1) qsort(all, (size_t)n, sizeof *all, by_first);
    for (int64_t i = 0; i < n; i++) {
        const int64_t free = i < UNDER_WAY ? f->back : all[i - UNDER_WAY].before;
        all[i].retrieve = free > all[i].stored ? free : all[i].stored;
        if (all[i].retrieve > all[i].before) all[i].retrieve = all[i].before;
        KOLO_TRY(insert(f, all[i].after + 1, START_STORE, KOLO_ACTION_STORE, all[i].tensor, slot));
        KOLO_TRY(insert(f, all[i].stored, all[i].stored == all[i].after + 1 ? WAIT_STORE_AT_ONCE : WAIT_STORE,
                        KOLO_ACTION_STORED, all[i].tensor, slot));
        KOLO_TRY(insert(f, all[i].retrieve,
                        all[i].retrieve == all[i].before ? RETRIEVE_AT_ONCE : RETRIEVE_AHEAD,
                        KOLO_ACTION_RETRIEVE, all[i].tensor, slot));
        KOLO_TRY(insert(f, all[i].before, WAIT_RETRIEVE, KOLO_ACTION_RETRIEVED, all[i].tensor, slot));
    }
    return 0;
}

static int form_slot(forming *f, int slot)
{
    const kolo_plan *p = f->plan;
    see_slot(f, slot);
    f->offloads = 0;
    for (int t = 0; t < p->graph->tensors; t++) {
        const enum kolo_form_kind form = kolo_plan_form(p, t);
        const int64_t after = f->last[t], before = f->first[t];
        if (form <= KOLO_FORM_DROPPED || after < 0 || before < 0) continue;
        if (before <= after)
            return kolo_fail(KOLO_EINTERNAL, "plan: %s is read in the backward half before the forward half",
                             p->graph->tensor[t].name);
        if (form == KOLO_FORM_OFFLOADED) {
            KOLO_TRY(kolo_grow(&f->offloaded, &f->offloaded_capacity, f->offloads, sizeof *f->offloaded));
            f->offloaded[f->offloads++] = (formed){.tensor = t, .after = after, .before = before};
            continue;
        }
        KOLO_TRY(insert(f, after + 1, START_STORE, KOLO_ACTION_ENCODE, t, slot));
        KOLO_TRY(insert(f, before, WAIT_RETRIEVE, KOLO_ACTION_DECODE, t, slot));
    }
    return insert_offloaded(f, slot);
}

/* Its two bindings, which place.c completes. */
static int add_action(kolo_plan *plan, const insertion *one, kolo_action *action, int64_t *capacity)
{
    const bool offloaded = kolo_plan_form(plan, one->tensor) == KOLO_FORM_OFFLOADED;
    const bool back = kolo_action_restores(one->kind), crosses = plan->crosses[one->tensor];
    const kolo_binding form = {offloaded ? KOLO_ARENA_OFFLOADED : KOLO_ARENA_ACTIVATION, 0},
                       own = {!back && crosses ? KOLO_ARENA_TRANSFER : KOLO_ARENA_ACTIVATION, 0};
    KOLO_TRY(kolo_grow(&plan->binding, capacity, plan->bindings + 1, sizeof *plan->binding));
    *action = (kolo_action){.kind = one->kind,
                            .node = -1,
                            .slot = one->slot,
                            .bucket = -1,
                            .tensor = one->tensor,
                            .binding = plan->bindings};
    plan->binding[plan->bindings++] = back ? form : own;
    plan->binding[plan->bindings++] = back ? own : form;
    return 0;
}

static int merge(forming *f)
{
    kolo_plan *p = f->plan;
    int64_t n = 0, next = 0, capacity = p->bindings;
    kolo_action *action = kolo_alloc((size_t)(p->actions + f->n + 1) * sizeof *action);
    int rc = action ? 0 : KOLO_ENOMEM;
    if (f->n > 1) qsort(f->list, (size_t)f->n, sizeof *f->list, by_place);
    for (int64_t i = 0; rc == 0 && i < p->actions; i++) {
        for (; rc == 0 && next < f->n && f->list[next].at <= i; next++)
            rc = add_action(p, &f->list[next], &action[n++], &capacity);
        action[n++] = p->action[i];
    }
    if (rc < 0) {
        free(action);
        return rc;
    }
    free(p->action);
    p->action = action;
    p->actions = n;
    return 0;
}

int kolo_plan_add_forms(kolo_plan *plan)
{
    const size_t tensors = (size_t)plan->graph->tensors + 1;
    forming f = {.plan = plan};
    int rc = KOLO_ENOMEM;
    if (!plan->config.form || !plan->graph->train) return 0;
    f.last = kolo_alloc(tensors * sizeof *f.last);
    f.first = kolo_alloc(tensors * sizeof *f.first);
    if (f.last && f.first) rc = 0;
    for (int slot = 0; rc == 0 && slot < plan->config.slots; slot++) rc = form_slot(&f, slot);
    if (rc == 0 && f.n > 0) rc = merge(&f);
    free(f.last);
    free(f.first);
    free(f.list);
    free(f.offloaded);
    return rc;
}
