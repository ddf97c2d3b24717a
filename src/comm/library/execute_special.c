/* Allreduces that are more than a sum by elements: Adasum, and compressed ones. What they keep (schedules; errors that are sent later) is kept by stream, kind
 * and shape, and by name where it belongs to one tensor. */
#include <stdlib.h>
#include <string.h>

#include "base/memory.h"
#include "comm/adasum.h"
#include "comm/compress/compress.h"
#include "comm/library/parts.h"

enum { SPECIALS = 1024 };

typedef struct lib_special {
    struct lib_special *next;
    char *key;
    int64_t key_bytes;
    comm_adasum *adasum;
    comm_codec *codec;
} lib_special;

static const void *input_of(const kolo_request *r) { return r->in ? r->in : r->out; }

void lib_specials_free(struct lib_special **first)
{
    while (*first) {
        lib_special *next = (*first)->next;
        comm_adasum_free(&(*first)->adasum);
        comm_codec_free(&(*first)->codec);
        free((*first)->key);
        free(*first);
        *first = next;
    }
}

/* ---- what kind: "NAME" or "NAME:NUMBER" -------------------------------------------------------------------------------------------- */

int lib_compression(const char *text, comm_compress *config)
{
    char name[32];
    const char *colon = strchr(text, ':');
    size_t length = colon ? (size_t)(colon - text) : strlen(text);
    char *end = NULL;
    double value = colon ? strtod(colon + 1, &end) : 0;
    if (length >= sizeof name || (colon && (end == colon + 1 || *end)))
        return kolo_fail(KOLO_EINPUT, "compression \"%s\" is neither a name nor name:number", text);
    memcpy(name, text, length);
    name[length] = 0;
    *config = (comm_compress){.density = 0.01, .rank = 4};
    KOLO_TRY(config->kind = comm_compress_find(name));
    if (colon && config->kind == COMM_TOPK) config->density = value;
    else if (colon && config->kind == COMM_POWERSGD) config->rank = (int)value;
    else if (colon) return kolo_fail(KOLO_EINPUT, "compression %s takes no number", name);
    return comm_compress_check(config);
}

/* ---- making, or finding what was made ------------------------------------------------------------------------------------------------ */

/* Row-major rows x columns is one matrix; a vector is one row. */
static int make_codec(const lib_execution *x, lib_special *s)
{
    const kolo_request *r = lib_request(x, 0);
    int64_t rows = r->dims ? r->dim[0] : 1, columns = r->dims ? lib_elements(r, 1) : 1;
    comm_compress config;
    if (r->dims < 2 || x->batch.entries > 1) rows = 1, columns = x->count;
    comm_matrix matrix = {.at = 0, .groups = 1, .columns = rows, .lanes = columns};
    KOLO_TRY(lib_compression(r->compression, &config));
    return comm_codec_make(&s->codec, &config, x->group->rank, x->group->size, x->count, &matrix, x->count ? 1 : 0);
}

static int make_adasum(const lib_execution *x, lib_special *s, const int64_t *count)
{
    comm_adasum_problem problem = {.me = x->group->rank,
                                   .members = x->group->size,
                                   .type = lib_request(x, 0)->type,
                                   .count = count,
                                   .tensors = x->batch.entries};
    return comm_adasum_make(&s->adasum, &problem);
}

/* key: the counts of the tensors, the type, the shape, and of a codec its words and the tensor's name. */
static int find(lib_execution *x, const char *key, int64_t bytes, const int64_t *count, lib_special **out)
{
    lib_special **at = &x->stream->specials;
    for (int depth = 0; *at; at = &(*at)->next, depth++) {
        lib_special *s = *at;
        if (s->key_bytes == bytes && memcmp(s->key, key, (size_t)bytes) == 0) {
            *at = s->next; /* to the front */
            s->next = x->stream->specials;
            x->stream->specials = s;
            return *out = s, 0;
        }
        if (depth < SPECIALS || s->next) continue;
        lib_specials_free(at);
        break;
    }
    lib_special *s = kolo_alloc(sizeof *s);
    int rc = s && (s->key = kolo_alloc((size_t)bytes)) ? 0 : KOLO_ECONFIG;
    if (rc == 0) rc = lib_request(x, 0)->compression ? make_codec(x, s) : make_adasum(x, s, count);
    if (rc < 0) {
        lib_specials_free(&s);
        return rc;
    }
    memcpy(s->key, key, (size_t)bytes);
    s->key_bytes = bytes;
    s->next = x->stream->specials;
    x->stream->specials = s;
    return *out = s, 0;
}

