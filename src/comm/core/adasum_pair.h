/* Inside Adasum: the arithmetic of a stretch of one tensor. */
#ifndef KOLO_COMM_ADASUM_PAIR_H
#define KOLO_COMM_ADASUM_PAIR_H

#include "comm/core/adasum.h"

typedef struct adasum_dots {
    double ab, aa, bb;
} adasum_dots;

/* Sums over a stretch; of all stretches together they make the coefficients. f64 is scaled by 2^-256, so that
 * squares do not overflow. */
adasum_dots adasum_dots_of(const void *a, const void *b, int64_t count, enum kolo_dtype type);
void adasum_apply(void *out, const void *a, const void *b, int64_t count, enum kolo_dtype type,
                  const adasum_dots *whole);

#endif
