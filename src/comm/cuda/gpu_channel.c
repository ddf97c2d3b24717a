/* NCCL's row of the library half's transports (comm/core/gpu_channel.h). Lists of operations are enqueued one
 * after another, each as far as NCCL lets it: while a call of NCCL's is under way its stream may not be
 * touched. The thread's own GPU and capture mode are given back by every call, as threads of the program take
 * the turns. */
#include "comm/core/gpu_channel.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "comm/cuda/calls.h"
#include "comm/cuda/link.h"
#include "comm/cuda/scale.h"
#include "kolo/error.h"

enum { CLOSE_SECONDS = 20, STAGES = 48 };

/* SETTLING: NCCL is not through with what comes before `at` */
enum load_state { IDLE, QUEUED, SETTLING, RUNNING };

typedef struct load {
    const comm_gpu_op *op;
    int count, at;
    enum load_state state;
    uint64_t serial;
    cudaEvent_t done;
    /* The last is in use. cudaFree waits for all that the GPU does, which may be for a rank that is dead, so
     * what grew too small is freed in the end; as every stage is twice the one before at least, all of them
     * together are no more than the one in use. */
    void *stage[STAGES];
    int stages;
    size_t stage_bytes; /* of the last */
} load;

struct comm_gpu_channel {
    comm_link link;
    int gpu;
    cudaStream_t stream;
    load track[COMM_GPU_TRACKS];
    uint64_t serial;
};

/* ---- the thread's GPU ---------------------------------------------------------------------------------- */

typedef struct visit {
    int gpu;
    enum cudaStreamCaptureMode mode;
} visit;

static int gpu_channel_enter(int gpu, visit *v)
{
    KOLO_TRY(COMM_CUDA(cudaGetDevice(&v->gpu)));
    if (v->gpu != gpu) KOLO_TRY(COMM_CUDA(cudaSetDevice(gpu)));
    v->mode = cudaStreamCaptureModeRelaxed; /* what other threads capture is none of this one's */
    return COMM_CUDA(cudaThreadExchangeStreamCaptureMode(&v->mode));
}

/* Returns status, and leaves the error text as it is. */
static int leave(const comm_gpu_channel *c, visit *v, int status)
{
    cudaThreadExchangeStreamCaptureMode(&v->mode);
    if (v->gpu != c->gpu) cudaSetDevice(v->gpu);
    return status;
}

/* ---- joining ------------------------------------------------------------------------------------------- */

static void gpu_channel_ready(int gpu, comm_gpu_info *card)
{
    struct cudaDeviceProp p;
    char version[32];
    int rc = comm_link_version(version, sizeof version);
    if (rc == 0) rc = COMM_CUDA(cudaGetDeviceProperties(&p, gpu));
    card->status = rc;
    if (rc < 0) {
        snprintf(card->note, sizeof card->note, "%s", kolo_error_text());
        return;
    }
    snprintf(card->note, sizeof card->note, "NCCL %s", version);
    for (size_t i = 0, at = 0; i < sizeof p.uuid.bytes; i++)
        at += (size_t)snprintf(card->uuid + at, sizeof card->uuid - at, "%02x",
                               (unsigned)(unsigned char)p.uuid.bytes[i]);
}

static int gpu_channel_make_id(char id[COMM_GPU_ID])
{
    comm_link link;
    ncclUniqueId made;
    _Static_assert(sizeof made == COMM_GPU_ID, "an id of NCCL's");
    KOLO_TRY(comm_link_open(&link));
    ncclResult_t rc = link.calls->GetUniqueId(&made);
    if (rc != ncclSuccess) return comm_link_fail(&link, "GetUniqueId", rc);
    memcpy(id, &made, sizeof made);
    return 0;
}

