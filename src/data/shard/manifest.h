/* The manifest of a split, NAME-SPLIT.index: text, one line a shard.
 *
 *   kolo 1 uuid=U samples=N bytes=B shards=S crc32c=X          X: of everything after this line
 *   name=.. split=.. task=.. encoding=raw|jpeg|mixed color=gray|rgb classes=K height=H width=W mean=a,b,c
 *       std=a,b,c
 *   FILE SAMPLES BYTES FIRST_SAMPLE METADATA_CRC32C ok
 *
 * It is written last: a split without it is not there. */
#ifndef KOLO_DATA_SHARD_MANIFEST_H
#define KOLO_DATA_SHARD_MANIFEST_H

#include "data/shard/shard.h"

typedef struct kolo_manifest_shard {
    char file[160];
    int64_t count, first;
    uint64_t bytes;
    uint32_t metadata_crc;
} kolo_manifest_shard;

typedef struct kolo_manifest {
    kolo_dataset_info info;
    kolo_manifest_shard *shards; /* [info.shards], owned */
} kolo_manifest;

int kolo_manifest_write(const char *folder, const kolo_manifest *manifest);
/* Finds the one *.index of `folder`. KOLO_EINPUT: none, several, damaged, unknown version. */
int kolo_manifest_read(const char *folder, kolo_manifest *manifest);
void kolo_manifest_free(kolo_manifest *manifest);

/* manifest_folder.c: does this folder hold a manifest? What cannot be read holds none. */
bool kolo_manifest_in(const char *folder);
/* Fails (KOLO_EINPUT) for a folder without a manifest, and says what was probably meant: splits in it, images
 * to be packed, a packing to be ended. */
int kolo_manifest_missing(const char *folder);
/* KOLO_ECONFIG where the folder that option `key` names, which need not exist, is a split or lies in one:
 * something else than shards would be written there. */
int kolo_manifest_outside(const char *key, const char *folder);

#endif
