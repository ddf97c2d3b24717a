/* The coordinator: collects what members bring under names without a slot, and says what begins. */
#include "comm/library/negotiate.h"

#include <stdlib.h>
#include <string.h>

#include "base/memory.h"
#include "kolo/error.h"

int lib_root_open(lib_core *core)
{
    lib_root *root = core->root = kolo_alloc(sizeof *root);
    if (!root) return KOLO_ENOMEM;
    root->ready_end = &root->ready;
    root->taken = kolo_alloc((size_t)(core->words + 1) * sizeof(uint64_t));
    root->slots = kolo_alloc((size_t)(core->words + 1) * sizeof(uint64_t));
    root->joined = kolo_alloc((size_t)core->c.members * sizeof(bool));
    root->answer = kolo_alloc((size_t)core->c.members * sizeof *root->answer);
    root->step_slot = -1;
    root->fusion_bytes = core->c.fusion_bytes;
    root->cycle = core->c.cycle;
    lib_tune_begin(&root->tune, root->fusion_bytes, root->cycle);
    return root->taken && root->slots && root->joined && root->answer ? 0 : KOLO_ENOMEM;
}

void lib_root_close(lib_core *core)
{
    lib_root *root = core->root;
    for (lib_name *name; (name = lib_map_next(&root->names, NULL)); lib_root_name_drop(core, name))
        for (int m = 0; m < core->c.members; m++)
            if (name->by[m]) lib_root_claim_free(root, name->by[m]);
    for (lib_name *name = root->spare_names, *next; name; name = next) {
        next = (lib_name *)name->link.next;
        lib_bytes_free(&name->name);
        free(name);
    }
    for (lib_claim *claim = root->spare_claims, *next; claim; claim = next) {
        next = claim->next;
        lib_descriptors_free(&claim->wants);
        free(claim);
    }
    for (int m = 0; root->answer && m < core->c.members; m++) lib_bytes_free(&root->answer[m]);
    lib_map_free(&root->names);
    lib_bytes_free(&root->urgent);
    free(root->taken);
    free(root->slots);
    free(root->joined);
    free(root->answer);
    free(root);
}

/* ---- names and claims ---------------------------------------------------------------------------------- */

lib_name *lib_root_name(const lib_core *core, const char *name)
{
    return lib_map_find(&core->root->names, name, strlen(name));
}

/* Unless it is there. */
static int make_name(lib_core *core, const char *text, lib_name **out)
{
    lib_root *root = core->root;
    const size_t n = (size_t)core->c.members;
    lib_name *name = *out = lib_root_name(core, text);
    if (name) return 0;
    if (!root->spare_names) {
        if (!(name = kolo_alloc(sizeof *name + n * (sizeof(lib_claim *) + sizeof(int) + sizeof(bool)))))
            return KOLO_ENOMEM;
        name->by = (lib_claim **)(name + 1);
        name->unacknowledged = (int *)(name->by + n);
        name->killed = (bool *)(name->unacknowledged + n);
        root->spare_names = name;
    }
    name = root->spare_names;
    lib_link *next = name->link.next;
    name->name.size = 0;
    KOLO_TRY(lib_put(&name->name, text, strlen(text) + 1));
    KOLO_TRY(lib_map_add(&root->names, &name->link, name->name.data, strlen(text)));
    root->spare_names = (lib_name *)next;
    *out = name;
    return 0;
}

void lib_root_name_drop(lib_core *core, lib_name *name)
{
    lib_root *root = core->root;
    lib_map_remove(&root->names, &name->link);
    free(name->text);
    *name = (lib_name){.link.next = (lib_link *)root->spare_names,
                       .name = name->name,
                       .by = name->by,
                       .unacknowledged = name->unacknowledged,
                       .killed = name->killed};
    memset(name->by, 0, (size_t)core->c.members * (sizeof(lib_claim *) + sizeof(int) + sizeof(bool)));
    root->spare_names = name;
}

