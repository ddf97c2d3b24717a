/* Evaluation of detectors. */
#ifndef KOLO_TRAIN_DETECT_EVALUATE_H
#define KOLO_TRAIN_DETECT_EVALUATE_H

#include "train/train.h"

/* kolo_evaluate() of detectors. Collective. */
int kolo_detect_evaluate(kolo_session *session, bool ema, const char *results, kolo_evaluation *result);

#endif
