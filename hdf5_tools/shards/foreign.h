/* Images in a file of another format, for `convert`: what is the same whatever the format. A format fills
 * in count, gives labels, and says of every image how it is stored. */
#ifndef HDF5_TOOLS_SHARDS_FOREIGN_H
#define HDF5_TOOLS_SHARDS_FOREIGN_H

#include "shards/write.h"

typedef struct shards_foreign {
    const char *path, *images, *labels; /* arrays or fields by name; NULL: not given */
    const char *classes;                /* names with commas, or a file of one a line */
    shards_target target;
    int64_t count;    /* images in the file */
    int64_t *order;   /* [count] image of every sample of the new split */
    int32_t *label;   /* [count] by image, -1: none */
    uint64_t *counts; /* [name_count] */
    char **names;     /* [name_count] classes */
    int64_t name_count, name_room;
} shards_foreign;

typedef struct shards_foreign_form {
    const char *command; /* what was asked, for /provenance */
    enum kolo_encoding encoding;
    int channels, height, width; /* height, width: raw */
    /* Of an image: its stored bytes, height and width. */
    uint64_t (*describe)(const void *context, int64_t image, uint16_t size[2]);
    /* Of a sample; see shards_plan. */
    int (*load)(const void *context, int64_t sample, uint8_t *data);
    int (*tables)(const void *context, int64_t first, int64_t count, kolo_shard_table *tables,
                  int *table_count);
    void (*measure)(const void *context, kolo_shard_stats *stats);
    const void *context;
} shards_foreign_form;

int shards_foreign_classes(shards_foreign *f); /* reads --classes; before the labels */
/* values: [count][columns]: a number an image, or a row of one 1 among zeros; NULL: no labels. Makes names
 * for labels where there is no --classes. */
int shards_foreign_labels(shards_foreign *f, const int64_t *values, int64_t columns);
int shards_foreign_write(shards_foreign *f, const shards_foreign_form *form);
void shards_foreign_free(shards_foreign *f);

/* Files that end in .beton: FFCV's format, version 2. */
int shards_convert_beton(shards_foreign *f);
/* LMDB: `labels` is a file, as kolo-pack's --annotations; there is no `classes`. */
int shards_convert_lmdb(shards_foreign *f);

#endif
