/* The second half of an update in delta form (Horovod's delta optimizer): the steps that ranks agreed on are
 * added to the weights. */
#include "optim/loop.h"

static inline __attribute__((always_inline)) float apply(const char *r, float w, float g, float *state)
{
    (void)r, (void)state;
    return w + g;
}

LOOP_RUN(apply_run, char, apply, 0)

void kolo_apply_update(const kolo_slice *slice, const kolo_options *options, const kolo_step *step)
{
    loop l = kolo_loop_of(slice, options, step);
    l.clip = 1; /* what was clipped were the gradients */
    l.limit = 0;
    kolo_loop_update(slice, &l, "", 0, apply_run);
}
