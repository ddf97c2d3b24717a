/* What ranks carry from step to step beside weights and optimizer (error vectors of compressed sums): the
 * file "carried" of a checkpoint's folder, the parts of all ranks one behind the other, then a crc32c of
 * each. Unlike the tensors it is of one grid only. */
#ifndef KOLO_CKPT_CARRIED_H
#define KOLO_CKPT_CARRIED_H

#include "ckpt/ckpt.h"

/* Memory of `parts` times `bytes` that the next save writes; waits for one in flight. Rank 0 only, after
 * kolo_checkpoint_prepare; the run's. NULL: error text. */
void *kolo_checkpoint_rank_state(kolo_run *run, size_t bytes, int parts);
/* The same where a checkpoint is written in place, and rank 0 has no room for all parts: each is asked for
 * when it is written. */
typedef struct kolo_rank_parts {
    size_t bytes; /* of a part, the same on all ranks; 0: there are none */
    int parts;
    /* Collective over all ranks, part after part: it comes to `to` of rank 0, NULL elsewhere. */
    int (*bring)(void *context, int part, void *to);
    void *context;
} kolo_rank_parts;
/* Rank 0, as kolo_checkpoint_rank_state; other ranks give theirs to kolo_checkpoint_take_part. */
int kolo_checkpoint_rank_parts(kolo_run *run, const kolo_rank_parts *parts);
/* One part of what the checkpoint in the folder `path` carries: 1 read, 0 there is none, or of another size
 * or number; KOLO_EINPUT: damaged, or not the file that the manifest lists. */
int kolo_checkpoint_read_rank_state(const char *path, int part, int parts, void *to, size_t bytes);

/* Collective: to the folder, as kolo_rank_state_write; other ranks give -1 for it. *rc: what this rank has
 * met so far; it takes part all the same. */
int kolo_rank_parts_write(int folder, const char *path, const kolo_rank_parts *parts, uint64_t *bytes,
                          uint32_t *crc, int *rc);

/* Of a saver. */
typedef struct carried {
    char *data;
    size_t bytes; /* of a part */
    int parts;
} carried;
/* To a folder that is held open; `path`: its name in errors. bytes: written, 0 where there is nothing; crc:
 * of them. */
int kolo_rank_state_write(int folder, const char *path, const carried *what, uint64_t *bytes, uint32_t *crc);

#endif
