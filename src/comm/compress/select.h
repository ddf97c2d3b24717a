/* The largest magnitudes of a vector: a threshold from a sample, then one pass that collects what reaches
 * it. */
#ifndef KOLO_COMM_SELECT_H
#define KOLO_COMM_SELECT_H

#include <stdint.h>

/* Words of memory that index and spare need each. */
int64_t comm_select_room(int64_t k);
/* index: ascending numbers of at most k elements of x, none of them 0, whose magnitudes are the largest of
 * those that a sampled threshold lets through: exactly the k largest where that were at least k, never fewer
 * than 3/4 k if there are so many. NaN counts as larger than infinity. A pure function of its arguments; salt
 * moves the sample. Returns how many. */
int64_t comm_select(uint32_t *index, uint32_t *spare, const float *x, int64_t count, int64_t k,
                    uint64_t salt);

#endif
