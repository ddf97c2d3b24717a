#include "report/late_counts.h"

#include <stdlib.h>
#include <string.h>

#include "base/memory.h"
#include "kolo/error.h"

int kolo_late_counts_open(kolo_late_counts *c, int64_t ranks)
{
    *c = (kolo_late_counts){.ranks = 0};
    while (c->capacity < ranks)
        KOLO_TRY(kolo_grow(&c->dropped, &c->capacity, c->capacity, sizeof *c->dropped));
    if (c->capacity) memset(c->dropped, 0, (size_t)c->capacity * sizeof *c->dropped);
    c->ranks = ranks;
    return 0;
}

void kolo_late_counts_close(kolo_late_counts *c)
{
    free(c->dropped);
    *c = (kolo_late_counts){.dropped = NULL};
}

static int add_dropped(kolo_late_counts *c, int64_t rank)
{
    while (c->ranks <= rank) {
        KOLO_TRY(kolo_grow(&c->dropped, &c->capacity, c->ranks, sizeof *c->dropped));
        c->dropped[c->ranks++] = 0;
    }
    c->dropped[rank]++;
    return 0;
}

static void add_stale(kolo_late_counts *c, int64_t updates)
{
    c->gradients++;
    c->sum += (double)updates;
    c->stale[updates < LATE_COUNTS ? updates : LATE_COUNTS - 1]++;
    if (updates > c->most) c->most = updates;
}

int kolo_late_counts_add(kolo_late_counts *c, const cJSON *event)
{
    static const double most_ranks = 1 << 20;
    const cJSON *stale = cJSON_GetObjectItemCaseSensitive(event, "staleness"),
                *dropped = cJSON_GetObjectItemCaseSensitive(event, "dropped"), *one;
    if (cJSON_IsArray(stale))
        cJSON_ArrayForEach(one, stale) if (cJSON_IsNumber(one) && one->valuedouble >= 0 &&
                                           one->valuedouble < 0x1p53) add_stale(c, (int64_t)one->valuedouble);
    if (!cJSON_IsArray(dropped)) return 0;
    c->steps++;
    cJSON_ArrayForEach(one, dropped)
    {
        if (cJSON_IsNumber(one) && one->valuedouble >= 0 && one->valuedouble < most_ranks)
            KOLO_TRY(add_dropped(c, (int64_t)one->valuedouble));
    }
    return 0;
}

int kolo_late_counts_read(kolo_late_counts *c, const char *run_folder)
{
    char *path = kolo_format("%s/events.jsonl", run_folder), *line = NULL;
    size_t capacity = 0;
    ssize_t n;
    int rc = path ? 0 : KOLO_ENOMEM;
    FILE *f = path ? fopen(path, "r") : NULL;
    while (f && rc == 0 && (n = getline(&line, &capacity, f)) > 0) {
        if (!strstr(line, "\"staleness\"") && !strstr(line, "\"dropped\"")) continue;
        cJSON *event = cJSON_Parse(line);
        rc = kolo_late_counts_add(c, event);
        cJSON_Delete(event);
    }
    if (f) fclose(f);
    free(line);
    free(path);
    return rc;
}

/* Counts are told as far as there are any. */
static int last_of(const kolo_late_counts *c)
{
    int last = LATE_COUNTS - 1;
    while (last > 0 && c->stale[last] == 0) last--;
    return last;
}

void kolo_late_counts_write(const kolo_late_counts *c, FILE *f)
{
    if (c->gradients) {
        fprintf(f, ",\n  \"staleness\": {\"mean\": %.6g, \"most\": %lld, \"counts\": [",
                kolo_late_counts_mean(c), (long long)c->most);
        for (int i = 0; i <= last_of(c); i++) fprintf(f, "%s%lld", i ? ", " : "", (long long)c->stale[i]);
        fputs("]}", f);
    }
    if (!c->steps) return;
    fputs(",\n  \"dropped_by_rank\": [", f);
    for (int64_t r = 0; r < c->ranks; r++) fprintf(f, "%s%lld", r ? ", " : "", (long long)c->dropped[r]);
    fputc(']', f);
}

void kolo_late_counts_text(const kolo_late_counts *c, char *stale, char *dropped, size_t size)
{
    *stale = *dropped = 0;
    if (c->gradients)
        kolo_append(stale, size, "mean %.3g, most %lld;", kolo_late_counts_mean(c), (long long)c->most);
    for (int i = 0; c->gradients && i <= last_of(c); i++)
        if (c->stale[i])
            kolo_append(stale, size, " %d%s: %lld", i, i == LATE_COUNTS - 1 ? " or more" : "",
                        (long long)c->stale[i]);
    for (int64_t r = 0; c->steps && r < c->ranks; r++)
        kolo_append(dropped, size, "%s%lld", r ? ", " : "", (long long)c->dropped[r]);
    if (c->steps) kolo_append(dropped, size, " of %lld steps, by rank", (long long)c->steps);
}
