#include "ops/choices.h"

#include <errno.h>
#include <fcntl.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/temp_file.h"
#include "base/file.h"
#include "base/log.h"
#include "base/memory.h"
#include "base/thread.h"
#include "kolo/error.h"

static const char *choices_find(const kolo_choice *list, int64_t count, const char *key)
{
    for (int64_t i = count - 1; i >= 0; i--) /* the newest line counts */
        if (!strcmp(list[i].key, key)) return list[i].value;
    return NULL;
}

static int choices_append(kolo_choice **list, int64_t *capacity, int64_t *count, const char *key,
                          const char *value)
{
    KOLO_TRY(kolo_grow(list, capacity, *count, sizeof **list));
    kolo_choice c = {.key = kolo_strdup(key), .value = kolo_strdup(value)};
    if (!c.key || !c.value) {
        free(c.key);
        free(c.value);
        return KOLO_ENOMEM;
    }
    (*list)[(*count)++] = c;
    return 0;
}

/* Lines "prefix key = value"; others (another machine's, a torn last line) are passed over. */
static int parse(kolo_choices *c, char *text, const char *prefix)
{
    size_t skip = strlen(prefix);
    for (char *line = text, *next; line && *line; line = next) {
        next = strchr(line, '\n');
        if (!next) break;
        *next++ = 0;
        char *equal = strstr(line, " = ");
        if (!equal || strncmp(line, prefix, skip)) continue;
        *equal = 0;
        KOLO_TRY(choices_append(&c->known, &c->known_capacity, &c->known_count, line + skip, equal + 3));
    }
    return 0;
}

static int parse_file(kolo_choices *c)
{
    char *text = NULL;
    if (!kolo_file_exists(c->path) || kolo_file_read(c->path, &text, NULL) < 0) return 0;
    int rc = parse(c, text, c->machine);
    free(text);
    return rc;
}

int kolo_choices_open(kolo_choices *c, const char *machine, const char *path, const char *text)
{
    *c = (kolo_choices){.opened = kolo_time()};
    c->machine = kolo_format("%s | ", machine);
    if (!c->machine) return KOLO_ENOMEM;
    if (text) {
        c->given = true;
        char *copy = kolo_strdup(text);
        if (!copy) return KOLO_ENOMEM;
        int rc = parse(c, copy, "");
        free(copy);
        return rc;
    }
    if (path && *path) {
        c->path = kolo_strdup(path);
        if (!c->path) return KOLO_ENOMEM;
        return parse_file(c);
    }
    return 0;
}

static void choices_release(kolo_choice *list, int64_t count)
{
    for (int64_t i = 0; i < count; i++) {
        free(list[i].key);
        free(list[i].value);
    }
    free(list);
}

void kolo_choices_close(kolo_choices *c)
{
    choices_release(c->list, c->count);
    choices_release(c->known, c->known_count);
    free(c->machine);
    free(c->path);
    memset(c, 0, sizeof *c);
}

/* Of a key what stands in front of the blocks of its layout: a plan file has the choices of layouts, too,
 * that were timed and not taken. */
static size_t operation_length(const char *key)
{
    size_t n = strlen(key);
    for (const char *at = strstr(key, " b "); at; at = strstr(at + 1, " b ")) n = (size_t)(at - key);
    return n;
}

static void choices_mark(kolo_choices *c, const char *key)
{
    const size_t n = operation_length(key);
    for (int64_t i = 0; i < c->known_count; i++) {
        kolo_choice *k = &c->known[i];
        k->asked = k->asked || (!strncmp(k->key, key, n) && operation_length(k->key) == n);
    }
}

const kolo_choice *kolo_choices_unasked(const kolo_choices *c, int64_t *count)
{
    const kolo_choice *first = NULL;
    *count = 0;
    for (int64_t i = c->known_count - 1; c->given && i >= 0; i--)
        if (!c->known[i].asked) first = &c->known[i], ++*count;
    return first;
}

const char *kolo_choices_find(kolo_choices *c, const char *key)
{
    const char *value = choices_find(c->list, c->count, key);
    if (value) return value;
    if (c->given) choices_mark(c, key);
    value = choices_find(c->known, c->known_count, key);
    if (!value || choices_append(&c->list, &c->capacity, &c->count, key, value) < 0) return NULL;
    return c->list[c->count - 1].value;
}

void kolo_choices_doubt(kolo_choices *c, const char *key, const char *value)
{
    if (!c->given || c->doubted) return;
    c->doubted = true;
    kolo_warn("choices: \"%s = %s\": this machine has no such algorithm, and takes another; leave choices "
              "out of the plan file: a clock chooses then",
              key, value);
}

/* One write(2) of a whole line, so that two jobs that append at once do not mix. */
static void append_file(kolo_choices *c, const char *key, const char *value)
{
    char *line = kolo_format("%s%s = %s\n", c->machine, key, value);
    int fd = line ? kolo_file_open_plain(c->path, O_WRONLY | O_CREAT | O_APPEND, 0644) : -1;
    size_t length = line ? strlen(line) : 0;
    if (fd < 0 || write(fd, line, length) != (ssize_t)length) {
        kolo_debug("%s: choices are not kept: %s", c->path, fd < 0 ? kolo_error_text() : strerror(errno));
        free(c->path);
        c->path = NULL;
    }
    if (fd >= 0) close(fd);
    free(line);
}

/* Many shapes of large batches take minutes, in which nothing else is said. */
static void choices_announce(kolo_choices *c)
{
    if (c->announced || kolo_time() - c->opened < 3) return;
    c->announced = true;
    if (c->path)
        kolo_info("timing algorithms, once for a machine and a shape; the choices are kept in %s", c->path);
    else kolo_info("timing algorithms, in every run again; set KOLO_CACHE=FOLDER to keep the choices");
}

int kolo_choices_add(kolo_choices *c, const char *key, const char *value)
{
    choices_announce(c);
    KOLO_TRY(choices_append(&c->list, &c->capacity, &c->count, key, value));
    if (c->path) append_file(c, key, value);
    return 0;
}

char *kolo_choices_text(const kolo_choices *c)
{
    size_t bytes = 1;
    for (int64_t i = 0; i < c->count; i++) bytes += strlen(c->list[i].key) + strlen(c->list[i].value) + 4;
    char *text = kolo_alloc(bytes), *at = text;
    for (int64_t i = 0; text && i < c->count; i++) {
        const char *piece[4] = {c->list[i].key, " = ", c->list[i].value, "\n"};
        for (int k = 0; k < 4; k++) {
            size_t n = strlen(piece[k]);
            memcpy(at, piece[k], n);
            at += n;
        }
    }
    return text;
}
