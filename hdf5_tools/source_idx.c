/* IDX (MNIST, FashionMNIST, ...): big-endian header, then the array; plain or gzip. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

#include <zlib.h>

#include "base/file.h"
#include "base/memory.h"
#include "kolo/error.h"
#include "pack.h"

typedef struct idx {
    uint8_t *images, *labels; /* whole files, unpacked */
} idx;

/* gzopen reads plain files as they are. */
static int read_all(const char *path, uint8_t **data, size_t *bytes)
{
    gzFile file = gzopen(path, "rb");
    int64_t capacity = 0, length = 0;
    *data = NULL;
    if (!file) return kolo_fail(kolo_file_exists(path) ? KOLO_EIO : KOLO_EINPUT, "%s: cannot open", path);
    gzbuffer(file, 1 << 18);
    for (;;) {
        int rc = kolo_grow(data, &capacity, length + (1 << 20), 1);
        int got = rc < 0 ? -1 : gzread(file, *data + length, 1 << 20);
        if (got < 0) {
            int code;
            const char *why = gzerror(file, &code);
            if (rc == 0) rc = kolo_fail(KOLO_EINPUT, "%s: %s; fetch the file again", path, code == Z_ERRNO ? "read error" : why);
            gzclose(file);
            return rc;
        }
        if (got == 0) break;
        length += got;
    }
    const int closed = gzclose(file);
    if (closed == Z_BUF_ERROR) return kolo_fail(KOLO_EINPUT, "%s: the gzip stream is cut off; fetch the file again", path);
    *bytes = (size_t)length;
    return 0;
}

static uint32_t big32(const uint8_t *p) { return (uint32_t)p[0] << 24 | (uint32_t)p[1] << 16 | (uint32_t)p[2] << 8 | p[3]; }

/* u8 array with `axes` sizes; the file must be exactly as long as they say. */
static int check(const char *path, const uint8_t *data, size_t bytes, int axes, uint32_t *sizes)
{
    uint64_t want = 4 + 4 * (uint64_t)axes, elements = 1;
    if (bytes < want || data[0] || data[1] || data[2] != 8 || data[3] != axes)
        return kolo_fail(KOLO_EINPUT, "%s is not an IDX file of unsigned bytes with %d axes (first bytes 00 00 08 %02x)", path, axes, axes);
    for (int i = 0; i < axes; i++) {
        sizes[i] = big32(data + 4 + 4 * i);
        elements *= sizes[i] ? sizes[i] : 1;
        if (sizes[i] == 0 || elements > 1ull << 40) return kolo_fail(KOLO_EINPUT, "%s: sizes in the header are out of range", path);
    }
    want += elements;
    if (bytes == want) return 0;
    return kolo_fail(KOLO_EINPUT, "%s: %zu bytes, the header promises %llu; fetch the file again", path, bytes, (unsigned long long)want);
}

/* PREFIX-images-idx3-ubyte[.gz] of the split, in either of the common spellings. */
static char *find_in(const char *folder, const char *prefix, const char *what, int axes)
{
    static const char *const forms[] = {"%s/%s-%s-idx%d-ubyte.gz", "%s/%s-%s-idx%d-ubyte", "%s/%s-%s.idx%d-ubyte", "%s/%s-%s.idx%d-ubyte.gz"};
    for (int i = 0; i < 4; i++) {
        char path[4096];
        const int n = snprintf(path, sizeof path, forms[i], folder, prefix, what, axes);
        if (n > 0 && n < (int)sizeof path && kolo_file_exists(path)) return kolo_strdup(path);
    }
    kolo_fail(KOLO_EINPUT, "%s holds no %s-%s-idx%d-ubyte[.gz]", folder, prefix, what, axes);
    return NULL;
}

