/* Image labels: which classes a sample is said to show, which it is said not to show, and which nobody has
 * looked for. From the tags of a split, or from the classes of its boxes. */
#ifndef KOLO_DATA_SHARD_IMAGE_LABELS_H
#define KOLO_DATA_SHARD_IMAGE_LABELS_H

#include "data/shard/shard.h"

enum kolo_image_label { KOLO_LABEL_NEGATIVE, KOLO_LABEL_POSITIVE, KOLO_LABEL_UNKNOWN };
/* What a class is that a sample's labels do not name. AUTO: unknown where the split has verified negatives,
 * as Open Images, else negative, as YFCC and COCO. */
enum kolo_unnamed { KOLO_UNNAMED_AUTO, KOLO_UNNAMED_UNKNOWN, KOLO_UNNAMED_NEGATIVE };

typedef struct kolo_image_labels_config {
    bool boxes;           /* from the classes of boxes; else from tags */
    double tag_threshold; /* a tag of this value or more is positive, else it is a verified negative */
    enum kolo_unnamed unnamed;
} kolo_image_labels_config;

typedef struct kolo_image_labels {
    int64_t samples;
    int classes;
    bool rest_negative;             /* classes that a sample does not name are negative; else unknown */
    int64_t *offset;                /* [samples + 1] of sample i: cls[offset[i]] .. cls[offset[i + 1] - 1] */
    int32_t *cls;                   /* ascending, each once */
    uint8_t *state;                 /* enum kolo_image_label of it */
    int64_t *positives, *negatives; /* [classes] samples that are */
} kolo_image_labels;

/* A class with a positive entry is positive whatever else is said of it. Of boxes: one that is
 * marked difficult alone says nothing (VOC's rule), any other is positive. KOLO_EINPUT: the split
 * has no tags (boxes). */
int kolo_image_labels_read(kolo_image_labels **labels, const kolo_dataset *dataset,
                           const kolo_image_labels_config *config);
void kolo_image_labels_free(kolo_image_labels **labels);

/* Torch's pos_weight with which positives and negatives of a class weigh alike: negatives / positives, times
 * `factor`; `factor` where a class has none of either. weight: [classes]. balanced: false: `factor` for
 * all. */
void kolo_image_labels_weigh(const kolo_image_labels *labels, bool balanced, double factor, float *weight);

/* What the loss makes of a sample: for every class the weight of its positive term, softplus(-x), then for
 * every class that of its negative term, softplus(x). Targets are y (1 - smoothing) + smoothing / classes,
 * each class counts 1 / (classes that are known of the sample), unknown ones not at all. pos_weight:
 * [classes], NULL: 1; row: [2 classes]. */
void kolo_image_labels_row(const kolo_image_labels *labels, int64_t sample, const float *pos_weight,
                           double smoothing, float *row);

#endif
