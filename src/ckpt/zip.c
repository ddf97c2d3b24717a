#include "ckpt/zip.h"

#include <stdlib.h>
#include <string.h>
#include <zlib.h>

#include "kolo/error.h"

enum { END = 22, LOCATOR = 20, END64 = 56, CENTRAL = 46, LOCAL = 30, COMMENT = 65535 };

static bool signed_as(const unsigned char *p, const char *letters)
{
    return p[0] == 'P' && p[1] == 'K' && !memcmp(p + 2, letters, 2);
}

typedef struct directory {
    uint64_t at, bytes, entries, end; /* end: where entries must have ended */
} directory;

/* The record at the end, behind which only a comment may stand; NULL: none. */
static const unsigned char *find_end(const kolo_weights *w)
{
    const size_t least = w->bytes > END + COMMENT ? w->bytes - END - COMMENT : 0;
    if (w->bytes < END) return NULL;
    for (size_t at = w->bytes - END + 1; at-- > least;) {
        const unsigned char *p = w->map + at;
        if (signed_as(p, "\5\6") && at + END + reader_number(p + 20, 2) == w->bytes) return p;
    }
    return NULL;
}

static int read_end64(const kolo_weights *w, const unsigned char *end, directory *d)
{
    const size_t at = (size_t)(end - w->map);
    if (at < LOCATOR || !signed_as(end - LOCATOR, "\6\7")) return 0;
    const uint64_t place = reader_number(end - LOCATOR + 8, 8);
    if (at < LOCATOR + END64 || place > at - LOCATOR - END64)
        return kolo_weights_refuse(w, "its zip64 record lies outside of it");
    const unsigned char *p = w->map + place;
    if (!signed_as(p, "\6\6")) return kolo_weights_refuse(w, "its zip64 record is none");
    *d = (directory){.at = reader_number(p + 48, 8),
                     .bytes = reader_number(p + 40, 8),
                     .entries = reader_number(p + 32, 8),
                     .end = place};
    return 0;
}

static int find_directory(const kolo_weights *w, directory *d)
{
    const unsigned char *end = find_end(w);
    if (!end) return kolo_weights_refuse(w, "its zip directory is missing, as where a copy ended early");
    *d = (directory){.at = reader_number(end + 16, 4),
                     .bytes = reader_number(end + 12, 4),
                     .entries = reader_number(end + 10, 2),
                     .end = (uint64_t)(end - w->map)};
    KOLO_TRY(read_end64(w, end, d));
    if (d->at > d->end || d->bytes > d->end - d->at)
        return kolo_weights_refuse(w, "its zip directory lies outside of it");
    if (d->entries > d->bytes / CENTRAL)
        return kolo_weights_refuse(w, "its zip directory is too short for its entries");
    return 0;
}

/* Sizes and place that do not fit 32 bits stand in an extra field, those that are all ones, in this order. */
static bool read_extra64(const unsigned char *extra, size_t length, zip_entry *e, uint64_t *place)
{
    uint64_t *const wide[3] = {&e->bytes, &e->packed, place};
    bool whole = e->bytes != UINT32_MAX && e->packed != UINT32_MAX && *place != UINT32_MAX;
    while (length >= 4) {
        const size_t size = reader_number(extra + 2, 2);
        if (size > length - 4) return false;
        if (reader_number(extra, 2) == 1) {
            const unsigned char *p = extra + 4, *stop = p + size;
            for (int i = 0; i < 3; i++) {
                if (*wide[i] != UINT32_MAX) continue;
                if (stop - p < 8) return false;
                *wide[i] = reader_number(p, 8);
                p += 8;
            }
            whole = true;
        }
        extra += 4 + size;
        length -= 4 + size;
    }
    return whole;
}

/* place: of the local header, after whose own name and extra field the data begin. */
static int find_data(const kolo_weights *w, const directory *d, uint64_t place, zip_entry *e)
{
    if (place > d->at || d->at - place < LOCAL || !signed_as(w->map + place, "\3\4"))
        return kolo_weights_refuse(w, "an entry of its zip directory points nowhere");
    const uint64_t head =
        LOCAL + reader_number(w->map + place + 26, 2) + reader_number(w->map + place + 28, 2);
    if (head > d->at - place || e->packed > d->at - place - head)
        return kolo_weights_refuse(w, "an entry of its zip archive ends behind the entries' end");
    e->data = w->map + place + head;
    return 0;
}

