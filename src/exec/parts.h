/* The executor's inside: everything is resolved to pointers when it is made. */
#ifndef KOLO_EXEC_PARTS_H
#define KOLO_EXEC_PARTS_H

#include <stdatomic.h>

#include "exec/exec.h"

/* A norm's running statistics and where this step's are. */
typedef struct exec_buffers {
    const float *statistic;     /* 2C + 1: means, unbiased variances, weight; sums over blocks and ranks */
    float *running[2], *ema[2]; /* C each: mean, variance; ema: NULL without */
    int64_t channels;
    float momentum;
} exec_buffers;

struct kolo_exec {
    const kolo_plan *plan;
    kolo_backend *backend;
    kolo_comm *comm; /* NULL: one process */
    const kolo_options *options;
    char *arena[KOLO_ARENAS];
    bool own[KOLO_ARENAS];
    void **args,
        **ema_args;    /* [plan->bindings] with PARAM and BUFFER, or with their averages; ema_args: NULL without */
    void **now;        /* one of them */
    kolo_slice *slice; /* of all buckets; those of bucket b: [first_slice[b], first_slice[b + 1]) */
    int *first_slice;
    exec_buffers *buffers;
    int buffers_count;
    const float *metrics; /* 4, summed over micro-batches (and ranks, in training), or NULL */
    size_t input_bytes;   /* of one micro-batch in the loader's batch */
    kolo_exec_profile *profile;
    _Atomic int64_t position;
};

/* memory.c: arenas, pointers, slices. */
int exec_allocate(kolo_exec *exec, const kolo_exec *share);
int exec_resolve(kolo_exec *exec);
void exec_release(kolo_exec *exec);
/* agree.c: the same plan on all ranks. Collective. */
int exec_agree(kolo_exec *exec);

#endif
