/* What ranks carry from step to step beside weights and optimizer (error vectors of compressed sums): the file "carried" of a checkpoint's folder, the
 * parts of all ranks one behind the other, then a crc32c of each. Unlike the tensors it is of one grid only. */
#ifndef KOLO_CKPT_CARRIED_H
#define KOLO_CKPT_CARRIED_H

#include "ckpt/ckpt.h"

/* Memory of `parts` times `bytes` that the next save writes; waits for one in flight. Rank 0 only, after kolo_checkpoint_prepare; the run's.
 * NULL: error text. */
void *kolo_checkpoint_carried(kolo_run *run, size_t bytes, int parts);
/* One part of what the checkpoint in the folder `path` carries: 1 read, 0 there is none, or of another size or number; KOLO_EINPUT: damaged. */
int kolo_checkpoint_read_carried(const char *path, int part, int parts, void *to, size_t bytes);

/* Of a saver. */
typedef struct carried {
    char *data;
    size_t bytes; /* of a part */
    int parts;
} carried;
int kolo_carried_write(const char *folder, const carried *what);

#endif
