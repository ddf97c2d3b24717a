/* A GPU that `kolo plan` can plan for: a table of share/gpus, or a site's own, with what was
 * measured on a real one. */
#ifndef KOLO_CMD_GPU_H
#define KOLO_CMD_GPU_H

#include "ops/backend.h"
#include "plan/rates.h"

typedef struct kolo_gpu_table {
    kolo_gpu gpu;
    kolo_rates rates;
    char *name, *where, *json; /* where: the files that it is from */
} kolo_gpu_table;

/* word: h200, or a file. KOLO_ECONFIG: no such table (the nearest is offered), or nonsense in it. */
int kolo_gpu_open(kolo_gpu_table *table, const char *word);
/* Of a GPU that is there, by its driver's name for it ("NVIDIA H200"). 1: there is no table. */
int kolo_gpu_open_named(kolo_gpu_table *table, const char *device);
void kolo_gpu_close(kolo_gpu_table *table);

#endif
