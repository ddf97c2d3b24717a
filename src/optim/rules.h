/* What an optimizer does to one element: inline arithmetic that C loops and CUDA kernels share. All f32, no fused
 * multiply-add in C (see wide.h), so that an element's result does not depend on the machine or on where it stands. */
#ifndef KOLO_OPTIM_RULES_H
#define KOLO_OPTIM_RULES_H

#include <stdbool.h>

#include "base/philox.h" /* KOLO_INLINE */

/* Clipping comes before everything else: times the factor of clip_norm, then cut to +-limit (0: no limit). */
KOLO_INLINE float kolo_rule_clip(float g, float factor, float limit)
{
    g *= factor;
    if (limit > 0) g = g > limit ? limit : g < -limit ? -limit : g;
    return g;
}

/* SGD, torch's form (torch.optim.SGD): the rate stays outside the momentum buffer. */
typedef struct kolo_rule_sgd {
    float rate, decay;
    float keep, take; /* buffer = keep * buffer + take * d; at the first update 0 and 1 (no dampening there) */
    float nesterov;   /* momentum, or 0: not Nesterov's */
} kolo_rule_sgd;

/* Of one step. take: 1 - dampening. */
KOLO_INLINE kolo_rule_sgd kolo_rule_sgd_at(float rate, float decay, float momentum, float take, bool nesterov, bool first)
{
    const kolo_rule_sgd r = {rate, decay, first ? 0 : momentum, first ? 1 : take, nesterov ? momentum : 0};
    return r;
}

KOLO_INLINE float kolo_rule_sgd_plain(const kolo_rule_sgd *r, float w, float g)
{
    return w - r->rate * (g + r->decay * w);
}

KOLO_INLINE float kolo_rule_sgd_momentum(const kolo_rule_sgd *r, float w, float g, float *buffer)
{
    float d = g + r->decay * w;
    float b = r->keep * *buffer + r->take * d;
    *buffer = b;
    return w - r->rate * (r->nesterov > 0 ? d + r->nesterov * b : b);
}

/* Exponential moving average. */
KOLO_INLINE float kolo_rule_ema(float e, float w, float decay) { return decay * e + (1.0f - decay) * w; }

/* A running statistic after a batch whose own is `batch`. */
KOLO_INLINE float kolo_rule_running(float r, float batch, float momentum) { return (1 - momentum) * r + momentum * batch; }

#endif
