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
    root->joined = kolo_alloc((size_t)core->c.members * sizeof(bool));
    root->answer = kolo_alloc((size_t)core->c.members * sizeof *root->answer);
    root->step_slot = -1;
    root->fusion_bytes = core->c.fusion_bytes;
    root->cycle = core->c.cycle;
    lib_tune_begin(&root->tune, root->fusion_bytes, root->cycle);
    return root->taken && root->joined && root->answer ? 0 : KOLO_ENOMEM;
}

static void claim_free(lib_claim *claim)
{
    lib_descriptors_free(&claim->wants);
    free(claim);
}

void lib_root_close(lib_core *core)
{
    lib_root *root = core->root;
    for (lib_name *name = root->first; name; name = name->after)
        for (int m = 0; m < core->c.members; m++)
            if (name->by[m]) lib_root_claim_free(root, name->by[m]);
    while (root->first) lib_root_name_drop(root, root->first, core->c.members);
    for (lib_name *name = root->spare_names, *next; name; name = next) {
        next = name->after;
        lib_bytes_free(&name->name);
        free(name->by);
        free(name);
    }
    *root->ready_end = root->spare_ready;
    for (lib_ready *ready = root->ready, *next; ready; ready = next) {
        next = ready->next;
        for (int m = 0; ready->any && m < core->c.members; m++)
            if (ready->by[m]) claim_free(ready->by[m]);
        free(ready);
    }
    for (lib_claim *claim = root->spare_claims, *next; claim; claim = next) {
        next = claim->next;
        claim_free(claim);
    }
    for (int m = 0; root->answer && m < core->c.members; m++) lib_bytes_free(&root->answer[m]);
    lib_map_free(&root->names);
    lib_bytes_free(&root->urgent);
    lib_bytes_free(&root->key);
    free(root->taken);
    free(root->joined);
    free(root->answer);
    free(root);
}

/* ---- names and claims ---------------------------------------------------------------------------------- */

static lib_name *name_make(lib_core *core, const char *text, size_t length, uint64_t hash)
{
    lib_root *root = core->root;
    size_t n = (size_t)core->c.members;
    lib_name *name = root->spare_names;
    if (!name) {
        name = kolo_alloc(sizeof *name);
        char *memory = name ? kolo_alloc(n * (sizeof(lib_claim *) + sizeof(int) + sizeof(bool))) : NULL;
        if (!memory) {
            free(name);
            return NULL;
        }
        name->by = (lib_claim **)(void *)memory;
        name->unacknowledged = (int *)(name->by + n);
        name->killed = (bool *)(name->unacknowledged + n);
        name->after = NULL;
        root->spare_names = name;
    }
    name->name.size = 0;
    if (lib_put_text(&name->name, text, length) < 0 || lib_map_add(&root->names, &name->link, hash) < 0)
        return NULL;
    root->spare_names = name->after;
    name->after = NULL;
    name->made = core->seen;
    name->before = root->last;
    *(root->last ? &root->last->after : &root->first) = name;
    root->last = name;
    return name;
}

lib_name *lib_root_name(lib_core *core, const char *text, bool make, int *rc)
{
    size_t length = strlen(text);
    uint64_t hash = lib_hash(text, length);
    for (lib_link *link = lib_map_find(&core->root->names, hash); link; link = lib_map_again(link))
        if (strcmp(((lib_name *)link)->name.data + 8, text) == 0) return (lib_name *)link;
    lib_name *name = make ? name_make(core, text, length, hash) : NULL;
    if (make && !name) *rc = KOLO_ENOMEM;
    return name;
}

void lib_root_name_drop(lib_root *root, lib_name *name, int members)
{
    lib_map_remove(&root->names, &name->link);
    *(name->before ? &name->before->after : &root->first) = name->after;
    *(name->after ? &name->after->before : &root->last) = name->before;
    free(name->text);
    *name = (lib_name){.after = root->spare_names,
                       .name = {name->name.data, 0, name->name.capacity},
                       .by = name->by,
                       .unacknowledged = name->unacknowledged,
                       .killed = name->killed};
    memset(name->by, 0, (size_t)members * (sizeof(lib_claim *) + sizeof(int) + sizeof(bool)));
    root->spare_names = name;
}

