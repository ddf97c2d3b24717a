/* Evaluation of detectors. */
#ifndef KOLO_TRAIN_DETECT_EVALUATE_H
#define KOLO_TRAIN_DETECT_EVALUATE_H

#include "train/train.h"

/* Computes a batch; where the session answers with the heads, head: [graph->heads] canonical values
 * (N, channels, h, w) of the evaluation's graph. */
int kolo_detect_answer(const kolo_session *session, const kolo_batch *batch, float *const *head);
/* kolo_evaluate() of detectors. Collective. */
int kolo_detect_evaluate(kolo_session *session, bool ema, const char *results, kolo_by_class *by,
                         kolo_evaluation *result);

#endif
