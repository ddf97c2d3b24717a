#include "data/shard/file.h"

#include <ctype.h>
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/memory.h"
#include "data/shard/h5.h"
#include "data/shard/table.h"
#include "kolo/error.h"

/* What HDF5 failed at is -1, whose text is found at the end; KOLO_ENOMEM has one. */
#define TRY(call)                                                    \
    do {                                                             \
        const int64_t try_ = (call);                                 \
        if (try_ < 0) return try_ == KOLO_ENOMEM ? KOLO_ENOMEM : -1; \
    } while (0)

static const char *const encodings[] = {"raw", "jpeg", "mixed"};

static int put_header(hid_t file, const kolo_shard_spec *s)
{
    const uint32_t version[2] = {KOLO_FORMAT_MAJOR, KOLO_FORMAT_MINOR};
    TRY(kolo_h5_put_text(file, "format", KOLO_FORMAT_NAME, 8));
    TRY(kolo_h5_put_u32s(file, "format_version", version, 2));
    TRY(kolo_h5_put_text(file, "generator", s->generator, 0));
    TRY(kolo_h5_put_text(file, "dataset", s->dataset, 0));
    TRY(kolo_h5_put_text(file, "split", s->split, 0));
    TRY(kolo_h5_put_text(file, "task", s->task ? s->task : "classification", 0));
    TRY(kolo_h5_put_text(file, "encoding", encodings[s->encoding], 0));
    TRY(kolo_h5_put_text(file, "color", s->channels == 1 ? "gray" : "rgb", 0));
    TRY(kolo_h5_put_text(file, "layout", "NHWC", 0));
    TRY(kolo_h5_put_text(file, "dataset_uuid", "", 36));
    TRY(kolo_h5_put_u64(file, "num_samples", (uint64_t)s->count));
    TRY(kolo_h5_put_u64(file, "num_samples_total", (uint64_t)s->total));
    TRY(kolo_h5_put_u64(file, "first_sample", (uint64_t)s->first));
    TRY(kolo_h5_put_u64(file, "shard_index", (uint64_t)s->shard));
    TRY(kolo_h5_put_u64(file, "shard_count", (uint64_t)s->shards));
    TRY(kolo_h5_put_u64(file, "num_classes", (uint64_t)s->classes));
    TRY(kolo_h5_put_u64(file, "pack_seed", s->pack_seed));
    if (s->box_form) TRY(kolo_h5_put_text(file, "box_form", s->box_form, 0));
    const uint32_t none = 0;
    TRY(kolo_h5_put_u32s(file, KOLO_SHARD_SUM, &none, 1));
    return kolo_h5_put_u64(file, "complete", 0);
}

static int put_samples(hid_t file, const kolo_shard_spec *s)
{
    const hsize_t n = (hsize_t)s->count, n1 = n + 1;
    if (s->encoding == KOLO_ENCODING_RAW) {
        hsize_t shape[4] = {n, (hsize_t)s->height, (hsize_t)s->width, (hsize_t)s->channels};
        TRY(kolo_h5_put_array(file, "images", H5T_STD_U8LE, 4, shape, NULL));
    } else {
        hsize_t bytes = s->offsets[s->count];
        TRY(kolo_h5_put_array(file, "bytes", H5T_STD_U8LE, 1, &bytes, NULL));
        TRY(kolo_h5_put_array(file, "offset", H5T_STD_U64LE, 1, &n1, s->offsets));
    }
    hsize_t pairs[2] = {n, 2}, text = s->source_offsets[s->count];
    TRY(kolo_h5_put_array(file, "size", H5T_STD_U16LE, 2, pairs, NULL));
    TRY(kolo_h5_put_array(file, "orig_size", H5T_STD_U16LE, 2, pairs, NULL));
    TRY(kolo_h5_put_array(file, "label", H5T_STD_I32LE, 1, &n, s->labels));
    TRY(kolo_h5_put_array(file, "id", H5T_STD_I64LE, 1, &n, s->ids));
    TRY(kolo_h5_put_array(file, "crc32c", H5T_STD_U32LE, 1, &n, NULL));
    uint8_t *states = kolo_alloc((size_t)s->count + 1);
    if (!states) return KOLO_ENOMEM;
    int bad = kolo_h5_put_array(file, "state", H5T_STD_U8LE, 1, &n, states);
    free(states);
    TRY(bad);
    TRY(kolo_h5_put_array(file, "source_offset", H5T_STD_U64LE, 1, &n1, s->source_offsets));
    return kolo_h5_put_array(file, "source", H5T_STD_U8LE, 1, &text, s->sources);
}

