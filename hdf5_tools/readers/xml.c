#include "readers/xml.h"

#include "kolo/error.h"

#ifndef KOLO_XML

int xml_built(void)
{
    return kolo_fail(KOLO_ECONFIG,
                     "XML: this program was built without libxml2; install libxml2-dev "
                     "(libxml2-devel, libxml2) and build it again, or name it: make XML_HOME=FOLDER");
}

int xml_open(xml_reader *x, const char *path) { return (void)x, (void)path, xml_built(); }
void xml_close(xml_reader *x) { (void)x; }
int xml_child(xml_reader *x, const char **name) { return (void)x, (void)name, xml_built(); }
int xml_text(xml_reader *x, const char **text) { return (void)x, (void)text, xml_built(); }
int xml_skip(xml_reader *x) { return (void)x, xml_built(); }
int xml_finish(xml_reader *x) { return (void)x, xml_built(); }
int xml_fail(const xml_reader *x, const char *format, ...) { return (void)x, (void)format, xml_built(); }

#else

#include <libxml/xmlreader.h>
#include <stdarg.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/file.h"
#include "base/memory.h"
#include "readers/text_rows.h"

#if LIBXML_VERSION >= 21200
typedef const xmlError xml_error;
#else
typedef xmlError xml_error;
#endif

int xml_built(void) { return 0; }

static int fail_at(const xml_reader *x, long line, const char *text)
{
    return kolo_fail(KOLO_EINPUT, "%s:%ld: %s", x->path, line, text);
}

int xml_fail(const xml_reader *x, const char *format, ...)
{
    char text[1024];
    va_list list;
    va_start(list, format);
    vsnprintf(text, sizeof text, format, list);
    va_end(list);
    xmlNode *node = x->parser ? xmlTextReaderCurrentNode(x->parser) : NULL;
    return fail_at(x, node ? xmlGetLineNo(node) : 1, text);
}

/* What libxml2 says, in our words where a cure is known. */
static char *words_of(xml_error *e)
{
    const char *one = e->str1 ? e->str1 : "", *two = e->str2 ? e->str2 : "";
    switch (e->code) {
    case XML_ERR_DOCUMENT_EMPTY:
        return kolo_strdup("text outside of the outermost element; this is not an XML file");
    case XML_ERR_TAG_NAME_MISMATCH: return kolo_format("</%.60s> where </%.60s> is expected", two, one);
    case XML_ERR_UNDECLARED_ENTITY:
        return kolo_format("&%.40s is no character, and entities are not declared here; write &amp; for an "
                           "ampersand",
                           one);
    case XML_ERR_COMMENT_NOT_FINISHED: return kolo_strdup("a comment is not closed; the file is cut off");
    }
    const char *message = e->message ? e->message : "no XML";
    return kolo_format("%.*s", (int)strcspn(message, "\n"), message);
}

static void on_error(void *context, xml_error *e)
{
    xml_reader *x = context;
    if (x->fault || e->level != XML_ERR_FATAL) return;
    x->fault = words_of(e);
    x->fault_line = e->line;
}

/* What must be known before libxml2 looks: that these are the bytes it will read, and no document type. */
static int check_bytes(const xml_reader *x, size_t bytes)
{
    const char *type = memmem(x->data, bytes, "<!DOCTYPE", 9);
    long line = 1;
    if (bytes >= 2 && ((uint8_t)x->data[0] == 0xFE || (uint8_t)x->data[0] == 0xFF))
        return kolo_fail(KOLO_EINPUT, "%s: in UTF-16; convert it to UTF-8", x->path);
    if (memchr(x->data, 0, bytes)) return fail_at(x, 1, "byte 00; this is not an XML file");
    if (!text_is_utf8(x->data)) return kolo_fail(KOLO_EINPUT, "%s: not in UTF-8; convert it", x->path);
    if (strspn(x->data, " \t\r\n") == bytes) return fail_at(x, 1, "no element; this is not an XML file");
    if (!type) return 0;
    for (const char *p = x->data; p < type; p++) line += *p == '\n';
    return fail_at(x, line, "a document type (<!DOCTYPE); annotations need none, and it is not read");
}

