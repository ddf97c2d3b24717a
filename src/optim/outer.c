#include "optim/outer.h"

kolo_outer kolo_outer_of(const kolo_options *o, int ranks)
{
    const int kind = kolo_outer_kind(o);
    const double rate = kind == KOLO_local_outer_slowmo     ? 1
                        : kind == KOLO_local_outer_nesterov ? 0.7
                                                            : 0.9 / ranks,
                 momentum = kind == KOLO_local_outer_slowmo ? 0.6 : 0.9;
    kolo_outer outer = {.kind = kind,
                        .rate = (float)(o->local_outer_rate < 0 ? rate : o->local_outer_rate),
                        .momentum =
                            (float)(o->local_outer_momentum < 0 ? momentum : o->local_outer_momentum)};
    outer.centre = outer.rate * (float)ranks;
    return outer;
}

static void elastic(const kolo_outer *o, float *param, float *centre, const float *mean, int64_t count)
{
    for (int64_t i = 0; i < count; i++) {
        param[i] -= o->rate * (param[i] - centre[i]);
        centre[i] += o->centre * (mean[i] - centre[i]);
    }
}

/* The new weights, written as what they differ from the mean by, become the anchor: of anchor - mean `stays`
 * is left, and `of_old` of the old momentum is taken away; the momentum takes up `gradient` of it. */
static void step(const kolo_outer *o, float gradient, float stays, float of_old, float *param, float *anchor,
                 float *momentum, const float *mean, int64_t count)
{
    for (int64_t i = 0; i < count; i++) {
        const float away = anchor[i] - mean[i], old = momentum[i];
        momentum[i] = o->momentum * old + gradient * away;
        anchor[i] = param[i] = mean[i] + stays * away - of_old * old;
    }
}

void kolo_outer_update(const kolo_outer *o, float lr, float *param, float *anchor, float *momentum,
                       const float *mean, int64_t count)
{
    if (o->kind == KOLO_local_outer_easgd) {
        elastic(o, param, anchor, mean, count);
    } else if (o->kind == KOLO_local_outer_nesterov) {
        step(o, 1, 1 - o->rate * (1 + o->momentum), o->rate * o->momentum * o->momentum, param, anchor,
             momentum, mean, count);
    } else {
        step(o, lr > 0 ? 1 / lr : 0, 1 - o->rate, o->rate * lr * o->momentum, param, anchor, momentum, mean,
             count);
    }
}
