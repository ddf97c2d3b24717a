/* Outer optimizers: what ranks that average their weights now and then make of the mean. One mechanism: a
 * stage's weights have an anchor, those that the ranks went out from, and the mean is a step away from it.
 *   slowmo    Wang et al., arXiv 1910.00643: u = b u + (anchor - mean) / lr, weights = anchor - rate lr u
 *   nesterov  DiLoCo (Douillard et al., 2311.08105): Nesterov's SGD by the gradient anchor - mean
 *   easgd     Zhang et al., 1412.6651, synchronous: the anchor is the centre; every rank keeps its own
 * weights,
 *             goes to it by rate, and it goes to their mean by ranks x rate
 * With rate 1 and momentum 0 the first two make the mean itself, to the bit. */
#ifndef KOLO_OPTIM_OUTER_H
#define KOLO_OPTIM_OUTER_H

#include <stdint.h>

#include "base/option.h"

typedef struct kolo_outer {
    int kind; /* KOLO_local_outer_* */
    float rate, momentum;
    float centre; /* easgd: ranks x rate */
} kolo_outer;

/* local_outer=, or slowmo by local_momentum=global. */
static inline int kolo_outer_kind(const kolo_options *o)
{
    return o->local_momentum == KOLO_local_momentum_global ? KOLO_local_outer_slowmo : o->local_outer;
}
/* Vectors of the parameters' size that it keeps: the anchor, then momentum. */
static inline int kolo_outer_states(int kind)
{
    return kind == KOLO_local_outer_none ? 0 : kind == KOLO_local_outer_easgd ? 1 : 2;
}
/* With its own rates where options give none. */
kolo_outer kolo_outer_of(const kolo_options *options, int ranks);

/* count elements in host memory; lr: of the step. momentum: NULL with easgd. */
void kolo_outer_update(const kolo_outer *outer, float lr, float *param, float *anchor, float *momentum,
                       const float *mean, int64_t count);

#endif
