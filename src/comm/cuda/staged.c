/* Buckets and transfers that travel through host memory: for ranks that share a GPU, for systems without
 * NCCL, for canonical sums. The arena of the communicator's host half is page-locked; a bucket crosses to it
 * and back:
 *
 *   side     bucket ready -> copy to the host arena -> event
 *   thread   sees the event: starts the bucket in host memory; when it is done: copy back on its own stream
 *   program  waits until the copy back has landed, and enqueues what follows then
 *
 * The program waits, not a host function on compute: CUDA forbids one to depend on work that is not ordered
 * before it, and what a rank waits for here depends on all that other ranks wait for, and on the copy back.
 * (On an H200 a graph with the halos of spatial= came to a stand by it.) So nothing of this can be captured.
 * Starts of a group keep the order of the calls, which the copies on side have, too.
 *
 * An error is kept for status(), and what follows passes through unsummed. */
#include <pthread.h>
#include <stdlib.h>
#include <sys/prctl.h>

#include "base/memory.h"
#include "base/thread.h"
#include "comm/cuda/parts.h"

static const double IDLE_REST = 2e-4, BUSY_REST = 2e-5, FAULT_LOOK = 0.05; /* seconds */

enum { SUMS = 8192 };
enum { SLOT_IDLE, SLOT_GIVEN, SLOT_STARTED, SLOT_REDUCED, SLOT_LANDED };
typedef struct staged_slot {
    int bucket;
    uint64_t turn;    /* starts before this one */
    size_t out_bytes; /* that the thread copies back to the device, from out_offset on; 0: none */
    size_t out_offset;
    cudaEvent_t given, landed; /* what it brings is in host memory; the result is on the device */
    _Atomic uint32_t state;
} staged_slot;

struct kolo_reducer {
    comm_cuda c;
    cudaStream_t back; /* the thread's */
    char *host;
    bool pinned;
    double *sums;       /* [SUMS] page-locked */
    staged_slot **slot; /* [slots] of every bucket */
    int64_t slots, capacity;
    uint64_t starts;
    int gpu, active;       /* slots started and not landed: */
    staged_slot **at_work; /* [slots] */
    pthread_t thread;
    bool running;
    _Atomic uint32_t stop, bell;
};

/* ---- the thread ---------------------------------------------------------------------------------------- */

static void set_state(staged_slot *slot, uint32_t state)
{
    atomic_store(&slot->state, state);
    kolo_futex_wake(&slot->state);
}

/* The one that was given first; NULL: none is. */
static staged_slot *first_given(const kolo_reducer *r)
{
    staged_slot *first = NULL;
    for (int64_t i = 0; i < r->slots; i++)
        if (atomic_load(&r->slot[i]->state) == SLOT_GIVEN && (!first || r->slot[i]->turn < first->turn))
            first = r->slot[i];
    return first;
}

/* 1: yes, 0: not yet. */
static int has_come(cudaEvent_t event, const char *what)
{
    const cudaError_t rc = cudaEventQuery(event);
    return rc == cudaErrorNotReady ? 0
           : rc == cudaSuccess     ? 1
                                   : comm_cuda_check(rc, what, __FILE__, __LINE__);
}

/* 1: moved, 0: not. */
static int start_arrivals(kolo_reducer *r)
{
    int moved = 0;
    for (staged_slot *slot; (slot = first_given(r)); moved = 1) {
        const int come = has_come(slot->given, "copy to host memory");
        if (come <= 0) return come < 0 ? come : moved;
        KOLO_TRY(kolo_comm_host_start(r->c.comm, slot->bucket));
        r->at_work[r->active++] = slot;
        set_state(slot, SLOT_STARTED);
    }
    return moved;
}

static int copy_back(kolo_reducer *r, const staged_slot *slot)
{
    KOLO_TRY(COMM_CUDA(cudaMemcpyAsync(r->c.arena + slot->out_offset, r->host + slot->out_offset,
                                       slot->out_bytes, cudaMemcpyHostToDevice, r->back)));
    return COMM_CUDA(cudaEventRecord(slot->landed, r->back));
}

/* 2: landed, and the slot is the waiter's; 1: moved; 0: not. */
static int slot_step(kolo_reducer *r, staged_slot *slot)
{
    if (atomic_load(&slot->state) == SLOT_STARTED) {
        const int done = kolo_comm_host_test(r->c.comm, slot->bucket);
        if (done <= 0) return done;
        if (slot->out_bytes) KOLO_TRY(copy_back(r, slot));
        set_state(slot, slot->out_bytes ? SLOT_REDUCED : SLOT_LANDED);
        return slot->out_bytes ? 1 : 2;
    }
    const int landed = has_come(slot->landed, "copy to the GPU");
    if (landed <= 0) return landed;
    set_state(slot, SLOT_LANDED);
    return 2;
}

