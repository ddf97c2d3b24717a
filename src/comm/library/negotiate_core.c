/* A member: what it and those below it are ready for. */
#include "comm/library/negotiate.h"

#include <stdlib.h>
#include <string.h>

#include "base/memory.h"
#include "kolo/error.h"

/* Leaders, in their order, hang below one another: leader i below leader (i - 1) / LIB_RADIX. */
static int make_tree(lib_core *core)
{
    const lib_core_config *c = &core->c;
    int n = c->members, leaders = 0, *leader = kolo_alloc((size_t)n * 3 * sizeof(int));
    core->child = kolo_alloc((size_t)n * sizeof(int));
    core->edge = kolo_alloc((size_t)n * sizeof *core->edge);
    if (!leader || !core->child || !core->edge) {
        free(leader);
        return KOLO_ENOMEM;
    }
    int *parent = leader + n, *below = parent + n;
    for (int m = 0; m < n; m++) {
        int first = 0;
        while (c->node_of && c->node_of[first] != c->node_of[m]) first++;
        parent[m] = first < m ? first : leaders ? leader[(leaders - 1) / LIB_RADIX] : -1;
        if (first == m) leader[leaders++] = m;
        for (int up = m; up >= 0; up = parent[up]) below[up]++; /* parents are lower than their children */
    }
    core->parent = parent[c->me];
    core->below = below[c->me];
    for (int m = 0; m < n; m++) {
        if (parent[m] != c->me) continue;
        core->edge[core->children].members = below[m];
        core->child[core->children++] = m;
    }
    core->edge[core->children].members = 1;
    free(leader);
    return 0;
}

int lib_core_open(lib_core **out, const lib_core_config *config)
{
    int rc = 0;
    lib_core *core = *out = kolo_alloc(sizeof *core);
    if (!core) return KOLO_ENOMEM;
    core->c = *config;
    core->words = (config->capacity + 63) / 64;
    KOLO_TRY_GOTO(rc, make_tree(core));
    core->slot = kolo_alloc((size_t)(config->capacity + 1) * sizeof *core->slot);
    core->passed = kolo_alloc((size_t)(core->words + 1) * sizeof(uint64_t));
    core->going = kolo_alloc((size_t)(core->words + 1) * sizeof(uint64_t));
    rc = core->slot && core->passed && core->going ? 0 : KOLO_ENOMEM;
    for (int e = 0; e <= core->children && rc == 0; e++) {
        core->edge[e].reported = kolo_alloc((size_t)(core->words + 1) * sizeof(uint64_t));
        if (!core->edge[e].reported) rc = KOLO_ENOMEM;
    }
    if (rc < 0) goto fail;
    if (core->parent < 0) KOLO_TRY_GOTO(rc, lib_root_open(core));
    return 0;
fail:
    lib_core_close(out);
    return rc;
}

static void unit_free(lib_bundle *unit)
{
    free(unit->entry);
    lib_bytes_free(&unit->key);
    free(unit);
}

void lib_core_close(lib_core **out)
{
    lib_core *core = *out;
    if (!core) return;
    while (core->first) lib_bundle_drop(core, core->first);
    for (lib_bundle *unit = core->spare, *next; unit; unit = next) {
        next = unit->after;
        unit_free(unit);
    }
    if (core->root) lib_root_close(core);
    for (int64_t i = 0; core->slot && i < core->c.capacity; i++)
        if (core->slot[i]) {
            lib_descriptors_free(&core->slot[i]->wants);
            free(core->slot[i]);
        }
    for (int e = 0; core->edge && e <= core->children; e++) free(core->edge[e].reported);
    lib_map_free(&core->known);
    lib_map_free(&core->waiting);
    for (int64_t i = 0; i < core->received_capacity; i++) lib_descriptors_free(&core->received[i]);
    lib_bytes_free(&core->item);
    lib_bytes_free(&core->outgoing);
    lib_bytes_free(&core->up);
    lib_bytes_free(&core->down);
    void *memory[] = {core->slot, core->passed, core->going, core->edge,  core->child,   core->begin,
                      core->rows, core->order,  core->dealt, core->batch, core->received};
    for (size_t i = 0; i < sizeof memory / sizeof *memory; i++) free(memory[i]);
    free(core);
    *out = NULL;
}

/* ---- units --------------------------------------------------------------------------------------------- */

void lib_bundle_drop(lib_core *core, lib_bundle *unit)
{
    if (unit->slot >= 0) core->slot[unit->slot]->mine = NULL;
    lib_map_remove(&core->waiting, &unit->link);
    *(unit->before ? &unit->before->after : &core->first) = unit->after;
    *(unit->after ? &unit->after->before : &core->last) = unit->before;
    unit->after = core->spare;
    core->spare = unit;
}

lib_bundle *lib_bundle_named(const lib_core *core, const char *name)
{
    for (lib_bundle *unit = core->first; unit; unit = unit->after)
        for (int64_t i = 0; i < unit->entries; i++)
            if (strcmp(unit->entry[i]->r.name, name) == 0) return unit;
    return NULL;
}