static int find_files(const pack_options *o, char **images, char **labels)
{
    struct stat info;
    if (o->in_count == 1 && stat(o->in[0], &info) == 0 && S_ISDIR(info.st_mode)) {
        const char *prefix = strcmp(o->split, "train") == 0 ? "train" : "t10k";
        *images = find_in(o->in[0], prefix, "images", 3);
        *labels = *images ? find_in(o->in[0], prefix, "labels", 1) : NULL;
        return *labels ? 0 : KOLO_EINPUT;
    }
    if (o->in_count == 1 && !kolo_file_exists(o->in[0])) return kolo_fail(KOLO_EINPUT, "--in %s: no such file or folder", o->in[0]);
    if (o->in_count != 2) return kolo_fail(KOLO_ECONFIG, "--source mnist-idx takes a folder, or two files: --in IMAGES --in LABELS");
    *images = kolo_strdup(o->in[0]);
    *labels = kolo_strdup(o->in[1]);
    return *images && *labels ? 0 : KOLO_ECONFIG;
}

static int add_all(source *s, const idx *x, int64_t n, const char *name)
{
    int classes = 0;
    int32_t label[256];
    char text[64];
    for (int64_t i = 0; i < n; i++)
        if (x->labels[8 + i] >= classes) classes = x->labels[8 + i] + 1;
    for (int c = 0; c < classes; c++) {
        snprintf(text, sizeof text, "%d", c);
        KOLO_TRY(source_find_class(s, text, c, &label[c]));
    }
    for (int64_t i = 0; i < n; i++) {
        snprintf(text, sizeof text, "%.40s/%06lld", name, (long long)i);
        KOLO_TRY(source_add(s, label[x->labels[8 + i]], text, -1));
    }
    return 0;
}

static int open_files(source *s, idx *x, const char *images, const char *labels)
{
    size_t image_bytes = 0, label_bytes = 0;
    uint32_t sizes[3] = {0}, n = 0;
    KOLO_TRY(read_all(images, &x->images, &image_bytes));
    KOLO_TRY(read_all(labels, &x->labels, &label_bytes));
    if (image_bytes >= 4 && label_bytes >= 4 && x->images[3] == 1 && x->labels[3] == 3) { /* given the other way round */
        uint8_t *swap = x->images;
        size_t swap_bytes = image_bytes;
        const char *swap_path = images;
        x->images = x->labels, image_bytes = label_bytes, images = labels;
        x->labels = swap, label_bytes = swap_bytes, labels = swap_path;
    }
    KOLO_TRY(check(images, x->images, image_bytes, 3, sizes));
    KOLO_TRY(check(labels, x->labels, label_bytes, 1, &n));
    if (n != sizes[0]) return kolo_fail(KOLO_EINPUT, "%s has %u pictures, %s %u labels", images, sizes[0], labels, n);
    s->channels = 1;
    s->height = (int)sizes[1];
    s->width = (int)sizes[2];
    if (s->height > KOLO_PICTURE_MAX_SIDE || s->width > KOLO_PICTURE_MAX_SIDE) return kolo_fail(KOLO_EINPUT, "%s: pictures too large", images);
    const char *slash = strrchr(images, '/');
    return add_all(s, x, n, slash ? slash + 1 : images);
}

static int open_idx(source *s, const pack_options *o)
{
    char *images = NULL, *labels = NULL;
    idx *x = s->state = kolo_alloc(sizeof *x);
    int rc = x ? find_files(o, &images, &labels) : KOLO_ECONFIG;
    if (rc == 0) rc = open_files(s, x, images, labels);
    free(images);
    free(labels);
    return rc;
}

static int load(const source *s, int64_t i, source_buffer *buffer)
{
    const idx *x = s->state;
    const size_t bytes = (size_t)s->height * (size_t)s->width;
    KOLO_TRY(source_grow(buffer, bytes));
    memcpy(buffer->data, x->images + 16 + (size_t)i * bytes, bytes);
    buffer->height = s->height, buffer->width = s->width, buffer->channels = 1;
    return 0;
}

static void close_idx(source *s)
{
    idx *x = s->state;
    if (!x) return;
    free(x->images);
    free(x->labels);
    free(x);
    s->state = NULL;
}

const source_kind source_idx = {.name = "mnist-idx",
                                .help = "IDX files, also .gz: a folder, or images and labels",
                                .data_name = "mnist",
                                .pixels = true,
                                .open = open_idx,
                                .load = load,
                                .close = close_idx};
