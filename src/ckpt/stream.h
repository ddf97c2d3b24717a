/* A file written front to back, its crc32c and size known at the end. Used by one thread. */
#ifndef KOLO_CKPT_STREAM_H
#define KOLO_CKPT_STREAM_H

#include <stddef.h>
#include <stdint.h>

typedef struct stream {
    int fd;
    char *path;   /* owned, as is all that follows */
    char *target; /* that is replaced, NULL: none is */
    char *aside;  /* what is written in its place; NULL: it is written to, as what is no file */
    char *buffer; /* small pieces gather here */
    size_t used;
    uint64_t bytes; /* put so far */
    uint32_t crc;
} stream;

int kolo_stream_open(stream *s, const char *path); /* truncates; on failure nothing is left to close */
int kolo_stream_put(stream *s, const void *data, size_t bytes);
int kolo_stream_sync(stream *s);  /* everything is on the disk */
int kolo_stream_close(stream *s); /* also after a failure; network file systems may tell a full disk only here */

/* A file that replaces `path` when it is whole: opened aside of it; committed: synced, renamed, the folder synced; if `rc` is negative, or on a failure, it
 * is removed and the old one stays. Links, devices and pipes: as kolo_file_write_atomic. */
int kolo_stream_aside(stream *s, const char *path);
int kolo_stream_commit(stream *s, const char *path, int rc);

/* KOLO_EIO: "PATH: cannot VERB: errno's text", and a cure where errno tells one. */
int kolo_fail_io(const char *verb, const char *path);

#endif
