/* The target of a row, of all labels of a batch. */
#ifndef KOLO_OPS_CPU_TARGET_H
#define KOLO_OPS_CPU_TARGET_H

#include "ops/cpu/cpu.h"
#include "ops/target.h"

/* words: of a label as the loader gives it (1, 2 or 3); 0: numbers. labels: of all rows */
static inline kolo_target kolo_target_of(const void *labels, int64_t row, int64_t words, int64_t classes)
{
    if (words) return kolo_target_of_classes((const int32_t *)labels + row * words, words);
    kolo_target t = {
        .lighter = -1, .weight = 1, .number = (const float *)labels + row * classes, .factor = 1};
    for (int64_t i = 1; i < classes; i++)
        if (t.number[i] > t.number[t.heavier]) t.heavier = (int32_t)i;
    return t;
}

#endif
