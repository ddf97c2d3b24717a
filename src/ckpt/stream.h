/* A file written front to back, its crc32c and size known at the end. Used by one thread. */
#ifndef KOLO_CKPT_STREAM_H
#define KOLO_CKPT_STREAM_H

#include <stddef.h>
#include <stdint.h>

#include "base/temp_file.h"

enum { KOLO_STREAM_BUFFER = 1 << 20 };

typedef struct stream {
    int fd;              /* -1: closed */
    char *path;          /* owned, as is the buffer */
    kolo_temp_file temp; /* what is written in the place of a file, which has fd */
    char *buffer;        /* small pieces gather here */
    size_t used;
    uint64_t bytes; /* put so far */
    uint32_t crc;
} stream;

/* A new file in a folder that is held open; `path` names the folder in errors. On failure nothing is left to
 * close. */
int kolo_stream_open(stream *s, int folder, const char *path, const char *name);
int kolo_stream_put(stream *s, const void *data, size_t bytes);
int kolo_stream_sync(stream *s); /* everything is on the disk */
/* rc: what became of the writing: a failure is returned as it is, with its text; else whether closing worked
 * (network file systems may report a full disk only here). */
int kolo_stream_close(stream *s, int rc);

/* A file that replaces `path` when it is whole: opened under a temporary name; committed: synced, renamed,
 * the folder synced; if `rc` is negative, or on a failure, it is removed and the old one stays. Links,
 * devices and pipes: as kolo_file_write_atomic. */
int kolo_stream_open_temp(stream *s, const char *path);
int kolo_stream_commit(stream *s, const char *path, int rc);

/* KOLO_EIO: "PATH: cannot VERB: errno's text", and a cure where errno suggests one. */
int kolo_fail_io(const char *verb, const char *path);

#endif
