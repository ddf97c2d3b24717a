/* Capture and graphs. A node keeps what it follows, and nothing more: a replay may do the rest in any
 * order, as a GPU may. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "standin/standin.h"

typedef struct node {
    standin_work work; /* its argument belongs to the node */
    standin_set before;
    struct CUevent_st *record, *wait; /* external events */
} node;

typedef struct list { /* shared by a graph and what was instantiated from it */
    node *at;
    int count, capacity, references;
} list;

struct CUgraph_st {
    list *nodes;
};
struct CUgraphExec_st {
    list *nodes;
    standin_op *last; /* end of the last launch */
    bool uploaded;
};

struct standin_capture {
    list *nodes;
    struct CUstream_st *origin;
    enum cudaStreamCaptureMode mode;
    pthread_t thread;
    bool spoiled;
    uint64_t number;
    standin_capture *next;
};

static standin_capture *captures;
static uint64_t capture_number;

static void list_drop(void *argument)
{
    list *l = argument;
    if (--l->references > 0) return;
    for (int i = 0; i < l->count; i++) {
        if (l->at[i].work.drop) l->at[i].work.drop(l->at[i].work.argument);
        standin_set_free(&l->at[i].before);
    }
    free(l->at);
    free(l);
}

/* ---- capture ---- */

bool standin_capture_any(void) { return captures != NULL; }

cudaError_t standin_capture_status(const standin_capture *c)
{
    return c->spoiled ? cudaErrorStreamCaptureInvalidated : cudaSuccess;
}

cudaError_t standin_capture_spoil(standin_capture *c, const char *call)
{
    if (!c->spoiled) standin_defect("%s spoiled a capture", call);
    c->spoiled = true;
    return cudaErrorStreamCaptureUnsupported;
}

static __thread enum cudaStreamCaptureMode thread_mode = cudaStreamCaptureModeGlobal;

cudaError_t cudaThreadExchangeStreamCaptureMode(enum cudaStreamCaptureMode *mode)
{
    STANDIN_ENTER(STANDIN_OTHER);
    enum cudaStreamCaptureMode was = thread_mode;
    thread_mode = *mode;
    *mode = was;
    return cudaSuccess;
}

bool standin_capture_blocks(const char *call)
{
    bool blocks = false;
    if (thread_mode == cudaStreamCaptureModeRelaxed) return false;
    for (standin_capture *c = captures; c; c = c->next) {
        bool mine = pthread_equal(c->thread, pthread_self());
        if (c->mode == cudaStreamCaptureModeRelaxed || (c->mode == cudaStreamCaptureModeThreadLocal && !mine))
            continue;
        standin_capture_spoil(c, call);
        blocks = true;
    }
    return blocks;
}

static int add_node(struct CUstream_st *s, const standin_work *work)
{
    list *l = s->capture->nodes;
    if (l->count == l->capacity) {
        l->capacity = l->capacity ? 2 * l->capacity : 64;
        l->at = realloc(l->at, (size_t)l->capacity * sizeof *l->at);
        if (!l->at) abort();
    }
    int i = l->count++;
    l->at[i] = (node){.work = *work};
    standin_set_join(&l->at[i].before, &s->last);
    s->last.count = 0;
    standin_set_join(&s->last, &(standin_set){.at = &i, .count = 1});
    standin_log("capture %s, stream %d", work->name, s->number);
    return i;
}

cudaError_t standin_capture_add(struct CUstream_st *s, const standin_work *work, standin_chain *chain)
{
    if (s->capture->spoiled) return cudaErrorStreamCaptureInvalidated;
    int i = add_node(s, work);
    if (!chain) return cudaSuccess;
    if (chain->capture_number == s->capture->number)
        standin_set_join(&s->capture->nodes->at[i].before, &(standin_set){.at = &chain->node, .count = 1});
    chain->capture_number = s->capture->number;
    chain->node = i;
    return cudaSuccess;
}

cudaError_t standin_capture_record(struct CUstream_st *s, struct CUevent_st *event, unsigned flags)
{
    if (s->capture->spoiled) return cudaErrorStreamCaptureInvalidated;
    if (flags & cudaEventRecordExternal) {
        int i = add_node(s, &standin_record_work); /* first: adding may move the nodes */
        s->capture->nodes->at[i].record = event;
        return cudaSuccess;
    }
    standin_event_set(event, NULL);
    event->capture_number = s->capture->number;
    standin_set_join(&event->last, &s->last);
    return cudaSuccess;
}

static standin_capture *capture_of(uint64_t wanted)
{
    standin_capture *c = captures;
    while (c && c->number != wanted) c = c->next;
    return c;
}

