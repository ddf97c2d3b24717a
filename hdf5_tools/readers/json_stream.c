#include "readers/json_stream.h"

#include <errno.h>
#include <fcntl.h>
#include <math.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/memory.h"
#include "kolo/error.h"
#include "readers/text_rows.h"

#define BLOCK (1 << 18)
#define MOST_NUMBER 512 /* characters */
#define END (-1)        /* of the file, where a byte is asked for; errors are below */

/* ---- bytes --------------------------------------------------------------------------------------------- */

static int64_t here(const json_stream *j) { return j->block_offset + (int64_t)j->at; }

/* Lines are counted only when there is something to report, going on where the last count ended. */
static int64_t line_here(json_stream *j)
{
    char text[4096];
    if (here(j) < j->counted) j->counted = j->start, j->lines = 0;
    while (j->counted < here(j)) {
        const int64_t left = here(j) - j->counted;
        const ssize_t got =
            pread(j->fd, text, left < (int64_t)sizeof text ? (size_t)left : sizeof text, j->counted);
        if (got <= 0) break;
        for (const char *p = text; (p = memchr(p, '\n', (size_t)(text + got - p))); p++) j->lines++;
        j->counted += got;
    }
    return j->lines + 1;
}

int json_fail(json_stream *j, const char *format, ...)
{
    char text[1024];
    va_list list;
    va_start(list, format);
    vsnprintf(text, sizeof text, format, list);
    va_end(list);
    return kolo_fail(KOLO_EINPUT, "%s:%lld, byte %lld: %s", j->path, (long long)line_here(j),
                     (long long)(here(j) - j->start), text);
}

/* The next block, whole unless the file ends in it; 0 at the end. */
static int refill(json_stream *j)
{
    j->block_offset += (int64_t)j->end;
    j->at = j->end = 0;
    const int64_t left = j->stop - j->block_offset;
    const size_t bytes = left <= 0 ? 0 : left < BLOCK ? (size_t)left : BLOCK;
    while (j->end < bytes) {
        const ssize_t got =
            pread(j->fd, j->block + j->end, bytes - j->end, j->block_offset + (int64_t)j->end);
        if (got < 0 && errno == EINTR) continue;
        if (got < 0) return kolo_fail(KOLO_EIO, "%s: %s", j->path, strerror(errno));
        if (got == 0) break;
        j->end += (size_t)got;
    }
    return j->end > 0;
}

/* The byte at hand, which stays; END; or an error. */
static inline int json_stream_peek(json_stream *j)
{
    if (j->at < j->end) return j->block[j->at];
    const int rc = refill(j);
    return rc > 0 ? j->block[0] : rc == 0 ? END : rc;
}

/* The first byte that is not blank. */
static inline int peek_past_blanks(json_stream *j)
{
    for (;;) {
        const int c = json_stream_peek(j);
        if (c != ' ' && c != '\n' && c != '\r' && c != '\t') return c;
        j->at++;
    }
}

static const char a_value[] = "a value", a_number[] = "a number";

static int unexpected(json_stream *j, int c, const char *wanted)
{
    if (c < END) return c;
    if (c == END) return json_fail(j, "the file ends where %s is expected; it is cut off", wanted);
    if ((c == 'N' || c == 'I') && (wanted == a_value || wanted == a_number))
        return json_fail(j, "NaN or Infinity, which JSON does not have");
    if (c < 32 || c > 126) return json_fail(j, "byte %02x where %s is expected", (unsigned)c, wanted);
    return json_fail(j, "`%c` where %s is expected", c, wanted);
}

int json_open_part(json_stream *j, const char *path, int fd, int64_t offset, int64_t bytes)
{
    *j = (json_stream){
        .fd = fd, .start = offset, .counted = offset, .block_offset = offset, .stop = offset + bytes};
    j->path = kolo_strdup(path);
    j->block = malloc(BLOCK);
    if (j->path && !j->block) kolo_fail(KOLO_ENOMEM, "out of memory: %d bytes to read %s", BLOCK, path);
    if (j->path && j->block) return 0;
    json_close(j);
    return KOLO_ENOMEM;
}

