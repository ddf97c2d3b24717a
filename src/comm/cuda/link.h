/* One communicator of NCCL, as both halves of this room use it. It does not block: what NCCL has not finished
 * is polled, so that our own deadlines hold, and it can be ended at any time. */
#ifndef KOLO_COMM_CUDA_LINK_H
#define KOLO_COMM_CUDA_LINK_H

#include <nccl.h>
#include <pthread.h>
#include <stdbool.h>
#include <stddef.h>

#include "comm/core/gpu_channel.h"

/* it never settles on these lines */
/* clang-format off */
#define COMM_NCCL_CALLS(CALL) \
    CALL(GetVersion) CALL(GetErrorString) CALL(GetUniqueId) CALL(CommInitRankConfig) CALL(CommGetAsyncError) \
    CALL(CommFinalize) CALL(CommDestroy) CALL(CommAbort) CALL(AllReduce) CALL(Reduce) CALL(ReduceScatter) \
    CALL(Broadcast) CALL(AllGather) CALL(Send) CALL(Recv) CALL(GroupStart) CALL(GroupEnd)
/* NULL where this NCCL is too old for them. */
#define COMM_NCCL_OPTIONAL(CALL) \
    CALL(GetLastError) CALL(CommInitRankScalable) CALL(MemAlloc) CALL(MemFree) CALL(CommRegister) \
    CALL(CommDeregister)
/* clang-format on */

typedef struct comm_nccl_calls {
    int version;
#define CALL(name) __typeof__(nccl##name) *name;
    COMM_NCCL_CALLS(CALL) COMM_NCCL_OPTIONAL(CALL)
#undef CALL
} comm_nccl_calls;

typedef struct comm_link {
    const comm_nccl_calls *calls;
    pthread_mutex_t lock; /* of `nccl`: nobody else is inside NCCL when it is aborted */
    ncclComm_t nccl;      /* NULL: not there yet, or aborted */
    ncclComm_t aborted;   /* what `aborter` ends */
    pthread_t aborter;
    bool joinable;
} comm_link;

void comm_link_make(comm_link *link);
/* "2.28.9", or KOLO_ELAUNCH: there is no NCCL that can be used. */
int comm_link_version(char *text, size_t bytes);
/* NCCL itself, which is opened once, when GPUs are to be joined: a program on one GPU does not wait for
 * it, and a system without it stages through host memory. It is KOLO_NCCL_LIBRARY (a file); else what is
 * linked to this library; else libnccl.so.2 as the dynamic linker finds it. KOLO_ELAUNCH: none, or older
 * than 2.18. */
int comm_link_open(comm_link *link);
/* Begins to join; settled by polling. ids: [roots]. */
ncclResult_t comm_link_join(comm_link *link, int size, int rank, ncclUniqueId *ids, int roots);
/* ncclInProgress while NCCL still works at the last call (its stream may not be touched before it is done);
 * whatever went wrong since; ncclInternalError once it was aborted. */
ncclResult_t comm_link_state(comm_link *link);
/* Enqueues moves (comm_gpu_op) on a stream: several as one group, of nothing nothing. The lock is held, and
 * nccl is there; the return is to be settled. */
ncclResult_t comm_link_move(const comm_link *link, const comm_gpu_op *op, int count, cudaStream_t stream);
/* Polls until *rc, which a call returned, is not ncclInProgress any more. Negative: `look` (may be NULL) was,
 * or it took too many seconds (error text set). */
int comm_link_settle(comm_link *link, const char *call, ncclResult_t *rc, double seconds,
                     int (*look)(void *of), void *of);
/* KOLO_ELAUNCH, with what NCCL says about it. */
int comm_link_fail(const comm_link *link, const char *call, ncclResult_t rc);
/* Ends it at once, whatever is under way; any thread, any number of times. */
void comm_link_abort(comm_link *link);
/* orderly: waits, at most so many seconds, until all ranks leave; else, or if that fails, as comm_link_abort,
 * but returns when NCCL is through with it. */
void comm_link_close(comm_link *link, bool orderly, double seconds, int (*look)(void *of), void *of);

#endif
