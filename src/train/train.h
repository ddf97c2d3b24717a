/* The training loop and evaluation: call the rooms above in order, nothing else. */
#ifndef KOLO_TRAIN_H
#define KOLO_TRAIN_H

#include <signal.h>

#include "train/session.h"

/* Trains to the end (0), or to a checkpoint when *stop becomes non-zero (signal) or at stop_step (KOLO_EREQUEUE). Collective. */
int kolo_train(kolo_launch *launch, kolo_options *options, const volatile sig_atomic_t *stop);

/* Exactly the validation set, once: means over it, the same on all ranks. ema: with the averaged weights. Collective. */
typedef struct kolo_evaluation {
    double loss, top1, top5; /* of a detector: 0, AP, AP50 */
    double line[12];         /* of a detector: kolo_ap's */
    int64_t rows;
    double seconds;
} kolo_evaluation;
int kolo_evaluate(kolo_session *session, bool ema, kolo_evaluation *result);

#endif
