/* The rest of the CUDA runtime: errors, memory calls, copies, host functions. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "standin/standin.h"

static __thread cudaError_t last_error;
static __thread bool in_host_function;

/* ---- errors ---- */

cudaError_t standin_set_error(cudaError_t error)
{
    if (error != cudaSuccess) last_error = error;
    return error;
}

bool standin_on_host_function(void) { return in_host_function; }

static cudaError_t usual_failure(enum standin_kind kind)
{
    return kind == STANDIN_ALLOCATION ? cudaErrorMemoryAllocation : cudaErrorUnknown;
}

cudaError_t standin_enter(const char *call, enum standin_kind kind)
{
    int code;
    bool fails = standin_begin(call, kind, &code);
    if (in_host_function || standin_on_device_thread()) {
        standin_defect("%s was called in a host function", call);
        return cudaErrorNotPermitted;
    }
    if (standin_sticky) return standin_sticky;
    return fails ? code ? (cudaError_t)code : usual_failure(kind) : cudaSuccess;
}

cudaError_t cudaGetLastError(void)
{
    cudaError_t e = standin_sticky ? standin_sticky : last_error;
    last_error = cudaSuccess;
    return e;
}

static const struct {
    cudaError_t error;
    const char *name, *text;
} words[] = {
#define WORD(name, text)  \
    {                     \
        name, #name, text \
    }
    WORD(cudaSuccess, "no error"),
    WORD(cudaErrorInvalidValue, "invalid argument"),
    WORD(cudaErrorMemoryAllocation, "out of memory"),
    WORD(cudaErrorInitializationError, "initialization error"),
    WORD(cudaErrorInvalidConfiguration, "invalid configuration argument"),
    WORD(cudaErrorInsufficientDriver, "CUDA driver version is insufficient for CUDA runtime version"),
    WORD(cudaErrorDevicesUnavailable, "CUDA-capable device(s) is/are busy or unavailable"),
    WORD(cudaErrorNoDevice, "no CUDA-capable device is detected"),
    WORD(cudaErrorInvalidDevice, "invalid device ordinal"),
    WORD(cudaErrorNoKernelImageForDevice, "no kernel image is available for execution on the device"),
    WORD(cudaErrorECCUncorrectable, "uncorrectable ECC error encountered"),
    WORD(cudaErrorInvalidResourceHandle, "invalid resource handle"),
    WORD(cudaErrorIllegalState, "the operation cannot be performed in the present state"),
    WORD(cudaErrorNotReady, "device not ready"),
    WORD(cudaErrorIllegalAddress, "an illegal memory access was encountered"),
    WORD(cudaErrorLaunchOutOfResources, "too many resources requested for launch"),
    WORD(cudaErrorLaunchTimeout, "the launch timed out and was terminated"),
    WORD(cudaErrorHostMemoryAlreadyRegistered, "part or all of the requested memory range is already mapped"),
    WORD(cudaErrorHostMemoryNotRegistered, "pointer does not correspond to a registered memory region"),
    WORD(cudaErrorMisalignedAddress, "misaligned address"),
    WORD(cudaErrorLaunchFailure, "unspecified launch failure"),
    WORD(cudaErrorNotPermitted, "operation not permitted"),
    WORD(cudaErrorNotSupported, "operation not supported"),
    WORD(cudaErrorStreamCaptureUnsupported, "operation not permitted when stream is capturing"),
    WORD(cudaErrorStreamCaptureInvalidated, "operation failed due to a previous error during capture"),
    WORD(cudaErrorStreamCaptureMerge, "operation would result in a merge of separate capture sequences"),
    WORD(cudaErrorStreamCaptureUnmatched, "capture was not ended in the same stream as it began"),
    WORD(cudaErrorStreamCaptureUnjoined, "capturing stream has unjoined work"),
    WORD(cudaErrorStreamCaptureIsolation, "dependency created on uncaptured work in another stream"),
    WORD(cudaErrorStreamCaptureImplicit,
         "operation would make the legacy stream depend on a capturing blocking stream"),
    WORD(cudaErrorCapturedEvent, "operation not permitted on an event last recorded in a capturing stream"),
    WORD(cudaErrorStreamCaptureWrongThread,
         "attempt to terminate a thread-local capture sequence from another thread"),
    WORD(cudaErrorUnknown, "unknown error"),
#undef WORD
};

const char *cudaGetErrorName(cudaError_t error)
{
    for (size_t i = 0; i < sizeof words / sizeof *words; i++)
        if (words[i].error == error) return words[i].name;
    return "unrecognized error code";
}

const char *cudaGetErrorString(cudaError_t error)
{
    for (size_t i = 0; i < sizeof words / sizeof *words; i++)
        if (words[i].error == error) return words[i].text;
    return "unrecognized error code";
}

/* ---- memory ---- */

/* Calls that a capture of this thread forbids. */
static cudaError_t forbidden(const char *call)
{
    standin_hold();
    bool blocked = standin_capture_blocks(call);
    standin_release();
    return blocked ? cudaErrorStreamCaptureUnsupported : cudaSuccess;
}

