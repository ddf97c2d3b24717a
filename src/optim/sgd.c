/* SGD in torch's form: L2 decay, momentum with dampening, Nesterov. */
#include "optim/loop.h"

LOOP_RUN(run_plain, kolo_rule_sgd, kolo_rule_sgd_plain, 0)
LOOP_RUN(run_momentum, kolo_rule_sgd, kolo_rule_sgd_momentum, 1)

void kolo_sgd_predict(const kolo_slice *slice, const kolo_step *step, int updates, float *to)
{
    const float far = kolo_slice_rate(slice, step) * (float)updates;
    const float *w = slice->param, *v = slice->state[0];
    for (int64_t i = 0; i < slice->count; i++) to[i] = w[i] - far * v[i];
}

void kolo_sgd_update(const kolo_slice *slice, const kolo_options *options, const kolo_step *step)
{
    bool momentum = step->momentum != 0;
    const loop l = kolo_loop_of(slice, options, step);
    kolo_rule_sgd rule =
        kolo_rule_sgd_at(kolo_slice_rate(slice, step), slice->decay ? step->weight_decay : 0, step->momentum,
                         (float)(1 - options->dampening), options->nesterov, kolo_step_updates(step) == 0);
    if (slice->late) kolo_rule_sgd_late(&rule, step->momentum, slice->late);
    kolo_loop_update(slice, &l, &rule, momentum, momentum ? run_momentum : run_plain);
}
