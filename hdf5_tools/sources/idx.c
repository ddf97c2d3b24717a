/* IDX (MNIST, FashionMNIST, ...): big-endian header, then the array; plain or gzip. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

#include <zlib.h>

#include "base/file.h"
#include "base/memory.h"
#include "data/image/image.h"
#include "kolo/error.h"
#include "sources/options.h"

typedef struct idx {
    uint8_t *images, *labels; /* unpacked, without their headers */
} idx;

/* One file while it is read. */
typedef struct idx_file {
    const char *path;
    gzFile gz; /* reads plain files as they are */
    int axes;
    uint32_t sizes[3];
    uint64_t bytes; /* that the header promises behind it */
} idx_file;

static uint32_t big32(const uint8_t *p)
{
    return (uint32_t)p[0] << 24 | (uint32_t)p[1] << 16 | (uint32_t)p[2] << 8 | p[3];
}

/* Up to `bytes`; *got: how many there were. */
static int read_some(idx_file *f, uint8_t *to, uint64_t bytes, uint64_t *got)
{
    for (*got = 0; *got < bytes;) {
        const unsigned step = bytes - *got < 1 << 20 ? (unsigned)(bytes - *got) : 1 << 20;
        const int n = gzread(f->gz, to + *got, step);
        int code;
        if (n < 0) {
            const char *why = gzerror(f->gz, &code);
            return kolo_fail(KOLO_EINPUT, "%s: %s; fetch the file again", f->path,
                             code == Z_ERRNO ? "read error" : why);
        }
        if (n == 0) break;
        *got += (uint64_t)n;
    }
    return 0;
}

/* What the file promises, before any of it is unpacked: a small one may claim, or hold, any number of
 * bytes. */
static int read_head(idx_file *f)
{
    uint8_t head[16] = {0};
    uint64_t got = 0;
    KOLO_TRY(read_some(f, head, 4, &got));
    f->axes = head[3];
    if (got < 4 || head[0] || head[1] || head[2] != 8 || (f->axes != 1 && f->axes != 3))
        return kolo_fail(
            KOLO_EINPUT,
            "%s is not an IDX file of unsigned bytes with 1 or 3 axes (first bytes 00 00 08 01 or 03)",
            f->path);
    KOLO_TRY(read_some(f, head + 4, 4 * (uint64_t)f->axes, &got));
    if (got < 4 * (uint64_t)f->axes)
        return kolo_fail(KOLO_EINPUT, "%s: its header is cut off; fetch the file again", f->path);
    f->bytes = 1;
    for (int i = 0; i < f->axes; i++) {
        f->sizes[i] = big32(head + 4 + 4 * i);
        if (f->sizes[i] == 0 || __builtin_mul_overflow(f->bytes, f->sizes[i], &f->bytes) ||
            f->bytes > 1ull << 40)
            return kolo_fail(KOLO_EINPUT, "%s: sizes in the header are out of range", f->path);
    }
    const size_t limit = kolo_memory_limit(NULL);
    if (f->bytes <= limit) return 0;
    return kolo_fail(KOLO_EINPUT,
                     "%s: the header promises %llu bytes, which do not fit into this job's memory of %zu",
                     f->path, (unsigned long long)f->bytes, limit);
}

/* As much as the header promises, and not more: then the file must be at its end. */
static int read_body(idx_file *f, uint8_t **data)
{
    uint8_t more;
    uint64_t got = 0, behind = 0;
    *data = malloc(f->bytes);
    if (!*data)
        return kolo_fail(KOLO_ENOMEM, "out of memory: %llu bytes of %s", (unsigned long long)f->bytes,
                         f->path);
    KOLO_TRY(read_some(f, *data, f->bytes, &got));
    if (got == f->bytes) KOLO_TRY(read_some(f, &more, 1, &behind));
    const unsigned long long head = 4 + 4 * (unsigned long long)f->axes;
    int code;
    gzerror(f->gz, &code);
    if (code == Z_BUF_ERROR)
        return kolo_fail(KOLO_EINPUT, "%s: the gzip stream is cut off; fetch the file again", f->path);
    if (got == f->bytes && !behind) return 0;
    return kolo_fail(KOLO_EINPUT, "%s: %s%llu bytes, the header promises %llu; fetch the file again", f->path,
                     behind ? "more than " : "", head + got, head + f->bytes);
}

