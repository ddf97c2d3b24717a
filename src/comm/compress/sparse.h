/* Sparse streams between members: (number, value) pairs in ascending order, or all values
 * where that is shorter. */
#ifndef KOLO_COMM_SPARSE_H
#define KOLO_COMM_SPARSE_H

#include "comm/compress/codec.h"

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
sparse_head *sparse_head_of(const comm_run *run, const sparse_slot *slot);
void *sparse_body(const comm_run *run, const sparse_slot *slot);

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
