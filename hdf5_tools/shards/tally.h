/* How often every value of a pixel occurs: mean and deviation by whole numbers, the same in any order. */
#ifndef HDF5_TOOLS_SHARDS_TALLY_H
#define HDF5_TOOLS_SHARDS_TALLY_H

#include "data/shard/file.h"

typedef struct shards_tally {
    uint64_t value[3][256];
    uint8_t unused[64]; /* keeps the tallies of several threads off each other's cache lines */
} shards_tally;

/* n pixels of 1 or 3 channels. */
void shards_tally_add(shards_tally *tally, const uint8_t *pixels, size_t n, int channels);
void shards_tally_join(shards_tally *to, const shards_tally *from);
void shards_tally_stats(const shards_tally *tally, int channels, kolo_shard_stats *stats);

#endif
