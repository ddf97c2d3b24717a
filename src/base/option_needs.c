/* Options that say how others work, and whether those are there. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/option.h"
#include "kolo/error.h"

static const struct {
    const char *key, *needs;
} table[] = {
#define NEEDS(key, needs) {#key, needs},
#include "base/option_needs.def"
#undef NEEDS
};

enum { WORD = 128 };

/* The next word of a list; false: there is none. */
static bool next_word(const char **list, char word[WORD])
{
    *list += strspn(*list, " ");
    const size_t n = strcspn(*list, " ");
    snprintf(word, WORD, "%.*s", (int)n, *list);
    *list += n;
    return n > 0;
}

/* key or key=value; KOLO_ENOMEM. *holds: whether it is so. */
static int check_word(const kolo_options *options, char *word, bool *holds)
{
    char *value = strchr(word, '=');
    if (value) *value++ = 0;
    const kolo_option_entry *e = kolo_option_find(word);
    if (!e) return kolo_fail(KOLO_EINTERNAL, "there is no option %s", word);
    char *text = kolo_option_text(options, e);
    if (!text) return KOLO_ENOMEM;
    *holds = value ? !strcmp(text, value) : strcmp(text, e->default_value) != 0;
    free(text);
    return 0;
}

static int without(const char *key, const char *text, const char *needs)
{
    char list[512] = "", word[WORD];
    size_t used = 0;
    for (const char *rest = needs; next_word(&rest, word) && used < sizeof list;)
        used += (size_t)snprintf(list + used, sizeof list - used, "%s%s%s", used ? " or " : "", word,
                                 strchr(word, '=') ? "" : "=");
    return kolo_fail(KOLO_ECONFIG,
                     "command line: %s=%s has no effect without %s: give that, or leave %s= out", key, text,
                     list, key);
}

static int check_row(const kolo_options *options, const kolo_option_entry *entry, const char *needs)
{
    char word[WORD];
    bool holds = false;
    for (const char *rest = needs; !holds && next_word(&rest, word);)
        KOLO_TRY(check_word(options, word, &holds));
    if (holds) return 0;
    char *text = kolo_option_text(options, entry);
    if (!text) return KOLO_ENOMEM;
    const int rc = strcmp(text, entry->default_value) ? without(entry->key, text, needs) : 0;
    free(text);
    return rc;
}

int kolo_option_check_needs(const kolo_options *options, const kolo_option_entry *entry)
{
    for (size_t i = 0; i < sizeof table / sizeof *table; i++)
        if (!strcmp(table[i].key, entry->key)) KOLO_TRY(check_row(options, entry, table[i].needs));
    return 0;
}
