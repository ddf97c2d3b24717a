/* Sides of training images that change from step to step (multi-scale training): low, low + step, ... high,
 * a new one every so many steps of an epoch. Which follows from (seed, epoch, step), so all ranks and a run
 * that goes on after a stop draw the same. YOLOv2 (Redmon & Farhadi 2017, section 2), YOLOX. */
#ifndef KOLO_DATA_SIDES_H
#define KOLO_DATA_SIDES_H

#include <stdint.h>

typedef struct kolo_sides {
    int low, high, step; /* pixels; low 0: there are none, the side is the caller's */
    int every;           /* steps */
} kolo_sides;

int kolo_sides_count(const kolo_sides *sides); /* 0: none */
/* Number of the side of step `step` (0, 1, ...) of an epoch: it is low + number * step. 0
 * where there are none. */
int kolo_sides_draw(const kolo_sides *sides, uint64_t seed, int64_t epoch, int64_t step);

#endif
