/* The inside of a run folder's handle, for the files of this room. */
#ifndef KOLO_CKPT_RUN_H
#define KOLO_CKPT_RUN_H

#include "ckpt/ckpt.h"
#include "base/lock.h"

struct saver; /* checkpoint.c: snapshot and writer thread; made at the first save */

struct kolo_run {
    char *folder;      /* owned */
    char *checkpoints; /* folder/checkpoints */
    run_lock lock;
    struct saver *saver;
};

int kolo_saver_destroy(struct saver **saver); /* waits; the error of a checkpoint in flight */

#endif
