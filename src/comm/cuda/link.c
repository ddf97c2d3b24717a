#include "comm/cuda/link.h"

#include <dlfcn.h>
#include <stdio.h>
#include <stdlib.h>
#include <time.h>

#include "comm/cuda/calls.h"
#include "kolo/error.h"

/* ---- the library --------------------------------------------------------------------------------------- */

enum { LEAST = NCCL_VERSION(2, 18, 0) }; /* non-blocking communicators that are fit for use */

static pthread_once_t opened = PTHREAD_ONCE_INIT;
static comm_nccl_calls found;
static char failure[512];

/* This library itself, with all that is linked to it. */
static void *open_own(void)
{
    Dl_info info;
    void *own = dladdr(failure, &info) ? dlopen(info.dli_fname, RTLD_NOW | RTLD_NOLOAD) : NULL;
    return own && dlsym(own, "ncclGetVersion") ? own : NULL;
}

static bool find_calls(void *library)
{
    static const struct {
        const char *name;
        size_t offset;
        bool needed;
    } entry[] = {
#define CALL(call) {"nccl" #call, offsetof(comm_nccl_calls, call), true},
        COMM_NCCL_CALLS(CALL)
#undef CALL
#define CALL(call) {"nccl" #call, offsetof(comm_nccl_calls, call), false},
            COMM_NCCL_OPTIONAL(CALL)
#undef CALL
    };
    for (size_t i = 0; i < sizeof entry / sizeof *entry; i++) {
        void *call = dlsym(library, entry[i].name);
        *(void **)((char *)&found + entry[i].offset) = call;
        if (call || !entry[i].needed) continue;
        snprintf(failure, sizeof failure, "this libnccl has no %s", entry[i].name);
        return false;
    }
    return true;
}

static void open_library(void)
{
    const char *named = getenv("KOLO_NCCL_LIBRARY");
    void *library = named && *named ? dlopen(named, RTLD_NOW | RTLD_LOCAL) : open_own();
    if (!library && !(named && *named)) library = dlopen("libnccl.so.2", RTLD_NOW | RTLD_LOCAL);
    if (!library) {
        const char *words = dlerror();
        snprintf(failure, sizeof failure, "no NCCL: %s",
                 words ? words : "the dynamic linker gives no reason");
    } else if (find_calls(library) &&
               (found.GetVersion(&found.version) != ncclSuccess || found.version < LEAST)) {
        snprintf(failure, sizeof failure, "NCCL %d.%d is too old: 2.18 is needed", found.version / 10000,
                 found.version / 100 % 100);
    }
}

int comm_link_open(comm_link *link)
{
    pthread_once(&opened, open_library);
    if (*failure) return kolo_fail(KOLO_ELAUNCH, "%s", failure);
    link->calls = &found;
    return 0;
}

/* ---- a communicator ------------------------------------------------------------------------------------ */

void comm_link_make(comm_link *link)
{
    *link = (comm_link){.calls = NULL};
    pthread_mutex_init(&link->lock, NULL);
}

int comm_link_version(char *text, size_t bytes)
{
    comm_link link;
    KOLO_TRY(comm_link_open(&link));
    int v = link.calls->version;
    snprintf(text, bytes, "%d.%d.%d", v / 10000, v / 100 % 100, v % 100);
    return 0;
}

ncclResult_t comm_link_join(comm_link *link, int size, int rank, ncclUniqueId *ids, int roots)
{
    ncclConfig_t config = NCCL_CONFIG_INITIALIZER;
    config.blocking = 0;
    if (roots > 1) return link->calls->CommInitRankScalable(&link->nccl, size, rank, roots, ids, &config);
    return link->calls->CommInitRankConfig(&link->nccl, size, ids[0], rank, &config);
}

static ncclDataType_t type_of(enum kolo_dtype type)
{
    switch (type) {
    case KOLO_I8: return ncclInt8;
    case KOLO_I32: return ncclInt32;
    case KOLO_I64: return ncclInt64;
    case KOLO_F16: return ncclFloat16;
    case KOLO_BF16: return ncclBfloat16;
    case KOLO_F32: return ncclFloat32;
    case KOLO_F64: return ncclFloat64;
    default: return ncclUint8;
    }
}

/* Of bool, a byte of 0 or 1: or is the greater one, and the lesser. */
static ncclRedOp_t op_of(const comm_gpu_op *op)
{
    bool logical = op->type == KOLO_BOOL;
    switch (op->op) {
    case KOLO_MIN: return ncclMin;
    case KOLO_MAX: return ncclMax;
    case KOLO_PRODUCT: return logical ? ncclMin : ncclProd;
    default: return logical ? ncclMax : ncclSum;
    }
}

