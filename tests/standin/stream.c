/* Streams and events. */
#include <stdlib.h>
#include <string.h>

#include "standin/standin.h"

struct CUstream_st standin_legacy = {.number = 0};
static struct CUstream_st *streams;
static int stream_number, event_number;

struct CUstream_st *standin_streams(void) { return streams; }

void standin_set_join(standin_set *set, const standin_set *other)
{
    for (int i = 0; i < other->count; i++) {
        bool known = false;
        for (int k = 0; k < set->count; k++) known |= set->at[k] == other->at[i];
        if (known) continue;
        if (set->count == set->capacity) {
            set->capacity = set->capacity ? 2 * set->capacity : 8;
            set->at = realloc(set->at, (size_t)set->capacity * sizeof *set->at);
            if (!set->at) abort();
        }
        set->at[set->count++] = other->at[i];
    }
}

void standin_set_free(standin_set *set)
{
    free(set->at);
    *set = (standin_set){0};
}

struct CUstream_st *standin_stream(cudaStream_t stream)
{
    if (!stream || stream == cudaStreamLegacy) return &standin_legacy;
    return standin_is("stream", stream) ? stream : NULL;
}

int standin_stream_device(cudaStream_t stream)
{
    standin_hold();
    struct CUstream_st *s = standin_stream(stream);
    int device = s ? s->device : -1;
    standin_release();
    return device;
}

/* The legacy stream and those made without cudaStreamNonBlocking wait for each other. */
void standin_stream_submit(struct CUstream_st *s, standin_op *op)
{
    standin_op_after(op, s->tail);
    if (s == &standin_legacy) {
        standin_defect("work on the legacy default stream");
        for (struct CUstream_st *other = streams; other; other = other->next)
            if (!(other->flags & cudaStreamNonBlocking)) standin_op_after(op, other->tail);
    } else if (!(s->flags & cudaStreamNonBlocking)) {
        standin_op_after(op, standin_legacy.tail);
    }
    standin_op_submit(op);
    standin_op_drop(&s->tail);
    s->tail = standin_op_keep(op);
}

cudaError_t standin_enqueue(cudaStream_t stream, const standin_work *work, standin_chain *chain)
{
    cudaError_t rc = cudaSuccess;
    standin_hold();
    struct CUstream_st *s = standin_stream(stream);
    if (!s) rc = cudaErrorInvalidResourceHandle;
    else if (s == &standin_legacy && standin_capture_any()) rc = cudaErrorStreamCaptureImplicit;
    else if (s->capture) rc = standin_capture_add(s, work, chain);
    if (rc != cudaSuccess || s->capture) {
        if (rc != cudaSuccess && work->drop) work->drop(work->argument);
        standin_release();
        return rc;
    }
    standin_op *op = standin_op_new(work);
    standin_log("enqueue %s, stream %d", work->name, s->number);
    if (chain) {
        standin_op_after(op, chain->op);
        standin_op_drop(&chain->op);
        chain->op = standin_op_keep(op);
    }
    standin_stream_submit(s, op);
    standin_op_drop(&op);
    standin_release();
    return cudaSuccess;
}

/* ---- streams ---- */

static cudaError_t create_stream(const char *call, cudaStream_t *stream, unsigned flags)
{
    STANDIN_ENTER_AS(call, STANDIN_CREATION);
    struct CUstream_st *s = calloc(1, sizeof *s);
    if (!s) abort();
    s->flags = flags;
    s->device = standin_device();
    standin_hold();
    s->number = ++stream_number;
    s->next = streams;
    streams = s;
    standin_release();
    standin_track("stream", s);
    *stream = s;
    return cudaSuccess;
}

cudaError_t cudaStreamCreateWithPriority(cudaStream_t *stream, unsigned flags, int priority)
{
    (void)priority;
    return create_stream(__func__, stream, flags);
}
cudaError_t cudaStreamCreateWithFlags(cudaStream_t *stream, unsigned flags)
{
    return create_stream(__func__, stream, flags);
}
cudaError_t cudaStreamCreate(cudaStream_t *stream) { return create_stream(__func__, stream, 0); }

