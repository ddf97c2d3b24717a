/* What goes with sync=; and sync=stale: gradients that are applied late (plan/plan.h, exec/late.c). */
#ifndef KOLO_TRAIN_LATE_H
#define KOLO_TRAIN_LATE_H

#include "train/trainer.h"

/* KOLO_ECONFIG: options of one sync= beside another, or sync= beside what says otherwise how the gradients of
 * a step come together. */
int session_check_late(const kolo_session *session);
/* Likewise of the device, once it is chosen. */
int session_check_late_device(const kolo_session *session);
/* Updates that the weights lack with which a gradient is formed. */
static inline int kolo_late(const kolo_options *o)
{
    return o->sync == KOLO_sync_stale ? (int)o->staleness : 0;
}
/* sync=backup: steps that the other ranks go on without one that lags; else 0. */
static inline int kolo_lag(const kolo_options *o)
{
    return o->sync != KOLO_sync_backup ? 0 : o->staleness ? (int)o->staleness : 4;
}
/* A run is taken up: the steps that were under way are so again, with what they had summed (rank-local
 * state). */
int trainer_resume_late(trainer *t, const void *from);
/* The run ends: all that is under way is applied. */
int trainer_flush(trainer *t);

#endif