static int open_file(idx_file *f, const char *path)
{
    *f = (idx_file){.path = path, .gz = gzopen(path, "rb")};
    if (!f->gz) return kolo_fail(kolo_file_exists(path) ? KOLO_EIO : KOLO_EINPUT, "%s: cannot open", path);
    gzbuffer(f->gz, 1 << 18);
    return read_head(f);
}

/* PREFIX-images-idx3-ubyte[.gz] of the split, in either of the common spellings. */
static char *find_in(const char *folder, const char *prefix, const char *what, int axes)
{
    static const char *const forms[] = {"%s/%s-%s-idx%d-ubyte.gz", "%s/%s-%s-idx%d-ubyte",
                                        "%s/%s-%s.idx%d-ubyte", "%s/%s-%s.idx%d-ubyte.gz"};
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
    if (o->in_count == 1 && !kolo_file_exists(o->in[0]))
        return kolo_fail(KOLO_EINPUT, "--in %s: no such file or folder", o->in[0]);
    if (o->in_count != 2)
        return kolo_fail(KOLO_ECONFIG,
                         "--source mnist-idx takes a folder, or two files: --in IMAGES --in LABELS");
    *images = kolo_strdup(o->in[0]);
    *labels = kolo_strdup(o->in[1]);
    return *images && *labels ? 0 : KOLO_ENOMEM;
}

static int add_all(source *s, const idx *x, int64_t n, const char *name)
{
    int classes = 0;
    int32_t label[256];
    char text[64];
    for (int64_t i = 0; i < n; i++)
        if (x->labels[i] >= classes) classes = x->labels[i] + 1;
    for (int c = 0; c < classes; c++) {
        snprintf(text, sizeof text, "%d", c);
        KOLO_TRY(source_find_class(s, text, c, &label[c]));
    }
    for (int64_t i = 0; i < n; i++) {
        snprintf(text, sizeof text, "%.40s/%06lld", name, (long long)i);
        KOLO_TRY(source_add(s, label[x->labels[i]], text, -1));
    }
    return 0;
}

static int read_both(source *s, idx *x, idx_file *images, idx_file *labels)
{
    if (images->axes == 1 && labels->axes == 3) { /* given the other way round */
        const idx_file swap = *images;
        *images = *labels;
        *labels = swap;
    }
    if (images->axes != 3 || labels->axes != 1)
        return kolo_fail(
            KOLO_EINPUT,
            "%s and %s: one must be an IDX file of images (3 axes), the other of labels (1 axis)",
            images->path, labels->path);
    if (labels->sizes[0] != images->sizes[0])
        return kolo_fail(KOLO_EINPUT, "%s has %u images, %s %u labels", images->path, images->sizes[0],
                         labels->path, labels->sizes[0]);
    s->channels = 1;
    s->height = (int)images->sizes[1];
    s->width = (int)images->sizes[2];
    if (images->sizes[1] > KOLO_IMAGE_MAX_SIDE || images->sizes[2] > KOLO_IMAGE_MAX_SIDE)
        return kolo_fail(KOLO_EINPUT, "%s: images too large", images->path);
    KOLO_TRY(read_body(images, &x->images));
    KOLO_TRY(read_body(labels, &x->labels));
    const char *slash = strrchr(images->path, '/');
    return add_all(s, x, images->sizes[0], slash ? slash + 1 : images->path);
}

static int open_files(source *s, idx *x, const char *images, const char *labels)
{
    idx_file a, b = {0};
    int rc = open_file(&a, images);
    if (rc == 0) rc = open_file(&b, labels);
    if (rc == 0) rc = read_both(s, x, &a, &b);
    if (a.gz) gzclose(a.gz);
    if (b.gz) gzclose(b.gz);
    return rc;
}

static int open_idx(source *s, const pack_options *o)
{
    char *images = NULL, *labels = NULL;
    idx *x = s->state = kolo_alloc(sizeof *x);
    int rc = x ? find_files(o, &images, &labels) : KOLO_ENOMEM;
    if (rc == 0) rc = open_files(s, x, images, labels);
    free(images);
    free(labels);
    return rc;
}

static int idx_load(const source *s, int64_t i, source_buffer *buffer)
{
    const idx *x = s->state;
    const size_t bytes = (size_t)s->height * (size_t)s->width;
    KOLO_TRY(source_grow(buffer, bytes));
    memcpy(buffer->data, x->images + (size_t)i * bytes, bytes);
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
                                .load = idx_load,
                                .close = close_idx};
