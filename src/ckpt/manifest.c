#include "ckpt/manifest.h"

#include <cjson/cJSON.h>
#include <inttypes.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

#include "base/file.h"
#include "base/json.h"
#include "kolo/error.h"

static const char format_name[] = "kolo checkpoint";
enum { FORMAT_VERSION = 1 };

static FILE *open_text(char **text, size_t *bytes)
{
    *text = NULL;
    FILE *f = open_memstream(text, bytes);
    if (!f) kolo_fail(KOLO_ENOMEM, "out of memory while writing a manifest");
    return f;
}

static char *close_text(FILE *f, char **text)
{
    if (fclose(f) == 0) return *text;
    free(*text);
    kolo_fail(KOLO_ENOMEM, "out of memory while writing a manifest");
    return NULL;
}

char *kolo_record_options(const kolo_options *options, bool math)
{
    char *text;
    size_t bytes;
    FILE *f = open_text(&text, &bytes);
    if (!f) return NULL;
    const char *indent = math ? "    " : "      ", *between = "";
    fputc('{', f);
    bool whole = true;
    for (int i = 0; i < kolo_option_count && whole; i++) {
        if ((kolo_option_table[i].scope == KOLO_SCOPE_MATH) != math) continue;
        char *value = kolo_option_text(options, &kolo_option_table[i]);
        if (!(whole = value)) break;
        fprintf(f, "%s\n%s\"%s\": ", between, indent, kolo_option_table[i].key);
        kolo_json_string(f, value);
        free(value);
        between = ",";
    }
    fprintf(f, "\n%.*s}", (int)strlen(indent) - 2, indent);
    char *closed = close_text(f, &text);
    if (whole) return closed;
    free(closed);
    return NULL;
}

static void write_string(FILE *f, const char *indent, const char *key, const char *value)
{
    fprintf(f, "%s\"%s\": ", indent, key);
    kolo_json_string(f, value);
    fputs(",\n", f);
}

static void write_start(FILE *f, const manifest *m, const char *run)
{
    const kolo_position *p = &m->position;
    char host[256] = "", now[32];
    const char *node = getenv("SLURMD_NODENAME"), *job = getenv("SLURM_JOB_ID");
    time_t clock = time(NULL);
    struct tm utc;
    gethostname(host, sizeof host - 1);
    strftime(now, sizeof now, "%Y-%m-%dT%H:%M:%SZ", gmtime_r(&clock, &utc));
    fputs("  \"this_start\": {\n", f);
    write_string(f, "    ", "host", node && *node ? node : host);
    write_string(f, "    ", "job", job ? job : "");
    write_string(f, "    ", "time", now);
    write_string(f, "    ", "version", KOLO_VERSION);
    fprintf(f,
            "    \"ranks\": %d,\n    \"plan_hash\": \"%016" PRIx64 "\",\n    \"restarts\": %" PRId64
            ",\n    \"wall_seconds\": ",
            m->ranks, p->plan_hash, p->restarts);
    kolo_json_number(f, p->wall_seconds, 9);
    fprintf(f, ",\n    \"options\": %s\n  },\n", run);
}

static const char *metric_of(const kolo_position *p) { return *p->metric ? p->metric : "top1"; }

/* The last line: a checksum of all before it. A manifest of an older version has none. */
static const char seal[] = "  \"crc32c\": \"", end[] = "\"\n}\n";

enum sealed { NO_SEAL, SEALED, BROKEN };

/* Nothing but what was written is taken: neither other digits for the same number, nor anything behind it. */
static enum sealed check_seal(const char *text, size_t bytes)
{
    const char *at = text, *last = NULL;
    char wanted[sizeof seal + 8 + sizeof end];
    if (strlen(text) != bytes) return BROKEN;
    while ((at = strstr(at, seal))) last = at, at += sizeof seal - 1;
    if (!last || (last > text && last[-1] != '\n')) return NO_SEAL;
    snprintf(wanted, sizeof wanted, "%s%08" PRIx32 "%s", seal, kolo_crc32c(0, text, (size_t)(last - text)),
             end);
    return strcmp(last, wanted) ? BROKEN : SEALED;
}

