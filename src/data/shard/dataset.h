/* What the loader and the tools need of a dataset beyond data/shard.h. */
#ifndef KOLO_DATA_SHARD_DATASET_H
#define KOLO_DATA_SHARD_DATASET_H

#include "data/shard/shard.h"

/* Path of the shard that holds `sample`, and (if not NULL) its number within that shard. */
const char *kolo_dataset_shard_of(const kolo_dataset *dataset, int64_t sample, int64_t *index);
const char *kolo_dataset_shard_path(const kolo_dataset *dataset, int shard);
/* What /classes/count says: [classes] samples by label; where no sample has a label boxes by class, or else tags. */
void kolo_dataset_count_classes(const kolo_dataset *dataset, uint64_t *counts);
/* Of the checksums of the samples [first, last): the same split packed again has another uuid, another content another checksum. */
uint32_t kolo_dataset_checksum(const kolo_dataset *dataset, int64_t first, int64_t last);
/* How many of the samples first, first+1, ... lie one after the other in one file, at most `count`. */
int64_t kolo_dataset_run(const kolo_dataset *dataset, int64_t first, int64_t count);
/* raw only: reads such a run by one pread. Thread-safe. */
int kolo_dataset_read_run(const kolo_dataset *dataset, int64_t first, int64_t count, void *data);

/* dataset_check.c: warns where the split is being packed, or where a sample is not what was packed; looks at as many
 * as `seconds` allow. Errors: of reading. */
int kolo_dataset_check(const kolo_dataset *dataset, const char *folder, double seconds);

/* Tells the file system that these samples will soon be read. A hint: nothing fails. */
void kolo_dataset_advise(const kolo_dataset *dataset, int64_t first, int64_t count);

/* Where the samples [first, first + count) of a shard lie in memory (data/cache.h), one after the other as in the file; NULL:
 * nowhere. The caller's; before and behind all reading. */
void kolo_dataset_set_memory(kolo_dataset *dataset, int shard, int64_t first, int64_t count, const void *samples);
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
