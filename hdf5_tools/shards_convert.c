/* Pictures in an array of another HDF5 file (chunked, compressed, of any number type) to a split of raw pictures. */
#include <inttypes.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/file.h"
#include "base/memory.h"
#include "base/philox.h"
#include "data/h5.h"
#include "data/sampler.h"
#include "kolo/error.h"
#include "shards_tally.h"
#include "shards_write.h"

#define CHUNK_CACHE ((size_t)256 << 20)

typedef struct convert {
    const char *path, *images, *labels, *layout, *shape, *scale_text, *classes;
    shards_target target;
    double scale; /* 0: not given */
    hid_t file, set;
    bool bytes;  /* stored as unsigned bytes, taken as they are */
    bool planes; /* (N, C, H, W) */
    int rank;
    hsize_t dims[4];
    int64_t count;
    int height, width, channels;
    float *row;     /* one sample as it is read; used under the lock of HDF5 */
    uint8_t *plane; /* likewise, of bytes */
    shards_tally tally;
    int64_t *order;
    char **names;
    int64_t name_count, name_room;
    int32_t *label;
    uint64_t *counts;
} convert;

/* ---- what the array looks like ---------------------------------------------------------------------------------- */

static int parse_shape(convert *c)
{
    char end;
    c->channels = 1;
    const int n = sscanf(c->shape, "%dx%dx%d%c", &c->height, &c->width, &c->channels, &end);
    if ((n == 2 || n == 3) && c->height > 0 && c->width > 0 && (c->channels == 1 || c->channels == 3)) return 0;
    return kolo_fail(KOLO_ECONFIG,
                     "convert: --shape %s: HEIGHTxWIDTH or HEIGHTxWIDTHxCHANNELS is wanted, with 1 or 3 channels",
                     c->shape);
}

static bool is_channels(hsize_t n) { return n == 1 || n == 3; }

static int choose_layout(convert *c)
{
    const hsize_t *d = c->dims;
    const bool ask = strcmp(c->layout, "auto") == 0;
    const bool last = c->rank == 4 && is_channels(d[3]), first = c->rank == 4 && is_channels(d[1]);
    if (ask && last && first)
        return kolo_fail(KOLO_EINPUT,
                         "%s: /%s may be (N, H, W, C) or (N, C, H, W); say which with --layout nhwc or --layout nchw",
                         c->path, c->images);
    c->planes = ask ? first : strcmp(c->layout, "nchw") == 0;
    if (c->planes ? !first : !last)
        return kolo_fail(
            KOLO_EINPUT,
            "%s: /%s has no 1 or 3 channels where they are looked for; --layout nhwc or nchw says where they are",
            c->path, c->images);
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
        return kolo_fail(KOLO_EINPUT, "%s: /%s has %d dimensions; pictures have 4 (or 3: gray, or 2 with --shape)",
                         c->path, c->images, c->rank);
    for (int i = 0; i < c->rank; i++)
        if (c->dims[i] < 1 || (i && c->dims[i] > 65500 * 3ull * 65500))
            return kolo_fail(KOLO_EINPUT, "%s: /%s has an empty or too large dimension", c->path, c->images);
    c->count = (int64_t)c->dims[0];
    if (c->shape) {
        KOLO_TRY(parse_shape(c));
        hsize_t have = 1;
        for (int i = 1; i < c->rank; i++) have *= c->dims[i];
        c->planes = strcmp(c->layout, "nchw") == 0;
        if (have != (hsize_t)c->height * (hsize_t)c->width * (hsize_t)c->channels)
            return kolo_fail(KOLO_EINPUT, "%s: a sample of /%s has %llu values, --shape %s wants %d", c->path,
                             c->images, (unsigned long long)have, c->shape, c->height * c->width * c->channels);
    } else if (c->rank == 2) {
        return kolo_fail(KOLO_EINPUT, "%s: /%s has 2 dimensions: --shape HEIGHTxWIDTH[xCHANNELS] says what a row is",
                         c->path, c->images);
    } else if (c->rank == 3) {
        c->height = (int)c->dims[1], c->width = (int)c->dims[2], c->channels = 1;
    } else {
        KOLO_TRY(choose_layout(c));
    }
    if (c->height > KOLO_PICTURE_MAX_SIDE || c->width > KOLO_PICTURE_MAX_SIDE ||
        (int64_t)c->height * c->width > KOLO_PICTURE_MAX_PIXELS)
        return kolo_fail(KOLO_EINPUT, "%s: pictures of %d x %d are too large", c->path, c->width, c->height);
    return 0;
}

