/* What a row is to be told apart as: one class, two with weights, or a number for each class. */
#ifndef KOLO_OPS_CPU_TARGET_H
#define KOLO_OPS_CPU_TARGET_H

#include <string.h>

#include "ops/cpu/cpu.h"

typedef struct kolo_target {
    int32_t heavier, lighter; /* of numbers: the largest and -1; of one class: it and -1 */
    float weight;             /* of the heavier class; the lighter has 1 - weight */
    const float *number;      /* [classes] or NULL */
} kolo_target;

/* words: of a label as the loader gives it (1 or 3); 0: numbers. labels: of all rows */
static inline kolo_target kolo_target_of(const void *labels, int64_t row, int64_t words, int64_t classes)
{
    kolo_target t = {.lighter = -1, .weight = 1};
    if (words == 0) {
        t.number = (const float *)labels + row * classes;
        for (int64_t i = 1; i < classes; i++)
            if (t.number[i] > t.number[t.heavier]) t.heavier = (int32_t)i;
        return t;
    }
    const int32_t *label = (const int32_t *)labels + row * words;
    t.heavier = label[0];
    if (words < 3) return t;
    memcpy(&t.weight, &label[2], sizeof t.weight);
    t.lighter = label[1];
    if (t.weight >= 0.5f) return t;
    return (kolo_target){label[1], label[0], 1 - t.weight, NULL};
}

static inline int64_t kolo_target_words(const kolo_tensor *labels)
{
    return labels->dtype == KOLO_F32 ? 0 : labels->rank == 1 ? 1 : labels->dim[1];
}

/* Whether the classes are among the network's; *bad: one that is not. */
static inline bool kolo_target_fits(const kolo_target *t, int64_t words, int64_t classes, int32_t *bad)
{
    const int32_t label[2] = {t->heavier, t->lighter};
    for (int i = 0; i < (words == 3 ? 2 : 1); i++)
        if (label[i] < 0 || label[i] >= classes) {
            *bad = label[i];
            return false;
        }
    return true;
}

#endif
