/* The coordinator: requests that do not match fail on every member, once. */
#include "comm/library/negotiate.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/memory.h"
#include "comm/core/rank_list.h"
#include "kolo/error.h"

void lib_write_ranks(const lib_core *core, const lib_name *name,
                     bool (*is)(const lib_core *core, const lib_name *name, int member), char *text,
                     size_t bytes)
{
    const int *rank_of = core->c.rank_of;
    int count = 0;
    bool cut = false;
    char list[200] = "";
    for (int m = 0, end; m < core->c.members; m = end) {
        end = m + 1;
        if (!is(core, name, m)) continue;
        while (end < core->c.members && is(core, name, end) && rank_of[end] == rank_of[end - 1] + 1) end++;
        cut |= strlen(list) > sizeof list - 40;
        if (!cut)
            kolo_append(list, sizeof list, end - m > 1 ? "%s%d-%d" : "%s%d", count ? ", " : "", rank_of[m],
                        rank_of[end - 1]);
        count += end - m;
    }
    snprintf(text, bytes, "%s %s%s", count == 1 ? "rank" : "ranks", list, cut ? ", ..." : "");
}

static int put_fail(lib_core *core, int only, const char *name, const char *text)
{
    lib_bytes *urgent = &core->root->urgent;
    KOLO_TRY(LIB_PUT(urgent, LIB_FAIL, only));
    KOLO_TRY(lib_put_text(urgent, name));
    return lib_put_text(urgent, text);
}

/* Takes claim away from all its names; they remember that its member's fails. */
static void detach(lib_core *core, const lib_claim *claim)
{
    for (int64_t i = 0; i < claim->wants.wants; i++) {
        lib_name *name = lib_root_name(core, claim->wants.want[i]->r.name);
        name->by[claim->member] = NULL;
        name->claimed--;
        name->killed[claim->member] = true;
    }
}

static int put_unacknowledged(lib_core *core, lib_name *name, const char *text)
{
    lib_bytes *urgent = &core->root->urgent;
    int64_t at = urgent->size;
    KOLO_TRY(lib_put_number(urgent, 0));
    name->waiting_members = 0;
    for (int m = 0; m < core->c.members; m++) {
        bool fails_later = !name->killed[m] && !core->root->joined[m];
        name->killed[m] = false;
        name->unacknowledged[m] += fails_later;
        name->waiting_members += name->unacknowledged[m] > 0;
        if (fails_later) KOLO_TRY(lib_put_number(urgent, m));
    }
    int64_t count = (urgent->size - at) / 8 - 1;
    memcpy(urgent->data + at, &count, sizeof count);
    free(name->text);
    name->text = kolo_strdup(text);
    return name->text ? 0 : KOLO_ENOMEM;
}

int lib_root_fail(lib_core *core, lib_name *name, const char *text)
{
    int members = core->c.members, rc;
    lib_claim **claim = kolo_alloc((size_t)members * sizeof *claim);
    if (!claim) return KOLO_ENOMEM;
    memcpy(claim, name->by, (size_t)members * sizeof *claim);
    name->failed = core->seen + 1;
    for (int m = 0; m < members; m++)
        if (claim[m]) detach(core, claim[m]);
    KOLO_TRY_GOTO(rc, put_fail(core, -1, name->name.data, text));
    KOLO_TRY_GOTO(rc, put_unacknowledged(core, name, text));
    for (int m = 0; m < members; m++) {
        for (int64_t i = 0; claim[m] && i < claim[m]->wants.wants; i++) {
            lib_name *other = lib_root_name(core, claim[m]->wants.want[i]->r.name);
            if (other && other->failed != core->seen + 1) KOLO_TRY_GOTO(rc, lib_root_fail(core, other, text));
        }
        if (claim[m]) lib_root_claim_free(core->root, claim[m]);
    }
    if (!name->waiting_members) lib_root_name_drop(core, name);
fail:
    free(claim);
    return rc < 0 ? rc : 0;
}

static void acknowledge(lib_core *core, lib_name *name, int member)
{
    if (--name->unacknowledged[member]) return;
    if (!--name->waiting_members && !name->claimed) lib_root_name_drop(core, name);
}

int lib_root_fail_late(lib_core *core, lib_claim *claim, uint64_t seen, bool *over)
{
    const lib_descriptors *wants = &claim->wants;
    const lib_name *failed = NULL;
    bool old = false;
    int rc = 0;
    for (int64_t i = 0; i < wants->wants; i++) {
        const lib_name *name = lib_root_name(core, wants->want[i]->r.name);
        if (!name) continue;
        old |= seen < name->failed;
        if (name->unacknowledged[claim->member]) failed = name;
    }
    *over = old || failed;
    if (failed && !old) {
        rc = put_fail(core, claim->member, failed->name.data, failed->text);
        if (rc == 0) rc = lib_put_number(&core->root->urgent, 0);
        for (int64_t i = 0; i < wants->wants; i++) {
            lib_name *name = lib_root_name(core, wants->want[i]->r.name);
            if (!name || !name->unacknowledged[claim->member]) continue;
            acknowledge(core, name, claim->member);
        }
    }
    return rc;
}

