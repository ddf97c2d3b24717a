/* The router, for the files of this folder (README.md goes through them). */
#ifndef KOLO_COMM_ROUTER_INSIDE_H
#define KOLO_COMM_ROUTER_INSIDE_H

#include <pthread.h>
#include <stdatomic.h>

#include "base/memory.h"
#include "base/thread.h"
#include "comm/core/kernel.h"
#include "comm/core/transport/router.h"

enum { ROUTER_MAX_LOCAL = COMM_FOLD_MAX, ROUTER_SETS = 64 };

/* Sets of pushing ranks (push.h) by their ids: the offset of a set's memory, which begins a page, and in the
 * bits below how often one was put up, so that none is taken for one before it; 0: none. Tables are never
 * given back: others may be looking through them. */
typedef struct router_sets {
    _Atomic uint64_t more; /* offset of the next table; 0: none yet */
    _Atomic uint64_t set[ROUTER_SETS];
} router_sets;

/* Behind it lie small rings, one to each local rank, then the heap. Written by its owner. */
typedef struct router_control {
    comm_life life;
    /* offset of the ring to this local rank; 0: not made yet */
    _Alignas(64) _Atomic uint64_t ring[ROUTER_MAX_LOCAL];
    router_sets sets; /* whose first member the owner is */
} router_control;

/* A message of a lane, or the place for one. */
typedef struct router_request {
    struct router_queue *in;     /* NULL: complete, or MPI's */
    struct router_request *next; /* there */
    struct router_lane *lane;
    int32_t rank, tag;
    char *data;
    size_t bytes, moved;
    uint64_t serial; /* the sender's */
    bool sends, complete, by_mpi;
    char mpi[sizeof(void *)]; /* its MPI_Request */
    uint8_t reply;            /* enum frame_kind of the answer that is due */
    uint64_t source;          /* where the data lies in the sender's segment */
} router_request;

typedef struct router_queue {
    router_request *first, *last;
} router_queue;

static inline void queue_put(router_queue *q, router_request *r)
{
    r->in = q;
    r->next = NULL;
    if (q->last) q->last->next = r;
    else q->first = r;
    q->last = r;
}

/* Takes out `r`, which stands behind `before` (NULL: first). */
static inline void queue_cut(router_queue *q, router_request *before, router_request *r)
{
    if (before) before->next = r->next;
    else q->first = r->next;
    if (q->last == r) q->last = before;
    r->in = NULL;
    r->next = NULL;
}

/* Takes out the first one of this tag, or of this serial number; NULL: there is none. */
static inline router_request *queue_take(router_queue *q, const int *tag, uint64_t serial)
{
    router_request *r = q->first, *before = NULL;
    for (; r && (tag ? r->tag != *tag : r->serial != serial); r = r->next) before = r;
    if (r) queue_cut(q, before, r);
    return r;
}
static inline router_request *queue_take_tag(router_queue *q, int tag) { return queue_take(q, &tag, 0); }
static inline router_request *queue_take_serial(router_queue *q, uint64_t serial)
{
    return queue_take(q, NULL, serial);
}

typedef struct comm_network comm_network;
typedef struct router_lane {
    comm_router *router;
    struct router_lane *next;
    router_request *request;
    int64_t posted, first, capacity; /* requests before `first` are complete */
    bool no_timeout;                 /* of its messages */
    double moved_at;                 /* when something was last posted or completed */
} router_lane;

/* ---- heap: first fit in part of this rank's segment; any thread ---------------------------------------- */
typedef struct router_heap {
    pthread_mutex_t lock;
    size_t offset, bytes; /* in the segment */
    struct heap_block *first;
} router_heap;
int heap_open(router_heap *heap, size_t offset, size_t bytes);
void heap_close(router_heap *heap);
int heap_take(comm_router *router, router_heap *heap, size_t bytes, uint64_t *offset);
void heap_give(router_heap *heap, uint64_t offset);
/* logs once, with the error text, that memory is missing and is done without */
void router_note_no_memory(comm_router *router);

struct comm_router {
    kolo_launch *launch;
    comm_router_config config;
    int me, ranks;                 /* local */
    int *rank_of;                  /* [ranks] */
    comm_segments own;             /* its segments, if it has any */
    const comm_segments *segments; /* where lives are: its own or the caller's */
    comm_life **life;              /* [ranks] */
    router_control **control;      /* [ranks] NULL: it carries no messages within the node */
    router_heap inner, heap;       /* for rings and sets; for comm_router_alloc */
    router_lane *lanes;
    router_queue to_self, from_self;
    struct framing **channel; /* [ranks] */
    struct tcp_lines *lines;  /* NULL: one node */
    comm_network *mpi;        /* NULL: not in use */
    int spin;                 /* polls */
    bool crowded;             /* more ranks than CPUs */
    double active_at;         /* when something last moved */
    bool mpi_busy;            /* a failing MPI may still use the memory */
    size_t ring_bytes;
    _Atomic bool starved; /* reported that it had to do without memory */
    uint32_t bell;        /* doorbell when the engine last rose */
    bool armed;
    _Atomic bool restless; /* a poll left something to do: no rest */
    int idle;              /* rests in a row with MPI in flight */
    double now;            /* of the turn under way */
    double turned_at, looked_at;
    int left; /* 1 and the rank that is waited for, which had left when that was last looked at: what it did
               * before may not have been seen yet */
    /* last return from an absence: this process was stopped, or its whole machine or job was */
    _Atomic double stood_up_at;
    _Atomic(const char *) reported;
    struct {
        _Atomic uint32_t state; /* 1: being written, 2: stands */
        int rank;
        char how[256];
    } suspected;
    struct {
        pthread_t thread;
        bool runs;
        _Atomic uint32_t stop;
    } pulse;
    /* lanes, means, and how the engine sleeps: one thread at a time, mostly the engine */
    pthread_mutex_t turn;
    pthread_mutex_t look, sets;
    uint32_t sets_made;
};

