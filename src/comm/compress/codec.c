/* What all codecs share: the exact elements, the table, the state. */
#include "comm/compress/codec.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "base/memory.h"
#include "comm/algorithm/build.h"
#include "kolo/error.h"

/* Calls of every codec; a row's own are smaller. */
enum { EXACT_IN = CODEC_CALLS, EXACT_OUT };

static const struct {
    const char *name;
    const comm_compressor *row;
} table[COMM_COMPRESSIONS] = {
    [COMM_NONE] = {"none", NULL},
    [COMM_BF16] = {"bf16", &comm_quantised},
    [COMM_FP16] = {"fp16", &comm_quantised},
    [COMM_INT8] = {"int8", &comm_quantised},
    [COMM_TOPK] = {"topk", &comm_topk},
    [COMM_POWERSGD] = {"powersgd", &comm_lowrank},
};

int comm_compress_find(const char *name)
{
    for (int k = 0; k < COMM_COMPRESSIONS; k++)
        if (!strcmp(name, table[k].name)) return k;
    return kolo_fail(KOLO_ECONFIG,
                     "comm: unknown compression \"%s\"; known: none, bf16, fp16, int8, topk, powersgd", name);
}

const char *comm_compress_name(int kind) { return table[kind].name; }

int comm_compress_check(const comm_compress *c)
{
    if (c->kind < 0 || c->kind >= COMM_COMPRESSIONS)
        return kolo_fail(KOLO_ECONFIG, "comm: compression number %d", c->kind);
    if (c->kind == COMM_TOPK && !(c->density > 0 && c->density <= 1))
        return kolo_fail(KOLO_ECONFIG, "comm: topk sends a share of the elements in (0, 1], not %g",
                         c->density);
    if (c->kind == COMM_TOPK && !(c->momentum >= 0 && c->momentum < 1 && c->clip >= 0 && c->warmup >= 0))
        return kolo_fail(KOLO_ECONFIG, "comm: topk with momentum %g, clip %g, warm-up %lld", c->momentum,
                         c->clip, (long long)c->warmup);
    if (c->start < 0 || (c->start > 0 && c->momentum > 0))
        return kolo_fail(KOLO_ECONFIG,
                         "comm: %s begins after %lld rounds, with momentum %g: the rounds before would have "
                         "none; take a warm-up",
                         comm_compress_name(c->kind), (long long)c->start, c->momentum);
    if (c->kind == COMM_POWERSGD && c->rank < 1)
        return kolo_fail(KOLO_ECONFIG, "comm: powersgd of rank %d", c->rank);
    return 0;
}

comm_place codec_scratch(comm_build *b, int64_t words)
{
    comm_place at = comm_scratch(b->spare);
    b->spare += codec_round_up(words);
    if (b->spare > b->s->scratch) b->s->scratch = b->spare;
    return at;
}

void *codec_keep(comm_codec *c, comm_build *b, size_t bytes)
{
    void *data = comm_build_memory(b, bytes);
    if (data) c->state[c->states++] = (comm_state){data, bytes};
    return data;
}

/* Between nodes: whole vectors go around faster than halves of them. */
static bool is_small(int members, int64_t count)
{
    const comm_problem p = {
        .what = KOLO_ALLREDUCE, .members = members, .count = count, .width = sizeof(float)};
    return comm_cost_doubling(&p, &comm_cost_between) <= comm_cost_halving(&p, &comm_cost_between);
}

void codec_allreduce(comm_build *b, comm_place at, int64_t count)
{
    comm_build part = *b;
    part.sum = at;
    part.brought = false;
    if (count == 0 || b->n == 1) return;
    if (is_small(b->n, count)) comm_double(&part, (comm_range){0, count});
    else comm_halve(&part, (comm_range){0, count});
}

double codec_allreduce_bytes(int members, int64_t count)
{
    double each = 2.0 * (members - 1) / members, levels = ceil(log2(members));
    return 4 * (double)count * (is_small(members, count) ? levels : each);
}

void codec_gather(const comm_codec *c, const float *vector, float *packed)
{
    for (int i = 0; i < c->matrices; packed += matrix_count(&c->matrix[i++]))
        memcpy(packed, vector + c->matrix[i].at, (size_t)matrix_count(&c->matrix[i]) * sizeof *packed);
}

