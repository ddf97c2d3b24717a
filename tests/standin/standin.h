/* Inside the stand-in for a GPU (README.md beside this says what it is): what its files share.
 *
 *   count.c    every call begins here: counts, trace, injected failures, defects, what is
 *              still alive, the report
 *   memory.c   device memory and pinned memory: who owns an address, may it be touched now
 *   queue.c    pieces of work with their dependencies, and the thread that does them late
 *              and in a random order
 *   stream.c   streams and events;  graph.c: capture and graphs;  runtime.c: the rest of the CUDA runtime
 *   kernel.c   runs a kernel's blocks, each thread a fiber (emulate.h is what kernels see of it)
 *   dnn*.c     cuDNN's graph interface;  blas.c: cuBLASLt;  nccl*.c: NCCL
 *
 * One lock guards all of it. The device thread gives it up while it works. */
#ifndef TESTS_STANDIN_STANDIN_H
#define TESTS_STANDIN_STANDIN_H

#include <cuda_runtime_api.h>
#include <pthread.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#ifdef __cplusplus
extern "C" {
#endif

#if defined(__SANITIZE_ADDRESS__)
enum { STANDIN_SANITIZED = 1 };
#else
enum { STANDIN_SANITIZED = 0 };
#endif

extern pthread_mutex_t standin_lock;
static inline void standin_hold(void) { pthread_mutex_lock(&standin_lock); }
static inline void standin_release(void) { pthread_mutex_unlock(&standin_lock); }

/* ---- count.c ------------------------------------------------------------------------------------------- */

enum standin_kind {
    STANDIN_OTHER,
    STANDIN_ALLOCATION,      /* device or pinned memory made or freed */
    STANDIN_SYNCHRONISATION, /* the host waits inside the call */
    STANDIN_LAUNCH,          /* kernels, and what libraries launch */
    STANDIN_COPY,            /* asynchronous copies and fills */
    STANDIN_PAGEABLE,        /* of them, those whose host memory is not pinned: the host waits */
    STANDIN_EVENT,           /* records and waits of streams */
    STANDIN_QUERY,           /* polls; the first one of each record counts as AWAITED too */
    STANDIN_AWAITED,
    STANDIN_CREATION, /* streams, events, handles, descriptors, communicators */
    STANDIN_CAPTURE,
    STANDIN_GRAPH_LAUNCH,
    STANDIN_HOST_FUNCTION,
    STANDIN_KINDS
};

/* Counts the call, writes the trace; true when STANDIN_FAIL wants this one to fail: `code` (0: the entry's
 * own choice) says how. */
bool standin_begin(const char *call, enum standin_kind kind, int *code);
void standin_count_more(enum standin_kind kind);
void standin_count_kernel(const char *name);
void standin_mark_step(void); /* a line of the report: what was counted since the last */
void standin_log(const char *format, ...) __attribute__((format(printf, 1, 2)));
/* Something a real GPU might have let pass, or punished with wrong numbers: said on stderr,
 * counted, in the report. */
void standin_defect(const char *format, ...) __attribute__((format(printf, 1, 2)));
/* Objects alive; what remains at exit is a leak. untrack: false when `object` is not such a thing (never
 * made, or destroyed). */
void standin_track(const char *what, const void *object);
bool standin_untrack(const char *what, const void *object);
bool standin_is(const char *what, const void *object);
int64_t standin_setting(const char *variable, int64_t otherwise); /* a number from the environment */
/* a next number; *state 0 takes STANDIN_SEED */
uint64_t standin_random(uint64_t *state);

/* ---- memory.c ------------------------------------------------------------------------------------------ */

enum standin_place { STANDIN_NOWHERE, STANDIN_DEVICE, STANDIN_PINNED, STANDIN_HOST };
/* Where [address, address + bytes) lies; NOWHERE: partly in device or pinned memory. */
enum standin_place standin_place_of(const void *address, size_t bytes);
/* NULL: more than the GPU has. 256-byte aligned, filled with NaN */
void *standin_device_alloc(size_t bytes, const char *what);
bool standin_device_free(void *address, const char *what);
int standin_pin(void *address, size_t bytes); /* negative: overlaps what is known already */
bool standin_unpin(void *address);
size_t standin_memory_limit(void);
size_t standin_memory_free(void);
/* with the lock: device memory may be touched: by the device thread while it works */
void standin_device_open(bool open);

/* ---- queue.c ------------------------------------------------------------------------------------------- */

typedef struct standin_op standin_op;
/* what run() returns; a negative number: failed with that CUDA error, for good */
enum { STANDIN_DONE = 0, STANDIN_LATER = 1 };
typedef struct standin_work {
    const char *name;
    int (*run)(standin_op *op); /* on the device thread, without the lock */
    void (*drop)(void *argument);
    void *argument;
    double seconds; /* on the clock of the imaginary GPU */
} standin_work;

struct standin_op {
    standin_work work;
    int64_t state[6]; /* run()'s own, zero at first */
    /* the queue's */
    int references, waits; /* not yet done among `before` */
    bool done, wanted;
    double time; /* when done, on the GPU's clock */
    standin_op **before, **after;
    int befores, afters, before_capacity, after_capacity;
    uint64_t number;
};

/* All of these with the lock held. A new op owns the work's argument, and holds the caller's one
 * reference. */
standin_op *standin_op_new(const standin_work *work);
standin_op *standin_op_keep(standin_op *op);
void standin_op_drop(standin_op **op);
void standin_op_after(standin_op *op, standin_op *before); /* `before` may be NULL or done */
void standin_op_submit(standin_op *op);                    /* all its dependencies are stated */
void standin_op_wait(standin_op *op);                      /* NULL: everything. Gives up the lock meanwhile */
void standin_nudge(void);                                  /* a poll: some work may be done */
void standin_wake(void);                                   /* what a piece said LATER about has come */
extern cudaError_t standin_sticky;                         /* what has gone wrong for good */
void standin_break(cudaError_t error, const char *what);   /* sets it; everything enqueued is dropped */
bool standin_on_device_thread(void);
bool standin_on_host_function(void); /* of runtime.c */
void standin_stop(void);             /* at exit */

/* ---- stream.c, graph.c --------------------------------------------------------------------------------- */

typedef struct standin_capture standin_capture;
typedef struct standin_set { /* nodes of the graph being captured */
    int *at;
    int count, capacity;
} standin_set;
/* Work that keeps an order of its own beside that of streams: the calls of one communicator. */
typedef struct standin_chain {
    standin_op *op;
    uint64_t capture_number;
    int node;
} standin_chain;

/* Enqueues on a stream, or adds to the graph it is captured into; with `chain` (may be NULL) after its last
 * piece too, which this becomes. Takes the argument, also on error. Without the lock. */
cudaError_t standin_enqueue(cudaStream_t stream, const standin_work *work, standin_chain *chain);
int standin_stream_device(cudaStream_t stream); /* -1: no such stream */

struct CUstream_st {
    unsigned flags;
    int device, number;
    standin_op *tail;
    standin_capture *capture; /* NULL: not captured */
    standin_set last;         /* what the next node follows */
    struct CUstream_st *next;
};
struct CUevent_st {
    unsigned flags;
    int number;
    standin_op *op;          /* of the last record, or NULL */
    bool asked;              /* a host has asked about that record */
    uint64_t capture_number; /* of a record inside a capture; 0: none */
    standin_set last;
};

extern struct CUstream_st standin_legacy;
struct CUstream_st *standin_streams(void);               /* the others, by `next`. With the lock */
struct CUstream_st *standin_stream(cudaStream_t stream); /* NULL: no such stream. With the lock */
void standin_set_join(standin_set *set, const standin_set *other);
void standin_set_free(standin_set *set);
/* Of graph.c, with the lock held. */
cudaError_t standin_capture_add(struct CUstream_st *stream, const standin_work *work, standin_chain *chain);
cudaError_t standin_capture_record(struct CUstream_st *stream, struct CUevent_st *event, unsigned flags);
cudaError_t standin_capture_wait(struct CUstream_st *stream, struct CUevent_st *event, unsigned flags);
/* cudaErrorStreamCaptureUnsupported */
cudaError_t standin_capture_spoil(standin_capture *capture, const char *call);
/* this thread captures in a mode that forbids such calls: the capture is spoiled */
bool standin_capture_blocks(const char *call);
bool standin_capture_any(void);
cudaError_t standin_capture_status(const standin_capture *capture); /* cudaSuccess, or that it was spoiled */
/* Of stream.c: enqueues a record, `event` now means it. With the lock. */
void standin_event_set(struct CUevent_st *event, standin_op *op);
extern const standin_work standin_record_work;
/* after what the stream holds; becomes its last */
void standin_stream_submit(struct CUstream_st *stream, standin_op *op);

/* ---- kernel.c ------------------------------------------------------------------------------------------ */

const char *standin_kernel_at_work(void); /* for the device thread; NULL: none */

/* ---- runtime.c ----------------------------------------------------------------------------------------- */

cudaError_t standin_set_error(cudaError_t error); /* this thread's last one; returns it */
/* What every CUDA runtime entry begins with: counted, refused after a lasting error and
 * inside host functions. */
cudaError_t standin_enter(const char *call, enum standin_kind kind);
#define STANDIN_ENTER_AS(call, kind)                                 \
    do {                                                             \
        cudaError_t enter_ = standin_enter((call), (kind));          \
        if (enter_ != cudaSuccess) return standin_set_error(enter_); \
    } while (0)
#define STANDIN_ENTER(kind) STANDIN_ENTER_AS(__func__, kind)
int standin_device(void);                    /* this thread's current GPU */
const char *standin_device_uuid(int device); /* "GPU-..." as text, of a visible device */
int standin_devices(void);

#ifdef __cplusplus
}
#endif
#endif
