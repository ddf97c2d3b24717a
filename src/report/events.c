/* RUN/events.jsonl: appended to, and cut back to the checkpoint when a run resumes. */
#include <cjson/cJSON.h>
#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <math.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

#include "base/temp_file.h"
#include "base/failure.h"
#include "base/json.h"
#include "base/memory.h"
#include "base/thread.h"
#include "report/report.h"

enum { BUFFER_BYTES = 64 << 10, DIGITS = 9 };
static const double flush_seconds = 1;

struct kolo_events {
    char *path;
    int fd;
    FILE *line; /* one event is formed here */
    char *text; /* its buffer */
    size_t length;
    char buffer[BUFFER_BYTES];
    size_t used;
    off_t whole;    /* size of the file: ends with a whole line */
    double flushed; /* when */
    /* numbers go here, too; NULL: nowhere */
    kolo_tensorboard *board;
    const char *group; /* of the event that is formed */
    int board_rc;      /* what that has met */
};

static int fail_errno(const char *verb, const char *path)
{
    return kolo_fail(KOLO_EIO, "%s: cannot %s: %s%s", path, verb, strerror(errno),
                     errno == ENOSPC || errno == EDQUOT ? "; free space there or choose another run= folder"
                                                        : "");
}

/* The step of a step event, 0 of any other event, -1 of what is no event. */
static int64_t parse_line(const char *line)
{
    int64_t step;
    char next;
    if (sscanf(line, "{\"event\":\"step\",\"step\":%" SCNd64 "%c", &step, &next) == 2 && next == ',' &&
        step > 0) {
        size_t length = strlen(line); /* our own form: the common case, without a parser */
        if (length > 2 && !strcmp(line + length - 2, "}\n")) return step;
    }
    cJSON *object = cJSON_Parse(line);
    const cJSON *event = cJSON_GetObjectItemCaseSensitive(object, "event"),
                *at = cJSON_GetObjectItemCaseSensitive(object, "step");
    step = !cJSON_IsString(event)                                      ? -1
           : strcmp(event->valuestring, "step") || !cJSON_IsNumber(at) ? 0
                                                                       : (int64_t)at->valuedouble;
    cJSON_Delete(object);
    return step;
}

/* Reads the file; *keep: bytes up to the last whole event before the first step beyond `step`; *repeated:
 * step events behind it. */
static int scan(FILE *file, int64_t step, off_t *keep, int64_t *repeated)
{
    char *line = NULL;
    size_t capacity = 0;
    ssize_t n;
    off_t at = 0;
    bool cut = step <= 0; /* a run that begins anew keeps nothing */
    *keep = 0;
    *repeated = 0;
    while ((n = getline(&line, &capacity, file)) > 0) {
        at += n;
        if (line[n - 1] != '\n' || memchr(line, 0, (size_t)n)) continue; /* torn */
        int64_t of = parse_line(line);
        cut = cut || of > step;
        if (cut) *repeated += of > 0;
        else if (of >= 0) *keep = at;
    }
    const bool whole = feof(file) && !ferror(file); /* else what was not read would be cut off */
    free(line);
    return whole ? 0 : -1;
}

static int cut_back(kolo_events *e, int64_t step, int64_t *repeated)
{
    int copy = dup(e->fd);
    FILE *file = copy < 0 ? NULL : fdopen(copy, "r");
    if (!file && copy >= 0) close(copy);
    int rc = file ? scan(file, step, &e->whole, repeated) : -1;
    if (rc < 0) rc = errno == ENOMEM ? kolo_no_memory(BUFSIZ) : fail_errno("read", e->path);
    if (file) fclose(file);
    if (rc == 0 && ftruncate(e->fd, e->whole) < 0) rc = fail_errno("cut back", e->path);
    if (rc == 0 && lseek(e->fd, e->whole, SEEK_SET) < 0) rc = fail_errno("read", e->path);
    return rc;
}

int kolo_events_open(kolo_events **events, const char *run_folder, int64_t step, int64_t *repeated)
{
    int rc = KOLO_ENOMEM;
    int64_t unused;
    kolo_events *e = *events = kolo_alloc(sizeof *e);
    if (!e) return KOLO_ENOMEM;
    e->fd = -1;
    e->flushed = kolo_time();
    if (!(e->path = kolo_format("%s/events.jsonl", run_folder))) goto fail;
    if (!(e->line = open_memstream(&e->text, &e->length))) {
        rc = kolo_fail(KOLO_ENOMEM, "%s: out of memory", e->path);
        goto fail;
    }
    KOLO_TRY_GOTO(rc, e->fd = kolo_file_open_plain(e->path, O_RDWR | O_CREAT, 0666));
    KOLO_TRY_GOTO(rc, cut_back(e, step, repeated ? repeated : &unused));
    return 0;
fail:
    kolo_events_close(events);
    return rc;
}

