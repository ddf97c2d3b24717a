/* Element-wise combining, and folds of many sources in a fixed order. All in place if wanted. */
#ifndef KOLO_COMM_KERNEL_H
#define KOLO_COMM_KERNEL_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "comm/comm.h"

/* out[i] = left[i] op right[i]; out may be left or right. max and min of f32 and f64 pass a NaN on. */
typedef void (*comm_combine)(void *out, const void *left, const void *right, int64_t count);

/* NULL: this type has no such operation. */
comm_combine comm_combine_of(enum kolo_wire type, enum kolo_reduce op);
size_t comm_width(enum kolo_wire type);

enum { COMM_FOLD_MAX = 512 }; /* sources of one fold */

/* Folds n >= 1 sources element by element, as a chain ((0 + 1) + 2) + ... or as the tree that splits at the largest
 * power of two below n, and writes the result into every out; an out may be a source. */
void comm_fold(comm_combine combine, size_t width, bool tree, void *const *out, int outs, const void *const *source,
               int n, int64_t count);

#endif
