/* The coordinator's agreements. */
#include "comm/library/negotiate.h"

#include <string.h>

#include "base/log.h"
#include "kolo/error.h"

/* One item for all slots that are set in core->going. */
static int put_run(lib_core *core)
{
    for (int64_t w = 0; w < core->words; w++) {
        core->root->slots[w] &= ~core->going[w];
        core->root->readies -= __builtin_popcountll(core->going[w]);
    }
    return lib_write_slots(core, &core->down, LIB_RUN, core->c.members);
}

/* The end of what has the slot. */
static int put_drop(lib_core *core, lib_slot *old)
{
    if (!core->root->evicted)
        kolo_log(KOLO_LOG_INFO,
                 "comm: group %d knows more than %ld names, or %d MiB of them; the longest unused are "
                 "forgotten; KOLO_COMM_CACHE allows more",
                 core->c.group, (long)core->c.capacity, LIB_REMEMBERED >> 20);
    core->root->evicted = old->doomed = true;
    core->root->room += old->wants.bytes.size;
    lib_bit_set(core->root->taken, old->number);
    return LIB_PUT(&core->down, LIB_DROP, old->number);
}

/* The slot that the name gets, after the end of those for whom there is no room then; *number = -1: none. */
static int put_slot(lib_core *core, const lib_descriptors *wants, int64_t *number)
{
    lib_root *root = core->root;
    int64_t bytes = wants->bytes.size, last = -1;
    bool worth = core->c.capacity > 0 && bytes <= LIB_REMEMBERED / 4;
    *number = -1;
    for (int64_t i = 0; i < wants->wants; i++) worth &= !lib_row_numbers(wants->want[i]->r.what, 1);
    while (worth && root->room < bytes && (last = lib_slot_choose(core, root->taken, false)) >= 0)
        KOLO_TRY(put_drop(core, core->slot[last]));
    if (!worth || root->room < bytes) return 0;
    *number = last >= 0 ? last : lib_slot_choose(core, root->taken, true);
    if (*number < 0) return 0;
    if (last < 0 && core->slot[*number] && core->slot[*number]->used)
        KOLO_TRY(put_drop(core, core->slot[*number]));
    lib_bit_set(root->taken, *number);
    root->room -= bytes;
    return 0;
}

static int put_rows(lib_core *core, const lib_name *ready)
{
    lib_bytes *down = &core->down;
    for (int64_t i = 0; i < ready->any->wants.wants; i++) {
        const int64_t numbers = lib_row_numbers(ready->any->wants.want[i]->r.what, core->c.members),
                      at = down->size;
        KOLO_TRY(lib_put(down, NULL, (size_t)numbers * sizeof numbers));
        int64_t *row = (int64_t *)(void *)(down->data + at);
        for (int m = 0; numbers && m < core->c.members; m++) {
            const lib_want *brought = ready->by[m]->wants.want[i];
            for (int64_t k = 0; k < brought->rows; k++) row[brought->first + k] += brought->row[k];
        }
    }
    return 0;
}

static int put_new(lib_core *core, const lib_name *ready)
{
    const lib_descriptors *wants = &ready->any->wants;
    int64_t slot;
    KOLO_TRY(put_slot(core, wants, &slot));
    KOLO_TRY(LIB_PUT(&core->down, LIB_NEW, slot, ready->claimed, wants->bytes.size));
    KOLO_TRY(lib_put(&core->down, wants->bytes.data, (size_t)wants->bytes.size));
    return put_rows(core, ready);
}

static int put_claimed(lib_core *core, lib_name **at)
{
    lib_name *name = *at;
    KOLO_TRY(put_new(core, name));
    for (int m = 0; m < core->c.members; m++)
        if (name->by[m]) lib_root_claim_free(core->root, name->by[m]);
    *at = name->next;
    if (!*at) core->root->ready_end = at;
    core->root->readies--;
    lib_root_name_over(core, name);
    return 0;
}

static bool is_ready(const lib_core *core, const lib_bundle *unit)
{
    return unit->ready || (unit->slot >= 0 && lib_bit(core->root->slots, unit->slot));
}

