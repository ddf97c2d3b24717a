#include "ckpt/stream.h"

#include <errno.h>
#include <fcntl.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/file.h"
#include "base/memory.h"
#include "kolo/error.h"

int kolo_fail_io(const char *verb, const char *path)
{
    kolo_file_fail(verb, path);
    return KOLO_EIO;
}

/* path is taken over. */
static int stream_begin(stream *s, char *path)
{
    *s = (stream){
        .fd = -1, .path = path, .temp = {.fd = -1, .folder = -1}, .buffer = kolo_alloc(KOLO_STREAM_BUFFER)};
    if (s->path && s->buffer) return 0;
    return kolo_stream_close(s, KOLO_ENOMEM);
}

int kolo_stream_open(stream *s, int folder, const char *path, const char *name)
{
    KOLO_TRY(stream_begin(s, kolo_format("%s/%s", path, name)));
    s->fd = openat(folder, name, O_WRONLY | O_CREAT | O_EXCL | O_NOFOLLOW | O_CLOEXEC, 0666);
    return s->fd < 0 ? kolo_stream_close(s, kolo_fail_io("create", s->path)) : 0;
}

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
    if (s->used + bytes > KOLO_STREAM_BUFFER) KOLO_TRY(flush(s));
    if (bytes > KOLO_STREAM_BUFFER) return write_through(s, data, bytes);
    if (bytes) memcpy(s->buffer + s->used, data, bytes);
    s->used += bytes;
    return 0;
}

int kolo_stream_sync(stream *s)
{
    KOLO_TRY(flush(s));
    return fsync(s->fd) < 0 ? kolo_fail_io("sync", s->path) : 0;
}

int kolo_stream_close(stream *s, int rc)
{
    if (s->fd >= 0 && close(s->fd) < 0 && rc == 0) rc = kolo_fail_io("close", s->path);
    free(s->path);
    free(s->buffer);
    *s = (stream){.fd = -1};
    return rc;
}

int kolo_stream_open_temp(stream *s, const char *path)
{
    KOLO_TRY(stream_begin(s, kolo_strdup(path)));
    const int rc = kolo_temp_open(&s->temp, path);
    s->fd = s->temp.fd;
    return rc < 0 ? kolo_stream_close(s, rc) : 0;
}

int kolo_stream_commit(stream *s, const char *path, int rc)
{
    kolo_temp_file temp = s->temp; /* it closes the file */
    if (rc == 0) rc = flush(s);
    s->fd = -1;
    kolo_stream_close(s, rc);
    return kolo_temp_commit(&temp, path, rc);
}