void codec_scatter(const comm_codec *c, float *vector, const float *packed)
{
    for (int i = 0; i < c->matrices; packed += matrix_count(&c->matrix[i++]))
        memcpy(vector + c->matrix[i].at, packed, (size_t)matrix_count(&c->matrix[i]) * sizeof *packed);
}

static int codec_call(void *context, comm_run *run, const comm_action *action)
{
    comm_codec *c = context;
    float *vector = (float *)(void *)run->buffer[COMM_OWN], *exact = codec_words(run, c->exact_at);
    if (action->peer < CODEC_CALLS) {
        c->row->call(c, run, action);
        return 1;
    }
    for (int i = 0; i < c->exacts; exact += c->exact[i++].count) {
        float *at = vector + c->exact[i].at;
        memcpy(action->peer == EXACT_IN ? exact : at, action->peer == EXACT_IN ? at : exact,
               (size_t)c->exact[i].count * sizeof *at);
    }
    return 1;
}

/* The elements outside all matrices: exchanged uncompressed. */
static int find_exact(comm_codec *c, comm_build *b)
{
    int64_t at = 0;
    c->exact = comm_build_memory(b, (size_t)(c->matrices + 1) * sizeof *c->exact);
    if (!c->exact) return KOLO_ENOMEM;
    for (int i = 0; i <= c->matrices; i++) {
        int64_t end = i < c->matrices ? c->matrix[i].at : c->count;
        if (end < at)
            return kolo_fail(KOLO_EINTERNAL,
                             "comm: matrix %d of a codec begins within the one before or outside", i);
        if (end > at) c->exact[c->exacts++] = (comm_piece){at, end - at};
        c->exact_count += end - at;
        at = end + (i < c->matrices ? matrix_count(&c->matrix[i]) : 0);
    }
    c->compressed = c->count - c->exact_count;
    return 0;
}

static int codec_make(comm_codec *c, const comm_matrix *matrix, int matrices)
{
    comm_build b = comm_build_in_place(&c->schedule, c->me, c->members);
    c->schedule.call = codec_call;
    c->schedule.context = c;
    c->matrix = comm_build_memory(&b, (size_t)matrices * sizeof *c->matrix);
    if (!c->matrix) return KOLO_ENOMEM;
    for (int i = 0; i < matrices; i++)
        if (matrix_count(&matrix[i]) && (!c->row->takes || c->row->takes(&c->config, &matrix[i])))
            c->matrix[c->matrices++] = matrix[i];
    KOLO_TRY(find_exact(c, &b));
    if (c->exact_count) {
        c->exact_at = codec_scratch(&b, c->exact_count);
        comm_build_call(&b, EXACT_IN, 0);
        codec_allreduce(&b, c->exact_at, c->exact_count);
    }
    if (c->compressed) KOLO_TRY(c->row->make(c, &b));
    comm_build_call(&b, EXACT_OUT, 0);
    return c->schedule.status;
}

/* A vector without matrices is summed exactly. A lane that has room for the one has it for the other. */
static int make_exactly(comm_codec *c)
{
    comm_compress config = c->config;
    config.start = 0;
    if (c->config.start == 0) return 0;
    KOLO_TRY(comm_codec_make(&c->exactly, &config, c->me, c->members, c->count, NULL, 0));
    comm_schedule *s = &c->schedule, *other = &c->exactly->schedule;
    s->posts = other->posts = s->posts > other->posts ? s->posts : other->posts;
    s->scratch = other->scratch = s->scratch > other->scratch ? s->scratch : other->scratch;
    return 0;
}

