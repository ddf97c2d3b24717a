/* The coordinator's agreements. */
#include "comm/library/negotiate.h"

#include <string.h>

#include "base/log.h"
#include "kolo/error.h"

/* One item for all slots of the list, or for the first thing of it. */
static int put_run(lib_core *core, const lib_ready *ready, bool all)
{
    memset(core->going, 0, (size_t)core->words * sizeof *core->going);
    for (const lib_ready *r = ready; r; r = all ? r->next : NULL)
        if (r->slot >= 0) lib_bit_set(core->going, r->slot);
    return lib_write_slots(core, &core->down, LIB_RUN, core->c.members);
}

/* The end of what has the slot. */
static int put_drop(lib_core *core, lib_slot *old)
{
    if (!core->root->evicted)
        kolo_log(KOLO_LOG_INFO,
                 "comm: group %d knows more than %ld names, or %d MiB of them; the longest unused are "
                 "forgotten; KOLO_COMM_CACHE "
                 "allows more",
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
    for (int64_t i = 0; i < wants->wants; i++) worth &= !lib_has_rows(wants->want[i].r.what);
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

static int put_rows(lib_core *core, const lib_ready *ready)
{
    lib_bytes *down = &core->down;
    int64_t at = down->size, n = core->c.members;
    KOLO_TRY(lib_put_number(down, 0));
    for (int64_t i = 0; i < ready->any->wants.wants; i++) {
        const kolo_request *r = &ready->any->wants.want[i].r;
        for (int64_t m = 0; m < n && lib_has_rows(r->what) && r->what != KOLO_SCATTER; m++) {
            const kolo_request *brought = &ready->by[m]->wants.want[i].r;
            if (r->what == KOLO_ALLTOALL) KOLO_TRY(lib_put(down, brought->splits, (size_t)n * 8));
            else KOLO_TRY(lib_put_number(down, brought->dims ? brought->dim[0] : 1));
        }
        if (r->what != KOLO_SCATTER) continue;
        KOLO_TRY(lib_put(down, ready->by[r->root]->wants.want[i].r.splits, (size_t)n * 8));
        for (int64_t m = 0; m < n; m++) KOLO_TRY(lib_put_number(down, ready->by[m]->wants.want[i].r.rows));
    }
    int64_t numbers = (down->size - at) / 8 - 1;
    memcpy(down->data + at, &numbers, sizeof numbers);
    return 0;
}

static int put_new(lib_core *core, const lib_ready *ready)
{
    const lib_descriptors *wants = &ready->any->wants;
    int64_t slot;
    KOLO_TRY(put_slot(core, wants, &slot));
    KOLO_TRY(LIB_PUT(&core->down, LIB_NEW, slot, ready->contributors, wants->bytes.size));
    KOLO_TRY(lib_put(&core->down, wants->bytes.data, (size_t)wants->bytes.size));
    return put_rows(core, ready);
}

static void ready_free(lib_core *core, lib_ready *ready)
{
    for (int m = 0; ready->any && m < core->c.members; m++)
        if (ready->by[m]) lib_root_claim_free(core->root, ready->by[m]);
    ready->any = NULL;
    ready->next = core->root->spare_ready;
    core->root->spare_ready = ready;
}

static int put_ready(lib_core *core, lib_ready *list)
{
    KOLO_TRY(put_run(core, list, true));
    for (const lib_ready *r = list; r; r = r->next)
        if (r->slot < 0) KOLO_TRY(put_new(core, r));
    return 0;
}

/* Only what the coordinator submitted first, as far as all are ready; what it has not submitted (it has
 * joined) is not held back. */
static int put_ready_fixed(lib_core *core)
{
    lib_root *root = core->root;
    lib_ready *wait = NULL, **wait_end = &wait, *go = NULL, **go_end = &go;
    for (lib_bundle *unit = core->first; unit && unit->ready; unit = unit->after) unit->ready->goes = true;
    for (lib_bundle *unit = core->first; unit; unit = unit->after)
        if (unit->ready) unit->ready->held = true;
    for (lib_ready *r = root->ready, *next; r; r = next) {
        next = r->next;
        r->next = NULL;
        lib_ready ***end = r->held && !r->goes ? &wait_end : &go_end;
        if (r->held && r->goes) continue; /* below, in its order */
        **end = r;
        *end = &r->next;
    }
    for (lib_bundle *unit = core->first; unit && unit->ready; unit = unit->after) {
        *go_end = unit->ready;
        go_end = &unit->ready->next;
        unit->ready = NULL;
    }
    root->ready = wait;
    root->ready_end = wait ? wait_end : &root->ready;
    int rc = 0;
    for (lib_ready *r = go, *next; r; r = next) {
        next = r->next;
        if (rc == 0) rc = r->slot >= 0 ? put_run(core, r, false) : put_new(core, r);
        ready_free(core, r);
    }
    return rc;
}

static bool can_begin(const lib_core *core)
{
    const lib_root *root = core->root;
    if (!root->ready || core->now < root->ready_since + root->cycle) return false;
    if (!core->c.fixed_order || core->joined) return true;
    return core->first && core->first->ready;
}

static int put_begins(lib_core *core)
{
    lib_root *root = core->root;
    memset(root->taken, 0, (size_t)core->words * 8);
    root->room = LIB_REMEMBERED - core->remembered;
    if (core->c.fixed_order) return put_ready_fixed(core);
    lib_ready *list = root->ready;
    root->ready = NULL;
    root->ready_end = &root->ready;
    int rc = put_ready(core, list);
    for (lib_ready *next; list; list = next) {
        next = list->next;
        ready_free(core, list);
    }
    return rc;
}

static int put_number_item(lib_core *core, enum lib_item kind, int64_t number)
{
    return LIB_PUT(&core->down, (int64_t)kind, number);
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
    bool ask = root->ask && !root->asked_at;
    bool joined = root->joins == core->c.members && (begin || !root->ready);
    bool bye = root->all_closing && !root->ready && !core->closed;
    if (!begin && !ask && !joined && !bye && !root->urgent.size) return 0;
    core->down.size = 0;
    KOLO_TRY(LIB_PUT(&core->down, (int64_t)core->seen + 1, (int64_t)root->fusion_bytes));
    KOLO_TRY(lib_put(&core->down, root->urgent.data, (size_t)root->urgent.size));
    root->urgent.size = 0;
    if (begin) KOLO_TRY(put_begins(core));
    if (joined && !root->ready) KOLO_TRY(put_number_item(core, LIB_JOINED, root->last_joined));
    if (ask) {
        root->ask = false;
        root->answers = core->c.members;
        root->asked = core->now;
        root->asked_at = core->seen + 1;
        for (int m = 0; m < core->c.members; m++) root->answer[m].size = 0;
        KOLO_TRY(put_number_item(core, LIB_ASK, (int64_t)++root->question));
    }
    if (bye) KOLO_TRY(lib_put_number(&core->down, LIB_BYE));
    KOLO_TRY(lib_core_apply(core, core->down.data, core->down.size));
    if (core->c.autotune && !root->tune.settled) tune(core);
    return 0;
}
