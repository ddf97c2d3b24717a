#include "readers/tar_stream.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/file.h"
#include "base/log.h"
#include "base/memory.h"
#include "kolo/error.h"

#define BLOCK 512
#define MOST_EXTENDED (1 << 20) /* bytes of a pax header or a long name */

typedef struct header {
    char name[100], mode[8], uid[8], gid[8], size[12], mtime[12], checksum[8], type, link[100];
    char magic[8], uname[32], gname[32], major[8], minor[8], prefix[155], unused[12];
} header;

_Static_assert(sizeof(header) == BLOCK, "a tar header is a block");

/* What extended headers said about the member that follows them. */
typedef struct extended {
    bool has_path, has_link, has_size;
    int64_t size;
} extended;

static int start(tar_stream *t, const char *path)
{
    uint8_t magic[6] = {0};
    if (t->end >= (int64_t)sizeof magic)
        KOLO_TRY(kolo_file_pread(t->fd, path, magic, sizeof magic, (uint64_t)t->at));
    const char *packed = magic[0] == 0x1F && magic[1] == 0x8B ? "gzip"
                         : memcmp(magic, "BZh", 3) == 0       ? "bzip2"
                         : memcmp(magic,
                                  "\xFD"
                                  "7zXZ",
                                  5) == 0
                             ? "xz"
                         : memcmp(magic, "\x28\xB5\x2F\xFD", 4) == 0 ? "zstd"
                                                                     : NULL;
    if (packed)
        return kolo_fail(KOLO_EINPUT,
                         "%s: compressed by %s; uncompress it, so that images can be read in place", path,
                         packed);
    return 0;
}

int tar_open(tar_stream *t, const char *path)
{
    struct stat info;
    *t = (tar_stream){.fd = open(path, O_RDONLY | O_CLOEXEC), .own_file = true};
    if (t->fd < 0 && errno == ENOENT) return kolo_fail(KOLO_EINPUT, "%s: no such file", path);
    if (t->fd < 0) return kolo_fail(KOLO_EIO, "%s: %s", path, strerror(errno));
    t->path = kolo_strdup(path);
    int rc = !t->path                   ? KOLO_ENOMEM
             : fstat(t->fd, &info) != 0 ? kolo_fail(KOLO_EIO, "%s: %s", path, strerror(errno))
             : !S_ISREG(info.st_mode)   ? kolo_fail(KOLO_EINPUT, "%s: is not a file", path)
                                        : 0;
    if (rc == 0) {
        t->end = info.st_size;
        /* headers are far apart; reading ahead would read all */
        posix_fadvise(t->fd, 0, 0, POSIX_FADV_RANDOM);
        rc = start(t, path);
    }
    if (rc < 0) tar_close(t);
    return rc;
}

int tar_open_member(tar_stream *t, const tar_stream *outer, const tar_member *member)
{
    *t = (tar_stream){.fd = outer->fd, .at = member->offset, .end = member->offset + member->bytes};
    t->path = kolo_format("%s:%s", outer->path, member->path);
    int rc = t->path ? start(t, t->path) : KOLO_ENOMEM;
    if (rc < 0) tar_close(t);
    return rc;
}

void tar_close(tar_stream *t)
{
    if (t->own_file) close(t->fd);
    free(t->path);
    *t = (tar_stream){.fd = -1};
}

static int fail_at(const tar_stream *t, const char *text)
{
    return kolo_fail(KOLO_EINPUT, "%s, byte %lld: %s", t->path, (long long)t->at, text);
}

/* Octal digits between blanks, ended by a blank, a zero or the field; or, where the first bit is set,
 * a big-endian number. */
static bool number(const char *field, size_t size, int64_t *value)
{
    const uint8_t *p = (const uint8_t *)field, *end = p + size;
    *value = 0;
    if (*p & 0x80) {
        if (*p & 0x7F) return false; /* negative, or beyond 64 bits */
        for (p++; p < end; p++) {
            if (*value >> 55) return false;
            *value = *value << 8 | *p;
        }
        return true;
    }
    while (p < end && *p == ' ') p++;
    for (; p < end && *p >= '0' && *p <= '7'; p++) *value = *value << 3 | (*p - '0');
    return p == end || *p == 0 || *p == ' ';
}

