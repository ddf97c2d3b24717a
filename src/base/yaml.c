/* Flat YAML, read from libyaml's events so that every error knows its line and column. */
#include "base/yaml.h"

#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <yaml.h>

#include "base/file.h"
#include "base/memory.h"
#include "kolo/error.h"

typedef struct reader {
    yaml_parser_t parser;
    yaml_event_t event; /* the one looked at; owned */
    const char *path;
    const kolo_yaml_form *form;
    void *context;
    struct seen {
        char *key;
        size_t line;
    } * seen; /* keys so far */
    int64_t count, room;
} reader;

__attribute__((format(printf, 3, 4))) static int fail_at(const reader *r, yaml_mark_t mark, const char *text,
                                                         ...)
{
    char words[512];
    va_list list;
    va_start(list, text);
    vsnprintf(words, sizeof words, text, list);
    va_end(list);
    return kolo_fail(KOLO_ECONFIG, "%s:%zu:%zu: %s", r->path, mark.line + 1, mark.column + 1, words);
}

/* Replaces r->event by the next one. */
static int next(reader *r)
{
    yaml_event_delete(&r->event);
    if (yaml_parser_parse(&r->parser, &r->event)) return 0;
    const yaml_parser_t *p = &r->parser;
    const char *problem = p->problem ? p->problem : "out of memory";
    if (p->error == YAML_READER_ERROR)
        return kolo_fail(KOLO_ECONFIG, "%s: %s at byte %zu; such a file is UTF-8 text", r->path, problem,
                         p->problem_offset);
    char *text =
        kolo_format("not YAML: %s%s%s", p->context ? p->context : "", p->context ? ", " : "", problem);
    int rc = fail_at(r, p->problem_mark, "%s", text ? text : problem);
    free(text);
    return rc;
}

/* Scalars and lists pass, everything else does not belong here. */
static int refuse_odd(const reader *r)
{
    const yaml_event_t *e = &r->event;
    switch (e->type) {
    case YAML_ALIAS_EVENT:
        return fail_at(r, e->start_mark, "aliases (*name) are not supported; write the value");
    case YAML_MAPPING_START_EVENT:
        return fail_at(r, e->start_mark,
                       "a %s is flat, but this value is a mapping; write \"key: value\" on each line",
                       r->form->what);
    case YAML_SCALAR_EVENT:
        if (e->data.scalar.anchor)
            return fail_at(r, e->start_mark, "anchors (&name) are not supported; write the value");
        if (e->data.scalar.tag)
            return fail_at(r, e->start_mark, "tags (!name) are not supported; write the value");
        if (strlen((char *)e->data.scalar.value) != e->data.scalar.length)
            return fail_at(r, e->start_mark, "the value holds a NUL character");
        return 0;
    case YAML_SEQUENCE_START_EVENT:
        if (e->data.sequence_start.anchor)
            return fail_at(r, e->start_mark, "anchors (&name) are not supported; write the value");
        return 0;
    default: return 0;
    }
}

/* Behind the `length` bytes of *text, `room` of which it has; a comma between two. */
static int yaml_append(char **text, int64_t *length, int64_t *room, const char *item)
{
    const int64_t bytes = (int64_t)strlen(item);
    KOLO_TRY(kolo_grow(text, room, *length + bytes + 1, 1));
    if (*length) (*text)[(*length)++] = ',';
    memcpy(*text + *length, item, (size_t)bytes + 1);
    *length += bytes;
    return 0;
}

/* r->event starts a list; *joined: its scalars with commas (owned by the caller). */
static int read_list(reader *r, char **joined)
{
    int64_t length = 0, room = 0;
    *joined = kolo_strdup("");
    if (!*joined) return KOLO_ENOMEM;
    for (;;) {
        KOLO_TRY(next(r));
        if (r->event.type == YAML_SEQUENCE_END_EVENT) return 0;
        KOLO_TRY(refuse_odd(r));
        if (r->event.type != YAML_SCALAR_EVENT)
            return fail_at(r, r->event.start_mark, "a list holds plain values only, no list inside a list");
        const char *item = (const char *)r->event.data.scalar.value;
        if (strchr(item, ','))
            return fail_at(r, r->event.start_mark, "a comma inside a list's item; commas separate items");
        KOLO_TRY(yaml_append(joined, &length, &room, item));
    }
}

