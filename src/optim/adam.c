/* Adam: decay added to the gradient. AdamW: the weights shrink beside the step. torch's forms. */
#include "optim/loop.h"

LOOP_RUN(adam_run, kolo_rule_adam, kolo_rule_adam_step, 2)

static void update(const kolo_slice *slice, const kolo_options *options, const kolo_step *step, int row)
{
    const kolo_optimizer *own = &kolo_optimizer_table[row];
    const loop l = kolo_loop_of(slice, options, step);
    const kolo_rule_adam rule =
        kolo_rule_adam_at((double)kolo_slice_rate(slice, step), slice->decay ? (double)step->weight_decay : 0,
                          row == KOLO_OPTIMIZER_adamw, (double)step->momentum, kolo_beta2(own, options),
                          kolo_epsilon(own, options), (double)(kolo_step_updates(step) + 1));
    kolo_loop_update(slice, &l, &rule, 2, adam_run);
}

void kolo_adam_update(const kolo_slice *slice, const kolo_options *options, const kolo_step *step)
{
    update(slice, options, step, KOLO_OPTIMIZER_adam);
}

void kolo_adamw_update(const kolo_slice *slice, const kolo_options *options, const kolo_step *step)
{
    update(slice, options, step, KOLO_OPTIMIZER_adamw);
}
