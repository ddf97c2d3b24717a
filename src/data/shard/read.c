#include "data/shard/file.h"

#include <ctype.h>
#include <errno.h>
#include <fcntl.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/file.h"
#include "base/log.h"
#include "base/memory.h"
#include "data/shard/h5.h"
#include "data/shard/table.h"
#include "kolo/error.h"

static int damaged(const char *path, const char *what)
{
    return kolo_fail(KOLO_EINPUT, "%s: %s; copy it again or pack this split again", path, what);
}

static int check_format(hid_t file, const char *path, kolo_shard_header *h)
{
    char text[64];
    if (kolo_h5_get_text(file, "format", text, sizeof text) < 0 || strcmp(text, KOLO_FORMAT_NAME) != 0)
        return kolo_fail(KOLO_EINPUT,
                         "%s is not a kolo shard (HDF5, but of another format); make shards with kolo-pack",
                         path);
    if (kolo_h5_get_u32s(file, "format_version", h->version, 2) < 0)
        return damaged(path, "format_version is missing");
    if (h->version[0] != KOLO_FORMAT_MAJOR)
        return kolo_fail(
            KOLO_EINPUT,
            "%s: shard format %u.%u, this program reads %d.x; pack with this version or install a newer kolo",
            path, h->version[0], h->version[1], KOLO_FORMAT_MAJOR);
    return 0;
}

static int get_int(hid_t file, const char *path, const char *name, uint64_t limit, int64_t *value)
{
    uint64_t raw;
    if (kolo_h5_get_u64(file, name, &raw) < 0)
        return kolo_fail(KOLO_EINPUT, "%s: attribute %s is missing; pack this split again", path, name);
    if (raw > limit)
        return kolo_fail(KOLO_EINPUT, "%s: attribute %s is out of range; pack this split again", path, name);
    *value = (int64_t)raw;
    return 0;
}

static int check_task(const char *path, const char *task)
{
    static const char *const known[] = {"classification", "detection", "multilabel", "pairs"};
    for (const char *at = task; *at;) {
        const size_t n = strcspn(at, ",");
        bool found = false;
        for (int i = 0; i < 4; i++) found |= strlen(known[i]) == n && strncmp(known[i], at, n) == 0;
        if (!found)
            return kolo_fail(
                KOLO_EINPUT,
                "%s: task `%s` is not known to this version (it reads classification, detection, "
                "multilabel and pairs); install a newer kolo",
                path, task);
        at += n + (at[n] == ',');
    }
    return 0;
}

/* Names are lines of classes.txt, words of manifests, and go to terminals. */
static bool has_control(const char *text)
{
    while (*text && !iscntrl((unsigned char)*text)) text++;
    return *text;
}

static int read_read_words(hid_t file, const char *path, kolo_shard_header *h)
{
    char encoding[16], color[16];
    if (kolo_h5_get_text(file, "task", h->task, sizeof h->task) < 0 ||
        kolo_h5_get_text(file, "encoding", encoding, sizeof encoding) < 0 ||
        kolo_h5_get_text(file, "color", color, sizeof color) < 0 ||
        kolo_h5_get_text(file, "dataset", h->dataset, sizeof h->dataset) < 0 ||
        kolo_h5_get_text(file, "split", h->split, sizeof h->split) < 0 ||
        kolo_h5_get_text(file, "dataset_uuid", h->uuid, sizeof h->uuid) < 0)
        return damaged(path, "a root attribute is missing");
    if (kolo_h5_get_text(file, "generator", h->generator, sizeof h->generator) < 0) h->generator[0] = 0;
    if (kolo_h5_get_text(file, "box_form", h->box_form, sizeof h->box_form) < 0) h->box_form[0] = 0;
    /* 1.0 has none */
    if (kolo_h5_get_text(file, "tables", h->tables, sizeof h->tables) < 0) h->tables[0] = 0;
    const char *const words[] = {h->dataset, h->split,    h->uuid,  h->generator,
                                 h->task,    h->box_form, h->tables};
    for (size_t i = 0; i < sizeof words / sizeof *words; i++)
        if (has_control(words[i])) return damaged(path, "a root attribute holds control characters");
    KOLO_TRY(check_task(path, h->task));
    if (strcmp(encoding, "raw") == 0) h->encoding = KOLO_ENCODING_RAW;
    else if (strcmp(encoding, "jpeg") == 0) h->encoding = KOLO_ENCODING_JPEG;
    else if (strcmp(encoding, "mixed") == 0) h->encoding = KOLO_ENCODING_MIXED;
    else
        return kolo_fail(KOLO_EINPUT,
                         "%s: encoding `%s` is not known to this version (it reads raw, jpeg and mixed)",
                         path, encoding);
    if (strcmp(color, "gray") != 0 && strcmp(color, "rgb") != 0)
        return damaged(path, "attribute color is neither gray nor rgb");
    h->channels = strcmp(color, "gray") == 0 ? 1 : 3;
    return 0;
}

