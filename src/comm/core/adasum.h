/* Adasum (Maleki et al., "Scaling distributed training with adaptive summation", MLSys 2021): of two
 * gradients a and b of one tensor
 *     (1 - a.b / (2 |a|^2)) a + (1 - a.b / (2 |b|^2)) b,
 * their sum where they are orthogonal and their average where they are parallel. A coefficient is 1 where its
 * |.|^2 lies below sqrt(DBL_MIN).
 *
 * More than two are combined in pairs, which is not associative, so the tree is part of the definition. Here:
 * adjacent members first. With q the largest power of two <= n and r = n - q, member 2i + 1 is combined into
 * 2i for i < r; the q that remain, in their order, are combined at distance 1, 2, 4, ... Members are numbered
 * by rank, so ranks of a node meet first. Any number of members.
 *
 * Every tensor is combined by itself: fused tensors give the bits of each alone. Dot products and
 * coefficients are formed in f64; a result is rounded to its type once a level. All members get the same
 * bits. f16, bf16, f32 and f64.
 *
 * It is carried out as a schedule (schedule.h) by vector halving and distance doubling: 2 (q - 1)/q n bytes a
 * member, and at level l an exchange of 3 f64 a tensor with l members. In place on COMM_OWN. */
#ifndef KOLO_COMM_ADASUM_H
#define KOLO_COMM_ADASUM_H

#include "comm/core/kernel.h"
#include "comm/core/transport.h"

typedef struct comm_adasum_problem {
    int me, members;
    enum kolo_dtype type;
    const int64_t *count; /* [tensors] elements; the vector is the tensors one behind the other */
    int tensors;
} comm_adasum_problem;

/* Replaces the actions of a schedule, which a run carries out with sums of its type; one run at a time.
 * Copies what it needs. KOLO_EINPUT: a type that has no Adasum. Not collective; the same problem but for `me`
 * on all members. */
int comm_adasum_make(comm_schedule *schedule, const comm_adasum_problem *problem);

/* Two whole vectors of one process; out may be left or right. */
void comm_adasum_pair(void *out, const void *left, const void *right, enum kolo_dtype type,
                      const int64_t *count, int tensors);
/* One tensor of any number of members (at most COMM_FOLD_MAX) that one process sees, in the tree above: the
 * result stands in vector[0]; the other vectors are used for what is between. */
void comm_adasum_members(void *const *vector, int members, enum kolo_dtype type, int64_t count);

/* ---- adasum_pair.c: a stretch of one tensor */
typedef struct adasum_dots {
    double ab, aa, bb;
} adasum_dots;

/* Sums over a stretch; of all stretches together they make the coefficients. f64 is scaled by 2^-256, so that
 * squares do not overflow. */
adasum_dots adasum_dots_of(const void *a, const void *b, int64_t count, enum kolo_dtype type);
void adasum_apply(void *out, const void *a, const void *b, int64_t count, enum kolo_dtype type,
                  const adasum_dots *whole);

#endif
