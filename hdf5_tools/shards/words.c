#include <errno.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/memory.h"
#include "base/option.h"
#include "kolo/error.h"
#include "shards/shards.h"

#define MOST_OPTIONS 32

static void print_help(const shards_line *l)
{
    printf("usage: kolo-shards %s [options]\n\n%s\n\n", l->usage, l->help);
    for (int i = 0; i < l->option_count; i++) {
        const shards_option *o = &l->options[i];
        char left[64];
        snprintf(left, sizeof left, "%s%s%s", o->name, o->value ? " " : "", o->value ? o->value : "");
        printf("  %-24s %s\n", left, o->help);
    }
    printf("  %-24s %s\n", "--help", "this text");
}

static int unknown(const shards_line *l, const char *command, const char *word)
{
    const char *names[MOST_OPTIONS];
    for (int i = 0; i < l->option_count; i++) names[i] = l->options[i].name;
    const char *near = kolo_nearest(word, names, l->option_count);
    return kolo_fail(KOLO_ECONFIG, "%s: unknown option %s%s%s; kolo-shards %s --help lists them", command,
                     word, near ? ", did you mean " : "", near ? near : "", command);
}

static int words_set(const shards_option *o, const char *command, const char *text)
{
    if (o->kind == SHARDS_TEXT) {
        memcpy(o->to, &text, sizeof text);
        return text[0] ? 0 : kolo_fail(KOLO_ECONFIG, "%s: %s: must be %s", command, o->name, o->value);
    }
    char *end;
    errno = 0;
    const long long n = strtoll(text, &end, 10);
    if (end == text || *end || errno || n < o->low || n > o->high)
        return kolo_fail(KOLO_ECONFIG, "%s: %s %s: must be a number from %" PRId64 " to %" PRId64, command,
                         o->name, text, o->low, o->high);
    *(int64_t *)o->to = n;
    return 0;
}

/* *at: the word that is read; moved on where the value is a word of its own. */
static int read_option(const shards_line *l, int argc, char **argv, int *at)
{
    const char *word = argv[*at], *equal = strchr(word, '=');
    const size_t n = equal ? (size_t)(equal - word) : strlen(word);
    for (int i = 0; i < l->option_count; i++) {
        const shards_option *o = &l->options[i];
        if (strlen(o->name) != n || strncmp(o->name, word, n) != 0) continue;
        if (o->kind == SHARDS_FLAG) {
            if (equal) return kolo_fail(KOLO_ECONFIG, "%s: %s takes no value", argv[0], o->name);
            *(bool *)o->to = true;
            return 0;
        }
        if (!equal && *at + 1 == argc)
            return kolo_fail(KOLO_ECONFIG, "%s: %s %s: a value is missing", argv[0], o->name, o->value);
        return words_set(o, argv[0], equal ? equal + 1 : argv[++*at]);
    }
    return unknown(l, argv[0], word);
}

int shards_read(const shards_line *l, int argc, char **argv)
{
    int words = 0;
    for (int i = 1; i < argc; i++) {
        if (strcmp(argv[i], "--help") != 0 && strcmp(argv[i], "-h") != 0) continue;
        print_help(l);
        return 1;
    }
    for (int i = 1; i < argc; i++) {
        if (argv[i][0] == '-' && argv[i][1]) {
            KOLO_TRY(read_option(l, argc, argv, &i));
            continue;
        }
        if (words == l->most)
            return kolo_fail(KOLO_ECONFIG, "%s: unexpected word %s; usage: kolo-shards %s", argv[0], argv[i],
                             l->usage);
        l->words[words++] = argv[i];
    }
    if (l->word_count) *l->word_count = words;
    return words >= l->least
               ? 0
               : kolo_fail(KOLO_ECONFIG, "%s: which folder? usage: kolo-shards %s", argv[0], l->usage);
}

int shards_each_word(const char *text, int (*use)(void *context, const char *word), void *context)
{
    while (*text) {
        const size_t n = strcspn(text, ",");
        char *word = kolo_format("%.*s", (int)n, text);
        if (!word) return KOLO_ENOMEM;
        int rc = n ? use(context, word) : 0;
        free(word);
        KOLO_TRY(rc);
        text += n + (text[n] == ',');
    }
    return 0;
}
