/* What writes checkpoints, for the files of this room: checkpoint.c, which leaves writing to a thread, and
 * save_together.c, where ranks that have different things write together. */
#ifndef KOLO_CKPT_SAVER_H
#define KOLO_CKPT_SAVER_H

#include <pthread.h>

#include "base/temp_file.h"
#include "base/failure.h"
#include "ckpt/carried.h"
#include "ckpt/items.h"
#include "ckpt/manifest.h"
#include "ckpt/run.h"
#include "ckpt/weights.h"

enum { SAVER_PIECE = 1 << 20 }; /* bytes that go from rank to rank at a time */

/* Made at the first save and kept: what does not change between saves, and the memory they need. */
struct saver {
    const kolo_plan *plan;
    kolo_backend *backend;
    const kolo_run *run;
    item *item;
    kolo_weight *weight; /* [items] the description of each in the file */
    int items;
    char *header; /* of tensors.safetensors */
    size_t header_bytes;
    /* copies of the saved arenas, one behind the other; none where they are written in place */
    char *snapshot;
    size_t snapshot_bytes;
    size_t base[KOLO_ARENAS]; /* where each arena begins in the snapshot */
    float *canonical;         /* a tensor of this rank's, as it goes to the file; on rank 0 others' pieces */
    size_t canonical_bytes;
    carried carried;            /* by the ranks; parts 0: nothing */
    kolo_rank_parts rank_parts; /* likewise, where it is written in place */

    pthread_t thread;
    bool started;           /* the thread is to be joined */
    kolo_position position; /* of the save in flight */
    kolo_scaler scaler;     /* likewise */
    char *math, *runtime;   /* its options for the manifest */
    int rc;                 /* of the thread, valid once it is joined */
    kolo_failure failure;   /* the writer's */
};

/* With tensors.safetensors in the open folder, as m says: the other files, the manifest last. */
int saver_finish(struct saver *saver, int folder, const char *path, manifest *m);
/* rc: of writing. 0: the folder gets its name, older ones go; else it goes. */
int saver_commit(struct saver *saver, kolo_temp_file *a, char **path, int rc);

/* Collective over all ranks, each of which writes some of the tensors; saver->run: rank 0's alone, and its
 * position and options are set there. */
int saver_write_together(struct saver *saver, kolo_exec *exec);

#endif
