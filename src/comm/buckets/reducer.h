/* Reducer: sums buckets that lie in a GPU's memory, in stream order, while the host goes on. device.c hands
 * bucket and sum calls to it when the communicator was made for a device. The rows of kolo_cuda_reducer, in
 * libkolo_cuda.so; the first that fits is taken:
 *   none    one rank: there is nothing to sum
 *   nccl    collectives, sends and receives of NCCL: the group of all ranks on the communication stream, in a
 *           registered arena, every other group and pair with a communicator and a stream of its own
 *   staged  device -> pinned host arena -> the buckets of this room -> device: for ranks that share a GPU,
 *           systems without NCCL, and reduce=canonical */
#ifndef KOLO_COMM_REDUCER_H
#define KOLO_COMM_REDUCER_H

#include "comm/buckets/trainer.h"

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

/* A bucket, or a transfer, as a reducer sees it. Offsets are bytes of this rank's arena. */
typedef struct kolo_reducer_bucket {
    /* KOLO_ALLREDUCE; KOLO_REDUCE_SCATTER and KOLO_ALLGATHER in parts as kolo_comm_part says; KOLO_BROADCAST:
     * a transfer from member 0 of its group to member 1 */
    enum kolo_collective what;
    int group;           /* number; 0: all ranks */
    int members, member; /* this rank among them; -1: it takes no part, and no call for this bucket follows */
    size_t offset;
    int64_t count;        /* elements; bytes of a transfer */
    enum kolo_dtype type; /* KOLO_F32, of an allreduce also KOLO_F64; KOLO_U8 of a transfer */
    /* what this rank brings, and what it gets; bytes may be 0 */
    struct {
        size_t offset, bytes;
    } in, out;
    /* that the caller cut: member owner[i] has size[i] elements from first[i] on, or none; 0: it did not */
    int parts;
    const int *owner; /* these stay where they are */
    const int64_t *first, *size;
} kolo_reducer_bucket;

typedef struct kolo_reducer kolo_reducer;
typedef struct kolo_reducer_type {
    const char *name;
    int most;          /* ranks it can serve; 0: any number */
    bool own_gpu;      /* no two ranks on one GPU */
    bool ordered;      /* sums in the documented order: needed for canonical sums */
    bool through_host; /* works through the communicator's host half, which then has an arena and buckets */
    bool equal_parts;  /* see kolo_comm_equal_part; else the host half's, where nobody cut them */
    /* Can this process use it? 0 and a note that must be the same on all ranks ("2.28.9"), or negative.
     * Local. NULL: any can. */
    int (*ready)(char *note, size_t bytes);
    /* Collective; the host half works already. bytes: of the device arena, which it makes, zeroed. Ends by
     * the timeout with the ranks named that did not come. */
    int (*open)(kolo_reducer **reducer, kolo_comm *comm, const kolo_comm_device *device, size_t bytes,
                double timeout);
    void (*close)(kolo_reducer **reducer, bool orderly); /* not orderly: at once, others may be dead */
    void *(*arena)(kolo_reducer *reducer);
    /* 0, 1, ... before commit */
    int (*bucket)(kolo_reducer *reducer, int bucket, const kolo_reducer_bucket *of);
    /* Collective; NULL: nothing is to be done. All buckets are declared, the same on all ranks. */
    int (*commit)(kolo_reducer *reducer);
    /* after what is enqueued on compute so far; may be captured, unless through_host. Waits for no other
     * rank, and what is started of one group waits for no other group */
    int (*start)(kolo_reducer *reducer, int bucket);
    /* compute goes on when the bucket's result stands in the arena, or the sender may write there again;
     * through_host: the host waits for it */
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

/* 0, or the host half is broken: a rank is dead or stopped (named), or has failed. Any thread. */
int kolo_comm_host_status(kolo_comm *comm);
/* A library says that something is wrong, but not which process is gone: waits some seconds for the host half
 * to find out. 0: it does not know. */
int kolo_comm_host_explain(kolo_comm *comm);
/* This rank has failed, as the error text says: a rank of its node that waits in the host half, or asks for
 * its status, learns it. Returns status. */
int kolo_comm_host_fail(kolo_comm *comm, int status);
/* Ranks of a group, ascending (of a pair: from, to); their number. */
int kolo_comm_group_ranks(const kolo_comm *comm, int group, const int **ranks);
/* Parts of a reduce_scatter and an allgather that equal_parts rows make: count / members elements each, and
 * the last member what is left over. */
static inline int64_t kolo_comm_equal_part(int64_t count, int members, int member)
{
    return member < members ? member * (count / members) : count;
}
/* The host half's own arena, as far as this rank uses it, and buckets, for a row that works through it:
 * start, test and wait by any thread that keeps their order. test: 1, the round started last is done and wait
 * would return at once; 0; negative: as wait. */
void *kolo_comm_host_arena(kolo_comm *comm, size_t *bytes);
int kolo_comm_host_start(kolo_comm *comm, int bucket);
int kolo_comm_host_wait(kolo_comm *comm, int bucket);

#endif