static int check_numbers(convert *c)
{
    const hid_t type = H5Dget_type(c->set);
    const H5T_class_t kind = type < 0 ? H5T_NO_CLASS : H5Tget_class(type);
    c->bytes = kind == H5T_INTEGER && H5Tget_size(type) == 1 && H5Tget_sign(type) == H5T_SGN_NONE && c->scale == 0;
    if (type >= 0) H5Tclose(type);
    if (kind != H5T_INTEGER && kind != H5T_FLOAT)
        return kolo_fail(KOLO_EINPUT, "%s: /%s holds no numbers", c->path, c->images);
    if (kind == H5T_FLOAT && c->scale == 0)
        return kolo_fail(
            KOLO_ECONFIG,
            "%s: /%s holds fractions: --scale 255 for values from 0 to 1, --scale 1 for values from 0 to 255", c->path,
            c->images);
    if (c->scale == 0) c->scale = 1;
    return 0;
}

static int open_images(convert *c)
{
    if (!kolo_file_exists(c->path)) return kolo_fail(KOLO_EINPUT, "%s: no such file", c->path);
    c->file = kolo_h5_open(c->path, false);
    if (c->file < 0)
        return kolo_fail(KOLO_EINPUT, "%s: HDF5 cannot open it: another format, truncated or damaged", c->path);
    if (!kolo_h5_has(c->file, c->images))
        return kolo_fail(KOLO_EINPUT, "%s has no /%s; h5ls -r %s lists what it has", c->path, c->images, c->path);
    const hid_t access = H5Pcreate(H5P_DATASET_ACCESS); /* whole chunks stay in memory from sample to sample */
    if (access >= 0) H5Pset_chunk_cache(access, 12421, CHUNK_CACHE, .75);
    c->set = H5Dopen2(c->file, c->images, access < 0 ? H5P_DEFAULT : access);
    if (access >= 0) H5Pclose(access);
    if (c->set < 0) return kolo_fail(KOLO_EINPUT, "%s: /%s is no array", c->path, c->images);
    KOLO_TRY(find_shape(c));
    KOLO_TRY(check_numbers(c));
    const size_t n = (size_t)c->height * (size_t)c->width * (size_t)c->channels;
    c->row = kolo_alloc(sizeof *c->row * n);
    c->plane = kolo_alloc(n);
    return c->row && c->plane ? 0 : KOLO_ECONFIG;
}

/* ---- labels ----------------------------------------------------------------------------------------------------- */

static int add_name(void *context, const char *word)
{
    convert *c = context;
    KOLO_TRY(kolo_grow(&c->names, &c->name_room, c->name_count, sizeof *c->names));
    c->names[c->name_count] = kolo_strdup(word);
    return c->names[c->name_count++] ? 0 : KOLO_ECONFIG;
}

