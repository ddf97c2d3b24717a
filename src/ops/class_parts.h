/* What operations on parts of the classes tell each other of a row of logits, and the loss of all. Shared
 * by C and CUDA. */
#ifndef KOLO_OPS_CLASS_PARTS_H
#define KOLO_OPS_CLASS_PARTS_H

#include <math.h>

#include "graph/graph.h"
#include "ops/element.h"

/* Class i of logit x comes before the label's class, whose logit is `own`; all do where that is no number. */
KOLO_INLINE bool kolo_class_is_before(float x, int64_t i, float own, int64_t label)
{
    return own == -HUGE_VALF || x > own || (x == own && i < label);
}

/* Of a row whose terms are added up. */
KOLO_INLINE double kolo_class_loss1(const double *sum, double largest, double eps, double classes)
{
    const double log_sum = log(sum[KOLO_TERM_POWERS]) + largest;
    return (1 - eps) * (log_sum * sum[KOLO_TERM_MASS] - sum[KOLO_TERM_DOT]) +
           eps * (log_sum - sum[KOLO_TERM_TOTAL] / classes);
}

/* What e^(x - largest) is times for the gradient; numbers: the label is one of each class. */
KOLO_INLINE float kolo_class_scale1(const double *sum, double eps, bool numbers)
{
    const double mass = numbers ? sum[KOLO_TERM_MASS] : 1;
    return (float)(((1 - eps) * mass + eps) / sum[KOLO_TERM_POWERS]);
}

#endif
