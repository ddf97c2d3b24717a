/* What a network says of pictures that are in no data set. */
#ifndef KOLO_TRAIN_PREDICT_H
#define KOLO_TRAIN_PREDICT_H

#include "train/session.h"

/* Given for every picture, in order: its number and the network's output, [session->options->classes]. */
typedef int kolo_predict_take(void *context, int64_t i, const float *logits);

/* Decodes n files (any kind that kolo-pack reads), brings them to the input's size as validation does, computes session->rows at a time. session: opened with
 * KOLO_SESSION_EVAL | KOLO_SESSION_NO_DATA, weights loaded, one rank. KOLO_EINPUT: a file that is no picture, by name. */
int kolo_predict(kolo_session *session, int64_t n, const char *const *path, kolo_predict_take *take, void *context);

#endif
