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
    /* this matrix, rather than leave it exact; NULL: all */
    bool (*takes)(const comm_compress *config, const comm_matrix *matrix);
    /* Memory, and the part of the schedule that is its own; there is at least one element to compress. */
    int (*make)(comm_codec *codec, comm_build *build);
    void (*call)(comm_codec *codec, comm_run *run, const comm_action *action);
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
    uint64_t round;      /* runs begun; part of the state */
    comm_state state[CODEC_STATES];
    int states;
    void *own;          /* of the row */
    size_t spare_bytes; /* of it: neither state nor scratch, where that is much */
    int64_t idle;       /* words of the scratch that hardly any round writes to */
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
/* comm_build_memory that is part of the state. */
void *codec_keep(comm_codec *codec, comm_build *build, size_t bytes);
/* Sums `count` f32 that stand in scratch, in the tree's order. */
void codec_allreduce(comm_build *build, comm_place at, int64_t count);
/* Bytes that a member sends for it, on average. */
double codec_allreduce_bytes(int members, int64_t count);
/* Between the elements in matrices, one behind the other, and the vector. */
void codec_gather(const comm_codec *codec, const float *vector, float *packed);
void codec_scatter(const comm_codec *codec, float *vector, const float *packed);

/* The largest magnitudes of a vector: a threshold from a sample, then one pass that collects what reaches
 * it. */
/* Words of memory that index and spare need each. */
int64_t comm_select_room(int64_t k);
/* index: ascending numbers of at most k elements of x, none of them 0, whose magnitudes are the largest of
 * those that a sampled threshold lets through: exactly the k largest where that were at least k, never fewer
 * than 3/4 k if there are so many. NaN counts as larger than infinity. A pure function of its arguments; salt
 * moves the sample. Returns how many. */
int64_t comm_select(uint32_t *index, uint32_t *spare, const float *x, int64_t count, int64_t k,
                    uint64_t salt);

/* Inside powersgd: products of a matrix (compress.h) with thin ones, which are stored column by column, and
 * their orthonormalisation. */
static inline int64_t matrix_rows(const comm_matrix *m) { return m->groups * m->lanes; }

/* p (rank columns of rows) = M q (rank columns of columns). */
void matrix_times(float *p, const comm_matrix *m, const float *data, const float *q, int rank);
/* q = M' p. */
void matrix_transposed_times(float *q, const comm_matrix *m, const float *data, const float *p, int rank);
/* out += factor p q'. */
void matrix_add_product(float *out, const comm_matrix *m, const float *p, const float *q, int rank,
                        float factor);
/* Gram-Schmidt, twice, in f64. A column that depends on those before it becomes 0. Returns whether
 * all of it was finite. */
bool matrix_orthonormalise(float *p, int64_t rows, int rank);

/* Sparse streams between members: (number, value) pairs in ascending order, or all values
 * where that is shorter. */
/* A slot in scratch: a head of CODEC_LINE words, then the body. */
enum { SPARSE_DENSE = 0xffffffff, SPARSE_HEAD_WORDS = 2 };
typedef struct sparse_head {
    uint32_t words; /* of the body, at least 1: a message is never empty */
    uint32_t pairs; /* or SPARSE_DENSE */
} sparse_head;
typedef struct sparse_pair {
    uint32_t index;
    float value;
} sparse_pair;

typedef struct sparse_slot {
    comm_place at;    /* of the body */
    comm_range range; /* numbers that it may hold */
} sparse_slot;

sparse_slot sparse_slot_make(comm_build *build, comm_range range);

/* Writes those of the numbers (ascending, within the slot's range) with their values; dense where
 * pairs would be longer. */
void sparse_write(const comm_run *run, const sparse_slot *slot, const uint32_t *index, int64_t count,
                  const float *value);
/* The same of a whole stretch of values: what is not 0. */
void sparse_pack(const comm_run *run, const sparse_slot *slot, const float *value);
/* sum[i] += value; sum[0] stands for the slot's first number. */
void sparse_add(const comm_run *run, const sparse_slot *slot, float *sum);
/* out = left + right; dense as soon as their pairs together could be longer than that
 * (SparCML's bound |H1| + |H2|). */
void sparse_merge(const comm_run *run, const sparse_slot *out, const sparse_slot *left,
                  const sparse_slot *right);

/* Puts the exchange of the slots' heads, then `sizes` (a call that does sparse_sizes), then of bodies.
 * Between: nothing is waited for by the caller. */
typedef struct sparse_transfer {
    int peer;
    const sparse_slot *slot;
    bool send;
} sparse_transfer;
void sparse_exchange(comm_build *build, const sparse_transfer *transfer, int transfers, int sizes);
/* The heads have come: the messages from here to the next wait get their lengths. */
void sparse_sizes(comm_codec *codec, const comm_run *run);

#endif