cudaError_t standin_capture_wait(struct CUstream_st *s, struct CUevent_st *event, unsigned flags)
{
    if (s->capture && s->capture->spoiled) return cudaErrorStreamCaptureInvalidated;
    if (s->capture && (flags & cudaEventWaitExternal)) {
        int i = add_node(s, &(standin_work){.name = "event wait", .run = standin_record_work.run});
        s->capture->nodes->at[i].wait = event;
        return cudaSuccess;
    }
    if (s->capture && !event->capture_number) {
        standin_capture_spoil(s->capture, "waiting inside for an event recorded outside");
        return cudaErrorStreamCaptureIsolation;
    }
    standin_capture *c = capture_of(event->capture_number);
    if (!c) return cudaErrorCapturedEvent; /* that capture has ended */
    if (s->capture && s->capture != c) return cudaErrorStreamCaptureMerge;
    if (c->spoiled) return cudaErrorStreamCaptureInvalidated;
    s->capture = c;
    standin_set_join(&s->last, &event->last);
    return cudaSuccess;
}

cudaError_t cudaStreamBeginCapture(cudaStream_t stream, enum cudaStreamCaptureMode mode)
{
    STANDIN_ENTER(STANDIN_CAPTURE);
    cudaError_t rc = cudaSuccess;
    standin_hold();
    struct CUstream_st *s = standin_stream(stream);
    if (!s) rc = cudaErrorInvalidResourceHandle;
    else if (s == &standin_legacy) rc = cudaErrorStreamCaptureUnsupported;
    else if (s->capture) rc = cudaErrorIllegalState;
    else {
        standin_capture *c = calloc(1, sizeof *c);
        if (!c || !(c->nodes = calloc(1, sizeof *c->nodes))) abort();
        *c = (standin_capture){c->nodes, s, mode, pthread_self(), false, ++capture_number, captures};
        c->nodes->references = 1;
        captures = c;
        s->capture = c;
        s->last.count = 0;
    }
    standin_release();
    return standin_set_error(rc);
}

/* Whether every node of `set` is followed, near or far, by one of `end` or is one of them. */
static bool covered(const list *l, const standin_set *set, const standin_set *end)
{
    char *seen = calloc((size_t)l->count + 1, 1);
    if (!seen) abort();
    for (int i = 0; i < end->count; i++) seen[end->at[i]] = 1;
    for (int i = l->count - 1; i >= 0; i--)
        for (int k = 0; seen[i] && k < l->at[i].before.count; k++) seen[l->at[i].before.at[k]] = 1;
    bool all = true;
    for (int i = 0; i < set->count; i++) all &= seen[set->at[i]];
    free(seen);
    return all;
}

static cudaError_t end_capture(struct CUstream_st *s, list **nodes)
{
    standin_capture *c = s->capture;
    cudaError_t rc = standin_capture_status(c);
    if (c->origin != s) return cudaErrorStreamCaptureUnmatched;
    if (c->mode != cudaStreamCaptureModeRelaxed && !pthread_equal(c->thread, pthread_self()))
        return cudaErrorStreamCaptureWrongThread;
    for (struct CUstream_st *other = standin_streams(); other; other = other->next) {
        if (other->capture != c || other == s) continue;
        if (rc == cudaSuccess && !covered(c->nodes, &other->last, &s->last)) {
            standin_defect("a captured stream did not join the one that began the capture");
            rc = cudaErrorStreamCaptureUnjoined;
        }
        other->capture = NULL;
        other->last.count = 0;
    }
    for (standin_capture **at = &captures; *at; at = &(*at)->next)
        if (*at == c) {
            *at = c->next;
            break;
        }
    s->capture = NULL;
    s->last.count = 0;
    if (rc == cudaSuccess) *nodes = c->nodes;
    else list_drop(c->nodes);
    free(c);
    return rc;
}

/* Whatever is wrong: afterwards nothing is captured. */
cudaError_t cudaStreamEndCapture(cudaStream_t stream, cudaGraph_t *graph)
{
    list *nodes = NULL;
    cudaError_t wrong = standin_enter(__func__, STANDIN_CAPTURE);
    *graph = NULL;
    standin_hold();
    struct CUstream_st *s = standin_stream(stream);
    if (wrong != cudaSuccess && s && s->capture) s->capture->spoiled = true;
    cudaError_t rc = !s            ? cudaErrorInvalidResourceHandle
                     : !s->capture ? cudaErrorIllegalState
                                   : end_capture(s, &nodes);
    standin_release();
    if (rc != cudaSuccess) return standin_set_error(wrong != cudaSuccess ? wrong : rc);
    struct CUgraph_st *g = calloc(1, sizeof *g);
    if (!g) abort();
    g->nodes = nodes;
    standin_track("graph", g);
    *graph = g;
    return cudaSuccess;
}

