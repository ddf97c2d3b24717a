/* The checkpoints of one run as folders: step-0000000500 is whole, step-0000000500.tmp is being written (or was, when its
 * writer died), step-0000000500.old is being replaced. */
#ifndef KOLO_CKPT_STORE_H
#define KOLO_CKPT_STORE_H

#include <stddef.h>
#include <stdint.h>

enum { STORE_NAME = 32 };
void kolo_store_name(int64_t step, char name[STORE_NAME]);

/* Steps of the whole ones, newest first; caller frees *steps. No such folder: none. */
int kolo_store_list(const char *checkpoints, int64_t **steps, int64_t *n);
/* Removes what died writers left. Only under the run's lock. */
int kolo_store_sweep(const char *checkpoints);
/* step-N.tmp, complete and synced, becomes step-N (which it replaces if that is there). */
int kolo_store_commit(const char *checkpoints, int64_t step);

/* RUN/best names this step's checkpoint; where that is not there (0: nothing was validated) there is no such file. */
int kolo_store_mark_best(const char *run_folder, int64_t step);
int64_t kolo_store_best(const char *run_folder); /* -1: none */
/* After `step` was written: keeps it, the one before, and the best. Later steps are of a line that a resume gave up (damaged). */
int kolo_store_prune(const char *run_folder, const char *checkpoints, int64_t step);

#endif
