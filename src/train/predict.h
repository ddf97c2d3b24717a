/* What a network says of images that are in no data set. */
#ifndef KOLO_TRAIN_PREDICT_H
#define KOLO_TRAIN_PREDICT_H

#include "train/session.h"

/* Files whose images are taken in order into the rows of batches. */
typedef struct kolo_image_feed {
    int64_t files;
    const char *const *path;
    int64_t next, bad; /* tried so far; of these could not be read */
} kolo_image_feed;
typedef int kolo_image_read(void *context, const char *path, int64_t row);
/* Reads files into rows 0, 1, ... until `rows` are filled or all files were tried. file[row]: the number
 * of each; *valid: how many rows. A file that cannot be read (KOLO_EINPUT, KOLO_EIO) is reported by a
 * warning, counted and left out; other errors end it. */
int kolo_image_feed_rows(kolo_image_feed *feed, int64_t rows, kolo_image_read *read, void *context,
                         int64_t *file, int64_t *valid);
/* KOLO_EINPUT with their number where files could not be read. */
int kolo_image_feed_end(const kolo_image_feed *feed);

/* Given for every image that could be read, in order: its number and the network's output,
 * [session->options->classes]. */
typedef int kolo_predict_take(void *context, int64_t i, const float *logits);

/* Decodes the files (any kind that kolo-pack reads), brings them to the input's size as validation does,
 * computes session->rows at a time. session: opened with KOLO_SESSION_EVAL | KOLO_SESSION_NO_DATA, weights
 * loaded, one rank. The caller ends the feed. */
int kolo_predict(kolo_session *session, kolo_image_feed *feed, kolo_predict_take *take, void *context);

#endif