cudaError_t cudaStreamIsCapturing(cudaStream_t stream, enum cudaStreamCaptureStatus *status)
{
    STANDIN_ENTER(STANDIN_OTHER);
    standin_hold();
    struct CUstream_st *s = standin_stream(stream);
    if (s)
        *status = !s->capture           ? cudaStreamCaptureStatusNone
                  : s->capture->spoiled ? cudaStreamCaptureStatusInvalidated
                                        : cudaStreamCaptureStatusActive;
    standin_release();
    return standin_set_error(s ? cudaSuccess : cudaErrorInvalidResourceHandle);
}

/* ---- graphs ---- */

cudaError_t cudaGraphInstantiate(cudaGraphExec_t *exec, cudaGraph_t graph, unsigned long long flags)
{
    STANDIN_ENTER(STANDIN_CREATION);
    (void)flags;
    if (!standin_is("graph", graph)) return standin_set_error(cudaErrorInvalidValue);
    struct CUgraphExec_st *e = calloc(1, sizeof *e);
    if (!e) abort();
    standin_hold();
    e->nodes = graph->nodes;
    e->nodes->references++;
    standin_release();
    standin_track("graph executable", e);
    *exec = e;
    return cudaSuccess;
}

cudaError_t cudaGraphUpload(cudaGraphExec_t exec, cudaStream_t stream)
{
    STANDIN_ENTER(STANDIN_OTHER);
    if (!standin_is("graph executable", exec) || standin_stream_device(stream) < 0)
        return standin_set_error(cudaErrorInvalidValue);
    exec->uploaded = true;
    return cudaSuccess;
}

static void launch(struct CUgraphExec_st *e, struct CUstream_st *s)
{
    list *l = e->nodes;
    standin_op **op = calloc((size_t)l->count + 1, sizeof *op);
    if (!op) abort();
    standin_op *end = standin_op_new(&(standin_work){"graph end", standin_record_work.run, list_drop, l, 0});
    l->references++;
    for (int i = 0; i < l->count; i++) {
        node *n = &l->at[i];
        standin_work work = n->work;
        work.drop = NULL;
        op[i] = standin_op_new(&work);
        for (int k = 0; k < n->before.count; k++) standin_op_after(op[i], op[n->before.at[k]]);
        if (n->wait) standin_op_after(op[i], n->wait->op);
        if (n->before.count == 0) {
            standin_op_after(op[i], s->tail);
            standin_op_after(op[i], e->last);
            if (!(s->flags & cudaStreamNonBlocking)) standin_op_after(op[i], standin_legacy.tail);
        }
        if (n->record) standin_event_set(n->record, op[i]);
        standin_op_after(end, op[i]);
    }
    for (int i = 0; i < l->count; i++) {
        standin_op_submit(op[i]);
        standin_op_drop(&op[i]);
    }
    free(op);
    standin_stream_submit(s, end);
    standin_op_drop(&e->last);
    e->last = end;
}

cudaError_t cudaGraphLaunch(cudaGraphExec_t exec, cudaStream_t stream)
{
    STANDIN_ENTER(STANDIN_GRAPH_LAUNCH);
    standin_mark_step();
    cudaError_t rc = cudaSuccess;
    standin_hold();
    struct CUstream_st *s = standin_stream(stream);
    if (!s || !standin_is("graph executable", exec)) rc = cudaErrorInvalidValue;
    else if (s->capture) rc = standin_capture_spoil(s->capture, __func__);
    else launch(exec, s);
    standin_release();
    return standin_set_error(rc);
}

cudaError_t cudaGraphExecDestroy(cudaGraphExec_t exec)
{
    int code;
    standin_begin(__func__, STANDIN_CREATION, &code);
    if (!standin_untrack("graph executable", exec)) return standin_set_error(cudaErrorInvalidValue);
    standin_hold();
    standin_op_drop(&exec->last);
    list_drop(exec->nodes);
    standin_release();
    free(exec);
    return standin_set_error(standin_sticky);
}

cudaError_t cudaGraphDestroy(cudaGraph_t graph)
{
    int code;
    standin_begin(__func__, STANDIN_CREATION, &code);
    if (!standin_untrack("graph", graph)) return standin_set_error(cudaErrorInvalidValue);
    standin_hold();
    list_drop(graph->nodes);
    standin_release();
    free(graph);
    return standin_set_error(standin_sticky);
}

/* The number of nodes; the nodes themselves are nobody's business here. */