/* Whole lines or none: what a full disk cuts is taken back, and the lines stay in the buffer. */
static int flush(kolo_events *e)
{
    e->flushed = kolo_time();
    for (size_t done = 0; done < e->used;) {
        ssize_t n = pwrite(e->fd, e->buffer + done, e->used - done, e->whole + (off_t)done);
        if (n < 0 && errno == EINTR) continue;
        if (n < 0) {
            int rc = fail_errno("write", e->path);
            if (ftruncate(e->fd, e->whole) < 0) rc = fail_errno("cut back", e->path);
            return rc;
        }
        done += (size_t)n;
    }
    e->whole += (off_t)e->used;
    e->used = 0;
    return 0;
}

/* Puts the line in e->text into the buffer. */
static int put_line(kolo_events *e, bool at_once)
{
    fflush(e->line);
    if (e->used + e->length > BUFFER_BYTES) KOLO_TRY(flush(e));
    if (e->length > BUFFER_BYTES)
        return kolo_fail(KOLO_EINTERNAL, "%s: an event of %zu bytes is too long", e->path, e->length);
    memcpy(e->buffer + e->used, e->text, e->length);
    e->used += e->length;
    return at_once || kolo_time() - e->flushed >= flush_seconds ? flush(e) : 0;
}

/* ---- what goes to TensorBoard, too --------------------------------------------------------------------- */

void kolo_events_mirror(kolo_events *events, kolo_tensorboard *board) { events->board = board; }

/* A member's value as its reader has it. */
static void mirror_number(kolo_events *e, const char *key, double value)
{
    if (e->board && e->board_rc == 0 && isfinite(value))
        e->board_rc = kolo_tensorboard_scalar(e->board, e->group, key, value);
}

static int end_mirror(kolo_events *e, int64_t step)
{
    const int rc = e->board_rc;
    e->board_rc = 0;
    if (!e->board) return 0;
    return rc < 0 ? rc : kolo_tensorboard_write(e->board, step);
}

/* To TensorBoard: all numbers of an event but step and time; events that `curves` does not list: nothing. */
static int mirror_event(kolo_events *e, const char *name, const cJSON *event)
{
    static const char *const curves[] = {"eval", "phase", "loss_scale"};
    const cJSON *step = cJSON_GetObjectItemCaseSensitive(event, "step"), *member;
    bool drawn = false;
    for (size_t i = 0; i < sizeof curves / sizeof *curves; i++) drawn = drawn || !strcmp(name, curves[i]);
    if (!e->board || !drawn || !cJSON_IsNumber(step)) return 0;
    e->group = name;
    cJSON_ArrayForEach(member, event)
    {
        if (cJSON_IsNumber(member) && member != step && strcmp(member->string, "time") != 0)
            mirror_number(e, member->string, member->valuedouble);
    }
    KOLO_TRY(end_mirror(e, (int64_t)step->valuedouble));
    return kolo_tensorboard_flush(e->board);
}

/* ---- events -------------------------------------------------------------------------------------------- */

static void begin_event(kolo_events *e, const char *group)
{
    rewind(e->line);
    e->group = group;
}

/* The last member is the time, in s since 1970. */
static void end_event(FILE *f)
{
    struct timespec now;
    clock_gettime(CLOCK_REALTIME, &now);
    fprintf(f, ",\"time\":%lld.%03ld}\n", (long long)now.tv_sec, now.tv_nsec / 1000000);
}

static void put_number(kolo_events *e, const char *key, double value)
{
    char text[40];
    fprintf(e->line, ",\"%s\":", key);
    kolo_json_number(e->line, value, DIGITS);
    if (!e->board) return;
    snprintf(text, sizeof text, "%.*g", DIGITS, value);
    mirror_number(e, key, strtod(text, NULL));
}

static void put_count(kolo_events *e, const char *key, int64_t value)
{
    fprintf(e->line, ",\"%s\":%" PRId64, key, value);
    mirror_number(e, key, (double)value);
}

