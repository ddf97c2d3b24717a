/* The checkpoints of one run as folders: step-0000000500 is whole, step-0000000500.tmp-* (base/temp_file.h)
 * is being written (or was, when its writer died), step-0000000500.old is being replaced. */
#ifndef KOLO_CKPT_STORE_H
#define KOLO_CKPT_STORE_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/temp_file.h"

enum { STORE_NAME = 32 };
void kolo_store_name(int64_t step, char name[STORE_NAME]);
bool kolo_store_named(const char *name); /* as a whole one is */

/* Steps of the whole ones, newest first; caller frees *steps. No such folder: none. */
int kolo_store_list(const char *checkpoints, int64_t **steps, int64_t *n);
/* Removes what died writers of this user left. Only under the run's lock. */
int kolo_store_sweep(const char *checkpoints);
/* A new folder for step N, to be filled; path: of the checkpoint. */
int kolo_store_begin(const char *checkpoints, int64_t step, kolo_temp_file *a, char **path);
/* Complete and synced, it becomes step-N (which it replaces if that is there). rc negative, which is
 * returned: it is removed. */
int kolo_store_commit(kolo_temp_file *a, char **path, int rc);

/* RUN/best names this step's checkpoint; where that is not there (0: nothing was validated)
 * there is no such file. */
int kolo_store_mark_best(const char *run_folder, int64_t step);
/* After `step` was written: keeps it, the one before, and that of step `best`. Later steps are of a line that
 * a resume gave up (damaged). What is not `ours` is left alone. */
int kolo_store_prune(const char *checkpoints, int64_t step, int64_t best,
                     bool (*ours)(const char *path, void *context), void *context);

#endif
