/* Names that some members have submitted and others not, for too long. The member that waits reports to the
 * coordinator, which asks all members what waits there and writes one report. After stall_end such names
 * fail. */
#include "comm/library/negotiate.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/log.h"
#include "base/memory.h"
#include "kolo/error.h"

enum { NAMES_SHOWN = 6, RANKS_SHOWN = 8, REPORT = 8192 };
static const double answer_seconds = 3; /* who has not answered then is said not to answer */

static bool past(double limit, double age) { return limit > 0 && age >= limit; }

int lib_stall_look(lib_core *core)
{
    bool late = false;
    if (core->now < core->next_look) return 0;
    double warning = core->c.stall_warning, end = core->c.stall_end, least = warning;
    if (end > 0 && (least <= 0 || end < least)) least = end;
    core->next_look = core->now + (least > 0 ? least / 8 : 60);
    for (lib_bundle *unit = core->first; unit && past(least, core->now - unit->since); unit = unit->after) {
        double age = core->now - unit->since;
        late |= (past(warning, age) && !unit->warned) || past(end, age);
        unit->warned |= past(warning, age);
    }
    if (!late) return 0;
    KOLO_TRY(lib_core_item(core, LIB_STALLED, 0));
    KOLO_TRY(lib_put_number(&core->item, 0));
    return lib_core_submit(core);
}

/* [host, last finished, seconds since, joined, (name, seconds)...] */
static int put_answer(const lib_core *core, lib_bytes *to)
{
    double since = core->now - core->finished_at;
    KOLO_TRY(lib_put_text(to, core->c.host, strlen(core->c.host)));
    KOLO_TRY(lib_put_text(to, core->finished, strlen(core->finished)));
    KOLO_TRY(lib_put(to, &since, sizeof since));
    KOLO_TRY(lib_put_number(to, core->joined));
    for (const lib_bundle *unit = core->first; unit; unit = unit->after)
        for (int64_t i = 0; i < unit->entries; i++) {
            double age = core->now - unit->since;
            KOLO_TRY(lib_put_text(to, unit->entry[i]->r.name, strlen(unit->entry[i]->r.name)));
            KOLO_TRY(lib_put(to, &age, sizeof age));
        }
    return 0;
}

int lib_stall_answer(lib_core *core, uint64_t question)
{
    lib_bytes *item = &core->item;
    KOLO_TRY(lib_core_item(core, LIB_ANSWER, question));
    KOLO_TRY(lib_put_number(item, 0));
    KOLO_TRY(put_answer(core, item));
    int64_t bytes = item->size - 32;
    memcpy(item->data + 24, &bytes, sizeof bytes);
    return lib_core_submit(core);
}

/* lib_root_item has read the number of bytes: the answer is all that is left of its item. */
int lib_stall_answered(lib_core *core, int member, uint64_t question, int64_t bytes, lib_reader *from)
{
    lib_root *root = core->root;
    const void *data = bytes > 0 ? lib_take(from, (size_t)bytes) : NULL;
    if (!data) return from->bad = true, 0;
    if (question != root->question || !root->answers || root->answer[member].size) return 0;
    root->answers--;
    return lib_put(&root->answer[member], data, (size_t)bytes);
}

/* ---- the report ---------------------------------------------------------------------------------------- */

typedef struct late {
    lib_link link;
    struct late *next;
    const char *name;
    double age;
    int *has; /* [members] 1: submitted, 2: joined, 0: neither */
} late;

typedef struct member_says {
    const char *host, *finished;
    double since;
    bool joined;
    lib_reader names;
} member_says;

static member_says read_answer(const lib_bytes *answer)
{
    lib_reader from = {.at = answer->data, .end = answer->data + answer->size};
    member_says says = {.host = lib_take_text(&from, NULL), .finished = lib_take_text(&from, NULL)};
    const double *since = lib_take(&from, sizeof *since);
    says.since = since ? *since : 0;
    says.joined = lib_take_number(&from);
    says.names = from;
    return says;
}

static const char *next_name(lib_reader *from, double *age)
{
    if (from->bad || from->at >= from->end) return NULL;
    const char *name = lib_take_text(from, NULL);
    const double *seconds = lib_take(from, sizeof *seconds);
    *age = seconds ? *seconds : 0;
    return from->bad ? NULL : name;
}

static late *late_of(lib_map *map, late **list, const char *name, int members)
{
    uint64_t hash = lib_hash(name, strlen(name));
    for (lib_link *link = lib_map_find(map, hash); link; link = lib_map_again(link))
        if (strcmp(((late *)link)->name, name) == 0) return (late *)link;
    late *l = kolo_alloc(sizeof *l + (size_t)members * sizeof(int));
    if (!l) return NULL;
    l->name = name;
    l->has = (int *)(l + 1);
    if (lib_map_add(map, &l->link, hash) < 0) {
        free(l);
        return NULL;
    }
    l->next = *list;
    *list = l;
    return l;
}

static int gather(lib_core *core, lib_map *map, late **list)
{
    int n = core->c.members;
    double age;
    for (int m = 0; m < n; m++) {
        member_says says = read_answer(&core->root->answer[m]);
        for (const char *name; core->root->answer[m].size && (name = next_name(&says.names, &age));) {
            late *l = late_of(map, list, name, n);
            if (!l) return KOLO_ENOMEM;
            l->has[m] = 1;
            if (age > l->age) l->age = age;
        }
    }
    for (late *l = *list; l; l = l->next)
        for (int m = 0; m < n; m++)
            if (!l->has[m] && core->root->joined[m]) l->has[m] = 2;
    return 0;
}

