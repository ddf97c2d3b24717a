/* The boxes of a split as they were given, in pixels of the source images: what a detector is measured
 * against. */
#ifndef KOLO_TRAIN_DETECT_TRUTH_H
#define KOLO_TRAIN_DETECT_TRUTH_H

#include "data/shard/shard.h"
#include "metrics/ap.h"

typedef struct kolo_detect_truth {
    kolo_ap_truth *truth;
    int64_t truths;
    kolo_ap_verified *verified; /* [labels] of classes in images, where the split has tags */
    int64_t labels;
    kolo_hierarchy *hierarchy; /* for the caller to set; freed with the rest */
    int64_t *image;            /* [samples] the source's number of each image (COCO's image_id) */
    int64_t *category;         /* [classes] of each class (COCO's category_id) */
} kolo_detect_truth;

/* Crowds and groups are marked alike. Boxes of which the stored image shows nothing are left out.
 * KOLO_EINPUT: the split has no boxes. */
int kolo_detect_truth_read(kolo_detect_truth **truth, const kolo_dataset *dataset);
void kolo_detect_truth_free(kolo_detect_truth **truth);
/* A box x0 y0 x1 y1 of the stored image of a sample, as x y width height of its source. */
void kolo_detect_to_source(const kolo_dataset *dataset, int64_t sample, const double *stored, double *source);

#endif
