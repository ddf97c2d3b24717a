/* FFCV's .beton, version 2: a header of 24 bytes, a description of 1041 bytes a field, a record a sample, the
 * data, and a table that says how long each piece of data is. All little-endian; numbers of 8 bytes stand at
 * multiples of 8 in a record, all else without gaps. An image is JPEG or pixels (height, width, RGB).
 * Source: ffcv/types.py, ffcv/fields/rgb_image.py, ffcv/fields/basics.py of libffcv/ffcv. */
#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/file.h"
#include "base/memory.h"
#include "data/image/jpeg.h"
#include "kolo/error.h"
#include "shards/foreign.h"
#include "shards/tally.h"

#define HEADER 24
#define FIELD 1041
#define PIECE 24
#define MOST_FIELDS 64

enum field_type { FIELD_FLOAT, FIELD_INT, FIELD_IMAGE, FIELD_BYTES, FIELD_ARRAY, FIELD_JSON, FIELD_TENSOR };

typedef struct beton_image {
    uint64_t place;
    uint32_t bytes;
    uint16_t size[2]; /* height, width */
    uint8_t codec;
} beton_image;

typedef struct piece {
    uint64_t place, bytes;
} piece;

typedef struct beton {
    shards_foreign *f;
    int fd;
    uint64_t length, table; /* of the file; where the table of pieces begins */
    int fields;
    size_t image_at, label_at, record; /* in a record; its length */
    bool has_label;
    piece *pieces; /* [piece_count] by place */
    int64_t piece_count;
    beton_image *images; /* [count] */
    shards_tally tally;
    pthread_mutex_t lock; /* of the tally */
} beton;

static int damaged(const beton *b, const char *what)
{
    return kolo_fail(KOLO_EINPUT, "%s: %s: not a .beton of FFCV, truncated or damaged", b->f->path, what);
}

static uint64_t number_at(const uint8_t *at, int bytes)
{
    uint64_t n = 0;
    for (int i = bytes - 1; i >= 0; i--) n = n << 8 | at[i];
    return n;
}

/* Where a field stands in the record, and how long it is. */
static bool lay_field(int type, size_t *at, size_t *bytes)
{
    const bool wide = type == FIELD_FLOAT || type == FIELD_INT || type == FIELD_ARRAY || type == FIELD_TENSOR;
    if (wide) *at = (*at + 7) / 8 * 8;
    *bytes = wide ? 8 : type == FIELD_IMAGE ? 13 : 16;
    return wide || type == FIELD_IMAGE || type == FIELD_BYTES || type == FIELD_JSON;
}

/* Is this the field that was asked for, or the first of its kind where none was? */
static bool is_wanted(const char *name, const char **asked, bool found)
{
    return *asked ? strcmp(name, *asked) == 0 : !found;
}

static int read_fields(beton *b, const uint8_t *at, char image[17], char label[17])
{
    size_t place = 0, bytes = 0;
    bool found = false, wide = false;
    for (int i = 0; i < b->fields; i++, at += FIELD, place += bytes) {
        char name[17] = "";
        const int type = at[0];
        memcpy(name, at + 1, 16);
        if (!lay_field(type, &place, &bytes))
            return kolo_fail(KOLO_EINPUT,
                             "%s: field `%s` is of a kind of its own (%d): its length is not known",
                             b->f->path, name, type);
        wide |= bytes == 8;
        if (type == FIELD_IMAGE && is_wanted(name, &b->f->images, found)) {
            b->image_at = place, found = true;
            memcpy(image, name, 17);
        }
        if (type == FIELD_INT && is_wanted(name, &b->f->labels, b->has_label)) {
            b->label_at = place, b->has_label = true;
            memcpy(label, name, 17);
        }
    }
    b->record = wide ? (place + 7) / 8 * 8 : place;
    if (!found)
        return kolo_fail(KOLO_EINPUT, "%s has no field of images%s%s", b->f->path,
                         b->f->images ? " named " : "", b->f->images ? b->f->images : "");
    if (b->f->labels && !b->has_label)
        return kolo_fail(KOLO_EINPUT, "%s has no field of whole numbers named %s", b->f->path, b->f->labels);
    return 0;
}

static int by_place(const void *a, const void *b)
{
    const piece *x = a, *y = b;
    return x->place < y->place ? -1 : x->place > y->place;
}

/* The table goes to the end of the file. */
static int read_pieces(beton *b)
{
    const uint64_t bytes = b->length - b->table;
    if (bytes % PIECE) return damaged(b, "the table of its data has a broken length");
    uint8_t *data = kolo_alloc(bytes + 1);
    b->piece_count = (int64_t)(bytes / PIECE);
    b->pieces = kolo_alloc(sizeof *b->pieces * (size_t)b->piece_count + 8);
    int rc = data && b->pieces ? kolo_file_pread(b->fd, b->f->path, data, bytes, b->table) : KOLO_ENOMEM;
    for (int64_t i = 0; i < b->piece_count && rc == 0; i++)
        b->pieces[i] = (piece){number_at(data + PIECE * i + 8, 8), number_at(data + PIECE * i + 16, 8)};
    if (rc == 0) qsort(b->pieces, (size_t)b->piece_count, sizeof *b->pieces, by_place);
    free(data);
    return rc;
}

