/* sync=backup: which ranks' gradients count (exec/backup.c), as a run records it, and as another goes by that
 * record (backup_replay=). */
#ifndef KOLO_TRAIN_BACKUP_H
#define KOLO_TRAIN_BACKUP_H

#include "train/trainer.h"

/* Before the first step: reads the record, at rank 0. KOLO_ECONFIG: it is of other ranks, or too short;
 * KOLO_EINPUT: there is none. Collective; without sync=backup nothing. */
int trainer_open_backup(trainer *t);
void trainer_close_backup(trainer *t);

#endif