/* The sum over the header's bytes, its own field taken as blanks; old programs summed signed bytes. */
static bool checksum_fits(const header *h)
{
    const uint8_t *p = (const uint8_t *)h;
    int64_t want, sum = 0, signed_sum = 0;
    for (size_t i = 0; i < BLOCK; i++) {
        const bool own = i >= offsetof(header, checksum) && i < offsetof(header, type);
        sum += own ? ' ' : p[i];
        signed_sum += own ? ' ' : (int8_t)p[i];
    }
    return number(h->checksum, sizeof h->checksum, &want) && (want == sum || want == signed_sum);
}

/* Copies a path without "./" before it. */
static int set_path(const tar_stream *t, char to[TAR_MOST_PATH], const char *prefix, size_t prefix_length,
                    const char *name, size_t length)
{
    char text[TAR_MOST_PATH];
    prefix_length = strnlen(prefix, prefix_length), length = strnlen(name, length);
    const size_t all = prefix_length + (prefix_length > 0) + length;
    if (all >= sizeof text) return fail_at(t, "a path of more than 4095 bytes");
    if (memchr(prefix, '\n', prefix_length) || memchr(name, '\n', length))
        return fail_at(t, "a path with a line break");
    snprintf(text, sizeof text, "%.*s%s%.*s", (int)prefix_length, prefix, prefix_length ? "/" : "",
             (int)length, name);
    const char *from = text;
    while (from[0] == '.' && from[1] == '/') {
        from += 2;
        while (*from == '/') from++;
    }
    memcpy(to, from, strlen(from) + 1);
    return 0;
}

/* One "LENGTH KEY=VALUE\n" of a pax header; returns what is left of it. */
static int read_record(const tar_stream *t, char **at, const char *end, tar_member *m, extended *e)
{
    char *key, *record = *at;
    const long long length = strtoll(record, &key, 10);
    if (length < 5 || length > end - record || *key != ' ' || record[length - 1] != '\n')
        return fail_at(t, "a pax header is damaged");
    key++;
    char *value = memchr(key, '=', (size_t)(record + length - key));
    if (!value) return fail_at(t, "a pax header is damaged");
    const size_t key_length = (size_t)(value++ - key), bytes = (size_t)(record + length - 1 - value);
    *at = record + length;
    value[bytes] = 0;
    if (key_length == 4 && memcmp(key, "path", 4) == 0) {
        e->has_path = true;
        return set_path(t, m->path, "", 0, value, bytes);
    }
    if (key_length == 8 && memcmp(key, "linkpath", 8) == 0) {
        e->has_link = true;
        return set_path(t, m->link, "", 0, value, bytes);
    }
    if (key_length >= 10 && memcmp(key, "GNU.sparse", 10) == 0)
        return fail_at(t, "a sparse file; make the tar again without --sparse");
    if (key_length != 4 || memcmp(key, "size", 4) != 0) return 0;
    char *rest;
    errno = 0;
    e->size = strtoll(value, &rest, 10);
    e->has_size = true;
    return rest == value || *rest || e->size < 0 || errno ? fail_at(t, "a pax header is damaged") : 0;
}

/* Where the next header is: after the data and its padding. */
static int pass(tar_stream *t, int64_t bytes)
{
    const int64_t data = t->at + BLOCK;
    if (bytes > t->end - data)
        return kolo_fail(
            KOLO_EINPUT,
            "%s is cut off: a member at byte %lld has %lld bytes, but the file ends after %lld of them; "
            "fetch it again",
            t->path, (long long)t->at, (long long)bytes, (long long)(t->end - data));
    t->at = data + (bytes + BLOCK - 1) / BLOCK * BLOCK;
    return 0;
}

/* A long name, or what pax has to say about the next member. */
static int read_extended(tar_stream *t, const header *h, int64_t bytes, tar_member *m, extended *e)
{
    char *data;
    const tar_member self = {.offset = t->at + BLOCK, .bytes = bytes};
    if (bytes > MOST_EXTENDED) return fail_at(t, "an extended header of more than a megabyte");
    if (bytes > t->end - self.offset) return pass(t, bytes);
    KOLO_TRY(tar_read(t, &self, MOST_EXTENDED, &data));
    int rc = 0;
    char *at = data;
    if (h->type == 'L') rc = set_path(t, m->path, "", 0, data, (size_t)bytes), e->has_path = true;
    else if (h->type == 'K') rc = set_path(t, m->link, "", 0, data, (size_t)bytes), e->has_link = true;
    else if (h->type == 'x')
        while (rc == 0 && at < data + bytes && *at) rc = read_record(t, &at, data + bytes, m, e);
    free(data);
    return rc < 0 ? rc : pass(t, bytes);
}

