/* sync=async: the steps of a run as blocks that ranks take and push (exec/exec.h). */
#ifndef KOLO_TRAIN_ASYNC_H
#define KOLO_TRAIN_ASYNC_H

#include "train/trainer.h"

/* Weights are served by ranks, and gradients pushed to them. On one rank there is nobody to wait for. */
static inline bool kolo_is_async(const kolo_session *s)
{
    return s->options->sync == KOLO_sync_async && s->replicas > 1 && (s->parts & KOLO_SESSION_TRAIN);
}
/* Ranks among which a batch of training is divided: all but the last servers=. All ranks evaluate. */
static inline int kolo_session_workers(const kolo_session *s)
{
    return s->replicas - (kolo_is_async(s) ? (int)s->options->servers : 0);
}
/* All steps up to `end`, before which ranks do nothing together. Collective. */
int trainer_async_steps(trainer *t, int64_t end);

#endif
