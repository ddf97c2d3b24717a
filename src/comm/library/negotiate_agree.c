/* An agreement: the same bytes on all members, applied in the same order, so all remember the same and
 * begin the same batches.
 *
 * [number, fusion bytes, items...]; the items: see the functions that read them. */
#include "comm/library/negotiate.h"

#include <string.h>

#include "base/memory.h"
#include "kolo/error.h"

static int64_t bytes_of(const kolo_request *r, const int64_t *rows, int members)
{
    int64_t count = 1, total = 0;
    for (int d = r->what == KOLO_ALLGATHER; d < r->dims; d++) count *= r->dim[d];
    if (r->what != KOLO_ALLGATHER) return count * (int64_t)kolo_dtype_size(r->type);
    for (int m = 0; m < members; m++) total += rows[m];
    return total * count * (int64_t)kolo_dtype_size(r->type);
}

/* unit NULL: this member has joined. rows: of all requests, one behind the other; -1: none. */
static int begin_unit(lib_core *core, const lib_descriptors *wants, lib_bundle *unit, int64_t contributors,
                      int64_t rows)
{
    if (!unit && !core->joined)
        return kolo_fail(KOLO_EINTERNAL,
                         "comm: the members of group %d agreed on \"%s\", which this rank has not submitted",
                         core->c.group, wants->want[0]->r.name);
    for (int64_t i = 0; i < wants->wants; i++) {
        KOLO_TRY(kolo_grow(&core->begin, &core->begins_capacity, core->begins, sizeof *core->begin));
        lib_begin *begin = &core->begin[core->begins++];
        *begin = (lib_begin){.r = unit ? &unit->entry[i]->r : &wants->want[i]->r,
                             .entry = unit ? unit->entry[i] : NULL,
                             .unit = core->units,
                             .rows = -1,
                             .contributors = (int)contributors,
                             .gpu = unit ? unit->entry[i]->gpu : wants->want[i]->gpu};
        int64_t numbers = lib_row_numbers(begin->r->what, core->c.members);
        if (numbers && rows >= 0) {
            begin->rows = rows;
            rows += numbers;
        }
        begin->bytes = bytes_of(begin->r, begin->rows < 0 ? NULL : core->rows + begin->rows, core->c.members);
    }
    core->units++;
    if (unit) lib_bundle_drop(core, unit);
    return 0;
}

static int apply_run(lib_core *core, lib_reader *from)
{
    lib_read_slots(core, core->c.members, from);
    for (int64_t i = -1; (i = lib_bit_next(core->going, core->words, i + 1)) >= 0;) {
        lib_slot *slot = core->slot[i];
        if (!slot->used) return from->bad = true, 0;
        KOLO_TRY(begin_unit(core, &slot->wants, slot->mine, slot->brought, -1));
        slot->begun = core->seen;
        slot->contributors = 0;
        for (int e = 0; e <= core->children; e++) lib_bit_clear(core->edge[e].reported, i);
        lib_bit_clear(core->passed, i);
    }
    return 0;
}

/* [slot or -1, contributors, bytes, requests, rows...] */
static int apply_new(lib_core *core, lib_reader *from)
{
    int64_t s = lib_take_number(from), contributors = lib_take_number(from), bytes = lib_take_number(from),
            numbers = 0, at = core->rows_count;
    const void *data = lib_take(from, (size_t)bytes);
    if (!data) return 0;
    KOLO_TRY(
        kolo_grow(&core->received, &core->received_capacity, core->received_count, sizeof *core->received));
    lib_descriptors *wants = &core->received[core->received_count++];
    KOLO_TRY(lib_read_wants(wants, data, (size_t)bytes));
    for (int64_t i = 0; i < wants->wants; i++)
        numbers += lib_row_numbers(wants->want[i]->r.what, core->c.members);
    const int64_t *rows = lib_take(from, (size_t)numbers * sizeof *rows);
    if (!rows) return 0;
    KOLO_TRY(kolo_grow(&core->rows, &core->rows_capacity, at + numbers, sizeof *core->rows));
    memcpy(core->rows + at, rows, (size_t)numbers * sizeof *rows);
    core->rows_count += numbers;
    lib_bundle *unit = lib_map_find(&core->waiting, wants->key.data, (size_t)wants->key.size);
    KOLO_TRY(begin_unit(core, wants, unit, contributors, numbers ? at : -1));
    return s < 0 ? 0 : lib_slot_give(core, s, wants, core->seen);
}

/* [slot]. Who has reported its bit claims anew, when the whole agreement is applied. */
static void apply_drop(lib_core *core, lib_reader *from)
{
    int64_t s = lib_take_number(from);
    if (s < 0 || s >= core->c.capacity || !core->slot[s] || !core->slot[s]->used) {
        from->bad = true;
        return;
    }
    lib_bundle *unit = core->slot[s]->mine;
    if (unit) {
        unit->slot = -1;
        unit->anew = true;
        core->slot[s]->mine = NULL;
    }
    lib_slot_take(core, s, core->seen);
}