static int gpu_channel_make(comm_gpu_channel *c, const char *id, int rank, int size)
{
    ncclUniqueId copy;
    int least, greatest;
    KOLO_TRY(COMM_CUDA(cudaDeviceGetStreamPriorityRange(&least, &greatest)));
    KOLO_TRY(COMM_CUDA(cudaStreamCreateWithPriority(&c->stream, cudaStreamNonBlocking, greatest)));
    for (int t = 0; t < COMM_GPU_TRACKS; t++) KOLO_TRY(comm_cuda_event(&c->track[t].done));
    KOLO_TRY(comm_link_open(&c->link));
    memcpy(&copy, id, sizeof copy);
    ncclResult_t rc = comm_link_join(&c->link, size, rank, &copy, 1);
    return rc == ncclSuccess || rc == ncclInProgress ? 0 : comm_link_fail(&c->link, "CommInitRankConfig", rc);
}

static void gpu_channel_close(comm_gpu_channel **out, bool orderly);

static int gpu_channel_open(comm_gpu_channel **out, int gpu, const char id[COMM_GPU_ID], int rank, int size)
{
    comm_gpu_channel *c = *out = calloc(1, sizeof *c);
    visit v;
    if (!c) return kolo_fail(KOLO_ENOMEM, "comm: out of memory");
    c->gpu = gpu;
    comm_link_make(&c->link);
    int rc = gpu_channel_enter(gpu, &v);
    if (rc == 0) rc = leave(c, &v, gpu_channel_make(c, id, rank, size));
    if (rc < 0) gpu_channel_close(out, false);
    return rc;
}

static int gpu_channel_joined(comm_gpu_channel *c)
{
    ncclResult_t rc = comm_link_state(&c->link);
    if (rc == ncclInProgress) return 0;
    return rc == ncclSuccess ? 1 : comm_link_fail(&c->link, "CommInitRankConfig", rc);
}

/* ---- what is carried ----------------------------------------------------------------------------------- */

/* All moves from l->at on, as one group. */
static int move_all(comm_gpu_channel *c, load *l)
{
    const int first = l->at;
    while (l->at < l->count && l->op[l->at].kind >= COMM_GPU_MOVES) l->at++;
    pthread_mutex_lock(&c->link.lock);
    ncclResult_t rc =
        c->link.nccl ? comm_link_move(&c->link, l->op + first, l->at - first, c->stream) : ncclInternalError;
    pthread_mutex_unlock(&c->link.lock);
    l->state = SETTLING;
    return rc == ncclSuccess || rc == ncclInProgress ? 0 : comm_link_fail(&c->link, "Group", rc);
}

/* As far as it goes now. 1: all of it is on the stream. */
static int enqueue(comm_gpu_channel *c, load *l)
{
    if (l->state == SETTLING) {
        ncclResult_t rc = comm_link_state(&c->link);
        if (rc == ncclInProgress) return 0;
        if (rc != ncclSuccess) return comm_link_fail(&c->link, "Group", rc);
        l->state = QUEUED;
    }
    while (l->at < l->count) {
        const comm_gpu_op *m = &l->op[l->at];
        if (m->kind >= COMM_GPU_MOVES) {
            KOLO_TRY(move_all(c, l));
            return enqueue(c, l);
        }
        KOLO_TRY(m->kind == COMM_GPU_FILL
                     ? comm_gpu_fill(m->to, m->count, m->type, m->op, c->stream)
                     : comm_gpu_scale(m->to, m->from, m->count, m->type, m->divisor, m->factor, c->stream));
        l->at++;
    }
    KOLO_TRY(COMM_CUDA(cudaEventRecord(l->done, c->stream)));
    l->state = RUNNING;
    return 1;
}

/* Those that wait, in the order in which they began. */
static int enqueue_all(comm_gpu_channel *c)
{
    for (;;) {
        load *next = NULL;
        for (int t = 0; t < COMM_GPU_TRACKS; t++) {
            load *l = &c->track[t];
            if ((l->state == QUEUED || l->state == SETTLING) && (!next || l->serial < next->serial)) next = l;
        }
        if (!next) return 0;
        int rc = enqueue(c, next);
        if (rc <= 0) return rc;
    }
}

