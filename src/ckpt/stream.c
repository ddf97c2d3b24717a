#include "ckpt/stream.h"

#include <errno.h>
#include <fcntl.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/file.h"
#include "base/memory.h"
#include "kolo/error.h"

enum { BUFFER_BYTES = 1 << 20 };

int kolo_fail_io(const char *verb, const char *path)
{
    kolo_file_fail(verb, path);
    return KOLO_EIO;
}

/* target, aside: as kolo_file_aside has them, or NULL; taken over. */
static int open_as(stream *s, const char *path, char *target, char *aside)
{
    *s = (stream){.fd = -1, .path = kolo_strdup(path), .target = target, .aside = aside, .buffer = kolo_alloc(BUFFER_BYTES)};
    int rc = s->path && s->buffer ? 0 : KOLO_ECONFIG;
    const char *name = aside ? aside : target ? target : path;
    if (rc == 0 && (s->fd = open(name, O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, 0666)) < 0) rc = kolo_fail_io("create", path);
    if (rc < 0) kolo_stream_close(s);
    return rc;
}

int kolo_stream_open(stream *s, const char *path) { return open_as(s, path, NULL, NULL); }

static int write_through(stream *s, const char *data, size_t bytes)
{
    while (bytes > 0) {
        ssize_t n = write(s->fd, data, bytes);
        if (n < 0 && errno == EINTR) continue;
        if (n < 0) return kolo_fail_io("write", s->path);
        data += n;
        bytes -= (size_t)n;
    }
    return 0;
}

static int flush(stream *s)
{
    size_t bytes = s->used;
    s->used = 0;
    return write_through(s, s->buffer, bytes);
}

int kolo_stream_put(stream *s, const void *data, size_t bytes)
{
    s->crc = kolo_crc32c(s->crc, data, bytes);
    s->bytes += bytes;
    if (s->used + bytes > BUFFER_BYTES) KOLO_TRY(flush(s));
    if (bytes > BUFFER_BYTES) return write_through(s, data, bytes);
    if (bytes) memcpy(s->buffer + s->used, data, bytes);
    s->used += bytes;
    return 0;
}

int kolo_stream_sync(stream *s)
{
    KOLO_TRY(flush(s));
    return fsync(s->fd) < 0 ? kolo_fail_io("sync", s->path) : 0;
}

int kolo_stream_close(stream *s)
{
    int rc = 0;
    if (s->fd >= 0 && close(s->fd) < 0) rc = kolo_fail_io("close", s->path);
    free(s->path);
    free(s->target);
    free(s->aside);
    free(s->buffer);
    *s = (stream){.fd = -1};
    return rc;
}

int kolo_stream_aside(stream *s, const char *path)
{
    char *target, *aside;
    KOLO_TRY(kolo_file_aside(path, &target, &aside));
    return open_as(s, path, target, aside);
}

int kolo_stream_commit(stream *s, const char *path, int rc)
{
    char *aside = s->aside, *target = s->target;
    s->aside = s->target = NULL; /* they outlive the stream */
    if (rc == 0 && (rc = flush(s)) == 0 && aside && fsync(s->fd) < 0) rc = kolo_fail_io("sync", path);
    const int closed = kolo_stream_close(s);
    return kolo_file_commit(path, target, aside, rc < 0 ? rc : closed);
}
