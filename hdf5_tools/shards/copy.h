/* Samples of packed splits, in any order, to a new split: labels, boxes, tags, pairs and every other table go
 * with them, the bytes of the images stay. */
#ifndef HDF5_TOOLS_SHARDS_COPY_H
#define HDF5_TOOLS_SHARDS_COPY_H

#include "shards/write.h"

typedef struct shards_copying {
    shards_target target;
    const char *command; /* what was asked, for /provenance */
    kolo_dataset *const *inputs;
    int input_count;
    const int64_t *picks; /* [count] samples, counted through all inputs; each at most once */
    int64_t count;
    /* [class_count] these only, in this order; NULL: those of all inputs, by name */
    const char *const *classes;
    int class_count;
} shards_copying;

/* KOLO_EINPUT: the inputs do not go together, or a stored sample has another checksum than its table says. */
int shards_copy(const shards_copying *copying);

#endif
