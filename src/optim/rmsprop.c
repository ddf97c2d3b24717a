/* RMSprop in torch's form, and in TensorFlow's, which EfficientNet was trained with. */
#include "optim/loop.h"

LOOP_RUN(run_1, kolo_rule_rmsprop, kolo_rule_rmsprop_step, 1)
LOOP_RUN(run_2, kolo_rule_rmsprop, kolo_rule_rmsprop_step, 2)
LOOP_RUN(run_3, kolo_rule_rmsprop, kolo_rule_rmsprop_step, 3)

static void update(const kolo_slice *slice, const kolo_options *options, const kolo_step *step, int row)
{
    const loop l = kolo_loop_of(slice, options, step);
    const kolo_rule_rmsprop rule = {.rate = kolo_slice_rate(slice, step),
                                    .decay = slice->decay ? step->weight_decay : 0,
                                    .alpha = (float)options->alpha,
                                    .take = (float)(1 - options->alpha),
                                    .epsilon = (float)kolo_epsilon(&kolo_optimizer_table[row], options),
                                    .momentum = step->momentum,
                                    .centered = row == KOLO_OPTIMIZER_rmsprop_centered,
                                    .inside = row == KOLO_OPTIMIZER_rmsprop_tf,
                                    .first = kolo_step_updates(step) == 0};
    int used = 1 + rule.centered + (rule.momentum > 0);
    kolo_loop_update(slice, &l, &rule, used, used == 1 ? run_1 : used == 2 ? run_2 : run_3);
}

void kolo_rmsprop_update(const kolo_slice *slice, const kolo_options *options, const kolo_step *step)
{
    update(slice, options, step, KOLO_OPTIMIZER_rmsprop);
}

void kolo_rmsprop_centered_update(const kolo_slice *slice, const kolo_options *options, const kolo_step *step)
{
    update(slice, options, step, KOLO_OPTIMIZER_rmsprop_centered);
}

void kolo_rmsprop_tf_update(const kolo_slice *slice, const kolo_options *options, const kolo_step *step)
{
    update(slice, options, step, KOLO_OPTIMIZER_rmsprop_tf);
}
