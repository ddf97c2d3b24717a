/* Sums that travel through host memory: for ranks that share a GPU, for systems without NCCL, for
 * canonical sums. The arena of the communicator's host half is page-locked; crossing to it and back is
 * enqueued like everything else:
 *
 *   side:  bucket ready -> copy to the host arena -> host function: start
 *   back:                                            -> host function: wait -> copy to the
 *       device -> bucket done
 *
 * Every start stands on one stream, in the order of the calls, which is the same on all ranks; so no wait can
 * hold up a start that another rank waits for, even where CUDA runs all host functions on one thread. Host
 * functions may not call CUDA, nor can they fail the stream: an error is kept for status(), and what follows
 * passes through unsummed. */
#include <stdlib.h>
#include <string.h>

#include "base/memory.h"
#include "comm/cuda/parts.h"

/* What a host function is given: one for each bucket, and one for the sums of f64. */
typedef struct staged_slot {
    kolo_reducer *reducer;
    int bucket; /* of the host half */
} staged_slot;

struct kolo_reducer {
    comm_cuda c;
    cudaStream_t back;
    cudaEvent_t there, sum_ready, sum_done; /* `there`: the host half has started */
    char *host;
    bool pinned;
    staged_slot **slot, sum; /* [slots]; their addresses are part of captured graphs */
    int64_t slots, capacity;
    size_t sum_offset;
};

static int staged_ready(char *note, size_t bytes)
{
    (void)note, (void)bytes;
    return 0;
}

/* ---- on CUDA's own thread ------------------------------------------------------------------------------ */

static void host_start(void *of)
{
    staged_slot *slot = of;
    if (comm_cuda_status(slot->reducer) < 0) return;
    if (kolo_comm_host_start(slot->reducer->c.comm, slot->bucket) < 0)
        comm_cuda_abort(slot->reducer, kolo_error_text());
}

static void host_wait(void *of)
{
    staged_slot *slot = of;
    if (comm_cuda_status(slot->reducer) < 0) return;
    if (kolo_comm_host_wait(slot->reducer->c.comm, slot->bucket) < 0)
        comm_cuda_abort(slot->reducer, kolo_error_text());
}

/* ---- a step -------------------------------------------------------------------------------------------- */

static int round_trip(kolo_reducer *r, staged_slot *slot, void *device, size_t offset, size_t bytes,
                      cudaEvent_t ready, cudaEvent_t done)
{
    comm_cuda *c = &r->c;
    KOLO_TRY(comm_cuda_status(r));
    KOLO_TRY(comm_cuda_after(c->side, c->compute, ready));
    KOLO_TRY(COMM_CUDA(cudaMemcpyAsync(r->host + offset, device, bytes, cudaMemcpyDeviceToHost, c->side)));
    KOLO_TRY(COMM_CUDA(cudaLaunchHostFunc(c->side, host_start, slot)));
    KOLO_TRY(comm_cuda_after(r->back, c->side, r->there));
    KOLO_TRY(COMM_CUDA(cudaLaunchHostFunc(r->back, host_wait, slot)));
    KOLO_TRY(COMM_CUDA(cudaMemcpyAsync(device, r->host + offset, bytes, cudaMemcpyHostToDevice, r->back)));
    return COMM_CUDA(cudaEventRecord(done, r->back));
}

static int staged_start(kolo_reducer *r, int bucket)
{
    const comm_cuda_bucket *b = &r->c.bucket[bucket];
    return round_trip(r, r->slot[bucket], r->c.arena + b->offset, b->offset, (size_t)b->count * sizeof(float),
                      b->ready, b->done);
}

/* The host half sums the whole slot; what lies behind `count` is whatever stood there, and nobody reads
 * it. */
