/* convert: images in an array of another HDF5 file (chunked, compressed, of any number type),
 * a .beton or an LMDB. */
#include <inttypes.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/file.h"
#include "base/memory.h"
#include "data/shard/h5.h"
#include "kolo/error.h"
#include "readers/lmdb_file.h"
#include "shards/foreign.h"
#include "shards/tally.h"

#define CHUNK_CACHE ((size_t)256 << 20)

typedef struct convert {
    shards_foreign f;
    const char *layout, *shape, *scale_text;
    double scale; /* 0: not given */
    hid_t file, set;
    bool bytes;  /* stored as unsigned bytes, taken as they are */
    bool planes; /* (N, C, H, W) */
    int rank;
    hsize_t dims[4];
    int height, width, channels;
    float *row;     /* one sample as it is read; used under the lock of HDF5 */
    uint8_t *plane; /* likewise, of bytes */
    shards_tally tally;
} convert;

/* ---- what the array looks like ------------------------------------------------------------------------- */

static int parse_shape(convert *c)
{
    char end;
    c->channels = 1;
    const int n = sscanf(c->shape, "%dx%dx%d%c", &c->height, &c->width, &c->channels, &end);
    if ((n == 2 || n == 3) && c->height > 0 && c->width > 0 && (c->channels == 1 || c->channels == 3))
        return 0;
    return kolo_fail(
        KOLO_ECONFIG,
        "convert: --shape %s: must be HEIGHTxWIDTH or HEIGHTxWIDTHxCHANNELS, with 1 or 3 channels", c->shape);
}

static bool is_channels(hsize_t n) { return n == 1 || n == 3; }

static int choose_layout(convert *c)
{
    const hsize_t *d = c->dims;
    const bool ask = strcmp(c->layout, "auto") == 0;
    const bool last = c->rank == 4 && is_channels(d[3]), first = c->rank == 4 && is_channels(d[1]);
    if (ask && last && first)
        return kolo_fail(
            KOLO_EINPUT,
            "%s: /%s may be (N, H, W, C) or (N, C, H, W); say which with --layout nhwc or --layout nchw",
            c->f.path, c->f.images);
    c->planes = ask ? first : strcmp(c->layout, "nchw") == 0;
    if (c->planes ? !first : !last)
        return kolo_fail(
            KOLO_EINPUT,
            "%s: /%s has no 1 or 3 channels where --layout places them; give --layout nhwc or nchw",
            c->f.path, c->f.images);
    c->channels = (int)d[c->planes ? 1 : 3];
    c->height = (int)d[c->planes ? 2 : 1], c->width = (int)d[c->planes ? 3 : 2];
    return 0;
}

static int find_shape(convert *c)
{
    const hid_t space = H5Dget_space(c->set);
    c->rank = space < 0 ? -1 : H5Sget_simple_extent_ndims(space);
    if (c->rank >= 2 && c->rank <= 4) H5Sget_simple_extent_dims(space, c->dims, NULL);
    if (space >= 0) H5Sclose(space);
    if (c->rank < 2 || c->rank > 4)
        return kolo_fail(KOLO_EINPUT,
                         "%s: /%s has %d dimensions; images have 4 (or 3: gray, or 2 with --shape)",
                         c->f.path, c->f.images, c->rank);
    for (int i = 0; i < c->rank; i++)
        if (c->dims[i] < 1 || (i && c->dims[i] > 65500 * 3ull * 65500))
            return kolo_fail(KOLO_EINPUT, "%s: /%s has an empty or too large dimension", c->f.path,
                             c->f.images);
    c->f.count = (int64_t)c->dims[0];
    if (c->shape) {
        KOLO_TRY(parse_shape(c));
        hsize_t have = 1;
        for (int i = 1; i < c->rank; i++) have *= c->dims[i];
        c->planes = strcmp(c->layout, "nchw") == 0;
        if (have != (hsize_t)c->height * (hsize_t)c->width * (hsize_t)c->channels)
            return kolo_fail(KOLO_EINPUT, "%s: a sample of /%s has %llu values, --shape %s wants %d",
                             c->f.path, c->f.images, (unsigned long long)have, c->shape,
                             c->height * c->width * c->channels);
    } else if (c->rank == 2) {
        return kolo_fail(KOLO_EINPUT,
                         "%s: /%s has 2 dimensions: --shape HEIGHTxWIDTH[xCHANNELS] says what a row is",
                         c->f.path, c->f.images);
    } else if (c->rank == 3) {
        c->height = (int)c->dims[1], c->width = (int)c->dims[2], c->channels = 1;
    } else {
        KOLO_TRY(choose_layout(c));
    }
    if (c->height > KOLO_IMAGE_MAX_SIDE || c->width > KOLO_IMAGE_MAX_SIDE ||
        (int64_t)c->height * c->width > KOLO_IMAGE_MAX_PIXELS)
        return kolo_fail(KOLO_EINPUT, "%s: images of %d x %d are too large", c->f.path, c->width, c->height);
    return 0;
}

