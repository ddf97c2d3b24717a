/* LAMB (arXiv 1904.00962): as apex has it (corrected moments, global clipping by clip_norm before them); the
 * paper's version 3 is bias_correction=false trust_all=true without clip_norm. */
#include "optim/loop.h"

static inline __attribute__((always_inline)) void squares(const kolo_rule_lamb *r, float w, float g,
                                                          float *state, float *x, float *y)
{
    kolo_rule_moments(r->b1, r->take1, r->b2, r->take2, g, state);
    *x = w;
    *y = kolo_rule_lamb_direction(r, w, state);
}

static inline __attribute__((always_inline)) float apply(const kolo_rule_lamb *r, float w, float g,
                                                         float *state)
{
    (void)g;
    return w - r->rate * kolo_rule_lamb_direction(r, w, state);
}

static kolo_rule_lamb rule_of(const kolo_slice *slice, const kolo_options *options, const kolo_step *step,
                              float factor)
{
    const kolo_optimizer *own = &kolo_optimizer_table[KOLO_OPTIMIZER_lamb];
    return kolo_rule_lamb_at(kolo_slice_rate(slice, step), slice->decay ? step->weight_decay : 0,
                             (double)step->momentum, kolo_beta2(own, options), kolo_epsilon(own, options),
                             options->bias_correction, (double)(kolo_step_updates(step) + 1), factor);
}

LOOP_MEASURE(lamb_measure, kolo_rule_lamb, squares, 2)
LOOP_RUN(lamb_run, kolo_rule_lamb, apply, 2)

void kolo_lamb_measure(const kolo_slice *slice, const kolo_options *options, const kolo_step *step,
                       double *sum)
{
    const loop l = kolo_loop_of(slice, options, step);
    const kolo_rule_lamb rule = rule_of(slice, options, step, 0);
    kolo_loop_measure(slice, &l, &rule, lamb_measure, sum);
}

void kolo_lamb_update(const kolo_slice *slice, const kolo_options *options, const kolo_step *step)
{
    const loop l = kolo_loop_of(slice, options, step);
    const kolo_rule_lamb rule = rule_of(slice, options, step, slice->layer->factor);
    kolo_loop_update(slice, &l, &rule, 2, lamb_run);
}
