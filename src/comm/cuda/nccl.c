/* Sums by NCCL: one communicator, one stream, one issuing thread. The communicator does not block: what NCCL has not
 * finished is polled, so that our own deadline holds and the watchdog can end it.
 *
 * All ranks get the same bits, always. From run to run they are the same for the same ranks, machines and settings,
 * except where NVLink switches do the sums (NVLS), whose order is not fixed: deterministic=true leaves those out. */
#include <inttypes.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/log.h"
#include "base/memory.h"
#include "base/thread.h"
#include "comm/cuda/nccl_calls.h"
#include "comm/cuda/parts.h"

enum { RANKS_A_ROOT = 128, CLOSE_SECONDS = 20 };

struct kolo_reducer {
    comm_cuda c;
    const comm_nccl_calls *calls;
    pthread_mutex_t lock; /* of `nccl`: nobody else is inside NCCL when it is aborted */
    ncclComm_t nccl;      /* NULL: not there yet, or aborted */
    ncclComm_t aborted;   /* what `aborter` ends */
    pthread_t aborter;
    bool joinable;
    cudaEvent_t sum_ready, sum_done;
    bool own_memory; /* the arena is NCCL's */
    void *registered;
};

static int nccl_ready(char *note, size_t bytes)
{
    const comm_nccl_calls *calls = comm_nccl_open();
    if (!calls) return KOLO_ELAUNCH;
    int v = calls->version;
    snprintf(note, bytes, "%d.%d.%d", v / 10000, v / 100 % 100, v % 100);
    return 0;
}

/* ---- errors ---------------------------------------------------------------------------------------------------- */

/* NCCL often notices first that a process is gone, but not which: the host half finds it a moment later. */
static int fail(const kolo_reducer *r, const char *call, ncclResult_t rc)
{
    const char *last = r->calls->GetLastError ? r->calls->GetLastError(NULL) : NULL;
    KOLO_TRY(kolo_comm_host_explain(r->c.comm));
    if (last && !*last) last = NULL;
    return kolo_fail(KOLO_ELAUNCH, "nccl%s: %s%s%s; see the other ranks' messages; NCCL_DEBUG=INFO says more", call, r->calls->GetErrorString(rc),
                     last ? ": " : "", last ? last : "");
}

static void *abort_main(void *of)
{
    kolo_reducer *r = of;
    r->calls->CommAbort(r->aborted);
    return NULL;
}

/* ncclCommAbort lets the streams run on at once, but returns only when every graph that holds a call of this
 * communicator is destroyed. The caller may be the one who has to do that, so a thread of its own waits for it. */
static void nccl_abort(kolo_reducer *r, const char *text)
{
    comm_cuda_abort(r, text);
    pthread_mutex_lock(&r->lock);
    ncclComm_t nccl = r->nccl;
    r->nccl = NULL;
    if (nccl) {
        r->aborted = nccl;
        r->joinable = pthread_create(&r->aborter, NULL, abort_main, r) == 0;
        if (!r->joinable) abort_main(r);
    }
    pthread_mutex_unlock(&r->lock);
}

/* ncclInProgress while the communicator still works at the last call; whatever went wrong with it since. */
static ncclResult_t poll_state(kolo_reducer *r)
{
    ncclResult_t state = ncclInternalError;
    pthread_mutex_lock(&r->lock);
    if (r->nccl && r->calls->CommGetAsyncError(r->nccl, &state) != ncclSuccess) state = ncclInternalError;
    pthread_mutex_unlock(&r->lock);
    return state;
}

/* Until NCCL is done with `call`, which returned rc. Before that its stream may not be touched. */
static int settle(kolo_reducer *r, const char *call, ncclResult_t rc, double seconds)
{
    double begin = kolo_time();
    for (int polls = 0; rc == ncclInProgress; polls++) {
        comm_cuda_rest(polls);
        rc = poll_state(r);
        KOLO_TRY(comm_cuda_status(r)); /* aborted meanwhile: that reason is the better one */
        if (rc != ncclInProgress) break;
        KOLO_TRY(kolo_comm_host_status(r->c.comm));
        if (kolo_time() - begin > seconds)
            return kolo_fail(KOLO_ELAUNCH,
                             "nccl%s did not end within %.0f s: is the network that NCCL takes the right one "
                             "(NCCL_SOCKET_IFNAME, NCCL_IB_HCA; share/site has settings)? NCCL_DEBUG=INFO says more",
                             call, seconds);
    }
    return rc == ncclSuccess ? 0 : fail(r, call, rc);
}