cudaError_t cudaStreamDestroy(cudaStream_t stream)
{
    int code;
    standin_begin(__func__, STANDIN_CREATION, &code);
    if (!standin_untrack("stream", stream)) return standin_set_error(cudaErrorInvalidResourceHandle);
    standin_hold();
    if (stream->capture) standin_capture_spoil(stream->capture, __func__);
    for (struct CUstream_st **at = &streams; *at; at = &(*at)->next)
        if (*at == stream) {
            *at = stream->next;
            break;
        }
    standin_op_drop(&stream->tail);
    standin_set_free(&stream->last);
    standin_release();
    free(stream);
    return standin_set_error(standin_sticky);
}

static cudaError_t stream_use(cudaStream_t stream, const char *call, standin_op **tail)
{
    cudaError_t rc = cudaSuccess;
    struct CUstream_st *s = standin_stream(stream);
    if (!s) rc = cudaErrorInvalidResourceHandle;
    else if (s->capture) rc = standin_capture_spoil(s->capture, call);
    else if (standin_capture_blocks(call)) rc = cudaErrorStreamCaptureUnsupported;
    else *tail = s->tail;
    return rc;
}

cudaError_t cudaStreamSynchronize(cudaStream_t stream)
{
    STANDIN_ENTER(STANDIN_SYNCHRONISATION);
    standin_op *tail = NULL;
    standin_hold();
    cudaError_t rc = stream_use(stream, __func__, &tail);
    if (rc == cudaSuccess && tail) standin_op_wait(tail);
    if (rc == cudaSuccess) rc = standin_sticky;
    standin_release();
    return standin_set_error(rc);
}

cudaError_t cudaStreamQuery(cudaStream_t stream)
{
    STANDIN_ENTER(STANDIN_QUERY);
    standin_op *tail = NULL;
    standin_hold();
    cudaError_t rc = stream_use(stream, __func__, &tail);
    if (rc == cudaSuccess && tail && !tail->done) {
        standin_nudge();
        rc = cudaErrorNotReady;
    }
    if (standin_sticky) rc = standin_sticky;
    standin_release();
    return rc == cudaErrorNotReady ? rc : standin_set_error(rc);
}

cudaError_t cudaStreamGetPriority(cudaStream_t stream, int *priority)
{
    STANDIN_ENTER(STANDIN_OTHER);
    *priority = 0;
    return standin_set_error(standin_stream_device(stream) >= 0 ? cudaSuccess
                                                                : cudaErrorInvalidResourceHandle);
}

cudaError_t cudaDeviceGetStreamPriorityRange(int *least, int *greatest)
{
    STANDIN_ENTER(STANDIN_OTHER);
    *least = 0;
    *greatest = -5;
    return cudaSuccess;
}

/* ---- events ---- */

static int nothing(standin_op *op)
{
    (void)op;
    return STANDIN_DONE;
}
const standin_work standin_record_work = {.name = "event record", .run = nothing};

void standin_event_set(struct CUevent_st *event, standin_op *op)
{
    standin_op_drop(&event->op);
    event->op = standin_op_keep(op);
    event->asked = false;
    event->capture_number = 0;
    event->last.count = 0;
}

static cudaError_t create_event(const char *call, cudaEvent_t *event, unsigned flags)
{
    STANDIN_ENTER_AS(call, STANDIN_CREATION);
    struct CUevent_st *e = calloc(1, sizeof *e);
    if (!e) abort();
    e->flags = flags;
    standin_hold();
    e->number = ++event_number;
    standin_release();
    standin_track("event", e);
    *event = e;
    return cudaSuccess;
}
cudaError_t cudaEventCreateWithFlags(cudaEvent_t *event, unsigned flags)
{
    return create_event(__func__, event, flags);
}
cudaError_t cudaEventCreate(cudaEvent_t *event) { return create_event(__func__, event, 0); }

cudaError_t cudaEventDestroy(cudaEvent_t event)
{
    int code;
    standin_begin(__func__, STANDIN_CREATION, &code);
    if (!standin_untrack("event", event)) return standin_set_error(cudaErrorInvalidResourceHandle);
    standin_hold();
    standin_op_drop(&event->op);
    standin_set_free(&event->last);
    standin_release();
    free(event);
    return standin_set_error(standin_sticky);
}

