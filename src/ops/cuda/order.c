/* Memory and order of work on a GPU: kolo_device_table in terms of the CUDA runtime. */
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "base/memory.h"
#include "ops/cuda/cuda.h"

/* Left to what allocates by itself after the plan was made: cuDNN's and our kernels as they are first used
 * (300 MiB), NCCL's buffers (500 MiB), graphs. */
static const size_t reserve_bytes = (size_t)1 << 30;

/* The CUDA runtime keeps a current GPU for each thread. */
void kolo_cuda_enter(kolo_backend *b)
{
    static __thread int current = -1;
    int device = kolo_cuda_of(b)->device;
    if (b->gpu) return; /* it is not there */
    if (current != device && cudaSetDevice(device) == cudaSuccess) current = device;
}

static cudaStream_t stream_of(kolo_backend *b, enum kolo_lane lane) { return kolo_cuda_of(b)->stream[lane]; }
static void *stream(kolo_backend *b, enum kolo_lane lane) { return stream_of(b, lane); }

/* A caller that frees memory or closes the backend during a capture has abandoned it; it
 * would forbid that, too. */
static void drop_capture(kolo_cuda *c)
{
    cudaGraph_t graph = NULL;
    if (!c->capturing) return;
    c->capturing = false;
    if (cudaStreamEndCapture(c->stream[KOLO_LANE_COMPUTE], &graph) == cudaSuccess && graph)
        cudaGraphDestroy(graph);
    cudaGetLastError();
}

/* ---- memory -------------------------------------------------------------------------------------------- */

static void *alloc(kolo_backend *b, size_t bytes)
{
    kolo_cuda *c = kolo_cuda_of(b);
    cudaStream_t s = stream_of(b, KOLO_LANE_COMPUTE);
    void *memory = NULL;
    kolo_cuda_enter(b);
    cudaError_t rc = cudaMalloc(&memory, bytes ? bytes : KOLO_ALIGN);
    if (rc == cudaErrorMemoryAllocation) {
        size_t left = 0, all = 0;
        cudaGetLastError();
        cudaMemGetInfo(&left, &all);
        kolo_fail(KOLO_ENOMEM,
                  "%s: %.1f MiB of memory were asked for, %.1f of %.1f MiB are free; a smaller micro_batch= "
                  "needs less (`kolo plan` shows what for), precision=bf16 about half; others may be using "
                  "this GPU (nvidia-smi)",
                  c->place, (double)bytes / 0x1p20, (double)left / 0x1p20, (double)all / 0x1p20);
        return NULL;
    }
    int status = kolo_cuda_check(rc, "cudaMalloc", __FILE__, __LINE__);
    if (status >= 0) status = KOLO_CUDA(cudaMemsetAsync(memory, 0, bytes, s));
    if (status >= 0) status = KOLO_CUDA(cudaStreamSynchronize(s)); /* the other lanes may use it at once */
    if (status >= 0) return memory;
    if (memory) cudaFree(memory);
    return NULL;
}

static void cuda_order_release(kolo_backend *b, void *memory, size_t bytes)
{
    (void)bytes;
    kolo_cuda_enter(b);
    drop_capture(kolo_cuda_of(b));
    cudaFree(memory);
}

static size_t memory(kolo_backend *b, const char **source)
{
    size_t left = 0, all = 0;
    if (source) *source = kolo_cuda_of(b)->place;
    if (b->gpu) return b->gpu->memory;
    kolo_cuda_enter(b);
    if (KOLO_CUDA(cudaMemGetInfo(&left, &all)) < 0) return 0;
    return left > reserve_bytes ? left - reserve_bytes : 0;
}

/* ---- page-locked host memory --------------------------------------------------------------------------- */

/* A range is locked once, however often it or a part of it is pinned, and unlocked by the last unpin. */
struct kolo_cuda_pin {
    char *begin;
    size_t bytes;
    int count;
};

static struct kolo_cuda_pin *find_pin(kolo_cuda *c, const char *host)
{
    for (int64_t i = 0; i < c->pins; i++)
        if (host >= c->pin[i].begin && host < c->pin[i].begin + c->pin[i].bytes) return &c->pin[i];
    return NULL;
}

static int pin(kolo_backend *b, void *host, size_t bytes)
{
    kolo_cuda *c = kolo_cuda_of(b);
    struct kolo_cuda_pin *known = find_pin(c, host);
    if (!bytes) return 0;
    if (known) {
        if ((char *)host + bytes > known->begin + known->bytes)
            return kolo_fail(KOLO_EINTERNAL, "host memory of %zu bytes is page-locked in part only", bytes);
        known->count++;
        return 0;
    }
    kolo_cuda_enter(b);
    KOLO_TRY(kolo_grow(&c->pin, &c->pin_capacity, c->pins, sizeof *c->pin));
    KOLO_TRY(KOLO_CUDA(cudaHostRegister(host, bytes, cudaHostRegisterPortable | cudaHostRegisterMapped)));
    c->pin[c->pins++] = (struct kolo_cuda_pin){host, bytes, 1};
    return 0;
}

