/* A compression in words. */
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "comm/compress/compress.h"
#include "kolo/error.h"

typedef struct parameter {
    int kind;
    const char *key; /* the first of a kind may go without */
} parameter;
static const parameter parameters[] = {{COMM_TOPK, "density"}, {COMM_TOPK, "momentum"}, {COMM_TOPK, "clip"},
                                       {COMM_TOPK, "warmup"},  {COMM_TOPK, "start"},    {COMM_POWERSGD, "rank"},
                                       {COMM_POWERSGD, "start"}};
enum { PARAMETERS = sizeof parameters / sizeof *parameters };

static bool set(comm_compress *c, int p, double value)
{
    const double most = 0x1p30;
    bool whole = value == floor(value) && fabs(value) <= most;
    switch (p) {
    case 0: c->density = value; return true;
    case 1: c->momentum = value; return true;
    case 2: c->clip = value; return true;
    case 3: c->warmup = whole ? (int64_t)value : 0; return whole;
    case 5: c->rank = whole ? (int)value : 0; return whole;
    default: c->start = whole ? (int64_t)value : 0; return whole;
    }
}

/* "NUMBER" or "KEY=NUMBER" up to `end`. */
static bool parse_item(comm_compress *c, const char *item, const char *end, bool first)
{
    const char *equals = memchr(item, '=', (size_t)(end - item)), *number = equals ? equals + 1 : item;
    char *stop = NULL;
    if (number == end || strchr(" \t\n", *number)) return false;
    double value = strtod(number, &stop);
    if (stop != end || !isfinite(value)) return false;
    for (int p = 0; p < PARAMETERS; p++) {
        if (parameters[p].kind != c->kind) continue;
        if (!equals && first) return set(c, p, value);
        size_t length = strlen(parameters[p].key);
        if (equals && length == (size_t)(equals - item) && memcmp(item, parameters[p].key, length) == 0)
            return set(c, p, value);
    }
    return false;
}

int comm_compress_parse(comm_compress *config, const char *text)
{
    char name[32];
    size_t length = strcspn(text, ":");
    const char *item = text + length;
    *config = (comm_compress){.density = 0.01, .rank = 4};
    if (length >= sizeof name) return kolo_fail(KOLO_EINPUT, "comm: there is no compression \"%s\"", text);
    memcpy(name, text, length);
    name[length] = 0;
    KOLO_TRY(config->kind = comm_compress_find(name));
    while (*item) {
        const char *from = item + 1, *end = from + strcspn(from, ",");
        if (!parse_item(config, from, end, *item == ':'))
            return kolo_fail(KOLO_EINPUT,
                             "comm: \"%.*s\" of compression \"%s\": topk has density, momentum, clip, warmup and start, powersgd rank and start: "
                             "topk:0.01,momentum=0.9,clip=4,warmup=100",
                             (int)(end - from), from, text);
        item = end;
    }
    return comm_compress_check(config);
}