/* A number a sample, or a row of ones and zeros a sample. */
static int take_labels(convert *c, const int64_t *values, int64_t columns)
{
    int64_t most = -1;
    for (int64_t i = 0; i < c->count; i++) {
        int64_t label = columns == 1 ? values[i] : -1;
        for (int64_t k = 0; k < columns && columns > 1; k++) {
            const int64_t v = values[i * columns + k];
            if (v == 0) continue;
            if (v != 1 || label >= 0)
                return kolo_fail(KOLO_EINPUT, "%s: /%s, row %" PRId64 " is no label: one 1 among zeros is wanted",
                                 c->path, c->labels, i);
            label = k;
        }
        if (label < -1 || label >= 1 << 24)
            return kolo_fail(KOLO_EINPUT, "%s: /%s[%" PRId64 "] is %" PRId64 "; labels are from 0 on, -1: none",
                             c->path, c->labels, i, label);
        if (c->classes && label >= c->name_count)
            return kolo_fail(KOLO_EINPUT, "%s: /%s[%" PRId64 "] is %" PRId64 ", but --classes names %" PRId64, c->path,
                             c->labels, i, label, c->name_count);
        c->label[i] = (int32_t)label;
        most = label > most ? label : most;
    }
    char text[24];
    for (int64_t k = c->name_count; k <= most; k++) {
        snprintf(text, sizeof text, "%" PRId64, k);
        KOLO_TRY(add_name(c, text));
    }
    return 0;
}

static int read_labels(convert *c)
{
    c->label = kolo_alloc(sizeof *c->label * (size_t)c->count);
    if (!c->label) return KOLO_ECONFIG;
    for (int64_t i = 0; i < c->count; i++) c->label[i] = -1;
    if (!c->labels) return 0;
    hsize_t dims[2] = {0, 1};
    if (!kolo_h5_has(c->file, c->labels) ||
        (kolo_h5_shape(c->file, c->labels, 1, dims) < 0 && kolo_h5_shape(c->file, c->labels, 2, dims) < 0))
        return kolo_fail(KOLO_EINPUT, "%s has no /%s of one or two dimensions; h5ls -r %s lists what it has", c->path,
                         c->labels, c->path);
    if ((int64_t)dims[0] != c->count || dims[1] < 1 || dims[1] > 1 << 20)
        return kolo_fail(KOLO_EINPUT, "%s: /%s has %llu rows, /%s has %" PRId64 " pictures", c->path, c->labels,
                         (unsigned long long)dims[0], c->images, c->count);
    int64_t *values = kolo_alloc(sizeof *values * (size_t)c->count * dims[1]);
    if (!values) return KOLO_ECONFIG;
    int rc = kolo_h5_get_array(c->file, c->labels, H5T_NATIVE_INT64, values) == 0
                 ? 0
                 : kolo_fail(KOLO_EINPUT, "%s: /%s cannot be read as whole numbers", c->path, c->labels);
    if (rc == 0) rc = take_labels(c, values, (int64_t)dims[1]);
    free(values);
    return rc;
}

static int read_names(convert *c)
{
    if (!c->classes) return 0;
    if (!kolo_file_exists(c->classes)) return shards_each_word(c->classes, add_name, c);
    char *text = NULL;
    int rc = kolo_file_read(c->classes, &text, NULL);
    for (char *at = text, *end; rc == 0 && *at; at = end) {
        const size_t n = strcspn(at, "\r\n");
        end = at + n + strspn(at + n, "\r\n");
        at[n] = 0;
        if (n) rc = add_name(c, at);
    }
    free(text);
    return rc;
}

/* ---- pictures --------------------------------------------------------------------------------------------------- */

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
    return bad ? kolo_fail(KOLO_EINPUT, "%s: /%s[%" PRId64 "] cannot be read: damaged, or a filter is missing", c->path,
                           c->images, from)
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
                             c->path, c->images, from, (double)c->row[i], c->scale);
        c->plane[i] = (uint8_t)r;
    }
    return 0;
}

static int load_locked(convert *c, int64_t from, uint8_t *data)
{
    const size_t pixels = (size_t)c->height * (size_t)c->width, n = pixels * (size_t)c->channels;
    KOLO_TRY(c->bytes ? read_row(c, from, c->plane, H5T_NATIVE_UINT8) : read_row(c, from, c->row, H5T_NATIVE_FLOAT));
    if (!c->bytes) KOLO_TRY(round_row(c, from, n));
    if (!c->planes) memcpy(data, c->plane, n);
    for (size_t i = 0; i < n && c->planes; i++) data[i % pixels * (size_t)c->channels + i / pixels] = c->plane[i];
    shards_tally_add(&c->tally, data, pixels, c->channels);
    return 0;
}

