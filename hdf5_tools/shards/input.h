/* Everything that a packed split says of its samples, in memory, for those who write another. */
#ifndef HDF5_TOOLS_SHARDS_INPUT_H
#define HDF5_TOOLS_SHARDS_INPUT_H

#include "data/shard/file.h"
#include "shards/shards.h"

typedef struct shards_part { /* one shard */
    kolo_shard_header header;
    kolo_shard_arrays arrays;
    int64_t *ids;
    uint16_t (*sizes)[2], (*orig_sizes)[2];
    char *sources;
    uint64_t *source_offsets;
    int input; /* number of the split that it belongs to */
} shards_part;

typedef struct shards_input {
    const kolo_dataset *dataset;
    shards_part *parts; /* [info->shards] */
    kolo_shard_stats stats;
    int64_t *class_ids; /* [classes] */
    char *rejects;      /* lines, or "" */
    char packed[1024];  /* the options it was packed with */
    bool is_background; /* see below */
} shards_input;

int shards_input_load(shards_input *input, const kolo_dataset *dataset, int number);
/* Of a split without boxes: gives it those of no object, as `model`, which has boxes, has them. Its classes
 * do not name boxes and are left aside. KOLO_EINPUT: where its images lie in their samples is not known. */
int shards_input_to_background(shards_input *input, const shards_input *model);
void shards_input_free(shards_input *input);

#endif
