/* Shards: the HDF5 files that kolo-pack writes (format `kolo`, version 1.0) and everything that reads them.
 * A split is a folder: `NAME-SPLIT-00017-of-00128.h5` and one manifest, `NAME-SPLIT.index`. Contiguous, unfiltered
 * datasets only: after one open every sample is (fd, offset, length). */
#ifndef KOLO_DATA_SHARD_H
#define KOLO_DATA_SHARD_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

enum kolo_encoding { KOLO_ENCODING_RAW, KOLO_ENCODING_JPEG };

typedef struct kolo_dataset kolo_dataset; /* one split, all shards, open for reading by any number of threads */

typedef struct kolo_dataset_info {
    char name[64], split[16], uuid[40];
    enum kolo_encoding encoding;
    int channels;      /* 1 or 3 */
    int height, width; /* of every sample (raw), or 0 where they differ (jpeg) */
    int64_t count;     /* samples in the split */
    int classes;
    int shards;
    uint64_t bytes;        /* sample bytes */
    float mean[4], std[4]; /* per channel over training pixels, in [0,1] */
} kolo_dataset_info;

/* Opens DIR (its one manifest and all shards it names), checks format, version, completeness, uuid, sizes.
 * KOLO_EINPUT: missing, truncated, foreign, incomplete shard (named, with the cure). */
int kolo_dataset_open(kolo_dataset **dataset, const char *folder);
void kolo_dataset_close(kolo_dataset **dataset);
const kolo_dataset_info *kolo_dataset_get_info(const kolo_dataset *dataset);
const char *kolo_dataset_class_name(const kolo_dataset *dataset, int label); /* "" if none */

int32_t kolo_dataset_label(const kolo_dataset *dataset, int64_t sample);
size_t kolo_dataset_bytes(const kolo_dataset *dataset, int64_t sample); /* stored length */
/* Reads the stored bytes of a sample by one pread. Thread-safe. `data` holds kolo_dataset_bytes(). */
int kolo_dataset_read(const kolo_dataset *dataset, int64_t sample, void *data);
uint32_t kolo_dataset_crc(const kolo_dataset *dataset, int64_t sample); /* stored crc32c */
/* Path of the picture this sample was made from; copied to `text`. */
int kolo_dataset_source(const kolo_dataset *dataset, int64_t sample, char *text, size_t size);

#endif
