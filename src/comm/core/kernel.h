/* Arithmetic over vectors of any wire type: combining two, folding many in a fixed order, scaling,
 * conversion. Pure; any thread.
 *
 * The bits do not depend on the machine: wider code (chosen at run time) gives what the plain loops give. f16
 * and bf16 are computed in f32 and rounded to nearest, ties to even; denormals are kept; a NaN comes out
 * quiet. NaN wins min and max (the left one of two; of numbers that compare equal, such as -0 and +0, the
 * right one). Sums and products of integers wrap. Bool is or for sum and max, and for product and min;
 * whatever is not 0 counts as 1. */
#ifndef KOLO_COMM_KERNEL_H
#define KOLO_COMM_KERNEL_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "kolo/world.h"

/* out[i] = left[i] op right[i]; out may be left or right. */
typedef void (*comm_combine)(void *out, const void *left, const void *right, int64_t count);

/* KOLO_AVERAGE combines as KOLO_SUM. NULL: no such operation element by element (KOLO_ADASUM, see
 * adasum.h). */
comm_combine comm_combine_of(enum kolo_dtype type, enum kolo_reduce op);

/* f16 and bf16 only; conversions to and from f32 are exact and rounded once. Vectors do not overlap. */
void comm_widen(float *out, const void *in, int64_t count, enum kolo_dtype type);
void comm_narrow(void *out, const float *in, int64_t count, enum kolo_dtype type);

/* out[i] = in[i] / divisor * factor; out may be in. divisor >= 1.
 * f64 and f32: in f64, rounded once; f16 and bf16 as the f32 they are, then rounded. Integers: the exact
 * quotient, rounded toward zero, then, unless the factor is 1, times the factor in f64, rounded toward
 * zero, held at the ends of the type's range; NaN gives 0. Bool passes unchanged. With divisor and
 * factor 1 every type does. */
void comm_scale(void *out, const void *in, int64_t count, enum kolo_dtype type, int64_t divisor,
                double factor);
/* What changes nothing: sum, average and Adasum 0, product 1, min the largest value
 * (infinity), max the smallest. */
void comm_fill_neutral(void *out, int64_t count, enum kolo_dtype type, enum kolo_reduce op);

enum { COMM_FOLD_MAX = 512 }; /* sources of one fold */

typedef struct comm_folding {
    enum kolo_dtype type;
    enum kolo_reduce op; /* not KOLO_ADASUM */
    /* the tree that splits at the largest power of two below n; else the chain ((0 + 1) + 2) + ... */
    bool tree;
    /* of the result, as in comm_scale; 0 counts as 1. The op alone never divides */
    int64_t divisor;
    double prescale, postscale; /* of every source, of the result; 0 counts as 1 */
} comm_folding;

/* Folds n >= 1 sources element by element and writes the result into every out; an out may be a source (the
 * same vector, not a shifted one). f16 and bf16 are scaled and folded in f32 and rounded once at the end; the
 * other types are rounded as by comm_scale of each source, the fold, and comm_scale of the result. */
void comm_fold(const comm_folding *how, void *const *out, int outs, const void *const *source, int n,
               int64_t count);

#endif
