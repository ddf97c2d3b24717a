/* The samples of a split in memory, once a node: a segment in /dev/shm that all processes of this user that
 * read the same split on this node use together, ranks of one job and of several. They fill it together;
 * every sample is compared with its checksum. The last one to leave removes it; what killed ones leave is
 * used by the next, or removed when it is of another split. Where jobs have a /dev/shm of their own, each job
 * has a cache of its own. */
#ifndef KOLO_DATA_CACHE_H
#define KOLO_DATA_CACHE_H

#include <stdint.h>

#include "data/shard/shard.h"

typedef struct kolo_cache kolo_cache;

typedef struct kolo_cache_info {
    uint64_t bytes;
    int64_t pieces, filled; /* of them by this process */
    char name[128];         /* of the segment */
} kolo_cache_info;

/* *cache NULL and 0: there is none, since others have taken its names or hold it without an end, which is
 * warned of. Returns when the samples [first, last) are there: all, or the share of a node that shows only
 * its own (data/order.h). From then on reads of them come from memory, others from the files. Not collective:
 * each rank calls it. KOLO_ECONFIG: it does not fit into /dev/shm or this job's memory (with the shortfall);
 * KOLO_EINPUT: a sample does not have its checksum (shard and sample named); KOLO_EIO. */
int kolo_cache_open(kolo_cache **cache, kolo_dataset *dataset, int64_t first, int64_t last, int threads);
/* Behind all reading, before the dataset is closed. */
void kolo_cache_close(kolo_cache **cache);
void kolo_cache_get_info(const kolo_cache *cache, kolo_cache_info *info);

#endif