static int read_header(hid_t file, const char *path, kolo_shard_header *h)
{
    int64_t shard = 0, shards = 0, classes = 0, complete = 0, seed = 0;
    KOLO_TRY(check_format(file, path, h));
    KOLO_TRY(read_read_words(file, path, h));
    KOLO_TRY(get_int(file, path, "num_samples", 1ull << 40, &h->count));
    KOLO_TRY(get_int(file, path, "num_samples_total", 1ull << 40, &h->total));
    KOLO_TRY(get_int(file, path, "first_sample", 1ull << 40, &h->first));
    KOLO_TRY(get_int(file, path, "shard_index", 1 << 20, &shard));
    KOLO_TRY(get_int(file, path, "shard_count", 1 << 20, &shards));
    KOLO_TRY(get_int(file, path, "num_classes", 1 << 24, &classes));
    KOLO_TRY(get_int(file, path, "complete", 1, &complete));
    KOLO_TRY(get_int(file, path, "pack_seed", INT64_MAX, &seed));
    h->shard = (int)shard, h->shards = (int)shards, h->classes = (int)classes;
    h->complete = complete, h->pack_seed = (uint64_t)seed;
    h->checksummed = H5Aexists(file, KOLO_SHARD_SUM) > 0;
    if (h->first + h->count > h->total || shard >= shards)
        return damaged(path, "its sample counts contradict each other");
    if (h->encoding == KOLO_ENCODING_RAW) {
        hsize_t shape[4];
        if (kolo_h5_shape(file, "images", 4, shape) < 0 || shape[0] != (hsize_t)h->count ||
            shape[3] != (hsize_t)h->channels || shape[1] < 1 || shape[1] > 65500 || shape[2] < 1 ||
            shape[2] > 65500)
            return damaged(path, "/images is missing or of another shape than the attributes say");
        h->height = (int)shape[1], h->width = (int)shape[2];
        h->bytes = (uint64_t)h->count * shape[1] * shape[2] * shape[3];
    } else {
        hsize_t bytes;
        if (kolo_h5_shape(file, "bytes", 1, &bytes) < 0) return damaged(path, "/bytes is missing");
        h->bytes = bytes;
    }
    return 0;
}

static int locate(hid_t file, const char *path, const kolo_shard_header *h, kolo_shard_places *p)
{
    const hsize_t n = (hsize_t)h->count, n1 = n + 1, bytes = h->bytes, pairs[2] = {n, 2};
    const hsize_t shape[4] = {n, (hsize_t)h->height, (hsize_t)h->width, (hsize_t)h->channels};
    hsize_t text = 0;
    const bool raw = h->encoding == KOLO_ENCODING_RAW;
    if (raw ? kolo_h5_place(file, "images", H5T_STD_U8LE, 4, shape, &p->data) < 0
            : kolo_h5_place(file, "bytes", H5T_STD_U8LE, 1, &bytes, &p->data) < 0)
        return damaged(path, "the images are not stored as one contiguous, unfiltered u8 array");
    if (kolo_h5_place(file, "state", H5T_STD_U8LE, 1, &n, &p->state) < 0 ||
        kolo_h5_place(file, "crc32c", H5T_STD_U32LE, 1, &n, &p->crc) < 0 ||
        kolo_h5_place(file, "size", H5T_STD_U16LE, 2, pairs, &p->size) < 0 ||
        kolo_h5_place(file, "orig_size", H5T_STD_U16LE, 2, pairs, &p->orig_size) < 0 ||
        kolo_h5_place(file, "source_offset", H5T_STD_U64LE, 1, &n1, &p->source_offset) < 0 ||
        kolo_h5_shape(file, "source", 1, &text) < 0 ||
        kolo_h5_place(file, "source", H5T_STD_U8LE, 1, &text, &p->source) < 0)
        return damaged(path, "a table (state, crc32c, size, source) is missing or of another shape");
    return 0;
}