/* 1: the member is handed to the caller; 0: it is skipped. */
static int accept_member(tar_stream *t, const header *h, int64_t bytes, const extended *e, tar_member *m)
{
    /* GNU's ends in blanks, and has other things in prefix */
    const bool posix = memcmp(h->magic, "ustar\0", 6) == 0;
    if (!e->has_path)
        KOLO_TRY(set_path(t, m->path, h->prefix, posix ? sizeof h->prefix : 0, h->name, sizeof h->name));
    if (!e->has_link) KOLO_TRY(set_path(t, m->link, "", 0, h->link, sizeof h->link));
    m->is_link = h->type == '1' || h->type == '2';
    m->offset = t->at + BLOCK;
    m->bytes = m->is_link || h->type == '5' ? 0 : e->has_size ? e->size : bytes;
    if (h->type == 'S') return fail_at(t, "a sparse file; make the tar again without --sparse");
    if (m->path[0] == 0 && h->type != '5') return fail_at(t, "a member without a name");
    KOLO_TRY(pass(t, m->bytes));
    const bool folder = h->type == '5' || m->path[0] == 0 || m->path[strlen(m->path) - 1] == '/';
    return !folder && (m->is_link || h->type == '0' || h->type == 0 || h->type == '7');
}

/* Two blocks of zeros end a tar. Without them it was perhaps cut off between two members. */
static int tar_stream_finish(tar_stream *t, bool closed)
{
    if (!closed)
        kolo_log0(KOLO_LOG_WARN, "%s: ends without the blocks of zeros that close a tar; is it whole?",
                  t->path);
    t->at = t->end;
    return 0;
}

int tar_next(tar_stream *t, tar_member *m)
{
    static const header zeros;
    extended e = {0};
    header h;
    for (;;) {
        int64_t bytes;
        if (t->at >= t->end) return t->end == 0 ? fail_at(t, "empty") : tar_stream_finish(t, t->finished);
        if (t->end - t->at < BLOCK)
            return fail_at(t, "the file ends within a header; it is cut off, or no tar");
        KOLO_TRY(kolo_file_pread(t->fd, t->path, &h, sizeof h, (uint64_t)t->at));
        if (memcmp(&h, &zeros, sizeof h) == 0) {
            t->finished = true;
            return tar_stream_finish(t, true);
        }
        if (!checksum_fits(&h))
            return fail_at(t, "no tar header (its checksum is wrong); the file is damaged, or no tar");
        if (!number(h.size, sizeof h.size, &bytes))
            return fail_at(t, "a member without a size; the file is damaged");
        if (h.type == 'L' || h.type == 'K' || h.type == 'x' || h.type == 'g') {
            KOLO_TRY(read_extended(t, &h, bytes, m, &e));
            continue;
        }
        const int rc = accept_member(t, &h, bytes, &e, m);
        if (rc != 0) return rc;
        e = (extended){0};
    }
}

int tar_read(const tar_stream *t, const tar_member *m, int64_t most, char **data)
{
    *data = NULL;
    if (m->bytes > most)
        return kolo_fail(KOLO_EINPUT, "%s:%s: %lld bytes, more than such a member has", t->path, m->path,
                         (long long)m->bytes);
    *data = kolo_alloc((size_t)m->bytes + 1);
    if (!*data) return KOLO_ENOMEM;
    int rc = m->bytes ? kolo_file_pread(t->fd, t->path, *data, (size_t)m->bytes, (uint64_t)m->offset) : 0;
    if (rc == 0) return 0;
    free(*data);
    *data = NULL;
    return rc;
}

int tar_refuse_link(const tar_stream *t, const tar_member *m)
{
    return kolo_fail(
        KOLO_EINPUT,
        "%s:%s: a link to %s, not a file; make the tar again with `tar --dereference --hard-dereference`",
        t->path, m->path, m->link);
}
