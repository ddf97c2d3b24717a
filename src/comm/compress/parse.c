/* A compression in words. */
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "comm/compress/compress.h"
#include "kolo/error.h"

enum form { REAL, INT, INT64 };
typedef struct parameter {
    int kind;
    const char *key; /* the first of a kind may go without */
    size_t at;       /* in comm_compress */
    enum form form;
} parameter;
#define AT(field) offsetof(comm_compress, field)
static const parameter parameters[] = {
    {COMM_TOPK, "density", AT(density), REAL}, {COMM_TOPK, "momentum", AT(momentum), REAL},
    {COMM_TOPK, "clip", AT(clip), REAL},       {COMM_TOPK, "warmup", AT(warmup), INT64},
    {COMM_TOPK, "start", AT(start), INT64},    {COMM_POWERSGD, "rank", AT(rank), INT},
    {COMM_POWERSGD, "start", AT(start), INT64}};
enum { PARAMETERS = sizeof parameters / sizeof *parameters };

static bool parse_set(comm_compress *c, const parameter *p, double value)
{
    char *field = (char *)c + p->at;
    const double most = 0x1p30;
    if (p->form != REAL && (value != floor(value) || fabs(value) > most)) return false;
    if (p->form == REAL) memcpy(field, &value, sizeof value);
    else if (p->form == INT) memcpy(field, &(int){(int)value}, sizeof(int));
    else memcpy(field, &(int64_t){(int64_t)value}, sizeof(int64_t));
    return true;
}

/* "NUMBER" or "KEY=NUMBER" up to `end`. */
static bool parse_item(comm_compress *c, const char *item, const char *end, bool first)
{
    const char *equals = memchr(item, '=', (size_t)(end - item)), *number = equals ? equals + 1 : item;
    char *stop = NULL;
    if (number == end || strchr(" \t\n", *number)) return false;
    double value = strtod(number, &stop);
    if (stop != end || !isfinite(value)) return false;
    for (const parameter *p = parameters; p < parameters + PARAMETERS; p++) {
        if (p->kind != c->kind) continue;
        if (!equals && first) return parse_set(c, p, value);
        size_t length = strlen(p->key);
        if (equals && length == (size_t)(equals - item) && memcmp(item, p->key, length) == 0)
            return parse_set(c, p, value);
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
            return kolo_fail(
                KOLO_EINPUT,
                "comm: \"%.*s\" of compression \"%s\": topk has density, momentum, clip, warmup and "
                "start, powersgd rank and start: "
                "topk:0.01,momentum=0.9,clip=4,warmup=100",
                (int)(end - from), from, text);
        item = end;
    }
    return comm_compress_check(config);
}