int kolo_events_step(kolo_events *events, const kolo_step_event *event)
{
    FILE *f = events->line;
    begin_event(events, "train");
    fprintf(f, "{\"event\":\"step\",\"step\":%" PRId64 ",\"epoch\":%" PRId64, event->step, event->epoch);
    put_number(events, "loss", event->loss);
    put_number(events, "lr", event->lr);
    if (event->top1 >= 0) put_number(events, "top1", event->top1);
    put_number(events, "grad_norm", event->grad_norm);
    put_number(events, "seconds", event->seconds);
    put_number(events, "wait", event->wait);
    if (event->comm >= 0) put_number(events, "comm", event->comm);
    if (event->useful_batch > 0) put_number(events, "useful_batch", event->useful_batch);
    if (event->stale) {
        fputs(",\"staleness\":[", f);
        for (int i = 0; i < event->stales; i++)
            fprintf(f, "%s%lld", i ? "," : "", (long long)event->stale[i]);
        fputc(']', f);
    }
    if (event->dropped) {
        fputs(",\"dropped\":[", f);
        for (int i = 0; i < event->drops; i++) fprintf(f, "%s%d", i ? "," : "", event->dropped[i]);
        fputs("]", f);
    }
    end_event(f);
    KOLO_TRY(put_line(events, false));
    return end_mirror(events, event->step);
}

int kolo_events_data(kolo_events *events, const kolo_data_event *e)
{
    FILE *f = events->line;
    begin_event(events, "data");
    fprintf(f, "{\"event\":\"data\",\"step\":%" PRId64 ",\"epoch\":%" PRId64, e->step, e->epoch);
    put_count(events, "steps", e->steps);
    put_number(events, "img_per_s", e->img_per_s);
    put_number(events, "mb_per_s", e->mb_per_s);
    put_number(events, "busy", e->busy);
    put_number(events, "wait", e->wait);
    put_number(events, "read_p50_us", e->read_p50 * 1e6);
    put_number(events, "read_p99_us", e->read_p99 * 1e6);
    put_number(events, "sample_p50_us", e->sample_p50 * 1e6);
    put_number(events, "sample_p99_us", e->sample_p99 * 1e6);
    put_count(events, "samples", e->samples);
    put_count(events, "cache_hits", e->cache_hits);
    put_count(events, "bad_samples", e->bad_samples);
    end_event(f);
    KOLO_TRY(put_line(events, false));
    return end_mirror(events, e->step);
}

/* Copies JSON text; outside strings nan and inf become null, inside them control characters are escaped. */
static void put_members(FILE *f, const char *text)
{
    static const char *const bad[] = {"-nan", "nan", "-inf", "inf"};
    bool inside = false;
    for (const char *p = text; *p; p++) {
        size_t n = 0;
        for (int i = 0; !inside && n == 0 && i < 4; i++)
            if (!strncmp(p, bad[i], strlen(bad[i]))) n = strlen(bad[i]);
        if (n > 0) {
            fputs("null", f);
            p += n - 1;
        } else if ((unsigned char)*p < 0x20 && inside) {
            fprintf(f, "\\u%04x", (unsigned char)*p);
        } else if ((unsigned char)*p < 0x20) {
            fputc(' ', f);
        } else {
            fputc(*p, f);
            if (inside && *p == '\\' && p[1]) fputc(*++p, f);
            else if (*p == '"') inside = !inside;
        }
    }
}

static void form_event(FILE *f, const char *name, const char *members)
{
    rewind(f);
    fputs("{\"event\":", f);
    kolo_json_string(f, name);
    if (*members) fputc(',', f);
    put_members(f, members);
    end_event(f);
    fflush(f);
}

int kolo_events_write(kolo_events *events, const char *name, const char *format, ...)
{
    char *members = NULL;
    va_list list;
    va_start(list, format);
    int n = vasprintf(&members, format, list);
    va_end(list);
    if (n < 0) return kolo_fail(KOLO_ENOMEM, "%s: out of memory", events->path);
    form_event(events->line, name, members);
    cJSON *check = cJSON_ParseWithLength(events->text, events->length);
    if (!check) { /* a caller's slip must not break the file for its readers */
        char *quoted = kolo_json_quote(members),
             *instead = quoted ? kolo_format("\"text\":%s", quoted) : NULL;
        form_event(events->line, name, instead ? instead : "");
        free(instead);
        free(quoted);
    }
    int rc = put_line(events, true);
    if (rc == 0) rc = mirror_event(events, name, check);
    cJSON_Delete(check);
    free(members);
    return rc;
}

int kolo_events_flush(kolo_events *events)
{
    KOLO_TRY(flush(events));
    if (events->board) KOLO_TRY(kolo_tensorboard_flush(events->board));
    return fdatasync(events->fd) < 0 ? fail_errno("sync", events->path) : 0;
}

void kolo_events_close(kolo_events **events)
{
    kolo_events *e = *events;
    if (!e) return;
    kolo_failure before;
    kolo_error_keep(&before);
    if (e->fd >= 0) {
        flush(e);
        close(e->fd);
    }
    if (e->line) fclose(e->line);
    free(e->text);
    free(e->path);
    free(e);
    *events = NULL;
    kolo_error_restore(&before, before.status);
}
