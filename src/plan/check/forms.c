/* Forms: what activations wait as between the halves of a step. */
#include "plan/check/check.h"

#include "kolo/error.h"

/* What stands at a binding: values of action `a`'s tensor, or what they are kept as. */
static region *find_formed(check *c, const kolo_action *a, int k, bool formed)
{
    const kolo_binding *b = &c->plan->binding[a->binding + k];
    for (int64_t i = 0; i < c->regions; i++) {
        region *r = &c->region[i];
        if (r->tensor == a->tensor && r->slot == a->slot && (r->form != KOLO_FORM_KEPT) == formed &&
            r->arena == b->arena && r->offset == b->offset)
            return r;
    }
    return NULL;
}

/* A copy of values to what they are kept as, or back: begun, and with `done` finished too. */
static int begin_form(check *c, const kolo_action *a, enum kolo_form_kind form, bool done)
{
    const bool back = kolo_action_restores(a->kind);
    const kolo_binding *b = &c->plan->binding[a->binding];
    const size_t own = c->plan->layout[a->tensor].bytes;
    const size_t formed =
        kolo_form_is_encoded(form)
            ? kolo_form_bytes(form, own / kolo_dtype_size(c->graph->tensor[a->tensor].dtype))
            : own;
    const region *from = find_formed(c, a, 0, back);
    if (!from || from->incoming || (back && from->form != form))
        return check_breach(c, "changes the form of what does not stand there", a->tensor, a->slot);
    if (!back && (from->again || from->only_signs))
        return check_breach(c, "keeps what came back before", a->tensor, a->slot);
    KOLO_TRY(check_write_bytes(c, &b[1], a->tensor, a->slot, back ? own : formed));
    region *to = &c->region[c->regions - 1], *source = find_formed(c, a, 0, back);
    if (!source) return check_breach(c, "writes over what it reads", a->tensor, a->slot);
    to->form = back ? KOLO_FORM_KEPT : form;
    to->again = back;
    to->only_signs = back && form == KOLO_FORM_SIGNS;
    to->incoming = !done;
    source->outgoing += !done;
    return 0;
}

static int end_form(check *c, const kolo_action *a)
{
    const bool back = kolo_action_restores(a->kind);
    region *from = find_formed(c, a, 0, back), *to = find_formed(c, a, 1, !back);
    if (!from || !to || !from->outgoing || !to->incoming)
        return check_breach(c, "waits for a copy that is not under way", a->tensor, a->slot);
    from->outgoing--;
    to->incoming = false;
    return 0;
}

int check_on_form(check *c, const kolo_action *a)
{
    if (a->tensor < 0 || a->tensor >= c->graph->tensors || a->slot < 0 || a->slot >= c->plan->config.slots)
        return check_breach(c, "no such tensor or micro-batch", -1, 0);
    const enum kolo_form_kind form = kolo_plan_form(c->plan, a->tensor);
    const bool encodes = a->kind == KOLO_ACTION_ENCODE || a->kind == KOLO_ACTION_DECODE;
    const bool offloaded =
        c->plan->binding[a->binding + !kolo_action_restores(a->kind)].arena == KOLO_ARENA_OFFLOADED;
    if (encodes ? !kolo_form_takes(form, c->graph->tensor[a->tensor].dtype) : form != KOLO_FORM_OFFLOADED)
        return check_breach(c, "has not this form", a->tensor, a->slot);
    if (offloaded == encodes) return check_breach(c, "has another place than its form", a->tensor, a->slot);
    if (a->kind == KOLO_ACTION_STORED || a->kind == KOLO_ACTION_RETRIEVED) return end_form(c, a);
    return begin_form(c, a, form, encodes);
}