/* Attribute `tables` names them: readers ask for what is there, and a dataset that somebody
 * adds breaks nothing. */
static int put_tables(hid_t file, const kolo_shard_spec *s)
{
    char names[KOLO_SHARD_TABLE_NAMES] = "";
    size_t used = 0;
    if (s->table_count > KOLO_SHARD_MOST_TABLES) return -1;
    for (int i = 0; i < s->table_count; i++) {
        const kolo_shard_table *t = &s->tables[i];
        const hsize_t shape[2] = {(hsize_t)t->dim[0], (hsize_t)t->dim[1]};
        used += (size_t)snprintf(names + used, sizeof names - used, "%s%s", i ? "," : "", t->name);
        if (used >= sizeof names) return -1;
        TRY(kolo_h5_put_array(file, t->name, kolo_shard_table_type(t->type), t->rank, shape, t->data));
        if (!t->note) continue;
        hid_t set = H5Dopen2(file, t->name, H5P_DEFAULT);
        TRY(set);
        int bad = kolo_h5_put_text(set, "long_name", t->note, 0);
        H5Dclose(set);
        TRY(bad);
    }
    return s->table_count ? kolo_h5_put_text(file, "tables", names, 0) : 0;
}

static int put_class_names(hid_t file, const kolo_shard_spec *s)
{
    size_t width = 1;
    for (int i = 0; i < s->classes; i++)
        if (strlen(s->class_names[i]) > width) width = strlen(s->class_names[i]);
    char *block = kolo_alloc(width * (size_t)s->classes + 1);
    if (!block) return KOLO_ENOMEM;
    for (int i = 0; i < s->classes; i++)
        memcpy(block + width * (size_t)i, s->class_names[i], strlen(s->class_names[i]));
    hid_t type = H5Tcopy(H5T_C_S1);
    hsize_t n = (hsize_t)s->classes;
    int bad = -1;
    if (type >= 0 && H5Tset_size(type, width) >= 0 && H5Tset_strpad(type, H5T_STR_NULLPAD) >= 0 &&
        H5Tset_cset(type, H5T_CSET_UTF8) >= 0)
        bad = kolo_h5_put_array(file, "classes/name", type, 1, &n, block);
    if (type >= 0) H5Tclose(type);
    free(block);
    return bad;
}

static int put_classes(hid_t file, const kolo_shard_spec *s)
{
    hsize_t n = (hsize_t)s->classes;
    hid_t group = kolo_h5_group(file, "classes");
    TRY(group);
    H5Gclose(group);
    TRY(put_class_names(file, s));
    int64_t *ids = kolo_alloc(sizeof *ids * (size_t)s->classes + 8);
    if (!ids) return KOLO_ENOMEM;
    for (int i = 0; i < s->classes; i++) ids[i] = s->class_ids ? s->class_ids[i] : i;
    int bad = kolo_h5_put_array(file, "classes/source_id", H5T_STD_I64LE, 1, &n, ids);
    free(ids);
    TRY(bad);
    return kolo_h5_put_array(file, "classes/count", H5T_STD_U64LE, 1, &n, s->class_counts);
}

static const char *const stat_names[] = {"stats/mean", "stats/std", "stats/min", "stats/max", "stats/count"};

static int put_stats(hid_t file, int channels)
{
    static const double zero[4];
    hsize_t n = (hsize_t)channels;
    hid_t group = kolo_h5_group(file, "stats");
    TRY(group);
    H5Gclose(group);
    for (int i = 0; i < 5; i++) TRY(kolo_h5_put_array(file, stat_names[i], H5T_IEEE_F64LE, 1, &n, zero));
    return 0;
}

static int put_provenance(hid_t file, const kolo_shard_spec *s)
{
    hid_t group = kolo_h5_group(file, "provenance");
    TRY(group);
    int bad = 0;
    for (int i = 0; i < s->note_count && bad >= 0; i++)
        bad = kolo_h5_put_text(group, s->notes[i].key, s->notes[i].text, 0);
    H5Gclose(group);
    TRY(bad);
    hsize_t n = strlen(s->rejects);
    return n ? kolo_h5_put_array(file, "provenance/rejects", H5T_STD_U8LE, 1, &n, s->rejects) : 0;
}

