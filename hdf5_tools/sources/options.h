/* What kolo-pack was asked for: a source takes from it what concerns the listing, the packer the rest. */
#ifndef HDF5_TOOLS_SOURCES_OPTIONS_H
#define HDF5_TOOLS_SOURCES_OPTIONS_H

#include <stdbool.h>
#include <stdint.h>

#include "data/shard/shard.h"
#include "sources/source.h"

enum pack_resize {
    PACK_RESIZE_NONE,
    PACK_RESIZE_SHORTER,
    PACK_RESIZE_LONGER,
    PACK_RESIZE_EXACT,
    PACK_RESIZE_LETTERBOX
};
enum pack_color { PACK_COLOR_AUTO, PACK_COLOR_RGB, PACK_COLOR_GRAY, PACK_COLOR_KEEP };

#define PACK_MOST_INPUTS 64

typedef struct pack_options {
    const source_kind *kind;
    const char *in[PACK_MOST_INPUTS], *annotations[PACK_MOST_INPUTS];
    int in_count, annotation_count;
    char name[64];
    char split[16];     /* the part of the source that is listed: train, val, test */
    char out_split[16]; /* name of what is written; another one than `split` with --holdout */
    char holdout[16];   /* name of the part that is held out; "": --holdout is not given */
    double holdout_part;
    const char *group; /* regular expression over paths, or NULL */
    const char *out, *stats_from, *classes, *subset;
    enum kolo_encoding encoding;
    enum pack_resize resize;
    enum pack_color color;
    int filter; /* KOLO_interpolation_* */
    bool crop, skip, decode_all, resume, force, dry_run, json, help, version;
    bool data;         /* --data: the one --in has folders train and val */
    bool both;         /* --holdout or --data without --split: OUT/train, then OUT/<holdout>, or OUT/val */
    bool default_seed; /* of the order: 42 for train, else 0 */
    int size, quality, shards, threads;
    int64_t shuffle_seed, holdout_seed, max_bad, count, limit, min_faces; /* max_bad -1: no limit */
} pack_options;

#endif
