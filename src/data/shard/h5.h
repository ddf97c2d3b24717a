/* The little of HDF5 that shards need: scalars as attributes, contiguous one-dimensional and
 * N-dimensional datasets. Serial HDF5 is not for several threads: every function here expects the caller
 * to hold kolo_h5_lock(). */
#ifndef KOLO_DATA_SHARD_H5_H
#define KOLO_DATA_SHARD_H5_H

#include <hdf5.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

void kolo_h5_lock(void); /* also silences HDF5's own error printing for this thread */
void kolo_h5_unlock(void);

/* A file or group as the format has it: 1.8 file format, 1 MiB alignment, no file locks. Negative: HDF5
 * failed. */
hid_t kolo_h5_create(const char *path);
hid_t kolo_h5_open(const char *path, bool write);
hid_t kolo_h5_group(hid_t file, const char *name);

/* Attributes of an object. Text is fixed length, null padded; `size` bytes are reserved. 0 or negative. */
int kolo_h5_put_text(hid_t object, const char *name, const char *text, size_t size);
int kolo_h5_put_u64(hid_t object, const char *name, uint64_t value);
int kolo_h5_put_u32s(hid_t object, const char *name, const uint32_t *values, int n);
int kolo_h5_get_text(hid_t object, const char *name, char *text, size_t size);
int kolo_h5_get_u64(hid_t object, const char *name, uint64_t *value);
int kolo_h5_get_u32s(hid_t object, const char *name, uint32_t *values, int n);

/* A contiguous dataset whose space is there from the start and never filled. data may be
 * NULL (written later). */
int kolo_h5_put_array(hid_t file, const char *name, hid_t type, int rank, const hsize_t *shape,
                      const void *data);
/* Opens, checks (rank, shape, contiguous, unfiltered, type size and class) and returns the
 * address of the first byte. */
int kolo_h5_place(hid_t file, const char *name, hid_t type, int rank, const hsize_t *shape, uint64_t *place);
/* 0; negative: absent or another rank */
int kolo_h5_shape(hid_t file, const char *name, int rank, hsize_t *shape);
int kolo_h5_get_array(hid_t file, const char *name, hid_t type, void *data); /* whole; of a plain one */
int kolo_h5_get_any(hid_t file, const char *name, hid_t type, void *data);   /* of any layout */
bool kolo_h5_has(hid_t file, const char *name);
bool kolo_h5_is_plain(hid_t set); /* contiguous, unfiltered, in this file */
/* Are all links within this file? Else false, and name, of `size` bytes, is that of an external, soft or
 * other one. */
bool kolo_h5_is_closed(hid_t file, char *name, size_t size);

#endif