static int check_offsets(const char *path, const kolo_shard_header *h, const uint64_t *offsets)
{
    if (offsets[0] != 0 || offsets[h->count] != h->bytes)
        return damaged(path, "/offset does not span /bytes");
    for (int64_t i = 0; i < h->count; i++)
        if (offsets[i] > offsets[i + 1] || offsets[i + 1] - offsets[i] > INT32_MAX)
            return damaged(path, "/offset does not rise");
    return 0;
}

static int read_core(hid_t file, const char *path, const kolo_shard_header *h, kolo_shard_arrays *a)
{
    const hsize_t n = (hsize_t)h->count, n1 = n + 1;
    const bool blobs = h->encoding != KOLO_ENCODING_RAW;
    uint64_t place;
    if (kolo_h5_place(file, "label", H5T_STD_I32LE, 1, &n, &place) < 0 ||
        (blobs && kolo_h5_place(file, "offset", H5T_STD_U64LE, 1, &n1, &place) < 0))
        return damaged(path, "/label or /offset is missing or of another shape");
    if ((n && (kolo_h5_get_array(file, "label", H5T_NATIVE_INT32, a->labels) < 0 ||
               kolo_h5_get_array(file, "crc32c", H5T_NATIVE_UINT32, a->crcs) < 0 ||
               kolo_h5_get_array(file, "state", H5T_NATIVE_UINT8, a->states) < 0 ||
               (blobs && kolo_h5_get_array(file, "size", H5T_NATIVE_UINT16, a->sizes) < 0))) ||
        (blobs && kolo_h5_get_array(file, "offset", H5T_NATIVE_UINT64, a->offsets) < 0))
        return kolo_fail(KOLO_EIO, "%s: cannot read its tables", path);
    return blobs ? check_offsets(path, h, a->offsets) : 0;
}

static int load_arrays(hid_t file, const char *path, const kolo_shard_header *h, kolo_shard_arrays *a)
{
    const size_t n = (size_t)h->count;
    const bool blobs = h->encoding != KOLO_ENCODING_RAW;
    a->labels = kolo_alloc(sizeof *a->labels * n + 8);
    a->crcs = kolo_alloc(sizeof *a->crcs * n + 8);
    a->states = kolo_alloc(n + 8);
    a->offsets = blobs ? kolo_alloc(sizeof *a->offsets * (n + 1)) : NULL;
    a->sizes = blobs ? kolo_alloc(sizeof *a->sizes * n + 8) : NULL;
    if (!a->labels || !a->crcs || !a->states || (blobs && (!a->offsets || !a->sizes))) return KOLO_ENOMEM;
    KOLO_TRY(read_core(file, path, h, a));
    KOLO_TRY(kolo_shard_load_tables(file, path, h, a));
    uint32_t crc = kolo_crc32c(0, a->labels, sizeof *a->labels * n);
    crc = kolo_crc32c(crc, a->crcs, sizeof *a->crcs * n);
    if (blobs) crc = kolo_crc32c(crc, a->offsets, sizeof *a->offsets * (n + 1));
    crc = kolo_crc32c(crc, a->states, n);
    for (int i = 0; i < a->table_count; i++)
        crc = kolo_crc32c(crc, a->tables[i].data, kolo_shard_table_bytes(&a->tables[i]));
    a->metadata_crc = crc;
    return 0;
}

