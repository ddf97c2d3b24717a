/* Batch norm: what its rows (norm.c) and its loops (norm_loops.c) share. */
#ifndef KOLO_OPS_CPU_NORM_H
#define KOLO_OPS_CPU_NORM_H

#include "ops/cpu/cpu.h"

/* Every layout is seen as planes whose channels repeat with a period: 16 for blocks of 1, 2, 4, 8, 16
 * channels, else the least common multiple of the block and 16. Vectors of one value per channel are spread
 * to the period first. */
int64_t kolo_norm_period(int64_t block);

/* Sums over `count` elements of a plane that start at a multiple of the period, added to sum[2][period]. */
void kolo_norm_sum(const void *x, int64_t count, int64_t period, bool bf16, double *sum); /* x, x^2 */

/* [period] each; scale = weight * inverse (of the deviation) */
typedef struct kolo_norm_lanes {
    const float *mean, *scale, *bias, *mean_g, *slope, *inverse;
} kolo_norm_lanes;
/* What the gradient's loops read. g = dy, or, with relu, 0 where y <= 0; signs: bit i % 16 of word i / 16
 * says so of element i; y and signs NULL: its sign is that of norm(x). */
typedef struct kolo_norm_source {
    const void *dy, *x, *y;
    const uint16_t *signs;
    bool relu;
} kolo_norm_source;
/* g, g (x - mean) inverse */
void kolo_norm_grad_sum(const kolo_norm_source *source, int64_t count, int64_t period, bool bf16,
                        const kolo_norm_lanes *lanes, double *sum);

/* y = norm(x) [+ residual][, relu]; y may be x. other: NULL, or residual is added as norm(residual) by
 * these */
void kolo_norm_forward(void *y, const void *x, const void *residual, int64_t count, int64_t period, bool bf16,
                       bool relu, const kolo_norm_lanes *lanes, const kolo_norm_lanes *other);
/* dy where what is normalised by `lanes` [+ residual, or norm(residual)] is above 0; to may be dy. */
void kolo_norm_mask(void *to, const void *dy, const void *x, const void *residual, int64_t count,
                    int64_t period, bool bf16, const kolo_norm_lanes *lanes, const kolo_norm_lanes *other);
void kolo_norm_signs(uint16_t *signs, const void *y, int64_t count, bool bf16);
/* dx, and dresidual = g if not NULL; dx may be dy. */
void kolo_norm_backward(void *dx, void *dresidual, const kolo_norm_source *source, int64_t count,
                        int64_t period, bool bf16, const kolo_norm_lanes *lanes);

#endif
