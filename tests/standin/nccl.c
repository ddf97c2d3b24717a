/* NCCL between ranks on this machine: communicators from their beginning to their end (nccl_work.c is what
 * they carry). One that was asked not to block does not: making it, closing it, and by chance a call too, are
 * under way until the program has polled, and what it enqueues before that comes first. It ends, even by an
 * abort, only when no graph holds a call of it any more.
 *
 * STANDIN_NCCL=FAULT:RANK[:CALL] makes a rank fail: `absent` never comes, `die` is killed at its CALL-th
 * call, `hang` never does that one, `error` fails at it with ncclSystemError. The others are told of a rank
 * that is dead, unless STANDIN_NCCL_SILENT=1, and not of one that hangs. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "standin/nccl_comm.h"

static __thread uint64_t chance;
static __thread char last_words[256];

ncclResult_t nccl_enter(const char *call, enum standin_kind kind)
{
    int code;
    if (standin_begin(call, kind, &code)) return code ? (ncclResult_t)code : ncclSystemError;
    if (standin_on_host_function()) standin_defect("%s was called in a host function", call);
    return ncclSuccess;
}
/* "FAULT:RANK[:CALL]": the call, -1 where none is named, or -2: not this fault, or not this rank. */
int64_t nccl_fault(const char *what, int rank)
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

void nccl_comm_drop(struct ncclComm *c)
{
    if (--c->references > 0) return;
    if (c->segment) nccl_segment_close(c->segment);
    standin_op_drop(&c->chain.op);
    free(c);
}

bool nccl_is_dead(const struct ncclComm *c, int rank)
{
    int32_t pid = c->segment->slot[rank].pid;
    return pid && !standin_setting("STANDIN_NCCL_SILENT", 0) && !nccl_alive(pid);
}

void nccl_set_error(struct ncclComm *c, ncclResult_t error, const char *words)
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
            if (!strcmp(c->segment->slot[r].uuid, c->segment->slot[q].uuid))
                nccl_set_error(c, ncclInvalidUsage, "duplicate GPU");
    return true;
}

/* What NCCL's log says of how a rank is connected: STANDIN_NCCL_VIA (P2P/CUMEM). */
static void tell_log(const struct ncclComm *c)
{
    const char *level = getenv("NCCL_DEBUG"), *path = getenv("NCCL_DEBUG_FILE"),
               *via = getenv("STANDIN_NCCL_VIA");
    FILE *f = level && path && !strcmp(level, "INFO") && c->size > 1 ? fopen(path, "ae") : NULL;
    if (!f) return;
    const int next = (c->rank + 1) % c->size;
    fprintf(f, "host:%d:%d [%d] NCCL INFO Using network Socket\n", (int)getpid(), (int)getpid(), c->rank);
    for (int channel = 0; channel < 2; channel++)
        fprintf(f, "host:%d:%d [%d] NCCL INFO Channel %02d/0 : %d[%d] -> %d[%d] via %s\n", (int)getpid(),
                (int)getpid(), c->rank, channel, c->rank, c->rank, next, next, via ? via : "P2P/CUMEM");
    fclose(f);
}

static void join(struct ncclComm *c)
{
    if (!c->segment) c->segment = nccl_segment_open(c->name);
    if (!c->segment || nccl_fault("absent", c->rank) > -2) return;
    nccl_slot *mine = &c->segment->slot[c->rank];
    if (!mine->pid) {
        snprintf(mine->uuid, sizeof mine->uuid, "%s", standin_device_uuid(standin_device()));
        mine->pid = (int32_t)getpid();
    }
    c->joined = all_here(c);
    if (c->joined) tell_log(c);
    if (c->joined && c->rank == 0) nccl_segment_remove(c->name);
}

static ncclResult_t init(ncclComm_t *out, int size, const ncclUniqueId *id, int rank,
                         const ncclConfig_t *config)
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

ncclResult_t ncclCommInitRankConfig(ncclComm_t *comm, int size, ncclUniqueId id, int rank,
                                    ncclConfig_t *config)
{
    ENTER(STANDIN_CREATION);
    return init(comm, size, &id, rank, config);
}

ncclResult_t ncclCommInitRankScalable(ncclComm_t *comm, int size, int rank, int ids, ncclUniqueId *id,
                                      ncclConfig_t *config)
{
    ENTER(STANDIN_CREATION);
    if (ids < 1 || ids > size) return ncclInvalidArgument;
    return init(comm, size, &id[0], rank, config);
}

bool nccl_known(ncclComm_t c)
{
    if (standin_is("NCCL communicator", c)) return true;
    standin_defect("an NCCL communicator is used that is not there, or no longer");
    return false;
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
    if (!nccl_known(c)) return ncclInvalidArgument;
    *result = (ncclResult_t)c->error;
    if (*result != ncclSuccess) return ncclSuccess;
    if (!c->joined) join(c);
    *result = ncclInProgress;
    if (!c->joined) {
        for (int r = 0; c->segment && r < c->size; r++)
            if (nccl_is_dead(c, r)) nccl_set_error(c, ncclRemoteError, "a rank died before all had come");
        if (c->error != ncclSuccess) *result = (ncclResult_t)c->error;
        return ncclSuccess;
    }
    if (c->polls > 0) c->polls--;
    else if (c->late.run) *result = nccl_give(c);
    else if (!c->finalizing || at_rest(c)) *result = (ncclResult_t)c->error;
    return ncclSuccess;
}

/* ---- leaving ---- */

ncclResult_t ncclCommFinalize(ncclComm_t c)
{
    ENTER(STANDIN_CREATION);
    if (!nccl_known(c)) return ncclInvalidArgument;
    c->finalizing = true;
    c->polls = (int)(standin_random(&chance) % 3);
    return c->blocking ? ncclSuccess : ncclInProgress;
}

static ncclResult_t leave(ncclComm_t c, bool abort)
{
    if (!nccl_known(c)) return ncclInvalidArgument;
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
    if (c->late.run) c->late.drop(c->late.argument);
    c->late.run = NULL;
    nccl_comm_drop(c);
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
    if (!nccl_known(c) || standin_place_of(memory, bytes) != STANDIN_DEVICE) return ncclInvalidArgument;
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
    if (!nccl_known(c) || !standin_untrack("NCCL registration", handle)) return ncclInvalidArgument;
    registration **at = &c->registered;
    while (*at && *at != handle) at = &(*at)->next;
    if (*at) *at = (*at)->next;
    free(handle);
    return ncclSuccess;
}
