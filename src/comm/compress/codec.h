/* Inside comm/compress: what every codec is made of. A codec's schedule is: exact elements and first
 * messages, arithmetic, more messages, the result. */
#ifndef KOLO_COMM_CODEC_H
#define KOLO_COMM_CODEC_H

#include "comm/algorithm/build.h"
#include "comm/compress/compress.h"
#include "comm/core/kernel.h"

typedef struct comm_piece {
    int64_t at, count;
} comm_piece; /* of the vector */

typedef struct comm_state {
    void *data;
    size_t bytes;
} comm_state;

enum { CODEC_STATES = 4, CODEC_CALLS = 16, CODEC_LINE = 16 }; /* words of a cache line */

/* A row of the table. */
typedef struct comm_compressor {
    const char *name;
    /* this matrix, rather than leave it exact; NULL: all */
    bool (*takes)(const comm_compress *config, const comm_matrix *matrix);
    /* Memory, and the part of the schedule that is its own; there is at least one element to compress. */
    int (*make)(comm_codec *codec, comm_build *build);
    void (*call)(comm_codec *codec, comm_run *run, const comm_action *action);
    void (*free)(comm_codec *codec);
    double (*bytes)(const comm_compress *config, int members, int64_t compressed, const comm_matrix *matrix,
                    int matrices);
} comm_compressor;
extern const comm_compressor comm_quantised, comm_topk, comm_lowrank;

struct comm_codec {
    comm_compress config;
    const comm_compressor *row;
    comm_schedule schedule;
    comm_codec *exactly; /* for the rounds before config.start; or NULL */
    int me, members, matrices;
    int64_t count, compressed, exact_count; /* elements: all, in matrices, outside */
    comm_matrix *matrix;
    comm_piece *exact; /* [exacts] */
    int exacts;
    comm_place exact_at; /* scratch */
    int64_t sent;        /* bytes of the last run */
    uint64_t round;      /* runs begun; part of the state */
    comm_state state[CODEC_STATES];
    int states;
    void *own; /* of the row */
};

static inline int64_t matrix_count(const comm_matrix *m) { return m->groups * m->columns * m->lanes; }
static inline float *codec_words(const comm_run *run, comm_place place)
{
    return (float *)(void *)run->buffer[place.buffer] + place.at;
}
static inline int64_t codec_round_up(int64_t words)
{
    return (words + CODEC_LINE - 1) / CODEC_LINE * CODEC_LINE;
}

/* So many words of scratch, aligned. */
comm_place codec_scratch(comm_build *build, int64_t words);
/* Zeroed memory that is part of the state. NULL: error text. */
void *codec_keep(comm_codec *codec, size_t bytes);
/* Sums `count` f32 that stand in scratch, in the tree's order. */
void codec_allreduce(comm_build *build, comm_place at, int64_t count);
/* Bytes that a member sends for it, on average. */
double codec_allreduce_bytes(int members, int64_t count);
/* Between the elements in matrices, one behind the other, and the vector. */
void codec_gather(const comm_codec *codec, const float *vector, float *packed);
void codec_scatter(const comm_codec *codec, float *vector, const float *packed);

#endif
