/* Sums by NCCL: one communicator (link.h), one stream, one issuing thread.
 *
 * All ranks get the same bits, always. From run to run they are the same for the same ranks, machines
 * and settings, except where NVLink switches do the sums (NVLS), whose order is not fixed:
 * deterministic=true leaves those out. */
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/log.h"
#include "base/memory.h"
#include "comm/cuda/link.h"
#include "comm/cuda/parts.h"

enum { RANKS_A_ROOT = 128, CLOSE_SECONDS = 20 };

struct kolo_reducer {
    comm_cuda c;
    comm_link link;
    cudaEvent_t sum_ready, sum_done;
    bool own_memory; /* the arena is NCCL's */
    void *registered;
};

/* ---- errors -------------------------------------------------------------------------------------------- */

/* NCCL often notices first that a process is gone, but not which: the host half finds it a moment later. */
static int fail(const kolo_reducer *r, const char *call, ncclResult_t rc)
{
    KOLO_TRY(kolo_comm_host_explain(r->c.comm));
    return comm_link_fail(&r->link, call, rc);
}

static void nccl_abort(kolo_reducer *r, const char *text)
{
    comm_cuda_abort(r, text);
    comm_link_abort(&r->link);
}

static int cuda_nccl_look(void *of)
{
    kolo_reducer *r = of;
    KOLO_TRY(comm_cuda_status(r));
    return kolo_comm_host_status(r->c.comm);
}

/* Until NCCL is done with `call`, which returned rc. Before that its stream may not be touched. */
static int cuda_nccl_settle(kolo_reducer *r, const char *call, ncclResult_t rc)
{
    KOLO_TRY(comm_link_settle(&r->link, call, &rc, r->c.timeout, cuda_nccl_look, r));
    return rc == ncclSuccess ? 0 : fail(r, call, rc);
}

static int nccl_status(kolo_reducer *r)
{
    ncclResult_t state = ncclSuccess;
    KOLO_TRY(comm_cuda_status(r));
    if (pthread_mutex_trylock(&r->link.lock)) return 0; /* a call is under way: it will say itself */
    if (r->link.nccl && r->link.calls->CommGetAsyncError(r->link.nccl, &state) != ncclSuccess)
        state = ncclInternalError;
    pthread_mutex_unlock(&r->link.lock);
    if (state == ncclSuccess || state == ncclInProgress) return 0;
    char text[sizeof r->c.fault.text];
    fail(r, "AllReduce", state);
    snprintf(text, sizeof text, "%s", kolo_error_text());
    nccl_abort(r, text);
    return comm_cuda_status(r);
}

/* ---- a step -------------------------------------------------------------------------------------------- */

static int reduce(kolo_reducer *r, void *data, int64_t count, ncclDataType_t type, cudaEvent_t ready,
                  cudaEvent_t done)
{
    comm_cuda *c = &r->c;
    KOLO_TRY(comm_cuda_status(r));
    KOLO_TRY(comm_cuda_after(c->side, c->compute, ready));
    pthread_mutex_lock(&r->link.lock);
    ncclResult_t rc = ncclInternalError;
    if (r->link.nccl)
        rc = r->link.calls->AllReduce(data, data, (size_t)count, type, ncclSum, r->link.nccl, c->side);
    pthread_mutex_unlock(&r->link.lock);
    KOLO_TRY(comm_cuda_status(r));
    KOLO_TRY(cuda_nccl_settle(r, "AllReduce", rc));
    return COMM_CUDA(cudaEventRecord(done, c->side));
}

static int nccl_start(kolo_reducer *r, int bucket)
{
    const comm_cuda_bucket *b = &r->c.bucket[bucket];
    return reduce(r, r->c.arena + b->offset, b->count, ncclFloat32, b->ready, b->done);
}

static int nccl_sum(kolo_reducer *r, double *data, int64_t count)
{
    KOLO_TRY(reduce(r, data, count, ncclFloat64, r->sum_ready, r->sum_done));
    return COMM_CUDA(cudaStreamWaitEvent(r->c.compute, r->sum_done, 0));
}

/* ---- joining ------------------------------------------------------------------------------------------- */

/* The rank that makes id `i` of `roots`: NCCL cuts the ranks into as many runs, longer ones first, and asks
 * the first rank of each. */
static int root_rank(int i, int roots, int size)
{
    int longer = size % roots;
    return i * (size / roots) + (i < longer ? i : longer);
}

static int make_id(const kolo_reducer *r, const kolo_launch *launch, int roots, ncclUniqueId *id)
{
    for (int i = 0; i < roots; i++) {
        if (root_rank(i, roots, launch->size) != launch->rank) continue;
        ncclResult_t rc = r->link.calls->GetUniqueId(id);
        if (rc != ncclSuccess) return fail(r, "GetUniqueId", rc);
    }
    return 0;
}

static int cuda_nccl_join(kolo_reducer *r, const kolo_launch *launch, ncclUniqueId *ids, int roots)
{
    return cuda_nccl_settle(r, roots > 1 ? "CommInitRankScalable" : "CommInitRankConfig",
                            comm_link_join(&r->link, launch->size, launch->rank, ids, roots));
}

/* Ids go to rank 0 and from there to all, over the host half: a rank that does not come
 * this far is named by it. */
