/* Batch norm: what its rows (norm.c) and its loops (norm_loops.c) share. */
#ifndef KOLO_OPS_CPU_NORM_H
#define KOLO_OPS_CPU_NORM_H

#include "ops/cpu/cpu.h"

/* Every layout is seen as planes whose channels repeat with a period: 16 for blocks of 1, 2, 4, 8, 16 channels, else the
 * least common multiple of the block and 16. Vectors of one value per channel are spread to the period first. */
int64_t kolo_norm_period(int64_t block);

/* Sums over `count` elements of a plane that start at a multiple of the period, added to sum[2][period]. */
void kolo_norm_sum(const void *x, int64_t count, int64_t period, bool bf16, double *sum); /* x, x^2 */
typedef struct kolo_norm_lanes { const float *mean, *scale, *bias, *mean_g, *slope; } kolo_norm_lanes; /* [period] each */
/* g, g (x - mean) scale, where g = dy, or 0 where y <= 0; y NULL: no relu */
void kolo_norm_grad_sum(const void *dy, const void *x, const void *y, int64_t count, int64_t period, bool bf16,
                        const kolo_norm_lanes *lanes, double *sum);

/* y = norm(x) [+ residual][, relu]; y may be x. */
void kolo_norm_forward(void *y, const void *x, const void *residual, int64_t count, int64_t period, bool bf16, bool relu,
                       const kolo_norm_lanes *lanes);
/* dx, and dresidual = g if not NULL; dx may be dy. */
void kolo_norm_backward(void *dx, void *dresidual, const void *dy, const void *x, const void *y, int64_t count, int64_t period,
                        bool bf16, const kolo_norm_lanes *lanes);

#endif
