/* Inside of the shard files: tables by name and the checksum, for read.c and write.c. Callers hold
 * kolo_h5_lock(). */
#ifndef KOLO_DATA_SHARD_TABLE_H
#define KOLO_DATA_SHARD_TABLE_H

#include "data/shard/file.h"
#include "data/shard/h5.h"

hid_t kolo_shard_table_type(enum kolo_table_type type); /* as stored: little-endian */
/* Opens a file that is to be a shard; the error tells foreign, empty and truncated files from each other. */
int kolo_shard_open(const char *path, hid_t *file);
/* checksum.c: of all tables and attributes; is it the stored one? Of a shard that is not complete nothing
 * is asked. */
#define KOLO_SHARD_SUM "tables_crc32c" /* root attribute u32 */
int kolo_shard_check_sum(hid_t file, const char *path, const kolo_shard_header *header);
/* Reads all tables that header->tables names. */
int kolo_shard_load_tables(hid_t file, const char *path, const kolo_shard_header *header,
                           kolo_shard_arrays *arrays);
void kolo_shard_free_tables(kolo_shard_arrays *arrays);

#endif
