/* RUN/summary.json: how the run stands, for people, scripts and the next start. */
#include <cjson/cJSON.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/file.h"
#include "base/json.h"
#include "base/memory.h"
#include "kolo/error.h"
#include "report/report.h"

/* SCORE: null where there is none */
enum field_type { FIELD_TEXT, FIELD_INT, FIELD_COUNT, FIELD_BYTES, FIELD_REAL, FIELD_SCORE };
typedef struct field {
    const char *key;
    enum field_type type;
    size_t offset, size;
} field;

#define FIELD(name, type)                                                               \
    {                                                                                   \
#name, type, offsetof(kolo_summary, name), sizeof(((kolo_summary *)NULL)->name) \
    }
static const field fields[] = {
    FIELD(run_id, FIELD_TEXT),
    FIELD(state, FIELD_TEXT),
    FIELD(model, FIELD_TEXT),
    FIELD(version, FIELD_TEXT),
    FIELD(account, FIELD_TEXT),
    FIELD(partition, FIELD_TEXT),
    FIELD(job, FIELD_TEXT),
    FIELD(steps, FIELD_COUNT),
    FIELD(repeated_steps, FIELD_COUNT),
    FIELD(restarts, FIELD_COUNT),
    FIELD(epochs, FIELD_COUNT),
    FIELD(loss, FIELD_SCORE),
    FIELD(top1, FIELD_SCORE),
    FIELD(top5, FIELD_SCORE),
    FIELD(best_top1, FIELD_SCORE),
    FIELD(img_per_s, FIELD_REAL),
    FIELD(ap, FIELD_SCORE),
    FIELD(ap50, FIELD_SCORE),
    FIELD(best_ap, FIELD_SCORE),
    FIELD(map, FIELD_SCORE),
    FIELD(ap_micro, FIELD_SCORE),
    FIELD(best_map, FIELD_SCORE),
    FIELD(metric, FIELD_TEXT),
    FIELD(wait_share, FIELD_REAL),
    FIELD(wall_seconds, FIELD_REAL),
    FIELD(ranks, FIELD_INT),
    FIELD(nodes, FIELD_INT),
    FIELD(threads, FIELD_INT),
    FIELD(peak_bytes, FIELD_BYTES),
    FIELD(planned_bytes, FIELD_BYTES),
    FIELD(node_hours, FIELD_REAL),
    FIELD(mb_per_s, FIELD_REAL),
    FIELD(cache_hits, FIELD_COUNT),
    FIELD(bad_samples, FIELD_COUNT),
    FIELD(next, FIELD_TEXT),
    FIELD(useful_batch, FIELD_SCORE),
    FIELD(step_seconds, FIELD_REAL),
    FIELD(predicted_step_seconds, FIELD_SCORE),
};
enum { FIELDS = sizeof fields / sizeof *fields };

static void write_value(FILE *f, const field *of, const void *at)
{
    switch (of->type) {
    case FIELD_TEXT: kolo_json_string(f, at); break;
    case FIELD_INT: fprintf(f, "%d", *(const int *)at); break;
    case FIELD_COUNT: fprintf(f, "%lld", (long long)*(const int64_t *)at); break;
    case FIELD_BYTES: fprintf(f, "%llu", (unsigned long long)*(const uint64_t *)at); break;
    case FIELD_REAL: kolo_json_number(f, *(const double *)at, 9); break;
    case FIELD_SCORE:
        kolo_json_number(f, *(const double *)at < 0 ? (double)NAN : *(const double *)at, 9);
        break;
    }
}

static void write_by_rank(FILE *f, const char *key, const uint64_t *bytes, int ranks)
{
    fprintf(f, ",\n  \"%s\": [", key);
    for (int r = 0; r < ranks; r++) fprintf(f, "%s%llu", r ? ", " : "", (unsigned long long)bytes[r]);
    fputc(']', f);
}

