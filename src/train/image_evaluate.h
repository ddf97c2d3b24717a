/* Validation of image labels: loss, and the mean average precision of metrics/image_ap.h. */
#ifndef KOLO_TRAIN_IMAGE_EVALUATE_H
#define KOLO_TRAIN_IMAGE_EVALUATE_H

#include "train/train.h"

/* Part of kolo_evaluate. results: NULL or "", or the file that rank 0 writes every class's average
 * precision to. Collective. */
int kolo_image_evaluate(kolo_session *session, bool ema, const char *results, kolo_by_class *by,
                        kolo_evaluation *result);

#endif
