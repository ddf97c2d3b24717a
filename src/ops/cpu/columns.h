/* Sums of one value per channel over many rows: gradients of weights and biases that belong to channels. Rows
 * are dealt to pieces by shape alone, so the sums do not depend on the number of threads: f32 within a piece,
 * f64 over the pieces, in their order. */
#ifndef KOLO_OPS_CPU_COLUMNS_H
#define KOLO_OPS_CPU_COLUMNS_H

#include <stdint.h>

/* sum[c] = part[0][c] + part[1][c] + ...; rows of `part` lie `stride` floats apart. sum NULL: nothing to
 * do. */
void kolo_columns_fold(float *sum, const float *part, int64_t parts, int64_t stride, int64_t channels,
                       int threads);

#endif