static int open_parser(xml_reader *x, size_t bytes)
{
    const size_t mark = text_begins(x->data, "\xEF\xBB\xBF") ? 3 : 0;
    x->text = malloc(bytes + 1);
    x->parser = xmlReaderForMemory(x->data + mark, (int)(bytes - mark), NULL, "UTF-8",
                                   XML_PARSE_NONET | XML_PARSE_IGNORE_ENC | XML_PARSE_BIG_LINES);
    if (!x->text || !x->parser)
        return kolo_fail(KOLO_ENOMEM, "out of memory: %zu bytes to read %s", bytes, x->path);
    xmlTextReaderSetStructuredErrorHandler(x->parser, on_error, x);
    return 0;
}

int xml_open(xml_reader *x, const char *path)
{
    size_t bytes = 0;
    *x = (xml_reader){.path = kolo_strdup(path)};
    const int64_t size = x->path ? kolo_file_size(path) : KOLO_ECONFIG;
    int rc = size < 0 ? (int)size : 0;
    if (size > XML_MOST_BYTES)
        rc = kolo_fail(KOLO_EINPUT, "%s: %lld bytes, more than an annotation has", path, (long long)size);
    if (rc == 0) rc = kolo_file_read(path, &x->data, &bytes);
    if (rc == 0) rc = check_bytes(x, bytes);
    if (rc == 0) rc = open_parser(x, bytes);
    if (rc < 0) xml_close(x);
    return rc;
}

void xml_close(xml_reader *x)
{
    if (x->parser) xmlFreeTextReader(x->parser);
    free(x->path);
    free(x->data);
    free(x->text);
    free(x->fault);
    *x = (xml_reader){0};
}

/* To the next tag or text: its kind, XML_READER_TYPE_*; 0 at the end of the file. */
static int advance(xml_reader *x)
{
    for (;;) {
        const int more = xmlTextReaderRead(x->parser);
        if (more < 0) return fail_at(x, x->fault_line, x->fault ? x->fault : "cannot be read as XML");
        if (more == 0) return 0;
        const int kind = xmlTextReaderNodeType(x->parser);
        if (kind != XML_READER_TYPE_COMMENT && kind != XML_READER_TYPE_PROCESSING_INSTRUCTION) return kind;
    }
}

static int close_element(xml_reader *x)
{
    x->is_empty = false;
    x->depth--;
    return 0;
}

int xml_child(xml_reader *x, const char **name)
{
    if (x->is_empty) return close_element(x);
    for (;;) {
        const int kind = advance(x);
        KOLO_TRY(kind);
        if (kind == 0) return xml_fail(x, "no element; this is not an XML file");
        if (kind == XML_READER_TYPE_END_ELEMENT) return close_element(x);
        if (kind != XML_READER_TYPE_ELEMENT) continue;
        if (x->depth == XML_MOST_DEPTH) return xml_fail(x, "elements nest deeper than %d", XML_MOST_DEPTH);
        x->depth++;
        x->is_empty = xmlTextReaderIsEmptyElement(x->parser) == 1;
        *name = (const char *)xmlTextReaderConstName(x->parser);
        return *name ? 1 : xml_fail(x, "an element without a name");
    }
}

int xml_text(xml_reader *x, const char **text)
{
    size_t used = 0;
    int kind = x->is_empty ? XML_READER_TYPE_END_ELEMENT : advance(x);
    for (; kind > 0 && kind != XML_READER_TYPE_END_ELEMENT; kind = advance(x)) {
        if (kind == XML_READER_TYPE_ELEMENT) return xml_fail(x, "an element where text is expected");
        const char *part = (const char *)xmlTextReaderConstValue(x->parser);
        const size_t length = part ? strlen(part) : 0;
        memcpy(x->text + used, part ? part : "", length); /* no text is longer than what stands for it */
        used += length;
    }
    KOLO_TRY(kind);
    x->text[used] = 0;
    while (used > 0 && strchr(" \t\r\n", x->text[used - 1])) x->text[--used] = 0;
    *text = x->text + strspn(x->text, " \t\r\n");
    return close_element(x);
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
    int kind;
    while ((kind = advance(x)) > 0) {
    }
    return kind;
}

#endif
