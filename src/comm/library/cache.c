#include "comm/library/negotiate.h"

#include "base/memory.h"
#include "kolo/error.h"

int lib_slot_give(lib_core *core, int64_t number, const lib_descriptors *wants, uint64_t agreement)
{
    if (number >= core->c.capacity || (core->slot[number] && core->slot[number]->used))
        return kolo_fail(
            KOLO_EINTERNAL,
            "comm: slot %ld of group %d was given twice; are KOLO_COMM_CACHE and the program the "
            "same on all ranks?",
            (long)number, core->c.group);
    if (!core->slot[number]) {
        core->slot[number] = kolo_alloc(sizeof(lib_slot));
        if (!core->slot[number]) return KOLO_ENOMEM;
    }
    lib_slot *slot = core->slot[number];
    slot->number = number;
    slot->changed = slot->begun = agreement;
    slot->doomed = false;
    slot->mine = NULL;
    slot->contributors = 0;
    KOLO_TRY(lib_read_wants(&slot->wants, wants->bytes.data, (size_t)wants->bytes.size));
    KOLO_TRY(lib_map_add(&core->known, &slot->link, slot->wants.key.data, (size_t)slot->wants.key.size));
    slot->used = true;
    core->bundles += slot->wants.wants > 1;
    core->remembered += slot->wants.bytes.size;
    return 0;
}

void lib_slot_take(lib_core *core, int64_t number, uint64_t agreement)
{
    lib_slot *slot = core->slot[number];
    if (!slot || !slot->used) return;
    lib_map_remove(&core->known, &slot->link);
    core->bundles -= slot->wants.wants > 1;
    core->remembered -= slot->wants.bytes.size;
    if (slot->wants.bytes.size > LIB_REMEMBERED / core->c.capacity) lib_descriptors_free(&slot->wants);
    slot->used = slot->doomed = false;
    slot->changed = agreement;
    slot->contributors = 0;
    for (int e = 0; e <= core->children; e++) lib_bit_clear(core->edge[e].reported, number);
    lib_bit_clear(core->passed, number);
}

int64_t lib_slot_choose(const lib_core *core, const uint64_t *taken, bool free)
{
    int64_t best = -1;
    bool best_reported = false;
    for (int64_t i = 0; i < core->c.capacity; i++) {
        const lib_slot *slot = core->slot[i];
        if (lib_bit(taken, i)) continue;
        if (free && (!slot || !slot->used)) return i;
        if (!slot || !slot->used || slot->doomed || lib_bit(core->passed, i)) continue;
        bool reported = false; /* somebody would have to say it anew */
        for (int e = 0; e <= core->children; e++) reported |= lib_bit(core->edge[e].reported, i);
        if (best >= 0 && (reported > best_reported ||
                          (reported == best_reported && slot->begun >= core->slot[best]->begun)))
            continue;
        best = i;
        best_reported = reported;
    }
    return best;
}
