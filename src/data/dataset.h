/* What the loader and the tools need of a dataset beyond data/shard.h. */
#ifndef KOLO_DATA_DATASET_H
#define KOLO_DATA_DATASET_H

#include "data/shard.h"

/* Path of the shard that holds `sample`, and (if not NULL) its number within that shard. */
const char *kolo_dataset_shard_of(const kolo_dataset *dataset, int64_t sample, int64_t *index);
const char *kolo_dataset_shard_path(const kolo_dataset *dataset, int shard);
/* What /classes/count says: [classes] samples by label; where no sample has a label boxes by class, or else tags. */
void kolo_dataset_count_classes(const kolo_dataset *dataset, uint64_t *counts);
/* raw only: how many of the samples first, first+1, ... lie one after the other in one file, at most `count`. */
int64_t kolo_dataset_run(const kolo_dataset *dataset, int64_t first, int64_t count);
/* raw only: reads such a run by one pread. Thread-safe. */
int kolo_dataset_read_run(const kolo_dataset *dataset, int64_t first, int64_t count, void *data);

#endif
