/* Buckets and transfers that travel through host memory: for ranks that share a GPU, for systems without
 * NCCL, for canonical sums. The arena of the communicator's host half is page-locked; a bucket crosses to it
 * and back:
 *
 *   side     bucket ready -> copy to the host arena -> copy of a ticket to the bucket's flag
 *   thread   sees the flag: starts the bucket in host memory; when it is done: copy back on its own stream
 *   compute  host function: waits until the copy back has landed
 *
 * CUDA may run all host functions on one thread, so one that waits holds up every other. Therefore none is
 * enqueued before the program waits (compute itself can go no further until it returns), and what other ranks
 * may wait for, starts, needs none: the ranks wait for each other as programs in host memory do, whatever the
 * order in which they start buckets of different groups. And only graphs have them, whose kernels have all
 * been loaded: the first launch of a kernel may wait for all streams, so for such a host function, while it
 * keeps the thread from its copy back. Outside of graphs the program itself waits, and enqueues what follows
 * then. Tickets are numbered in the order of the calls, which the starts of a group must keep; they are
 * constants, so that a captured graph can be replayed. What is started in a graph is waited for in it, with
 * nothing in flight from before.
 *
 * Host functions may not call CUDA, nor can they fail the stream: an error is kept for status(), and what
 * follows passes through unsummed. */
#include <pthread.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>

#include "base/memory.h"
#include "base/thread.h"
#include "comm/cuda/parts.h"

/* More than twice as many as starts can be in flight at a time. */
enum { TICKETS = 1 << 17 };
static const double IDLE_REST = 2e-4, BUSY_REST = 2e-5, FAULT_LOOK = 0.05; /* seconds */

enum { SLOT_IDLE, SLOT_STARTED, SLOT_REDUCED, SLOT_LANDED };
/* A bucket, or the sums of f64. Its address is part of captured graphs. */
typedef struct staged_slot {
    kolo_reducer *reducer;
    int bucket;       /* of the host half */
    int flag;         /* its place among the flags */
    size_t out_bytes; /* that the thread copies back to the device, from out_offset on; 0: none */
    size_t out_offset;
    cudaEvent_t landed;
    _Atomic uint32_t state;
} staged_slot;

struct kolo_reducer {
    comm_cuda c;
    cudaStream_t back; /* the thread's */
    cudaEvent_t sum_ready, sum_done;
    char *host;
    bool pinned;
    staged_slot **slot; /* [slots] the last, from commit on: of the sums of f64 */
    int64_t slots, capacity;
    size_t sum_offset;
    /* [slots] page-locked; a ticket: the data has come. 0 again when the slot is idle, not before: the copy
     * of a ticket may store it more than once, but is complete when the bucket is waited for */
    _Atomic uint32_t *flag;
    uint32_t *ticket;      /* [TICKETS] on the device: 1, 2, ... */
    uint32_t next;         /* ticket */
    int gpu, active;       /* slots started and not landed: */
    staged_slot **at_work; /* [slots] */
    pthread_t thread;
    bool running;
    _Atomic uint32_t stop, bell;
};

static int staged_ready(char *note, size_t bytes)
{
    (void)note, (void)bytes;
    return 0;
}

/* ---- the thread ---------------------------------------------------------------------------------------- */

static void set_state(staged_slot *slot, uint32_t state)
{
    atomic_store(&slot->state, state);
    kolo_futex_wake(&slot->state);
}

/* The slot whose ticket is the oldest among those that have come and are not started; NULL: none. The state
 * is read before the flag: host_wait() clears the flag first, so a flag that is read after SLOT_IDLE is 0 or
 * a new ticket, never the one of the start that has just ended. */
static staged_slot *first_arrival(const kolo_reducer *r)
{
    staged_slot *first = NULL;
    uint32_t oldest = 0;
    for (int64_t i = 0; i < r->slots; i++) {
        if (atomic_load(&r->slot[i]->state) != SLOT_IDLE) continue;
        const uint32_t ticket = atomic_load_explicit(&r->flag[i], memory_order_acquire);
        if (!ticket) continue;
        if (first && (ticket - oldest) % TICKETS < TICKETS / 2) continue;
        first = r->slot[i];
        oldest = ticket;
    }
    return first;
}