void lib_root_name_over(lib_core *core, lib_name *name)
{
    memset(name->by, 0, (size_t)core->c.members * sizeof *name->by);
    name->claimed = 0;
    name->any = NULL;
    name->next = NULL;
    if (!name->waiting_members) lib_root_name_drop(core, name);
}

void lib_root_claim_free(lib_root *root, lib_claim *claim)
{
    if (claim->free) return; /* by another of its names */
    claim->free = true;
    claim->next = root->spare_claims;
    root->spare_claims = claim;
}

int lib_root_doom(lib_core *core, lib_slot *slot)
{
    if (slot->doomed) return 0;
    slot->doomed = true;
    return LIB_PUT(&core->root->urgent, LIB_DROP, slot->number);
}

static bool shares_name(const lib_descriptors *a, const lib_descriptors *b)
{
    for (int64_t i = 0; i < a->wants; i++)
        for (int64_t j = 0; j < b->wants; j++)
            if (strcmp(a->want[i]->r.name, b->want[j]->r.name) == 0) return true;
    return false;
}

/* Slots that hold one of these names. */
static int doom_all(lib_core *core, const lib_descriptors *wants)
{
    for (int64_t i = 0; i < wants->wants; i++) {
        const char *name = wants->want[i]->r.name;
        lib_slot *slot = lib_map_find(&core->known, name, strlen(name) + 1);
        if (slot) KOLO_TRY(lib_root_doom(core, slot));
    }
    for (int64_t i = 0; i < core->c.capacity && core->bundles; i++) {
        lib_slot *slot = core->slot[i];
        if (slot && slot->used && slot->wants.wants > 1 && shares_name(&slot->wants, wants))
            KOLO_TRY(lib_root_doom(core, slot));
    }
    return 0;
}

static bool negotiate_root_complete(const lib_core *core, const lib_name *name)
{
    int there = name->claimed;
    for (int m = 0; core->root->joins && name->name.data[0] != LIB_UNNAMED && m < core->c.members; m++)
        there += core->root->joined[m] && !name->by[m];
    return there == core->c.members && name->claimed && !name->any;
}

/* One more thing may begin. */
static void count_ready(lib_core *core)
{
    if (!core->root->readies++) core->root->ready_since = core->now;
}

int lib_root_ready_slot(lib_core *core, int64_t slot)
{
    lib_slot *s = core->slot[slot];
    bool other = false;
    if (s->doomed) return 0;
    for (int64_t i = 0; i < s->wants.wants; i++) other |= s->wants.want[i]->r.what != KOLO_ALLREDUCE;
    if (other && s->contributors < core->c.members)
        return lib_root_doom(core, s); /* claims tell who joined */
    lib_bit_set(core->root->slots, slot);
    count_ready(core);
    return 0;
}

/* Everybody has claimed the name, or joined. */
static int negotiate_root_check(lib_core *core, lib_name *name)
{
    const lib_claim *any = NULL;
    bool different = name->name.data[0] == LIB_UNNAMED, faulty = false, other = false;
    for (int m = 0; m < core->c.members; m++) {
        if (!name->by[m]) continue;
        if (any) different |= !lib_descriptors_equal(&any->wants, &name->by[m]->wants);
        else any = name->by[m];
    }
    for (int64_t i = 0; i < any->wants.wants && !different; i++) {
        const lib_name *also = lib_root_name(core, any->wants.want[i]->r.name);
        /* somebody who has joined had brought only part of a bundle */
        different |= also->claimed != name->claimed;
        faulty |= any->wants.want[i]->faulty;
        other |= any->wants.want[i]->r.what != KOLO_ALLREDUCE;
    }
    if (different) return lib_root_fail_different(core, name);
    if (faulty) return lib_root_fail_fault(core, name);
    if (other && name->claimed < core->c.members) return lib_root_fail_joined(core, name);
    for (int64_t i = 0; i < any->wants.wants; i++) {
        lib_name *done = lib_root_name(core, any->wants.want[i]->r.name);
        if (done != name) lib_root_name_over(core, done);
    }
    name->any = any;
    *core->root->ready_end = name;
    core->root->ready_end = &name->next;
    count_ready(core);
    lib_bundle *mine = lib_map_find(&core->waiting, any->wants.key.data, (size_t)any->wants.key.size);
    if (mine) mine->ready = name;
    return 0;
}