static int staged_step(kolo_reducer *r)
{
    int moved = start_arrivals(r), kept = 0;
    KOLO_TRY(moved);
    for (int i = 0; i < r->active; i++) {
        staged_slot *slot = r->at_work[i];
        const int some = slot_step(r, slot);
        KOLO_TRY(some);
        if (some > 0) moved = 1;
        if (some < 2) r->at_work[kept++] = slot;
    }
    r->active = kept;
    return moved;
}

static void *staged_main(void *of)
{
    kolo_reducer *r = of;
    prctl(PR_SET_TIMERSLACK, 1000);
    int rc = COMM_CUDA(cudaSetDevice(r->gpu));
    while (!atomic_load(&r->stop)) {
        const uint32_t bell = atomic_load(&r->bell);
        if (rc >= 0 && comm_cuda_status(r) == 0) rc = staged_step(r);
        if (rc < 0) comm_cuda_abort(r, kolo_error_text());
        if (rc == 0) kolo_futex_wait(&r->bell, bell, r->active ? BUSY_REST : IDLE_REST, 0);
        else if (rc < 0) kolo_futex_wait(&r->stop, 0, FAULT_LOOK, 0);
    }
    return NULL;
}

/* ---- a step -------------------------------------------------------------------------------------------- */

/* Until the slot has come so far. */
static int await_state(kolo_reducer *r, staged_slot *slot, uint32_t state)
{
    for (uint32_t now; (now = atomic_load(&slot->state)) < state;) {
        KOLO_TRY(comm_cuda_status(r));
        kolo_futex_wait(&slot->state, now, FAULT_LOOK, 0);
    }
    return comm_cuda_status(r);
}

static int staged_start(kolo_reducer *r, int bucket)
{
    comm_cuda *c = &r->c;
    staged_slot *slot = r->slot[bucket];
    const kolo_reducer_bucket *of = &c->bucket[bucket].of;
    KOLO_TRY(comm_cuda_status(r));
    KOLO_TRY(comm_cuda_after(c->side, c->compute, c->bucket[bucket].ready));
    if (of->in.bytes) /* else a receive */
        KOLO_TRY(COMM_CUDA(cudaMemcpyAsync(r->host + of->in.offset, c->arena + of->in.offset, of->in.bytes,
                                           cudaMemcpyDeviceToHost, c->side)));
    KOLO_TRY(COMM_CUDA(cudaEventRecord(slot->given, c->side)));
    slot->turn = r->starts++;
    atomic_store(&slot->state, SLOT_GIVEN);
    return 0;
}

static int staged_wait(kolo_reducer *r, int bucket)
{
    staged_slot *slot = r->slot[bucket];
    KOLO_TRY(comm_cuda_await(&r->c, slot->given));
    atomic_fetch_add(&r->bell, 1);
    kolo_futex_wake(&r->bell);
    KOLO_TRY(await_state(r, slot, SLOT_STARTED));
    const int rc = kolo_comm_host_wait(r->c.comm, slot->bucket); /* helps, and says whom it waits for */
    if (rc < 0) {
        comm_cuda_abort(r, kolo_error_text());
        return comm_cuda_status(r);
    }
    KOLO_TRY(await_state(r, slot, SLOT_LANDED));
    atomic_store(&slot->state, SLOT_IDLE);
    return 0;
}

/* By the host half's small collective. */
static int staged_sum(kolo_reducer *r, double *data, int64_t count)
{
    comm_cuda *c = &r->c;
    for (int64_t at = 0; at < count; at += SUMS) {
        const int64_t some = count - at < SUMS ? count - at : SUMS;
        const size_t bytes = (size_t)some * sizeof *data;
        KOLO_TRY(comm_cuda_status(r));
        KOLO_TRY(COMM_CUDA(cudaMemcpyAsync(r->sums, data + at, bytes, cudaMemcpyDeviceToHost, c->compute)));
        KOLO_TRY(comm_cuda_finish(r));
        KOLO_TRY(kolo_comm_allreduce(c->comm, r->sums, some, KOLO_F64, KOLO_SUM));
        KOLO_TRY(COMM_CUDA(cudaMemcpyAsync(data + at, r->sums, bytes, cudaMemcpyHostToDevice, c->compute)));
    }
    return 0;
}