int json_open(json_stream *j, const char *path)
{
    *j = (json_stream){.fd = -1};
    const int fd = open(path, O_RDONLY | O_CLOEXEC);
    struct stat info;
    if (fd < 0 && errno == ENOENT) return kolo_fail(KOLO_EINPUT, "%s: no such file", path);
    if (fd < 0) return kolo_fail(KOLO_EIO, "%s: %s", path, strerror(errno));
    int rc = fstat(fd, &info) != 0    ? kolo_fail(KOLO_EIO, "%s: %s", path, strerror(errno))
             : !S_ISREG(info.st_mode) ? kolo_fail(KOLO_EINPUT, "%s: is not a file", path)
                                      : json_open_part(j, path, fd, 0, info.st_size);
    if (rc < 0) close(fd);
    else j->own_file = true;
    return rc;
}

void json_close(json_stream *j)
{
    if (j->own_file) close(j->fd);
    free(j->path);
    free(j->block);
    free(j->text);
    *j = (json_stream){.fd = -1};
}

/* ---- structure ----------------------------------------------------------------------------------------- */

int json_peek(json_stream *j)
{
    const int c = peek_past_blanks(j);
    if (c == '-' || (c >= '0' && c <= '9')) return '0';
    return c > 0 && strchr("{[\"tfn", c) ? c : unexpected(j, c, a_value);
}

static int json_stream_enter(json_stream *j, int bracket, const char *wanted)
{
    const int c = peek_past_blanks(j);
    if (c != bracket) return unexpected(j, c, wanted);
    if (j->depth + 1 == JSON_MOST_DEPTH)
        return json_fail(j, "objects and arrays nest deeper than %d", JSON_MOST_DEPTH - 1);
    const uint64_t bit = 1ull << ++j->depth;
    j->is_object = bracket == '{' ? j->is_object | bit : j->is_object & ~bit;
    j->is_begun &= ~bit;
    j->at++;
    return 0;
}

int json_object(json_stream *j) { return json_stream_enter(j, '{', "an object"); }
int json_array(json_stream *j) { return json_stream_enter(j, '[', "an array"); }

/* Past the comma to the next item, or past the closing bracket: 1, 0. */
static int next_item(json_stream *j, int bracket, const char *wanted)
{
    const uint64_t bit = 1ull << j->depth;
    int c = peek_past_blanks(j);
    if (c == bracket) {
        j->at++;
        j->depth--;
        return 0;
    }
    if (!(j->is_begun & bit)) {
        j->is_begun |= bit;
        return 1;
    }
    if (c != ',') return unexpected(j, c, wanted);
    j->at++;
    return 1;
}

int json_more(json_stream *j) { return next_item(j, ']', "a comma or ]"); }

int json_key(json_stream *j, const char **key)
{
    const int rc = next_item(j, '}', "a comma or }");
    if (rc <= 0) return rc;
    int c = peek_past_blanks(j);
    if (c != '"') return unexpected(j, c, "a key in quotes");
    KOLO_TRY(json_string(j, key));
    c = peek_past_blanks(j);
    if (c != ':') return unexpected(j, c, "a colon");
    j->at++;
    return 1;
}

int json_finish(json_stream *j)
{
    const int c = peek_past_blanks(j);
    return c == END ? 0 : unexpected(j, c, "the end of the file");
}

int json_tell(json_stream *j, json_mark *mark)
{
    const int c = peek_past_blanks(j);
    if (c < END) return c;
    *mark = (json_mark){here(j), j->depth, j->is_object, j->is_begun};
    return 0;
}

int json_return(json_stream *j, const json_mark *mark)
{
    j->depth = mark->depth, j->is_object = mark->is_object, j->is_begun = mark->is_begun;
    j->block_offset = mark->offset;
    j->at = j->end = 0;
    return 0;
}

/* ---- numbers ------------------------------------------------------------------------------------------- */

