#include "readers/text_rows.h"

#include <errno.h>
#include <math.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <zlib.h>

#include "base/memory.h"
#include "kolo/error.h"

#define BLOCK (1 << 16)

int text_open(text_rows *t, const char *path)
{
    *t = (text_rows){.path = path};
    errno = 0;
    t->file = gzopen(path, "rbe"); /* reads plain files as they are */
    if (!t->file && errno == ENOENT) return kolo_fail(KOLO_EINPUT, "%s: no such file", path);
    if (!t->file) return kolo_fail(KOLO_EIO, "%s: %s", path, errno ? strerror(errno) : "out of memory");
    gzbuffer(t->file, 1 << 18);
    return 0;
}

void text_close(text_rows *t)
{
    if (t->file) gzclose(t->file);
    free(t->buffer);
    *t = (text_rows){0};
}

int text_fail(const text_rows *t, const char *format, ...)
{
    char text[1024];
    va_list list;
    va_start(list, format);
    vsnprintf(text, sizeof text, format, list);
    va_end(list);
    return kolo_fail(KOLO_EINPUT, "%s:%lld: %s", t->path, (long long)t->line, text);
}

/* More bytes behind t->to; what was given out already makes room. */
static int text_rows_fill(text_rows *t)
{
    if (t->from > 0) {
        memmove(t->buffer, t->buffer + t->from, t->to - t->from);
        t->to -= t->from;
        t->from = 0;
    }
    if (t->to > TEXT_MOST_LINE) {
        t->line++;
        return text_fail(t, "a line of more than %d bytes; this is not a text file", TEXT_MOST_LINE);
    }
    if (t->to + BLOCK + 1 > t->capacity) {
        const size_t capacity = 2 * t->capacity + BLOCK + 1;
        char *grown = realloc(t->buffer, capacity);
        if (!grown)
            return kolo_fail(KOLO_ENOMEM, "out of memory: %zu bytes for a line of %s", capacity, t->path);
        t->buffer = grown;
        t->capacity = capacity;
    }
    const int got = gzread(t->file, t->buffer + t->to, BLOCK);
    int code = Z_OK;
    const char *why = gzerror(t->file, &code);
    if (got < 0 && code == Z_ERRNO) return kolo_fail(KOLO_EIO, "%s: %s", t->path, strerror(errno));
    if (got < 0 || code == Z_BUF_ERROR)
        return kolo_fail(KOLO_EINPUT, "%s: %s; fetch the file again", t->path,
                         got < 0 ? why : "the gzip stream is cut off");
    t->to += (size_t)got;
    t->end = got == 0;
    return 0;
}

static int check_line(text_rows *t, char **line, size_t length)
{
    if (t->line == 1 && length >= 3 && memcmp(*line, "\xEF\xBB\xBF", 3) == 0) *line += 3, length -= 3;
    if (length && (*line)[length - 1] == '\r') length--;
    (*line)[length] = 0;
    if (memchr(*line, 0, length)) return text_fail(t, "a zero byte; this is not a text file in UTF-8");
    return 1;
}

int text_next(text_rows *t, char **line)
{
    size_t searched = 0; /* bytes from t->from that hold no line end */
    for (;;) {
        char *start = t->buffer ? t->buffer + t->from : NULL;
        const size_t have = t->to - t->from;
        char *end = have > searched ? memchr(start + searched, '\n', have - searched) : NULL;
        if (!end && !t->end) {
            searched = have;
            KOLO_TRY(text_rows_fill(t));
            continue;
        }
        if (have == 0) return 0;
        const size_t length = end ? (size_t)(end - start) : have;
        t->from += end ? length + 1 : length;
        t->line++;
        *line = start;
        return check_line(t, line, length);
    }
}

int text_each(const char *path, text_row row, void *of)
{
    text_rows t;
    char *line;
    int rc;
    KOLO_TRY(text_open(&t, path));
    while ((rc = text_next(&t, &line)) > 0)
        if (*line && (rc = row(of, &t, line)) < 0) break;
    text_close(&t);
    return rc;
}

int text_split(char *line, char separator, char **fields, int most)
{
    int n = 0;
    for (;;) {
        char *end = strchr(line, separator);
        if (n++ < most) fields[n - 1] = line;
        if (!end) return n;
        *end = 0;
        line = end + 1;
    }
}

int text_words(char *line, char **fields, int most)
{
    int n = 0;
    for (;;) {
        line += strspn(line, " \t");
        if (!*line) return n;
        if (n++ < most) fields[n - 1] = line;
        line += strcspn(line, " \t");
        if (*line) *line++ = 0;
    }
}

/* Takes the quotes away from the field at `line`. NULL: damaged; else what follows it, a comma or the end. */
static char *unquote(char *line)
{
    char *to = line, *from = line + 1;
    for (;; *to++ = *from++) {
        if (!*from) return NULL;
        if (*from == '"' && *++from != '"') break;
    }
    if (*from && *from != ',') return NULL;
    if (to < from) *to = 0;
    return from;
}

int text_split_csv(char *line, char **fields, int most)
{
    int n = 0;
    for (;;) {
        char *end = *line == '"' ? unquote(line) : line + strcspn(line, ",");
        if (!end) return -1;
        if (n++ < most) fields[n - 1] = line;
        if (!*end) return n;
        *end = 0;
        line = end + 1;
    }
}

bool text_number(const char *text, double *value)
{
    const char *at = text + (*text == '-' || *text == '+');
    char *end;
    /* strtod also takes blanks, hexadecimal, inf and nan */
    if (!((*at >= '0' && *at <= '9') || *at == '.') || strpbrk(at, "xX")) return false;
    *value = strtod(text, &end);
    return end != text && *end == 0 && isfinite(*value);
}

bool text_integer(const char *text, int64_t *value)
{
    const char *at = text + (*text == '-' || *text == '+');
    char *end;
    if (*at < '0' || *at > '9') return false;
    errno = 0;
    *value = strtoll(text, &end, 10);
    return *end == 0 && errno == 0;
}

bool text_begins(const char *text, const char *with) { return strncmp(text, with, strlen(with)) == 0; }

bool text_ends(const char *text, const char *with)
{
    const size_t n = strlen(text), m = strlen(with);
    return n >= m && strcmp(text + n - m, with) == 0;
}

bool text_is_utf8(const char *text)
{
    static const uint32_t least[4] = {0, 0x80, 0x800, 0x10000};
    for (const uint8_t *p = (const uint8_t *)text; *p; p++) {
        if (*p < 0x80) continue;
        const int more = *p >= 0xF0 ? 3 : *p >= 0xE0 ? 2 : 1;
        if (*p < 0xC0 || *p > 0xF7) return false;
        uint32_t c = *p & (0x3Fu >> more);
        for (int i = 0; i < more; i++) {
            if ((*++p & 0xC0) != 0x80) return false;
            c = c << 6 | (*p & 63);
        }
        if (c < least[more] || c > 0x10FFFF || (c >= 0xD800 && c <= 0xDFFF)) return false;
    }
    return true;
}

size_t text_put_utf8(char *to, uint32_t c)
{
    if (c < 0x80) {
        to[0] = (char)c;
        return 1;
    }
    const int more = c < 0x800 ? 1 : c < 0x10000 ? 2 : 3;
    to[0] = (char)(0xFF00 >> (more + 1) | c >> 6 * more);
    for (int i = 1; i <= more; i++) to[i] = (char)(0x80 | (c >> 6 * (more - i) & 63));
    return (size_t)more + 1;
}
