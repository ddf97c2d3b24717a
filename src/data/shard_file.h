/* One shard file of the format `kolo` 1.0, as kolo-pack makes it and readers check it.
 *
 * Life of a shard: kolo_shard_create (all space allocated, labels and offsets written, state 0) -> any number of
 * processes pwrite samples at kolo_shard_places -> kolo_shard_complete (statistics, uuid, then `complete` = 1) ->
 * rename. A process killed in between leaves a file that opens; `state` tells which samples are there. */
#ifndef KOLO_DATA_SHARD_FILE_H
#define KOLO_DATA_SHARD_FILE_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "data/shard.h"

#define KOLO_FORMAT_NAME "kolo"
#define KOLO_FORMAT_MAJOR 1
#define KOLO_FORMAT_MINOR 0

enum kolo_sample_state { KOLO_SAMPLE_EMPTY, KOLO_SAMPLE_OK, KOLO_SAMPLE_ENCODED, KOLO_SAMPLE_REPLACED };

typedef struct kolo_shard_note {
    const char *key, *text;
} kolo_shard_note; /* attributes of /provenance */

typedef struct kolo_shard_spec {
    const char *dataset, *split, *generator;
    enum kolo_encoding encoding;
    int channels, height, width; /* height, width: raw only */
    int64_t count, first, total; /* samples here, global number of the first, samples in the split */
    int shard, shards;
    int classes;
    const char *const *class_names; /* [classes] */
    const uint64_t *class_counts;   /* [classes] over the whole split */
    uint64_t pack_seed;             /* 0: source order */
    const int32_t *labels;          /* [count] */
    const int64_t *ids;             /* [count] number of the sample in source order */
    const uint64_t *offsets;        /* [count + 1], jpeg only */
    const char *sources;            /* source paths, one after the other, no separators */
    const uint64_t *source_offsets; /* [count + 1] */
    const char *rejects;            /* "" or lines "path<TAB>cause" */
    const kolo_shard_note *notes;
    int note_count;
} kolo_shard_spec;

/* Byte addresses in the file. */
typedef struct kolo_shard_places {
    uint64_t data, state, crc, size, orig_size, source, source_offset;
} kolo_shard_places;

typedef struct kolo_shard_stats { /* per channel, over training pixels in [0,1] */
    double mean[4], std[4], min[4], max[4], count[4];
} kolo_shard_stats;

typedef struct kolo_shard_header {
    char dataset[64], split[16], uuid[40], generator[64];
    uint32_t version[2];
    enum kolo_encoding encoding;
    int channels, height, width;
    int64_t count, first, total;
    int shard, shards, classes;
    uint64_t pack_seed, bytes; /* bytes: of all samples here */
    bool complete;
} kolo_shard_header;

/* Arrays of one shard in memory; freed by kolo_shard_arrays_free. */
typedef struct kolo_shard_arrays {
    int32_t *labels;
    uint32_t *crcs;
    uint64_t *offsets; /* [count + 1]; raw: NULL */
    uint8_t *states;
    uint32_t metadata_crc; /* crc32c over labels, crcs, offsets, states, as stored */
} kolo_shard_arrays;

int kolo_shard_create(const char *path, const kolo_shard_spec *spec);
int kolo_shard_complete(const char *path, const char *uuid, const kolo_shard_stats *stats);

/* Opens by HDF5, checks format, version, shapes, layout, file size; then closes. Any of the outputs may be NULL.
 * KOLO_EINPUT: not a shard, unknown major version, truncated, damaged. An incomplete shard is no error here. */
int kolo_shard_inspect(const char *path, kolo_shard_header *header, kolo_shard_places *places,
                       kolo_shard_arrays *arrays);
void kolo_shard_arrays_free(kolo_shard_arrays *arrays);
int kolo_shard_read_stats(const char *path, kolo_shard_stats *stats);
/* Class names: *names is one block of strings and pointers, freed with free(). */
int kolo_shard_read_classes(const char *path, int classes, char ***names, uint64_t *counts);
int kolo_shard_read_note(const char *path, const char *key, char *text, size_t size);

#endif
