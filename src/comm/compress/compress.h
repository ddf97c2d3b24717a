/* Lossy sums: a vector of f32 is summed over members with fewer bytes than it has.
 *
 *   none       f32
 *   bf16,fp16  each part of the vector goes to its owner in 16 bits, is summed there in f32, and goes to all
 *              in 16 bits: one rounding in, one out, an error that does not grow with the number of members
 *   int8       the same with 8 bits and one f32 scale a block of 256 (largest |x| / 127), rounded
 *              stochastically: the expectation is exact. The draws are Philox of (seed, round, member,
 *              element). A block that holds anything not finite comes out NaN
 *   topk       the share `density` of largest |x|, as (index, value) streams that become dense where that is
 *              shorter; what was not sent waits in an error vector. Deep Gradient Compression (Lin et al.,
 *              ICLR 2018): momentum is accumulated before selection, masked where sent; clipping of what each
 *              member brings; density falls from 1/4 in steps of 4 over the first `warmup` rounds. As what is
 *              sent begins without momentum again, a density of 1/10 leaves little of it: such runs want a
 *              larger step. Streams: SparCML (Renggli et al., SC 2019)
 *   powersgd   every matrix as the product of two thin ones (Vogels et al., NeurIPS 2019): P = MQ, summed,
 *              orthonormalised by Gram-Schmidt in f64; Q = M'P, summed; what is lost waits in an error
 *              matrix; the next round begins with this one's Q
 *
 * Only matrices are compressed: what of the vector lies in none (biases, statistics, the loss) is summed
 * exactly, in the tree of schedule.h. All members get the same bits. A NaN or infinity that any member brings
 * shows in the result; error vectors are then cleared where they are not finite.
 *
 * Like an algorithm, a codec writes a schedule (in words of 4 bytes, in place on COMM_OWN) that
 * comm_run_poll carries out. */
#ifndef KOLO_COMM_COMPRESS_H
#define KOLO_COMM_COMPRESS_H

#include "comm/core/transport.h"

enum comm_compression {
    COMM_NONE,
    COMM_BF16,
    COMM_FP16,
    COMM_INT8,
    COMM_TOPK,
    COMM_POWERSGD,
    COMM_COMPRESSIONS
};

typedef struct comm_compress {
    int kind;        /* enum comm_compression */
    double density;  /* topk: share of the elements that is sent, (0, 1] */
    double momentum; /* topk: of DGC, [0, 1); 0: none, the error vector alone */
    double clip;     /* topk: the norm of what a member brings is held at clip / sqrt(members); 0: not */
    int64_t warmup;  /* topk: rounds over which the density falls to what is asked */
    int rank;        /* powersgd, >= 1 */
    /* topk, powersgd: rounds before it begins, summed exactly; not with momentum: they would have none */
    int64_t start;
    uint64_t seed;
} comm_compress;

/* A matrix within the vector, stored [groups][columns][lanes]: element (row, column) of groups * lanes rows
 * at at + (row / lanes * columns + column) * lanes + row % lanes. Row-major R x C is its transpose: groups
 * 1, columns R, lanes C. */
typedef struct comm_matrix {
    int64_t at, groups, columns, lanes;
} comm_matrix;

typedef struct comm_codec comm_codec;

/* COMM_NONE ..., or KOLO_ECONFIG with the known names. */
int comm_compress_find(const char *name);
const char *comm_compress_name(int kind);
/* KOLO_ECONFIG: a parameter out of range. */
int comm_compress_check(const comm_compress *config);
/* "NAME", or "NAME:" and items with commas between: KEY=NUMBER, the first one may be a NUMBER alone (topk:
 * density, momentum, clip, warmup in rounds, start; powersgd: rank, start). What is not named: density 0.01,
 * rank 4, the others 0. KOLO_EINPUT or KOLO_ECONFIG with what is wrong. */
int comm_compress_parse(comm_compress *config, const char *text);
/* Element by element: what stands beside one does not matter, and nothing is kept from round to round. */
static inline bool comm_compress_is_elementwise(int kind) { return kind == COMM_BF16 || kind == COMM_FP16; }
/* With error feedback: what is left out is added to the next round, so a state belongs to one vector. */
static inline bool comm_compress_has_error_feedback(int kind)
{
    return kind == COMM_TOPK || kind == COMM_POWERSGD;
}

/* matrix: ascending, within count, not overlapping; copied. The same on all members but for
 * `me`. Not collective. */
int comm_codec_make(comm_codec **codec, const comm_compress *config, int me, int members, int64_t count,
                    const comm_matrix *matrix, int matrices);
void comm_codec_free(comm_codec **codec);
/* What a lane needs: schedule->posts requests, schedule->scratch words of 4 bytes in
 * COMM_SCRATCH, 64-byte aligned. */
const comm_schedule *comm_codec_schedule(const comm_codec *codec);
/* A round: what its run carries out, with sums of f32. Then COMM_OWN holds the sum. One run at a time of one
 * codec. */
const comm_schedule *comm_codec_begin(comm_codec *codec);

/* What a codec carries from round to round (error vectors, momentum, Q, the count of rounds), for
 * checkpoints: always so many bytes; a run that goes on from it has the bits of one that was not interrupted.
 * restore: KOLO_EINPUT where the size differs. */
size_t comm_codec_state_bytes(const comm_codec *codec);
void comm_codec_save(const comm_codec *codec, void *state);
int comm_codec_restore(comm_codec *codec, const void *state, size_t bytes);

/* Memory that it holds beside a lane's scratch, once it has run: what it carries, and what it selects or
 * multiplies by; and of that scratch what it writes to, in most rounds. */
size_t comm_codec_bytes(const comm_codec *codec);
size_t comm_codec_scratch_bytes(const comm_codec *codec);

/* Bytes that one of `members` sends for a vector of count elements, for the printer of plans; topk: after
 * warm-up, no index in common. */
double comm_compress_bytes(const comm_compress *config, int members, int64_t count, const comm_matrix *matrix,
                           int matrices);

/* The part [from, from + count) of a vector whose matrices these are: whole groups, or whole columns of a
 * matrix of one group; what is cut off is summed exactly. part: [matrices]; returns how many. Positions
 * are relative to `from`. */
int comm_matrix_cut(const comm_matrix *matrix, int matrices, int64_t from, int64_t count, comm_matrix *part);

#endif
