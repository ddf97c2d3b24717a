#include "xml_small.h"

#include <stdarg.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/file.h"
#include "base/memory.h"
#include "kolo/error.h"
#include "text_rows.h"

int xml_fail(const xml_reader *x, const char *format, ...)
{
    char text[1024];
    long long line = 1;
    va_list list;
    va_start(list, format);
    vsnprintf(text, sizeof text, format, list);
    va_end(list);
    for (const char *p = x->data; p < x->at; p++) line += *p == '\n';
    return kolo_fail(KOLO_EINPUT, "%s:%lld: %s", x->path, line, text);
}

static int check_bytes(xml_reader *x, size_t bytes)
{
    if (bytes >= 2 && ((uint8_t)x->data[0] == 0xFE || (uint8_t)x->data[0] == 0xFF))
        return kolo_fail(KOLO_EINPUT, "%s: in UTF-16; convert it to UTF-8", x->path);
    for (size_t i = 0; i < bytes; i++) {
        const uint8_t c = (uint8_t)x->data[i];
        if (c >= 32 || c == '\t' || c == '\n' || c == '\r') continue;
        x->at = x->data + i;
        return xml_fail(x, "byte %02x; this is not an XML file", c);
    }
    if (!text_is_utf8(x->data)) return kolo_fail(KOLO_EINPUT, "%s: not in UTF-8; convert it", x->path);
    return 0;
}

int xml_open(xml_reader *x, const char *path)
{
    size_t bytes = 0;
    *x = (xml_reader){.path = kolo_strdup(path)};
    const int64_t size = x->path ? kolo_file_size(path) : KOLO_ECONFIG;
    int rc = size < 0 ? (int)size : 0;
    if (size > XML_MOST_BYTES) rc = kolo_fail(KOLO_EINPUT, "%s: %lld bytes, more than an annotation has", path, (long long)size);
    if (rc == 0) rc = kolo_file_read(path, &x->data, &bytes);
    if (rc == 0) rc = check_bytes(x, bytes);
    if (rc == 0) {
        x->at = x->data + (bytes >= 3 && memcmp(x->data, "\xEF\xBB\xBF", 3) == 0 ? 3 : 0);
        x->text = malloc(bytes + 1); /* text never becomes longer than the file */
        x->name = malloc(bytes + 1);
        if (!x->text || !x->name) rc = kolo_fail(KOLO_ECONFIG, "out of memory: %zu bytes to read %s", bytes, path);
    }
    if (rc < 0) xml_close(x);
    return rc;
}

void xml_close(xml_reader *x)
{
    free(x->path);
    free(x->data);
    free(x->text);
    free(x->name);
    *x = (xml_reader){0};
}

static bool is_blank(char c) { return c == ' ' || c == '\t' || c == '\n' || c == '\r'; }

static void skip_blanks(xml_reader *x)
{
    while (is_blank(*x->at)) x->at++;
}

/* Letters and what is beyond ASCII; digits, `-` and `.` not first. */
static bool is_name(char c, bool first)
{
    return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || c == '_' || c == ':' || (c & 0x80) ||
           (!first && ((c >= '0' && c <= '9') || c == '-' || c == '.'));
}

/* Length of the name at hand, which is passed. */
static int take_name(xml_reader *x, size_t *length)
{
    const char *from = x->at;
    if (!is_name(*x->at, true)) return xml_fail(x, "a name is expected after < or </, or a blank before an attribute");
    while (is_name(*x->at, false)) x->at++;
    *length = (size_t)(x->at - from);
    return 0;
}

/* Past `what`, which begins here, and the first `end` after it. */
static int skip_until(xml_reader *x, const char *end, const char *what)
{
    char *found = strstr(x->at, end);
    if (!found) return xml_fail(x, "%s is not closed; the file is cut off", what);
    x->at = found + strlen(end);
    return 0;
}

