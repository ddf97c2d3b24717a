/* What an operation on a device may differ by from the same one in f32 on the CPU. */
#ifndef TESTS_PARITY_COMPARE_H
#define TESTS_PARITY_COMPARE_H

#include <math.h>
#include <string.h>

#include "graph/graph.h"

/* What an honest computation is allowed, relative to the l2 norm of its output `x`. Inputs are exact on both
 * sides, so an output in f32 is as good as in f32 altogether; but weight gradients may have been rounded to
 * 16 bits on their way. */
static inline double parity_allowed(const char *precision, enum kolo_op op, const kolo_tensor *x)
{
    /* what is normed on the way, or summed as it is stored, is rounded once more */
    const bool twice =
        op == KOLO_OP_norm_conv_stats || op == KOLO_OP_norm_conv_grad_weight || op == KOLO_OP_conv_grad_norm;
    /* sums of numbers that are rounded on the way, and may cancel */
    if (op == KOLO_OP_norm_max_pool_grad_stats && !strcmp(precision, "bf16")) return 1e-2;
    bool product = twice || op == KOLO_OP_conv || op == KOLO_OP_conv_stats || op == KOLO_OP_conv_grad_data ||
                   op == KOLO_OP_conv_grad_norm || op == KOLO_OP_conv_grad_weight || op == KOLO_OP_linear ||
                   op == KOLO_OP_linear_grad_data || op == KOLO_OP_linear_grad_weight ||
                   op == KOLO_OP_cosine || op == KOLO_OP_cosine_grad;
    bool half = product || x->dtype == KOLO_BF16 || x->dtype == KOLO_F16;
    if ((half || twice) && !strcmp(precision, "bf16")) return twice ? 8e-3 : 4e-3;
    if ((half || twice) && !strcmp(precision, "fp16")) return twice ? 2e-3 : 1e-3;
    if (product) return strcmp(precision, "tf32") ? 5e-5 : 1.5e-3;
    /* where a relu's input lies within rounding of 0, two programs take different sides, and sums over its
     * gradient differ by an element */
    return op == KOLO_OP_norm_grad_stats || op == KOLO_OP_norm_max_pool_grad_stats ? 2e-3 : 2e-5;
}

/* For the same reason some elements of that gradient itself may be 0 here and not there; a
 * wrong kernel has many. */
static inline int64_t parity_strays(enum kolo_op op, int64_t count)
{
    return op == KOLO_OP_norm_grad_apply || op == KOLO_OP_norms_grad_apply ||
                   op == KOLO_OP_norm_max_pool_grad_apply
               ? 1 + count / 50000
               : 0;
}

/* Distance of n numbers over what is allowed. least: a norm below which there is nothing to be near to;
 * strays: so many may lie far off. */
static inline double parity_distance(const double *got, const double *want, int64_t n, double least,
                                     double tolerance, int64_t strays)
{
    double far = 0, norm = 0;
    for (int64_t i = 0; i < n; i++) norm += want[i] * want[i];
    double rms = sqrt(norm / (double)(n ? n : 1));
    for (int64_t i = 0; i < n; i++) {
        double d = fabs(got[i] - want[i]);
        if (!(d <= 1e300)) return INFINITY;
        if (d > 30 * tolerance * rms && strays-- > 0) continue;
        far += d * d;
    }
    norm = sqrt(norm) > least ? sqrt(norm) : least;
    return norm > 0 ? sqrt(far) / norm / tolerance : far > 0 ? INFINITY : 0;
}

/* Whether output `out` of an operation is such sums as parity_sums compares. */
static inline bool parity_is_sums(enum kolo_op op, int out)
{
    return op == KOLO_OP_norm_stats ||
           ((op == KOLO_OP_conv_stats || op == KOLO_OP_norm_conv_stats) && out == 1);
}

/* Sums (c), sums of squares (c) and a count, each on its own scale. */
static inline double parity_sums(const double *got, const double *want, int64_t count, double tolerance)
{
    int64_t c = (count - 1) / 2;
    double squares = 0;
    for (int64_t i = 0; i < c; i++) squares += want[c + i];
    double sum = parity_distance(got, want, c, sqrt(squares * want[2 * c]), tolerance, 0);
    double square = parity_distance(got + c, want + c, c, 0, tolerance, 0);
    return got[2 * c] != want[2 * c] ? INFINITY : sum > square ? sum : square;
}

#endif
