/* The inside of sync=async, for async.c (what a rank does for its own steps) and async_serve.c (what its
 * thread does for all). */
#ifndef KOLO_EXEC_ASYNC_H
#define KOLO_EXEC_ASYNC_H

#include "base/failure.h"
#include "base/thread.h"
#include "exec/async_order.h"
#include "exec/parts.h"
#include "plan/servers.h"

/* From a worker to rank 0: it has weights after so many updates and wants to begin (BEGIN), its gradients are
 * there (READY). To a server: apply these, then send the weights (PUSH); send them (PULL); there will be no
 * more (GOODBYE). Pushes and pulls are in one order, which rank 0 makes, and all servers keep to it turn by
 * turn: so their parts of the weights are of one moment. Every message but the last is answered, and a rank
 * sends nothing before it has the answer: so both ends of a pair start its transfers in one order. */
enum async_kind { ASYNC_BEGIN = 1, ASYNC_READY, ASYNC_PUSH, ASYNC_PULL, ASYNC_GOODBYE };

typedef struct async_message {
    int64_t kind, turn;
    int64_t update, end; /* end: of the blocks that BEGIN is of */
    int64_t block;
    double loss, top1, top5, rows, norm; /* of READY: the block's */
    float lr, momentum, weight_decay, ema_decay, clip;
} async_message;
_Static_assert(sizeof(async_message) <= KOLO_MESSAGE_BYTES, "a message fits its place");

typedef struct async_reply {
    int64_t update, staleness; /* of READY */
    int64_t turn;              /* of its push; of BEGIN: of the pull that it has to do first, -1: none */
    int64_t begins, given, block[ASYNC_BLOCKS];
} async_reply;
_Static_assert(sizeof(async_reply) <= KOLO_MESSAGE_BYTES, "a reply fits its place");

/* What a server knows of a rank. */
enum async_state { ASYNC_IDLE, ASYNC_HEAD, ASYNC_GRADIENT, ASYNC_THERE, ASYNC_GONE };
typedef struct async_peer {
    enum async_state state; /* waits for its head, or its gradients; has both; it is gone */
    async_message message;
    kolo_updater *updater;       /* of this server's part of that rank's gradients */
    int head, gradient, weights; /* transfers: from it, from it, to it */
    bool sent;                   /* weights were */
    /* at rank 0 */
    async_message request; /* kind 0: none */
    async_reply answer;    /* to a BEGIN that waits */
    int reply;
    bool replied;
    /* the other way: to it as a server, from it */
    int to_head, to_gradient, to_weights;
    bool serves; /* it has a part */
} async_peer;

/* A step of which gradients are applied. */
typedef struct async_step {
    kolo_metrics sum;
    int pushed;
} async_step;

struct exec_async {
    kolo_exec *exec;
    int ranks, workers, me; /* workers: the first of the ranks, or all */
    kolo_servers at;
    int64_t first, last; /* elements of PARAM that this rank serves */
    float *own;          /* their newest values */
    int own_reply;       /* transfer, of rank 0's to this rank */
    double *squares;
    kolo_step step; /* that an update goes by */
    pthread_t thread;
    bool runs, left; /* runs: also where there is no thread for it */
    pthread_mutex_t lock;
    pthread_cond_t moved;
    /* under the lock */
    async_peer *peer; /* [ranks]; of workers what they send, of servers what they are sent */
    int64_t turn;     /* that this server is at; updates that it has applied, */
    int64_t updates;
    int64_t end;       /* and may */
    async_reply reply; /* of rank 0 to itself, once its request is gone */
    async_order order; /* at rank 0 */
    int64_t turns;     /* likewise: given out */
    async_step *done;  /* likewise: of the steps of these blocks */
    int64_t *stale;    /* [steps][workers] */
    int64_t capacity, base, reported;
    bool stops;
    int rc;
    kolo_failure why;
};

/* Serves, if only the statistics. */
static inline bool async_is_part(const exec_async *a, int rank)
{
    return rank == a->exec->plan->config.first_server ||
           kolo_plan_served(a->exec->plan, rank) < kolo_plan_served(a->exec->plan, rank + 1);
}
static inline char *async_place(const exec_async *a, size_t offset, size_t stride, int rank)
{
    return a->exec->arena[KOLO_ARENA_LATE] + offset + (size_t)rank * stride;
}
/* Servers have a thread, and rank 0, which says in which order they go. */
static inline bool async_has_thread(const exec_async *a) { return a->me == 0 || async_is_part(a, a->me); }
/* The thread, of an exec_async. */
void *exec_async_serve(void *of);

#endif