static int skip_comment(xml_reader *x)
{
    x->at += 4;
    KOLO_TRY(skip_until(x, "--", "a comment"));
    return *x->at++ == '>' ? 0 : xml_fail(x, "-- within a comment");
}

/* The value of a character or entity reference, which is passed. */
static int take_reference(xml_reader *x, uint32_t *code)
{
    static const struct {
        const char *name;
        char value;
    } known[] = {{"&lt;", '<'}, {"&gt;", '>'}, {"&amp;", '&'}, {"&apos;", '\''}, {"&quot;", '"'}};
    for (size_t i = 0; i < sizeof known / sizeof *known; i++) {
        if (!text_begins(x->at, known[i].name)) continue;
        x->at += strlen(known[i].name);
        *code = (uint8_t)known[i].value;
        return 0;
    }
    const int length = (int)strcspn(x->at + 1, "; \t\r\n<&\"");
    char *end = x->at;
    unsigned long value = 0;
    if (text_begins(x->at, "&#x") && strspn(x->at + 3, "0123456789abcdefABCDEF")) value = strtoul(x->at + 3, &end, 16);
    else if (text_begins(x->at, "&#") && strspn(x->at + 2, "0123456789")) value = strtoul(x->at + 2, &end, 10);
    if (*end != ';' || (value < 32 && value != 9 && value != 10 && value != 13) || value > 0x10FFFF || (value >= 0xD800 && value <= 0xDFFF) ||
        value == 0xFFFE || value == 0xFFFF)
        return xml_fail(x, "&%.*s is no character, and entities are not declared here; write &amp; for an ampersand", length > 40 ? 40 : length, x->at + 1);
    x->at = end + 1;
    *code = (uint32_t)value;
    return 0;
}

/* name="value" pairs up to the end of a tag. */
static int skip_attributes(xml_reader *x)
{
    size_t length;
    uint32_t code;
    for (;;) {
        const bool blank = is_blank(*x->at);
        skip_blanks(x);
        if (*x->at == '>' || *x->at == '/' || *x->at == '?') return 0;
        if (!blank) return xml_fail(x, "a tag is not closed");
        KOLO_TRY(take_name(x, &length));
        skip_blanks(x);
        if (*x->at++ != '=') return xml_fail(x, "an attribute without a value");
        skip_blanks(x);
        const char quote = *x->at++;
        if (quote != '"' && quote != '\'') return xml_fail(x, "the value of an attribute is not in quotes");
        while (*x->at && *x->at != quote && *x->at != '<') {
            if (*x->at == '&') KOLO_TRY(take_reference(x, &code));
            else x->at++;
        }
        if (*x->at != quote) return xml_fail(x, "the value of an attribute is not closed");
        x->at++;
    }
}

static int enter(xml_reader *x, const char **name)
{
    size_t length;
    const char *from = ++x->at;
    KOLO_TRY(take_name(x, &length));
    if (x->depth == XML_MOST_DEPTH) return xml_fail(x, "elements nest deeper than %d", XML_MOST_DEPTH);
    KOLO_TRY(skip_attributes(x));
    x->is_empty = *x->at == '/';
    if (x->is_empty) x->at++;
    if (*x->at != '>') return xml_fail(x, "a tag is not closed");
    x->at++;
    x->open[x->depth].text = from;
    x->open[x->depth++].length = length;
    memcpy(x->name, from, length);
    x->name[length] = 0;
    *name = x->name;
    return 1;
}

static int leave(xml_reader *x)
{
    if (x->is_empty) {
        x->is_empty = false;
        x->depth--;
        return 0;
    }
    size_t length;
    const char *from = x->at += 2;
    KOLO_TRY(take_name(x, &length));
    const int top = x->depth - 1;
    if (length != x->open[top].length || memcmp(from, x->open[top].text, length) != 0)
        return xml_fail(x, "</%.*s> where </%.*s> is expected", (int)(length > 60 ? 60 : length), from,
                        (int)(x->open[top].length > 60 ? 60 : x->open[top].length), x->open[top].text);
    skip_blanks(x);
    if (*x->at != '>') return xml_fail(x, "a tag is not closed");
    x->at++;
    x->depth--;
    return 0;
}

