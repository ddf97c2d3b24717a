/* Names that some members have submitted and others not, for too long. Claims tell the coordinator who has
 * submitted them; of a slot whose bit waits a member tells it, and the slot is taken, so that all claim. Then
 * it asks all members what they do and writes one report. After stall_end such names fail. */
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

/* The first of the two that passes. */
static double first_limit(const lib_core_config *c)
{
    return c->stall_warning > 0 && (c->stall_end <= 0 || c->stall_warning < c->stall_end) ? c->stall_warning
                                                                                          : c->stall_end;
}

static bool is_late(const lib_core *core, const lib_name *name)
{
    return name->claimed && !name->any && name->name.data[0] != LIB_UNNAMED &&
           past(first_limit(&core->c), core->now - name->since);
}

int lib_stall_look(lib_core *core)
{
    const double limit = first_limit(&core->c);
    if (core->now < core->next_look) return 0;
    core->next_look = core->now + (limit > 0 ? limit / 8 : 60);
    for (lib_bundle *unit = core->first; unit && past(limit, core->now - unit->since); unit = unit->after) {
        if (unit->slot < 0 || unit->stalled) continue;
        unit->stalled = true;
        KOLO_TRY(lib_core_item(core, LIB_STALLED, core->seen));
        KOLO_TRY(lib_put_number(&core->item, unit->slot));
        KOLO_TRY(lib_core_submit(core));
    }
    const lib_map *names = core->root ? &core->root->names : NULL;
    for (lib_name *n = names ? lib_map_next(names, NULL) : NULL; n; n = lib_map_next(names, &n->link))
        core->root->ask |= is_late(core, n) && (!n->warned || past(core->c.stall_end, core->now - n->since));
    return 0;
}

/* What all are ready for meanwhile begins. */
int lib_stall_slot(lib_core *core, int64_t s, uint64_t seen)
{
    lib_slot *slot = s >= 0 && s < core->c.capacity ? core->slot[s] : NULL;
    if (!slot || !slot->used || seen < slot->changed || lib_bit(core->passed, s)) return 0;
    return lib_root_doom(core, slot);
}

int lib_stall_answer(lib_core *core, uint64_t question)
{
    char text[1024];
    int shown = 0;
    snprintf(text, sizeof text, "(%.100s) ", core->c.host);
    if (core->finished[0])
        kolo_append(text, sizeof text, "finished \"%.100s\" last, %.0f s ago, and ", core->finished,
                    core->now - core->finished_at);
    else kolo_append(text, sizeof text, "has finished nothing yet and ");
    for (const lib_bundle *unit = core->first; unit; unit = unit->after)
        for (int64_t i = 0; i < unit->entries; i++)
            if (++shown <= NAMES_SHOWN)
                kolo_append(text, sizeof text, "%s\"%.100s\"", shown == 1 ? "waits for " : ", ",
                            unit->entry[i]->r.name);
    if (!shown) kolo_append(text, sizeof text, "has submitted nothing");
    else if (shown > NAMES_SHOWN) kolo_append(text, sizeof text, " and %d more", shown - NAMES_SHOWN);
    KOLO_TRY(lib_core_item(core, LIB_ANSWER, question));
    KOLO_TRY(lib_put_text(&core->item, text));
    return lib_core_submit(core);
}

int lib_stall_answered(lib_core *core, int member, uint64_t question, const char *answer)
{
    lib_root *root = core->root;
    if (question != root->question || !root->answers || root->answer[member].size) return 0;
    root->answers--;
    return lib_put(&root->answer[member], answer, strlen(answer) + 1);
}

/* ---- the report ---------------------------------------------------------------------------------------- */

static bool lacks(const lib_core *core, const lib_name *name, int m)
{
    return !name->by[m] && !core->root->joined[m];
}

static void write_report(const lib_core *core, lib_name *const *late, int64_t names, char *text)
{
    int ranks = 0;
    char missing[256];
    snprintf(text, REPORT,
             "comm: group %d waits for names that some ranks have not submitted:", core->c.group);
    for (int64_t i = 0; i < names && i < NAMES_SHOWN; i++) {
        lib_write_ranks(core, late[i], lacks, missing, sizeof missing);
        kolo_append(text, REPORT, "\n  \"%.100s\", for %.0f s: missing on %s", late[i]->name.data,
                    core->now - late[i]->since, missing);
    }
    if (names > NAMES_SHOWN) kolo_append(text, REPORT, "\n  and %ld more", (long)names - NAMES_SHOWN);
    for (int m = 0; m < core->c.members; m++) {
        const lib_bytes *answer = &core->root->answer[m];
        int64_t i = 0;
        while (i < names && !lacks(core, late[i], m)) i++;
        if (i < names && ++ranks <= RANKS_SHOWN)
            kolo_append(text, REPORT, "\n  rank %d %s", core->c.rank_of[m],
                        answer->size ? answer->data : "does not answer");
    }
}

static int end_name(lib_core *core, lib_name *name)
{
    char missing[256], text[800];
    lib_write_ranks(core, name, lacks, missing, sizeof missing);
    snprintf(text, sizeof text,
             "\"%.200s\" was given up after %.0f s (KOLO_COMM_STALL_END): %s of group %d did not submit it",
             name->name.data, core->now - name->since, missing, core->c.group);
    return lib_root_fail(core, name, text);
}

static int oldest_first(const void *left, const void *right)
{
    const lib_name *l = *(lib_name *const *)left, *r = *(lib_name *const *)right;
    return l->since != r->since ? (l->since > r->since) - (l->since < r->since)
                                : strcmp(l->name.data, r->name.data);
}

int lib_stall_report(lib_core *core)
{
    lib_root *root = core->root;
    int64_t names = 0;
    int rc = 0;
    if (!root->asking || (root->answers && core->now < root->asked + answer_seconds)) return 0;
    root->asking = false;
    root->answers = 0;
    lib_name **late = kolo_alloc((size_t)(root->names.count + 1) * sizeof(lib_name *));
    char *text = kolo_alloc(REPORT);
    if (!late || !text) rc = KOLO_ENOMEM;
    for (lib_name *n = NULL; rc == 0 && (n = lib_map_next(&root->names, n ? &n->link : NULL));)
        if (is_late(core, n)) late[names++] = n;
    if (names) {
        qsort(late, (size_t)names, sizeof *late, oldest_first);
        write_report(core, late, names, text);
        kolo_log(KOLO_LOG_WARN, "%s", text);
    }
    for (int64_t i = 0; i < names && rc == 0; i++) {
        late[i]->warned = true;
        /* others of a bundle may have ended with one before them */
        if (late[i]->claimed && past(core->c.stall_end, core->now - late[i]->since))
            rc = end_name(core, late[i]);
    }
    free(late);
    free(text);
    return rc;
}