/* The element type of the images: integer or float; sets bytes and the default of scale. */
static int check_element_type(convert *c)
{
    const hid_t type = H5Dget_type(c->set);
    const H5T_class_t kind = type < 0 ? H5T_NO_CLASS : H5Tget_class(type);
    c->bytes =
        kind == H5T_INTEGER && H5Tget_size(type) == 1 && H5Tget_sign(type) == H5T_SGN_NONE && c->scale == 0;
    if (type >= 0) H5Tclose(type);
    if (kind != H5T_INTEGER && kind != H5T_FLOAT)
        return kolo_fail(KOLO_EINPUT, "%s: /%s holds no numbers", c->f.path, c->f.images);
    if (kind == H5T_FLOAT && c->scale == 0)
        return kolo_fail(
            KOLO_ECONFIG,
            "%s: /%s holds fractions: --scale 255 for values from 0 to 1, --scale 1 for values from 0 to 255",
            c->f.path, c->f.images);
    if (c->scale == 0) c->scale = 1;
    return 0;
}

static int open_images(convert *c)
{
    if (!kolo_file_exists(c->f.path)) return kolo_fail(KOLO_EINPUT, "%s: no such file", c->f.path);
    c->file = kolo_h5_open(c->f.path, false);
    if (c->file < 0)
        return kolo_fail(KOLO_EINPUT, "%s: HDF5 cannot open it: another format, truncated or damaged",
                         c->f.path);
    if (!kolo_h5_has(c->file, c->f.images))
        return kolo_fail(KOLO_EINPUT, "%s has no /%s; h5ls -r %s lists what it has", c->f.path, c->f.images,
                         c->f.path);
    /* whole chunks stay in memory from sample to sample */
    const hid_t access = H5Pcreate(H5P_DATASET_ACCESS);
    if (access >= 0) H5Pset_chunk_cache(access, 12421, CHUNK_CACHE, .75);
    c->set = H5Dopen2(c->file, c->f.images, access < 0 ? H5P_DEFAULT : access);
    if (access >= 0) H5Pclose(access);
    if (c->set < 0) return kolo_fail(KOLO_EINPUT, "%s: /%s is no array", c->f.path, c->f.images);
    KOLO_TRY(find_shape(c));
    KOLO_TRY(check_element_type(c));
    const size_t n = (size_t)c->height * (size_t)c->width * (size_t)c->channels;
    c->row = kolo_alloc(sizeof *c->row * n);
    c->plane = kolo_alloc(n);
    return c->row && c->plane ? 0 : KOLO_ENOMEM;
}

static int read_labels(convert *c)
{
    if (!c->f.labels) return shards_foreign_labels(&c->f, NULL, 1);
    hsize_t dims[2] = {0, 1};
    if (!kolo_h5_has(c->file, c->f.labels) || (kolo_h5_shape(c->file, c->f.labels, 1, dims) < 0 &&
                                               kolo_h5_shape(c->file, c->f.labels, 2, dims) < 0))
        return kolo_fail(KOLO_EINPUT, "%s has no /%s of one or two dimensions; h5ls -r %s lists what it has",
                         c->f.path, c->f.labels, c->f.path);
    if ((int64_t)dims[0] != c->f.count || dims[1] < 1 || dims[1] > 1 << 20)
        return kolo_fail(KOLO_EINPUT, "%s: /%s has %llu rows, /%s has %" PRId64 " images", c->f.path,
                         c->f.labels, (unsigned long long)dims[0], c->f.images, c->f.count);
    int64_t *values = kolo_alloc(sizeof *values * (size_t)c->f.count * dims[1]);
    if (!values) return KOLO_ENOMEM;
    int rc = kolo_h5_get_any(c->file, c->f.labels, H5T_NATIVE_INT64, values) == 0
                 ? 0
                 : kolo_fail(KOLO_EINPUT, "%s: /%s cannot be read as whole numbers", c->f.path, c->f.labels);
    if (rc == 0) rc = shards_foreign_labels(&c->f, values, (int64_t)dims[1]);
    free(values);
    return rc;
}