static void write_pipeline(FILE *f, const kolo_summary *s)
{
    if (!s->stages) return;
    fprintf(f, ",\n  \"grid\": {\"stage\": %d, \"data\": %d, \"shard\": 1, \"space\": 1, \"tensor\": 1}",
            s->stages, s->replicas);
    write_by_rank(f, "planned_bytes_by_rank", s->planned_by_rank, s->stages * s->replicas);
    write_by_rank(f, "peak_bytes_by_rank", s->peak_by_rank, s->stages * s->replicas);
}

int kolo_summary_write(const char *run_folder, const kolo_summary *summary)
{
    char *text = NULL, *path = kolo_format("%s/summary.json", run_folder);
    size_t bytes = 0;
    FILE *f = path ? open_memstream(&text, &bytes) : NULL;
    int rc = f ? 0 : kolo_fail(KOLO_ENOMEM, "%s: out of memory while writing the summary", run_folder);
    if (f) {
        for (int i = 0; i < FIELDS; i++) {
            fprintf(f, "%s\n  \"%s\": ", i ? "," : "{", fields[i].key);
            write_value(f, &fields[i], (const char *)summary + fields[i].offset);
        }
        write_pipeline(f, summary);
        if (summary->late) kolo_late_counts_write(summary->late, f);
        fputs("\n}\n", f);
        if (fclose(f) != 0) rc = kolo_fail(KOLO_ENOMEM, "%s: out of memory", path);
    }
    if (rc == 0) rc = kolo_file_write_atomic(path, text, bytes);
    free(text);
    free(path);
    return rc;
}

static double bounded(const cJSON *value, double low, double high)
{
    double v = cJSON_IsNumber(value) ? value->valuedouble : 0;
    return v < low ? low : v > high ? high : v;
}

static void read_value(const field *of, const cJSON *value, void *at)
{
    switch (of->type) {
    case FIELD_TEXT: snprintf(at, of->size, "%s", cJSON_IsString(value) ? value->valuestring : ""); break;
    case FIELD_INT: *(int *)at = (int)bounded(value, 0, 0x1p30); break;
    case FIELD_COUNT: *(int64_t *)at = (int64_t)bounded(value, 0, 0x1p53); break;
    case FIELD_BYTES: *(uint64_t *)at = (uint64_t)bounded(value, 0, 0x1p53); break;
    case FIELD_REAL: *(double *)at = bounded(value, -HUGE_VAL, HUGE_VAL); break;
    case FIELD_SCORE: *(double *)at = cJSON_IsNumber(value) ? value->valuedouble : -1; break;
    }
}

int kolo_summary_read(const char *run_folder, kolo_summary *summary)
{
    char *path = kolo_format("%s/summary.json", run_folder), *text = NULL;
    if (!path) return KOLO_ENOMEM;
    int rc = kolo_file_exists(path) ? kolo_file_read(path, &text, NULL) : 1;
    cJSON *object = rc == 0 ? cJSON_Parse(text) : NULL;
    if (cJSON_IsObject(object)) {
        *summary = (kolo_summary){.steps = 0};
        for (int i = 0; i < FIELDS; i++)
            read_value(&fields[i], cJSON_GetObjectItemCaseSensitive(object, fields[i].key),
                       (char *)summary + fields[i].offset);
    }
    bool found = cJSON_IsObject(object);
    cJSON_Delete(object);
    free(text);
    free(path);
    return rc < 0 ? rc : found; /* a summary that cannot be read is as good as none */
}

static void copy_environment(char *to, size_t size, const char *name)
{
    const char *value = getenv(name);
    if (value) snprintf(to, size, "%s", value);
}

void kolo_summary_environment(kolo_summary *summary)
{
    copy_environment(summary->account, sizeof summary->account, "SLURM_JOB_ACCOUNT");
    copy_environment(summary->partition, sizeof summary->partition, "SLURM_JOB_PARTITION");
    copy_environment(summary->job, sizeof summary->job, "SLURM_JOB_ID");
    snprintf(summary->version, sizeof summary->version, "%s", KOLO_VERSION);
}