static int read_image(beton *b, int64_t i, const uint8_t *at)
{
    beton_image *p = &b->images[i];
    *p = (beton_image){.place = number_at(at + 5, 8), .codec = at[0] ? KOLO_CODEC_RAW : KOLO_CODEC_JPEG};
    p->size[1] = (uint16_t)number_at(at + 1, 2), p->size[0] = (uint16_t)number_at(at + 3, 2);
    const piece key = {p->place, 0},
                *found = bsearch(&key, b->pieces, (size_t)b->piece_count, sizeof key, by_place);
    const uint64_t pixels = 3ull * p->size[0] * p->size[1];
    if (at[0] > 1 || !found || found->bytes > INT32_MAX || found->place > b->length ||
        b->length - found->place < found->bytes || pixels == 0 || (at[0] == 1 && found->bytes != pixels))
        return kolo_fail(KOLO_EINPUT,
                         "%s: the record of image %" PRId64
                         " contradicts the table of data: truncated or damaged",
                         b->f->path, i);
    p->bytes = (uint32_t)found->bytes;
    return 0;
}

static int read_records(beton *b, uint64_t begin)
{
    const uint64_t count = (uint64_t)b->f->count;
    if (count > (b->table - begin) / b->record) return damaged(b, "its records end behind its data");
    uint8_t *data = kolo_alloc(b->record * count + 1);
    int64_t *labels = kolo_alloc(sizeof *labels * count + 8);
    b->images = kolo_alloc(sizeof *b->images * count + 8);
    int rc = data && labels && b->images ? kolo_file_pread(b->fd, b->f->path, data, b->record * count, begin)
                                         : KOLO_ENOMEM;
    for (uint64_t i = 0; i < count && rc == 0; i++) {
        rc = read_image(b, (int64_t)i, data + b->record * i + b->image_at);
        if (b->has_label) labels[i] = (int64_t)number_at(data + b->record * i + b->label_at, 8);
    }
    if (rc == 0) rc = shards_foreign_labels(b->f, b->has_label ? labels : NULL, 1);
    free(labels);
    free(data);
    return rc;
}

static int read_head(beton *b, char image[17], char label[17])
{
    uint8_t head[HEADER];
    const int64_t length = kolo_file_size(b->f->path);
    if (length < 0) return (int)length;
    b->length = (uint64_t)length;
    if (b->length < HEADER) return damaged(b, "shorter than its header");
    KOLO_TRY(kolo_file_pread(b->fd, b->f->path, head, HEADER, 0));
    const uint64_t version = number_at(head, 2), count = number_at(head + 8, 8);
    b->fields = (int)number_at(head + 2, 2);
    b->table = number_at(head + 16, 8);
    if (version != 2)
        return kolo_fail(KOLO_EINPUT, "%s: version %" PRIu64 " of .beton; this program reads 2", b->f->path,
                         version);
    const uint64_t begin = HEADER + (uint64_t)FIELD * (uint64_t)b->fields;
    if (b->fields < 1 || b->fields > MOST_FIELDS || b->table < begin || b->table > b->length || count < 1 ||
        count > 1ull << 40)
        return damaged(b, "its header contradicts its length");
    uint8_t *fields = kolo_alloc((size_t)FIELD * (size_t)b->fields);
    if (!fields) return KOLO_ENOMEM;
    b->f->count = (int64_t)count;
    int rc = kolo_file_pread(b->fd, b->f->path, fields, (size_t)FIELD * (size_t)b->fields, HEADER);
    if (rc == 0) rc = read_fields(b, fields, image, label);
    free(fields);
    KOLO_TRY(rc);
    b->f->images = image;
    b->f->labels = b->has_label ? label : NULL;
    KOLO_TRY(read_pieces(b));
    return read_records(b, begin);
}

/* ---- writing ------------------------------------------------------------------------------------------- */

static uint64_t beton_describe(const void *context, int64_t i, uint16_t size[2])
{
    const beton_image *p = &((const beton *)context)->images[i];
    memcpy(size, p->size, sizeof p->size);
    return p->bytes;
}

