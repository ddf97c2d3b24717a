/* NovoGrad (arXiv 1905.11286) in timm's and NVIDIA's form: the second moment is the squared norm of the
 * whole tensor's gradient. */
#include "optim/loop.h"

static inline __attribute__((always_inline)) void squares(const kolo_rule_novograd *r, float w, float g,
                                                          float *state, float *x, float *y)
{
    (void)r, (void)w, (void)state;
    *x = g;
    *y = 0;
}

LOOP_MEASURE(novograd_measure, kolo_rule_novograd, squares, 0)
LOOP_RUN(novograd_run, kolo_rule_novograd, kolo_rule_novograd_step, 1)

void kolo_novograd_measure(const kolo_slice *slice, const kolo_options *options, const kolo_step *step,
                           double *sum)
{
    const loop l = kolo_loop_of(slice, options, step);
    const kolo_rule_novograd rule = {0};
    kolo_loop_measure(slice, &l, &rule, novograd_measure, sum);
}

void kolo_novograd_update(const kolo_slice *slice, const kolo_options *options, const kolo_step *step)
{
    const loop l = kolo_loop_of(slice, options, step);
    const kolo_rule_novograd rule = {.rate = kolo_slice_rate(slice, step),
                                     .decay = slice->decay ? step->weight_decay : 0,
                                     .b1 = step->momentum,
                                     .take = options->grad_averaging ? 1 - step->momentum : 1,
                                     .divide = slice->layer->factor};
    kolo_loop_update(slice, &l, &rule, 1, novograd_run);
}