static int nccl_status(kolo_reducer *r)
{
    ncclResult_t state = ncclSuccess;
    KOLO_TRY(comm_cuda_status(r));
    if (pthread_mutex_trylock(&r->lock)) return 0; /* a call is under way: it will say itself */
    if (r->nccl && r->calls->CommGetAsyncError(r->nccl, &state) != ncclSuccess) state = ncclInternalError;
    pthread_mutex_unlock(&r->lock);
    if (state == ncclSuccess || state == ncclInProgress) return 0;
    char text[sizeof r->c.fault.text];
    fail(r, "AllReduce", state);
    snprintf(text, sizeof text, "%s", kolo_error_text());
    nccl_abort(r, text);
    return comm_cuda_status(r);
}

/* ---- a step ---------------------------------------------------------------------------------------------------- */

static int reduce(kolo_reducer *r, void *data, int64_t count, ncclDataType_t type, cudaEvent_t ready, cudaEvent_t done)
{
    comm_cuda *c = &r->c;
    KOLO_TRY(comm_cuda_status(r));
    KOLO_TRY(comm_cuda_after(c->side, c->compute, ready));
    pthread_mutex_lock(&r->lock);
    ncclResult_t rc = ncclInternalError;
    if (r->nccl) rc = r->calls->AllReduce(data, data, (size_t)count, type, ncclSum, r->nccl, c->side);
    pthread_mutex_unlock(&r->lock);
    KOLO_TRY(comm_cuda_status(r));
    KOLO_TRY(settle(r, "AllReduce", rc, c->timeout));
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

/* ---- joining --------------------------------------------------------------------------------------------------- */

/* The rank that makes id `i` of `roots`: NCCL cuts the ranks into as many runs, longer ones first, and asks the first
 * rank of each. */
static int root_rank(int i, int roots, int size)
{
    int longer = size % roots;
    return i * (size / roots) + (i < longer ? i : longer);
}

static int make_id(const kolo_reducer *r, const kolo_launch *launch, int roots, ncclUniqueId *id)
{
    for (int i = 0; i < roots; i++) {
        if (root_rank(i, roots, launch->size) != launch->rank) continue;
        ncclResult_t rc = r->calls->GetUniqueId(id);
        if (rc != ncclSuccess) return fail(r, "GetUniqueId", rc);
    }
    return 0;
}

static int join(kolo_reducer *r, const kolo_launch *launch, ncclUniqueId *ids, int roots)
{
    ncclConfig_t config = NCCL_CONFIG_INITIALIZER;
    config.blocking = 0;
    ncclResult_t rc;
    if (roots > 1) rc = r->calls->CommInitRankScalable(&r->nccl, launch->size, launch->rank, roots, ids, &config);
    else rc = r->calls->CommInitRankConfig(&r->nccl, launch->size, ids[0], launch->rank, &config);
    return settle(r, roots > 1 ? "CommInitRankScalable" : "CommInitRankConfig", rc, r->c.timeout);
}

/* Ids go to rank 0 and from there to all, over the host half: a rank that does not come this far is named by it. */
static int connect(kolo_reducer *r, const kolo_launch *launch, int rc)
{
    int roots = r->calls && r->calls->CommInitRankScalable ? (launch->size + RANKS_A_ROOT - 1) / RANKS_A_ROOT : 1;
    ncclUniqueId mine, *ids = kolo_alloc((size_t)roots * sizeof *ids);
    ncclUniqueId *all = launch->rank ? NULL : kolo_alloc((size_t)launch->size * sizeof *all);
    memset(&mine, 0, sizeof mine);
    if (rc == 0 && (!ids || (!all && launch->rank == 0))) rc = KOLO_ECONFIG;
    if (rc == 0) rc = make_id(r, launch, roots, &mine);
    KOLO_TRY_GOTO(rc, kolo_comm_agree(r->c.comm, rc));
    KOLO_TRY_GOTO(rc, kolo_comm_gather(r->c.comm, &mine, sizeof mine, all, 0));
    for (int i = 0; all && i < roots; i++) ids[i] = all[root_rank(i, roots, launch->size)];
    KOLO_TRY_GOTO(rc, kolo_comm_broadcast(r->c.comm, ids, (size_t)roots * sizeof *ids, 0));
    rc = join(r, launch, ids, roots);
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
    const comm_nccl_calls *calls = r->calls;
    void *arena = NULL;
    int64_t registered = 0;
    if (calls->MemAlloc && calls->MemFree && calls->CommRegister && calls->CommDeregister && calls->MemAlloc(&arena, r->c.bytes) == ncclSuccess) {
        r->own_memory = true;
        r->c.arena = arena;
        registered = calls->CommRegister(r->nccl, arena, r->c.bytes, &r->registered) == ncclSuccess;
    }
    int rc = r->own_memory ? comm_cuda_zero(&r->c) : comm_cuda_alloc(&r->c);
    KOLO_TRY(kolo_comm_agree(r->c.comm, rc));
    KOLO_TRY(kolo_comm_allreduce(r->c.comm, &registered, 1, KOLO_WIRE_I64, KOLO_MIN));
    if (!registered && r->registered) {
        calls->CommDeregister(r->nccl, r->registered);
        r->registered = NULL;
    }
    kolo_debug("gradients: %zu bytes, %s", r->c.bytes, registered ? "registered with NCCL" : "not registered with NCCL");
    return 0;
}

/* ---- life ------------------------------------------------------------------------------------------------------ */

static void leave(kolo_reducer *r, bool orderly)
{
    ncclComm_t nccl = r->nccl;
    if (orderly && nccl) {
        double seconds = r->c.timeout < CLOSE_SECONDS ? r->c.timeout : CLOSE_SECONDS;
        if (r->registered) r->calls->CommDeregister(nccl, r->registered);
        orderly = settle(r, "CommFinalize", r->calls->CommFinalize(nccl), seconds) == 0 && r->calls->CommDestroy(nccl) == ncclSuccess;
        if (orderly) r->nccl = NULL;
    }
    nccl_abort(r, "the communicator was closed");
    if (r->joinable) pthread_join(r->aborter, NULL);
    r->joinable = false;
}

static void nccl_close(kolo_reducer **out, bool orderly)
{
    kolo_reducer *r = *out;
    leave(r, orderly);
    if (r->c.arena && r->own_memory) r->calls->MemFree(r->c.arena);
    else if (r->c.arena) cudaFree(r->c.arena);
    if (r->sum_ready) cudaEventDestroy(r->sum_ready);
    if (r->sum_done) cudaEventDestroy(r->sum_done);
    comm_cuda_close(&r->c);
    pthread_mutex_destroy(&r->lock);
    free(r);
    *out = NULL;
}

static int prepare(kolo_reducer *r, kolo_comm *comm, const kolo_comm_device *device, size_t bytes, double timeout)
{
    r->calls = comm_nccl_open();
    if (!r->calls) return KOLO_ELAUNCH;
    if (device->deterministic && setenv("NCCL_NVLS_ENABLE", "0", 0) == 0) kolo_debug("deterministic=true: NCCL_NVLS_ENABLE=%s", getenv("NCCL_NVLS_ENABLE"));
    KOLO_TRY(comm_cuda_open(&r->c, comm, device, bytes, timeout));
    KOLO_TRY(comm_cuda_event(&r->sum_ready));
    return comm_cuda_event(&r->sum_done);
}

static int nccl_open(kolo_reducer **out, kolo_comm *comm, const kolo_launch *launch, const kolo_comm_device *device, size_t bytes, double timeout)
{
    kolo_reducer *r = *out = kolo_alloc(sizeof *r);
    if (!r) return kolo_comm_agree(comm, KOLO_ECONFIG);
    pthread_mutex_init(&r->lock, NULL);
    r->c.comm = comm;
    int rc = connect(r, launch, prepare(r, comm, device, bytes, timeout));
    if (rc == 0) rc = make_arena(r);
    if (rc < 0) nccl_close(out, false);
    return rc;
}

const kolo_reducer_type comm_cuda_nccl = {.name = "nccl",
                                          .own_gpu = true,
                                          .ready = nccl_ready,
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
