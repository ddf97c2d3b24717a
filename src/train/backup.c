#include "train/backup.h"

#include <cjson/cJSON.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/memory.h"
#include "kolo/error.h"

/* What events.jsonl of a run says of its steps. */
typedef struct record {
    const char *folder;
    uint64_t *counted; /* [steps][words] */
    int64_t steps, found;
    int ranks, words, backup;
} record;

static double number_of(const cJSON *event, const char *key)
{
    const cJSON *value = cJSON_GetObjectItemCaseSensitive(event, key);
    return cJSON_IsNumber(value) ? value->valuedouble : -1;
}

static int other_run(const record *r, const char *what, long there, long here)
{
    return kolo_fail(
        KOLO_ECONFIG,
        "backup_replay=%s: that run has %s %ld, this one %ld; which gradients count is of as many: "
        "start it alike",
        r->folder, what, there, here);
}

/* A step that ranks have dropped gradients of. */
static int take_step(record *r, const cJSON *event)
{
    const cJSON *dropped = cJSON_GetObjectItemCaseSensitive(event, "dropped"), *rank;
    const int64_t step = (int64_t)number_of(event, "step") - 1;
    if (!cJSON_IsArray(dropped) || step != r->found)
        return kolo_fail(
            KOLO_EINPUT,
            "backup_replay=%s: its events.jsonl does not say which gradients counted in step %" PRId64
            "; it must be of a run with sync=backup, from its first step on",
            r->folder, r->found + 1);
    if (cJSON_GetArraySize(dropped) != r->backup)
        return other_run(r, "backup=", cJSON_GetArraySize(dropped), r->backup);
    uint64_t *set = r->counted + step * r->words;
    for (int i = 0; i < r->ranks; i++) set[i / 64] |= (uint64_t)1 << i % 64;
    cJSON_ArrayForEach(rank, dropped)
    {
        const double i = cJSON_IsNumber(rank) ? rank->valuedouble : -1;
        if (!(i >= 0 && i < r->ranks))
            return kolo_fail(KOLO_EINPUT, "backup_replay=%s: step %" PRId64 " has dropped a rank %g of %d",
                             r->folder, step + 1, i, r->ranks);
        set[(int)i / 64] &= ~((uint64_t)1 << (int)i % 64);
    }
    r->found++;
    return 0;
}

static int take_event(record *r, const cJSON *event)
{
    const char *name = cJSON_GetStringValue(cJSON_GetObjectItemCaseSensitive(event, "event"));
    if (name && !strcmp(name, "start") && (int)number_of(event, "ranks") != r->ranks)
        return other_run(r, "ranks:", (long)number_of(event, "ranks"), r->ranks);
    return name && !strcmp(name, "step") && r->found < r->steps ? take_step(r, event) : 0;
}

static int read_record(record *r)
{
    char *path = kolo_format("%s/events.jsonl", r->folder), *line = NULL;
    size_t capacity = 0;
    ssize_t n;
    int rc = path ? 0 : KOLO_ENOMEM;
    FILE *f = path ? fopen(path, "r") : NULL;
    if (path && !f)
        rc = kolo_fail(KOLO_EINPUT, "backup_replay=%s: it has no events.jsonl; give the folder of a run",
                       r->folder);
    while (f && rc == 0 && (n = getline(&line, &capacity, f)) > 0) {
        cJSON *event = line[n - 1] == '\n' ? cJSON_Parse(line) : NULL;
        rc = take_event(r, event);
        cJSON_Delete(event);
    }
    if (f) fclose(f);
    free(line);
    free(path);
    if (rc < 0 || r->found == r->steps) return rc;
    return kolo_fail(KOLO_ECONFIG,
                     "backup_replay=%s has recorded %" PRId64 " steps, this run has %" PRId64
                     "; give steps=%" PRId64 " or less",
                     r->folder, r->found, r->steps, r->found);
}

static int open_record(trainer *t)
{
    const kolo_plan_config *c = &t->session.plan->config;
    record r = {.folder = t->options->backup_replay,
                .steps = t->session.steps,
                .ranks = c->ranks,
                .words = (c->ranks + 63) / 64,
                .backup = c->backup};
    if (*r.folder) kolo_exec_replay(t->session.exec, NULL, 0);
    if (!is_root(t) || !*r.folder) return 0;
    r.counted = t->counted = kolo_alloc((size_t)(r.steps + 1) * (size_t)r.words * sizeof *r.counted);
    if (!r.counted) return KOLO_ENOMEM;
    KOLO_TRY(read_record(&r));
    kolo_exec_replay(t->session.exec, r.counted, r.steps);
    return 0;
}

int trainer_open_backup(trainer *t)
{
    const kolo_plan_config *c = &t->session.plan->config;
    if (!c->lag) return 0;
    if (!(t->dropped = kolo_alloc((size_t)(c->backup + 1) * sizeof *t->dropped))) return KOLO_ENOMEM;
    return kolo_comm_agree(t->session.comm, open_record(t));
}

void trainer_close_backup(trainer *t)
{
    free(t->dropped);
    free(t->counted);
}
