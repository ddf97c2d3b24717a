/* The router: carries every message by the means that fits its peer: itself (a copy), shared memory on the
 * node, MPI or TCP between nodes. Owns the liveness of peers on all of them. */
#ifndef KOLO_COMM_ROUTER_H
#define KOLO_COMM_ROUTER_H

#include "comm/core/kernel.h"
#include "comm/core/transport.h"
#include "comm/core/transport/life.h"
#include "kolo/world.h"

typedef struct comm_router_config {
    const char *between; /* "auto", "mpi", "tcp" */
    double timeout;      /* seconds without any sign of progress until a wait fails; 0: 300 */
    /* seconds without any sign of life until a rank is held to be stopped, at most the timeout; 0: 8 */
    double heartbeat_timeout;
    /* seconds that the others may be late while the node's memory is set up; 0: the timeout */
    double within;
    /* of every rank, for comm_router_alloc; the same on all. Pages are taken when they are handed out */
    size_t shared_bytes;
    /* Every rank gives `bytes`, gets size * bytes in rank order; NULL: by MPI, where the router has it, or
     * kolo_launch_exchange. Collective. */
    int (*exchange)(void *of, const void *mine, size_t bytes, void *all);
    void *exchange_of;
    /* The compiled half has memory of its own: for it a router carries messages between nodes alone, and
     * makes no push or memory. */
    /* the caller's, open by the join; each begins with a comm_life. NULL: the router has its own, and what
     * follows is not used */
    const comm_segments *segments;
    int status; /* of what the caller did before the join: fails all ranks */
    /* rank whose part this rank lacks, -1: none; seconds it has waited. Any thread */
    int (*awaits)(void *of, double *late);
    /* what that rank of the node does; waits_for is filled by the router. Any thread */
    void (*position)(void *of, int local, comm_position *position);
    void *of;
} comm_router_config;

extern const comm_transport comm_routed;
/* Memory for `requests` requests in flight. */
int comm_router_lane_make(comm_router *router, int64_t requests, void **lane);
/* busy: requests may still be in flight, so the memory they use must outlive the process's MPI. */
void comm_router_lane_free(void **lane, bool *busy);
void comm_router_lane_reset(void *lane);        /* before a schedule begins: numbers start at 0 again */
int comm_router_lane_lagging(const void *lane); /* rank at the other end of the first incomplete one, or -1 */

/* The messages of this lane may be late for any time, as long as their sender lives: those that come only
 * when somebody has something to send (negotiation). Of other lanes a message that is `timeout` late breaks
 * the world. Right after lane_make. */
void comm_router_no_timeout(void *lane);

/* Whether MPI serves between the nodes: the same on all ranks, because all have the same launcher.
 * KOLO_ECONFIG: no such transport. */
int comm_router_between(const kolo_launch *launch, const char *between, bool *mpi);
/* This rank's part, waiting for nobody: where all ranks learn that one has failed, for lack of memory, none
 * joins. */
int comm_router_make(comm_router **router, kolo_launch *launch, const comm_router_config *config);
int comm_router_join(comm_router **router); /* collective; where it fails, it is closed */
/* Both, collective. */
int comm_router_open(comm_router **router, kolo_launch *launch, const comm_router_config *config);
void comm_router_close(comm_router **router, bool orderly);
/* Removes what routers of this launch that did not open have left on this node; nobody
 * opens one of it any more. */
void comm_router_forget(const kolo_launch *launch);

/* Node-shared memory (any thread), page by page. Messages from it to ranks of the node are read where they
 * lie, pushes of it work in place. */
int comm_router_alloc(comm_router *router, size_t bytes, void **memory);
void comm_router_free(comm_router *router, void *memory);
/* True: all `bytes` lie in this rank's shared memory; *offset as comm_push takes it. */
bool comm_router_shared(const comm_router *router, const void *memory, size_t bytes, size_t *offset);

/* Liveness. status: 0, or KOLO_ELAUNCH with the text of the rank that broke first (peer dead, stopped, late,
 * or comm_router_break). Of the engine, in every turn: it also gives this rank's own heartbeat,
 * whatever the program does. A peer that died or was stopped shows within 10 s (any transport). The text
 * says how far each rank came. */
int comm_router_status(comm_router *router);
/* Breaks the world for all ranks that can be reached, with this text; the first wins. Returns KOLO_ELAUNCH
 * with the winning text. */
int comm_router_break(comm_router *router, const char *text);
/* The same because of what this rank failed at, with its text. KOLO_ENOMEM stays what it is: that is cured
 * here, whatever the others see. */
int comm_router_break_by(comm_router *router, int rc);
/* After a break, before the memory of messages gets other uses: lanes write there no more but what has
 * begun to come over MPI. */
void comm_router_give_up(comm_router *router);
/* What this rank does now, for others' messages: operation (a name that outlives the call), its number in its
 * group, and how far it came. */
void comm_router_report(comm_router *router, const char *operation, uint64_t sequence);
/* A sentence about rank `rank`: host, pid, last reported operation and number, seconds since; for texts. */
void comm_router_describe(comm_router *router, int rank, char *text, size_t bytes);

/* Lets the engine sleep until a message may have come, a push of this node went on, somebody calls
 * comm_router_wake, or `seconds` have passed. May return at once without a reason: the caller looks
 * again and comes back. */
void comm_router_rest(comm_router *router, double seconds);
void comm_router_wake(comm_router *router); /* this rank's own engine; any thread */

/* ---- push: reductions within a node without messages ---- */

/* A set of ranks of one node reduces vectors of any size: each member owns a slice, reduces it over all
 * members' memory in blocks, and writes the result into every member's memory (the fastest known form on a
 * node; measured: 3 to 9 times MPI_Allreduce). Vectors in shared memory are used where they lie; others go
 * through staging blocks of the segment, pipelined. Order of a sum: members in order, or the binary tree
 * (tree). The same bits on all members. Callable from any thread, one call at a time per set. */
typedef struct comm_push comm_push;
/* This member's part of a set, waiting for nobody (members: ranks of the world, ascending, all on this node).
 * id: names the set, equal on all, not in use. KOLO_ENOMEM: no memory; nothing was changed, so where all
 * members learn of it, all close what they made. */
int comm_push_make(comm_push **push, comm_router *router, int id, const int *rank, int members);
/* collective over the members, of whom all have made theirs; fails when the world is broken */
int comm_push_join(comm_push *push);
/* Both, collective; who has no memory breaks the world. */
int comm_push_open(comm_push **push, comm_router *router, int id, const int *rank, int members);
void comm_push_close(comm_push **push); /* collective, if it was joined */
/* Starts round n = 1, 2, ... of this set; in == out: in place. Returns at once; small vectors (128 KiB /
 * members, at most 64 KiB) are reduced by the caller without any other thread. how: scaling, divisor and
 * order, as in comm_fold; copied. signature: of what the caller brings; when all have come, every member
 * compares all of them, and where two differ nobody reads or writes a vector: the round ends with
 * COMM_PUSH_DIFFERS on every member. count 0: a meeting, nothing else. */
int comm_push_start(comm_push *push, const void *in, void *out, int64_t count, const comm_folding *how,
                    uint64_t signature);
enum { COMM_PUSH_DIFFERS = 2 };
/* 1 complete, 0 not yet, COMM_PUSH_DIFFERS, negative: broken. Does blocks of work itself when there are
 * some. */
int comm_push_poll(comm_push *push);
/* Polls, then sleeps on a futex: 1 or COMM_PUSH_DIFFERS; fails by the router's timeout naming who is late. */
int comm_push_wait(comm_push *push);

#endif
