/* What a network says of images that are in no data set. */
#ifndef KOLO_TRAIN_PREDICT_H
#define KOLO_TRAIN_PREDICT_H

#include "train/session.h"

/* Files whose images are taken in order into the rows of batches. */
typedef struct kolo_image_feed {
    int64_t files;
    const char *const *path;
    int64_t next, bad; /* tried so far; of these could not be read */
    /* NULL, or given the number of each that could not, and why, before any later one is answered */
    int (*unreadable)(void *context, int64_t file, const char *why);
    void *context;
} kolo_image_feed;
typedef int kolo_image_read(void *context, const char *path, int64_t row);
/* Reads files into rows 0, 1, ... until `rows` are filled or all files were tried. file[row]: the number
 * of each; *valid: how many rows. A file that cannot be read (KOLO_EINPUT, KOLO_EIO) is reported by a
 * warning, counted and left out; other errors end it. */
int kolo_image_feed_rows(kolo_image_feed *feed, int64_t rows, kolo_image_read *read, void *context,
                         int64_t *file, int64_t *valid);
/* KOLO_EINPUT with their number where files could not be read. */
int kolo_image_feed_end(const kolo_image_feed *feed);

/* Batches that are computed before their results are used: one, or in a pipeline, where results come from the
 * last stage to the one that reads images, as many as keep its stages at work. */
int64_t kolo_predict_wave(const kolo_session *session);
/* Of a feed the number of batches; in a pipeline every stage computes all of them, and images that cannot be
 * read leave the last ones empty. */
static inline int64_t kolo_predict_batches(const kolo_session *session, const kolo_image_feed *feed)
{
    return (feed->files + session->rows - 1) / session->rows;
}
/* Results from the stage that answers with `tensor` to all; without a pipeline nothing is to be done.
 * Collective. */
int kolo_predict_share(kolo_session *session, int tensor, void *results, size_t bytes);

/* Given for every image that could be read, in order: its number and the network's output,
 * [session->options->classes]. */
typedef int kolo_predict_take(void *context, int64_t i, const float *logits);

/* Decodes the files (any kind that kolo-pack reads), brings them to the input's size as validation does,
 * computes session->rows at a time. session: opened with KOLO_SESSION_EVAL | KOLO_SESSION_NO_DATA, weights
 * loaded, of one rank or one pipeline, whose stage that reads images is the only one to call `take`. The
 * caller ends the feed. Collective. */
int kolo_predict(kolo_session *session, kolo_image_feed *feed, kolo_predict_take *take, void *context);

#endif
