/* The last block of a kernel goes on with what all its blocks have written, where a second kernel would have
 * to be launched otherwise.
 *
 * Source: NVIDIA, CUDA C++ Programming Guide, "Memory Fence Functions"; CUDA samples, threadFenceReduction.
 * As there, a counter says which block comes last and is 0 again behind it. Unlike there, one thread's fence
 * stands for its block: fences are cumulative over what a barrier has ordered before them (PTX ISA, "Memory
 * Consistency Model", causality order). */
#ifndef KOLO_OPS_CUDA_TICKET_CUH
#define KOLO_OPS_CUDA_TICKET_CUH

#include "ops/cuda/launch.cuh"

/* Whether this block is the last of `blocks` that take a number from `ticket`, which is 0 before the first
 * and after the last (kolo_cuda_tickets_take). What their threads wrote before, the threads of the last one
 * read after it, by __ldcg. All threads of a block call it. */
static __device__ bool kolo_last_block(uint32_t *ticket, int blocks)
{
    __shared__ bool last;
    const uint32_t most = (uint32_t)blocks - 1;
    __syncthreads();
    if (threadIdx.x == 0) {
        __threadfence();
        last = atomicInc(ticket, most) == most;
        if (last) __threadfence();
    }
    __syncthreads();
    return last;
}

#endif