static int skip_digits(json_stream *j)
{
    int c = json_stream_peek(j);
    if (c < '0' || c > '9') return unexpected(j, c, "a digit");
    while (c >= '0' && c <= '9') {
        j->at++;
        c = json_stream_peek(j);
    }
    return c < END ? c : 0;
}

/* Past a number of JSON's grammar. *whole: it has neither fraction nor exponent. */
static int skip_number(json_stream *j, bool *whole)
{
    int c = json_stream_peek(j);
    *whole = true;
    if (c == '-') {
        j->at++;
        c = json_stream_peek(j);
    }
    if (c == '0') j->at++;
    else KOLO_TRY(skip_digits(j));
    c = json_stream_peek(j);
    if (c == '.') {
        *whole = false;
        j->at++;
        KOLO_TRY(skip_digits(j));
        c = json_stream_peek(j);
    }
    if (c == 'e' || c == 'E') {
        *whole = false;
        j->at++;
        c = json_stream_peek(j);
        if (c == '-' || c == '+') j->at++;
        KOLO_TRY(skip_digits(j));
        c = json_stream_peek(j);
    }
    return c < END ? c : 0;
}

/* A number is read where it stands: one that the end of a block cuts is moved to the front of the next
 * block. */
static int whole_number(json_stream *j, char text[MOST_NUMBER], bool *whole)
{
    const int c = peek_past_blanks(j);
    if (c != '-' && (c < '0' || c > '9')) return unexpected(j, c, a_number);
    if (j->end - j->at < MOST_NUMBER) { /* begin a block here */
        j->block_offset += (int64_t)j->at;
        j->at = j->end = 0;
        KOLO_TRY(refill(j));
    }
    const size_t from = j->at;
    const int64_t begin = here(j);
    KOLO_TRY(skip_number(j, whole));
    const int64_t length = here(j) - begin;
    if (length >= MOST_NUMBER) return json_fail(j, "a number of more than %d digits", MOST_NUMBER);
    memcpy(text, j->block + from, (size_t)length);
    text[length] = 0;
    return 0;
}

int json_number(json_stream *j, double *value)
{
    char text[MOST_NUMBER];
    bool whole;
    KOLO_TRY(whole_number(j, text, &whole));
    *value = strtod(text, NULL);
    return isfinite(*value) ? 0 : json_fail(j, "%.40s is larger than a double can be", text);
}

int json_integer(json_stream *j, int64_t *value)
{
    char text[MOST_NUMBER];
    bool whole;
    KOLO_TRY(whole_number(j, text, &whole));
    errno = 0;
    *value = strtoll(text, NULL, 10);
    if (whole && errno == 0) return 0;
    return json_fail(j, "%.40s where a whole number of 64 bits is expected", text);
}

/* ---- strings ------------------------------------------------------------------------------------------- */

static int hex4(json_stream *j, uint32_t *code)
{
    *code = 0;
    for (int i = 0; i < 4; i++) {
        const int c = json_stream_peek(j);
        const int digit = c >= '0' && c <= '9'                 ? c - '0'
                          : (c | 32) >= 'a' && (c | 32) <= 'f' ? (c | 32) - 'a' + 10
                                                               : -1;
        if (c < 0 || digit < 0) return unexpected(j, c, "a hexadecimal digit");
        *code = *code << 4 | (uint32_t)digit;
        j->at++;
    }
    return 0;
}

/* After \u: a character, of which those beyond 16 bits are written as two. */
static int unicode(json_stream *j, uint32_t *code)
{
    uint32_t low = 0;
    KOLO_TRY(hex4(j, code));
    if (*code < 0xD800 || *code > 0xDFFF) return 0;
    for (const char *p = "\\u"; *p; p++) {
        const int c = json_stream_peek(j);
        if (c != *p) return unexpected(j, c, "the second half of a character (\\uDC00 to \\uDFFF)");
        j->at++;
    }
    KOLO_TRY(hex4(j, &low));
    if (*code > 0xDBFF || low < 0xDC00 || low > 0xDFFF)
        return json_fail(j, "\\u%04x\\u%04x is no character", *code, low);
    *code = 0x10000 + ((*code - 0xD800) << 10) + (low - 0xDC00);
    return 0;
}

