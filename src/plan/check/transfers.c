/* Transfers between stages: a place is taken from when one starts until it is waited for. */
#include "plan/check/check.h"

#include "kolo/error.h"

int check_on_transfer(check *c, const kolo_action *a)
{
    if (a->transfer < 0 || a->transfer >= c->plan->transfers)
        return check_breach(c, "no such transfer", -1, 0);
    const kolo_plan *p = c->plan;
    const kolo_transfer *t = &p->transfer[a->transfer];
    const kolo_binding *b = check_bindings(c, a);
    const kolo_binding *fixed = &p->fixed[t->tensor];
    const bool at_fixed = t->sends && fixed->arena >= 0 && !p->ring; /* metrics */
    const size_t turn =
                     (size_t)kolo_ring_place(&t->ring, c->batch, p->config.slots, t->slot) * t->ring.stride,
                 place = at_fixed ? fixed->offset : t->offset - kolo_plan_transfer_base(p) + turn;
    char *state = &c->transfer[a->transfer * c->steps + c->batch];
    const char before = a->kind == KOLO_ACTION_TRANSFERRED ? STARTED : UNTOUCHED;
    const int slot = (int)c->micro;
    if (*state != before)
        return check_breach(c, "starts or waits for a transfer out of turn", t->tensor, t->slot);
    if (b->arena != (at_fixed ? fixed->arena : KOLO_ARENA_TRANSFER) || b->offset != place ||
        (at_fixed && t->offset != place) || a->slot != t->slot)
        return check_breach(c, "has another place than its transfer", t->tensor, t->slot);
    (*state)++;
    if (at_fixed) /* summed, and at rest from here on */
        return check_ready(c, kolo_plan_bucket_of(p, place))
                   ? 0
                   : check_breach(c, "sends sums that are not complete", t->tensor, t->slot);
    if (a->kind == KOLO_ACTION_RECEIVE) KOLO_TRY(check_write(c, b, t->tensor, slot, false));
    if (a->kind == KOLO_ACTION_SEND) KOLO_TRY(check_read(c, b, t->tensor, slot));
    bool elsewhere;
    region *r = check_find(c, b, t->tensor, slot, &elsewhere);
    if (!r) return check_breach(c, "waits for what was overwritten", t->tensor, t->slot);
    if (t->sends) r->outgoing += a->kind == KOLO_ACTION_SEND ? 1 : -1;
    else {
        r->incoming = a->kind == KOLO_ACTION_RECEIVE;
        r->summed = !r->incoming; /* who sends a partial sum has summed it over ranks */
    }
    return 0;
}
