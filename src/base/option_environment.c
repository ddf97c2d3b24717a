/* Options from the environment: KOLO_<KEY>. Other variables with this prefix stand in environment.def. */
#include <ctype.h>
#include <stdio.h>
#include <string.h>

#include "base/option.h"
#include "kolo/error.h"

extern char **environ;

static const char *const known[] = {
#define VARIABLE(name, reader) #name,
#include "base/environment.def"
#undef VARIABLE
#define INT(key, ...) #key,
#define REAL(key, ...) #key,
#define BOOL(key, ...) #key,
#define TEXT(key, ...) #key,
#define CHOICE(key, ...) #key,
#include "base/options.def"
};
enum {
#define VARIABLE(name, reader) VARIABLE_##name,
#include "base/environment.def"
#undef VARIABLE
    VARIABLES, /* they come first */
    KNOWN = sizeof known / sizeof *known
};

/* KOLO_NAME=value: NAME in lower case, or false if this variable is none of ours. KOLO__NAME is nobody's. */
static bool variable_name(const char *variable, char *name, size_t bytes)
{
    const size_t n = strcspn(variable, "=");
    if (strncmp(variable, "KOLO_", 5) || n < 6 || n - 5 >= bytes || variable[5] == '_') return false;
    for (size_t i = 5; i < n; i++) name[i - 5] = (char)tolower((unsigned char)variable[i]);
    name[n - 5] = 0;
    return true;
}

static bool variable_known(const char *variable)
{
    const size_t n = strcspn(variable, "=") - 5;
    for (int i = 0; i < VARIABLES; i++)
        if (strlen(known[i]) == n && !strncmp(variable + 5, known[i], n)) return true;
    return false;
}

/* Of no option and no other variable: as on the command line, but that the nearest may be a variable. */
static int variable_refuse(const char *name, const char *where)
{
    const char *nearest = kolo_nearest(name, known, KNOWN);
    KOLO_TRY(kolo_option_reject_alias(name, where));
    if (!nearest || kolo_option_find(nearest)) return kolo_option_unknown(name, where);
    return kolo_fail(KOLO_ECONFIG, "%s: there is no such variable; did you mean KOLO_%s?", where, nearest);
}

/* options: NULL to look at names alone */
static int variables_read(kolo_options *options)
{
    kolo_option_spelling spelling = {{NULL}, false};
    for (char **p = environ; p && *p; p++) {
        char name[64], where[80];
        const int length = (int)strcspn(*p, "=");
        if (!variable_name(*p, name, sizeof name) || variable_known(*p)) continue;
        snprintf(where, sizeof where, "environment, %.*s", length > 60 ? 60 : length, *p);
        if (!kolo_option_find(name)) return variable_refuse(name, where);
        KOLO_TRY(kolo_option_note(&spelling, name, where));
        if (options) KOLO_TRY(kolo_option_set(options, name, strchr(*p, '=') + 1, where));
    }
    return 0;
}

int kolo_options_read_environment(kolo_options *options) { return variables_read(options); }

int kolo_options_check_environment(void) { return variables_read(NULL); }