/* Somebody has not submitted it, and it has not begun since all were asked. */
static bool still_waits(lib_core *core, const late *l)
{
    int missing = 0;
    for (int m = 0; m < core->c.members; m++) missing += !l->has[m];
    if (!missing) return false;
    const lib_name *name = lib_root_name(core, l->name, false, NULL);
    if (name && name->claimed) return name->made <= core->root->asked_at;
    for (int64_t s = 0; s < core->c.capacity; s++) {
        const lib_slot *slot = core->slot[s];
        if (!slot || !slot->used) continue;
        for (int64_t i = 0; i < slot->wants.wants; i++)
            if (strcmp(slot->wants.want[i].r.name, l->name) == 0)
                return !lib_bit(core->passed, s) && slot->begun <= core->root->asked_at;
    }
    return false;
}

static void add_rank(const lib_core *core, int m, char *text)
{
    const lib_bytes *answer = &core->root->answer[m];
    int rank = core->c.rank_of ? core->c.rank_of[m] : m, shown = 0;
    if (!answer->size) {
        kolo_append(text, REPORT, "\n  rank %d does not answer", rank);
        return;
    }
    member_says says = read_answer(answer);
    double age;
    kolo_append(text, REPORT, "\n  rank %d (%.100s) ", rank, says.host);
    if (says.finished[0])
        kolo_append(text, REPORT, "finished \"%.100s\" last, %.0f s ago, and ", says.finished, says.since);
    else kolo_append(text, REPORT, "has finished nothing yet and ");
    for (const char *name; (name = next_name(&says.names, &age));)
        if (++shown <= NAMES_SHOWN)
            kolo_append(text, REPORT, "%s\"%.100s\"", shown == 1 ? "waits for " : ", ", name);
    if (!shown) kolo_append(text, REPORT, "has submitted nothing");
    else if (shown > NAMES_SHOWN) kolo_append(text, REPORT, " and %d more", shown - NAMES_SHOWN);
}

static void write_report(const lib_core *core, const late *list, char *text)
{
    int names = 0, ranks = 0;
    char missing[256];
    snprintf(text, REPORT,
             "comm: group %d waits for names that some ranks have not submitted:", core->c.group);
    for (const late *l = list; l; l = l->next) {
        if (++names > NAMES_SHOWN) continue;
        lib_write_ranks(core, l->has, 0, missing, sizeof missing);
        kolo_append(text, REPORT, "\n  \"%.100s\", for %.0f s: missing on %s", l->name, l->age, missing);
    }
    if (names > NAMES_SHOWN) kolo_append(text, REPORT, "\n  and %d more", names - NAMES_SHOWN);
    for (int m = 0; m < core->c.members; m++) {
        bool lacks = false;
        for (const late *l = list; l; l = l->next) lacks |= !l->has[m];
        if (lacks && ++ranks <= RANKS_SHOWN) add_rank(core, m, text);
    }
}

static int end_name(lib_core *core, const late *l)
{
    char missing[256], text[800];
    int rc = 0;
    lib_write_ranks(core, l->has, 0, missing, sizeof missing);
    snprintf(text, sizeof text,
             "\"%.200s\" was given up after %.0f s (KOLO_COMM_STALL_END): %s of group %d did not submit it",
             l->name, l->age, missing, core->c.group);
    lib_want want = {.r.name = l->name};
    lib_descriptors wants = {.want = &want, .wants = 1};
    lib_name *name = lib_root_name(core, l->name, true, &rc);
    if (!name) return rc;
    if (name->failed == core->seen + 1) return 0; /* with others of its bundle */
    KOLO_TRY(lib_root_doom(core, &wants));
    for (int m = 0; m < core->c.members; m++) name->killed[m] = l->has[m] == 1;
    return lib_root_fail(core, name, text);
}

/* Leaves what is to be reported, oldest first, and frees the rest. */
static void keep_late(lib_core *core, lib_map *map, late **list)
{
    double warning = core->c.stall_warning, end = core->c.stall_end;
    late *kept = NULL;
    for (late *l = *list, *next; l; l = next) {
        next = l->next;
        if ((past(warning, l->age) || past(end, l->age)) && still_waits(core, l)) {
            late **at = &kept;
            while (*at && ((*at)->age > l->age || ((*at)->age == l->age && strcmp((*at)->name, l->name) < 0)))
                at = &(*at)->next;
            l->next = *at;
            *at = l;
        } else {
            lib_map_remove(map, &l->link);
            free(l);
        }
    }
    *list = kept;
}

int lib_stall_report(lib_core *core)
{
    lib_root *root = core->root;
    if (!root->asked_at || (root->answers && core->now < root->asked + answer_seconds)) return 0;
    lib_map map = {0};
    late *list = NULL;
    char *text = kolo_alloc(REPORT);
    int rc = text ? gather(core, &map, &list) : KOLO_ENOMEM;
    if (rc == 0) keep_late(core, &map, &list);
    if (rc == 0 && list) {
        write_report(core, list, text);
        kolo_log(KOLO_LOG_WARN, "%s", text);
    }
    for (const late *l = list; l && rc == 0; l = l->next)
        if (past(core->c.stall_end, l->age)) rc = end_name(core, l);
    while (list) {
        late *next = list->next;
        free(list);
        list = next;
    }
    lib_map_free(&map);
    free(text);
    root->answers = 0;
    root->asked_at = 0;
    return rc;
}