cudaError_t cudaMalloc(void **memory, size_t bytes)
{
    STANDIN_ENTER(STANDIN_ALLOCATION);
    *memory = NULL;
    cudaError_t rc = forbidden(__func__);
    if (rc == cudaSuccess && bytes && !(*memory = standin_device_alloc(bytes, __func__)))
        rc = cudaErrorMemoryAllocation;
    return standin_set_error(rc);
}

static void all_done(void)
{
    standin_hold();
    standin_op_wait(NULL);
    standin_release();
}

/* Frees even after a lasting error: a program that ends in good order is not to be blamed for leaks. */
cudaError_t cudaFree(void *memory)
{
    int code;
    bool fails = standin_begin(__func__, STANDIN_ALLOCATION, &code);
    if (!memory) return standin_set_error(standin_sticky);
    cudaError_t rc = forbidden(__func__);
    if (rc != cudaSuccess) return standin_set_error(rc);
    all_done(); /* as the real one does */
    if (!standin_device_free(memory, "cudaMalloc")) {
        standin_defect("cudaFree of what cudaMalloc did not give");
        return standin_set_error(cudaErrorInvalidValue);
    }
    return standin_set_error(fails ? code ? (cudaError_t)code : cudaErrorUnknown : standin_sticky);
}

cudaError_t cudaHostRegister(void *memory, size_t bytes, unsigned flags)
{
    STANDIN_ENTER(STANDIN_ALLOCATION);
    (void)flags;
    cudaError_t rc = forbidden(__func__);
    if (rc == cudaSuccess && (!memory || !bytes)) rc = cudaErrorInvalidValue;
    if (rc == cudaSuccess && standin_pin(memory, bytes) < 0) rc = cudaErrorHostMemoryAlreadyRegistered;
    if (rc == cudaSuccess) standin_track("registered host memory", memory);
    return standin_set_error(rc);
}

cudaError_t cudaHostUnregister(void *memory)
{
    int code;
    standin_begin(__func__, STANDIN_ALLOCATION, &code);
    if (!standin_untrack("registered host memory", memory))
        return standin_set_error(cudaErrorHostMemoryNotRegistered);
    all_done();
    standin_unpin(memory);
    return standin_set_error(standin_sticky);
}

static cudaError_t alloc_host(const char *call, void **memory, size_t bytes)
{
    STANDIN_ENTER_AS(call, STANDIN_ALLOCATION);
    cudaError_t rc = forbidden(call);
    *memory = NULL;
    if (rc == cudaSuccess && posix_memalign(memory, 4096, bytes ? bytes : 1)) rc = cudaErrorMemoryAllocation;
    if (rc != cudaSuccess) return standin_set_error(rc);
    memset(*memory, 0xFF, bytes);
    standin_pin(*memory, bytes ? bytes : 1);
    standin_track("pinned host memory", *memory);
    return cudaSuccess;
}
cudaError_t cudaHostAlloc(void **memory, size_t bytes, unsigned flags)
{
    (void)flags;
    return alloc_host(__func__, memory, bytes);
}
cudaError_t cudaMallocHost(void **memory, size_t bytes) { return alloc_host(__func__, memory, bytes); }

cudaError_t cudaFreeHost(void *memory)
{
    int code;
    standin_begin(__func__, STANDIN_ALLOCATION, &code);
    if (!memory) return standin_set_error(standin_sticky);
    if (!standin_untrack("pinned host memory", memory)) return standin_set_error(cudaErrorInvalidValue);
    all_done();
    standin_unpin(memory);
    free(memory);
    return standin_set_error(standin_sticky);
}

cudaError_t cudaMemGetInfo(size_t *available, size_t *total)
{
    STANDIN_ENTER(STANDIN_OTHER);
    *available = standin_memory_free();
    *total = standin_memory_limit();
    return cudaSuccess;
}

/* ---- copies ---- */

typedef struct copy {
    void *to;
    const void *from; /* NULL: fill */
    size_t bytes;
    int byte;
} copy;

static int copy_run(standin_op *op)
{
    const copy *c = op->work.argument;
    if (c->from) memcpy(c->to, c->from, c->bytes);
    else memset(c->to, c->byte, c->bytes);
    return STANDIN_DONE;
}

static standin_work copy_work(const copy *c)
{
    copy *own = malloc(sizeof *own);
    if (!own) abort();
    *own = *c;
    return (standin_work){c->from ? "copy" : "fill", copy_run, free, own, 2e-6 + (double)c->bytes / 1e12};
}

static bool is_host(enum standin_place p) { return p == STANDIN_PINNED || p == STANDIN_HOST; }

