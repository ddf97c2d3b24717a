/* Files out of a packed split: what the parts of `extract` share. */
#ifndef HDF5_TOOLS_SHARDS_EXTRACT_H
#define HDF5_TOOLS_SHARDS_EXTRACT_H

#include "shards/input.h"
#include "shards/shards.h"

typedef struct extracting {
    const char *folder, *out, *boxes; /* boxes: coco, yolo or none */
    int64_t limit, threads;
    bool json;
    kolo_dataset *dataset;
    shards_input input;
    char *partial;          /* OUT.partial */
    char **names;           /* [count] path of the image in OUT */
    int64_t count;          /* samples that are extracted: sample i is i * all / count of the split */
    shards_reader *readers; /* [threads] */
    kolo_image *images;     /* [threads] */
    int64_t left_out;       /* boxes that no file has */
} extracting;

int64_t extract_sample(const extracting *e, int64_t i); /* number in the split */
/* The part that holds the sample and its number there. */
const shards_part *extract_part(const extracting *e, int64_t sample, int64_t *index);
/* annotations.json or labels/ and data.yaml; list.tsv, tags.tsv, pairs-NAME.tsv, as far
 * as the split has such. */
int extract_write_targets(extracting *e);

#endif
