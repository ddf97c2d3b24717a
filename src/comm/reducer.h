/* Reducer: sums buckets that lie in a GPU's memory, in stream order, while the host goes on. device.c hands
 * bucket and sum calls to it when the communicator was made for a device. The rows of kolo_cuda_reducer, in
 * libkolo_cuda.so; the first that fits is taken:
 *   none    one rank: there is nothing to sum
 *   nccl    ncclAllReduce on the communication stream, in a registered arena
 *   staged  device -> pinned host arena -> the shm/MPI reduction of this room -> device, by host functions in
 *           stream order: for ranks that share a GPU, systems without NCCL, and reduce=canonical */
#ifndef KOLO_COMM_REDUCER_H
#define KOLO_COMM_REDUCER_H

#include "comm/comm.h"

/* What a communicator needs to know of the device, which is the calling thread's current one;
 * streams are cudaStream_t. */
struct kolo_comm_device {
    void *compute, *comm; /* streams; `comm` is used by the reducer alone */
    const char *uuid;     /* of this rank's GPU: ranks with the same one cannot use NCCL */
    bool deterministic;
    const char *reducer; /* NULL or "auto", or the name of a row */
    /* some buckets are combined by Adasum, or compressed, which only the host half does */
    bool host;
};

typedef struct kolo_reducer kolo_reducer;
typedef struct kolo_reducer_type {
    const char *name;
    int most;          /* ranks it can serve; 0: any number */
    bool own_gpu;      /* no two ranks on one GPU */
    bool ordered;      /* sums in the documented order: needed for canonical sums */
    bool through_host; /* works through the communicator's host half, which then has an arena and buckets */
    /* Can this process use it? 0 and a note that must be the same on all ranks ("2.28.9",
     * ""), or negative. Local. */
    int (*ready)(char *note, size_t bytes);
    /* Collective; the host half works already. bytes: of the device arena, which it makes, zeroed. Ends by
     * the timeout with the ranks named that did not come. */
    int (*open)(kolo_reducer **reducer, kolo_comm *comm, const kolo_launch *launch,
                const kolo_comm_device *device, size_t bytes, double timeout);
    void (*close)(kolo_reducer **reducer, bool orderly); /* not orderly: at once, others may be dead */
    void *(*arena)(kolo_reducer *reducer);
    /* 0, 1, ... before the first start */
    int (*bucket)(kolo_reducer *reducer, int bucket, size_t offset, int64_t count);
    /* after what is enqueued on compute so far; may be captured */
    int (*start)(kolo_reducer *reducer, int bucket);
    /* compute goes on when the sum stands in the arena */
    int (*wait)(kolo_reducer *reducer, int bucket);
    /* device memory, in place, in compute's order */
    int (*sum)(kolo_reducer *reducer, double *data, int64_t count);
    /* the host waits, at most the timeout, for all that is enqueued on compute */
    int (*finish)(kolo_reducer *reducer);
    /* Any thread. status: 0, or what failed since. abort: lets everything enqueued end, as
     * failed with this text. */
    int (*status)(kolo_reducer *reducer);
    void (*abort)(kolo_reducer *reducer, const char *text);
} kolo_reducer_type;

/* Of libkolo_cuda.so, ended by NULL. */
extern const kolo_reducer_type *const kolo_cuda_reducer[];

/* ---- what the program gives to reducers ---------------------------------------------------------------- */

/* Collective: 0 where all ranks gave 0; else each failing rank's own status, and on the others that
 * of the first, named. */
int kolo_comm_agree(kolo_comm *comm, int status);
/* 0, or the host half is broken: a rank is dead or stopped (named), or has failed. Any thread. */
int kolo_comm_host_status(kolo_comm *comm);
/* A library says that something is wrong, but not which process is gone: waits some seconds for the host half
 * to find out. 0: it does not know. */
int kolo_comm_host_explain(kolo_comm *comm);
/* This rank has failed, as the error text says: whoever of its node waits in the host half, or asks for its
 * status, is told. Returns status. */
int kolo_comm_host_fail(kolo_comm *comm, int status);
/* The host half's own arena and buckets, for a row that works through it: any thread that keeps their
 * order. */
void *kolo_comm_host_arena(kolo_comm *comm, size_t *bytes);
int kolo_comm_host_start(kolo_comm *comm, int bucket);
int kolo_comm_host_wait(kolo_comm *comm, int bucket);
/* One more bucket, made by commit, of KOLO_HOST_SUM f64 at this offset of the host arena; its number. */
enum { KOLO_HOST_SUM = 8192 };
int kolo_comm_host_sum(kolo_comm *comm, size_t *offset);

#endif