/* ---- images ------------------------------------------------------------------------------------------ */

static int read_row(const convert *c, int64_t from, void *to, hid_t type)
{
    hsize_t start[4] = {(hsize_t)from}, count[4] = {1};
    for (int i = 1; i < c->rank; i++) count[i] = c->dims[i];
    const hid_t space = H5Dget_space(c->set), memory = H5Screate_simple(c->rank, count, NULL);
    const bool bad = space < 0 || memory < 0 ||
                     H5Sselect_hyperslab(space, H5S_SELECT_SET, start, NULL, count, NULL) < 0 ||
                     H5Dread(c->set, type, memory, space, H5P_DEFAULT, to) < 0;
    if (space >= 0) H5Sclose(space);
    if (memory >= 0) H5Sclose(memory);
    return bad ? kolo_fail(KOLO_EINPUT,
                           "%s: /%s[%" PRId64 "] cannot be read: damaged, or a filter is missing", c->f.path,
                           c->f.images, from)
               : 0;
}

static int round_row(convert *c, int64_t from, size_t n)
{
    for (size_t i = 0; i < n; i++) {
        const double v = (double)c->row[i] * c->scale, r = floor(v + .5);
        if (!(r >= 0 && r <= 255))
            return kolo_fail(KOLO_EINPUT,
                             "%s: /%s[%" PRId64
                             "] has the value %g, times --scale %g: not from 0 to 255; another --scale?",
                             c->f.path, c->f.images, from, (double)c->row[i], c->scale);
        c->plane[i] = (uint8_t)r;
    }
    return 0;
}

static int load_locked(convert *c, int64_t from, uint8_t *data)
{
    const size_t pixels = (size_t)c->height * (size_t)c->width, n = pixels * (size_t)c->channels;
    KOLO_TRY(c->bytes ? read_row(c, from, c->plane, H5T_NATIVE_UINT8)
                      : read_row(c, from, c->row, H5T_NATIVE_FLOAT));
    if (!c->bytes) KOLO_TRY(round_row(c, from, n));
    if (!c->planes) memcpy(data, c->plane, n);
    for (size_t i = 0; i < n && c->planes; i++)
        data[i % pixels * (size_t)c->channels + i / pixels] = c->plane[i];
    shards_tally_add(&c->tally, data, pixels, c->channels);
    return 0;
}

static int convert_load(const void *context, int64_t sample, uint8_t *data)
{
    convert *c = (convert *)context;
    kolo_h5_lock();
    const int rc = load_locked(c, c->f.order[sample], data);
    kolo_h5_unlock();
    return rc;
}

static void convert_measure(const void *context, kolo_shard_stats *stats)
{
    const convert *c = context;
    shards_tally_stats(&c->tally, c->channels, stats);
}

static uint64_t convert_describe(const void *context, int64_t image, uint16_t size[2])
{
    const convert *c = context;
    (void)image;
    size[0] = (uint16_t)c->height, size[1] = (uint16_t)c->width;
    return (uint64_t)c->height * (uint64_t)c->width * (uint64_t)c->channels;
}

static int write_split(convert *c)
{
    const shards_foreign *f = &c->f;
    char *command = kolo_format(
        "convert file=%s images=%s labels=%s layout=%s shape=%s scale=%g shards=%" PRId64
        " reshuffle=%" PRId64,
        strrchr(f->path, '/') ? strrchr(f->path, '/') + 1 : f->path, f->images, f->labels ? f->labels : "",
        c->planes ? "nchw" : "nhwc", c->shape ? c->shape : "", c->scale, f->target.shards, f->target.seed);
    const shards_foreign_form form = {.command = command,
                                      .encoding = KOLO_ENCODING_RAW,
                                      .channels = c->channels,
                                      .height = c->height,
                                      .width = c->width,
                                      .describe = convert_describe,
                                      .load = convert_load,
                                      .measure = convert_measure,
                                      .context = c};
    const int rc = command ? shards_foreign_write(&c->f, &form) : KOLO_ENOMEM;
    free(command);
    return rc;
}

static int convert_h5(convert *c)
{
    kolo_h5_lock();
    int rc = open_images(c);
    if (rc == 0) rc = shards_foreign_classes(&c->f);
    if (rc == 0) rc = read_labels(c);
    kolo_h5_unlock();
    if (rc == 0) rc = write_split(c);
    kolo_h5_lock();
    if (c->set >= 0) H5Dclose(c->set);
    if (c->file >= 0) H5Fclose(c->file);
    kolo_h5_unlock();
    free(c->row);
    free(c->plane);
    return rc;
}

