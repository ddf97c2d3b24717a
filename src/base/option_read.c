/* Options from the command line, and the order of the four sources. */
#include <ctype.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/option.h"
#include "kolo/error.h"

/* The option's name at the head of `word`, with '-' read as '_'; false if no name can stand there. */
static bool head_name(const char *word, char *name, size_t bytes)
{
    size_t n = strcspn(word, "=");
    if (n == 0 || n >= bytes) return false;
    for (size_t i = 0; i < n; i++) {
        if (!isalnum((unsigned char)word[i]) && word[i] != '_' && word[i] != '-') return false;
        name[i] = word[i] == '-' ? '_' : word[i];
    }
    name[n] = 0;
    return true;
}

static const kolo_option_entry *find_bool(const char *name)
{
    const kolo_option_entry *e = kolo_option_find(name);
    return e && e->type == KOLO_OPTION_BOOL ? e : NULL;
}

/* The words of one command line, while they are read. */
typedef struct reading {
    kolo_options *options;
    const kolo_option_hooks *hooks;
    kolo_option_spelling spelling;
} reading;

static int option_read_set(reading *r, const char *name, const char *value)
{
    const kolo_option_entry *e = kolo_option_find(name);
    if (e && r->hooks->option) KOLO_TRY(r->hooks->option(r->hooks->context, e));
    KOLO_TRY(kolo_option_note(&r->spelling, name, "command line"));
    return kolo_option_set(r->options, name, value, "command line");
}

/* --key=value, --key value, --flag, --no-flag. Returns the number of words used, or a negative status. */
static int read_flag(reading *r, int n, char **words)
{
    char name[64];
    const char *word = words[0] + 2, *value = strchr(word, '=');
    if (!head_name(word, name, sizeof name))
        return kolo_fail(KOLO_ECONFIG, "command line: \"%s\" is not an option", words[0]);
    if (value) {
        KOLO_TRY(option_read_set(r, name, value + 1));
        return 1;
    }
    if (find_bool(name) || (!strncmp(name, "no_", 3) && find_bool(name + 3))) {
        bool on = find_bool(name);
        KOLO_TRY(option_read_set(r, on ? name : name + 3, on ? "true" : "false"));
        return 1;
    }
    if (!kolo_option_find(name)) return kolo_option_unknown(name, "command line");
    if (n < 2) return kolo_fail(KOLO_ECONFIG, "command line: --%s needs a value", name);
    KOLO_TRY(option_read_set(r, name, words[1]));
    return 2;
}

static int read_positional(const char *word, const kolo_option_hooks *hooks)
{
    if (hooks->positional) return hooks->positional(hooks->context, word);
    return kolo_fail(KOLO_ECONFIG, "command line: \"%s\" is neither key=value nor --key; see `kolo help`",
                     word);
}

int kolo_options_read_arguments(kolo_options *options, int n, char **words, const kolo_option_hooks *hooks)
{
    static const kolo_option_hooks none;
    reading r = {options, hooks ? hooks : &none, {{NULL}, false}};
    bool flags = true;
    for (int i = 0, used; i < n; i += used) {
        char name[64];
        used = 1;
        const char *value = strchr(words[i], '=');
        if (flags && !strcmp(words[i], "--")) {
            flags = false;
        } else if (flags && !strncmp(words[i], "--", 2)) {
            used = read_flag(&r, n - i, words + i);
            if (used < 0) return used;
        } else if (flags && words[i][0] == '-' && words[i][1]) {
            return kolo_fail(KOLO_ECONFIG,
                             "command line: \"%s\": options start with two dashes, or are key=value",
                             words[i]);
        } else if (flags && value && head_name(words[i], name, sizeof name)) {
            KOLO_TRY(option_read_set(&r, name, value + 1));
        } else {
            KOLO_TRY(read_positional(words[i], r.hooks));
        }
    }
    return 0;
}

int kolo_options_read(kolo_options *options, const char *recipe, int n, char **words)
{
    const char *site = getenv("KOLO_SITE");
    if (recipe) KOLO_TRY(kolo_options_read_recipe(options, recipe));
    if (site && *site && kolo_options_read_recipe(options, site) < 0)
        return kolo_fail_in(KOLO_ECONFIG, "site file (KOLO_SITE): ");
    KOLO_TRY(kolo_options_read_environment(options));
    return kolo_options_read_arguments(options, n, words, NULL);
}