static inline char *router_at(const comm_router *r, int local, uint64_t offset)
{
    return (char *)r->control[local] + offset;
}
static inline int router_local(const comm_router *r, int rank)
{
    return r->launch->node_of[rank] == r->launch->node ? r->launch->local_of[rank] : -1;
}
/* Seconds since `at` that count against others: those after this process's own last absence. Whatever stopped
 * it may have stopped them too, as a suspended job or virtual machine does. */
static inline double router_since(const comm_router *router, double now, double at)
{
    const double up = atomic_load_explicit(&router->stood_up_at, memory_order_relaxed);
    return now - (at > up ? at : up);
}
/* What a rank of this node said last. */
void router_last_position(const comm_router *router, int local, comm_position *position);
/* The same of any rank, as far as it is known here: else its age is negative. pid: 0, or its process. */
void router_position(const comm_router *router, int rank, comm_position *position, int *pid);
/* One turn of all means; negative: broken. Engine only. */
int router_turn(comm_router *router);
/* Between telling and looking whether somebody sleeps, and between lying down and looking once more. */
static inline void router_fence(void)
{
#ifdef __SANITIZE_THREAD__ /* it does not know fences */
    static _Atomic int nothing;
    atomic_fetch_add(&nothing, 0);
#else
    atomic_thread_fence(memory_order_seq_cst);
#endif
}
/* Something of this request has moved. */
static inline void router_moved(comm_router *router, router_request *r)
{
    atomic_store_explicit(&router->restless, true, memory_order_relaxed);
    router->active_at = r->lane->moved_at = router->now;
}
/* Part of a turn: this rank's own sign of life, and a look at the others'. */
int router_watch(comm_router *router);
/* A thread that takes a turn now and then, whatever the program does. */
int router_pulse_start(comm_router *router);
void router_pulse_stop(comm_router *router);
/* Rings a local rank if it sleeps. */
void router_ring(comm_router *router, int local);
static inline bool router_broken(const comm_router *router) { return comm_life_broken(router->life[0]); }
static inline int router_check(const comm_router *router) { return comm_life_check(router->life[0]); }
/* Looks for dead and stopped ranks of this node, at most every 0.1 s, and shows that this one
 * is alive; any thread. */
int router_check_peers(comm_router *router);

/* ---- failure_report.c ---------------------------------------------------------------------------------- */
/* Reports a rank as failed; how: "died". Any thread. On one node that breaks the world at once; on
 * several the world breaks in one of the next turns, when the other nodes have said how far they came (0
 * until then). Negative: it is broken. */
int router_report_failed(comm_router *router, int rank, const char *how);
/* it lives, or not, but has not come */
int router_report_late(comm_router *router, int rank, double late);
int router_report_silent(comm_router *router, int rank, double silent); /* it sends no heartbeat */
/* Breaks the world. said: [size] words of ranks on other nodes, operation "" where there is none; NULL:
 * what lines heard last. */
int router_failure_report(comm_router *router, int rank, const char *how, const comm_position *said);
int router_inquire(comm_router *router); /* of a turn: what an accusation waits for */

/* ---- messages: by shared memory, by MPI, or by lines where MPI does not carry them ------------------ */
/* Collective; agrees on the status first, so that a rank that failed before fails all of them. */
int mpi_open(kolo_launch *launch, int status, comm_network **network);
void mpi_close(comm_network **network, bool orderly);
int mpi_post(const comm_network *network, router_request *request);
int mpi_done(router_request *request); /* 1, and complete; 0: not yet */
/* The job fails, and its memory gets other uses. False: MPI may still be using it. */
bool mpi_cancel(router_request *request);
/* Every rank gives `bytes`, gets size * bytes in rank order. Collective, before any message. */
int mpi_exchange(const comm_network *network, const void *mine, size_t bytes, void *all);
int channel_open(comm_router *router);
void channel_close(comm_router *router);
int channel_post(comm_router *router, int local, router_request *request);
int channel_turn(comm_router *router); /* moves what can be moved */
int lines_post(comm_router *router, router_request *request);
int lines_turn(comm_router *router);

/* ---- lines to other nodes: for messages where MPI does not carry them, and for heartbeats ----------- */
int lines_open(comm_router *router, int status); /* collective; fails on all ranks where it fails on one */
void lines_close(comm_router *router, bool orderly);
/* as its last sign of life said */
void lines_last_position(const comm_router *router, int rank, comm_position *position, int *pid);
/* makes a line to it, if there is none: its heartbeats will come */
void lines_want(comm_router *router, int rank);
/* when it last was; 0: never */
double lines_heard(const comm_router *router, int rank);
/* it has closed in good order */
bool lines_left(const comm_router *router, int rank);
/* every second or so: heartbeats, sent and received */
int lines_beat(comm_router *router);
/* tells the break to the other nodes */
void lines_spread(comm_router *router);
/* Asks a rank of every other node, but not this one, how far those of its node came. 1: said[size] is what
 * they answered in time (memory of the lines); 0: not yet, ask again in the next turn. Engine. */
int lines_inquire(comm_router *router, int but, const comm_position **said);
void lines_sleep(comm_router *router, uint32_t bell, double seconds);
void lines_listen(comm_router *router, double seconds);
/* a rank of this node that sleeps in lines_sleep or lines_listen */
void lines_nudge(comm_router *router, int local);

#endif
