/* A new split out of what the program holds: merge, reshard, subset, convert.
 *
 * Everything is written in OUT.partial, which then becomes OUT: a split is there whole or not at all, and a
 * run that was killed is begun again. The same plan gives the same bytes, whatever the number of threads. */
#ifndef HDF5_TOOLS_SHARDS_WRITE_H
#define HDF5_TOOLS_SHARDS_WRITE_H

#include "data/shard/file.h"
#include "shards/shards.h"

/* What the commands that write a split have in common. */
typedef struct shards_target {
    const char *out, *name, *split; /* name, split NULL: as the first input */
    int64_t shards, seed, threads;  /* shards 0: of about 2 GiB; seed 0: no other order */
    bool json;
} shards_target;

#define SHARDS_TARGET_OPTIONS(t)                                                                             \
    {"--out", "DIR", "the new split; must not be there yet", SHARDS_TEXT, &(t)->out, 0, 0},                  \
        {"--shards", "M", "number of files [one for every 2 GiB]", SHARDS_NUMBER, &(t)->shards, 1, 1 << 16}, \
        {"--name", "X", "name of the data set [that of the input]", SHARDS_TEXT, &(t)->name, 0, 0},          \
        {"--split", "X", "train, val, test, ... [that of the input]", SHARDS_TEXT, &(t)->split, 0, 0},       \
        {"--reshuffle", "SEED",     "a new order, by this number [the order is kept]",                       \
         SHARDS_NUMBER, &(t)->seed, 1,                                                                       \
         INT64_MAX},                                                                                         \
        {"--threads", "T", "threads [all CPUs]", SHARDS_NUMBER, &(t)->threads, 1, 1024},                     \
    {                                                                                                        \
        "--json", NULL, "the result as a line of JSON", SHARDS_FLAG, &(t)->json, 0, 0                        \
    }

/* Checks --out, --name, --split; fills in threads. */
int shards_check_target(shards_target *target, const char *command);

typedef struct shards_plan {
    shards_target target;        /* name and split are set */
    const char *task, *box_form; /* box_form NULL: no boxes */
    enum kolo_encoding encoding;
    int channels, height, width; /* height, width: raw */
    int64_t count;
    int classes;
    char **class_names;
    const int64_t *class_ids;
    const uint64_t *class_counts;
    uint64_t pack_seed;
    kolo_shard_stats stats;
    /* for /provenance: what was asked; uuids of the inputs; how those were made */
    const char *command, *from, *packed;
    const char *rejects;
    const int32_t *labels;
    const int64_t *ids;
    const uint64_t *offsets; /* [count + 1] bytes, through the whole split; raw too */
    const uint8_t *states;
    const uint16_t (*sizes)[2], (*orig_sizes)[2]; /* [count] */
    const char *sources;
    const uint64_t *source_offsets; /* [count + 1] */
    /* Writes the bytes of one sample to data. Thread-safe. */
    int (*load)(const void *context, int64_t sample, uint8_t *data);
    /* The tables of a shard: at most KOLO_SHARD_MOST_TABLES; `data` is freed by the caller,
     * names stay. NULL: none. */
    int (*tables)(const void *context, int64_t first, int64_t count, kolo_shard_table *tables,
                  int *table_count);
    /* Called once all samples are loaded, where statistics are known only then; NULL: `stats` above. */
    void (*measure)(const void *context, kolo_shard_stats *stats);
    const void *context;
} shards_plan;

/* Room is asked for before anything is written. KOLO_EIO: no room, or writing failed; nothing is left
 * behind. */
int shards_write(const shards_plan *plan);

#endif