static void unpin(kolo_backend *b, void *host)
{
    kolo_cuda *c = kolo_cuda_of(b);
    struct kolo_cuda_pin *known = find_pin(c, host);
    if (!known || --known->count > 0) return;
    kolo_cuda_enter(b);
    cudaHostUnregister(known->begin);
    *known = c->pin[--c->pins];
}

/* ---- copies -------------------------------------------------------------------------------------------- */

static int cuda_order_copy(kolo_backend *b, enum kolo_lane lane, void *to, const void *from, size_t bytes)
{
    if (!bytes) return 0;
    kolo_cuda_enter(b);
    return KOLO_CUDA(cudaMemcpyAsync(to, from, bytes, cudaMemcpyDefault, stream_of(b, lane)));
}

static int cuda_order_fill(kolo_backend *b, enum kolo_lane lane, void *to, int byte, size_t bytes)
{
    if (!bytes) return 0;
    kolo_cuda_enter(b);
    return KOLO_CUDA(cudaMemsetAsync(to, byte, bytes, stream_of(b, lane)));
}

static int cuda_order_finish(kolo_backend *b)
{
    kolo_cuda_enter(b);
    for (int lane = 0; lane < KOLO_LANES; lane++)
        KOLO_TRY(KOLO_CUDA(cudaStreamSynchronize(stream_of(b, lane))));
    return kolo_cuda_check(cudaGetLastError(), "work enqueued earlier", __FILE__, __LINE__);
}

/* Any host memory: what is not page-locked the runtime copies through its own. */
static int copy_now(kolo_backend *b, void *to, const void *from, size_t bytes)
{
    KOLO_TRY(cuda_order_finish(b));
    KOLO_TRY(cuda_order_copy(b, KOLO_LANE_COMPUTE, to, from, bytes));
    return KOLO_CUDA(cudaStreamSynchronize(stream_of(b, KOLO_LANE_COMPUTE)));
}

static int read_memory(kolo_backend *b, void *host, const void *from, size_t bytes)
{
    return copy_now(b, host, from, bytes);
}
static int write_memory(kolo_backend *b, void *to, const void *host, size_t bytes)
{
    return copy_now(b, to, host, bytes);
}

/* ---- events -------------------------------------------------------------------------------------------- */

/* A record inside a capture has two meanings: lanes of the same capture that wait for it follow in the graph
 * (`inside`), and everyone else waits until a replay has come to that point (`outside`, recorded by a node of
 * the graph). Which one a wait means is known when it is enqueued. */
typedef struct cuda_event {
    kolo_backend *backend;
    cudaEvent_t outside, inside;
    uint64_t capture; /* number of the capture of its last record; 0: none */
} cuda_event;

static void event_destroy(void *event)
{
    cuda_event *e = event;
    kolo_cuda_enter(e->backend);
    if (e->outside) cudaEventDestroy(e->outside);
    if (e->inside) cudaEventDestroy(e->inside);
    free(e);
}

static int event_create(kolo_backend *b, void **event, bool timed)
{
    cuda_event *e = kolo_alloc(sizeof *e);
    if (!e) return KOLO_ENOMEM;
    e->backend = b;
    kolo_cuda_enter(b);
    int rc =
        KOLO_CUDA(cudaEventCreateWithFlags(&e->outside, timed ? cudaEventDefault : cudaEventDisableTiming));
    if (rc >= 0) rc = KOLO_CUDA(cudaEventCreateWithFlags(&e->inside, cudaEventDisableTiming));
    if (rc >= 0) *event = e;
    else event_destroy(e);
    return rc;
}

/* Whether what is enqueued on this lane now goes into a graph. */
static int lane_captured(kolo_backend *b, enum kolo_lane lane, bool *captured)
{
    enum cudaStreamCaptureStatus status = cudaStreamCaptureStatusNone;
    *captured = false;
    if (!kolo_cuda_of(b)->capturing) return 0;
    KOLO_TRY(KOLO_CUDA(cudaStreamIsCapturing(stream_of(b, lane), &status)));
    *captured = status != cudaStreamCaptureStatusNone;
    return 0;
}

static int event_record(kolo_backend *b, void *event, enum kolo_lane lane)
{
    cuda_event *e = event;
    cudaStream_t s = stream_of(b, lane);
    bool captured;
    kolo_cuda_enter(b);
    KOLO_TRY(lane_captured(b, lane, &captured));
    e->capture = captured ? kolo_cuda_of(b)->captures : 0;
    if (!captured) return KOLO_CUDA(cudaEventRecord(e->outside, s));
    /* in this order: the record for others is a node of its own, which must have joined too
     * when the capture ends */
    KOLO_TRY(KOLO_CUDA(cudaEventRecordWithFlags(e->outside, s, cudaEventRecordExternal)));
    return KOLO_CUDA(cudaEventRecord(e->inside, s));
}

