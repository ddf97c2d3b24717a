/* NCCL between ranks on this machine. Every sum is formed in rank order. A communicator that was asked not to block
 * does not: making it, closing it, and by chance a call too, are under way until the program has polled, and what it
 * enqueues before that comes first. It ends, even by an abort, only when no graph holds a call of it any more.
 *
 * STANDIN_NCCL=FAULT:RANK[:CALL] makes a rank fail: `absent` never comes, `die` is killed at its CALL-th sum, `hang`
 * never does that one, `error` fails at it with ncclSystemError. The others are told of a rank that is dead, unless
 * STANDIN_NCCL_SILENT=1, and not of one that hangs. */
#include <nccl.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "standin/nccl_segment.h"
#include "standin/standin.h"

typedef struct reduction {
    struct ncclComm *comm;
    const void *from;
    void *to;
    size_t count;
    ncclDataType_t type;
    bool captured;
} reduction;

typedef struct registration {
    struct registration *next;
} registration;

struct ncclComm {
    nccl_segment *segment;
    registration *registered;
    char name[64];
    int rank, size, references;
    bool blocking, joined, finalizing;
    _Atomic int error; /* ncclResult_t that the communicator ended with */
    _Atomic bool aborted;
    int polls; /* still to come before something that has happened is said */
    standin_chain chain;
    standin_work late; /* a call that is under way: run NULL: none */
    cudaStream_t late_stream;
    _Atomic int busy;     /* sums begun and not done */
    _Atomic int captured; /* sums that graphs hold */
    uint64_t calls, turn; /* of the device thread: sums begun, chunks done */
};

static __thread uint64_t chance;
static __thread char last_words[256];

static ncclResult_t enter(const char *call, enum standin_kind kind)
{
    int code;
    if (standin_begin(call, kind, &code)) return code ? (ncclResult_t)code : ncclSystemError;
    if (standin_on_host_function()) standin_defect("%s was called in a host function", call);
    return ncclSuccess;
}
#define ENTER(kind)                                    \
    do {                                               \
        ncclResult_t enter_ = enter(__func__, (kind)); \
        if (enter_ != ncclSuccess) return enter_;      \
    } while (0)

/* "FAULT:RANK[:CALL]": the call, -1 where none is named, or -2: not this fault, or not this rank. */
static int64_t fault(const char *what, int rank)
{
    const char *text = getenv("STANDIN_NCCL");
    size_t n = strlen(what);
    if (!text || strncmp(text, what, n) || text[n] != ':' || atoi(text + n + 1) != rank) return -2;
    const char *call = strchr(text + n + 1, ':');
    return call ? atoll(call + 1) : -1;
}

ncclResult_t ncclGetVersion(int *version)
{
    *version = NCCL_VERSION_CODE;
    return ncclSuccess;
}

const char *ncclGetErrorString(ncclResult_t result)
{
    static const char *const words[] = {"no error",
                                        "unhandled cuda error",
                                        "unhandled system error",
                                        "internal error",
                                        "invalid argument",
                                        "invalid usage",
                                        "remote process exited or there was a network error",
                                        "NCCL operation in progress"};
    return (unsigned)result < sizeof words / sizeof *words ? words[result] : "unknown result code";
}

const char *ncclGetLastError(ncclComm_t comm)
{
    (void)comm;
    return last_words;
}

/* ---- joining ---- */

ncclResult_t ncclGetUniqueId(ncclUniqueId *id)
{
    ENTER(STANDIN_CREATION);
    static _Atomic uint32_t made;
    memset(id, 0, sizeof *id);
    snprintf(id->internal, sizeof id->internal, "/standin-nccl-%d-%u", (int)getpid(), ++made);
    nccl_segment *s = nccl_segment_create(id->internal);
    if (!s) return ncclSystemError;
    nccl_segment_close(s);
    return ncclSuccess;
}

static void comm_drop(struct ncclComm *c)
{
    if (--c->references > 0) return;
    if (c->segment) nccl_segment_close(c->segment);
    standin_op_drop(&c->chain.op);
    free(c);
}

static bool is_dead(const struct ncclComm *c, int rank)
{
    int32_t pid = c->segment->slot[rank].pid;
    return pid && !standin_setting("STANDIN_NCCL_SILENT", 0) && !nccl_alive(pid);
}

