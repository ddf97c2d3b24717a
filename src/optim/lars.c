/* LARS (arXiv 1708.03888). Tensors without decay (norm weights and biases with decay_norms=false) have no
 * trust ratio either, unless trust_all. */
#include "optim/loop.h"

static inline __attribute__((always_inline)) void squares(const kolo_rule_lars *r, float w, float g,
                                                          float *state, float *x, float *y)
{
    (void)r, (void)state;
    *x = w;
    *y = g;
}

LOOP_MEASURE(lars_measure, kolo_rule_lars, squares, 0)
LOOP_RUN(lars_run, kolo_rule_lars, kolo_rule_lars_step, 1)

static kolo_rule_lars rule_of(const kolo_slice *slice, const kolo_options *options, const kolo_step *step,
                              bool inside)
{
    return (kolo_rule_lars){.rate = kolo_slice_rate(slice, step),
                            .decay = slice->decay ? step->weight_decay : 0,
                            .momentum = step->momentum,
                            .nesterov = options->nesterov,
                            .inside = inside,
                            .first = kolo_step_updates(step) == 0};
}

void kolo_lars_measure(const kolo_slice *slice, const kolo_options *options, const kolo_step *step,
                       double *sum)
{
    const loop l = kolo_loop_of(slice, options, step);
    const kolo_rule_lars rule = rule_of(slice, options, step, false);
    kolo_loop_measure(slice, &l, &rule, lars_measure, sum);
}

void kolo_lars_tf_measure(const kolo_slice *slice, const kolo_options *options, const kolo_step *step,
                          double *sum)
{
    kolo_lars_measure(slice, options, step, sum);
}

void kolo_lars_update(const kolo_slice *slice, const kolo_options *options, const kolo_step *step)
{
    const loop l = kolo_loop_of(slice, options, step);
    kolo_rule_lars rule = rule_of(slice, options, step, false);
    rule.factor = slice->layer->factor;
    kolo_loop_update(slice, &l, &rule, 1, lars_run);
}

void kolo_lars_tf_update(const kolo_slice *slice, const kolo_options *options, const kolo_step *step)
{
    const loop l = kolo_loop_of(slice, options, step);
    kolo_rule_lars rule = rule_of(slice, options, step, true);
    rule.factor = slice->layer->factor;
    kolo_loop_update(slice, &l, &rule, 1, lars_run);
}