/* [member or -1: all, name, text, number of members that must acknowledge it, these members...] */
static int apply_fail(lib_core *core, lib_reader *from)
{
    int64_t only = lib_take_number(from);
    const char *name = lib_take_text(from), *text = lib_take_text(from);
    int64_t failing = lib_take_number(from);
    bool acknowledges = false;
    for (int64_t i = 0; i < failing && !from->bad; i++) acknowledges |= lib_take_number(from) == core->c.me;
    lib_bundle *bundle = from->bad || (only >= 0 && only != core->c.me) ? NULL : lib_bundle_named(core, name);
    if (!bundle) return 0;
    for (int64_t i = 0; i < bundle->entries; i++) core->c.complete(bundle->entry[i], KOLO_EINPUT, text);
    lib_bundle_drop(core, bundle);
    if (!acknowledges) return 0;
    KOLO_TRY(lib_core_item(core, LIB_ACKNOWLEDGED, 0));
    KOLO_TRY(lib_put_text(&core->item, name));
    return lib_core_submit(core);
}

int lib_join_begin(lib_core *core, lib_entry *entry)
{
    KOLO_TRY(lib_core_item(core, LIB_JOIN, 0));
    KOLO_TRY(lib_core_submit(core)); /* bits reported before this one go before it */
    core->joined = core->edge[core->children].joined = core->changed = true;
    core->joining = entry;
    return 0;
}

/* By agreement. */
static void join_end(lib_core *core, int last)
{
    for (int e = 0; e <= core->children; e++) core->edge[e].joined = false;
    core->joined = core->sent_joined = false;
    core->joins = core->seen;
    lib_entry *entry = core->joining;
    core->joining = NULL;
    if (core->root) {
        for (int m = 0; m < core->c.members; m++) core->root->joined[m] = false;
        core->root->joins = 0;
    }
    if (!entry) return;
    entry->output.last = last;
    core->c.complete(entry, 0, NULL);
}

static int apply_item(lib_core *core, lib_reader *from)
{
    switch (lib_take_number(from)) {
    case LIB_RUN: return apply_run(core, from);
    case LIB_NEW: return apply_new(core, from);
    case LIB_DROP: return apply_drop(core, from), 0;
    case LIB_FAIL: return apply_fail(core, from);
    case LIB_JOINED: return join_end(core, (int)lib_take_number(from)), 0;
    case LIB_ASK: return lib_stall_answer(core, (uint64_t)lib_take_number(from));
    case LIB_BYE: core->closed = true; return 0;
    default: from->bad = true; return 0;
    }
}

/* ---- batches ------------------------------------------------------------------------------------------- */

static int make_batches(lib_core *core, size_t fusion_bytes)
{
    int64_t n = core->begins;
    if (!n) return 0;
    KOLO_TRY(kolo_grow(&core->order, &core->order_capacity, 4 * n + 1, sizeof *core->order));
    KOLO_TRY(kolo_grow(&core->dealt, &core->dealt_capacity, n, sizeof *core->dealt));
    int64_t *order = core->order, *start = order + n;
    int64_t batches =
        lib_fuse(core->begin, n, fusion_bytes, core->c.fixed_order, order, start, start + n + 1);
    KOLO_TRY(kolo_grow(&core->batch, &core->batches_capacity, batches, sizeof *core->batch));
    for (int64_t i = 0; i < n; i++) core->dealt[i] = core->begin[order[i]];
    for (int64_t b = 0; b < batches; b++)
        core->batch[b] = (lib_beginning){.begin = core->dealt + start[b],
                                         .entries = (int)(start[b + 1] - start[b]),
                                         .rows = core->rows,
                                         .number = ++core->number};
    core->batches = batches;
    return 0;
}

int lib_core_apply(lib_core *core, const void *data, int64_t bytes)
{
    lib_reader from = {.at = data, .end = (const char *)data + bytes};
    uint64_t number = (uint64_t)lib_take_number(&from);
    size_t fusion_bytes = (size_t)lib_take_number(&from);
    if (number != core->seen + 1) from.bad = true;
    core->seen = number;
    core->begins = core->batches = core->units = core->rows_count = core->received_count = 0;
    if (!core->root) KOLO_TRY(lib_put(&core->down, data, (size_t)bytes));
    while (!from.bad && from.at < from.end) KOLO_TRY(apply_item(core, &from));
    KOLO_TRY(lib_reader_end(&from));
    for (lib_bundle *unit = core->first; unit; unit = unit->after)
        if (unit->anew) KOLO_TRY(lib_core_claim(core, unit));
    return make_batches(core, fusion_bytes);
}
