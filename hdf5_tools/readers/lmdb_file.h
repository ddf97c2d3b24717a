/* LMDB: keys and values of the main database in data.mdb, only read. The file is mapped, and whatever its
 * pages say is held against its length, which liblmdb does not do: it dies of a damaged page. Nobody may
 * write to it meanwhile. Little-endian, of the format of LMDB 0.9. Errors are KOLO_EINPUT (KOLO_EIO: it
 * cannot be opened) and name the file. */
#ifndef HDF5_TOOLS_READERS_LMDB_FILE_H
#define HDF5_TOOLS_READERS_LMDB_FILE_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

typedef struct lmdb_part { /* bytes of the mapped file, valid until lmdb_close */
    const uint8_t *data;
    size_t bytes;
} lmdb_part;

typedef struct lmdb_file {
    char *path; /* as it was given: a folder that holds data.mdb, or the file */
    const uint8_t *map;
    size_t bytes, page; /* page: bytes of one */
    uint64_t pages, root, entries, seen_pages, seen_entries;
} lmdb_file;

bool lmdb_is_one(const char *path); /* by its first bytes */
int lmdb_open(lmdb_file *f, const char *path);
/* All keys in their order; ends with the first negative status of `take`. A key of
 * several values is an error. */
int lmdb_each(lmdb_file *f, int (*take)(void *context, lmdb_part key, lmdb_part value), void *context);
void lmdb_close(lmdb_file *f); /* of zeros: nothing */

#define LMDB_MOST_KEY 1100 /* a key has at most 511 bytes */
/* A key as text: itself, without zeros at its end, or, where it is none (numbers as keys), in hexadecimal. */
void lmdb_key_text(lmdb_part key, char text[LMDB_MOST_KEY]);

#endif
