/* Targets of a split beyond one label a sample: boxes, tags, pairs. What varies in length per sample is
 * stored as compressed rows: the boxes of sample i are box_offset[i] .. box_offset[i + 1] - 1. */
#ifndef KOLO_DATA_SHARD_TARGETS_H
#define KOLO_DATA_SHARD_TARGETS_H

#include "data/shard/shard.h"

enum kolo_box_flag {
    KOLO_BOX_CROWD = 1,
    KOLO_BOX_DIFFICULT = 2,
    KOLO_BOX_TRUNCATED = 4,
    KOLO_BOX_GROUP_OF = 8,
    KOLO_BOX_OCCLUDED = 16,
    KOLO_BOX_DEPICTION = 32,
    KOLO_BOX_INSIDE = 64, /* taken from the inside of the object */
    /* nothing of it (less than a pixel) is in the stored image: to be passed over */
    KOLO_BOX_OUTSIDE = 128,
};

typedef struct kolo_pair_set {
    char name[48]; /* dev_train, dev_test, view2 */
    int64_t count;
    int32_t (*pair)[2]; /* samples of the split */
    uint8_t *same;
    int32_t *fold;
} kolo_pair_set;

typedef struct kolo_targets { /* arrays of the whole split, in order of samples; N: samples of the split */
    int64_t boxes, tags;
    char box_form[16];   /* in which the source gave its numbers; "" : the split has no boxes */
    int64_t *box_offset; /* [N + 1], or NULL */
    /* [boxes] x0 y0 x1 y1 in pixels of the stored image, 0 at its left and upper border */
    float (*box)[4];
    int32_t *box_class; /* [boxes] */
    uint8_t *box_flags; /* [boxes] KOLO_BOX_* */
    /* [boxes] of the object in pixels of the source image (COCO's `area`); 0 if outside */
    float *box_area;
    int64_t *box_id;       /* [boxes] number of the annotation in the source, -1: none */
    float (*transform)[4]; /* [N] sx sy dx dy: stored = source image * s + d; NULL without boxes */
    int64_t *tag_offset;   /* [N + 1], or NULL */
    int32_t *tag;          /* [tags] class */
    float *tag_value;      /* [tags] */
    int pair_sets;
    kolo_pair_set *pairs; /* [pair_sets] */
} kolo_targets;

/* NULL: the split has none. Owned by the dataset. */
const kolo_targets *kolo_dataset_targets(const kolo_dataset *dataset);

/* ---- for dataset.c: made shard by shard, in order ---- */
struct kolo_shard_header;
struct kolo_shard_arrays;
/* Takes what one shard has; *targets is created with the first that has anything.
 * KOLO_EINPUT: contradictions. */
int kolo_targets_add(kolo_targets **targets, const char *path, const struct kolo_shard_header *header,
                     const struct kolo_shard_arrays *arrays);
int kolo_targets_finish(kolo_targets *targets, int64_t samples); /* checks pairs */
void kolo_targets_free(kolo_targets **targets);

#endif