static int event_after(kolo_backend *b, void *event, enum kolo_lane lane)
{
    const kolo_cuda *c = kolo_cuda_of(b);
    cuda_event *e = event;
    cudaStream_t s = stream_of(b, lane);
    bool captured;
    kolo_cuda_enter(b);
    if (c->capturing && e->capture == c->captures)
        return KOLO_CUDA(cudaStreamWaitEvent(s, e->inside, cudaEventWaitDefault));
    KOLO_TRY(lane_captured(b, lane, &captured));
    return KOLO_CUDA(
        cudaStreamWaitEvent(s, e->outside, captured ? cudaEventWaitExternal : cudaEventWaitDefault));
}

static int event_done(void *event)
{
    cuda_event *e = event;
    kolo_cuda_enter(e->backend);
    cudaError_t rc = cudaEventQuery(e->outside);
    if (rc != cudaErrorNotReady)
        return rc == cudaSuccess ? 1 : kolo_cuda_check(rc, "work enqueued earlier", __FILE__, __LINE__);
    cudaGetLastError(); /* not a failure */
    return 0;
}

static double event_seconds(void *from, void *to)
{
    float ms;
    return cudaEventElapsedTime(&ms, ((cuda_event *)from)->outside, ((cuda_event *)to)->outside) ==
                   cudaSuccess
               ? (double)ms * 1e-3
               : NAN;
}

/* ---- replay -------------------------------------------------------------------------------------------- */

/* Only this thread's calls are recorded, so readers and others may go on. COMM and ASIDE join when they wait
 * for an event of COMPUTE, and must have been waited for by COMPUTE at the end. */
static int capture(kolo_backend *b)
{
    kolo_cuda *c = kolo_cuda_of(b);
    kolo_cuda_enter(b);
    KOLO_TRY(
        KOLO_CUDA(cudaStreamBeginCapture(stream_of(b, KOLO_LANE_COMPUTE), cudaStreamCaptureModeThreadLocal)));
    c->capturing = true;
    c->captures++;
    return 0;
}

/* Whatever happened since the begin: afterwards nothing is captured. */
static int capture_end(kolo_backend *b, void **replay)
{
    kolo_cuda *c = kolo_cuda_of(b);
    cudaStream_t s = stream_of(b, KOLO_LANE_COMPUTE);
    cudaGraph_t graph = NULL;
    cudaGraphExec_t made = NULL;
    *replay = NULL;
    kolo_cuda_enter(b);
    if (!c->capturing)
        return kolo_fail(KOLO_EINTERNAL, "%s: the end of a capture that does not go on", c->place);
    c->capturing = false;
    int rc = KOLO_CUDA(cudaStreamEndCapture(s, &graph));
    if (rc >= 0) rc = KOLO_CUDA(cudaGraphInstantiate(&made, graph, 0));
    if (rc >= 0) rc = KOLO_CUDA(cudaGraphUpload(made, s));
    if (graph) cudaGraphDestroy(graph);
    if (rc >= 0) *replay = made;
    else if (made) cudaGraphExecDestroy(made);
    return rc;
}

static int replay_run(kolo_backend *b, void *replay)
{
    kolo_cuda_enter(b);
    return KOLO_CUDA(cudaGraphLaunch(replay, stream_of(b, KOLO_LANE_COMPUTE)));
}

static void replay_destroy(void *replay) { cudaGraphExecDestroy(replay); }

void kolo_cuda_order_close(kolo_cuda *c)
{
    drop_capture(c);
    for (int lane = 0; lane < KOLO_LANES; lane++)
        if (c->stream[lane]) cudaStreamSynchronize(c->stream[lane]);
    for (int64_t i = 0; i < c->pins; i++) cudaHostUnregister(c->pin[i].begin);
    free(c->pin);
    c->pin = NULL;
    c->pins = c->pin_capacity = 0;
}

const kolo_device_table kolo_cuda_device = {
    .alloc = alloc,
    .free = cuda_order_release,
    .memory = memory,
    .pin = pin,
    .unpin = unpin,
    .copy = cuda_order_copy,
    .fill = cuda_order_fill,
    .read = read_memory,
    .write = write_memory,
    .finish = cuda_order_finish,
    .stream = stream,
    .event_create = event_create,
    .event_destroy = event_destroy,
    .event_record = event_record,
    .event_after = event_after,
    .event_done = event_done,
    .event_seconds = event_seconds,
    .capture = capture,
    .capture_end = capture_end,
    .replay_run = replay_run,
    .replay_destroy = replay_destroy,
};