static int staged_sum(kolo_reducer *r, double *data, int64_t count)
{
    if (!r->sum.reducer) r->sum = (staged_slot){r, kolo_comm_host_sum(r->c.comm, &r->sum_offset)};
    for (int64_t at = 0; at < count; at += KOLO_HOST_SUM) {
        size_t some = (size_t)(count - at < KOLO_HOST_SUM ? count - at : KOLO_HOST_SUM) * sizeof *data;
        KOLO_TRY(round_trip(r, &r->sum, data + at, r->sum_offset, some, r->sum_ready, r->sum_done));
        KOLO_TRY(COMM_CUDA(cudaStreamWaitEvent(r->c.compute, r->sum_done, 0)));
    }
    return 0;
}

static int staged_bucket(kolo_reducer *r, int bucket, size_t offset, int64_t count)
{
    KOLO_TRY(kolo_grow(&r->slot, &r->capacity, r->slots, sizeof *r->slot));
    staged_slot *slot = r->slot[r->slots] = kolo_alloc(sizeof *slot);
    if (!slot) return KOLO_ENOMEM;
    r->slots++;
    *slot = (staged_slot){r, bucket};
    return comm_cuda_add(r, bucket, offset, count);
}

/* ---- life ---------------------------------------------------------------------------------------------- */

static void staged_close(kolo_reducer **out, bool orderly)
{
    kolo_reducer *r = *out;
    if (!orderly) comm_cuda_abort(r, "the communicator was closed");
    if (r->back)
        cudaStreamSynchronize(r->c.compute), cudaStreamSynchronize(r->c.side), cudaStreamSynchronize(r->back);
    if (r->pinned) cudaHostUnregister(r->host);
    cudaEvent_t event[] = {r->there, r->sum_ready, r->sum_done};
    for (int i = 0; i < 3; i++)
        if (event[i]) cudaEventDestroy(event[i]);
    if (r->back) cudaStreamDestroy(r->back);
    if (r->c.arena) cudaFree(r->c.arena);
    for (int64_t b = 0; b < r->slots; b++) free(r->slot[b]);
    free(r->slot);
    comm_cuda_close(&r->c);
    free(r);
    *out = NULL;
}

static int staged_make(kolo_reducer *r)
{
    size_t bytes;
    r->host = kolo_comm_host_arena(r->c.comm, &bytes);
    KOLO_TRY(COMM_CUDA(cudaStreamCreateWithFlags(&r->back, cudaStreamNonBlocking)));
    KOLO_TRY(comm_cuda_event(&r->there));
    KOLO_TRY(comm_cuda_event(&r->sum_ready));
    KOLO_TRY(comm_cuda_event(&r->sum_done));
    int rc = COMM_CUDA(cudaHostRegister(r->host, bytes, cudaHostRegisterPortable));
    if (rc < 0) return kolo_fail_in(rc, "page-locking %zu bytes of host memory for gradients: ", bytes);
    r->pinned = true;
    return comm_cuda_alloc(&r->c);
}

static int staged_open(kolo_reducer **out, kolo_comm *comm, const kolo_launch *launch,
                       const kolo_comm_device *device, size_t bytes, double timeout)
{
    kolo_reducer *r = *out = kolo_alloc(sizeof *r);
    (void)launch;
    if (!r) return KOLO_ENOMEM;
    int rc = comm_cuda_open(&r->c, comm, device, bytes, timeout);
    if (rc == 0) rc = staged_make(r);
    if (rc < 0) staged_close(out, false);
    return rc;
}

const kolo_reducer_type comm_cuda_staged = {.name = "staged",
                                            .ordered = true,
                                            .through_host = true,
                                            .ready = staged_ready,
                                            .open = staged_open,
                                            .close = staged_close,
                                            .arena = comm_cuda_arena,
                                            .bucket = staged_bucket,
                                            .start = staged_start,
                                            .wait = comm_cuda_wait,
                                            .sum = staged_sum,
                                            .finish = comm_cuda_finish,
                                            .status = comm_cuda_status,
                                            .abort = comm_cuda_abort};
