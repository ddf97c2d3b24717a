#include "base/option.h"

#include <ctype.h>
#include <errno.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>

#include "base/memory.h"
#include "kolo/error.h"

/* ---- the table ---- */

#define INT(key, ...)
#define REAL(key, ...)
#define BOOL(key, ...)
#define TEXT(key, ...)
#define NAME(key, choice) #choice,
#define CHOICE(key, ...) static const char *const choices_##key[] = {KOLO_CHOICES_##key(NAME) NULL};
#include "base/options.def"
#undef INT
#undef REAL
#undef BOOL
#undef TEXT
#undef CHOICE

#define ENTRY(key, standard, type, scope, takers, low, high, choices, automatic, path, help) \
    {#key,                                                                                   \
     help,                                                                                   \
     standard,                                                                               \
     takers,                                                                                 \
     KOLO_OPTION_##type,                                                                     \
     KOLO_SCOPE_##scope,                                                                     \
     (double)(low),                                                                          \
     (double)(high),                                                                         \
     choices,                                                                                \
     automatic,                                                                              \
     path,                                                                                   \
     offsetof(kolo_options, key),                                                            \
     __LINE__},
#define INT(key, standard, low, high, scope, takers, help) \
    ENTRY(key, #standard, INT, scope, #takers, low, high, NULL, false, false, help)
#define AUTO(key, standard, low, high, scope, takers, help) \
    ENTRY(key, #standard, INT, scope, #takers, low, high, NULL, true, false, help)
#define REAL(key, standard, low, high, scope, takers, help) \
    ENTRY(key, #standard, REAL, scope, #takers, low, high, NULL, false, false, help)
#define BOOL(key, standard, scope, takers, help) \
    ENTRY(key, #standard, BOOL, scope, #takers, 0, 1, NULL, false, false, help)
#define TEXT(key, standard, scope, takers, help) \
    ENTRY(key, standard, TEXT, scope, #takers, 0, 0, NULL, false, false, help)
#define PATH(key, standard, scope, takers, help) \
    ENTRY(key, standard, TEXT, scope, #takers, 0, 0, NULL, false, true, help)
#define CHOICE(key, standard, scope, takers, help) \
    ENTRY(key, #standard, CHOICE, scope, #takers, 0, 0, choices_##key, false, false, help)
const kolo_option_entry kolo_option_table[] = {
#include "base/options.def"
};
#undef INT
#undef REAL
#undef BOOL
#undef TEXT
#undef CHOICE
const int kolo_option_count = sizeof kolo_option_table / sizeof *kolo_option_table;

#define INT(key, ...)
#define REAL(key, ...)
#define BOOL(key, ...)
#define TEXT(key, ...)
#define CHOICE(key, ...)
#define SECTION(title) {title, __LINE__},
static const struct {
    const char *title;
    int line;
} section[] = {
#include "base/options.def"
};
#undef INT
#undef REAL
#undef BOOL
#undef TEXT
#undef CHOICE

/* By line numbers of the file: a heading is that of the options below it. */
const char *kolo_option_section(const kolo_option_entry *entry)
{
    int i = (int)(sizeof section / sizeof *section) - 1;
    while (i > 0 && section[i].line > entry->line) i--;
    return section[i].title;
}

/* ---- the struct ---- */

static void *field(const kolo_options *options, const kolo_option_entry *entry)
{
    return (char *)options + entry->offset;
}

/* A default is the table's own text, so that defaults need no memory. */
static bool is_default(const char *text, const kolo_option_entry *e) { return text == e->default_value; }

static void disown(char *text, const kolo_option_entry *e)
{
    if (!is_default(text, e)) free(text);
}

void kolo_options_default(kolo_options *options)
{
#define INT(key, standard, ...) options->key = standard;
#define REAL(key, standard, ...) options->key = standard;
#define BOOL(key, standard, ...) options->key = standard;
#define TEXT(key, standard, ...)
#define CHOICE(key, standard, ...) options->key = KOLO_##key##_##standard;
#include "base/options.def"
#undef INT
#undef REAL
#undef BOOL
#undef TEXT
#undef CHOICE
    for (const kolo_option_entry *e = kolo_option_table; e < kolo_option_table + kolo_option_count; e++)
        if (e->type == KOLO_OPTION_TEXT) *(const char **)field(options, e) = e->default_value;
}

void kolo_options_free(kolo_options *options)
{
    for (const kolo_option_entry *e = kolo_option_table; e < kolo_option_table + kolo_option_count; e++) {
        if (e->type != KOLO_OPTION_TEXT) continue;
        char **text = field(options, e);
        disown(*text, e);
        *text = NULL;
    }
}

int kolo_options_leave(kolo_options *options)
{
    for (const kolo_option_entry *e = kolo_option_table; e < kolo_option_table + kolo_option_count; e++)
        if (e->scope == KOLO_SCOPE_HERE)
            KOLO_TRY(kolo_option_set(options, e->key, e->default_value, "default"));
    return 0;
}

int kolo_options_copy(kolo_options *to, const kolo_options *from)
{
    int rc = 0;
    *to = *from;
    for (const kolo_option_entry *e = kolo_option_table; e < kolo_option_table + kolo_option_count; e++) {
        if (e->type != KOLO_OPTION_TEXT) continue;
        char **text = field(to, e);
        if (is_default(*text, e)) continue;
        char *copy = kolo_strdup(*text);
        if (!copy) rc = KOLO_ENOMEM;
        *text = copy ? copy : (char *)(uintptr_t)e->default_value; /* `to` can be freed also then */
    }
    return rc;
}

/* ---- text to value ---- */

static int set_int(int64_t *to, const kolo_option_entry *e, const char *value, const char *where)
{
    char *end;
    errno = 0;
    const bool chosen = e->automatic && !strcmp(value, "auto");
    long long number = strtoll(chosen ? value = "0" : value, &end, 10);
    if (!*value || *end || isspace((unsigned char)*value))
        return kolo_fail(KOLO_ECONFIG, "%s: %s: \"%s\" is not a whole number", where, e->key, value);
    if (errno == ERANGE || (double)number < e->low || (double)number > e->high)
        return kolo_fail(KOLO_ECONFIG, "%s: %s: %s is out of range, %.15g to %.15g is possible", where,
                         e->key, value, e->low, e->high);
    *to = number;
    return 0;
}

static int set_real(double *to, const kolo_option_entry *e, const char *value, const char *where)
{
    char *end;
    double number = strtod(value, &end);
    /* strtod would also take hexadecimal, "inf", "nan" and leading blanks */
    if (!*value || *end || value[strspn(value, "0123456789+-.eE")])
        return kolo_fail(KOLO_ECONFIG, "%s: %s: \"%s\" is not a number", where, e->key, value);
    if (!(number >= e->low && number <= e->high))
        return kolo_fail(KOLO_ECONFIG, "%s: %s: %s is out of range, %.15g to %.15g is possible", where,
                         e->key, value, e->low, e->high);
    *to = number;
    return 0;
}

static int set_bool(bool *to, const kolo_option_entry *e, const char *value, const char *where)
{
    static const char *const names[] = {"false", "true", "no", "yes", "off", "on", "0", "1"};
    for (int i = 0; i < 8; i++)
        if (!strcasecmp(value, names[i])) {
            *to = i % 2;
            return 0;
        }
    return kolo_fail(KOLO_ECONFIG, "%s: %s: \"%s\" is neither true nor false", where, e->key, value);
}

static int set_choice(int *to, const kolo_option_entry *e, const char *value, const char *where)
{
    char list[512] = "";
    int n = 0;
    for (size_t used = 0; e->choices[n]; n++) {
        if (!strcmp(value, e->choices[n])) {
            *to = n;
            return 0;
        }
        if (used < sizeof list)
            used += (size_t)snprintf(list + used, sizeof list - used, "%s%s", n ? ", " : "", e->choices[n]);
    }
    return kolo_fail(KOLO_ECONFIG, "%s: %s: \"%s\" is not a choice; one of %s", where, e->key, value, list);
}

static int set_text(char **to, const kolo_option_entry *e, const char *value, const char *where)
{
    for (const char *p = value; *p; p++)
        if (iscntrl((unsigned char)*p))
            return kolo_fail(KOLO_ECONFIG, "%s: %s: the text holds a control character", where, e->key);
    char *copy = kolo_strdup(value);
    if (!copy) return KOLO_ENOMEM;
    disown(*to, e);
    *to = copy;
    return 0;
}

int kolo_option_set(kolo_options *options, const char *key, const char *value, const char *where)
{
    const kolo_option_entry *e = kolo_option_find(key);
    if (!e) return kolo_option_unknown(key, where);
    void *to = field(options, e);
    switch (e->type) {
    case KOLO_OPTION_INT: return set_int(to, e, value, where);
    case KOLO_OPTION_REAL: return set_real(to, e, value, where);
    case KOLO_OPTION_BOOL: return set_bool(to, e, value, where);
    case KOLO_OPTION_CHOICE: return set_choice(to, e, value, where);
    case KOLO_OPTION_TEXT: return set_text(to, e, value, where);
    }
    return kolo_fail(KOLO_EINTERNAL, "%s: option \"%s\" has no type", where, key);
}

/* ---- value to text ---- */

/* The shortest that reads back to the same bits. YAML 1.1 takes 3e+02 for a text: a number with an
 * exponent has a point. */
static char *real_text(double value)
{
    char text[64], *exponent;
    for (int digits = 1; digits <= 17; digits++) {
        snprintf(text, sizeof text, "%.*g", digits, value);
        if (strtod(text, NULL) == value) break;
    }
    if (!(exponent = strchr(text, 'e')) || strchr(text, '.')) return kolo_strdup(text);
    if (fabs(value) >= 1 && fabs(value) < 1e15) return kolo_format("%.0f", value);
    return kolo_format("%.*s.0%s", (int)(exponent - text), text, exponent);
}

char *kolo_option_text(const kolo_options *options, const kolo_option_entry *entry)
{
    const void *from = field(options, entry);
    switch (entry->type) {
    case KOLO_OPTION_INT: return kolo_format("%lld", (long long)*(const int64_t *)from);
    case KOLO_OPTION_REAL: return real_text(*(const double *)from);
    case KOLO_OPTION_BOOL: return kolo_strdup(*(const bool *)from ? "true" : "false");
    case KOLO_OPTION_CHOICE: return kolo_strdup(entry->choices[*(const int *)from]);
    case KOLO_OPTION_TEXT: return kolo_strdup(*(char *const *)from);
    }
    return NULL;
}