static int label_dimensions(hid_t file, const kolo_shard_spec *s)
{
    hid_t set = H5Dopen2(file, s->encoding == KOLO_ENCODING_RAW ? "images" : "bytes", H5P_DEFAULT);
    TRY(set);
    int bad =
        s->encoding == KOLO_ENCODING_RAW
            ? kolo_h5_put_text(set, "dims", "NHWC", 0)
            : kolo_h5_put_text(
                  set, "long_name",
                  s->encoding == KOLO_ENCODING_JPEG
                      ? "JPEG files; image i is bytes[offset[i]:offset[i+1]]"
                      : "JPEG files and pixels as codec[i] says; image i is bytes[offset[i]:offset[i+1]]",
                  0);
    H5Dclose(set);
    return bad;
}

/* As readers refuse them. */
static int check_names(const char *path, const kolo_shard_spec *s)
{
    for (int c = 0; c < s->classes; c++)
        for (const char *at = s->class_names[c]; *at; at++)
            if (iscntrl((unsigned char)*at))
                return kolo_fail(KOLO_EINPUT,
                                 "%s: the name of class %d (`%s`) holds a line break or another control "
                                 "character; rename it",
                                 path, c, s->class_names[c]);
    return 0;
}

int kolo_shard_create(const char *path, const kolo_shard_spec *spec)
{
    KOLO_TRY(check_names(path, spec));
    kolo_h5_lock();
    hid_t file = kolo_h5_create(path);
    int bad = file < 0 ? -1 : 0;
    if (!bad) bad = put_header(file, spec);
    if (!bad) bad = put_samples(file, spec);
    if (!bad) bad = put_tables(file, spec);
    if (!bad) bad = put_classes(file, spec);
    if (!bad) bad = put_stats(file, spec->channels);
    if (!bad) bad = put_provenance(file, spec);
    if (!bad) bad = label_dimensions(file, spec);
    if (file >= 0 && H5Fclose(file) < 0 && !bad) bad = -1;
    kolo_h5_unlock();
    if (bad == KOLO_ENOMEM) return bad;
    if (bad)
        return kolo_fail(KOLO_EIO,
                         "%s: cannot create the shard; is the folder writable, the disk not full, and no "
                         "limit (ulimit -f) in the way?",
                         path);
    return 0;
}

static int overwrite(hid_t file, const char *name, const double *data)
{
    hid_t set = H5Dopen2(file, name, H5P_DEFAULT);
    TRY(set);
    herr_t bad = H5Dwrite(set, H5T_NATIVE_DOUBLE, H5S_ALL, H5S_ALL, H5P_DEFAULT, data);
    H5Dclose(set);
    return bad < 0 ? -1 : 0;
}

static int put_last(const char *path, const char *uuid, const kolo_shard_stats *stats)
{
    kolo_h5_lock();
    hid_t file = kolo_h5_open(path, true);
    int bad = file < 0 ? -1 : 0;
    const double *values[] = {stats->mean, stats->std, stats->min, stats->max, stats->count};
    for (int i = 0; i < 5 && !bad; i++) bad = overwrite(file, stat_names[i], values[i]);
    if (!bad) bad = kolo_h5_put_text(file, "dataset_uuid", uuid, 36);
    if (file >= 0 && H5Fclose(file) < 0 && !bad) bad = -1;
    kolo_h5_unlock();
    return bad;
}

static int put_complete(const char *path)
{
    kolo_h5_lock();
    hid_t file = kolo_h5_open(path, true);
    int bad = file < 0 ? -1 : kolo_h5_put_u64(file, "complete", 1);
    if (file >= 0 && H5Fclose(file) < 0) bad = -1;
    kolo_h5_unlock();
    return bad;
}

int kolo_shard_complete(const char *path, const char *uuid, const kolo_shard_stats *stats)
{
    int bad = put_last(path, uuid, stats);
    if (!bad) KOLO_TRY(kolo_shard_seal(path));
    if (!bad) bad = put_complete(path);
    if (bad == KOLO_ENOMEM) return bad;
    if (bad) return kolo_fail(KOLO_EIO, "%s: cannot complete the shard; is the disk full?", path);
    return 0;
}