/* Past a comment or processing instruction: 1; 0: something else stands here. */
static int skip_aside(xml_reader *x)
{
    if (text_begins(x->at, "<!--")) {
        KOLO_TRY(skip_comment(x));
        return 1;
    }
    if (!text_begins(x->at, "<?")) return 0;
    size_t length;
    x->at += 2;
    KOLO_TRY(take_name(x, &length));
    KOLO_TRY(skip_until(x, "?>", "a <? instruction"));
    return 1;
}

/* CDATA that begins here to the text. */
static int take_cdata(xml_reader *x, size_t *used)
{
    const char *from = x->at += 9;
    KOLO_TRY(skip_until(x, "]]>", "<![CDATA["));
    const size_t length = (size_t)(x->at - 3 - from);
    memcpy(x->text + *used, from, length);
    *used += length;
    return 0;
}

static int take_character(xml_reader *x, size_t *used)
{
    uint32_t code;
    if (text_begins(x->at, "]]>")) return xml_fail(x, "]]> outside of CDATA");
    if (x->depth == 0 && !is_blank(*x->at)) return xml_fail(x, "text outside of the outermost element; this is not an XML file");
    if (*x->at != '&') {
        x->text[(*used)++] = *x->at++;
        return 0;
    }
    KOLO_TRY(take_reference(x, &code));
    *used += text_put_utf8(x->text + *used, code);
    return 0;
}

/* To the next tag, or the end of the file. The text up to there is in x->text. */
static int to_tag(xml_reader *x)
{
    size_t used = 0;
    while (*x->at) {
        int rc = *x->at == '<' ? skip_aside(x) : 0;
        if (rc < 0) return rc;
        if (rc > 0) continue;
        if (x->depth > 0 && text_begins(x->at, "<![CDATA[")) rc = take_cdata(x, &used);
        else if (text_begins(x->at, "<!")) rc = xml_fail(x, "a document type (<!DOCTYPE) or declaration; annotations need none, and it is not read");
        else if (*x->at == '<') break;
        else rc = take_character(x, &used);
        if (rc < 0) return rc;
    }
    x->text[used] = 0;
    return 0;
}

int xml_child(xml_reader *x, const char **name)
{
    if (x->is_empty) return leave(x);
    KOLO_TRY(to_tag(x));
    if (*x->at == 0)
        return x->depth ? xml_fail(x, "the file ends within <%.*s>; it is cut off", (int)x->open[x->depth - 1].length, x->open[x->depth - 1].text)
                        : xml_fail(x, "no element; this is not an XML file");
    if (x->at[1] != '/') return enter(x, name);
    return x->depth ? leave(x) : xml_fail(x, "an element ends that was not begun");
}

int xml_text(xml_reader *x, const char **text)
{
    x->text[0] = 0;
    if (!x->is_empty) KOLO_TRY(to_tag(x));
    if (!x->is_empty && *x->at == 0) return xml_fail(x, "the file ends within an element; it is cut off");
    if (!x->is_empty && x->at[1] != '/') return xml_fail(x, "an element where text is expected");
    char *from = x->text, *end = x->text + strlen(x->text);
    while (is_blank(*from)) from++;
    while (end > from && is_blank(end[-1])) *--end = 0;
    *text = from;
    return leave(x);
}

int xml_skip(xml_reader *x)
{
    const char *name;
    const int depth = x->depth;
    int rc = 0;
    while (rc >= 0 && x->depth >= depth) rc = xml_child(x, &name);
    return rc < 0 ? rc : 0;
}

int xml_finish(xml_reader *x)
{
    KOLO_TRY(to_tag(x));
    return *x->at == 0 ? 0 : xml_fail(x, "a second outermost element");
}
