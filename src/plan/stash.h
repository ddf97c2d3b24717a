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

/* stash=auto takes what spares this share of the arena or more, and takes that share of a step or less: a
 * clock could not tell. */
#define KOLO_STASH_SPARED .01
#define KOLO_STASH_PRICE .01
/* What it finds, shares of 1. */
typedef struct kolo_stash_worth {
    double spared; /* of the arena ACTIVATION, with signs and 4 bits where they make it smaller */
    double price;  /* of a step: what encoding and decoding take of it at the rates of a core */
    bool taken;
} kolo_stash_worth;

/* stash=auto: signs and 4 bits alone, nothing is made again, and that only where it costs no time: form is
 * [graph->tensors], all KEPT where it does not. A matter of the plan alone: nothing is timed. plan: one that
 * keeps everything, of a backend with encoded forms. */
int kolo_stash_choose_free(const kolo_plan *plan, kolo_form *form, kolo_stash_worth *worth);
/* Bytes of one micro-batch that signs and 4 bits could stand for; 0: nothing is read in that way. */
int kolo_stash_encodable(const kolo_graph *graph, size_t *bytes);

/* Of what `form` keeps as it is, offloads as few as let ACTIVATION have `budget` bytes, the first of the
 * forward half first, as they wait longest; all, if none do. */
int kolo_stash_offload(const kolo_plan *plan, size_t budget, kolo_form *form);

/* What a plan does with its activations, one micro-batch of it. */
typedef struct kolo_stashed {
    int activations;    /* that gradients read */
    int of[KOLO_FORMS]; /* those of each form */
    double bytes;       /* of the activations, all as they are */
    double waiting;     /* bytes in memory between forward and backward */
    double offloaded;   /* bytes in the file, or the host's memory */
    int operations;     /* that run again */
} kolo_stashed;
int kolo_plan_stashed(const kolo_plan *plan, kolo_stashed *count);

#endif