static ncclResult_t move_one(const comm_link *link, const comm_gpu_op *m, cudaStream_t stream)
{
    const comm_nccl_calls *calls = link->calls;
    const size_t n = (size_t)m->count;
    const ncclDataType_t type = type_of(m->type);
    ncclComm_t nccl = link->nccl;
    switch (m->kind) {
    case COMM_GPU_ALLREDUCE: return calls->AllReduce(m->from, m->to, n, type, op_of(m), nccl, stream);
    case COMM_GPU_REDUCE: return calls->Reduce(m->from, m->to, n, type, op_of(m), m->peer, nccl, stream);
    case COMM_GPU_REDUCE_SCATTER:
        return calls->ReduceScatter(m->from, m->to, n, type, op_of(m), nccl, stream);
    case COMM_GPU_BROADCAST: return calls->Broadcast(m->from, m->to, n, type, m->peer, nccl, stream);
    case COMM_GPU_ALLGATHER: return calls->AllGather(m->from, m->to, n, type, nccl, stream);
    case COMM_GPU_SEND: return calls->Send(m->from, n, type, m->peer, nccl, stream);
    default: return calls->Recv(m->to, n, type, m->peer, nccl, stream);
    }
}

ncclResult_t comm_link_move(const comm_link *link, const comm_gpu_op *op, int count, cudaStream_t stream)
{
    if (count == 0) return ncclSuccess;
    if (count == 1) return move_one(link, op, stream);
    ncclResult_t some = link->calls->GroupStart(), rc;
    if (some != ncclSuccess) return some;
    for (int i = 0; i < count && (some == ncclSuccess || some == ncclInProgress); i++)
        some = move_one(link, &op[i], stream);
    rc = link->calls->GroupEnd();
    return some == ncclSuccess || some == ncclInProgress ? rc : some; /* the group's end says how it goes */
}

ncclResult_t comm_link_state(comm_link *link)
{
    ncclResult_t state = ncclInternalError;
    pthread_mutex_lock(&link->lock);
    if (link->nccl && link->calls->CommGetAsyncError(link->nccl, &state) != ncclSuccess)
        state = ncclInternalError;
    pthread_mutex_unlock(&link->lock);
    return state;
}

static double now(void)
{
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return (double)t.tv_sec + 1e-9 * (double)t.tv_nsec;
}

int comm_link_settle(comm_link *link, const char *call, ncclResult_t *rc, double seconds,
                     int (*look)(void *of), void *of)
{
    double begin = now();
    for (int polls = 0; *rc == ncclInProgress; polls++) {
        comm_cuda_rest(polls);
        *rc = comm_link_state(link);
        /* aborted meanwhile, or a rank is dead: that reason is the better one */
        if (look) KOLO_TRY(look(of));
        if (*rc == ncclInProgress && now() - begin > seconds)
            return kolo_fail(
                KOLO_ELAUNCH,
                "nccl%s did not end within %.0f s: is the network that NCCL takes the right one "
                "(NCCL_SOCKET_IFNAME, NCCL_IB_HCA; share/site has settings)? NCCL_DEBUG=INFO says more",
                call, seconds);
    }
    return 0;
}

int comm_link_fail(const comm_link *link, const char *call, ncclResult_t rc)
{
    const char *last = link->calls->GetLastError ? link->calls->GetLastError(NULL) : NULL;
    if (last && !*last) last = NULL;
    return kolo_fail(KOLO_ELAUNCH, "nccl%s: %s%s%s; see the other ranks' messages; NCCL_DEBUG=INFO says more",
                     call, link->calls->GetErrorString(rc), last ? ": " : "", last ? last : "");
}

static void *abort_main(void *of)
{
    comm_link *link = of;
    link->calls->CommAbort(link->aborted);
    return NULL;
}

/* ncclCommAbort lets the streams run on at once, but returns only when every graph that holds a call
 * of this communicator is destroyed. The caller may be the one who has to do that, so a thread of
 * its own waits for it. */
void comm_link_abort(comm_link *link)
{
    pthread_mutex_lock(&link->lock);
    ncclComm_t nccl = link->nccl;
    link->nccl = NULL;
    if (nccl) {
        link->aborted = nccl;
        link->joinable = pthread_create(&link->aborter, NULL, abort_main, link) == 0;
        if (!link->joinable) abort_main(link);
    }
    pthread_mutex_unlock(&link->lock);
}

static bool finalize(comm_link *link, double seconds, int (*look)(void *of), void *of)
{
    ncclResult_t rc = link->calls->CommFinalize(link->nccl);
    if (comm_link_settle(link, "CommFinalize", &rc, seconds, look, of) < 0 || rc != ncclSuccess) return false;
    if (link->calls->CommDestroy(link->nccl) != ncclSuccess) return false;
    link->nccl = NULL;
    return true;
}

void comm_link_close(comm_link *link, bool orderly, double seconds, int (*look)(void *of), void *of)
{
    if (!orderly || !link->nccl || !finalize(link, seconds, look, of)) comm_link_abort(link);
    if (link->joinable) pthread_join(link->aborter, NULL);
    pthread_mutex_destroy(&link->lock);
}
