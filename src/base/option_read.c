/* Options from the environment and the command line, and the order of the four sources. */
#include <ctype.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/memory.h"
#include "base/option.h"
#include "kolo/error.h"

extern char **environ;

/* KOLO_ names that are no options: who reads them is told beside each. A name that is near an option's and not here
 * is taken for a slip of the keyboard. */
static const char *const reserved[] = {
    "SITE",   /* base: site file                     */
    "CACHE",  /* folder of timed choices             */
    "SHARED", /* tests: folder of shared test data   */
    "ROOT",   /* module file: the installation       */
    "HOME",   /* the same, as some sites name it     */
    "BIN",    /* job scripts: folder of the programs */
};

/* KOLO_NAME -> its option's name in lower case, or false if this variable is none of ours. */
static bool option_name(const char *variable, char *name, size_t bytes)
{
    size_t n = strcspn(variable, "=");
    if (strncmp(variable, "KOLO_", 5) || n < 6 || n - 5 >= bytes || variable[5] == '_') return false;
    for (size_t i = 5; i < n; i++) name[i - 5] = (char)toupper((unsigned char)variable[i]);
    name[n - 5] = 0;
    for (size_t i = 0; i < sizeof reserved / sizeof *reserved; i++)
        if (!strcmp(name, reserved[i])) return false;
    for (char *p = name; *p; p++) *p = (char)tolower((unsigned char)*p);
    return true;
}

/* One letter more, less or other, or two neighbours swapped. Stricter than kolo_nearest: scripts have variables of
 * their own under this prefix, and a stranger must not be taken for a slip. */
static bool one_slip(const char *a, const char *b)
{
    size_t na = strlen(a), nb = strlen(b);
    while (na && nb && *a == *b) a++, b++, na--, nb--;
    while (na && nb && a[na - 1] == b[nb - 1]) na--, nb--;
    return (na <= 1 && nb <= 1) || (na == 2 && nb == 2 && a[0] == b[1] && a[1] == b[0]);
}

static bool near_an_option(const char *name)
{
    for (int i = 0; strlen(name) > 3 && i < kolo_option_count; i++)
        if (one_slip(name, kolo_option_table[i].key)) return true;
    return false;
}

int kolo_options_read_environment(kolo_options *options)
{
    for (char **p = environ; p && *p; p++) {
        char name[64], where[80];
        if (!option_name(*p, name, sizeof name)) continue;
        if (!kolo_option_find(name) && !near_an_option(name)) continue;
        snprintf(where, sizeof where, "environment, %.*s", (int)strcspn(*p, "=") > 60 ? 60 : (int)strcspn(*p, "="), *p);
        KOLO_TRY(kolo_option_set(options, name, strchr(*p, '=') + 1, where));
    }
    return 0;
}

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

static int set(kolo_options *options, const char *name, const char *value, const kolo_option_hooks *hooks)
{
    const kolo_option_entry *e = kolo_option_find(name);
    if (e && hooks->option) KOLO_TRY(hooks->option(hooks->context, e));
    return kolo_option_set(options, name, value, "command line");
}

/* --key=value, --key value, --flag, --no-flag. Returns the number of words used, or a negative status. */
static int read_flag(kolo_options *options, int n, char **words, const kolo_option_hooks *hooks)
{
    char name[64];
    const char *word = words[0] + 2, *value = strchr(word, '=');
    if (!head_name(word, name, sizeof name)) return kolo_fail(KOLO_ECONFIG, "command line: \"%s\" is not an option", words[0]);
    if (value) {
        KOLO_TRY(set(options, name, value + 1, hooks));
        return 1;
    }
    if (find_bool(name) || (!strncmp(name, "no_", 3) && find_bool(name + 3))) {
        bool on = find_bool(name);
        KOLO_TRY(set(options, on ? name : name + 3, on ? "true" : "false", hooks));
        return 1;
    }
    if (!kolo_option_find(name)) return kolo_option_unknown(name, "command line");
    if (n < 2) return kolo_fail(KOLO_ECONFIG, "command line: --%s needs a value", name);
    KOLO_TRY(set(options, name, words[1], hooks));
    return 2;
}

static int read_positional(const char *word, const kolo_option_hooks *hooks)
{
    if (hooks->positional) return hooks->positional(hooks->context, word);
    return kolo_fail(KOLO_ECONFIG, "command line: \"%s\" is neither key=value nor --key; see `kolo help`", word);
}

int kolo_options_read_arguments(kolo_options *options, int n, char **words, const kolo_option_hooks *hooks)
{
    static const kolo_option_hooks none;
    bool flags = true;
    if (!hooks) hooks = &none;
    for (int i = 0, used; i < n; i += used) {
        char name[64];
        used = 1;
        const char *value = strchr(words[i], '=');
        if (flags && !strcmp(words[i], "--")) {
            flags = false;
        } else if (flags && !strncmp(words[i], "--", 2)) {
            used = read_flag(options, n - i, words + i, hooks);
            if (used < 0) return used;
        } else if (flags && words[i][0] == '-' && words[i][1]) {
            return kolo_fail(KOLO_ECONFIG, "command line: \"%s\": options start with two dashes, or are key=value", words[i]);
        } else if (flags && value && head_name(words[i], name, sizeof name)) {
            KOLO_TRY(set(options, name, value + 1, hooks));
        } else {
            KOLO_TRY(read_positional(words[i], hooks));
        }
    }
    return 0;
}

int kolo_options_read(kolo_options *options, const char *recipe, int n, char **words)
{
    const char *site = getenv("KOLO_SITE");
    if (recipe) KOLO_TRY(kolo_options_read_recipe(options, recipe));
    if (site && *site && kolo_options_read_recipe(options, site) < 0) return kolo_fail_in(KOLO_ECONFIG, "site file (KOLO_SITE): ");
    KOLO_TRY(kolo_options_read_environment(options));
    return kolo_options_read_arguments(options, n, words, NULL);
}