static void write_files(FILE *f, const manifest *m)
{
    static const char form[] = "%s\n    \"%s\": {\"bytes\": %" PRIu64 ", \"crc32c\": \"%08" PRIx32 "\"}";
    fputs("  \"files\": {", f);
    fprintf(f, form, "", "tensors.safetensors", m->bytes, m->crc);
    if (m->carried_bytes) fprintf(f, form, ",", "carried", m->carried_bytes, m->carried_crc);
    fputs("\n  },\n", f);
}

char *kolo_record_text(const manifest *m, const char *math, const char *run)
{
    const kolo_position *p = &m->position;
    char *text;
    size_t bytes;
    FILE *f = open_text(&text, &bytes);
    if (!f) return NULL;
    fprintf(f, "{\n  \"format\": \"%s\",\n  \"format_version\": %d,\n", format_name, FORMAT_VERSION);
    write_string(f, "  ", "model", p->model);
    fprintf(f, "  \"step\": %" PRId64 ",\n  \"epoch\": %" PRId64 ",\n  \"epoch_step\": %" PRId64 ",\n",
            p->step, p->epoch, p->epoch_step);
    fprintf(f, "  \"batch\": %" PRId64 ",\n  \"samples\": %" PRId64 ",\n  \"seed\": \"%" PRIu64 "\",\n",
            p->batch, p->samples, p->seed);
    write_string(f, "  ", "data_uuid", p->data_uuid);
    if (*p->late) write_string(f, "  ", "late_weights", p->late);
    fprintf(f, "  \"metrics\": {\"metric\": \"%s\", \"best_%s\": ", metric_of(p), metric_of(p));
    kolo_json_number(f, p->best, 17);
    fprintf(f, ", \"best_step\": %" PRId64 "},\n", p->best_step);
    fputs("  \"loss_scale\": {\"scale\": ", f);
    kolo_json_number(f, (double)m->scaler.scale, 9);
    fprintf(f, ", \"good\": %" PRId32 ", \"skipped\": %" PRId64 "},\n", m->scaler.good, m->scaler.skipped);
    fprintf(f,
            "  \"tensors\": {\"file\": \"tensors.safetensors\", \"count\": %" PRId64 ", \"bytes\": %" PRIu64
            ", \"crc32c\": \"%08" PRIx32 "\"},\n",
            m->tensors, m->bytes, m->crc);
    fprintf(f, "  \"options\": %s,\n", math);
    write_start(f, m, run);
    write_string(f, "  ", "run", p->run);
    write_files(f, m);
    fflush(f);
    fprintf(f, "%s%08" PRIx32 "%s", seal, kolo_crc32c(0, text, bytes), end);
    return close_text(f, &text);
}

typedef struct reader {
    const cJSON *object;
    bool good;
} reader; /* good: everything asked for was there */

static double read_number(reader *r, const char *key)
{
    const cJSON *value = cJSON_GetObjectItemCaseSensitive(r->object, key);
    if (!cJSON_IsNumber(value)) r->good = false;
    return cJSON_IsNumber(value) ? value->valuedouble : 0;
}

static int64_t read_count(reader *r, const char *key)
{
    double value = read_number(r, key);
    if (!(value >= -1 && value <= 0x1p53)) r->good = false;
    return r->good ? (int64_t)value : 0;
}

static const char *read_string(reader *r, const char *key)
{
    const cJSON *value = cJSON_GetObjectItemCaseSensitive(r->object, key);
    if (!cJSON_IsString(value)) r->good = false;
    return cJSON_IsString(value) ? value->valuestring : "";
}

static reader read_object(reader *r, const char *key)
{
    reader inner = {cJSON_GetObjectItemCaseSensitive(r->object, key), true};
    if (!cJSON_IsObject(inner.object)) r->good = false;
    return inner;
}

static bool read_scaler(const cJSON *object, kolo_scaler *scaler)
{
    reader r = {cJSON_GetObjectItemCaseSensitive(object, "loss_scale"), true};
    if (!r.object) return true;
    scaler->scale = (float)read_number(&r, "scale");
    scaler->good = (int32_t)read_count(&r, "good");
    scaler->skipped = read_count(&r, "skipped");
    return r.good && scaler->scale > 0;
}

