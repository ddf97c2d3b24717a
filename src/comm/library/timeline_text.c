/* Events as text of a Chrome trace. Threads that compute wait while this is done on their cores, so it is
 * done by copying and by digits: a tenth of what formatted printing costs. */
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/json.h"
#include "comm/library/timeline.h"

/* ---- parts --------------------------------------------------------------------------------------------- */

static char *timeline_text_put(char *to, const char *text, size_t bytes)
{
    memcpy(to, text, bytes);
    return to + bytes;
}

static char *put_word(char *to, const char *word) { return timeline_text_put(to, word, strlen(word)); }

/* Numbers and constants: they fit. */
__attribute__((format(printf, 2, 3))) static char *put_format(char *to, const char *format, ...)
{
    enum { MOST = 256 };
    va_list list;
    va_start(list, format);
    int n = vsnprintf(to, MOST, format, list);
    va_end(list);
    return to + (n < 0 ? 0 : n < MOST ? n : MOST - 1);
}

#define PUT(to, constant) timeline_text_put(to, constant, sizeof(constant) - 1)

/* At least `least` digits. */
static char *put_digits(char *to, uint64_t value, int least)
{
    char digit[24];
    int n = 0;
    while (value || n < least) {
        digit[n++] = (char)('0' + value % 10);
        value /= 10;
    }
    while (n) *to++ = digit[--n];
    return to;
}

static uint64_t nanoseconds(double seconds) { return seconds > 0 ? (uint64_t)(seconds * 1e9 + 0.5) : 0; }

/* As microseconds. */
static char *put_time(char *to, uint64_t ns)
{
    to = put_digits(to, ns / 1000, 1);
    *to++ = '.';
    return put_digits(to, ns % 1000, 3);
}

/* Names are plain but for rare ones. */
static char *put_name(char *to, const char *name)
{
    char *at = to;
    const unsigned char *c = (const unsigned char *)name;
    *at++ = '"';
    while (*c >= 0x20 && *c < 0x7F && *c != '"' && *c != '\\') *at++ = (char)*c++;
    *at++ = '"';
    if (!*c) return at;
    char *quoted = kolo_json_quote(name);
    at = put_word(to, quoted ? quoted : "\"\"");
    free(quoted);
    return at;
}

/* ---- events -------------------------------------------------------------------------------------------- */

static char *put_note(const lib_event_rows *rows, int thread, const char *kind, const char *text, char *to)
{
    to = put_format(to,
                    ",\n{\"ph\":\"M\",\"pid\":%d,\"tid\":%d,\"name\":\"%s\",\"args\":{\"name\":", rows->rank,
                    thread, kind);
    return PUT(put_name(to, text), "}}");
}

static char *put_clock(const lib_event_rows *rows, char *to)
{
    return put_format(
        to,
        ",\n{\"ph\":\"M\",\"pid\":%d,\"tid\":0,\"name\":\"kolo_clock\",\"args\":{\"offset\":%.9f,"
        "\"error\":%.9f}}",
        rows->rank, rows->offset, rows->error);
}

char *lib_event_put_head(lib_event_rows *rows, char *to)
{
    char text[LIB_EVENT_NAME + 16];
    snprintf(text, sizeof text, "rank %d %s", rows->rank, rows->host);
    memset(rows->named, 0, sizeof rows->named);
    to = put_format(
        to,
        "[\n{\"ph\":\"M\",\"pid\":%d,\"tid\":0,\"name\":\"process_sort_index\",\"args\":{\"sort_index\":%d}}",
        rows->rank, rows->rank);
    to = put_note(rows, 0, "process_name", text, to);
    return rows->aligned ? put_clock(rows, to) : to;
}

char *lib_event_put_lost(const lib_event_rows *rows, uint64_t events, double when, char *to)
{
    return put_format(
        to,
        ",\n{\"ph\":\"i\",\"s\":\"p\",\"pid\":%d,\"tid\":0,\"ts\":%.3f,\"name\":\"kolo_lost\",\"args\":"
        "{\"events\":%lu}}",
        rows->rank, when * 1e6, (unsigned long)events);
}

static int phase_of(lib_event_rows *rows, const char *phase)
{
    int p = 0;
    while (p < rows->phases && rows->phase[p] != phase && strcmp(rows->phase[p], phase) != 0) p++;
    if (p == LIB_EVENT_PHASES) return p - 1;
    if (p == rows->phases) rows->phase[rows->phases++] = phase;
    return p;
}

static char *put_begin(const lib_event_rows *rows, const char *kind, int thread, const char *phase, char *to)
{
    to = put_word(PUT(to, ",\n{\"ph\":\""), kind);
    to = put_digits(PUT(to, "\",\"pid\":"), (uint64_t)rows->rank, 1);
    to = put_digits(PUT(to, ",\"tid\":"), (uint64_t)thread, 1);
    return PUT(put_word(PUT(to, ",\"cat\":\""), phase), "\",\"ts\":");
}

/* In the first row of the phase where the event overlaps no other; one that was not used yet is named. Of two
 * events that overlap in a row viewers drop one, so what has no row is a mark: *has_row false. */
static char *put_start(lib_event_rows *rows, const lib_event *e, bool *has_row, char *to)
{
    const int p = phase_of(rows, e->phase);
    int r = 0;
    while (r < LIB_EVENT_ROWS && rows->end[p][r] > e->begin) r++;
    *has_row = r < LIB_EVENT_ROWS;
    if (!*has_row) return put_begin(rows, "i\",\"s\":\"t", (p + 1) * LIB_EVENT_ROWS, rows->phase[p], to);
    const int thread = p * LIB_EVENT_ROWS + r + 1;
    if (!rows->named[p][r]) to = put_note(rows, thread, "thread_name", rows->phase[p], to);
    rows->named[p][r] = true;
    if (e->end > rows->end[p][r]) rows->end[p][r] = e->end;
    return put_begin(rows, "X", thread, rows->phase[p], to);
}

char *lib_event_put(lib_event_rows *rows, const lib_event *e, char *to)
{
    if (!e->phase) {
        rows->aligned = true;
        rows->offset = e->begin;
        rows->error = e->end;
        return put_clock(rows, to);
    }
    const uint64_t begin = nanoseconds(e->begin), end = nanoseconds(e->end);
    bool has_row;
    to = put_time(put_start(rows, e, &has_row, to), begin);
    if (has_row) to = put_time(PUT(to, ",\"dur\":"), end > begin ? end - begin : 0);
    to = put_name(PUT(to, ",\"name\":"), e->name[0] ? e->name : e->phase);
    if (e->bytes <= 0) return PUT(to, "}");
    to = put_digits(PUT(to, ",\"args\":{\"bytes\":"), (uint64_t)e->bytes, 1);
    if (e->algorithm) to = PUT(put_word(PUT(to, ",\"algorithm\":\""), e->algorithm), "\"");
    return PUT(to, "}}");
}
