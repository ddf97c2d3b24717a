/* The checksum of a shard: over its root attributes, tables, classes, statistics and provenance, that is
 * over everything which is read from the file but the samples' own bytes, whose checksums stand in
 * /crc32c. What somebody adds to the file is not in it and breaks nothing. `complete` is not in it: it is
 * written last, and is 0 or 1. */
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/file.h"
#include "base/memory.h"
#include "data/shard/table.h"
#include "kolo/error.h"

#define PIECE ((size_t)65536) /* no attribute is larger */

static const char *const attributes[] = {
    "format",      "format_version",    "generator",    "dataset",     "split",
    "task",        "encoding",          "color",        "layout",      "dataset_uuid",
    "num_samples", "shard_index",       "shard_count",  "num_classes", "pack_seed",
    "box_form",    "num_samples_total", "first_sample", "tables"};

static const char *const arrays[] = {"offset",
                                     "size",
                                     "orig_size",
                                     "label",
                                     "id",
                                     "crc32c",
                                     "state",
                                     "source_offset",
                                     "source",
                                     "classes/name",
                                     "classes/source_id",
                                     "classes/count",
                                     "stats/mean",
                                     "stats/std",
                                     "stats/min",
                                     "stats/max",
                                     "stats/count",
                                     "provenance/rejects"};

typedef struct summing {
    const char *path;
    int fd;
    uint64_t length; /* of the file */
    uint8_t *piece;  /* [PIECE] */
    uint32_t crc;
    char at[64]; /* the table or attribute that is summed */
} summing;

static void checksum_add(summing *s, const void *data, size_t bytes)
{
    s->crc = kolo_crc32c(s->crc, data, bytes);
}

static void add_head(summing *s, const char *name, uint64_t bytes)
{
    checksum_add(s, name, strlen(name) + 1);
    checksum_add(s, &bytes, sizeof bytes);
}

/* Values as they are stored. One that is not there has no part in the sum. */
static int add_attribute(summing *s, hid_t object, const char *name)
{
    snprintf(s->at, sizeof s->at, "attribute %s", name);
    hid_t attribute = H5Aopen(object, name, H5P_DEFAULT);
    if (attribute < 0) return 0;
    hid_t type = H5Aget_type(attribute);
    const H5T_class_t class = type < 0 ? H5T_NO_CLASS : H5Tget_class(type);
    const uint64_t bytes = H5Aget_storage_size(attribute);
    const bool plain =
        (class == H5T_INTEGER || class == H5T_FLOAT || class == H5T_STRING) && H5Tis_variable_str(type) <= 0;
    const int bad = plain && bytes <= PIECE && H5Aread(attribute, type, s->piece) >= 0 ? 0 : -1;
    if (!bad) {
        add_head(s, name, bytes);
        checksum_add(s, s->piece, bytes);
    }
    if (type >= 0) H5Tclose(type);
    H5Aclose(attribute);
    return bad;
}

static int add_bytes(summing *s, uint64_t at, uint64_t bytes)
{
    if (bytes && (at > s->length || s->length - at < bytes)) return -1;
    for (size_t n; bytes; at += n, bytes -= n) {
        n = bytes < PIECE ? (size_t)bytes : PIECE;
        if (kolo_file_pread(s->fd, s->path, s->piece, n, at) < 0) return -1;
        checksum_add(s, s->piece, n);
    }
    return 0;
}

/* Read past HDF5. What is chunked, virtual or in other files has no address. with: its values too, else
 * their number. */
static int add_array(summing *s, hid_t file, const char *name, bool with)
{
    snprintf(s->at, sizeof s->at, "/%s", name);
    hid_t set = H5Dopen2(file, name, H5P_DEFAULT);
    if (set < 0) return 0;
    const uint64_t bytes = H5Dget_storage_size(set);
    const haddr_t at = H5Dget_offset(set);
    const bool here = at != HADDR_UNDEF || (!bytes && kolo_h5_is_plain(set));
    H5Dclose(set);
    if (!here) return -1;
    add_head(s, name, bytes);
    return with ? add_bytes(s, at, bytes) : 0;
}

