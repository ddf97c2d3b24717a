/* The matrices among a plan's gradients, as compressed sums want to see them. */
#ifndef KOLO_PLAN_MATRICES_H
#define KOLO_PLAN_MATRICES_H

#include "comm/compress/compress.h"
#include "plan/plan.h"

/* Gradients with at least two dimensions, as they lie in GRADIENT (elements of it, ascending): rows are the
 * first dimension, whatever the layout's blocks. One whose layout is not of that form is one row-major matrix
 * of its storage, which compresses as well, only less. backend: NULL:
 * their sizes and places alone, without blocks. *matrix: caller frees. */
int kolo_plan_matrices(const kolo_plan *plan, kolo_backend *backend, comm_matrix **matrix, int *matrices);

/* A line for `kolo plan`: what a node sends in a step with this compression, and without. file: FILE *.
 * Nothing for COMM_NONE. */
int kolo_plan_print_compressed(const kolo_plan *plan, kolo_backend *backend, const comm_compress *compress,
                               void *file);

#endif