/* What it leaves out is sent later, so it belongs to one tensor. */
static bool keeps(const char *words)
{
    comm_compress config;
    return *words && lib_compression(words, &config) == 0 && (config.kind == COMM_TOPK || config.kind == COMM_POWERSGD);
}

static int special_of(lib_execution *x, lib_special **out)
{
    const kolo_request *r = lib_request(x, 0);
    const char *words = r->compression ? r->compression : "", *name = keeps(words) && r->name ? r->name : "";
    int n = x->batch.entries;
    size_t bytes = (size_t)(n + 3) * sizeof(int64_t) + strlen(words) + strlen(name) + 2;
    KOLO_TRY(kolo_grow(&x->stream->key, &x->stream->key_room, (int64_t)bytes, 1));
    char *key = x->stream->key;
    int64_t *count = (int64_t *)(void *)key;
    for (int i = 0; i < n; i++) count[i] = lib_elements(lib_request(x, i), 0);
    count[n] = r->type;
    count[n + 1] = r->dims ? r->dim[0] : 1;
    count[n + 2] = *name ? 0 : x->track - x->stream->track; /* one run at a time: what has no name is of one track */
    memcpy(&count[n + 3], words, strlen(words) + 1);
    memcpy((char *)&count[n + 3] + strlen(words) + 1, name, strlen(name) + 1);
    return find(x, key, (int64_t)bytes, count, out);
}

/* ---- carrying it out: in place on the stage ------------------------------------------------------------------------------------------- */

static int unpack(lib_execution *x)
{
    char *at = x->work, *out;
    for (int i = 0; i < x->batch.entries; i++) {
        const kolo_request *r = lib_request(x, i);
        int64_t count = lib_elements(r, 0), divisor = r->reduce == KOLO_AVERAGE ? x->batch.contributors : 1;
        if (x->batch.entry[i]) {
            KOLO_TRY(lib_result_memory(x, i, -1, &out));
            if (divisor != 1 || r->postscale != 1) comm_scale(out, at, count, r->type, divisor, r->postscale);
            else memcpy(out, at, (size_t)count * comm_width(r->type));
        }
        at += (size_t)count * comm_width(r->type);
    }
    return x->step = lib_finish, 1;
}

int lib_special_allreduce(lib_execution *x)
{
    const kolo_request *first = lib_request(x, 0);
    lib_special *special = NULL;
    char *at;
    if (special_of(x, &special) < 0) { /* all members have brought the same, so all end here */
        lib_fail_all(x, KOLO_EINPUT, kolo_error_text());
        return x->step = NULL, 1;
    }
    KOLO_TRY(lib_track_stage(x->track, x->group->world, (size_t)x->count * comm_width(first->type), &x->work));
    at = x->work;
    for (int i = 0; i < x->batch.entries; i++) {
        const kolo_request *r = lib_request(x, i);
        int64_t count = lib_elements(r, 0);
        if (!x->batch.entry[i]) comm_fill_neutral(at, count, r->type, r->reduce);
        else comm_scale(at, input_of(r), count, r->type, 1, r->prescale);
        at += (size_t)count * comm_width(r->type);
    }
    const comm_schedule *schedule =
        special->codec ? comm_codec_schedule(special->codec) : comm_adasum_schedule(special->adasum);
    KOLO_TRY(lib_run_schedule(x, schedule, x->work, x->work, comm_width(first->type), first->type, KOLO_SUM, unpack));
    if (special->codec) comm_codec_begin(special->codec, x->run);
    else comm_adasum_begin(special->adasum, x->run);
    return 1;
}