static void set_error(struct ncclComm *c, ncclResult_t error, const char *words)
{
    int none = ncclSuccess;
    if (!atomic_compare_exchange_strong(&c->error, &none, (int)error)) return;
    standin_log("NCCL rank %d of %d: %s", c->rank, c->size, words);
}

/* All have come; no two of them have one GPU. */
static bool all_here(struct ncclComm *c)
{
    for (int r = 0; r < c->size; r++)
        if (!c->segment->slot[r].pid) return false;
    for (int r = 0; r < c->size; r++)
        for (int q = 0; q < r; q++)
            if (!strcmp(c->segment->slot[r].uuid, c->segment->slot[q].uuid)) set_error(c, ncclInvalidUsage, "duplicate GPU");
    return true;
}

static void join(struct ncclComm *c)
{
    if (!c->segment) c->segment = nccl_segment_open(c->name);
    if (!c->segment || fault("absent", c->rank) > -2) return;
    nccl_slot *mine = &c->segment->slot[c->rank];
    if (!mine->pid) {
        snprintf(mine->uuid, sizeof mine->uuid, "%s", standin_device_uuid(standin_device()));
        mine->pid = (int32_t)getpid();
    }
    c->joined = all_here(c);
    if (c->joined && c->rank == 0) nccl_segment_remove(c->name);
}

static ncclResult_t init(ncclComm_t *out, int size, const ncclUniqueId *id, int rank, const ncclConfig_t *config)
{
    if (size < 1 || size > NCCL_RANKS || rank < 0 || rank >= size) return ncclInvalidArgument;
    struct ncclComm *c = calloc(1, sizeof *c);
    if (!c) abort();
    c->size = size;
    c->rank = rank;
    c->references = 1;
    c->blocking = !config || config->blocking != 0;
    c->polls = (int)(standin_random(&chance) % 4);
    snprintf(c->name, sizeof c->name, "%.60s", id->internal);
    standin_track("NCCL communicator", c);
    *out = c;
    join(c);
    while (c->blocking && !c->joined) usleep(1000), join(c);
    return c->blocking ? (ncclResult_t)c->error : ncclInProgress;
}

ncclResult_t ncclCommInitRankConfig(ncclComm_t *comm, int size, ncclUniqueId id, int rank, ncclConfig_t *config)
{
    ENTER(STANDIN_CREATION);
    return init(comm, size, &id, rank, config);
}

ncclResult_t ncclCommInitRankScalable(ncclComm_t *comm, int size, int rank, int ids, ncclUniqueId *id, ncclConfig_t *config)
{
    ENTER(STANDIN_CREATION);
    if (ids < 1 || ids > size) return ncclInvalidArgument;
    return init(comm, size, &id[0], rank, config);
}

static bool known(ncclComm_t c)
{
    if (standin_is("NCCL communicator", c)) return true;
    standin_defect("an NCCL communicator is used that is not there, or no longer");
    return false;
}

static ncclResult_t give(struct ncclComm *c)
{
    standin_work work = c->late;
    reduction *r = work.argument;
    c->late.run = NULL;
    standin_hold();
    const struct CUstream_st *s = standin_stream(c->late_stream);
    r->captured = s && s->capture;
    c->captured += r->captured;
    standin_release();
    return standin_enqueue(c->late_stream, &work, &c->chain) == cudaSuccess ? ncclSuccess : ncclUnhandledCudaError;
}

static bool at_rest(struct ncclComm *c)
{
    standin_hold();
    bool rest = c->busy == 0 && c->captured == 0 && (!c->chain.op || c->chain.op->done);
    if (!rest) standin_nudge();
    standin_release();
    return rest;
}

/* A poll, and the only place where something that was under way comes to its end. */
ncclResult_t ncclCommGetAsyncError(ncclComm_t c, ncclResult_t *result)
{
    ENTER(STANDIN_QUERY);
    if (!known(c)) return ncclInvalidArgument;
    *result = (ncclResult_t)c->error;
    if (*result != ncclSuccess) return ncclSuccess;
    if (!c->joined) join(c);
    *result = ncclInProgress;
    if (!c->joined) {
        for (int r = 0; c->segment && r < c->size; r++)
            if (is_dead(c, r)) set_error(c, ncclRemoteError, "a rank died before all had come");
        if (c->error != ncclSuccess) *result = (ncclResult_t)c->error;
        return ncclSuccess;
    }
    if (c->polls > 0) c->polls--;
    else if (c->late.run) *result = give(c);
    else if (!c->finalizing || at_rest(c)) *result = (ncclResult_t)c->error;
    return ncclSuccess;
}