void lib_root_claim_free(lib_root *root, lib_claim *claim)
{
    if (claim->free) return; /* by another of its names */
    claim->free = true;
    claim->next = root->spare_claims;
    root->spare_claims = claim;
}

/* A slot that holds one of these names is taken: a member that has reported its bit claims, and claims are
 * compared. */
static int doom(lib_core *core, lib_slot *slot)
{
    if (slot->doomed) return 0;
    slot->doomed = true;
    return LIB_PUT(&core->root->urgent, LIB_DROP, slot->number);
}

static bool shares_name(const lib_descriptors *a, const lib_descriptors *b)
{
    for (int64_t i = 0; i < a->wants; i++)
        for (int64_t j = 0; j < b->wants; j++)
            if (strcmp(a->want[i].r.name, b->want[j].r.name) == 0) return true;
    return false;
}

int lib_root_doom(lib_core *core, const lib_descriptors *wants)
{
    int64_t number;
    lib_bytes *key = &core->root->key;
    for (int64_t i = 0; i < wants->wants; i++) {
        const char *name = wants->want[i].r.name;
        key->size = 0;
        KOLO_TRY(lib_put_text(key, name, strlen(name)));
        lib_slot *slot = lib_slot_of(core, key, lib_hash(key->data, (size_t)key->size), &number);
        if (slot) KOLO_TRY(doom(core, slot));
    }
    for (int64_t i = 0; i < core->c.capacity && core->bundles; i++) {
        lib_slot *slot = core->slot[i];
        if (slot && slot->used && slot->wants.wants > 1 && shares_name(&slot->wants, wants))
            KOLO_TRY(doom(core, slot));
    }
    return 0;
}

static bool negotiate_root_complete(const lib_core *core, const lib_name *name)
{
    int there = name->claimed;
    for (int m = 0; core->root->joins && m < core->c.members; m++)
        there += core->root->joined[m] && !name->by[m];
    return name->claimed && there == core->c.members;
}

static int ready_add(lib_core *core, int64_t slot, lib_claim *const *by, int contributors)
{
    lib_root *root = core->root;
    lib_ready *ready = root->spare_ready;
    size_t n = (size_t)core->c.members;
    if (ready) root->spare_ready = ready->next;
    else ready = kolo_alloc(sizeof *ready + n * sizeof(lib_claim *));
    if (!ready) return KOLO_ENOMEM;
    *ready = (lib_ready){.slot = slot, .by = (lib_claim **)(ready + 1), .contributors = contributors};
    if (by) memcpy(ready->by, by, n * sizeof *by);
    for (size_t m = 0; by && m < n; m++)
        if (by[m]) ready->any = by[m];
    if (!root->ready) root->ready_since = core->now;
    *root->ready_end = ready;
    root->ready_end = &ready->next;
    if (core->c.fixed_order) {
        lib_bundle *mine =
            slot >= 0 ? core->slot[slot]->mine : lib_bundle_named(core, ready->any->wants.want[0].r.name);
        if (mine) mine->ready = ready;
    }
    return 0;
}

int lib_root_ready_slot(lib_core *core, int64_t slot)
{
    const lib_slot *s = core->slot[slot];
    bool other = false;
    if (s->doomed) return 0;
    for (int64_t i = 0; i < s->wants.wants; i++) other |= s->wants.want[i].r.what != KOLO_ALLREDUCE;
    /* claims tell who joined */
    if (other && s->contributors < core->c.members) return doom(core, core->slot[slot]);
    return ready_add(core, slot, NULL, (int)s->contributors);
}

