/* What a detector finds in images that are in no data set. */
#ifndef KOLO_TRAIN_DETECT_PREDICT_H
#define KOLO_TRAIN_DETECT_PREDICT_H

#include "train/predict.h"

/* Prints for each file that could be read its path, and for each box of a score of box_threshold= or more:
 * score, class, x y width height in pixels of the image. With a folder out= the images are written there with
 * their boxes, as PNG. name: [classes], or NULL. session: as kolo_predict() has it. */
int kolo_detect_predict(kolo_session *session, kolo_image_feed *feed, char *const *name);

#endif
