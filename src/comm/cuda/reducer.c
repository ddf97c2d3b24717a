/* The reducers of this library, what they share, and the one that has nothing to do. */
#include <sched.h>
#include <stdio.h>
#include <stdlib.h>

#include "base/memory.h"
#include "base/thread.h"
#include "comm/cuda/parts.h"

const kolo_reducer_type *const kolo_cuda_reducer[] = {
    &comm_cuda_none,
#ifdef KOLO_NCCL
    &comm_cuda_nccl,
#endif
    &comm_cuda_staged,
    NULL,
};

/* ---- parts --------------------------------------------------------------------------------------------- */

int comm_cuda_open(comm_cuda *c, kolo_comm *comm, const kolo_comm_device *device, size_t bytes,
                   double timeout)
{
    c->comm = comm;
    c->compute = device->compute;
    c->side = device->comm;
    c->timeout = timeout;
    c->bytes = bytes ? bytes : KOLO_ALIGN;
    KOLO_TRY(comm_cuda_event(&c->sum_ready));
    KOLO_TRY(comm_cuda_event(&c->sum_done));
    return comm_cuda_event(&c->idle);
}

int comm_cuda_zero(comm_cuda *c)
{
    KOLO_TRY(COMM_CUDA(cudaMemsetAsync(c->arena, 0, c->bytes, c->compute)));
    return COMM_CUDA(cudaStreamSynchronize(c->compute));
}

int comm_cuda_alloc(comm_cuda *c)
{
    void *arena = NULL;
    int rc = COMM_CUDA(cudaMalloc(&arena, c->bytes));
    if (rc < 0) return kolo_fail_in(rc, "%zu bytes for gradients on the GPU: ", c->bytes);
    c->arena = arena;
    return comm_cuda_zero(c);
}

void comm_cuda_close(comm_cuda *c)
{
    for (int64_t b = 0; b < c->buckets; b++) {
        if (c->bucket[b].ready) cudaEventDestroy(c->bucket[b].ready);
        if (c->bucket[b].done) cudaEventDestroy(c->bucket[b].done);
    }
    const cudaEvent_t event[] = {c->idle, c->sum_ready, c->sum_done};
    for (int i = 0; i < 3; i++)
        if (event[i]) cudaEventDestroy(event[i]);
    if (c->arena) cudaFree(c->arena);
    free(c->bucket);
}

int comm_cuda_after(cudaStream_t to, cudaStream_t from, cudaEvent_t event)
{
    KOLO_TRY(COMM_CUDA(cudaEventRecord(event, from)));
    return COMM_CUDA(cudaStreamWaitEvent(to, event, 0));
}

/* ---- entries that rows share --------------------------------------------------------------------------- */

void *comm_cuda_arena(kolo_reducer *r) { return comm_cuda_of(r)->arena; }

int comm_cuda_add(kolo_reducer *r, int bucket, const kolo_reducer_bucket *of)
{
    comm_cuda *c = comm_cuda_of(r);
    if (bucket != c->buckets)
        return kolo_fail(KOLO_EINTERNAL, "comm: bucket %d after %lld", bucket, (long long)c->buckets);
    KOLO_TRY(kolo_grow(&c->bucket, &c->capacity, c->buckets, sizeof *c->bucket));
    comm_cuda_bucket *b = &c->bucket[c->buckets++];
    *b = (comm_cuda_bucket){.of = *of};
    if (of->member < 0) return 0;
    KOLO_TRY(comm_cuda_event(&b->ready));
    return comm_cuda_event(&b->done);
}

int comm_cuda_wait(kolo_reducer *r, int bucket)
{
    comm_cuda *c = comm_cuda_of(r);
    KOLO_TRY(comm_cuda_status(r));
    return COMM_CUDA(cudaStreamWaitEvent(c->compute, c->bucket[bucket].done, 0));
}

int comm_cuda_await(comm_cuda *c, cudaEvent_t event)
{
    const double begin = kolo_time();
    for (int polls = 0;; polls++) {
        const cudaError_t rc = cudaEventQuery(event);
        if (rc != cudaErrorNotReady) return comm_cuda_check(rc, "work enqueued earlier", __FILE__, __LINE__);
        KOLO_TRY(kolo_comm_status(c->comm));
        if (kolo_time() - begin > c->timeout)
            return kolo_fail(
                KOLO_ELAUNCH,
                "comm: the GPU's work did not end within %.0f s; if it only is slow, raise comm_timeout=",
                c->timeout);
        comm_cuda_rest(polls);
    }
}

int comm_cuda_finish(kolo_reducer *r)
{
    comm_cuda *c = comm_cuda_of(r);
    KOLO_TRY(COMM_CUDA(cudaEventRecord(c->idle, c->compute)));
    return comm_cuda_await(c, c->idle);
}

int comm_cuda_status(kolo_reducer *r)
{
    comm_fault *fault = &comm_cuda_of(r)->fault;
    uint32_t state;
    while ((state = atomic_load(&fault->state)) == 1) sched_yield();
    return state == 0 ? 0 : kolo_fail(KOLO_ELAUNCH, "%s", fault->text);
}

void comm_cuda_abort(kolo_reducer *r, const char *text)
{
    comm_fault *fault = &comm_cuda_of(r)->fault;
    uint32_t none = 0;
    if (!atomic_compare_exchange_strong(&fault->state, &none, 1)) return;
    snprintf(fault->text, sizeof fault->text, "%s", text);
    atomic_store(&fault->state, 2);
}

/* ---- one rank ------------------------------------------------------------------------------------------ */

struct kolo_reducer {
    comm_cuda c;
};

static void none_close(kolo_reducer **out, bool orderly)
{
    kolo_reducer *r = *out;
    (void)orderly;
    comm_cuda_close(&r->c);
    free(r);
    *out = NULL;
}

static int none_open(kolo_reducer **out, kolo_comm *comm, const kolo_comm_device *device, size_t bytes,
                     double timeout)
{
    kolo_reducer *r = *out = kolo_alloc(sizeof *r);
    if (!r) return KOLO_ENOMEM;
    int rc = comm_cuda_open(&r->c, comm, device, bytes, timeout);
    if (rc == 0) rc = comm_cuda_alloc(&r->c);
    if (rc < 0) none_close(out, false);
    return rc;
}

const kolo_reducer_type comm_cuda_none = {.name = "none",
                                          .most = 1,
                                          .ordered = true,
                                          .open = none_open,
                                          .close = none_close,
                                          .arena = comm_cuda_arena,
                                          .bucket = comm_cuda_add,
                                          .finish = comm_cuda_finish,
                                          .status = comm_cuda_status,
                                          .abort = comm_cuda_abort};