/* A shard is one file: links and layouts that lead into others are not followed. */
static int check_closed(const char *path, hid_t *file)
{
    char name[128];
    if (kolo_h5_is_closed(*file, name, sizeof name)) return 0;
    H5Fclose(*file);
    *file = -1;
    return kolo_fail(
        KOLO_EINPUT,
        "%s: /%s is a link to other files or names, which a shard must not have; pack this split again", path,
        name);
}

/* HDF5 of a truncated file may refuse to open it, or open it happily when only images are cut off. */
int kolo_shard_open(const char *path, hid_t *file)
{
    if (!kolo_file_exists(path) && errno == ENOENT) return damaged(path, "there is no such file");
    int64_t bytes = kolo_file_size(path);
    if (bytes < 0) return (int)bytes;
    *file = kolo_h5_open(path, false);
    if (*file >= 0) return check_closed(path, file);
    const int fd = open(path, O_RDONLY | O_CLOEXEC); /* HDF5 does not say why */
    if (fd < 0) return kolo_file_fail("open", path);
    close(fd);
    if (bytes == 0) return damaged(path, "the file is empty");
    if (H5Fis_hdf5(path) <= 0)
        return kolo_fail(KOLO_EINPUT, "%s is not an HDF5 file; make shards with kolo-pack", path);
    return damaged(path, "HDF5 cannot open it: truncated or damaged");
}

static int check_length(const char *path, const kolo_shard_header *h, const kolo_shard_places *p)
{
    int64_t bytes = kolo_file_size(path);
    if (bytes < 0) return (int)bytes;
    if (h->bytes && p->data + h->bytes > (uint64_t)bytes)
        return kolo_fail(KOLO_EINPUT,
                         "%s is truncated: %lld bytes, its images end at byte %llu; copy it again or pack "
                         "this split again",
                         path, (long long)bytes, (unsigned long long)(p->data + h->bytes));
    return 0;
}

int kolo_shard_inspect(const char *path, kolo_shard_header *header, kolo_shard_places *places,
                       kolo_shard_arrays *arrays)
{
    kolo_shard_header h = {0};
    kolo_shard_places p = {0};
    hid_t file = -1;
    int rc;
    if (arrays) *arrays = (kolo_shard_arrays){0};
    kolo_h5_lock();
    KOLO_TRY_GOTO(rc, kolo_shard_open(path, &file));
    KOLO_TRY_GOTO(rc, read_header(file, path, &h));
    KOLO_TRY_GOTO(rc, locate(file, path, &h, &p));
    KOLO_TRY_GOTO(rc, check_length(path, &h, &p));
    if (arrays) KOLO_TRY_GOTO(rc, load_arrays(file, path, &h, arrays));
    if (arrays) KOLO_TRY_GOTO(rc, kolo_shard_check_sum(file, path, &h));
    if (header) *header = h;
    if (places) *places = p;
    rc = 0;
fail:
    if (rc < 0 && arrays) kolo_shard_arrays_free(arrays);
    if (file >= 0) H5Fclose(file);
    kolo_h5_unlock();
    return rc;
}

void kolo_shard_arrays_free(kolo_shard_arrays *arrays)
{
    free(arrays->labels);
    free(arrays->crcs);
    free(arrays->offsets);
    free(arrays->states);
    free(arrays->sizes);
    kolo_shard_free_tables(arrays);
    *arrays = (kolo_shard_arrays){0};
}

int kolo_shard_read_stats(const char *path, kolo_shard_stats *stats)
{
    static const char *const names[] = {"stats/mean", "stats/std", "stats/min", "stats/max", "stats/count"};
    double *values[] = {stats->mean, stats->std, stats->min, stats->max, stats->count};
    *stats = (kolo_shard_stats){0};
    hid_t file = -1;
    kolo_h5_lock();
    int rc = kolo_shard_open(path, &file);
    for (int i = 0; rc == 0 && i < 5; i++) {
        hsize_t n = 0;
        if (kolo_h5_shape(file, names[i], 1, &n) < 0 || n > 4 ||
            kolo_h5_get_array(file, names[i], H5T_NATIVE_DOUBLE, values[i]) < 0)
            rc = damaged(path, "/stats is missing or of another shape");
    }
    if (file >= 0) H5Fclose(file);
    kolo_h5_unlock();
    return rc;
}