/* 1: moved, 0: not. */
static int start_arrivals(kolo_reducer *r)
{
    int moved = 0;
    for (staged_slot *slot; (slot = first_arrival(r)); moved = 1) {
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
    const cudaError_t rc = cudaEventQuery(slot->landed);
    if (rc == cudaErrorNotReady) return 0;
    KOLO_TRY(comm_cuda_check(rc, "copy to the GPU", __FILE__, __LINE__));
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
    enum cudaStreamCaptureMode mode =
        cudaStreamCaptureModeRelaxed; /* what others capture is not this thread's */
    prctl(PR_SET_NAME, "kolo-staged");
    prctl(PR_SET_TIMERSLACK, 1000);
    int rc = COMM_CUDA(cudaSetDevice(r->gpu));
    if (rc == 0) rc = COMM_CUDA(cudaThreadExchangeStreamCaptureMode(&mode));
    while (!atomic_load(&r->stop)) {
        const uint32_t bell = atomic_load(&r->bell);
        if (rc >= 0 && comm_cuda_status(r) == 0) rc = staged_step(r);
        if (rc < 0) comm_cuda_abort(r, kolo_error_text());
        if (rc == 0) kolo_futex_wait(&r->bell, bell, r->active ? BUSY_REST : IDLE_REST, 0);
        else if (rc < 0) kolo_futex_wait(&r->stop, 0, FAULT_LOOK, 0);
    }
    return NULL;
}

/* ---- on CUDA's own thread, or the program's ------------------------------------------------------------ */

/* Until the slot has come so far. False: something failed. */
static bool reaches(staged_slot *slot, uint32_t state)
{
    for (uint32_t now; (now = atomic_load(&slot->state)) < state;) {
        if (comm_cuda_status(slot->reducer) < 0) return false;
        kolo_futex_wait(&slot->state, now, FAULT_LOOK, 0);
    }
    return comm_cuda_status(slot->reducer) == 0;
}

static void host_wait(void *of)
{
    staged_slot *slot = of;
    kolo_reducer *r = slot->reducer;
    atomic_fetch_add(&r->bell, 1);
    kolo_futex_wake(&r->bell);
    if (!reaches(slot, SLOT_STARTED)) return;
    /* helps, and says whom it waits for */
    if (kolo_comm_host_wait(r->c.comm, slot->bucket) < 0) comm_cuda_abort(r, kolo_error_text());
    if (!reaches(slot, SLOT_LANDED)) return;
    atomic_store(&r->flag[slot->flag], 0);
    atomic_store(&slot->state, SLOT_IDLE);
}

/* ---- a step -------------------------------------------------------------------------------------------- */

/* To `offset` of the host arena, and from there on. bytes: may be 0, a receive. */
static int bring(kolo_reducer *r, const staged_slot *slot, const void *device, size_t offset, size_t bytes,
                 cudaEvent_t ready, cudaEvent_t done)
{
    comm_cuda *c = &r->c;
    KOLO_TRY(comm_cuda_status(r));
    KOLO_TRY(comm_cuda_after(c->side, c->compute, ready));
    if (bytes)
        KOLO_TRY(
            COMM_CUDA(cudaMemcpyAsync(r->host + offset, device, bytes, cudaMemcpyDeviceToHost, c->side)));
    KOLO_TRY(COMM_CUDA(cudaMemcpyAsync((void *)&r->flag[slot->flag], &r->ticket[r->next], sizeof *r->ticket,
                                       cudaMemcpyDeviceToHost, c->side)));
    r->next = (r->next + 1) % TICKETS;
    return COMM_CUDA(cudaEventRecord(done, c->side));
}

static int get(kolo_reducer *r, staged_slot *slot, cudaEvent_t done)
{
    enum cudaStreamCaptureStatus status = cudaStreamCaptureStatusNone;
    KOLO_TRY(comm_cuda_status(r));
    KOLO_TRY(COMM_CUDA(cudaStreamIsCapturing(r->c.compute, &status)));
    if (status == cudaStreamCaptureStatusNone) {
        KOLO_TRY(comm_cuda_await(&r->c, done));
        host_wait(slot);
        return comm_cuda_status(r);
    }
    KOLO_TRY(COMM_CUDA(cudaStreamWaitEvent(r->c.compute, done, 0)));
    return COMM_CUDA(cudaLaunchHostFunc(r->c.compute, host_wait, slot));
}

static int staged_start(kolo_reducer *r, int bucket)
{
    const comm_cuda_bucket *b = &r->c.bucket[bucket];
    return bring(r, r->slot[bucket], r->c.arena + b->of.in.offset, b->of.in.offset, b->of.in.bytes, b->ready,
                 b->done);
}

static int staged_wait(kolo_reducer *r, int bucket)
{
    return get(r, r->slot[bucket], r->c.bucket[bucket].done);
}

/* The host half sums the whole slot; what lies behind `count` is whatever stood there, and nobody reads
 * it. */
static int staged_sum(kolo_reducer *r, double *data, int64_t count)
{
    staged_slot *slot = r->slot[r->slots - 1];
    for (int64_t at = 0; at < count; at += KOLO_HOST_SUM) {
        size_t some = (size_t)(count - at < KOLO_HOST_SUM ? count - at : KOLO_HOST_SUM) * sizeof *data;
        KOLO_TRY(bring(r, slot, data + at, r->sum_offset, some, r->sum_ready, r->sum_done));
        KOLO_TRY(get(r, slot, r->sum_done));
        KOLO_TRY(COMM_CUDA(
            cudaMemcpyAsync(data + at, r->host + r->sum_offset, some, cudaMemcpyHostToDevice, r->c.compute)));
    }
    return 0;
}

/* ---- declaring ----------------------------------------------------------------------------------------- */

static int add_slot(kolo_reducer *r, int bucket, size_t out_offset, size_t out_bytes)
{
    KOLO_TRY(kolo_grow(&r->slot, &r->capacity, r->slots, sizeof *r->slot));
    staged_slot *slot = r->slot[r->slots] = kolo_alloc(sizeof *slot);
    if (!slot) return KOLO_ENOMEM;
    slot->reducer = r;
    slot->bucket = bucket;
    slot->flag = (int)r->slots++;
    slot->out_offset = out_offset;
    slot->out_bytes = out_bytes;
    return out_bytes ? comm_cuda_event(&slot->landed) : 0;
}

static int staged_bucket(kolo_reducer *r, int bucket, const kolo_reducer_bucket *of)
{
    KOLO_TRY(add_slot(r, bucket, of->out.offset, of->out.bytes));
    return comm_cuda_add(r, bucket, of);
}

static int make_tickets(kolo_reducer *r)
{
    uint32_t *number = kolo_alloc(TICKETS * sizeof *number);
    void *ticket = NULL, *flag = NULL;
    if (!number) return KOLO_ENOMEM;
    for (uint32_t t = 0; t < TICKETS; t++) number[t] = t + 1;
    int rc = COMM_CUDA(cudaMalloc(&ticket, TICKETS * sizeof *number));
    r->ticket = ticket;
    if (rc == 0)
        rc = COMM_CUDA(
            cudaMemcpyAsync(ticket, number, TICKETS * sizeof *number, cudaMemcpyHostToDevice, r->c.compute));
    if (rc == 0) rc = COMM_CUDA(cudaStreamSynchronize(r->c.compute));
    if (rc == 0)
        rc = COMM_CUDA(cudaHostAlloc(&flag, (size_t)r->slots * sizeof *r->flag, cudaHostAllocPortable));
    if (rc == 0) memset(flag, 0, (size_t)r->slots * sizeof *r->flag);
    r->flag = flag;
    free(number);
    return rc;
}

static int staged_commit(kolo_reducer *r)
{
    KOLO_TRY(add_slot(r, kolo_comm_host_sum(r->c.comm, &r->sum_offset), 0, 0));
    KOLO_TRY(make_tickets(r));
    r->at_work = kolo_alloc((size_t)r->slots * sizeof *r->at_work);
    if (!r->at_work) return KOLO_ENOMEM;
    KOLO_TRY(COMM_CUDA(cudaGetDevice(&r->gpu)));
    KOLO_TRY(kolo_thread_start(&r->thread, staged_main, r, "comm: copies to the GPU"));
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
    if (r->sum_ready) cudaEventDestroy(r->sum_ready);
    if (r->sum_done) cudaEventDestroy(r->sum_done);
    if (r->c.arena) cudaFree(r->c.arena);
    if (r->ticket) cudaFree(r->ticket);
    if (r->flag) cudaFreeHost((void *)r->flag);
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
                                            .commit = staged_commit,
                                            .start = staged_start,
                                            .wait = staged_wait,
                                            .sum = staged_sum,
                                            .finish = comm_cuda_finish,
                                            .status = comm_cuda_status,
                                            .abort = comm_cuda_abort};