static int read_value(reader *r, const char *key, const char *where)
{
    KOLO_TRY(next(r));
    KOLO_TRY(refuse_odd(r));
    if (r->event.type == YAML_SCALAR_EVENT)
        return r->form->set(r->context, key, (const char *)r->event.data.scalar.value, where);
    if (r->event.type != YAML_SEQUENCE_START_EVENT)
        return fail_at(r, r->event.start_mark, "a value is missing here");
    char *joined = NULL;
    int rc = read_list(r, &joined);
    if (rc == 0) rc = r->form->set(r->context, key, joined, where);
    free(joined);
    return rc;
}

static int note_key(reader *r, const char *key, size_t line)
{
    for (int64_t i = 0; i < r->count; i++) {
        if (strcmp(r->seen[i].key, key)) continue;
        return fail_at(r, r->event.start_mark, "\"%s\" is set twice, first on line %zu; keep one", key,
                       r->seen[i].line);
    }
    KOLO_TRY(kolo_grow(&r->seen, &r->room, r->count, sizeof *r->seen));
    char *copy = kolo_strdup(key);
    if (!copy) return KOLO_ENOMEM;
    r->seen[r->count++] = (struct seen){copy, line};
    return 0;
}

/* r->event is a key. */
static int read_pair(reader *r)
{
    KOLO_TRY(refuse_odd(r));
    if (r->event.type != YAML_SCALAR_EVENT)
        return fail_at(r, r->event.start_mark, "a key must be a plain word");
    yaml_mark_t mark = r->event.start_mark;
    KOLO_TRY(note_key(r, (const char *)r->event.data.scalar.value, mark.line + 1));
    char *key = kolo_strdup((const char *)r->event.data.scalar.value);
    char *where = kolo_format("%s:%zu:%zu", r->path, mark.line + 1, mark.column + 1);
    int rc = key && where ? read_value(r, key, where) : KOLO_ENOMEM;
    free(key);
    free(where);
    return rc;
}

static int read_document(reader *r)
{
    KOLO_TRY(next(r)); /* stream start */
    KOLO_TRY(next(r));
    if (r->event.type == YAML_STREAM_END_EVENT) return 0; /* comments only */
    KOLO_TRY(next(r));
    bool nothing = r->event.type == YAML_SCALAR_EVENT && r->event.data.scalar.length == 0; /* a lone "---" */
    if (!nothing && r->event.type != YAML_MAPPING_START_EVENT)
        return fail_at(r, r->event.start_mark, "a %s is a mapping, \"key: value\" on each line",
                       r->form->what);
    if (!nothing && r->event.data.mapping_start.anchor)
        return fail_at(r, r->event.start_mark, "anchors (&name) are not supported; write the value");
    while (!nothing) {
        KOLO_TRY(next(r));
        if (r->event.type == YAML_MAPPING_END_EVENT) break;
        KOLO_TRY(read_pair(r));
    }
    KOLO_TRY(next(r)); /* document end */
    KOLO_TRY(next(r));
    if (r->event.type != YAML_STREAM_END_EVENT)
        return fail_at(r, r->event.start_mark, "a %s is one document; a second one starts here",
                       r->form->what);
    return 0;
}

int kolo_yaml_read(const char *path, const kolo_yaml_form *form, void *context)
{
    char *text = NULL;
    size_t bytes = 0;
    int rc = kolo_file_read(path, &text, &bytes);
    if (rc == KOLO_EINPUT) return kolo_fail_in(KOLO_ECONFIG, "%s ", form->what);
    if (rc < 0) return rc;
    reader r = {.path = path, .form = form, .context = context};
    if (yaml_parser_initialize(&r.parser)) {
        yaml_parser_set_input_string(&r.parser, (const unsigned char *)text, bytes);
        rc = read_document(&r);
        yaml_event_delete(&r.event);
        yaml_parser_delete(&r.parser);
    } else {
        rc = kolo_fail(KOLO_ENOMEM, "%s: out of memory while reading it", path);
    }
    for (int64_t i = 0; i < r.count; i++) free(r.seen[i].key);
    free(r.seen);
    free(text);
    return rc;
}
