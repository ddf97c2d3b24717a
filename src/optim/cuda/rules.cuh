/* The rules of optim/rules.h as the update kernels take them: of(optimizer, options) on the host, begin(step,
 * slice) and element() on the GPU. `used`: states that this step reads and writes. Those with a factor for
 * every tensor also have squares(), an element of the first pass. */
#ifndef KOLO_OPTIM_CUDA_RULES_CUH
#define KOLO_OPTIM_CUDA_RULES_CUH

#include <string.h>

#include "ops/cuda/vector.cuh"

extern "C" {
#include "optim/optim.h"
}

/* What all have. */
struct rule_common {
    float limit, clip;
    float rate, weight_decay; /* of this slice */
    double t;                 /* number of this update, from 1 */
    int used;
    int lookahead;
    float slow_rate;
    bool slow_late, slow_now, slow_begin;

    void common_of(const kolo_options *o)
    {
        limit = (float)o->clip_value;
        lookahead = (int)o->lookahead;
        slow_rate = (float)o->lookahead_rate;
        slow_late = o->lookahead_start == KOLO_lookahead_start_first_sync;
    }
    __device__ void common_begin(const kolo_step *step, const kolo_slice &s)
    {
        const int64_t done = kolo_step_updates(step);
        clip = step->clip;
        rate = kolo_slice_rate(&s, step);
        weight_decay = s.decay ? step->weight_decay : 0;
        t = (double)(done + 1);
        slow_now = lookahead > 0 && (done + 1) % lookahead == 0;
        slow_begin = done == 0;
        if (slow_late && done + 1 == lookahead) slow_rate = 1;
    }
    __device__ float clipped(float g) const { return kolo_rule_clip(g, clip, limit); }
};

struct sgd : rule_common {
    enum { STATES = 1 };
    float take;
    bool nesterov;
    kolo_rule_sgd rule;

    static sgd of(const kolo_optimizer *, const kolo_options *o)
    {
        sgd s = {};
        s.common_of(o);
        s.take = (float)(1 - o->dampening);
        s.nesterov = o->nesterov;
        return s;
    }
    __device__ void begin(const kolo_step *step, const kolo_slice &slice)
    {
        common_begin(step, slice);
        rule = kolo_rule_sgd_at(rate, weight_decay, step->momentum, take, nesterov, t == 1);
        used = step->momentum != 0;
    }
    __device__ float element(float w, float g, float (&state)[STATES]) const
    {
        return used ? kolo_rule_sgd_momentum(&rule, w, clipped(g), state)
                    : kolo_rule_sgd_plain(&rule, w, clipped(g), state);
    }
};

struct adam : rule_common {
    enum { STATES = 2 };
    bool decoupled;
    double b2, epsilon;
    kolo_rule_adam rule;

    static adam of(const kolo_optimizer *optimizer, const kolo_options *o)
    {
        adam a = {};
        a.common_of(o);
        a.decoupled = !strcmp(optimizer->name, "adamw");
        a.b2 = kolo_beta2(optimizer, o);
        a.epsilon = kolo_epsilon(optimizer, o);
        return a;
    }
    __device__ void begin(const kolo_step *step, const kolo_slice &slice)
    {
        common_begin(step, slice);
        used = STATES;
        rule = kolo_rule_adam_at((double)rate, (double)weight_decay, decoupled, (double)step->momentum, b2,
                                 epsilon, t);
    }
    __device__ float element(float w, float g, float (&state)[STATES]) const
    {
        return kolo_rule_adam_step(&rule, w, clipped(g), state);
    }
};

template <int ALL> struct rmsprop : rule_common {
    enum { STATES = ALL };
    kolo_rule_rmsprop rule;

    static rmsprop of(const kolo_optimizer *optimizer, const kolo_options *o)
    {
        rmsprop r = {};
        r.common_of(o);
        r.rule.inside = !strcmp(optimizer->name, "rmsprop_tf");
        r.rule.centered = ALL == 3;
        r.rule.alpha = (float)o->alpha;
        r.rule.take = (float)(1 - o->alpha);
        r.rule.epsilon = (float)kolo_epsilon(optimizer, o);
        return r;
    }
    __device__ void begin(const kolo_step *step, const kolo_slice &slice)
    {
        common_begin(step, slice);
        rule.rate = rate;
        rule.decay = weight_decay;
        rule.momentum = step->momentum;
        rule.first = t == 1;
        used = ALL - (rule.momentum > 0 ? 0 : 1);
    }
    __device__ float element(float w, float g, float (&state)[STATES]) const
    {
        return kolo_rule_rmsprop_step(&rule, w, clipped(g), state);
    }
};

