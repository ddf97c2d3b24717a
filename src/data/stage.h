/* Staging: shards copied to a disk of the node, by all processes of the node together, once: what is there
 * and whole is used again.
 *
 *   FOLDER/kolo-stage-UID/NAME-SPLIT-UUID/   0700; the manifest, and for every shard
 *     SHARD          the copy, compared with its source by crc32c after it has reached the disk; or, for a
 *                    shard that this node does not need or that does not fit, a symbolic link to the source
 *     SHARD.stamp    size and times of source and copy, and the crc32c: a copy that these fit is whole
 *     users          locked by all processes that use the folder */
#ifndef KOLO_DATA_STAGE_H
#define KOLO_DATA_STAGE_H

#include <stdbool.h>
#include <stdint.h>

typedef struct kolo_stage kolo_stage;

typedef struct kolo_stage_config {
    const char *source; /* a split: folder with a manifest */
    /* on the node; "tmpdir": $TMPDIR; "auto": $TMPDIR (or /tmp), but nothing is copied where the source is on
     * the node already, or that is not */
    const char *folder;
    bool strict;        /* what does not fit is an error; else it is read from the source, with a word */
    bool keep;          /* leave the copies to the next job; else the last process to close removes them */
    int node, ranks;    /* where each node shows its own share (shuffle=local), only that is copied: */
    const int *node_of; /* [ranks]; NULL: everything is */
} kolo_stage_config;

typedef struct kolo_stage_info {
    /* copied: by this process; reused: found or made by others; unfit: of the linked */
    int shards, copied, reused, linked, unfit;
    uint64_t bytes; /* copied by this process */
} kolo_stage_info;

/* Returns when all shards are there. Not collective: each rank calls it. KOLO_EINPUT: no split; KOLO_EIO;
 * KOLO_ECONFIG: no usable folder. */
int kolo_stage_open(kolo_stage **stage, const kolo_stage_config *config);
void kolo_stage_close(kolo_stage **stage); /* behind kolo_dataset_close */
/* for kolo_dataset_open; the source where nothing was to be copied */
const char *kolo_stage_folder(const kolo_stage *stage);
void kolo_stage_get_info(const kolo_stage *stage, kolo_stage_info *info);

#endif
