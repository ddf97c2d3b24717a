/* Inside powersgd: products of a matrix (compress.h) with thin ones, which are stored column by column, and
 * their orthonormalisation. */
#ifndef KOLO_COMM_MATRIX_H
#define KOLO_COMM_MATRIX_H

#include "comm/compress/compress.h"

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

#endif