static int load(const void *context, int64_t sample, uint8_t *data)
{
    convert *c = (convert *)context;
    kolo_h5_lock();
    const int rc = load_locked(c, c->order[sample], data);
    kolo_h5_unlock();
    return rc;
}

static void measure(const void *context, kolo_shard_stats *stats)
{
    const convert *c = context;
    shards_tally_stats(&c->tally, c->channels, stats);
}

typedef struct arrays {
    int32_t *labels;
    uint64_t *offsets, *source_offsets;
    uint8_t *states;
    uint16_t (*sizes)[2];
    char *sources;
} arrays;

static int fill_arrays(const convert *c, arrays *a)
{
    const size_t n = (size_t)c->count, bytes = (size_t)c->height * (size_t)c->width * (size_t)c->channels;
    size_t length = 0;
    *a = (arrays){.labels = kolo_alloc(sizeof *a->labels * n),
                  .offsets = kolo_alloc(sizeof *a->offsets * (n + 1)),
                  .source_offsets = kolo_alloc(sizeof *a->source_offsets * (n + 1)),
                  .states = kolo_alloc(n),
                  .sizes = kolo_alloc(sizeof *a->sizes * n)};
    FILE *out = open_memstream(&a->sources, &length);
    if (!out || !a->labels || !a->offsets || !a->source_offsets || !a->states || !a->sizes) {
        if (out) fclose(out);
        return kolo_fail(KOLO_ECONFIG, "out of memory for the tables of %" PRId64 " pictures", c->count);
    }
    for (size_t i = 0; i < n; i++) {
        a->labels[i] = c->label[c->order[i]];
        a->offsets[i + 1] = a->offsets[i] + bytes;
        a->states[i] = KOLO_SAMPLE_OK;
        a->sizes[i][0] = (uint16_t)c->height, a->sizes[i][1] = (uint16_t)c->width;
        const int put = fprintf(out, "%s[%" PRId64 "]", c->images, c->order[i]);
        a->source_offsets[i + 1] = a->source_offsets[i] + (uint64_t)put;
        if (a->labels[i] >= 0) c->counts[a->labels[i]]++;
    }
    return fclose(out) == 0 ? 0 : kolo_fail(KOLO_ECONFIG, "out of memory for sources");
}

static int write_split(convert *c)
{
    arrays a = {0};
    c->order = kolo_alloc(sizeof *c->order * (size_t)c->count);
    c->counts = kolo_alloc(sizeof *c->counts * (size_t)c->name_count + 8);
    if (!c->order || !c->counts) return KOLO_ECONFIG;
    for (int64_t i = 0; i < c->count; i++) c->order[i] = i;
    if (c->target.seed)
        kolo_shuffle(kolo_random_key((uint64_t)c->target.seed, KOLO_RANDOM_PACK), 0, c->count, c->order);
    int rc = fill_arrays(c, &a);
    char *command = kolo_format(
        "convert file=%s images=%s labels=%s layout=%s shape=%s scale=%g shards=%" PRId64 " reshuffle=%" PRId64,
        strrchr(c->path, '/') ? strrchr(c->path, '/') + 1 : c->path, c->images, c->labels ? c->labels : "",
        c->planes ? "nchw" : "nhwc", c->shape ? c->shape : "", c->scale, c->target.shards, c->target.seed);
    const shards_plan plan = {.target = c->target,
                              .task = "classification",
                              .encoding = KOLO_ENCODING_RAW,
                              .channels = c->channels,
                              .height = c->height,
                              .width = c->width,
                              .count = c->count,
                              .classes = (int)c->name_count,
                              .class_names = c->names,
                              .class_counts = c->counts,
                              .pack_seed = (uint64_t)c->target.seed,
                              .command = command,
                              .from = "",
                              .packed = "",
                              .rejects = "",
                              .labels = a.labels,
                              .ids = c->order,
                              .offsets = a.offsets,
                              .states = a.states,
                              .sizes = (const uint16_t(*)[2])a.sizes,
                              .orig_sizes = (const uint16_t(*)[2])a.sizes,
                              .sources = a.sources,
                              .source_offsets = a.source_offsets,
                              .load = load,
                              .measure = measure,
                              .context = c};
    if (rc == 0) rc = command ? shards_write(&plan) : KOLO_ECONFIG;
    free(command);
    free(a.labels), free(a.offsets), free(a.source_offsets), free(a.states), free(a.sizes), free(a.sources);
    return rc;
}

