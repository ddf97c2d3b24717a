/* What a detector finds in images that are in no data set. */
#ifndef KOLO_TRAIN_DETECT_PREDICT_H
#define KOLO_TRAIN_DETECT_PREDICT_H

#include "metrics/detect_find.h"
#include "train/predict.h"

/* Given for every image that could be read, in order: its number, and the boxes of a score of box_threshold=
 * or more in pixels of the image, the surest first. */
typedef int kolo_detect_take(void *context, int64_t i, const kolo_found *found, int64_t n);

/* With a folder out= the images are written there with their boxes, as PNG. name: [classes], or NULL.
 * session: as kolo_predict() has it. */
int kolo_detect_predict(kolo_session *session, kolo_image_feed *feed, char *const *name,
                        kolo_detect_take *take, void *context);

#endif