static int review(lib_core *core)
{
    const lib_map *names = &core->root->names;
    for (lib_name *name = lib_map_next(names, NULL); name;) {
        bool complete = negotiate_root_complete(core, name);
        if (complete) KOLO_TRY(negotiate_root_check(core, name));
        name = lib_map_next(names, complete ? NULL : &name->link);
    }
    return 0;
}

/* Enters the claim under its names; *entered: how many of them have it, and so own it. */
static int claim_enter(lib_core *core, lib_claim *claim, double since, lib_name **ripe, int64_t *entered)
{
    KOLO_TRY(doom_all(core, &claim->wants));
    for (; *entered < claim->wants.wants; ++*entered) {
        lib_name *name;
        KOLO_TRY(make_name(core, claim->wants.want[*entered]->r.name, &name));
        if (name->by[claim->member])
            return kolo_fail(KOLO_EINTERNAL, "comm: member %d claims \"%s\" twice", claim->member,
                             name->name.data);
        name->by[claim->member] = claim;
        if (!name->claimed++) name->warned = false, name->since = since;
        if (since < name->since) name->since = since;
        if (!*ripe && negotiate_root_complete(core, name)) *ripe = name;
    }
    return 0;
}

/* [age in seconds, requests] */
static int receive_claim(lib_core *core, int member, uint64_t seen, lib_reader *from)
{
    lib_root *root = core->root;
    const double *age = lib_take(from, sizeof *age);
    if (!age) return lib_reader_end(from);
    lib_claim *claim = root->spare_claims;
    if (claim) root->spare_claims = claim->next;
    else claim = kolo_alloc(sizeof *claim);
    if (!claim) return KOLO_ENOMEM;
    claim->free = false;
    claim->member = member;
    lib_name *ripe = NULL;
    int64_t entered = 0;
    bool over = false;
    int rc = lib_read_wants(&claim->wants, from->at, (size_t)(from->end - from->at));
    if (rc == 0) rc = lib_root_fail_late(core, claim, seen, &over);
    if (rc == 0 && !over) rc = claim_enter(core, claim, core->now - *age, &ripe, &entered);
    if (!entered) lib_root_claim_free(root, claim);
    return rc == 0 && ripe ? negotiate_root_check(core, ripe) : rc;
}

static int receive_join(lib_core *core, int member)
{
    lib_root *root = core->root;
    if (root->joined[member]) return 0;
    root->joined[member] = true;
    root->joins++;
    root->last_joined = member;
    return review(core);
}

/* [member, number, bytes, requests | nothing | name | answer] */
int lib_root_item(lib_core *core, enum lib_item kind, lib_reader *from)
{
    const int64_t member = lib_take_number(from), number = lib_take_number(from),
                  bytes = lib_take_number(from);
    const char *data = lib_take(from, (size_t)bytes);
    if (!data || member < 0 || member >= core->c.members) return from->bad = true, 0;
    lib_reader in = {.at = data, .end = data + bytes};
    switch (kind) {
    case LIB_CLAIM: return receive_claim(core, (int)member, (uint64_t)number, &in);
    case LIB_JOIN: return receive_join(core, (int)member);
    case LIB_ACKNOWLEDGED: lib_root_fail_acknowledged(core, (int)member, lib_take_text(&in)); return 0;
    case LIB_ANSWER: return lib_stall_answered(core, (int)member, (uint64_t)number, lib_take_text(&in));
    case LIB_STALLED: return lib_stall_slot(core, lib_take_number(&in), (uint64_t)number);
    default: from->bad = true; return 0;
    }
}
