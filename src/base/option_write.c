/* Options as recipe text, and the difference between two runs. */
#include <stdlib.h>
#include <string.h>
#include <strings.h>

#include "base/memory.h"
#include "base/option.h"

/* Adds `piece` to *text (owned); NULL stays NULL. */
static void option_write_append(char **text, const char *piece)
{
    if (!*text) return;
    char *longer = kolo_format("%s%s", *text, piece);
    free(*text);
    *text = longer;
}

/* A double-quoted YAML scalar; control characters never get into a TEXT. */
static void append_quoted(char **text, const char *value)
{
    char one[3] = {'\\', 0, 0};
    option_write_append(text, "\"");
    for (const char *p = value; *p; p++) {
        one[1] = *p;
        option_write_append(text, *p == '"' || *p == '\\' ? one : one + 1);
    }
    option_write_append(text, "\"");
}

/* What YAML, of any version, takes for a text without quotes: not what looks like a number, a truth or
 * nothing. */
static bool is_plain(const char *value)
{
    static const char plain[] = "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789_./-";
    static const char *const other[] = {"true", "false", "yes", "no", "on", "off", "y", "n", "null"};
    if (!*value || value[strspn(value, plain)] || strchr("0123456789.-", *value)) return false;
    for (size_t i = 0; i < sizeof other / sizeof *other; i++)
        if (!strcasecmp(value, other[i])) return false;
    return true;
}

static void append_line(char **text, const kolo_option_entry *e, const char *value)
{
    const bool word = e->type == KOLO_OPTION_TEXT || e->type == KOLO_OPTION_CHOICE;
    option_write_append(text, e->key);
    option_write_append(text, ": ");
    if (word && !is_plain(value)) append_quoted(text, value);
    else option_write_append(text, value);
    option_write_append(text, "\n");
}

char *kolo_options_write(const kolo_options *options, bool all)
{
    kolo_options standard;
    kolo_options_default(&standard);
    char *text = kolo_strdup("");
    for (int i = 0; text && i < kolo_option_count; i++) {
        const kolo_option_entry *e = &kolo_option_table[i];
        char *value = kolo_option_text(options, e), *usual = kolo_option_text(&standard, e);
        if (!value || !usual) {
            free(text);
            text = NULL;
        } else if (all || strcmp(value, usual)) {
            append_line(&text, e, value);
        }
        free(value);
        free(usual);
    }
    kolo_options_free(&standard);
    return text;
}

/* stash=auto and lossless have the bits of none. */
static bool is_exact(const kolo_option_entry *e, const char *value)
{
    return !strcmp(e->key, "stash") &&
           (!strcmp(value, "auto") || !strcmp(value, "none") || !strcmp(value, "lossless"));
}

/* A run's record names paths from the root; a later start may name them from where it was
 * started. */
static bool same(const kolo_option_entry *e, const char *was, const char *now)
{
    if (!strcmp(was, now) || (is_exact(e, was) && is_exact(e, now))) return true;
    if (e->path && !strncmp(now, "./", 2)) now += 2;
    const size_t n = strlen(was), m = strlen(now);
    return e->path && *was == '/' && m && n > m && was[n - m - 1] == '/' && !strcmp(was + n - m, now);
}

char *kolo_options_difference(const kolo_options *was, const kolo_options *now)
{
    char *text = NULL;
    for (int i = 0; i < kolo_option_count; i++) {
        const kolo_option_entry *e = &kolo_option_table[i];
        if (e->scope != KOLO_SCOPE_MATH) continue;
        char *a = kolo_option_text(was, e), *b = kolo_option_text(now, e);
        if (a && b && !same(e, a, b)) {
            if (!text) text = kolo_strdup("");
            char *line = kolo_format("%s%s: was %s, now %s", *text ? "; " : "", e->key, *a ? a : "\"\"",
                                     *b ? b : "\"\"");
            if (line) option_write_append(&text, line);
            free(line);
        }
        free(a);
        free(b);
    }
    return text;
}