/* What the coordinator submitted first, as far as all are ready. */
static int put_in_order(lib_core *core)
{
    for (lib_bundle *unit = core->first; unit && is_ready(core, unit); unit = unit->after) {
        lib_name **at = &core->root->ready;
        while (unit->ready && *at != unit->ready) at = &(*at)->next;
        memset(core->going, 0, (size_t)core->words * sizeof *core->going);
        if (unit->ready) KOLO_TRY(put_claimed(core, at));
        else lib_bit_set(core->going, unit->slot);
        KOLO_TRY(put_run(core));
    }
    return 0;
}

static bool can_begin(const lib_core *core)
{
    const lib_root *root = core->root;
    if (!root->readies || core->now < root->ready_since + root->cycle) return false;
    return !core->c.fixed_order || core->joined || (core->first && is_ready(core, core->first));
}

/* In a fixed order the rest of what the coordinator submitted is held back; what it has not (it has joined)
 * is not. */
static int put_begins(lib_core *core)
{
    lib_root *root = core->root;
    const bool fixed = core->c.fixed_order;
    memset(root->taken, 0, (size_t)core->words * 8);
    root->room = LIB_REMEMBERED - core->remembered;
    if (fixed) KOLO_TRY(put_in_order(core));
    memcpy(core->going, root->slots, (size_t)core->words * sizeof *core->going);
    for (const lib_bundle *unit = core->first; fixed && unit; unit = unit->after)
        if (unit->slot >= 0) lib_bit_clear(core->going, unit->slot);
    KOLO_TRY(put_run(core));
    for (lib_name **at = &root->ready; *at;)
        if (fixed && (*at)->by[core->c.me]) at = &(*at)->next;
        else KOLO_TRY(put_claimed(core, at));
    return 0;
}

static void tune(lib_core *core)
{
    lib_root *root = core->root;
    int64_t bytes = 0;
    if (!core->begins) return;
    for (int64_t i = 0; i < core->begins; i++) bytes += core->begin[i].bytes;
    lib_slot *slot = root->step_slot < 0 ? NULL : core->slot[root->step_slot];
    if (!slot || !slot->used) {
        root->step_slot = -1;
        for (int64_t i = 0; i < core->c.capacity && root->step_slot < 0; i++)
            if (core->slot[i] && core->slot[i]->used && core->slot[i]->begun == core->seen)
                root->step_slot = i;
    }
    bool step = slot && slot->used && slot->begun == core->seen;
    if (!lib_tune_note(&root->tune, bytes, step, core->now)) return;
    root->fusion_bytes = lib_tune_fusion(&root->tune);
    root->cycle = lib_tune_cycle(&root->tune);
    if (root->tune.settled)
        kolo_log(
            KOLO_LOG_INFO,
            "comm: group %d settled on KOLO_COMM_FUSION=%zu KOLO_COMM_CYCLE=%g: steps of %.3g s, %.3g GB/s",
            core->c.group, root->fusion_bytes, root->cycle, root->tune.best_step,
            root->tune.best_score * 1e-9);
}

int lib_root_send(lib_core *core, bool idle)
{
    lib_root *root = core->root;
    KOLO_TRY(lib_stall_report(core));
    bool begin = idle && can_begin(core);
    bool ask = root->ask && !root->asking;
    bool joined = root->joins == core->c.members && (begin || !root->readies);
    bool bye = root->all_closing && !root->readies && !core->closed;
    if (!begin && !ask && !joined && !bye && !root->urgent.size) return 0;
    core->down.size = 0;
    KOLO_TRY(LIB_PUT(&core->down, (int64_t)core->seen + 1, (int64_t)root->fusion_bytes));
    KOLO_TRY(lib_put(&core->down, root->urgent.data, (size_t)root->urgent.size));
    root->urgent.size = 0;
    if (begin) KOLO_TRY(put_begins(core));
    if (joined && !root->readies) KOLO_TRY(LIB_PUT(&core->down, LIB_JOINED, root->last_joined));
    if (ask) {
        root->ask = false;
        root->asking = true;
        root->answers = core->c.members;
        root->asked = core->now;
        for (int m = 0; m < core->c.members; m++) root->answer[m].size = 0;
        KOLO_TRY(LIB_PUT(&core->down, LIB_ASK, (int64_t)++root->question));
    }
    if (bye) KOLO_TRY(lib_put_number(&core->down, LIB_BYE));
    KOLO_TRY(lib_core_apply(core, core->down.data, core->down.size));
    if (core->c.autotune && !root->tune.settled) tune(core);
    return 0;
}