static int read_words(convert *c, int argc, char **argv)
{
    const shards_option options[] = {
        {"--images", "KEY", "the array of pictures: (N,H,W,C), (N,C,H,W) or (N,H,W)", SHARDS_TEXT, &c->images, 0, 0},
        {"--labels", "KEY", "the array of labels: a number a picture, or rows of one 1 among zeros", SHARDS_TEXT,
         &c->labels, 0, 0},
        {"--layout", "nhwc|nchw", "where the channels are [where there are 1 or 3]", SHARDS_TEXT, &c->layout, 0, 0},
        {"--shape", "HxW[xC]", "what a flat row of values is (CxHxW of it with --layout nchw)", SHARDS_TEXT, &c->shape,
         0, 0},
        {"--scale", "S", "255 for fractions from 0 to 1", SHARDS_TEXT, &c->scale_text, 0, 0},
        {"--classes", "A,B|FILE", "their names, from label 0 on [0, 1, 2, ...]", SHARDS_TEXT, &c->classes, 0, 0},
        SHARDS_TARGET_OPTIONS(&c->target)};
    const shards_line line = {"convert FILE.h5 --images KEY [--labels KEY] --out NEW",
                              "Pictures in an array of any HDF5 file, also chunked, compressed, or of other numbers "
                              "than bytes, to a split of raw\n"
                              "pictures. Values that are no bytes after --scale are an error.",
                              options,
                              (int)(sizeof options / sizeof *options),
                              1,
                              1,
                              &c->path,
                              NULL};
    const int rc = shards_read(&line, argc, argv);
    if (rc) return rc;
    if (!c->images)
        return kolo_fail(KOLO_ECONFIG, "convert: --images KEY is wanted; h5ls -r %s lists the arrays", c->path);
    if (strcmp(c->layout, "auto") != 0 && strcmp(c->layout, "nhwc") != 0 && strcmp(c->layout, "nchw") != 0)
        return kolo_fail(KOLO_ECONFIG, "convert: --layout %s: nhwc or nchw is wanted", c->layout);
    char *end = "";
    if (c->scale_text) c->scale = strtod(c->scale_text, &end);
    if (c->scale_text && (*end || !(c->scale > 0) || c->scale > 65536))
        return kolo_fail(KOLO_ECONFIG, "convert: --scale %s: a number above 0 is wanted", c->scale_text);
    if (!c->target.name) c->target.name = "converted";
    if (!c->target.split) c->target.split = "train";
    return shards_check_target(&c->target, "convert");
}

int shards_convert(int argc, char **argv)
{
    convert c = {.layout = "auto", .file = -1, .set = -1};
    int rc = read_words(&c, argc, argv);
    if (rc) return rc;
    kolo_h5_lock();
    rc = open_images(&c);
    if (rc == 0) rc = read_names(&c);
    if (rc == 0) rc = read_labels(&c);
    kolo_h5_unlock();
    if (rc == 0) rc = write_split(&c);
    kolo_h5_lock();
    if (c.set >= 0) H5Dclose(c.set);
    if (c.file >= 0) H5Fclose(c.file);
    kolo_h5_unlock();
    for (int64_t k = 0; k < c.name_count; k++) free(c.names[k]);
    free(c.names);
    free(c.row), free(c.plane), free(c.order), free(c.label), free(c.counts);
    return rc;
}