/* ---- declaring ----------------------------------------------------------------------------------------- */

static int staged_bucket(kolo_reducer *r, int bucket, const kolo_reducer_bucket *of)
{
    KOLO_TRY(comm_cuda_add(r, bucket, of));
    KOLO_TRY(kolo_grow(&r->slot, &r->capacity, r->slots, sizeof *r->slot));
    staged_slot *slot = r->slot[r->slots] = kolo_alloc(sizeof *slot);
    if (!slot) return KOLO_ENOMEM;
    r->slots++;
    slot->bucket = bucket;
    slot->given = r->c.bucket[bucket].done;
    slot->out_offset = of->out.offset;
    slot->out_bytes = of->out.bytes;
    return slot->out_bytes ? comm_cuda_event(&slot->landed) : 0;
}

static int staged_commit(kolo_reducer *r)
{
    r->at_work = kolo_alloc((size_t)(r->slots + 1) * sizeof *r->at_work);
    if (!r->at_work) return KOLO_ENOMEM;
    KOLO_TRY(COMM_CUDA(cudaGetDevice(&r->gpu)));
    KOLO_TRY(kolo_thread_start(&r->thread, staged_main, r, "kolo-staged"));
    r->running = true;
    return 0;
}

/* ---- life ---------------------------------------------------------------------------------------------- */

static void stop_thread(kolo_reducer *r)
{
    if (!r->running) return;
    atomic_store(&r->stop, 1);
    atomic_fetch_add(&r->bell, 1);
    kolo_futex_wake(&r->stop);
    kolo_futex_wake(&r->bell);
    pthread_join(r->thread, NULL);
    r->running = false;
}

static void staged_close(kolo_reducer **out, bool orderly)
{
    kolo_reducer *r = *out;
    if (!orderly) comm_cuda_abort(r, "the communicator was closed");
    if (r->back) cudaStreamSynchronize(r->c.compute), cudaStreamSynchronize(r->c.side);
    stop_thread(r);
    if (r->back) cudaStreamSynchronize(r->back), cudaStreamDestroy(r->back);
    if (r->pinned) cudaHostUnregister(r->host);
    if (r->sums) cudaFreeHost(r->sums);
    for (int64_t i = 0; i < r->slots; i++) {
        if (r->slot[i]->landed) cudaEventDestroy(r->slot[i]->landed);
        free(r->slot[i]);
    }
    free(r->slot);
    free(r->at_work);
    comm_cuda_close(&r->c);
    free(r);
    *out = NULL;
}

static int staged_make(kolo_reducer *r)
{
    size_t bytes;
    r->host = kolo_comm_host_arena(r->c.comm, &bytes);
    KOLO_TRY(COMM_CUDA(cudaStreamCreateWithFlags(&r->back, cudaStreamNonBlocking)));
    int rc = bytes ? COMM_CUDA(cudaHostRegister(r->host, bytes, cudaHostRegisterPortable)) : 0;
    if (rc < 0) return kolo_fail_in(rc, "page-locking %zu bytes of host memory for gradients: ", bytes);
    r->pinned = bytes > 0;
    KOLO_TRY(COMM_CUDA(cudaMallocHost((void **)&r->sums, SUMS * sizeof *r->sums)));
    return comm_cuda_alloc(&r->c);
}

static int staged_open(kolo_reducer **out, kolo_comm *comm, const kolo_comm_device *device, size_t bytes,
                       double timeout)
{
    kolo_reducer *r = *out = kolo_alloc(sizeof *r);
    if (!r) return KOLO_ENOMEM;
    int rc = comm_cuda_open(&r->c, comm, device, bytes, timeout);
    if (rc == 0) rc = staged_make(r);
    if (rc < 0) staged_close(out, false);
    return rc;
}

const kolo_reducer_type comm_cuda_staged = {.name = "staged",
                                            .ordered = true,
                                            .through_host = true,
                                            .open = staged_open,
                                            .close = staged_close,
                                            .arena = comm_cuda_arena,
                                            .bucket = staged_bucket,
                                            .commit = staged_commit,
                                            .start = staged_start,
                                            .wait = staged_wait,
                                            .sum = staged_sum,
                                            .finish = comm_cuda_finish,
                                            .status = comm_cuda_status,
                                            .abort = comm_cuda_abort};
