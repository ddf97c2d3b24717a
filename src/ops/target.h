/* What a row of labels says, as the loader gives it: a class; two with weights; or boxes. And what is wrong
 * with one that no loss can be formed with. Shared by C and CUDA. */
#ifndef KOLO_OPS_TARGET_H
#define KOLO_OPS_TARGET_H

#include <stddef.h>

#include "ops/element.h"

enum kolo_bad { KOLO_BAD_NONE, KOLO_BAD_CLASS, KOLO_BAD_COUNT, KOLO_BAD_BOX };
typedef struct kolo_bad_label {
    int32_t kind;      /* enum kolo_bad */
    int32_t slot, row; /* micro-batch, and row of it */
    int32_t value;     /* the class, or the number of boxes */
    float box[4];      /* centre x, y, width, height */
} kolo_bad_label;

typedef struct kolo_target {
    int32_t heavier, lighter; /* of numbers: the largest and -1; of one class: it and -1 */
    float weight;             /* of the heavier class; the lighter has 1 - weight */
    const float *number;      /* [classes] or NULL */
    float factor;             /* on the row's loss */
} kolo_target;

/* words: 1; 2: a class and the factor on the loss; 3: two classes and the weight of the first */
KOLO_INLINE kolo_target kolo_target_of_classes(const int32_t *label, int64_t words)
{
    kolo_target t = {label[0], -1, 1, NULL, 1};
    if (words == 2) t.factor = kolo_bits_float((uint32_t)label[1]);
    if (words < 3) return t;
    t.lighter = label[1];
    t.weight = kolo_bits_float((uint32_t)label[2]);
    if (t.weight >= 0.5f) return t;
    t.heavier = label[1];
    t.lighter = label[0];
    t.weight = 1 - t.weight;
    return t;
}

/* Whether the classes are among the network's; else what is wrong. */
KOLO_INLINE bool kolo_target_fits(const kolo_target *t, int64_t words, int64_t classes, kolo_bad_label *bad)
{
    for (int i = 0; i < (words == 3 ? 2 : 1); i++) {
        const int32_t label = i ? t->lighter : t->heavier;
        if (label >= 0 && label < classes) continue;
        bad->kind = KOLO_BAD_CLASS;
        bad->value = label;
        return false;
    }
    return true;
}

/* Class, and centre x, y, width, height, of box g of a row. */
KOLO_INLINE int32_t kolo_label_box(const int32_t *label, int64_t g, double *box)
{
    const int32_t *at = label + 1 + 5 * g;
    for (int k = 0; k < 4; k++) box[k] = (double)kolo_bits_float((uint32_t)at[1 + k]);
    return at[0];
}

/* How many of a row's boxes are objects; the others are regions of crowds. */
KOLO_INLINE int32_t kolo_label_objects(const int32_t *label)
{
    int32_t n = 0;
    while (n < label[0] && label[1 + 5 * n] >= 0) n++;
    return n;
}

/* Whether a row of boxes can be learned; else what is wrong. words: there is room for */
KOLO_INLINE bool kolo_boxes_fit(const int32_t *label, int64_t words, int64_t classes, kolo_bad_label *bad)
{
    bad->kind = KOLO_BAD_COUNT;
    bad->value = label[0];
    if (label[0] < 0 || label[0] > (words - 1) / 5) return false;
    for (int64_t g = 0; g < label[0]; g++) {
        double box[4];
        bad->value = kolo_label_box(label, g, box);
        bad->kind = KOLO_BAD_CLASS;
        if (bad->value < -1 || bad->value >= classes) return false;
        bad->kind = KOLO_BAD_BOX;
        for (int k = 0; k < 4; k++) bad->box[k] = (float)box[k];
        const double sum = box[0] + box[1] + box[2] + box[3];
        if (!(box[2] > 0 && box[3] > 0) || !(sum - sum == 0)) return false;
    }
    bad->kind = KOLO_BAD_NONE;
    return true;
}

#endif
