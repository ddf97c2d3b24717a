/* Files: whole reads, atomic writes, folders. Errors: KOLO_EIO with path and errno's text
 * (KOLO_EINPUT: no such file). */
#ifndef KOLO_BASE_FILE_H
#define KOLO_BASE_FILE_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <sys/types.h>

/* The whole file, of 1 GiB at most, with a NUL after it; caller frees *data. length may be NULL. */
int kolo_file_read(const char *path, char **data, size_t *length);
/* Loops over short transfers and EINTR; exactly `bytes` or an error that names `path`. */
int kolo_file_pread(int fd, const char *path, void *data, size_t bytes, uint64_t offset);
int kolo_file_pwrite(int fd, const char *path, const void *data, size_t bytes, uint64_t offset);

/* Written under a temporary name (base/temp_file.h), synced, renamed, folder synced: after a crash either the
 * old or the new file is there, whole. Disk full leaves the old one. A link stays one: the file that it leads
 * to is replaced. Devices and pipes are written to. */
int kolo_file_write_atomic(const char *path, const void *data, size_t bytes);
int kolo_file_sync(int fd, const char *path);
int kolo_folder_sync(const char *path);
int kolo_folder_sync_held(int fd, const char *path); /* one that is open */
int kolo_folder_make(const char *path);              /* mkdir -p; 0 also if it is there */
int kolo_folder_remove(const char *path); /* rm -r, refuses "/" and ""; follows no link below or at it */
int kolo_folder_remove_in(int folder, const char *name, const char *path); /* in one that is open */
/* Fails with what errno says of PATH, and a cure where there is one. verb: open, read, create, write, ...
 * KOLO_EINPUT: there is nothing to read; else KOLO_EIO. */
int kolo_file_fail(const char *verb, const char *path);
/* What was printed is written; KOLO_EIO: it was not. A reader who went away has had
 * enough, which is no error. */
int kolo_stdout_flush(void);
/* Of all that was printed to it so far; standard output is flushed. KOLO_EIO. */
int kolo_stream_status(FILE *stream);
char *kolo_file_parent(const char *path); /* the folder that it is in, "." for a bare name; caller frees */
bool kolo_file_exists(const char *path);
bool kolo_folder_exists(const char *path);
int64_t kolo_file_size(const char *path); /* bytes, or negative status */
/* Free bytes for this user on the file system that holds `path` (or its nearest existing parent). */
int64_t kolo_file_free_bytes(const char *path);

/* crc32c (Castagnoli), SSE4.2 where the CPU has it; start with crc = 0. */
uint32_t kolo_crc32c(uint32_t crc, const void *data, size_t bytes);
/* Of two parts that follow one another, each summed by itself; bytes: of the second. */
uint32_t kolo_crc32c_join(uint32_t first, uint32_t second, uint64_t bytes);

#endif
