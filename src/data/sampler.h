/* Random orders by Philox. */
#ifndef KOLO_DATA_SAMPLER_H
#define KOLO_DATA_SAMPLER_H

#include <stdint.h>

/* order becomes a permutation of 0 .. n-1 that follows from (key, high, n) alone. */
void kolo_shuffle(uint64_t key, uint64_t high, int64_t n, int64_t *order);
/* The same permutation of what stands in `values`. */
void kolo_shuffle_values(uint64_t key, uint64_t high, int64_t n, int64_t *values);

#endif
