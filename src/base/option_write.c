/* Options as recipe text, and the difference between two runs. */
#include <stdlib.h>
#include <string.h>

#include "base/memory.h"
#include "base/option.h"

/* Adds `piece` to *text (owned); NULL stays NULL. */
static void append(char **text, const char *piece)
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
    append(text, "\"");
    for (const char *p = value; *p; p++) {
        one[1] = *p;
        append(text, *p == '"' || *p == '\\' ? one : one + 1);
    }
    append(text, "\"");
}

static void append_line(char **text, const kolo_option_entry *e, const char *value)
{
    static const char plain[] = "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789_./";
    append(text, e->key);
    append(text, ": ");
    if (e->type == KOLO_OPTION_TEXT && (!*value || value[strspn(value, plain)])) append_quoted(text, value);
    else append(text, value);
    append(text, "\n");
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

char *kolo_options_difference(const kolo_options *was, const kolo_options *now)
{
    char *text = NULL;
    for (int i = 0; i < kolo_option_count; i++) {
        const kolo_option_entry *e = &kolo_option_table[i];
        if (e->scope != KOLO_SCOPE_MATH) continue;
        char *a = kolo_option_text(was, e), *b = kolo_option_text(now, e);
        if (a && b && strcmp(a, b)) {
            if (!text) text = kolo_strdup("");
            char *line = kolo_format("%s: was %s, now %s\n", e->key, *a ? a : "\"\"", *b ? b : "\"\"");
            if (line) append(&text, line);
            free(line);
        }
        free(a);
        free(b);
    }
    return text;
}
