/* One shard file of the format `kolo` 1.2 (data/shard/shard.h), as kolo-pack makes it and readers check it.
 *
 * Life of a shard: kolo_shard_create (all space allocated, labels and offsets written, state 0) -> any
 * number of processes pwrite samples at kolo_shard_places -> kolo_shard_complete (statistics, uuid,
 * checksum, then `complete` = 1) -> rename. A process killed in between leaves a file that opens; `state`
 * says which samples are there. */
#ifndef KOLO_DATA_SHARD_FILE_H
#define KOLO_DATA_SHARD_FILE_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "data/shard/shard.h"

#define KOLO_FORMAT_NAME "kolo"
#define KOLO_FORMAT_MAJOR 1
#define KOLO_FORMAT_MINOR 2

enum kolo_sample_state { KOLO_SAMPLE_EMPTY, KOLO_SAMPLE_OK, KOLO_SAMPLE_ENCODED, KOLO_SAMPLE_REPLACED };

typedef struct kolo_shard_note {
    const char *key, *text;
} kolo_shard_note; /* attributes of /provenance */

/* What a shard has beyond the core: any contiguous array, by name. */
enum kolo_table_type {
    KOLO_TABLE_U8,
    KOLO_TABLE_I32,
    KOLO_TABLE_I64,
    KOLO_TABLE_U64,
    KOLO_TABLE_F32,
    KOLO_TABLE_F64
};

typedef struct kolo_shard_table {
    const char *name; /* "box_offset": letters, digits and `_` */
    enum kolo_table_type type;
    int rank;         /* 1 or 2 */
    int64_t dim[2];   /* dim[1] is 1 for rank 1 */
    const void *data; /* kolo_shard_create: NULL: zeros, to be written later at kolo_shard_table_place */
    const char *note; /* one line for the reader of the file, or NULL */
} kolo_shard_table;

#define KOLO_SHARD_MOST_TABLES 64
#define KOLO_SHARD_TABLE_NAMES 1024 /* bytes that their names with commas may take */

typedef struct kolo_shard_spec {
    const char *dataset, *split, *generator;
    const char *task;     /* NULL: classification */
    const char *box_form; /* NULL: no boxes */
    enum kolo_encoding encoding;
    int channels, height, width; /* height, width: raw only */
    int64_t count, first, total; /* samples here, global number of the first, samples in the split */
    int shard, shards;
    int classes;
    const char *const *class_names; /* [classes] */
    const int64_t *class_ids;       /* [classes] the source's own; NULL: 0, 1, ... */
    const uint64_t *class_counts;   /* [classes] over the whole split */
    uint64_t pack_seed;             /* 0: source order */
    const int32_t *labels;          /* [count] */
    const int64_t *ids;             /* [count] number of the sample in source order */
    const uint64_t *offsets;        /* [count + 1], jpeg and mixed */
    const char *sources;            /* source paths, one after the other, no separators */
    const uint64_t *source_offsets; /* [count + 1] */
    const char *rejects;            /* "" or lines "path<TAB>cause" */
    const kolo_shard_note *notes;
    int note_count;
    const kolo_shard_table *tables;
    int table_count;
} kolo_shard_spec;

/* Byte addresses in the file. */
typedef struct kolo_shard_places {
    uint64_t data, state, crc, size, orig_size, source, source_offset;
} kolo_shard_places;

typedef struct kolo_shard_stats { /* per channel, over training pixels in [0,1] */
    double mean[4], std[4], min[4], max[4], count[4];
} kolo_shard_stats;

typedef struct kolo_shard_header {
    char dataset[64], split[16], uuid[40], generator[64], task[64], box_form[16];
    char tables[KOLO_SHARD_TABLE_NAMES]; /* names with commas */
    uint32_t version[2];
    enum kolo_encoding encoding;
    int channels, height, width;
    int64_t count, first, total;
    int shard, shards, classes;
    uint64_t pack_seed, bytes;  /* bytes: of all samples here */
    bool complete, checksummed; /* checksummed: 1.2, its tables and attributes have a checksum */
} kolo_shard_header;

/* Arrays of one shard in memory; freed by kolo_shard_arrays_free. */
typedef struct kolo_shard_arrays {
    int32_t *labels;
    uint32_t *crcs;
    uint64_t *offsets; /* [count + 1]; raw: NULL */
    uint8_t *states;
    uint16_t (*sizes)[2];     /* [count] height, width; raw: NULL */
    kolo_shard_table *tables; /* [table_count] all that `tables` names, with their data */
    int table_count;
    uint32_t metadata_crc; /* crc32c over labels, crcs, offsets, states, tables, as stored */
} kolo_shard_arrays;

int kolo_shard_create(const char *path, const kolo_shard_spec *spec);
int kolo_shard_complete(const char *path, const char *uuid, const kolo_shard_stats *stats);
/* Stores the checksum of tables and attributes as they are: kolo_shard_complete does, and who
 * changes a shard on purpose. */
int kolo_shard_seal(const char *path);

/* Opens by HDF5, checks format, version, shapes, layout, file size, with `arrays` the checksum too; then
 * closes. Any of the outputs may be NULL. KOLO_EINPUT: not a shard, unknown major version, truncated,
 * damaged. An incomplete shard is no error here. */
int kolo_shard_inspect(const char *path, kolo_shard_header *header, kolo_shard_places *places,
                       kolo_shard_arrays *arrays);
void kolo_shard_arrays_free(kolo_shard_arrays *arrays);
/* Table `name` of `arrays` if it has this type and row length (dim[1]); rows -1: any number.
 * NULL: absent or other. */
const kolo_shard_table *kolo_shard_find_table(const kolo_shard_arrays *arrays, const char *name,
                                              enum kolo_table_type type, int64_t rows, int64_t columns);
size_t kolo_shard_table_bytes(const kolo_shard_table *table);
/* Reads one table. table->name, type, rank are given, and dim: a number that must be so, or -1. 1:
 * read, dim and data are set, data is freed with free(); 0: the shard has none of this name;
 * KOLO_EINPUT: it has another shape. */
int kolo_shard_read_table(const char *path, kolo_shard_table *table, void **data);
/* Byte address of a table that kolo_shard_create made. */
int kolo_shard_table_place(const char *path, const kolo_shard_table *table, uint64_t *place);
int kolo_shard_read_stats(const char *path, kolo_shard_stats *stats);
/* Class names: *names is one block of strings and pointers, freed with free(). */
int kolo_shard_read_classes(const char *path, int classes, char ***names, uint64_t *counts);
int kolo_shard_read_class_ids(const char *path, int classes, int64_t *ids);
int kolo_shard_read_note(const char *path, const char *key, char *text, size_t size);

#endif