static int connect(kolo_reducer *r, const kolo_launch *launch, int rc)
{
    int roots = r->link.calls && r->link.calls->CommInitRankScalable
                    ? (launch->size + RANKS_A_ROOT - 1) / RANKS_A_ROOT
                    : 1;
    ncclUniqueId mine, *ids = kolo_alloc((size_t)roots * sizeof *ids);
    ncclUniqueId *all = launch->rank ? NULL : kolo_alloc((size_t)launch->size * sizeof *all);
    memset(&mine, 0, sizeof mine);
    if (rc == 0 && (!ids || (!all && launch->rank == 0))) rc = KOLO_ENOMEM;
    if (rc == 0) rc = make_id(r, launch, roots, &mine);
    KOLO_TRY_GOTO(rc, kolo_comm_agree(r->c.comm, rc));
    KOLO_TRY_GOTO(rc, kolo_comm_gather(r->c.comm, &mine, sizeof mine, all, 0));
    for (int i = 0; all && i < roots; i++) ids[i] = all[root_rank(i, roots, launch->size)];
    KOLO_TRY_GOTO(rc, kolo_comm_broadcast(r->c.comm, ids, (size_t)roots * sizeof *ids, 0));
    rc = cuda_nccl_join(r, launch, ids, roots);
    if (rc < 0) rc = kolo_comm_host_fail(r->c.comm, rc); /* others wait for this rank within NCCL */
    rc = kolo_comm_agree(r->c.comm, rc);
fail:
    free(ids);
    free(all);
    return rc;
}

/* NCCL's own memory, registered, or on all ranks none of it registered. */
static int make_arena(kolo_reducer *r)
{
    const comm_nccl_calls *calls = r->link.calls;
    void *arena = NULL;
    int64_t registered = 0;
    if (calls->MemAlloc && calls->MemFree && calls->CommRegister && calls->CommDeregister &&
        calls->MemAlloc(&arena, r->c.bytes) == ncclSuccess) {
        r->own_memory = true;
        r->c.arena = arena;
        registered = calls->CommRegister(r->link.nccl, arena, r->c.bytes, &r->registered) == ncclSuccess;
    }
    int rc = r->own_memory ? comm_cuda_zero(&r->c) : comm_cuda_alloc(&r->c);
    KOLO_TRY(kolo_comm_agree(r->c.comm, rc));
    KOLO_TRY(kolo_comm_allreduce(r->c.comm, &registered, 1, KOLO_I64, KOLO_MIN));
    if (!registered && r->registered) {
        calls->CommDeregister(r->link.nccl, r->registered);
        r->registered = NULL;
    }
    kolo_debug("gradients: %zu bytes, %s", r->c.bytes,
               registered ? "registered with NCCL" : "not registered with NCCL");
    return 0;
}

/* ---- life ---------------------------------------------------------------------------------------------- */

static void nccl_close(kolo_reducer **out, bool orderly)
{
    kolo_reducer *r = *out;
    if (orderly && r->registered && r->link.nccl) r->link.calls->CommDeregister(r->link.nccl, r->registered);
    if (!orderly) comm_cuda_abort(r, "the communicator was closed");
    comm_link_close(&r->link, orderly, r->c.timeout < CLOSE_SECONDS ? r->c.timeout : CLOSE_SECONDS,
                    cuda_nccl_look, r);
    if (r->c.arena && r->own_memory) r->link.calls->MemFree(r->c.arena);
    else if (r->c.arena) cudaFree(r->c.arena);
    if (r->sum_ready) cudaEventDestroy(r->sum_ready);
    if (r->sum_done) cudaEventDestroy(r->sum_done);
    comm_cuda_close(&r->c);
    free(r);
    *out = NULL;
}

static int cuda_nccl_prepare(kolo_reducer *r, kolo_comm *comm, const kolo_comm_device *device, size_t bytes,
                             double timeout)
{
    KOLO_TRY(comm_link_open(&r->link));
    if (device->deterministic && setenv("NCCL_NVLS_ENABLE", "0", 0) == 0)
        kolo_debug("deterministic=true: NCCL_NVLS_ENABLE=%s", getenv("NCCL_NVLS_ENABLE"));
    KOLO_TRY(comm_cuda_open(&r->c, comm, device, bytes, timeout));
    KOLO_TRY(comm_cuda_event(&r->sum_ready));
    return comm_cuda_event(&r->sum_done);
}

static int nccl_open(kolo_reducer **out, kolo_comm *comm, const kolo_launch *launch,
                     const kolo_comm_device *device, size_t bytes, double timeout)
{
    kolo_reducer *r = *out = kolo_alloc(sizeof *r);
    if (!r) return kolo_comm_agree(comm, KOLO_ENOMEM);
    comm_link_make(&r->link);
    r->c.comm = comm;
    int rc = connect(r, launch, cuda_nccl_prepare(r, comm, device, bytes, timeout));
    if (rc == 0) rc = make_arena(r);
    if (rc < 0) nccl_close(out, false);
    return rc;
}

const kolo_reducer_type comm_cuda_nccl = {.name = "nccl",
                                          .own_gpu = true,
                                          .ready = comm_link_version,
                                          .open = nccl_open,
                                          .close = nccl_close,
                                          .arena = comm_cuda_arena,
                                          .bucket = comm_cuda_add,
                                          .start = nccl_start,
                                          .wait = comm_cuda_wait,
                                          .sum = nccl_sum,
                                          .finish = comm_cuda_finish,
                                          .status = nccl_status,
                                          .abort = nccl_abort};
