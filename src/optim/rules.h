/* What an optimizer does to one element: inline arithmetic that C loops and CUDA kernels share. All
 * f32, no fused multiply-add in C (see wide.h), so that an element's result does not depend on the
 * machine or on where it stands. */
#ifndef KOLO_OPTIM_RULES_H
#define KOLO_OPTIM_RULES_H

#include <math.h>
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
    /* buffer = keep * buffer + take * d; at the first update 0 and 1 (no dampening there) */
    float keep, take;
    float nesterov; /* momentum, or 0: not Nesterov's */
    /* of a gradient that is late, and of the buffer; of_gradient 0: it is not */
    float of_gradient, of_buffer;
} kolo_rule_sgd;

/* Of one step. take: 1 - dampening. */
KOLO_INLINE kolo_rule_sgd kolo_rule_sgd_at(float rate, float decay, float momentum, float take, bool nesterov,
                                           bool first)
{
    const kolo_rule_sgd r = {rate, decay, first ? 0 : momentum, first ? 1 : take, nesterov ? momentum : 0,
                             0,    0};
    return r;
}

/* Spike compensation (Kosson et al., arXiv 2003.11666): a gradient that is D updates late adds at once what
 * it would have added in D + 1, (1 - m^D) / (1 - m) of itself beside m^D of the buffer. */
KOLO_INLINE void kolo_rule_sgd_late(kolo_rule_sgd *r, float momentum, int late)
{
    double kept = 1, sum = 0;
    for (int i = 0; i < late; i++) {
        sum += kept;
        kept *= (double)momentum;
    }
    r->of_gradient = (float)sum;
    r->of_buffer = (float)kept;
}

/* state[0]: the momentum buffer; none without momentum. */
KOLO_INLINE float kolo_rule_sgd_plain(const kolo_rule_sgd *r, float w, float g, float *state)
{
    (void)state;
    return w - r->rate * (g + r->decay * w);
}

KOLO_INLINE float kolo_rule_sgd_momentum(const kolo_rule_sgd *r, float w, float g, float *state)
{
    float d = g + r->decay * w;
    float b = r->keep * state[0] + r->take * d;
    state[0] = b;
    if (r->of_gradient > 0) return w - r->rate * (r->of_gradient * d + r->of_buffer * b);
    return w - r->rate * (r->nesterov > 0 ? d + r->nesterov * b : b);
}

/* Adam (arXiv 1412.6980) in torch's form: epsilon beside the corrected root. coupled: the decay that is added
 * to the gradient (Adam); decoupled: the factor on the weights (AdamW, 1711.05101). state: m, v. */
typedef struct kolo_rule_adam {
    float rate, root, epsilon;  /* lr / (1 - b1^t), 1 / sqrt(1 - b2^t) */
    float b1, take1, b2, take2; /* take: 1 - b, which is not rounded twice */
    float coupled, keep;
} kolo_rule_adam;

KOLO_INLINE kolo_rule_adam kolo_rule_adam_at(double lr, double decay, bool decoupled, double b1, double b2,
                                             double epsilon, double t)
{
    const kolo_rule_adam r = {(float)(lr / (1 - pow(b1, t))),
                              (float)(1 / sqrt(1 - pow(b2, t))),
                              (float)epsilon,
                              (float)b1,
                              (float)(1 - b1),
                              (float)b2,
                              (float)(1 - b2),
                              decoupled ? 0 : (float)decay,
                              decoupled ? (float)(1 - lr * decay) : 1};
    return r;
}

KOLO_INLINE void kolo_rule_moments(float b1, float take1, float b2, float take2, float g, float *state)
{
    state[0] = b1 * state[0] + take1 * g;
    state[1] = b2 * state[1] + take2 * (g * g);
}

KOLO_INLINE float kolo_rule_adam_step(const kolo_rule_adam *r, float w, float g, float *state)
{
    kolo_rule_moments(r->b1, r->take1, r->b2, r->take2, g + r->coupled * w, state);
    return w * r->keep - r->rate * (state[0] / (sqrtf(state[1]) * r->root + r->epsilon));
}

/* RMSprop. torch's form: v from 0, epsilon beside the root, the rate outside the buffer; inside: TensorFlow's
 * (v from 1, epsilon under the root, the rate inside the buffer). state: v, then the mean gradient if
 * centered, then the buffer if momentum. */
typedef struct kolo_rule_rmsprop {
    float rate, decay, alpha, take, epsilon, momentum; /* take: 1 - alpha */
    bool centered, inside, first;
} kolo_rule_rmsprop;

KOLO_INLINE float kolo_rule_rmsprop_step(const kolo_rule_rmsprop *r, float w, float g, float *state)
{
    float d = g + r->decay * w, *buffer = state + 1;
    float v = r->inside && r->first ? 1 : state[0];
    v = r->alpha * v + r->take * (d * d);
    state[0] = v;
    if (r->centered) {
        float mean = r->alpha * state[1] + r->take * d;
        state[1] = mean;
        v -= mean * mean;
        buffer = state + 2;
    }
    d = r->inside ? r->rate * (d / sqrtf(v + r->epsilon)) : d / (sqrtf(v) + r->epsilon);
    if (r->momentum > 0) {
        d = r->momentum * *buffer + d;
        *buffer = d;
    }
    return w - (r->inside ? d : r->rate * d);
}

/* ---- rules with a factor for every tensor, decided from norms of the whole of it ---- */

/* What is known of one tensor: sums of squares that a first pass has formed, what is decided from them, and
 * what is kept from step to step. In the backend's memory. */
