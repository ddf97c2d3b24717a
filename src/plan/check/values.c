/* Activations: a value is there as long as nobody else wrote to its bytes. What runs twice makes the same
 * bits twice, perhaps elsewhere: a reader may name either place. */
#include "plan/check/check.h"

#include "base/memory.h"
#include "kolo/error.h"

bool check_overlap(size_t a, size_t a_bytes, size_t b, size_t b_bytes)
{
    return a < b + b_bytes && b < a + a_bytes;
}

bool check_must_sum(const check *c)
{
    return c->graph->train && c->plan->config.bn == KOLO_bn_sync && c->plan->config.ranks > 1;
}

/* What stands at a place; else, if the tensor stands anywhere, *elsewhere. */
region *check_find(check *c, const kolo_binding *b, int tensor, int slot, bool *elsewhere)
{
    *elsewhere = false;
    for (int64_t i = 0; i < c->regions; i++) {
        region *r = &c->region[i];
        if (r->tensor != tensor || r->slot != slot || r->form) continue;
        if (r->arena == b->arena && r->offset == b->offset) return r;
        *elsewhere = true;
    }
    return NULL;
}

int check_forget(check *c, const kolo_binding *b, int tensor, int slot, size_t bytes)
{
    int64_t left = 0;
    for (int64_t i = 0; i < c->regions; i++) {
        const region *r = &c->region[i];
        if (r->arena == b->arena && check_overlap(r->offset, r->bytes, b->offset, bytes)) {
            if (r->incoming || r->outgoing)
                return check_breach(c, "writes into a transfer that is under way", tensor, slot);
            continue;
        }
        c->region[left++] = c->region[i];
    }
    c->regions = left;
    return 0;
}

int check_place(check *c, const kolo_binding *b, int tensor, int slot, size_t bytes)
{
    KOLO_TRY(check_forget(c, b, tensor, slot, bytes));
    KOLO_TRY(kolo_grow(&c->region, &c->capacity, c->regions, sizeof *c->region));
    c->region[c->regions++] =
        (region){.arena = b->arena, .offset = b->offset, .bytes = bytes, .tensor = tensor, .slot = slot};
    return 0;
}

int check_write_bytes(check *c, const kolo_binding *b, int tensor, int slot, size_t bytes)
{
    const bool may = b->arena == KOLO_ARENA_ACTIVATION || b->arena == KOLO_ARENA_TRANSFER ||
                     b->arena == KOLO_ARENA_OFFLOADED;
    if (!may || b->offset % KOLO_ALIGN || b->offset + bytes > c->plan->arena_bytes[b->arena])
        return check_breach(c, "writes outside the arena of activations or unaligned", tensor, slot);
    return check_place(c, b, tensor, slot, bytes);
}

int check_write(check *c, const kolo_binding *b, int tensor, int slot, bool again)
{
    if (b->arena == KOLO_ARENA_OFFLOADED)
        return check_breach(c, "computes where activations are offloaded to", tensor, slot);
    KOLO_TRY(check_write_bytes(c, b, tensor, slot, c->plan->layout[tensor].bytes));
    c->region[c->regions - 1].again = again;
    return 0;
}

int check_read(check *c, const kolo_binding *b, int tensor, int slot)
{
    bool elsewhere;
    const region *r = check_find(c, b, tensor, slot, &elsewhere);
    if (!r)
        return check_breach(c,
                            elsewhere ? "reads from a place where it does not stand"
                                      : "reads what was never written or was overwritten",
                            tensor, slot);
    if (r->incoming) return check_breach(c, "reads what has not arrived", tensor, slot);
    if (c->graph->tensor[tensor].role == KOLO_ROLE_PARTIAL && check_must_sum(c) && !r->summed)
        return check_breach(c, "reads this rank's part before it is summed over ranks", tensor, slot);
    return 0;
}