struct lars : rule_common {
    enum { STATES = 1 };
    kolo_rule_lars rule;

    static lars of(const kolo_optimizer *optimizer, const kolo_options *o)
    {
        lars l = {};
        l.common_of(o);
        l.rule.inside = !strcmp(optimizer->name, "lars_tf");
        l.rule.nesterov = o->nesterov;
        return l;
    }
    __device__ void begin(const kolo_step *step, const kolo_slice &slice)
    {
        common_begin(step, slice);
        used = STATES;
        rule.rate = rate;
        rule.decay = weight_decay;
        rule.factor = slice.layer->factor;
        rule.momentum = step->momentum;
        rule.first = t == 1;
    }
    __device__ float element(float w, float g, float (&state)[STATES]) const
    {
        return kolo_rule_lars_step(&rule, w, clipped(g), state);
    }
    enum { MEASURED = 0 }; /* states that squares() changes */
    __device__ void squares(float w, float g, float (&)[STATES], float *x, float *y) const
    {
        *x = w;
        *y = clipped(g);
    }
};

struct lamb : rule_common {
    enum { STATES = 2 };
    bool correct;
    double b2, epsilon;
    kolo_rule_lamb rule;

    static lamb of(const kolo_optimizer *optimizer, const kolo_options *o)
    {
        lamb l = {};
        l.common_of(o);
        l.correct = o->bias_correction;
        l.b2 = kolo_beta2(optimizer, o);
        l.epsilon = kolo_epsilon(optimizer, o);
        return l;
    }
    __device__ void begin(const kolo_step *step, const kolo_slice &slice)
    {
        common_begin(step, slice);
        used = STATES;
        rule = kolo_rule_lamb_at(rate, weight_decay, (double)step->momentum, b2, epsilon, correct, t,
                                 slice.layer->factor);
    }
    __device__ float element(float w, float, float (&state)[STATES]) const
    {
        return w - rule.rate * kolo_rule_lamb_direction(&rule, w, state);
    }
    enum { MEASURED = 2 };
    __device__ void squares(float w, float g, float (&state)[STATES], float *x, float *y) const
    {
        kolo_rule_moments(rule.b1, rule.take1, rule.b2, rule.take2, clipped(g), state);
        *x = w;
        *y = kolo_rule_lamb_direction(&rule, w, state);
    }
};

struct novograd : rule_common {
    enum { STATES = 1 };
    bool averaging;
    kolo_rule_novograd rule;

    static novograd of(const kolo_optimizer *, const kolo_options *o)
    {
        novograd n = {};
        n.common_of(o);
        n.averaging = o->grad_averaging;
        return n;
    }
    __device__ void begin(const kolo_step *step, const kolo_slice &slice)
    {
        common_begin(step, slice);
        used = STATES;
        rule.rate = rate;
        rule.decay = weight_decay;
        rule.b1 = step->momentum;
        rule.take = averaging ? 1 - step->momentum : 1;
        rule.divide = slice.layer->factor;
    }
    __device__ float element(float w, float g, float (&state)[STATES]) const
    {
        return kolo_rule_novograd_step(&rule, w, clipped(g), state);
    }
    enum { MEASURED = 0 };
    __device__ void squares(float, float g, float (&)[STATES], float *x, float *y) const
    {
        *x = clipped(g);
        *y = 0;
    }
};

/* KOLO_UPDATE_APPLY: the gradients' place holds steps. */
struct apply : rule_common {
    enum { STATES = 1 };

    static apply of(const kolo_optimizer *, const kolo_options *o)
    {
        apply a = {};
        a.common_of(o);
        return a;
    }
    __device__ void begin(const kolo_step *step, const kolo_slice &slice)
    {
        common_begin(step, slice);
        used = 0;
    }
    __device__ float element(float w, float g, float (&)[STATES]) const { return w + g; }
};

#endif