typedef struct kolo_layer {
    double sum[2];
    float factor;
    float kept;
} kolo_layer;

/* The quotient of norms of LARS (arXiv 1708.03888): coefficient |w| / (|g| + decay |w| + epsilon), 1
 * where either norm is 0. */
KOLO_INLINE float kolo_rule_trust(double weights, double gradients, double coefficient, double decay,
                                  double epsilon)
{
    if (!(weights > 0) || !(gradients > 0)) return 1;
    return (float)(coefficient * weights / (gradients + decay * weights + epsilon));
}

/* LARS with the rate outside the buffer (torch's, timm's, NVIDIA's form) or inside (TensorFlow's, MLPerf's
 * reference). state: the buffer. */
typedef struct kolo_rule_lars {
    float rate, decay, factor, momentum;
    bool nesterov, inside, first;
} kolo_rule_lars;

KOLO_INLINE float kolo_rule_lars_step(const kolo_rule_lars *r, float w, float g, float *state)
{
    float d = r->factor * (g + r->decay * w);
    if (r->inside) d = r->rate * d;
    float b = r->first ? d : r->momentum * state[0] + d;
    state[0] = b;
    if (r->inside) return w - b;
    return w - r->rate * (r->nesterov ? d + r->momentum * b : b);
}

/* LAMB (arXiv 1904.00962). The first pass brings the moments up to date; both form the same
 * update. state: m, v. */
typedef struct kolo_rule_lamb {
    float correct, root, epsilon, decay; /* 1 / (1 - b1^t), 1 / sqrt(1 - b2^t); 1 and 1 without correction */
    float b1, take1, b2, take2, rate;    /* rate: times the tensor's factor */
} kolo_rule_lamb;

/* decay: of this tensor; factor: its quotient of norms; t = 1, 2, ... */
KOLO_INLINE kolo_rule_lamb kolo_rule_lamb_at(float lr, float decay, double b1, double b2, double epsilon,
                                             bool correct, double t, float factor)
{
    const kolo_rule_lamb r = {correct ? (float)(1 / (1 - pow(b1, t))) : 1,
                              correct ? (float)(1 / sqrt(1 - pow(b2, t))) : 1,
                              (float)epsilon,
                              decay,
                              (float)b1,
                              (float)(1 - b1),
                              (float)b2,
                              (float)(1 - b2),
                              lr * factor};
    return r;
}

KOLO_INLINE float kolo_rule_lamb_direction(const kolo_rule_lamb *r, float w, const float *state)
{
    return state[0] * r->correct / (sqrtf(state[1]) * r->root + r->epsilon) + r->decay * w;
}

/* NovoGrad (arXiv 1905.11286): the second moment is one number a tensor. state: m. */
typedef struct kolo_rule_novograd {
    float rate, decay, b1, take; /* take: factor on the gradient, 1 - b1 with grad_averaging, else 1 */
    float divide;                /* 1 / (sqrt(v) + epsilon) */
} kolo_rule_novograd;

KOLO_INLINE float kolo_rule_novograd_step(const kolo_rule_novograd *r, float w, float g, float *state)
{
    state[0] = r->b1 * state[0] + r->take * (g * r->divide + r->decay * w);
    return w - r->rate * state[0];
}

/* How a tensor's factor follows from its norms. */
enum kolo_layer_kind { KOLO_LAYER_NONE, KOLO_LAYER_LARS, KOLO_LAYER_LAMB, KOLO_LAYER_NOVOGRAD };
typedef struct kolo_rule_layer {
    int kind;
    double coefficient, epsilon, b2;
    bool all;  /* also tensors without decay */
    bool clip; /* LARS: never above the rate itself (LARC); LAMB: never above 1 */
} kolo_rule_layer;

/* decay: of this tensor; lr: of this step. */
KOLO_INLINE void kolo_layer_decide(const kolo_rule_layer *r, float decay, float lr, kolo_layer *layer)
{
    double a = sqrt(layer->sum[0]), b = sqrt(layer->sum[1]);
    layer->factor = 1;
    if (r->kind == KOLO_LAYER_NOVOGRAD) {
        layer->kept = layer->kept == 0 ? (float)layer->sum[0]
                                       : (float)(r->b2 * (double)layer->kept + (1 - r->b2) * layer->sum[0]);
        layer->factor = (float)(1 / (sqrt((double)layer->kept) + r->epsilon));
    } else if (decay > 0 || r->all) {
        if (r->kind == KOLO_LAYER_LARS)
            layer->factor = kolo_rule_trust(a, b, r->coefficient, (double)decay, r->epsilon);
        else if (a > 0 && b > 0) layer->factor = (float)(a / b);
        float most = r->kind == KOLO_LAYER_LARS && r->clip ? layer->factor / lr : layer->factor;
        if (r->clip) layer->factor = most < 1 ? most : 1;
    }
}

/* ---- averages ---- */

/* Lookahead (arXiv 1907.08610): every k steps the slow weights go a part of the way and the fast
 * ones begin there again. */
KOLO_INLINE float kolo_rule_slow(float slow, float *w, float rate, bool now)
{
    if (now) *w = slow = slow + rate * (*w - slow);
    return slow;
}

/* Exponential moving average. */
KOLO_INLINE float kolo_rule_ema(float e, float w, float decay) { return decay * e + (1.0f - decay) * w; }

/* A running statistic after a batch whose own is `batch`. */
KOLO_INLINE float kolo_rule_running(float r, float batch, float momentum)
{
    return (1 - momentum) * r + momentum * batch;
}

#endif
