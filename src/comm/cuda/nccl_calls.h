/* NCCL is opened when GPUs are to be joined, not when the CUDA library is: a program on one GPU does not wait
 * for it, and a system without it stages through host memory. */
#ifndef KOLO_COMM_CUDA_NCCL_CALLS_H
#define KOLO_COMM_CUDA_NCCL_CALLS_H

#include <nccl.h>

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

/* Opened once: KOLO_NCCL_LIBRARY (a file); else what is linked to this library; else libnccl.so.2 as the
 * dynamic linker finds it. NULL: none, or older than 2.18; the error text says which. */
const comm_nccl_calls *comm_nccl_open(void);

#endif
