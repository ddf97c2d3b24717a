/* The tables of packed splits, carried from shard to shard without knowing what they are for. What a table's
 * rows belong to follows from its name and shape:
 *
 *   X_offset u64 [N+1]       says which rows of the tables X and X_* belong to a sample
 *   pair_set_X, pair_*_X     in the first shard, two samples of the split a row; gone if
 *                            one of them is left out
 *   any other [N, ...]       a row a sample
 *
 * Rows that have a class (box_class, tag) follow the classes: they are renumbered, or left out. */
#ifndef HDF5_TOOLS_SHARDS_COLUMNS_H
#define HDF5_TOOLS_SHARDS_COLUMNS_H

#include "shards/input.h"

typedef struct shards_column {
    const char *name, *note;
    enum kolo_table_type type;
    int rank;
    int64_t columns;
    enum { SHARDS_PER_SAMPLE, SHARDS_OFFSETS, SHARDS_ROWS } role;
    int offsets; /* of ROWS: number of the column that says which; of OFFSETS: itself */
    bool classes;
} shards_column;

typedef struct shards_columns {
    shards_part **parts; /* [part_count], and all their inputs' */
    int part_count;
    int32_t *const *class_map; /* [inputs] class of the input -> class, or -1: left out */
    const int32_t *part_of;    /* [samples] of the new split: where it is taken from */
    const int64_t *index_of;   /* [samples] */
    shards_column column[KOLO_SHARD_MOST_TABLES];
    /* of OFFSETS: the column of their rows' classes, or -1 */
    int column_count, by_class[KOLO_SHARD_MOST_TABLES];
    const kolo_shard_table **table; /* [part_count][column_count] */
} shards_columns;

/* The parts must have the same tables, but for pairs. KOLO_EINPUT: they have not (the text
 * names file and table). */
int shards_columns_open(shards_columns *c);
/* The tables of samples first .. first+count-1; data of each is freed by the caller. */
int shards_columns_make(const shards_columns *c, int64_t first, int64_t count, kolo_shard_table *tables,
                        int *table_count);
/* Counts the rows of tables NAME and NAME_* by class; false: there are none of this name. */
bool shards_columns_count(const shards_columns *c, const char *name, int64_t samples, uint64_t *counts);
void shards_columns_close(shards_columns *c);

#endif
