/* A shard: all that is read of one, then a split that consists of it. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <hdf5.h>

#include "data/shard/file.h"
#include "data/shard/manifest.h"
#include "data/shard/targets.h"
#include "input.h"
#include "kolo/error.h"

static void read_extras(const char *path, const kolo_shard_header *h)
{
    kolo_shard_stats stats;
    char **names = NULL, text[256];
    const size_t n = (size_t)h->classes + 1;
    uint64_t *counts = malloc(sizeof *counts * n);
    int64_t *ids = malloc(sizeof *ids * n);
    fuzz_taken(kolo_shard_read_stats(path, &stats));
    fuzz_taken(kolo_shard_read_classes(path, h->classes, &names, counts));
    fuzz_taken(kolo_shard_read_class_ids(path, h->classes, ids));
    fuzz_taken(kolo_shard_read_note(path, "options", text, sizeof text));
    free(names);
    free(counts);
    free(ids);
}

static int write_manifest(const char *folder, const kolo_shard_header *h, const kolo_shard_arrays *a)
{
    kolo_manifest_shard entry = {
        .file = "s.h5", .count = h->count, .first = 0, .bytes = h->bytes, .metadata_crc = a->metadata_crc};
    kolo_manifest m = {.info = {.encoding = h->encoding,
                                .channels = h->channels,
                                .height = h->height,
                                .width = h->width,
                                .count = h->count,
                                .classes = h->classes,
                                .shards = 1,
                                .bytes = h->bytes},
                       .shards = &entry};
    snprintf(m.info.name, sizeof m.info.name, "fuzz");
    snprintf(m.info.split, sizeof m.info.split, "train");
    memcpy(m.info.uuid, h->uuid, sizeof m.info.uuid);
    memcpy(m.info.task, h->task, sizeof m.info.task);
    return kolo_manifest_write(folder, &m);
}

static void walk(const kolo_dataset *d)
{
    const kolo_dataset_info *info = kolo_dataset_get_info(d);
    const kolo_targets *t = kolo_dataset_targets(d);
    char text[256];
    double sum = 0;
    for (int64_t i = 0; i < info->count; i++) {
        int height, width;
        const size_t bytes = kolo_dataset_bytes(d, i);
        void *data = malloc(bytes + 1);
        kolo_dataset_size(d, i, &height, &width);
        fuzz_taken_or(kolo_dataset_read(d, i, data), KOLO_EIO);
        fuzz_taken(kolo_dataset_source(d, i, text, sizeof text));
        const int32_t label = kolo_dataset_label(d, i);
        fuzz_require(label >= -1 && label < info->classes, "a label below the number of classes");
        if (label >= 0) sum += (double)strlen(kolo_dataset_class_name(d, label));
        if (kolo_dataset_codec(d, i) == KOLO_CODEC_RAW)
            fuzz_require(bytes == (size_t)height * (size_t)width * (size_t)info->channels,
                         "pixels as the size says");
        if (t && t->box_offset)
            for (int64_t b = t->box_offset[i]; b < t->box_offset[i + 1]; b++)
                sum += t->box[b][0] + t->box[b][3] + t->box_area[b] + (float)t->box_id[b] + t->box_flags[b];
        free(data);
    }
    fuzz_require(sum == sum || t, "a sum");
}

/* What HDF5 still holds, which no leak checker sees: it keeps all of it in tables of its own. */
static void check_nothing_open(void)
{
    static const H5I_type_t kinds[] = {H5I_FILE, H5I_GROUP, H5I_DATASET, H5I_ATTR, H5I_DATASPACE};
    for (size_t i = 0; i < sizeof kinds / sizeof *kinds; i++) {
        hsize_t open = 0;
        /* it fails for a kind that was never used */
        fuzz_require(H5Inmembers(kinds[i], &open) < 0 || open == 0, "everything of HDF5 closed again");
    }
}

static void read_shard(const char *path)
{
    kolo_shard_header h;
    kolo_shard_places p;
    kolo_shard_arrays a;
    kolo_dataset *d = NULL;
    if (!fuzz_taken(kolo_shard_inspect(path, &h, &p, &a))) return;
    read_extras(path, &h);
    const int rc = write_manifest(fuzz_folder(), &h, &a);
    kolo_shard_arrays_free(&a);
    fuzz_require(rc == 0, "writing the manifest");
    if (fuzz_taken(kolo_dataset_open(&d, fuzz_folder()))) walk(d);
    kolo_dataset_close(&d);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t bytes)
{
    const char *path = fuzz_put("s.h5", data, bytes);
    read_shard(path);
    if (fuzz_taken_or(kolo_shard_seal(path), KOLO_EIO)) read_shard(path); /* what is behind the checksum */
    check_nothing_open();
    return 0;
}