void lib_root_fail_acknowledged(lib_core *core, int member, const char *text)
{
    lib_name *name = lib_root_name(core, text);
    if (name && name->unacknowledged[member]) acknowledge(core, name, member);
}

/* ---- texts --------------------------------------------------------------------------------------------- */

static const lib_want *want_of(const char *name, const lib_claim *claim)
{
    int64_t i = 0;
    while (strcmp(claim->wants.want[i]->r.name, name) != 0) i++;
    return claim->wants.want[i];
}

/* What differs may be another name of a bundle, if all have brought the same names. */
static const char *differing(const lib_core *core, const lib_name *name)
{
    const lib_descriptors *first = NULL;
    const char *found = NULL;
    for (int m = 0; m < core->c.members; m++) {
        const lib_descriptors *wants = name->by[m] ? &name->by[m]->wants : first;
        if (!first) first = wants;
        if (wants == first) continue;
        if (wants->key.size != first->key.size ||
            memcmp(wants->key.data, first->key.data, (size_t)first->key.size) != 0)
            return name->name.data;
        for (int64_t i = 0; i < first->wants && !found; i++)
            if (wants->want[i]->signature != first->want[i]->signature) found = first->want[i]->r.name;
    }
    return found ? found : name->name.data;
}

static void say_brought(const char *name, const lib_claim *claim, char *text, size_t bytes)
{
    int shown = 0;
    snprintf(text, bytes, "%s", want_of(name, claim)->text);
    if (claim->wants.wants == 1) return;
    kolo_append(text, bytes, " grouped with %ld others (", (long)claim->wants.wants - 1);
    for (int64_t i = 0; i < claim->wants.wants && shown < 4; i++)
        if (strcmp(claim->wants.want[i]->r.name, name) != 0)
            kolo_append(text, bytes, "%s\"%.60s\"", shown++ ? ", " : "", claim->wants.want[i]->r.name);
    kolo_append(text, bytes, claim->wants.wants - 1 > shown ? ", ...)" : ")");
}

/* Of those who say all counts (because their texts do not): where the first two differ. */
static void append_counts(const lib_core *core, const lib_name *name, const char *about, char *text,
                          size_t bytes)
{
    const int64_t *first = NULL;
    int whose = 0;
    for (int m = 0; m < core->c.members; m++) {
        const kolo_request *r = name->by[m] ? &want_of(about, name->by[m])->r : NULL;
        if (!r || !r->splits) continue;
        for (int k = 0; first && k < core->c.members; k++)
            if (first[k] != r->splits[k]) {
                kolo_append(text, bytes,
                            "; counts differ first for rank %d: %lld by rank %d, %lld by rank %d",
                            core->c.rank_of[k], (long long)first[k], core->c.rank_of[whose],
                            (long long)r->splits[k], core->c.rank_of[m]);
                return;
            }
        if (!first) first = r->splits, whose = m;
    }
}

int lib_root_fail_different(lib_core *core, lib_name *name)
{
    enum { KINDS = 3000, SAID = 768 };
    const size_t n = (size_t)core->c.members;
    char text[KINDS + 400];
    const char *about = differing(core, name);
    const bool unnamed = about[0] == LIB_UNNAMED;
    int *rank = kolo_alloc(n * (sizeof *rank + SAID)), some = 0;
    if (!rank) return KOLO_ENOMEM;
    char *said = (char *)(rank + n);
    for (int m = 0; m < core->c.members; m++) {
        if (!name->by[m]) continue;
        say_brought(about, name->by[m], said + (size_t)some * SAID, SAID);
        rank[some++] = core->c.rank_of[m];
    }
    snprintf(text, sizeof text,
             "%s%.200s%s is not the same on all ranks of group %d, nothing was sent: ", unnamed ? "" : "\"",
             about + unnamed, unnamed ? "" : "\"", core->c.group);
    const size_t head = strlen(text);
    comm_rank_list(text + head, KINDS, rank, some, said, SAID);
    free(rank);
    append_counts(core, name, about, text, sizeof text);
    return lib_root_fail(core, name, text);
}

static bool stands_in(const lib_core *core, const lib_name *name, int member)
{
    return core->root->joined[member] && !name->by[member];
}

int lib_root_fail_joined(lib_core *core, lib_name *name)
{
    char ranks[256], text[800];
    int m = 0;
    lib_write_ranks(core, name, stands_in, ranks, sizeof ranks);
    while (!name->by[m]) m++;
    snprintf(text, sizeof text,
             "\"%.200s\" (%.200s): %s of group %d joined and can stand in for allreduces only",
             name->name.data, want_of(name->name.data, name->by[m])->text, ranks, core->c.group);
    return lib_root_fail(core, name, text);
}

int lib_root_fail_fault(lib_core *core, lib_name *name)
{
    char text[800];
    int m = 0;
    while (!name->by[m]) m++;
    const lib_descriptors *wants = &name->by[m]->wants;
    int64_t i = 0;
    while (!wants->want[i]->faulty) i++;
    snprintf(text, sizeof text, "\"%.200s\": %.400s", wants->want[i]->r.name, wants->want[i]->text);
    return lib_root_fail(core, name, text);
}