/* Everybody has claimed the name, or joined. */
static int negotiate_root_check(lib_core *core, lib_name *name)
{
    lib_root *root = core->root;
    const lib_claim *any = NULL;
    bool different = false, faulty = false, other = false;
    for (int m = 0; m < core->c.members; m++) {
        if (!name->by[m]) continue;
        if (any) different |= !lib_descriptors_equal(&any->wants, &name->by[m]->wants);
        else any = name->by[m];
    }
    for (int64_t i = 0; i < any->wants.wants && !different; i++) {
        const lib_name *also = lib_root_name(core, any->wants.want[i].r.name, false, NULL);
        /* somebody who has joined had brought only part of a bundle */
        different |= also->claimed != name->claimed;
        faulty |= any->wants.want[i].faulty;
        other |= any->wants.want[i].r.what != KOLO_ALLREDUCE;
    }
    if (different) return lib_root_fail_different(core, name);
    if (faulty) return lib_root_fail_fault(core, name);
    if (other && name->claimed < core->c.members) return lib_root_fail_joined(core, name);
    KOLO_TRY(ready_add(core, -1, name->by, name->claimed));
    for (int64_t i = 0; i < any->wants.wants; i++) {
        lib_name *done = lib_root_name(core, any->wants.want[i].r.name, false, NULL);
        memset(done->by, 0, (size_t)core->c.members * sizeof *done->by);
        done->claimed = 0;
        if (!done->waiting_members) lib_root_name_drop(root, done, core->c.members);
    }
    return 0;
}

static int review(lib_core *core)
{
    for (lib_name *name = core->root->first; name;) {
        bool complete = negotiate_root_complete(core, name);
        if (complete) KOLO_TRY(negotiate_root_check(core, name));
        name = complete ? core->root->first : name->after;
    }
    return 0;
}

/* Enters the claim under its names; *entered: how many of them have it, and so own it. */
static int claim_enter(lib_core *core, lib_claim *claim, lib_reader *from, lib_name **ripe, int64_t *entered)
{
    int rc = 0;
    KOLO_TRY(lib_root_doom(core, &claim->wants));
    for (; *entered < claim->wants.wants; ++*entered) {
        lib_name *name = lib_root_name(core, claim->wants.want[*entered].r.name, true, &rc);
        if (!name) return rc;
        if (name->by[claim->member]) return from->bad = true, 0;
        name->by[claim->member] = claim;
        name->claimed++;
        if (!*ripe && negotiate_root_complete(core, name)) *ripe = name;
    }
    return 0;
}

static int receive_claim(lib_core *core, int member, uint64_t seen, lib_reader *from)
{
    lib_root *root = core->root;
    lib_claim *claim = root->spare_claims;
    if (claim) root->spare_claims = claim->next;
    else claim = kolo_alloc(sizeof *claim);
    if (!claim) return KOLO_ENOMEM;
    claim->free = false;
    claim->member = member;
    int rc = lib_read_wants(&claim->wants, from);
    bool over = rc < 0;
    if (over) lib_root_claim_free(root, claim);
    else rc = lib_root_fail_late(core, claim, seen, &over);
    if (over) return rc;
    lib_name *ripe = NULL;
    int64_t entered = 0;
    rc = claim_enter(core, claim, from, &ripe, &entered);
    if (!entered) lib_root_claim_free(root, claim);
    if (rc < 0 || from->bad) return rc;
    return ripe ? negotiate_root_check(core, ripe) : 0;
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

/* [member, number, requests | nothing | name | answer] */
int lib_root_item(lib_core *core, enum lib_item kind, lib_reader *from)
{
    int64_t member = lib_take_number(from);
    uint64_t number = (uint64_t)lib_take_number(from);
    if (member < 0 || member >= core->c.members) from->bad = true;
    if (from->bad) return 0;
    if (kind == LIB_CLAIM) return receive_claim(core, (int)member, number, from);
    int64_t bytes = lib_take_number(from);
    switch (kind) {
    case LIB_JOIN: return receive_join(core, (int)member);
    case LIB_ACKNOWLEDGED: return lib_root_fail_acknowledged(core, (int)member, from);
    case LIB_ANSWER: return lib_stall_answered(core, (int)member, number, bytes, from);
    case LIB_STALLED: core->root->ask = true; return 0;
    default: from->bad = true; return 0;
    }
}