/* What stands after a backslash; KOLO_EINPUT: no such escape. */
static int escape(json_stream *j, uint32_t *code)
{
    static const char from[] = "\"\\/bfnrt", to[] = "\"\\/\b\f\n\r\t";
    const int c = json_stream_peek(j);
    if (c == 'u') {
        j->at++;
        return unicode(j, code);
    }
    const char *found = c > 0 ? strchr(from, c) : NULL;
    if (!found) return unexpected(j, c, "an escape");
    *code = (uint8_t)to[found - from];
    j->at++;
    return 0;
}

/* How many bytes from here on are plain characters of a string. */
static size_t plain_run(const json_stream *j)
{
    size_t at = j->at;
    while (at < j->end && j->block[at] != '"' && j->block[at] != '\\' && j->block[at] >= 32) at++;
    return at - j->at;
}

static int make_room(json_stream *j, size_t bytes)
{
    if (bytes <= j->text_capacity) return 0;
    if (bytes > JSON_MOST_STRING) return json_fail(j, "a string of more than %d bytes", JSON_MOST_STRING);
    char *grown = realloc(j->text, 2 * bytes);
    if (!grown)
        return kolo_fail(KOLO_ENOMEM, "out of memory: %zu bytes for a string of %s", 2 * bytes, j->path);
    j->text = grown;
    j->text_capacity = 2 * bytes;
    return 0;
}

/* Past a string; where `keep` is set it goes to j->text. */
static int read_string(json_stream *j, bool keep)
{
    size_t used = 0;
    int c = peek_past_blanks(j);
    if (c != '"') return unexpected(j, c, "a string");
    j->at++;
    while ((c = json_stream_peek(j)) != '"') {
        const size_t run = plain_run(j);
        uint32_t code;
        if (c < 32)
            return c == END || c < END ? unexpected(j, c, "the end of a string")
                                       : json_fail(j, "byte %02x in a string; it must be written as \\u%04x",
                                                   (unsigned)c, (unsigned)c);
        if (keep) KOLO_TRY(make_room(j, used + run + 8));
        if (run) {
            if (keep) memcpy(j->text + used, j->block + j->at, run);
            used += run;
            j->at += run;
            continue;
        }
        j->at++; /* a backslash */
        KOLO_TRY(escape(j, &code));
        if (keep && code == 0) return json_fail(j, "a string with a zero character");
        if (keep) used += text_put_utf8(j->text + used, code);
    }
    j->at++;
    if (!keep) return 0;
    KOLO_TRY(make_room(j, used + 1));
    j->text[used] = 0;
    return text_is_utf8(j->text) ? 0 : json_fail(j, "the string that ends here is not UTF-8");
}

int json_string(json_stream *j, const char **text)
{
    KOLO_TRY(read_string(j, true));
    *text = j->text;
    return 0;
}

/* ---- passing over -------------------------------------------------------------------------------------- */

static int skip_word(json_stream *j, const char *word)
{
    for (const char *p = word; *p; p++, j->at++) {
        const int c = json_stream_peek(j);
        if (c != *p) return unexpected(j, c, word);
    }
    return 0;
}

/* Past a value, or into an object or array. */
static int skip_begin(json_stream *j)
{
    bool whole;
    const int c = json_peek(j);
    switch (c) {
    case '{': return json_object(j);
    case '[': return json_array(j);
    case '"': return read_string(j, false);
    case 't': return skip_word(j, "true");
    case 'f': return skip_word(j, "false");
    case 'n': return skip_word(j, "null");
    case '0': return skip_number(j, &whole);
    default: return c;
    }
}

int json_skip(json_stream *j)
{
    const int depth = j->depth;
    const char *key;
    KOLO_TRY(skip_begin(j));
    while (j->depth > depth) {
        const int rc = j->is_object >> j->depth & 1 ? json_key(j, &key) : json_more(j);
        if (rc < 0) return rc;
        if (rc > 0) KOLO_TRY(skip_begin(j));
    }
    return 0;
}
