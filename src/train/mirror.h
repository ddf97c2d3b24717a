/* A batch's images left to right, for networks that are asked twice. */
#ifndef KOLO_TRAIN_MIRROR_H
#define KOLO_TRAIN_MIRROR_H

#include "train/session.h"

typedef struct kolo_mirror {
    uint8_t *pixels; /* of one batch of validation */
    size_t bytes;
    int64_t lines, width, channels; /* lines: of one image */
    kolo_backend *backend;          /* which knows of the memory; NULL: it does not */
} kolo_mirror;

int kolo_mirror_open(kolo_mirror *mirror, kolo_session *session);
void kolo_mirror_close(kolo_mirror *mirror);
/* The same labels beside mirrored images; valid until the next call. */
kolo_batch kolo_mirror_batch(kolo_mirror *mirror, const kolo_batch *batch);

/* Network outputs (rows, classes) of `batch`, the mean of an image's and its mirror image's, where the
 * session answers with them. logits: space for two batches of them; the mean stands in the first. */
int kolo_mirror_logits(kolo_mirror *mirror, const kolo_session *session, const kolo_batch *batch,
                       float *logits);

#endif