/* One block: [classes] pointers, then the strings. */
static int read_names(hid_t file, int classes, char ***names)
{
    hsize_t n = 0;
    if (kolo_h5_shape(file, "classes/name", 1, &n) < 0 || n != (hsize_t)classes) return -1;
    hid_t set = H5Dopen2(file, "classes/name", H5P_DEFAULT), type = set < 0 ? -1 : H5Dget_type(set);
    size_t width = type < 0 ? 0 : H5Tget_size(type);
    const bool fits = type >= 0 && kolo_h5_is_plain(set) && H5Tget_class(type) == H5T_STRING &&
                      !H5Tis_variable_str(type) && width < 65536;
    char *stored = fits ? kolo_alloc(width * (size_t)classes + 1) : NULL;
    char **block = fits ? kolo_alloc((sizeof(char *) + width + 1) * (size_t)classes + 8) : NULL;
    int bad =
        stored && block && (classes == 0 || H5Dread(set, type, H5S_ALL, H5S_ALL, H5P_DEFAULT, stored) >= 0)
            ? 0
        : fits && !(stored && block) ? KOLO_ENOMEM
                                     : -1;
    for (int i = 0; !bad && i < classes; i++) {
        block[i] = (char *)(block + classes) + (width + 1) * (size_t)i;
        memcpy(block[i], stored + width * (size_t)i, width);
    }
    free(stored);
    if (type >= 0) H5Tclose(type);
    if (set >= 0) H5Dclose(set);
    if (bad) free(block);
    else *names = block;
    return bad;
}

int kolo_shard_read_classes(const char *path, int classes, char ***names, uint64_t *counts)
{
    hid_t file = -1;
    hsize_t n = 0;
    *names = NULL;
    kolo_h5_lock();
    int rc = kolo_shard_open(path, &file);
    const int read = rc == 0 ? read_names(file, classes, names) : 0;
    if (read == KOLO_ENOMEM) rc = read;
    if (rc == 0 &&
        (read < 0 || (counts && (kolo_h5_shape(file, "classes/count", 1, &n) < 0 || n != (hsize_t)classes ||
                                 kolo_h5_get_array(file, "classes/count", H5T_NATIVE_UINT64, counts) < 0)))) {
        free(*names);
        *names = NULL;
        rc = damaged(path, "/classes is missing or of another shape");
    }
    for (int c = 0; rc == 0 && c < classes; c++)
        if (has_control((*names)[c]))
            rc = kolo_fail(KOLO_EINPUT,
                           "%s: the name of class %d (`%s`) holds a line break or another control character; "
                           "rename it and pack again",
                           path, c, (*names)[c]);
    if (rc < 0) {
        free(*names);
        *names = NULL;
    }
    if (file >= 0) H5Fclose(file);
    kolo_h5_unlock();
    return rc;
}

int kolo_shard_read_class_ids(const char *path, int classes, int64_t *ids)
{
    hid_t file = -1;
    hsize_t n = 0;
    kolo_h5_lock();
    int rc = kolo_shard_open(path, &file);
    if (rc == 0 && (kolo_h5_shape(file, "classes/source_id", 1, &n) < 0 || n != (hsize_t)classes ||
                    (n && kolo_h5_get_array(file, "classes/source_id", H5T_NATIVE_INT64, ids) < 0)))
        rc = damaged(path, "/classes/source_id is missing or of another shape");
    if (file >= 0) H5Fclose(file);
    kolo_h5_unlock();
    return rc;
}

int kolo_shard_read_note(const char *path, const char *key, char *text, size_t size)
{
    hid_t file = -1, group = -1;
    text[0] = 0;
    kolo_h5_lock();
    int rc = kolo_shard_open(path, &file);
    if (rc == 0 && kolo_h5_has(file, "provenance")) group = H5Gopen2(file, "provenance", H5P_DEFAULT);
    if (group >= 0) {
        if (kolo_h5_get_text(group, key, text, size) < 0) text[0] = 0;
        kolo_plain(text); /* a command line, with whatever names of files it had */
        H5Gclose(group);
    }
    if (file >= 0) H5Fclose(file);
    kolo_h5_unlock();
    return rc;
}
