/* What the loader and the tools need of a dataset beyond data/shard/shard.h. */
#ifndef KOLO_DATA_SHARD_DATASET_H
#define KOLO_DATA_SHARD_DATASET_H

#include "data/shard/shard.h"

/* Path of the shard that holds `sample`, and (if not NULL) its number within that shard. */
const char *kolo_dataset_shard_of(const kolo_dataset *dataset, int64_t sample, int64_t *index);
const char *kolo_dataset_shard_path(const kolo_dataset *dataset, int shard);
/* How many shards are of an older format, without a checksum of their tables. */
int kolo_dataset_unsealed(const kolo_dataset *dataset);
/* What /classes/count says: [classes] samples by label; where no sample has a label boxes by
 * class, or else tags. */
void kolo_dataset_count_classes(const kolo_dataset *dataset, uint64_t *counts);
/* Of the checksums of the samples [first, last): the same split packed again has another uuid, another
 * content another checksum. */
uint32_t kolo_dataset_checksum(const kolo_dataset *dataset, int64_t first, int64_t last);
/* How many of the samples first, first+1, ... lie one after the other in one file, at most `count`. */
int64_t kolo_dataset_run(const kolo_dataset *dataset, int64_t first, int64_t count);
/* Reads such a run by one pread. Thread-safe. */
int kolo_dataset_read_run(const kolo_dataset *dataset, int64_t first, int64_t count, void *data);
/* Are these bytes of a sample those that were packed? KOLO_EINPUT: they do not have the stored checksum. */
int kolo_dataset_check_bytes(const kolo_dataset *dataset, int64_t sample, const void *data);
/* The same of a run, as kolo_dataset_read_run read it: every sample when this process reads it for the first
 * time, and every KOLO_DATASET_CHECK_EVERY reads from then on, since a checksum takes a fifth of the time of
 * a read from the page cache. Runs in memory (kolo_dataset_memory) were compared when they came there.
 * KOLO_EINPUT: *failed is not what was packed. Thread-safe. */
enum { KOLO_DATASET_CHECK_EVERY = 16 };
int kolo_dataset_check_run(const kolo_dataset *dataset, int64_t first, int64_t count, const void *data,
                           int64_t *failed);

/* dataset_check.c: warns where the split is being packed, or where a sample is not what was packed; looks at
 * as many as `seconds` allow. Errors: of reading. */
int kolo_dataset_check(const kolo_dataset *dataset, const char *folder, double seconds);

/* Tells the file system that these samples will soon be read. A hint: nothing fails. */
void kolo_dataset_advise(const kolo_dataset *dataset, int64_t first, int64_t count);

/* Where the samples [first, first + count) of a shard lie in memory (data/cache.h), one after the other as in
 * the file; NULL: nowhere. Borrowed. Not while others read. */
void kolo_dataset_set_memory(kolo_dataset *dataset, int shard, int64_t first, int64_t count,
                             const void *samples);
/* Where this sample lies in memory, or NULL. */
const uint8_t *kolo_dataset_memory(const kolo_dataset *dataset, int64_t sample);

/* The samples of one shard in their file: descriptor, byte address, bytes, number of the first, count. */
typedef struct kolo_dataset_extent {
    int fd;
    uint64_t place, bytes;
    int64_t first, count;
} kolo_dataset_extent;
void kolo_dataset_get_extent(const kolo_dataset *dataset, int shard, kolo_dataset_extent *extent);
/* Of a sample: its byte address behind the place of its shard's extent. */
uint64_t kolo_dataset_offset(const kolo_dataset *dataset, int64_t sample);

#endif