int comm_codec_make(comm_codec **out, const comm_compress *config, int me, int members, int64_t count,
                    const comm_matrix *matrix, int matrices)
{
    *out = NULL;
    KOLO_TRY(comm_compress_check(config));
    if (config->kind == COMM_NONE || count >= COMM_MESSAGE_MAX)
        return kolo_fail(
            KOLO_ECONFIG,
            "comm: compression %s of %lld elements; fewer than %d in a vector, so lower bucket_mb",
            comm_compress_name(config->kind), (long long)count, COMM_MESSAGE_MAX);
    if (comm_compress_is_elementwise(config->kind) && members > COMM_FOLD_MAX)
        return kolo_fail(
            KOLO_ECONFIG,
            "comm: compression %s among %d members; at most %d, int8, topk and powersgd among any",
            comm_compress_name(config->kind), members, COMM_FOLD_MAX);
    comm_codec *c = *out = kolo_alloc(sizeof *c);
    if (!c) return KOLO_ENOMEM;
    *c = (comm_codec){
        .config = *config, .row = table[config->kind].row, .me = me, .members = members, .count = count};
    c->state[c->states++] = (comm_state){&c->round, sizeof c->round};
    int rc = codec_make(c, matrix, matrices);
    if (rc == 0) rc = make_exactly(c);
    if (rc < 0) comm_codec_free(out);
    return rc;
}

void comm_codec_free(comm_codec **codec)
{
    comm_codec *c = *codec;
    if (!c) return;
    comm_codec_free(&c->exactly);
    comm_schedule_free(&c->schedule);
    free(c);
    *codec = NULL;
}

const comm_schedule *comm_codec_schedule(const comm_codec *c) { return &c->schedule; }
static bool started(const comm_codec *c) { return (int64_t)c->round > c->config.start; }

const comm_schedule *comm_codec_begin(comm_codec *c)
{
    c->round++;
    return started(c) ? &c->schedule : comm_codec_begin(c->exactly);
}

size_t comm_codec_state_bytes(const comm_codec *c)
{
    size_t bytes = 0;
    for (int i = 0; i < c->states; i++) bytes += c->state[i].bytes;
    return bytes;
}

size_t comm_codec_bytes(const comm_codec *c) { return comm_codec_state_bytes(c) + c->spare_bytes; }

size_t comm_codec_scratch_bytes(const comm_codec *c)
{
    return (size_t)(c->schedule.scratch - c->idle) * sizeof(float);
}

void comm_codec_save(const comm_codec *c, void *state)
{
    char *to = state;
    for (int i = 0; i < c->states; to += c->state[i++].bytes) memcpy(to, c->state[i].data, c->state[i].bytes);
}

int comm_codec_restore(comm_codec *c, const void *state, size_t bytes)
{
    const char *from = state;
    if (bytes != comm_codec_state_bytes(c))
        return kolo_fail(KOLO_EINPUT, "comm: the state of a %s codec has %zu bytes, this one's %zu",
                         comm_compress_name(c->config.kind), bytes, comm_codec_state_bytes(c));
    for (int i = 0; i < c->states; from += c->state[i++].bytes)
        memcpy(c->state[i].data, from, c->state[i].bytes);
    return 0;
}

double comm_compress_bytes(const comm_compress *config, int members, int64_t count, const comm_matrix *matrix,
                           int matrices)
{
    const comm_compressor *row = table[config->kind].row;
    int64_t compressed = 0;
    if (members < 2) return 0;
    for (int i = 0; row && i < matrices; i++)
        if (!row->takes || row->takes(config, &matrix[i])) compressed += matrix_count(&matrix[i]);
    return codec_allreduce_bytes(members, count - compressed) +
           (compressed ? row->bytes(config, members, compressed, matrix, matrices) : 0);
}

int comm_matrix_cut(const comm_matrix *matrix, int matrices, int64_t from, int64_t count, comm_matrix *part)
{
    int parts = 0;
    for (int i = 0; i < matrices; i++) {
        comm_matrix m = matrix[i];
        bool grouped = m.groups > 1; /* cut along the outermost dimension that is longer than one */
        int64_t unit = grouped ? m.columns * m.lanes : m.lanes, units = grouped ? m.groups : m.columns;
        int64_t first = from > m.at ? (from - m.at + unit - 1) / unit : 0,
                end = from + count > m.at ? (from + count - m.at) / unit : 0;
        if (end > units) end = units;
        if (unit == 0 || first >= end) continue;
        m.at += first * unit - from;
        *(grouped ? &m.groups : &m.columns) = end - first;
        part[parts++] = m;
    }
    return parts;
}