static int convert_read_words(convert *c, int argc, char **argv)
{
    const shards_option options[] = {
        {"--images", "KEY", "the array of images: (N,H,W,C), (N,C,H,W) or (N,H,W)", SHARDS_TEXT, &c->f.images,
         0, 0},
        {"--labels", "KEY|FILE",
         "the array of labels: a number an image, or rows of one 1 among zeros; of LMDB a file of rows `key "
         "TAB label` [the folder in the key], or the names of Datums' labels, one a line",
         SHARDS_TEXT, &c->f.labels, 0, 0},
        {"--layout", "nhwc|nchw", "where the channels are [where there are 1 or 3]", SHARDS_TEXT, &c->layout,
         0, 0},
        {"--shape", "HxW[xC]", "what a flat row of values is (CxHxW of it with --layout nchw)", SHARDS_TEXT,
         &c->shape, 0, 0},
        {"--scale", "S", "255 for fractions from 0 to 1", SHARDS_TEXT, &c->scale_text, 0, 0},
        {"--classes", "A,B|FILE", "their names, from label 0 on [0, 1, 2, ...]", SHARDS_TEXT, &c->f.classes,
         0, 0},
        SHARDS_TARGET_OPTIONS(&c->f.target)};
    const shards_line line = {"convert FILE --out NEW [--images KEY] [--labels KEY|FILE]",
                              "FILE.h5: images in an array of any HDF5 file, also chunked, compressed, or "
                              "of other numbers than bytes, to "
                              "raw\n"
                              "images; values that are no bytes after --scale are an error. FILE.beton "
                              "(FFCV, version 2): its images as "
                              "they\n"
                              "are stored, JPEG files with their bytes; KEY is a field, the first that fits "
                              "where it is not given. LMDB, a\n"
                              "folder or file: image files (LSUN), or Caffe's Datums with their labels, "
                              "likewise; kolo-pack --source lmdb "
                              "does\n"
                              "the same and resizes, encodes and chooses.",
                              options,
                              (int)(sizeof options / sizeof *options),
                              1,
                              1,
                              &c->f.path,
                              NULL};
    const int rc = shards_read(&line, argc, argv);
    if (rc) return rc;
    if (!kolo_file_exists(c->f.path)) return kolo_fail(KOLO_EINPUT, "%s: there is no such file", c->f.path);
    const bool beton = shards_ends_with(c->f.path, ".beton"), lmdb = lmdb_is_one(c->f.path);
    if ((beton || lmdb) && (c->shape || c->scale_text || strcmp(c->layout, "auto") != 0))
        return kolo_fail(KOLO_ECONFIG, "convert: --layout, --shape and --scale are for HDF5 files");
    if (lmdb && (c->f.images || c->f.classes))
        return kolo_fail(KOLO_ECONFIG, "convert: --images and --classes are not for LMDB");
    if (!c->f.images && !beton && !lmdb)
        return kolo_fail(KOLO_ECONFIG, "convert: --images KEY is missing; h5ls -r %s lists the arrays",
                         c->f.path);
    if (strcmp(c->layout, "auto") != 0 && strcmp(c->layout, "nhwc") != 0 && strcmp(c->layout, "nchw") != 0)
        return kolo_fail(KOLO_ECONFIG, "convert: --layout %s: must be nhwc or nchw", c->layout);
    char *end = "";
    if (c->scale_text) c->scale = strtod(c->scale_text, &end);
    if (c->scale_text && (*end || !(c->scale > 0) || c->scale > 65536))
        return kolo_fail(KOLO_ECONFIG, "convert: --scale %s: must be a number above 0", c->scale_text);
    if (!c->f.target.name) c->f.target.name = "converted";
    if (!c->f.target.split) c->f.target.split = "train";
    return shards_check_target(&c->f.target, "convert");
}

int shards_convert(int argc, char **argv)
{
    convert c = {.layout = "auto", .file = -1, .set = -1};
    int rc = convert_read_words(&c, argc, argv);
    if (rc) return rc;
    rc = shards_ends_with(c.f.path, ".beton") ? shards_convert_beton(&c.f)
         : lmdb_is_one(c.f.path)              ? shards_convert_lmdb(&c.f)
                                              : convert_h5(&c);
    shards_foreign_free(&c.f);
    return rc;
}
