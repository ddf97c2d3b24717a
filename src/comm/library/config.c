/* What a world is opened with: what the caller asks, else the environment, else the default. */
#include <errno.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "base/memory.h"
#include "base/option.h"
#include "comm/core/config.h"
#include "comm/library/parts.h"

extern char **environ;

static const char *const known[] = {
    "METHOD",  "TRANSPORT", "INTERFACE",         "ALGORITHM",     "TABLE",     "TIMELINE", "TIMELINE_BYTES",
    "TIMEOUT", "PATIENCE",  "HEARTBEAT_TIMEOUT", "STALL_WARNING", "STALL_END", "CACHE",    "SHARED",
    "FUSION",  "CYCLE",     "AUTOTUNE",          "FIXED_ORDER"};
enum { KNOWN = sizeof known / sizeof *known };

/* A variable whose name is nearly one of ours is a slip of the keyboard, which would go unnoticed. */
static int check_names(void)
{
    for (char **p = environ; p && *p; p++) {
        char name[64];
        const size_t begin = strlen("KOLO_COMM_"), n = strcspn(*p, "=");
        if (strncmp(*p, "KOLO_COMM_", begin) || n - begin >= sizeof name) continue;
        memcpy(name, *p + begin, n - begin);
        name[n - begin] = 0;
        const char *near = kolo_nearest(name, known, KNOWN);
        if (near && strcmp(near, name))
            return kolo_fail(KOLO_ECONFIG,
                             "comm: there is no variable KOLO_COMM_%s; did you mean KOLO_COMM_%s?", name,
                             near);
    }
    return 0;
}

static const char *asked(const char *name)
{
    const char *value = getenv(name);
    return value && *value ? value : NULL;
}

static int number(const char *name, double otherwise, double least, double most, double *out)
{
    const char *text = asked(name);
    char *end;
    if (*out != 0)
        return *out >= least && *out <= most
                   ? 0
                   : kolo_fail(KOLO_ECONFIG, "comm: %g for %s is out of %g .. %g", *out, name, least, most);
    *out = otherwise;
    if (!text) return 0;
    errno = 0;
    *out = strtod(text, &end);
    if (*end || errno || isnan(*out) || *out < least || *out > most)
        return kolo_fail(KOLO_ECONFIG, "comm: %s=%s is no number from %g to %g", name, text, least, most);
    return 0;
}

/* "64M": bytes, with K, M or G for powers of 1024. */
static int size(const char *name, size_t otherwise, size_t *out)
{
    const char *text = asked(name);
    char *end;
    if (*out) return 0;
    *out = otherwise;
    if (!text) return 0;
    errno = 0;
    unsigned long long value = strtoull(text, &end, 10);
    const char *unit = *end ? strchr("KMG", *end) : NULL;
    int shift = !unit ? 0 : *unit == 'K' ? 10 : *unit == 'M' ? 20 : 30;
    if (end == text || *text == '-' || errno || (*end && (!unit || end[1])) || value > SIZE_MAX >> 1 >> shift)
        return kolo_fail(KOLO_ECONFIG, "comm: %s=%s is no number of bytes (such as 1000000, 64M, 1G)", name,
                         text);
    *out = (size_t)value << shift;
    return 0;
}

static int truth(const char *name, bool *out)
{
    const char *text = asked(name);
    if (*out || !text) return 0;
    *out = strcmp(text, "1") == 0 || strcmp(text, "true") == 0;
    if (*out || strcmp(text, "0") == 0 || strcmp(text, "false") == 0) return 0;
    return kolo_fail(KOLO_ECONFIG, "comm: %s=%s is neither true nor false", name, text);
}

static int word(const char *name, const char *otherwise, const char **out)
{
    const char *value = *out ? *out : asked(name);
    if (!value) value = otherwise;
    *out = value ? kolo_strdup(value) : NULL;
    return value && !*out ? KOLO_ENOMEM : 0;
}

int lib_config_resolve(kolo_world_config *c, const kolo_world_config *config)
{
    const double year = 3e7;
    double cache, earlier = 0;
    *c = (kolo_world_config){.size = sizeof *c};
    if (config) KOLO_TRY(comm_config_take(c, sizeof *c, config, "kolo_world_config"));
    c->size = sizeof *c;
    int rc = word("KOLO_COMM_METHOD", "auto", &c->method), next;
    if ((next = word("KOLO_COMM_TRANSPORT", "auto", &c->transport)) < 0) rc = next;
    if ((next = word("KOLO_COMM_ALGORITHM", NULL, &c->algorithm)) < 0) rc = next;
    if ((next = word("KOLO_COMM_TABLE", NULL, &c->table)) < 0) rc = next;
    if ((next = word("KOLO_COMM_TIMELINE", NULL, &c->timeline)) < 0) rc = next;
    cache = c->cache;
    KOLO_TRY(rc); /* the words are owned from here on */
    KOLO_TRY(check_names());
    KOLO_TRY(number("KOLO_COMM_TIMEOUT", 300, 0.05, year, &c->timeout));
    KOLO_TRY(number("KOLO_COMM_PATIENCE", 8, 0.05, year, &earlier)); /* its earlier name */
    KOLO_TRY(number("KOLO_COMM_HEARTBEAT_TIMEOUT", earlier, 0.05, year, &c->heartbeat_timeout));
    KOLO_TRY(number("KOLO_COMM_CYCLE", 0, 0, 60, &c->cycle));
    KOLO_TRY(number("KOLO_COMM_STALL_WARNING", 60, -year, year, &c->stall_warning));
    KOLO_TRY(number("KOLO_COMM_STALL_END", 0, 0, year, &c->stall_end));
    KOLO_TRY(number("KOLO_COMM_CACHE", 1024, -1, 1e6, &cache));
    KOLO_TRY(size("KOLO_COMM_SHARED", 64 << 20, &c->shared_bytes));
    KOLO_TRY(size("KOLO_COMM_FUSION", 64 << 20, &c->fusion_bytes));
    KOLO_TRY(size("KOLO_COMM_TIMELINE_BYTES", 256 << 20, &c->timeline_bytes));
    KOLO_TRY(truth("KOLO_COMM_AUTOTUNE", &c->autotune));
    KOLO_TRY(truth("KOLO_COMM_FIXED_ORDER", &c->fixed_order));
    c->cache = (int)cache;
    if (c->stall_end > 0 && c->stall_warning > c->stall_end)
        return kolo_fail(
            KOLO_ECONFIG,
            "comm: requests would be given up after %g s, before they are reported after %g s: lower "
            "KOLO_COMM_STALL_WARNING",
            c->stall_end, c->stall_warning);
    return 0;
}

void lib_config_free(kolo_world_config *c)
{
    const char *const words[] = {c->method, c->transport, c->algorithm, c->table, c->timeline};
    for (size_t i = 0; i < sizeof words / sizeof *words; i++) free((char *)(uintptr_t)words[i]);
    *c = (kolo_world_config){0};
}