/* ---- sums ---- */

static size_t type_size(ncclDataType_t type) { return type == ncclFloat64 ? 8 : 4; }

static void add(ncclDataType_t type, void *to, const void *from, size_t count)
{
    for (size_t i = 0; i < count; i++) {
        if (type == ncclFloat64) ((double *)to)[i] += ((const double *)from)[i];
        else ((float *)to)[i] += ((const float *)from)[i];
    }
}

static bool put_down(struct ncclComm *c, const reduction *r, size_t first, size_t n)
{
    nccl_slot *mine = &c->segment->slot[c->rank];
    for (int k = 0; k < c->size; k++) /* the chunk before the last was read by all */
        if (c->segment->slot[k].taken + 1 < c->turn) return false;
    memcpy(mine->data[c->turn & 1], (const char *)r->from + first * type_size(r->type), n * type_size(r->type));
    mine->piece[c->turn & 1] = (nccl_piece){c->calls, r->count, (uint32_t)r->type, 0};
    mine->posted = c->turn + 1;
    return true;
}

static bool all_posted(struct ncclComm *c)
{
    bool all = true;
    for (int k = 0; k < c->size; k++) {
        if (c->segment->slot[k].posted > c->turn) continue;
        all = false;
        if (is_dead(c, k)) set_error(c, ncclRemoteError, "a rank died");
    }
    return all;
}

static void take(struct ncclComm *c, const reduction *r, size_t first, size_t n)
{
    char *to = (char *)r->to + first * type_size(r->type);
    const nccl_piece *mine = &c->segment->slot[c->rank].piece[c->turn & 1];
    for (int k = 0; k < c->size; k++) {
        const nccl_slot *s = &c->segment->slot[k];
        if (memcmp(&s->piece[c->turn & 1], mine, sizeof *mine)) {
            standin_defect("ranks %d and %d are at different sums", c->rank, k);
            set_error(c, ncclInvalidUsage, "ranks are at different sums");
            return;
        }
        if (k == 0) memcpy(to, s->data[c->turn & 1], n * type_size(r->type));
        else add(r->type, to, s->data[c->turn & 1], n);
    }
    c->segment->slot[c->rank].taken = ++c->turn;
}

/* state[0]: elements done; state[1]: the present chunk lies in the segment. */
static int reduce_on(struct ncclComm *c, const reduction *r, int64_t *state)
{
    const size_t most = NCCL_CHUNK / type_size(r->type);
    while ((size_t)state[0] < r->count) {
        size_t first = (size_t)state[0], n = r->count - first < most ? r->count - first : most;
        if (c->aborted || c->error != ncclSuccess) break; /* what stands in memory then is nobody's sum */
        if (fault("hang", c->rank) == (int64_t)c->calls) return STANDIN_LATER;
        if (!state[1] && !put_down(c, r, first, n)) return STANDIN_LATER;
        state[1] = 1;
        if (!all_posted(c)) return c->error != ncclSuccess ? STANDIN_DONE : STANDIN_LATER;
        take(c, r, first, n);
        state[0] += (int64_t)n;
        state[1] = 0;
    }
    return STANDIN_DONE;
}

static int reduction_run(standin_op *op)
{
    const reduction *r = op->work.argument;
    struct ncclComm *c = r->comm;
    if (!op->state[2]++) {
        c->busy++;
        c->calls++;
        if (fault("die", c->rank) == (int64_t)c->calls) kill(getpid(), SIGKILL);
        if (fault("error", c->rank) == (int64_t)c->calls) set_error(c, ncclSystemError, "an error that was asked for");
    }
    int rc = reduce_on(c, r, op->state);
    if (rc == STANDIN_DONE) c->busy--;
    return rc;
}

static void reduction_drop(void *argument)
{
    reduction *r = argument;
    r->comm->captured -= r->captured;
    comm_drop(r->comm);
    free(r);
}

static bool on_device(const void *p, size_t bytes) { return standin_place_of(p, bytes) == STANDIN_DEVICE; }

