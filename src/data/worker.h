/* One reader thread's tools: makes the network's input from one sample. */
#ifndef KOLO_DATA_WORKER_H
#define KOLO_DATA_WORKER_H

#include "data/augment/augment.h"
#include "data/loader.h"

/* What all readers share; made once from the configuration. */
typedef struct kolo_recipe {
    kolo_loader_config config;
    kolo_augment_step augment[KOLO_AUGMENT_MOST];
    int augments;
    int windows; /* of the output that are made, one behind the other; 0: all of it */
    kolo_window window[KOLO_LOADER_PARTS];
    bool direct;         /* a raw sample is the input as it lies on disk (but for flip and augmentations) */
    size_t sample_bytes; /* of the output */
} kolo_recipe;

typedef struct kolo_worker kolo_worker;

/* recipe: the one of the largest images. */
int kolo_worker_create(kolo_worker **worker, const kolo_recipe *recipe);
void kolo_worker_destroy(kolo_worker **worker);
/* recipe: what the worker was made with, or the same for smaller images. to: (height, width, channels).
 * pass: kolo_augment_pass(). label: boxes are written to it; classes are not. The error names sample, file
 * and cause. stats->bytes, hits and, if `timed`, read grow by what was read. */
int kolo_worker_make(kolo_worker *worker, const kolo_recipe *recipe, int64_t pass, int64_t sample,
                     uint8_t *to, int32_t *label, bool timed, kolo_loader_stats *stats);
/* The sample that the last error is about: with mosaic a row has five. */
int64_t kolo_worker_failed(const kolo_worker *worker);
/* Validation of direct samples: n consecutive ones by as few reads as possible. */
int kolo_worker_make_run(kolo_worker *worker, int64_t sample, int64_t n, uint8_t *to,
                         kolo_loader_stats *stats);

#endif
