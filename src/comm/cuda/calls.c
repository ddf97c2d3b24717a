#include "comm/cuda/calls.h"

#include <sched.h>
#include <time.h>

#include "kolo/error.h"

int comm_cuda_check(cudaError_t rc, const char *call, const char *file, int line)
{
    if (rc == cudaSuccess) return 0;
    cudaGetLastError(); /* it is reported here; later calls are judged by themselves */
    return kolo_fail(rc == cudaErrorMemoryAllocation ? KOLO_ENOMEM : KOLO_ELAUNCH, "%s: %s (%s), %s:%d", call,
                     cudaGetErrorString(rc), cudaGetErrorName(rc), file, line);
}

int comm_cuda_event(cudaEvent_t *event)
{
    return COMM_CUDA(cudaEventCreateWithFlags(event, cudaEventDisableTiming));
}

void comm_cuda_rest(int polls)
{
    struct timespec rest = {0, polls < 1000 ? 20000 : 1000000};
    if (polls < 100) sched_yield();
    else nanosleep(&rest, NULL);
}