/* Of the size that the record says, and counted. */
static int count_jpeg(beton *b, int64_t i, const uint8_t *data, shards_tally *tally)
{
    const beton_image *p = &b->images[i];
    kolo_jpeg *jpeg = NULL;
    kolo_image decoded = {0};
    int rc = kolo_jpeg_create(&jpeg);
    if (rc == 0 && (rc = kolo_image_decode(jpeg, data, p->bytes, 3, &decoded)) < 0)
        kolo_fail_in(rc, "%s: image %" PRId64 " ", b->f->path, i);
    if (rc == 0 && (decoded.height != p->size[0] || decoded.width != p->size[1]))
        rc = kolo_fail(KOLO_EINPUT, "%s: image %" PRId64 " is %d x %d, its record says %d x %d", b->f->path,
                       i, decoded.width, decoded.height, p->size[1], p->size[0]);
    if (rc == 0) shards_tally_add(tally, decoded.pixels, (size_t)decoded.height * (size_t)decoded.width, 3);
    kolo_image_free(&decoded);
    kolo_jpeg_destroy(&jpeg);
    return rc;
}

static int beton_load(const void *context, int64_t sample, uint8_t *data)
{
    beton *b = (beton *)context;
    const int64_t i = b->f->order[sample];
    const beton_image *p = &b->images[i];
    shards_tally tally = {0};
    KOLO_TRY(kolo_file_pread(b->fd, b->f->path, data, p->bytes, p->place));
    if (p->codec == KOLO_CODEC_JPEG) KOLO_TRY(count_jpeg(b, i, data, &tally));
    else shards_tally_add(&tally, data, p->bytes / 3, 3);
    pthread_mutex_lock(&b->lock);
    shards_tally_join(&b->tally, &tally);
    pthread_mutex_unlock(&b->lock);
    return 0;
}

static void beton_measure(const void *context, kolo_shard_stats *stats)
{
    shards_tally_stats(&((const beton *)context)->tally, 3, stats);
}

static int make_codecs(const void *context, int64_t first, int64_t count, kolo_shard_table *tables,
                       int *table_count)
{
    const beton *b = context;
    uint8_t *codec = kolo_alloc((size_t)count + 8);
    if (!codec) return KOLO_ENOMEM;
    for (int64_t i = 0; i < count; i++) codec[i] = b->images[b->f->order[first + i]].codec;
    tables[0] = (kolo_shard_table){
        "codec", KOLO_TABLE_U8, 1, {count, 1}, codec, "0 pixels (height, width, channels), 1 JPEG file"};
    *table_count = 1;
    return 0;
}

/* Pixels of one size: raw; JPEG files only: jpeg; else mixed. */
static enum kolo_encoding encoding_of(const beton *b)
{
    bool same = true, jpeg = true;
    for (int64_t i = 0; i < b->f->count; i++) {
        const beton_image *p = &b->images[i];
        jpeg &= p->codec == KOLO_CODEC_JPEG;
        same &= p->codec == KOLO_CODEC_RAW && memcmp(p->size, b->images[0].size, sizeof p->size) == 0;
    }
    return same ? KOLO_ENCODING_RAW : jpeg ? KOLO_ENCODING_JPEG : KOLO_ENCODING_MIXED;
}

static int write_split(beton *b, const char *label)
{
    const shards_foreign *f = b->f;
    const enum kolo_encoding encoding = encoding_of(b);
    char *command = kolo_format("convert file=%s images=%s labels=%s shards=%" PRId64 " reshuffle=%" PRId64,
                                strrchr(f->path, '/') ? strrchr(f->path, '/') + 1 : f->path, f->images, label,
                                f->target.shards, f->target.seed);
    const shards_foreign_form form = {.command = command,
                                      .encoding = encoding,
                                      .channels = 3,
                                      .height = encoding == KOLO_ENCODING_RAW ? b->images[0].size[0] : 0,
                                      .width = encoding == KOLO_ENCODING_RAW ? b->images[0].size[1] : 0,
                                      .describe = beton_describe,
                                      .load = beton_load,
                                      .tables = encoding == KOLO_ENCODING_MIXED ? make_codecs : NULL,
                                      .measure = beton_measure,
                                      .context = b};
    const int rc = command ? shards_foreign_write(b->f, &form) : KOLO_ENOMEM;
    free(command);
    return rc;
}

int shards_convert_beton(shards_foreign *f)
{
    beton b = {.f = f};
    char image[17] = "", label[17] = "";
    b.fd = open(f->path, O_RDONLY | O_CLOEXEC);
    if (b.fd < 0)
        return kolo_fail(errno == ENOENT ? KOLO_EINPUT : KOLO_EIO, "%s: %s", f->path, strerror(errno));
    pthread_mutex_init(&b.lock, NULL);
    int rc = shards_foreign_classes(f);
    if (rc == 0) rc = read_head(&b, image, label);
    if (rc == 0) rc = write_split(&b, label);
    pthread_mutex_destroy(&b.lock);
    close(b.fd);
    free(b.pieces);
    free(b.images);
    f->images = f->labels = NULL; /* they may point to `image` and `label` */
    return rc;
}
