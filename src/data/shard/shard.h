/* Shards: the HDF5 files that kolo-pack writes (format `kolo`, version 1.2; 1.0 and 1.1 are read too)
 * and everything that reads them. A split is a folder: `NAME-SPLIT-00017-of-00128.h5` and one
 * manifest, `NAME-SPLIT.index`. Contiguous, unfiltered datasets only: after one open every sample is
 * (fd, offset, length).
 *
 *   images u8 [N,H,W,C]              raw; or
 *   bytes u8 [T], offset u64 [N+1]   jpeg and mixed; mixed has codec u8 [N] (0 pixels of
 *                                    size[i], 1 JPEG file)
 *   size u16 [N,2], orig_size u16 [N,2]   height, width: stored (upright), and of the source image
 *                                         (upright)
 *   label i32 [N] (-1: none), id i64 [N], crc32c u32 [N], state u8 [N], source u8 [..],
 *   source_offset u64 [N+1]
 *   classes/name [K], classes/source_id i64 [K], classes/count u64 [K] (labels of the whole split; where no
 *     sample has a label: boxes, or else tags), stats/..., provenance/...
 *
 * 1.1 adds tables; the root attribute `tables` names those that are there:
 *   detection: box f32 [B,4] (x0 y0 x1 y1, pixels of the stored image), box_class i32 [B], box_flags u8 [B]
 *     (data/shard/targets.h), box_area f32 [B], box_id i64 [B], box_offset u64 [N+1], transform f32 [N,4]
 *     (sx sy dx dy), box_source f64 [B,4]: the numbers of the source, in the form that root attribute
 *     `box_form` names: cxcywh (YOLO, normalised), xywh (COCO, pixels), xyxy (VOC, pixels from 1),
 *     norm_xyxy (Open Images)
 *   multilabel: tag i32 [T] (class), tag_value f32 [T], tag_offset u64 [N+1]
 *   pairs, in the first shard: pair_set_NAME i32 [P,2] (samples of the split), pair_same_NAME u8 [P],
 *     pair_fold_NAME i32 [P]
 * 1.2 adds root attribute tables_crc32c u32: the checksum of all tables and attributes
 * (data/shard/checksum.c). Root attribute `task`: classification, detection, multilabel, pairs;
 * several with commas. */
#ifndef KOLO_DATA_SHARD_H
#define KOLO_DATA_SHARD_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

enum kolo_encoding { KOLO_ENCODING_RAW, KOLO_ENCODING_JPEG, KOLO_ENCODING_MIXED };
enum kolo_codec { KOLO_CODEC_RAW, KOLO_CODEC_JPEG }; /* of one sample */

/* one split, all shards, open for reading by any number of threads */
typedef struct kolo_dataset kolo_dataset;

typedef struct kolo_dataset_info {
    char name[64], split[16], uuid[40];
    char task[64]; /* words with commas: classification, detection, multilabel, pairs */
    enum kolo_encoding encoding;
    int channels;      /* 1 or 3 */
    int height, width; /* of every sample (raw), or 0 where they differ (jpeg, mixed) */
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

int32_t kolo_dataset_label(const kolo_dataset *dataset, int64_t sample); /* -1: none */
/* Is the stored sample a JPEG file, or pixels (height, width, channels)? */
enum kolo_codec kolo_dataset_codec(const kolo_dataset *dataset, int64_t sample);
/* Height and width of the stored, upright image. */
void kolo_dataset_size(const kolo_dataset *dataset, int64_t sample, int *height, int *width);
size_t kolo_dataset_bytes(const kolo_dataset *dataset, int64_t sample); /* stored length */
/* Reads the stored bytes of a sample by one pread. Thread-safe. `data` holds kolo_dataset_bytes(). */
int kolo_dataset_read(const kolo_dataset *dataset, int64_t sample, void *data);
uint32_t kolo_dataset_crc(const kolo_dataset *dataset, int64_t sample); /* stored crc32c */
/* Path of the image this sample was made from; copied to `text`. */
int kolo_dataset_source(const kolo_dataset *dataset, int64_t sample, char *text, size_t size);

#endif