static int add_tables(summing *s, hid_t file)
{
    char names[KOLO_SHARD_TABLE_NAMES], *rest = names;
    if (kolo_h5_get_text(file, "tables", names, sizeof names) < 0) return 0;
    for (const char *name; (name = strtok_r(rest, ",", &rest));)
        if (add_array(s, file, name, true) < 0) return -1;
    return 0;
}

static herr_t add_note(hid_t group, const char *name, const H5A_info_t *info, void *context)
{
    (void)info;
    return add_attribute(context, group, name);
}

static int add_notes(summing *s, hid_t file)
{
    hsize_t from = 0;
    if (!kolo_h5_has(file, "provenance")) return 0;
    hid_t group = H5Gopen2(file, "provenance", H5P_DEFAULT);
    if (group < 0) return -1;
    const herr_t bad = H5Aiterate2(group, H5_INDEX_NAME, H5_ITER_INC, &from, add_note, s);
    H5Gclose(group);
    return bad < 0 ? -1 : 0;
}

static int sum_up(summing *s, hid_t file)
{
    for (size_t i = 0; i < sizeof attributes / sizeof *attributes; i++)
        if (add_attribute(s, file, attributes[i]) < 0) return -1;
    for (size_t i = 0; i < sizeof arrays / sizeof *arrays; i++)
        if (add_array(s, file, arrays[i], true) < 0) return -1;
    if (add_array(s, file, "images", false) < 0 || add_array(s, file, "bytes", false) < 0) return -1;
    return add_tables(s, file) < 0 ? -1 : add_notes(s, file);
}

static int shard_sum(hid_t file, const char *path, uint32_t *crc)
{
    const int64_t length = kolo_file_size(path);
    if (length < 0) return (int)length;
    summing s = {.path = path,
                 .length = (uint64_t)length,
                 .fd = open(path, O_RDONLY | O_CLOEXEC),
                 .piece = malloc(PIECE)};
    int rc = s.fd < 0  ? kolo_file_fail("open", path)
             : s.piece ? 0
                       : kolo_fail(KOLO_ENOMEM, "out of memory: %zu bytes", PIECE);
    if (rc == 0 && sum_up(&s, file) < 0)
        rc = kolo_fail(
            KOLO_EINPUT,
            "%s: %s cannot be read as one plain array of this file: damaged, or chunked, virtual or in "
            "other files; copy the shard again or pack this split again",
            path, s.at);
    if (s.fd >= 0) close(s.fd);
    free(s.piece);
    *crc = s.crc;
    return rc;
}

/* 1.2 has the checksum from its completion on; shards of 1.0 and 1.1 have none. */
int kolo_shard_check_sum(hid_t file, const char *path, const kolo_shard_header *h)
{
    uint32_t stored, crc;
    if (!h->complete || (!h->checksummed && h->version[1] < 2)) return 0;
    if (kolo_h5_get_u32s(file, KOLO_SHARD_SUM, &stored, 1) < 0)
        return kolo_fail(KOLO_EINPUT,
                         "%s: attribute %s is missing: damaged; copy it again or pack this split again", path,
                         KOLO_SHARD_SUM);
    KOLO_TRY(shard_sum(file, path, &crc));
    if (crc == stored) return 0;
    return kolo_fail(KOLO_EINPUT,
                     "%s: its tables and attributes have checksum %08x, stored is %08x: they were changed "
                     "since it was packed; copy it again or pack this split again",
                     path, crc, stored);
}

int kolo_shard_seal(const char *path)
{
    hid_t file = -1;
    uint32_t crc;
    kolo_h5_lock();
    int rc = kolo_shard_open(path, &file);
    if (rc == 0) rc = shard_sum(file, path, &crc);
    if (file >= 0) H5Fclose(file);
    if (rc == 0) {
        file = kolo_h5_open(path, true);
        int bad = file < 0 ? -1 : kolo_h5_put_u32s(file, KOLO_SHARD_SUM, &crc, 1);
        if (file >= 0 && H5Fclose(file) < 0) bad = -1;
        if (bad) rc = kolo_fail(KOLO_EIO, "%s: cannot write its checksum; is the disk full?", path);
    }
    kolo_h5_unlock();
    return rc;
}
