/* Codecs of all members of a group, in one process, and what they are given. */
#ifndef TESTS_COMM_COMPRESS_H
#define TESTS_COMM_COMPRESS_H

#include "base/philox.h"
#include "comm/compress/compress.h"
#include "comm_members.h"
#include "kolo/error.h"

typedef struct group {
    int members;
    int64_t count;
    comm_codec **codec;
    float **vector;
    char **scratch;
    char *(*buffer)[COMM_PART];
} group;

static inline void begin(void *of, int v, comm_run *run)
{
    group *g = of;
    run->buffer = g->buffer[v];
    run->schedule = comm_codec_begin(g->codec[v]);
    run->width = sizeof(float);
    run->combine = comm_combine_of(KOLO_F32, KOLO_SUM);
}

static inline group *group_make(const comm_compress *config, int members, int64_t count,
                                const comm_matrix *matrix, int matrices)
{
    group *g = calloc(1, sizeof *g);
    g->members = members;
    g->count = count;
    g->codec = calloc((size_t)members, sizeof *g->codec);
    g->vector = calloc((size_t)members, sizeof *g->vector);
    g->scratch = calloc((size_t)members, sizeof *g->scratch);
    g->buffer = calloc((size_t)members, sizeof *g->buffer);
    for (int v = 0; v < members; v++) {
        if (comm_codec_make(&g->codec[v], config, v, members, count, matrix, matrices) < 0) {
            diag("%s", kolo_error_text());
            return NULL;
        }
        size_t bytes = (size_t)(comm_codec_schedule(g->codec[v])->scratch + 16) / 16 * 64;
        g->scratch[v] = aligned_alloc(64, bytes);
        memset(g->scratch[v], 0xee, bytes);
        g->vector[v] = malloc((size_t)(count + 1) * sizeof(float));
        g->buffer[v][COMM_SCRATCH] = g->scratch[v];
        g->buffer[v][COMM_OWN] = (char *)g->vector[v];
    }
    return g;
}

static inline void group_free(group *g)
{
    for (int v = 0; v < g->members; v++) {
        comm_codec_free(&g->codec[v]);
        free(g->scratch[v]);
        free(g->vector[v]);
    }
    free(g->codec);
    free(g->vector);
    free(g->scratch);
    free(g->buffer);
    free(g);
}

/* 0: every member has the same bits, and nobody wrote behind the vector. */
static inline int group_run(group *g)
{
    members_mismatched = 0;
    for (int v = 0; v < g->members; v++) g->vector[v][g->count] = 12345;
    if (members_run(g->members, begin, g) < 0 || members_mismatched) return -1;
    for (int v = 0; v < g->members; v++)
        if (memcmp(g->vector[v], g->vector[0], (size_t)(g->count + 1) * sizeof(float)) ||
            g->vector[v][g->count] != 12345)
            return -1;
    return 0;
}

/* Bytes that a member sent in the last run. */
static inline int64_t sent_by(const group *g, int v)
{
    const comm_schedule *s = comm_codec_schedule(g->codec[v]);
    int64_t sent = 0;
    for (int64_t i = 0; i < s->actions; i++) /* counts as they were in that run */
        if (s->action[i].kind == COMM_SEND) sent += s->action[i].count * 4;
    return sent;
}

/* Normal, by the sum of four uniforms. */
static inline float value(uint64_t stream, int member, int64_t i)
{
    kolo_philox4 r = kolo_philox(31 + stream, (uint64_t)member, (uint64_t)i);
    return 1.7320508f *
           (kolo_uniform(r.v[0]) + kolo_uniform(r.v[1]) + kolo_uniform(r.v[2]) + kolo_uniform(r.v[3]) - 2);
}

static inline void fill(group *g, uint64_t stream)
{
    for (int v = 0; v < g->members; v++)
        for (int64_t i = 0; i < g->count; i++) g->vector[v][i] = value(stream, v, i);
}

static inline double sum_of(uint64_t stream, int members, int64_t i)
{
    double sum = 0;
    for (int v = 0; v < members; v++) sum += value(stream, v, i);
    return sum;
}

#endif
