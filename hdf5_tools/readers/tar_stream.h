/* The members of a tar file, by their headers only: data is passed over, so that a source can name it by
 * offset and length. POSIX (ustar, pax: path and size) and GNU (long names, large numbers). Errors are
 * KOLO_EINPUT (KOLO_EIO: reading failed) and name the file and the byte. */
#ifndef HDF5_TOOLS_READERS_TAR_STREAM_H
#define HDF5_TOOLS_READERS_TAR_STREAM_H

#include <stdbool.h>
#include <stdint.h>

#define TAR_MOST_PATH 4096

typedef struct tar_member {
    char path[TAR_MOST_PATH]; /* without "./" before it */
    int64_t offset, bytes;    /* of its data, in the file */
    bool is_link;             /* hard or symbolic, to `link`; it has no data of its own */
    char link[TAR_MOST_PATH];
} tar_member;

typedef struct tar_stream {
    char *path; /* for messages: of a tar within a tar, "outer.tar:inner.tar" */
    int fd;
    bool own_file, finished; /* finished: the closing zeros have been seen */
    int64_t at, end;         /* of the file: the next header, and where the tar stops */
} tar_stream;

int tar_open(tar_stream *t, const char *path);
/* The tar that is a member of another; `outer` must stay open. */
int tar_open_member(tar_stream *t, const tar_stream *outer, const tar_member *member);
void tar_close(tar_stream *t);
/* 1 and the next file or link (folders are passed over); 0 at the end. */
int tar_next(tar_stream *t, tar_member *member);
/* The data of a small member with a zero after it; the caller frees. `most`: bytes, beyond
 * which it is an error. */
int tar_read(const tar_stream *t, const tar_member *member, int64_t most, char **data);
/* The caller leaves this link out, or fails with what this sets: KOLO_EINPUT, and how to make
 * a tar without links. */
int tar_refuse_link(const tar_stream *t, const tar_member *member);

#endif