ncclResult_t ncclAllReduce(const void *from, void *to, size_t count, ncclDataType_t type, ncclRedOp_t op, ncclComm_t c, cudaStream_t stream)
{
    ENTER(STANDIN_LAUNCH);
    if (!known(c)) return ncclInvalidArgument;
    if (!c->joined || c->late.run || c->finalizing) {
        standin_defect("ncclAllReduce while the communicator is still busy with another call");
        return ncclInvalidUsage;
    }
    if (c->error != ncclSuccess) return (ncclResult_t)c->error;
    if (op != ncclSum || (type != ncclFloat32 && type != ncclFloat64)) return ncclInvalidArgument;
    if (!on_device(from, count * type_size(type)) || !on_device(to, count * type_size(type))) {
        standin_defect("ncclAllReduce of %zu numbers that do not lie in device memory as a whole", count);
        return ncclInvalidArgument;
    }
    reduction *r = malloc(sizeof *r);
    if (!r) abort();
    *r = (reduction){c, from, to, count, type, false};
    standin_hold();
    c->references++;
    standin_release();
    standin_count_kernel("ncclAllReduce");
    c->late = (standin_work){"ncclAllReduce", reduction_run, reduction_drop, r, 1e-5 + (double)(count * type_size(type)) / 2e11};
    c->late_stream = stream;
    c->polls = (int)(standin_random(&chance) % 3);
    if (!c->blocking && standin_random(&chance) % 2) return ncclInProgress;
    return give(c);
}

/* ---- leaving ---- */

ncclResult_t ncclCommFinalize(ncclComm_t c)
{
    ENTER(STANDIN_CREATION);
    if (!known(c)) return ncclInvalidArgument;
    c->finalizing = true;
    c->polls = (int)(standin_random(&chance) % 3);
    return c->blocking ? ncclSuccess : ncclInProgress;
}

static ncclResult_t leave(ncclComm_t c, bool abort)
{
    if (!known(c)) return ncclInvalidArgument;
    standin_untrack("NCCL communicator", c);
    if (!abort && !c->finalizing) standin_defect("ncclCommDestroy before ncclCommFinalize has ended");
    if (!c->joined) nccl_segment_remove(c->name);
    c->aborted = true;
    for (registration *r = c->registered, *next; abort && r; r = next) { /* an abort takes them with it */
        next = r->next;
        standin_untrack("NCCL registration", r);
        free(r);
    }
    while (c->captured) usleep(1000);
    standin_hold();
    if (c->late.run) reduction_drop(c->late.argument);
    c->late.run = NULL;
    comm_drop(c);
    standin_release();
    return ncclSuccess;
}

ncclResult_t ncclCommDestroy(ncclComm_t c)
{
    ENTER(STANDIN_CREATION);
    return leave(c, false);
}

ncclResult_t ncclCommAbort(ncclComm_t c)
{
    ENTER(STANDIN_CREATION);
    return leave(c, true);
}

/* ---- memory ---- */

ncclResult_t ncclMemAlloc(void **memory, size_t bytes)
{
    ENTER(STANDIN_ALLOCATION);
    *memory = standin_device_alloc(bytes, __func__);
    return *memory ? ncclSuccess : ncclUnhandledCudaError;
}

ncclResult_t ncclMemFree(void *memory)
{
    ENTER(STANDIN_ALLOCATION);
    standin_hold();
    standin_op_wait(NULL);
    standin_release();
    return standin_device_free(memory, "ncclMemAlloc") ? ncclSuccess : ncclInvalidArgument;
}

ncclResult_t ncclCommRegister(const ncclComm_t c, void *memory, size_t bytes, void **out)
{
    ENTER(STANDIN_CREATION);
    if (!known(c) || !on_device(memory, bytes)) return ncclInvalidArgument;
    registration *r = malloc(sizeof *r);
    if (!r) abort();
    *r = (registration){c->registered};
    c->registered = r;
    standin_track("NCCL registration", r);
    *out = r;
    return ncclSuccess;
}

ncclResult_t ncclCommDeregister(const ncclComm_t c, void *handle)
{
    ENTER(STANDIN_CREATION);
    if (!known(c) || !standin_untrack("NCCL registration", handle)) return ncclInvalidArgument;
    registration **at = &c->registered;
    while (*at && *at != handle) at = &(*at)->next;
    if (*at) *at = (*at)->next;
    free(handle);
    return ncclSuccess;
}
