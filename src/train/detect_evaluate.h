/* Evaluation of detectors. */
#ifndef KOLO_TRAIN_DETECT_EVALUATE_H
#define KOLO_TRAIN_DETECT_EVALUATE_H

#include "train/train.h"

/* As kolo_evaluate(), by COCO's rule, on the validation set; rank 0 writes results= if that is given. Collective. */
int kolo_detect_evaluate(kolo_session *session, bool ema, kolo_evaluation *result);

#endif