/* Until they had names, figures of any kind stood as best_top1. */
static void read_best(reader *metrics, kolo_position *p)
{
    char key[sizeof p->metric + 8];
    const bool named = cJSON_HasObjectItem(metrics->object, "metric");
    snprintf(p->metric, sizeof p->metric, "%s", named ? read_string(metrics, "metric") : "top1");
    snprintf(key, sizeof key, "best_%s", p->metric);
    p->best = read_number(metrics, key);
}

/* An older one lists the tensors only. */
static void read_files(reader *r, manifest *m)
{
    m->listed = cJSON_HasObjectItem(r->object, "run") || cJSON_HasObjectItem(r->object, "files");
    if (!m->listed) return;
    reader files = read_object(r, "files");
    snprintf(m->position.run, sizeof m->position.run, "%s", read_string(r, "run"));
    if (files.good && cJSON_HasObjectItem(files.object, "carried")) {
        reader carried = read_object(&files, "carried");
        m->carried_bytes = (uint64_t)read_count(&carried, "bytes");
        m->carried_crc = (uint32_t)strtoul(read_string(&carried, "crc32c"), NULL, 16);
        files.good = files.good && carried.good && m->carried_bytes > 0;
    }
    r->good = r->good && files.good;
}

static void read_members(reader *r, manifest *m)
{
    kolo_position *p = &m->position;
    reader metrics = read_object(r, "metrics"), tensors = read_object(r, "tensors"),
           start = read_object(r, "this_start");
    snprintf(p->model, sizeof p->model, "%s", read_string(r, "model"));
    snprintf(p->data_uuid, sizeof p->data_uuid, "%s", read_string(r, "data_uuid"));
    if (cJSON_HasObjectItem(r->object, "late_weights"))
        snprintf(p->late, sizeof p->late, "%s", read_string(r, "late_weights"));
    p->step = read_count(r, "step");
    p->epoch = read_count(r, "epoch");
    p->epoch_step = read_count(r, "epoch_step");
    p->batch = read_count(r, "batch");
    p->samples = read_count(r, "samples");
    p->seed = strtoull(read_string(r, "seed"), NULL, 10);
    read_best(&metrics, p);
    p->best_step = read_count(&metrics, "best_step");
    p->restarts = read_count(&start, "restarts");
    p->wall_seconds = read_number(&start, "wall_seconds");
    p->plan_hash = strtoull(read_string(&start, "plan_hash"), NULL, 16);
    m->ranks = (int)read_count(&start, "ranks");
    m->tensors = read_count(&tensors, "count");
    m->bytes = (uint64_t)read_count(&tensors, "bytes");
    m->crc = (uint32_t)strtoul(read_string(&tensors, "crc32c"), NULL, 16);
    read_files(r, m);
    r->good = r->good && read_scaler(r->object, &m->scaler) && metrics.good && tensors.good && start.good;
}

/* A newer Kolo may seal otherwise: the version is looked at first. */
static int fail_version(const char *path, int64_t version, enum sealed sealed)
{
    return kolo_fail(KOLO_EINPUT, "%s: format version %" PRId64 ", this Kolo (" KOLO_VERSION ") reads %d; %s",
                     path, version, FORMAT_VERSION,
                     sealed == BROKEN ? "use the Kolo that wrote it; if it was this one, the file was changed"
                                      : "use the Kolo that wrote it");
}

int kolo_record_read(const char *path, manifest *m)
{
    char *text = NULL;
    size_t bytes;
    KOLO_TRY(kolo_file_read(path, &text, &bytes));
    const enum sealed sealed = check_seal(text, bytes);
    cJSON *object = cJSON_Parse(text);
    reader r = {object, cJSON_IsObject(object)};
    free(text);
    *m = (manifest){.bytes = 0};
    const bool ours = r.good && !strcmp(read_string(&r, "format"), format_name);
    const int64_t version = read_count(&r, "format_version");
    const bool other = r.good && ours && version != FORMAT_VERSION;
    if (sealed == BROKEN) r.good = false;
    if (r.good && ours && !other) read_members(&r, m);
    cJSON_Delete(object);
    if (other) return fail_version(path, version, sealed);
    if (m->listed && sealed != SEALED) r.good = false; /* who lists files seals the list */
    return r.good && ours ? 0 : kolo_fail(KOLO_EINPUT, "%s: not a whole manifest", path);
}