static cudaError_t record_event(const char *call, cudaEvent_t event, cudaStream_t stream, unsigned flags)
{
    STANDIN_ENTER_AS(call, STANDIN_EVENT);
    cudaError_t rc = cudaSuccess;
    standin_hold();
    struct CUstream_st *s = standin_stream(stream);
    if (!s || !standin_is("event", event)) rc = cudaErrorInvalidResourceHandle;
    else if (s->capture) rc = standin_capture_record(s, event, flags);
    else {
        standin_op *op = standin_op_new(&standin_record_work);
        standin_log("record event %d, stream %d", event->number, s->number);
        standin_stream_submit(s, op);
        standin_event_set(event, op);
        standin_op_drop(&op);
    }
    standin_release();
    return standin_set_error(rc);
}
cudaError_t cudaEventRecordWithFlags(cudaEvent_t event, cudaStream_t stream, unsigned flags)
{
    return record_event(__func__, event, stream, flags);
}
cudaError_t cudaEventRecord(cudaEvent_t event, cudaStream_t stream)
{
    return record_event(__func__, event, stream, 0);
}

cudaError_t cudaStreamWaitEvent(cudaStream_t stream, cudaEvent_t event, unsigned flags)
{
    STANDIN_ENTER(STANDIN_EVENT);
    cudaError_t rc = cudaSuccess;
    standin_hold();
    struct CUstream_st *s = standin_stream(stream);
    if (!s || !standin_is("event", event)) rc = cudaErrorInvalidResourceHandle;
    else if (s->capture || event->capture_number) rc = standin_capture_wait(s, event, flags);
    else if (event->op && !event->op->done) {
        standin_op *op = standin_op_new(&(standin_work){.name = "event wait", .run = nothing});
        standin_log("wait for event %d, stream %d", event->number, s->number);
        standin_op_after(op, event->op);
        standin_stream_submit(s, op);
        standin_op_drop(&op);
    }
    standin_release();
    return standin_set_error(rc);
}

static cudaError_t event_use(cudaEvent_t event, const char *call)
{
    if (!standin_is("event", event)) return cudaErrorInvalidResourceHandle;
    if (event->capture_number) return cudaErrorCapturedEvent;
    return standin_capture_blocks(call) ? cudaErrorStreamCaptureUnsupported : cudaSuccess;
}

cudaError_t cudaEventQuery(cudaEvent_t event)
{
    STANDIN_ENTER(STANDIN_QUERY);
    standin_hold();
    cudaError_t rc = event_use(event, __func__);
    if (rc == cudaSuccess) {
        if (!event->asked && event->op) standin_count_more(STANDIN_AWAITED);
        event->asked = true;
        if (event->op && !event->op->done) {
            standin_nudge();
            rc = cudaErrorNotReady;
        }
    }
    if (standin_sticky) rc = standin_sticky;
    standin_release();
    return rc == cudaErrorNotReady ? rc : standin_set_error(rc);
}

cudaError_t cudaEventSynchronize(cudaEvent_t event)
{
    STANDIN_ENTER(STANDIN_SYNCHRONISATION);
    standin_hold();
    cudaError_t rc = event_use(event, __func__);
    if (rc == cudaSuccess && event->op) standin_op_wait(event->op);
    if (rc == cudaSuccess) rc = standin_sticky;
    standin_release();
    return standin_set_error(rc);
}

cudaError_t cudaEventElapsedTime(float *ms, cudaEvent_t start, cudaEvent_t end)
{
    STANDIN_ENTER(STANDIN_OTHER);
    cudaError_t rc = cudaSuccess;
    standin_hold();
    if (!standin_is("event", start) || !standin_is("event", end) || !start->op || !end->op ||
        ((start->flags | end->flags) & cudaEventDisableTiming))
        rc = cudaErrorInvalidResourceHandle;
    else if (!start->op->done || !end->op->done) rc = cudaErrorNotReady;
    else *ms = (float)((end->op->time - start->op->time) * 1e3);
    standin_release();
    return rc == cudaErrorNotReady ? rc : standin_set_error(rc);
}
