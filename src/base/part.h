/* Sides that are cut into parts: maps of a network, the images that it reads, what a loader makes of them. */
#ifndef KOLO_BASE_PART_H
#define KOLO_BASE_PART_H

#include <stdint.h>

/* Where part i of n along a side of `size` pixels begins; i = n: where the last one ends. Sides of one size
 * are cut alike. */
static inline int64_t kolo_part_start(int64_t size, int n, int i) { return size * i / n; }

#endif
