/* Tickets: counters in device memory, by which a block of a kernel finds that it is the last (ticket.cuh).
 * Each kernel has its own, so kernels on two streams share none; runs of one kernel follow one another on
 * its stream, and each leaves its tickets at 0. They are handed out when a plan is made, from pieces that
 * live as long as the backend. */
#include <stdlib.h>

#include "base/memory.h"
#include "ops/cuda/cuda.h"

enum { PIECE = 1 << 14 }; /* tickets of a piece: 64 KiB */

struct kolo_cuda_tickets {
    struct kolo_cuda_tickets *next;
    uint32_t *memory;
    int64_t count, used;
};

/* The new piece becomes the first. It is zeroed on the stream of the kernels that use it, before them. */
static int add_piece(kolo_cuda *cuda, int64_t count)
{
    const size_t bytes = (size_t)count * sizeof(uint32_t);
    struct kolo_cuda_tickets *t = kolo_alloc(sizeof *t);
    if (!t) return KOLO_ENOMEM;
    t->next = cuda->tickets;
    t->count = count;
    cuda->tickets = t;
    KOLO_TRY(KOLO_CUDA(cudaMalloc((void **)&t->memory, bytes)));
    return KOLO_CUDA(cudaMemsetAsync(t->memory, 0, bytes, cuda->stream[KOLO_LANE_COMPUTE]));
}

int kolo_cuda_tickets_take(kolo_backend *backend, int64_t count, uint32_t **tickets)
{
    kolo_cuda *cuda = kolo_cuda_of(backend);
    *tickets = NULL;
    if (backend->gpu) return 0;
    if (!cuda->tickets || cuda->tickets->count - cuda->tickets->used < count)
        KOLO_TRY(add_piece(cuda, count > PIECE ? count : PIECE));
    *tickets = cuda->tickets->memory + cuda->tickets->used;
    cuda->tickets->used += count;
    return 0;
}

void kolo_cuda_tickets_close(kolo_cuda *cuda)
{
    while (cuda->tickets) {
        struct kolo_cuda_tickets *t = cuda->tickets;
        cuda->tickets = t->next;
        if (t->memory) cudaFree(t->memory);
        free(t);
    }
}