static int read_entry(const kolo_weights *w, const directory *d, const unsigned char **p, zip_entry *e)
{
    const unsigned char *const at = *p;
    const uint64_t left = d->at + d->bytes - (uint64_t)(at - w->map);
    if (left < CENTRAL || !signed_as(at, "\1\2"))
        return kolo_weights_refuse(w, "its zip directory ends early");
    const size_t name = reader_number(at + 28, 2), extra = reader_number(at + 30, 2),
                 comment = reader_number(at + 32, 2);
    const uint64_t method = reader_number(at + 10, 2), flags = reader_number(at + 8, 2);
    if (CENTRAL + name + extra + comment > left)
        return kolo_weights_refuse(w, "its zip directory ends early");
    if (flags & 1) return kolo_weights_refuse(w, "its zip archive is encrypted");
    if (method != 0 && method != 8)
        return kolo_weights_refuse(w, "its zip archive is packed in another way than by deflate");
    uint64_t place = reader_number(at + 42, 4);
    *e = (zip_entry){.name = (const char *)at + CENTRAL,
                     .length = name,
                     .deflated = method == 8,
                     .crc = (uint32_t)reader_number(at + 16, 4),
                     .packed = reader_number(at + 20, 4),
                     .bytes = reader_number(at + 24, 4)};
    if (!read_extra64(at + CENTRAL + name, extra, e, &place))
        return kolo_weights_refuse(w, "its zip64 sizes are missing");
    if (!e->deflated && e->packed != e->bytes)
        return kolo_weights_refuse(w, "a stored zip entry has two sizes");
    *p = at + CENTRAL + name + extra + comment;
    return find_data(w, d, place, e);
}

static int compare_places(const void *a, const void *b)
{
    const zip_entry *x = a, *y = b;
    if (x->data != y->data) return x->data < y->data ? -1 : 1;
    return x->packed < y->packed ? -1 : x->packed > y->packed;
}

static int compare_names(const void *a, const void *b)
{
    const zip_entry *x = a, *y = b;
    if (x->length != y->length) return x->length < y->length ? -1 : 1;
    return memcmp(x->name, y->name, x->length);
}

int zip_open(kolo_weights *w, zip_entry **entries, int64_t *n)
{
    directory d = {0};
    KOLO_TRY(find_directory(w, &d));
    const unsigned char *p = w->map + d.at;
    *n = (int64_t)d.entries;
    *entries = kolo_weights_keep(w, (size_t)d.entries * sizeof **entries + 1);
    if (!*entries) return KOLO_ENOMEM;
    for (int64_t i = 0; i < *n; i++) KOLO_TRY(read_entry(w, &d, &p, &(*entries)[i]));
    qsort(*entries, (size_t)*n, sizeof **entries, compare_places);
    uint64_t unpacked = 0;
    for (int64_t i = 0; i < *n; i++) {
        const zip_entry *e = &(*entries)[i];
        if (i && e[-1].data + e[-1].packed > e->data)
            return kolo_weights_refuse(w, "entries of its zip archive overlap");
        if (e->deflated && __builtin_add_overflow(unpacked, e->bytes, &unpacked)) unpacked = UINT64_MAX;
    }
    if (unpacked / 64 > w->bytes)
        return kolo_weights_refuse(w, "it would become more than 64 times as long, which weights never do");
    qsort(*entries, (size_t)*n, sizeof **entries, compare_names);
    for (int64_t i = 1; i < *n; i++)
        if (!compare_names(&(*entries)[i - 1], &(*entries)[i]))
            return kolo_weights_refuse(w, "two entries of its zip archive have one name");
    return 0;
}

static int inflate_entry(kolo_weights *w, zip_entry *e)
{
    unsigned char *to = kolo_weights_keep(w, e->bytes + 1);
    z_stream z = {.next_in = (Bytef *)(uintptr_t)e->data, .next_out = to};
    uint64_t in = e->packed, out = e->bytes;
    if (!to) return KOLO_ENOMEM;
    if (inflateInit2(&z, -MAX_WBITS) != Z_OK)
        return kolo_fail(KOLO_ENOMEM, "out of memory while reading %s", w->path);
    int rc;
    do { /* zlib counts in 32 bits */
        const uInt some_in = in > 1u << 30 ? 1u << 30 : (uInt)in,
                   some_out = out > 1u << 30 ? 1u << 30 : (uInt)out;
        z.avail_in = some_in, z.avail_out = some_out;
        rc = inflate(&z, Z_NO_FLUSH);
        if (rc == Z_OK && z.avail_in == some_in && z.avail_out == some_out) rc = Z_BUF_ERROR;
        in -= some_in - z.avail_in;
        out -= some_out - z.avail_out;
    } while (rc == Z_OK);
    inflateEnd(&z);
    if (rc != Z_STREAM_END || out)
        return kolo_weights_refuse(w, "an entry of its zip archive cannot be unpacked");
    e->data = to;
    return 0;
}

int zip_take(kolo_weights *w, zip_entry *e)
{
    if (e->checked) return 0;
    if (e->deflated) KOLO_TRY(inflate_entry(w, e));
    if (crc32_z(0, e->data, e->bytes) != e->crc)
        return kolo_weights_refuse(w, "an entry of its zip archive has another checksum than it should");
    e->checked = true;
    return 0;
}

zip_entry *zip_find(zip_entry *entries, int64_t n, const char *name, size_t length)
{
    const zip_entry wanted = {.name = name, .length = length};
    return bsearch(&wanted, entries, (size_t)n, sizeof wanted, compare_names);
}
