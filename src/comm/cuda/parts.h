/* Inside comm/cuda: what every reducer is made of. A row's struct kolo_reducer begins with a comm_cuda. */
#ifndef KOLO_COMM_CUDA_PARTS_H
#define KOLO_COMM_CUDA_PARTS_H

#include <stdatomic.h>

#include "comm/cuda/calls.h"
#include "comm/buckets/reducer.h"
#include "kolo/error.h"

/* The first thing that went wrong; written once, by any thread. */
typedef struct comm_fault {
    _Atomic uint32_t state; /* 0, 1 (being written), 2 (text stands) */
    char text[1024];
} comm_fault;

typedef struct comm_cuda_bucket {
    kolo_reducer_bucket of;
    cudaEvent_t ready, done; /* its values are written; its result stands in the arena. NULL: no member */
} comm_cuda_bucket;

typedef struct comm_cuda {
    kolo_comm *comm;
    cudaStream_t compute, side; /* `side`: the communication stream */
    double timeout;
    char *arena; /* device memory */
    size_t bytes;
    comm_cuda_bucket *bucket;
    int64_t buckets, capacity;
    cudaEvent_t idle, sum_ready, sum_done; /* sum: of f64 */
    comm_fault fault;
} comm_cuda;

static inline comm_cuda *comm_cuda_of(kolo_reducer *reducer) { return (comm_cuda *)(void *)reducer; }

int comm_cuda_open(comm_cuda *c, kolo_comm *comm, const kolo_comm_device *device, size_t bytes,
                   double timeout);
int comm_cuda_alloc(comm_cuda *c); /* the arena, by cudaMalloc */
int comm_cuda_zero(comm_cuda *c);
void comm_cuda_close(comm_cuda *c); /* also the arena, unless its maker has taken it away */
/* `to` goes on when `from` has come as far as it is now. */
int comm_cuda_after(cudaStream_t to, cudaStream_t from, cudaEvent_t event);

/* Waits for what was enqueued before the event; fails when a rank is gone, or after comm_timeout=. */
int comm_cuda_await(comm_cuda *c, cudaEvent_t event);

/* Entries of rows that need no other. */
void *comm_cuda_arena(kolo_reducer *reducer);
int comm_cuda_add(kolo_reducer *reducer, int bucket, const kolo_reducer_bucket *of);
int comm_cuda_wait(kolo_reducer *reducer, int bucket); /* compute after the bucket's `done` */
int comm_cuda_finish(kolo_reducer *reducer);
int comm_cuda_status(kolo_reducer *reducer);
void comm_cuda_abort(kolo_reducer *reducer, const char *text);

extern const kolo_reducer_type comm_cuda_none, comm_cuda_nccl, comm_cuda_staged;

#endif
