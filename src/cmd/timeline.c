/* kolo timeline merge FOLDER: the Chrome traces of all ranks as one, on rank 0's clock. Files whose end is
 * missing are read as far as they go. */
#include "cmd/cmd.h"

#include <cjson/cJSON.h>
#include <errno.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/file.h"
#include "base/memory.h"
#include "base/temp_file.h"
#include "comm/library/timeline.h"
#include "kolo/error.h"

typedef struct merge {
    FILE *out;
    long events, broken, lost;
    double error; /* greatest of the clocks, seconds */
    int ranks, unaligned;
} merge;

static double number_in(const cJSON *object, const char *key)
{
    const cJSON *value = cJSON_GetObjectItemCaseSensitive(object, key);
    return cJSON_IsNumber(value) ? value->valuedouble : 0;
}

static bool is_clock(const cJSON *event)
{
    const cJSON *name = cJSON_GetObjectItemCaseSensitive(event, "name");
    return cJSON_IsString(name) && strcmp(name->valuestring, "kolo_clock") == 0;
}

static long lost_in(const cJSON *event)
{
    const cJSON *name = cJSON_GetObjectItemCaseSensitive(event, "name");
    if (!cJSON_IsString(name) || strcmp(name->valuestring, "kolo_lost") != 0) return 0;
    return (long)number_in(cJSON_GetObjectItemCaseSensitive(event, "args"), "events");
}

static int write_event(merge *m, cJSON *event, double offset)
{
    cJSON *ts = cJSON_GetObjectItemCaseSensitive(event, "ts");
    if (cJSON_IsNumber(ts)) cJSON_SetNumberHelper(ts, ts->valuedouble + offset * 1e6);
    char *text = cJSON_PrintUnformatted(event);
    if (!text) return kolo_fail(KOLO_ENOMEM, "out of memory for an event");
    fprintf(m->out, "%s%s", m->events++ ? ",\n" : "[\n", text);
    cJSON_free(text);
    return 0;
}

/* One event a line, as the ranks write them. */
static int merge_line(merge *m, char *line, double *offset, bool *aligned)
{
    size_t end = strcspn(line, "\r\n");
    while (end && strchr(", \t", line[end - 1])) end--;
    line[end] = 0;
    if (!*line || strcmp(line, "[") == 0 || strcmp(line, "]") == 0) return 0;
    cJSON *event = cJSON_Parse(line);
    int rc = 0;
    if (!cJSON_IsObject(event)) {
        m->broken++;
    } else if (is_clock(event)) {
        const cJSON *clock = cJSON_GetObjectItemCaseSensitive(event, "args");
        *offset = round(number_in(clock, "offset") * 1e9) / 1e9; /* times are whole nanoseconds */
        *aligned = true;
        if (number_in(clock, "error") > m->error) m->error = number_in(clock, "error");
    } else {
        m->lost += lost_in(event);
        rc = write_event(m, event, *offset);
    }
    cJSON_Delete(event);
    return rc;
}

/* Half of what a rank has; *found where there is such a file. */
static int merge_file(merge *m, const char *path, double *offset, bool *aligned, bool *found)
{
    FILE *in = fopen(path, "r");
    if (!in && errno == ENOENT) return 0;
    if (!in) return kolo_fail(KOLO_EIO, "%s: %s", path, strerror(errno));
    *found = true;
    char *line = NULL;
    size_t room = 0;
    int rc = 0;
    while (rc == 0 && getline(&line, &room, in) > 0) rc = merge_line(m, line, offset, aligned);
    if (rc == 0 && ferror(in)) rc = kolo_fail(KOLO_EIO, "%s: %s", path, strerror(errno));
    free(line);
    fclose(in);
    return rc;
}

static int merge_rank(merge *m, const char *folder, int rank)
{
    double offset = 0;
    bool aligned = false, found = false;
    int rc = 0;
    for (int newer = 0; newer < 2 && rc == 0; newer++) {
        char *path = kolo_format("%s/rank-%d%s.json", folder, rank, newer ? "" : ".older");
        rc = path ? merge_file(m, path, &offset, &aligned, &found) : KOLO_ENOMEM;
        free(path);
    }
    m->ranks += found;
    m->unaligned += found && !aligned;
    return rc;
}

static int merge_all(merge *m, const char *folder)
{
    int *rank, ranks = lib_timeline_ranks(folder, &rank), rc = ranks < 0 ? ranks : 0;
    if (ranks == 0)
        rc = kolo_fail(KOLO_EINPUT, "%s: no rank-N.json there; a job writes them with KOLO_COMM_TIMELINE=%s",
                       folder, folder);
    for (int i = 0; i < ranks && rc == 0; i++) rc = merge_rank(m, folder, rank[i]);
    free(rank);
    if (rc == 0) fputs(m->events ? "\n]\n" : "[]\n", m->out);
    return rc;
}

static int merge_folder(const char *folder)
{
    merge m = {0};
    if (!kolo_folder_exists(folder))
        return kolo_fail(KOLO_EINPUT, "%s: there is no such folder; give what KOLO_COMM_TIMELINE named",
                         folder);
    char *path = kolo_format("%s/timeline.json", folder);
    kolo_temp_file temp;
    int rc = path ? kolo_temp_open(&temp, path) : KOLO_ENOMEM;
    if (rc == 0) {
        const int own = dup(temp.fd);
        if (own >= 0) m.out = fdopen(own, "w");
        rc = m.out ? merge_all(&m, folder) : kolo_fail(KOLO_EIO, "%s: %s", path, strerror(errno));
        if (m.out && (ferror(m.out) | fclose(m.out)) && rc == 0)
            rc = kolo_fail(KOLO_EIO, "%s: %s", path, strerror(errno));
        rc = kolo_temp_commit(&temp, path, rc);
    }
    if (rc == 0) {
        printf("%s: %ld events of %d ranks, clocks known to %.1f us\n", path, m.events, m.ranks,
               m.error * 1e6);
        if (m.lost) printf("%ld events were lost: they came faster than they could be written\n", m.lost);
        if (m.broken) printf("%ld lines that are no whole event were left out\n", m.broken);
        if (m.unaligned)
            printf("%d ranks do not say how their clock differs: their times stand as they are\n",
                   m.unaligned);
    }
    free(path);
    return rc;
}

int kolo_command_timeline(int n, char **words)
{
    if (n != 2 || strcmp(words[0], "merge") != 0)
        return kolo_fail(KOLO_ECONFIG,
                         "which folder? kolo timeline merge FOLDER, what KOLO_COMM_TIMELINE named");
    return merge_folder(words[1]);
}