static int unit_make(lib_core *core, lib_entry *const *entry, int64_t entries, lib_bundle **out)
{
    lib_bundle *unit = core->spare;
    if (unit) core->spare = unit->after;
    else unit = kolo_alloc(sizeof *unit);
    if (!unit) return KOLO_ENOMEM;
    lib_bundle keep = *unit;
    *unit = (lib_bundle){.entry = keep.entry, .capacity = keep.capacity, .key = keep.key, .slot = -1};
    unit->after = core->spare; /* where it lies until nothing can fail any more */
    core->spare = unit;
    KOLO_TRY(kolo_grow(&unit->entry, &unit->capacity, entries, sizeof *unit->entry));
    memcpy(unit->entry, entry, (size_t)entries * sizeof *entry);
    unit->entries = entries;
    unit->key.size = 0;
    for (int64_t i = 0; i < entries; i++) KOLO_TRY(lib_write_name(&unit->key, entry[i]->r.name));
    KOLO_TRY(lib_map_add(&core->waiting, &unit->link, unit->key.data, (size_t)unit->key.size));
    core->spare = unit->after;
    unit->after = NULL;
    unit->before = core->last;
    *(core->last ? &core->last->after : &core->first) = unit;
    core->last = unit;
    *out = unit;
    return 0;
}

static bool as_known(const lib_slot *slot, const lib_bundle *unit)
{
    for (int64_t i = 0; i < unit->entries; i++)
        if (slot->wants.want[i]->signature != lib_signature(unit->entry[i])) return false;
    return true;
}

int lib_core_claim(lib_core *core, lib_bundle *unit)
{
    unit->slot = -1;
    unit->anew = false;
    const double age = core->now - unit->since;
    KOLO_TRY(lib_core_item(core, LIB_CLAIM, core->seen));
    KOLO_TRY(lib_put(&core->item, &age, sizeof age));
    KOLO_TRY(lib_write_entries(&core->item, unit->entry, unit->entries, core->c.me, core->c.members));
    return lib_core_submit(core);
}

int lib_core_add(lib_core *core, lib_entry *const *entry, int64_t entries, double now)
{
    core->now = now;
    if (entry[0]->r.what == KOLO_JOIN) return lib_join_begin(core, entry[0]);
    lib_bundle *unit;
    KOLO_TRY(unit_make(core, entry, entries, &unit));
    unit->since = now;
    lib_slot *slot = lib_map_find(&core->known, unit->key.data, (size_t)unit->key.size);
    if (!slot || !as_known(slot, unit)) return lib_core_claim(core, unit);
    unit->slot = slot->number;
    slot->mine = unit;
    slot->contributors++;
    lib_bit_set(core->edge[core->children].reported, slot->number);
    core->changed = true;
    return 0;
}

void lib_core_end(lib_core *core) { core->edge[core->children].closing = true; }

/* ---- what goes up -------------------------------------------------------------------------------------- */

int lib_core_item(lib_core *core, enum lib_item kind, uint64_t number)
{
    core->item.size = 0;
    return LIB_PUT(&core->item, (int64_t)kind, core->c.me, (int64_t)number, 0);
}

int lib_core_submit(lib_core *core)
{
    const lib_bytes *item = &core->item;
    const int64_t bytes = item->size - 4 * (int64_t)sizeof bytes;
    memcpy(item->data + 3 * sizeof bytes, &bytes, sizeof bytes);
    if (!core->root) return lib_put(&core->outgoing, item->data, (size_t)item->size);
    lib_reader from = {.at = item->data, .end = item->data + item->size};
    enum lib_item kind = (enum lib_item)lib_take_number(&from);
    KOLO_TRY(lib_root_item(core, kind, &from));
    return lib_reader_end(&from);
}

/* Bits that all edges have reported, joined ones excepted, and that were not passed on yet. */
static uint64_t complete_word(const lib_core *core, int64_t w)
{
    uint64_t all = ~(uint64_t)0, any = 0;
    for (int e = 0; e <= core->children; e++) {
        const lib_edge *edge = &core->edge[e];
        any |= edge->reported[w];
        if (!edge->joined) all &= edge->reported[w];
    }
    return all & any & ~core->passed[w];
}

int lib_write_slots(lib_core *core, lib_bytes *to, enum lib_item kind, int64_t members)
{
    const uint64_t *word = core->going;
    int64_t words = core->words;
    while (words > 0 && !word[words - 1]) words--;
    if (!words) return 0;
    KOLO_TRY(LIB_PUT(to, (int64_t)kind, words));
    KOLO_TRY(lib_put(to, word, (size_t)words * sizeof *word));
    for (int64_t i = -1; (i = lib_bit_next(word, words, i + 1)) >= 0;)
        if (core->slot[i]->contributors != members) KOLO_TRY(LIB_PUT(to, i + 1, core->slot[i]->contributors));
    return lib_put_number(to, 0);
}