static int gpu_channel_begin(comm_gpu_channel *c, int track, const comm_gpu_op *op, int count)
{
    load *l = &c->track[track];
    visit v;
    if (l->state != IDLE) return kolo_fail(KOLO_EINTERNAL, "comm: track %d of a GPU's lane is in use", track);
    l->op = op;
    l->count = count;
    l->at = 0;
    l->serial = ++c->serial;
    l->state = QUEUED;
    KOLO_TRY(gpu_channel_enter(c->gpu, &v));
    return leave(c, &v, enqueue_all(c));
}

static int look_at(comm_gpu_channel *c, load *l)
{
    KOLO_TRY(enqueue_all(c));
    if (l->state != RUNNING) return 0;
    cudaError_t rc = cudaEventQuery(l->done);
    if (rc != cudaSuccess && rc != cudaErrorNotReady)
        return comm_cuda_check(rc, "work enqueued earlier", __FILE__, __LINE__);
    ncclResult_t state = comm_link_state(&c->link); /* a group that ended by an error is through, too */
    if (state != ncclSuccess && state != ncclInProgress) return comm_link_fail(&c->link, "Group", state);
    if (rc == cudaErrorNotReady) return 0;
    l->state = IDLE;
    return 1;
}

static int gpu_channel_poll(comm_gpu_channel *c, int track)
{
    visit v;
    KOLO_TRY(gpu_channel_enter(c->gpu, &v));
    return leave(c, &v, look_at(c, &c->track[track]));
}

/* ---- stages -------------------------------------------------------------------------------------------- */

static int grow(load *l, size_t bytes)
{
    size_t room = 2 * l->stage_bytes > bytes ? 2 * l->stage_bytes : bytes;
    void *memory = NULL;
    int rc = COMM_CUDA(cudaMalloc(&memory, room));
    if (rc < 0)
        return kolo_fail_in(
            rc, "%zu bytes on the GPU for requests that are scaled, in place or of a rank that has joined: ",
            room);
    l->stage[l->stages++] = memory;
    l->stage_bytes = room;
    return 0;
}

static int gpu_channel_stage(comm_gpu_channel *c, int track, size_t bytes, void **memory)
{
    load *l = &c->track[track];
    visit v;
    int rc = 0;
    if (l->stage_bytes < bytes) {
        KOLO_TRY(gpu_channel_enter(c->gpu, &v));
        rc = leave(c, &v, grow(l, bytes));
    }
    *memory = l->stages ? l->stage[l->stages - 1] : NULL;
    return rc;
}

/* ---- the end ------------------------------------------------------------------------------------------- */

static void gpu_channel_abort(comm_gpu_channel *c)
{
    visit v;
    if (gpu_channel_enter(c->gpu, &v) < 0) return;
    comm_link_abort(&c->link);
    leave(c, &v, 0);
}

static void gpu_channel_close(comm_gpu_channel **out, bool orderly)
{
    comm_gpu_channel *c = *out;
    visit v;
    int there = gpu_channel_enter(c->gpu, &v);
    if (c->link.calls) comm_link_close(&c->link, orderly, CLOSE_SECONDS, NULL, NULL);
    if (c->stream) cudaStreamDestroy(c->stream);
    for (int t = 0; t < COMM_GPU_TRACKS; t++) {
        if (c->track[t].done) cudaEventDestroy(c->track[t].done);
        for (int s = 0; s < c->track[t].stages; s++) cudaFree(c->track[t].stage[s]);
    }
    if (there == 0) leave(c, &v, 0);
    free(c);
    *out = NULL;
}

const comm_gpu_channel_type kolo_cuda_channel = {.name = "nccl",
                                                 .ready = gpu_channel_ready,
                                                 .make_id = gpu_channel_make_id,
                                                 .open = gpu_channel_open,
                                                 .joined = gpu_channel_joined,
                                                 .stage = gpu_channel_stage,
                                                 .begin = gpu_channel_begin,
                                                 .poll = gpu_channel_poll,
                                                 .abort = gpu_channel_abort,
                                                 .close = gpu_channel_close};
