/* In which forms activations wait for the backward half (ops/form.h), chosen by what the graph asks of them:
 *
 *   signs      what gradients ask only whether it is above 0: a relu that only a pool reads, the last sum
 *   4 bits     which element of a window was its maximum, of windows of 16 elements at most
 *   dropped    what an operation of one element at a time, a norm or a pool makes of what is there anyway: it
 *              runs again. Gist keeps such maps as lists of what is not zero; their size depends on the data,
 *              and a plan's does not
 *   rounded    (if asked for) all other numbers that gradients read */
#ifndef KOLO_PLAN_STASH_H
#define KOLO_PLAN_STASH_H

#include "plan/plan.h"

/* numbers: KOLO_FORM_KEPT: exact forms alone, as many as make the arena ACTIVATION of this plan smallest and
 * no more (operations that run again take time); or a rounded form, for all it goes for, with signs and 4
 * bits: a matter of the graph alone, so all grids round alike. encodes: the backend has encoded forms. form:
 * [graph->tensors], filled. plan: one that keeps everything. */
int kolo_stash_choose(const kolo_plan *plan, enum kolo_form_kind numbers, bool encodes, kolo_form *form);

/* Of what `form` keeps as it is, offloads as few as let ACTIVATION have `budget` bytes, the first of the
 * forward half first, as they wait longest; all, if none do. */
int kolo_stash_offload(const kolo_plan *plan, size_t budget, kolo_form *form);

/* What a plan does with its activations, one micro-batch of it. */
typedef struct kolo_stashed {
    int activations;    /* that gradients read */
    int of[KOLO_FORMS]; /* those of each form */
    double bytes;       /* as they are */
    double waiting;     /* of memory between the halves */
    double offloaded;   /* not of memory */
    int operations;     /* that run again */
} kolo_stashed;
int kolo_plan_stashed(const kolo_plan *plan, kolo_stashed *count);

#endif