static int write_ready(lib_core *core)
{
    for (int64_t w = 0; w < core->words; w++) core->passed[w] |= core->going[w] = complete_word(core, w);
    return lib_write_slots(core, &core->outgoing, LIB_READY, core->below);
}

static int pass_to_root(lib_core *core)
{
    for (int64_t w = 0; w < core->words; w++) core->passed[w] |= core->going[w] = complete_word(core, w);
    for (int64_t i = -1; (i = lib_bit_next(core->going, core->words, i + 1)) >= 0;)
        KOLO_TRY(lib_root_ready_slot(core, i));
    return 0;
}

static bool all_edges(const lib_core *core, bool closing)
{
    for (int e = 0; e <= core->children; e++)
        if (!(closing ? core->edge[e].closing : core->edge[e].joined)) return false;
    return true;
}

/* An up message: [agreements applied, all joined, all closing, items...]. */
static int write_up(lib_core *core)
{
    bool joined = all_edges(core, false), closing = all_edges(core, true);
    if (core->changed) KOLO_TRY(write_ready(core));
    core->changed = false;
    if (!core->outgoing.size && joined == core->sent_joined && closing == core->sent_closing) return 0;
    KOLO_TRY(LIB_PUT(&core->up, (int64_t)core->seen, joined, closing));
    KOLO_TRY(lib_put(&core->up, core->outgoing.data, (size_t)core->outgoing.size));
    core->outgoing.size = 0;
    core->sent_joined = joined;
    core->sent_closing = closing;
    return 0;
}

int lib_core_send(lib_core *core, double now, bool idle)
{
    core->now = now;
    core->begins = core->batches = 0;
    KOLO_TRY(lib_stall_look(core));
    if (!core->root) return core->up.size ? 0 : write_up(core);
    if (core->changed) KOLO_TRY(pass_to_root(core));
    core->changed = false;
    core->root->all_closing = all_edges(core, true);
    return lib_root_send(core, idle);
}

/* ---- what comes up ------------------------------------------------------------------------------------- */

void lib_read_slots(lib_core *core, int64_t members, lib_reader *from)
{
    const int64_t words = lib_take_number(from);
    const uint64_t *word = words <= core->words ? lib_take(from, (size_t)words * sizeof *word) : NULL;
    int64_t exception = lib_take_number(from);
    memset(core->going, 0, (size_t)core->words * sizeof *core->going);
    for (int64_t i = -1; word && (i = lib_bit_next(word, words, i + 1)) >= 0;) {
        int64_t brought = members;
        if (exception == i + 1) {
            brought = lib_take_number(from);
            exception = lib_take_number(from);
        }
        from->bad |= i >= core->c.capacity || !core->slot[i];
        if (from->bad) return;
        core->slot[i]->brought = brought;
        lib_bit_set(core->going, i);
    }
    from->bad |= !word || exception;
}

static void receive_ready(lib_core *core, lib_edge *edge, uint64_t seen, lib_reader *from)
{
    lib_read_slots(core, edge->members, from);
    for (int64_t i = -1; (i = lib_bit_next(core->going, core->words, i + 1)) >= 0;) {
        lib_slot *slot = core->slot[i];
        if (seen < slot->changed || !slot->used || lib_bit(edge->reported, i)) continue;
        lib_bit_set(edge->reported, i);
        slot->contributors += slot->brought;
        core->changed = true;
    }
}

static int receive_item(lib_core *core, lib_edge *edge, uint64_t seen, lib_reader *from)
{
    const char *begin = from->at;
    enum lib_item kind = (enum lib_item)lib_take_number(from);
    if (kind == LIB_READY) return receive_ready(core, edge, seen, from), 0;
    if (core->root) return lib_root_item(core, kind, from);
    /* what a single member says goes on as it is: member, number, and the rest counted in bytes */
    lib_take(from, 16);
    lib_take(from, (size_t)lib_take_number(from));
    return from->bad ? 0 : lib_put(&core->outgoing, begin, (size_t)(from->at - begin));
}

static int receive_child(lib_core *core, lib_edge *edge, lib_reader *from)
{
    uint64_t seen = (uint64_t)lib_take_number(from);
    bool joined = lib_take_number(from), closing = lib_take_number(from);
    while (!from->bad && from->at < from->end) KOLO_TRY(receive_item(core, edge, seen, from));
    if (seen >= core->joins && joined != edge->joined) {
        edge->joined = joined;
        core->changed = true;
    }
    edge->closing |= closing;
    return lib_reader_end(from);
}

int lib_core_receive(lib_core *core, int child, const void *data, int64_t bytes, double now)
{
    lib_reader from = {.at = data, .end = (const char *)data + bytes};
    core->now = now;
    if (child >= 0) return receive_child(core, &core->edge[child], &from);
    return lib_core_apply(core, data, bytes);
}