static cudaError_t copy_check(const copy *c, enum cudaMemcpyKind kind, bool *pageable)
{
    enum standin_place to = standin_place_of(c->to, c->bytes), from = standin_place_of(c->from, c->bytes);
    *pageable = to == STANDIN_HOST || from == STANDIN_HOST;
    bool to_host = kind == cudaMemcpyDeviceToHost || kind == cudaMemcpyHostToHost;
    bool from_host = kind == cudaMemcpyHostToDevice || kind == cudaMemcpyHostToHost;
    if (to == STANDIN_NOWHERE || from == STANDIN_NOWHERE) {
        standin_defect("a copy of %zu bytes goes beyond its memory", c->bytes);
        return cudaErrorInvalidValue;
    }
    if (kind != cudaMemcpyDefault && (is_host(to) != to_host || is_host(from) != from_host)) {
        standin_defect("a copy of %zu bytes goes another way than it says", c->bytes);
        return cudaErrorInvalidValue;
    }
    const char *a = c->to, *b = c->from;
    if (a < b + c->bytes && b < a + c->bytes) standin_defect("a copy of %zu bytes overlaps itself", c->bytes);
    return cudaSuccess;
}

static bool is_captured(cudaStream_t stream)
{
    standin_hold();
    struct CUstream_st *s = standin_stream(stream);
    bool captured = s && s->capture;
    standin_release();
    return captured;
}

static cudaError_t wait_for(cudaStream_t stream)
{
    standin_hold();
    struct CUstream_st *s = standin_stream(stream);
    if (s && s->tail) standin_op_wait(s->tail);
    standin_release();
    return standin_sticky;
}

cudaError_t cudaMemcpyAsync(void *to, const void *from, size_t bytes, enum cudaMemcpyKind kind,
                            cudaStream_t stream)
{
    STANDIN_ENTER(STANDIN_COPY);
    copy c = {to, from, bytes, 0};
    bool pageable;
    if (standin_stream_device(stream) < 0) return standin_set_error(cudaErrorInvalidResourceHandle);
    if (bytes == 0) return cudaSuccess;
    cudaError_t rc = copy_check(&c, kind, &pageable);
    if (rc != cudaSuccess) return standin_set_error(rc);
    standin_work work = copy_work(&c);
    if (pageable && is_captured(stream))
        standin_defect("a copy of host memory that is not pinned was captured");
    rc = standin_enqueue(stream, &work, NULL);
    /* goes through the runtime's own memory, and the host waits */
    if (rc == cudaSuccess && pageable && !is_captured(stream)) {
        standin_count_more(STANDIN_PAGEABLE);
        rc = wait_for(stream);
    }
    return standin_set_error(rc);
}

cudaError_t cudaMemsetAsync(void *to, int byte, size_t bytes, cudaStream_t stream)
{
    STANDIN_ENTER(STANDIN_COPY);
    copy c = {to, NULL, bytes, byte};
    if (standin_stream_device(stream) < 0) return standin_set_error(cudaErrorInvalidResourceHandle);
    if (bytes == 0) return cudaSuccess;
    enum standin_place place = standin_place_of(to, bytes);
    if (place != STANDIN_DEVICE && place != STANDIN_PINNED) {
        standin_defect("a fill of %zu bytes goes beyond its memory", bytes);
        return standin_set_error(cudaErrorInvalidValue);
    }
    standin_work work = copy_work(&c);
    return standin_set_error(standin_enqueue(stream, &work, NULL));
}

/* ---- host functions: one thread does them, one after another, as the driver may ---- */

typedef struct host_call {
    cudaHostFn_t function;
    void *argument;
} host_call;

static pthread_mutex_t host_lock = PTHREAD_MUTEX_INITIALIZER;
static pthread_cond_t host_wanted = PTHREAD_COND_INITIALIZER;
static bool host_running;
static host_call host_next;
static enum { HOST_IDLE, HOST_GIVEN, HOST_DONE } host_state;

static void *host_main(void *unused)
{
    (void)unused;
    in_host_function = true;
    pthread_mutex_lock(&host_lock);
    for (;;) {
        while (host_state != HOST_GIVEN) pthread_cond_wait(&host_wanted, &host_lock);
        host_call call = host_next;
        pthread_mutex_unlock(&host_lock);
        call.function(call.argument);
        pthread_mutex_lock(&host_lock);
        host_state = HOST_DONE;
        standin_wake();
    }
    return NULL;
}

/* op->state[0]: whether its function has been given to the thread. */
static int host_run(standin_op *op)
{
    int rc = STANDIN_LATER;
    pthread_mutex_lock(&host_lock);
    if (!host_running) {
        pthread_t thread;
        host_running = true;
        if (pthread_create(&thread, NULL, host_main, NULL)) abort();
        pthread_detach(thread);
    }
    if (op->state[0] == 0 && host_state == HOST_IDLE) {
        host_next = *(const host_call *)op->work.argument;
        host_state = HOST_GIVEN;
        op->state[0] = 1;
        pthread_cond_signal(&host_wanted);
    } else if (op->state[0] == 1 && host_state == HOST_DONE) {
        host_state = HOST_IDLE;
        rc = STANDIN_DONE;
    }
    pthread_mutex_unlock(&host_lock);
    return rc;
}

cudaError_t cudaLaunchHostFunc(cudaStream_t stream, cudaHostFn_t function, void *argument)
{
    STANDIN_ENTER(STANDIN_HOST_FUNCTION);
    host_call *call = malloc(sizeof *call);
    if (!call) abort();
    *call = (host_call){function, argument};
    return standin_set_error(
        standin_enqueue(stream, &(standin_work){"host function", host_run, free, call, 1e-5}, NULL));
}
