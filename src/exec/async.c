/* sync=async: asynchronous SGD with a parameter server that is sharded over the ranks (Dean et al. 2012; the
 * bound: Ho et al. 2013). A rank has two parts. By its own step it computes the gradients of a block of
 * rows, pushes them to the ranks that serve the weights, each its part, and pulls the newest; its thread
 * serves a part to all (async_serve.c). No rank waits for another's step. Where servers are ranks of their
 * own (config.first_server) each rank has one of the two, and the thread of rank 0 only says in which order.
 *
 *     this rank's step                          threads
 *     forward, backward, NORM
 *     "they are there" to rank 0        --->    rank 0: this is turn u; and the next blocks
 *     PUSH to all servers               --->    each: turn u - 1 is done: LAYERS, UPDATE, BUFFERS, then
 *     weights of all parts are there    <---    its part of the weights
 *
 * Between the steps of a run at which all ranks meet blocks are given to whoever is free. Where they meet all
 * updates are done, and every rank has the weights, averages and state of all parts, as after a step of any
 * run. */
#include "exec/async.h"

#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

#include "base/memory.h"
#include "kolo/error.h"
#include "plan/shard.h"

/* ---- what is declared ---- */

/* Byte offset in comm's memory of place `rank` of those that begin at `offset` of ours. */
static size_t comm_offset(const exec_async *a, size_t offset, size_t stride, int rank)
{
    return kolo_plan_late_base(a->exec->plan) + offset + (size_t)rank * stride;
}

static int declare(exec_async *a, int from, int to, size_t from_offset, size_t to_offset, size_t bytes,
                   int *at_from, int *at_to)
{
    const int number = kolo_comm_transfer(a->exec->comm, from, to, from_offset, to_offset, bytes);
    KOLO_TRY(number);
    if (a->me == from) *at_from = number;
    if (a->me == to) *at_to = number;
    return 0;
}

/* Messages of a worker to a server, or to rank 0, which answers. */
static int declare_messages(exec_async *a, int rank, int to)
{
    const kolo_servers *at = &a->at;
    async_peer *from = &a->peer[rank];
    KOLO_TRY(declare(a, rank, to, comm_offset(a, at->heads, KOLO_MESSAGE_BYTES, to),
                     comm_offset(a, at->headed, KOLO_MESSAGE_BYTES, rank), KOLO_MESSAGE_BYTES,
                     &a->peer[to].to_head, &from->head));
    if (to) return 0;
    return declare(a, 0, rank, comm_offset(a, at->replies, KOLO_MESSAGE_BYTES, rank),
                   comm_offset(a, at->reply, 0, 0), KOLO_MESSAGE_BYTES, &from->reply, &a->own_reply);
}

/* Between a worker and a server of a part. */
static int declare_part(exec_async *a, int rank, int server)
{
    const kolo_plan *p = a->exec->plan;
    const kolo_servers *at = &a->at;
    async_peer *from = &a->peer[rank], *to = &a->peer[server];
    size_t first, end = kolo_plan_pushed(p, server, &first);
    const int64_t begin = kolo_plan_served(p, server), params = kolo_plan_served(p, server + 1) - begin;
    to->serves |= a->me == rank;
    KOLO_TRY(declare(a, rank, server, first, comm_offset(a, at->gradients, at->gradient_stride, rank),
                     end - first, &to->to_gradient, &from->gradient));
    if (!params) return 0;
    return declare(a, server, rank, comm_offset(a, at->weights, at->weight_stride, rank),
                   kolo_plan_gather_base(p) + (size_t)begin * sizeof(float), (size_t)params * sizeof(float),
                   &from->weights, &to->to_weights);
}

static int declare_all(exec_async *a)
{
    for (int r = 0; r < a->ranks; r++)
        a->peer[r].head = a->peer[r].weights = a->peer[r].to_weights = a->peer[r].to_head = -1;
    for (int r = 0; r < a->workers; r++)
        for (int s = 0; s < a->ranks; s++) {
            if (r == s) continue;
            if (s == 0 || async_is_part(a, s)) KOLO_TRY(declare_messages(a, r, s));
            if (async_is_part(a, s)) KOLO_TRY(declare_part(a, r, s));
        }
    return 0;
}

/* One for the gradients of each rank, as they lie; this rank's own lie where it computes them. */
static int make_updaters(exec_async *a)
{
    kolo_exec *e = a->exec;
    const bool front = a->me == e->plan->config.first_server;
    size_t from;
    if (!async_is_part(a, a->me)) return 0;
    kolo_plan_pushed(e->plan, a->me, &from);
    for (int r = 0; r < a->workers; r++) {
        char *at = r == a->me ? e->arena[KOLO_ARENA_GRADIENT] + from
                              : async_place(a, a->at.gradients, a->at.gradient_stride, r);
        const exec_served served = {.first = a->first,
                                    .last = a->last,
                                    .param = a->own,
                                    .grad = (float *)(void *)(at + (front ? e->plan->reduced_front : 0)),
                                    .front = front ? at : NULL};
        KOLO_TRY(exec_make_updater(e, 0, &served, &a->peer[r].updater));
    }
    return 0;
}

int exec_async_open(kolo_exec *e)
{
    const kolo_plan *p = e->plan;
    if (!p->config.servers) return 0;
    exec_async *a = e->async = kolo_alloc(sizeof *a);
    if (!a) return KOLO_ENOMEM;
    *a = (exec_async){.exec = e,
                      .ranks = p->config.first_server + p->config.servers,
                      .workers = kolo_workers(&p->config),
                      .me = kolo_comm_launch(e->comm)->rank,
                      .at = kolo_plan_servers(p),
                      .lock = PTHREAD_MUTEX_INITIALIZER,
                      .moved = PTHREAD_COND_INITIALIZER};
    a->first = kolo_plan_served(p, a->me);
    a->last = kolo_plan_served(p, a->me + 1);
    a->own = (float *)(void *)async_place(a, a->at.own, 0, 0);
    a->peer = kolo_alloc((size_t)a->ranks * sizeof *a->peer);
    a->squares = kolo_alloc(exec_squares_bytes(e));
    if (!a->peer || !a->squares) return KOLO_ENOMEM;
    KOLO_TRY(async_order_create(&a->order, a->workers, p->config.bound));
    KOLO_TRY(make_updaters(a));
    return declare_all(a);
}

/* ---- this rank's messages ---- */

/* Until the thread has done what this rank waits for. */
static int await_thread(exec_async *a, bool (*done)(const exec_async *a))
{
    const double begin = kolo_time();
    while (a->rc == 0 && !done(a)) pthread_cond_wait(&a->moved, &a->lock);
    a->exec->waiting += kolo_time() - begin;
    return done(a) ? 0 : a->rc;
}

static int fail_of_thread(exec_async *a, int rc) { return rc < 0 ? kolo_error_restore(&a->why, rc) : 0; }

static int send_head(exec_async *a, int rank, const async_message *m)
{
    const int number = a->peer[rank].to_head;
    memcpy(async_place(a, a->at.heads, KOLO_MESSAGE_BYTES, rank), m, sizeof *m);
    return kolo_comm_start(a->exec->comm, number);
}

static bool is_answered(const exec_async *a) { return a->peer[a->me].request.kind == 0; }

/* To rank 0, and its answer. */
static int ask(exec_async *a, const async_message *m, async_reply *reply)
{
    kolo_comm *comm = a->exec->comm;
    if (a->me) {
        KOLO_TRY(send_head(a, 0, m));
        KOLO_TRY(kolo_comm_start(comm, a->own_reply));
        KOLO_TRY(exec_await_ranks(a->exec, a->peer[0].to_head));
        KOLO_TRY(exec_await_ranks(a->exec, a->own_reply));
        memcpy(reply, async_place(a, a->at.reply, 0, 0), sizeof *reply);
        return 0;
    }
    pthread_mutex_lock(&a->lock);
    a->peer[0].request = *m;
    pthread_cond_broadcast(&a->moved);
    const int rc = await_thread(a, is_answered);
    *reply = a->reply;
    pthread_mutex_unlock(&a->lock);
    return fail_of_thread(a, rc);
}

static bool is_served(const exec_async *a) { return a->peer[a->me].state == ASYNC_IDLE; }

static int exchange_own(exec_async *a, const async_message *m)
{
    if (!async_is_part(a, a->me)) return 0;
    pthread_mutex_lock(&a->lock);
    a->peer[a->me].message = *m;
    a->peer[a->me].state = ASYNC_THERE;
    pthread_cond_broadcast(&a->moved);
    const int rc = await_thread(a, is_served);
    pthread_mutex_unlock(&a->lock);
    return fail_of_thread(a, rc);
}

/* To all servers, and their weights. */
static int exchange(exec_async *a, const async_message *m)
{
    kolo_exec *e = a->exec;
    const bool push = m->kind == ASYNC_PUSH;
    for (int s = 0; s < a->ranks; s++) {
        const async_peer *p = &a->peer[s];
        if (!p->serves) continue;
        KOLO_TRY(send_head(a, s, m));
        if (push) KOLO_TRY(kolo_comm_start(e->comm, p->to_gradient));
        if (p->to_weights >= 0) KOLO_TRY(kolo_comm_start(e->comm, p->to_weights));
    }
    KOLO_TRY(exchange_own(a, m));
    for (int s = 0; s < a->ranks; s++) {
        const async_peer *p = &a->peer[s];
        if (!p->serves) continue;
        KOLO_TRY(exec_await_ranks(e, p->to_head));
        if (push) KOLO_TRY(exec_await_ranks(e, p->to_gradient));
        if (p->to_weights >= 0) KOLO_TRY(exec_await_ranks(e, p->to_weights));
    }
    e->changes++;
    return 0;
}

/* ---- blocks ---- */

static void give(const async_reply *reply, kolo_blocks *blocks)
{
    blocks->given = (int)reply->given;
    memcpy(blocks->block, reply->block, sizeof reply->block);
}

/* Waits until this rank may begin, and has the weights of that moment. known: so many updates are in those
 * that it has. */
static int begin(exec_async *a, int64_t known, kolo_blocks *blocks)
{
    const async_message m = {.kind = ASYNC_BEGIN, .update = known, .end = a->end};
    async_reply reply;
    KOLO_TRY(ask(a, &m, &reply));
    if (blocks) give(&reply, blocks), blocks->held = blocks->given;
    if (!reply.begins || reply.turn < 0) return 0;
    const async_message pull = {.kind = ASYNC_PULL, .turn = reply.turn};
    return exchange(a, &pull);
}

static int start(exec_async *a, int64_t first)
{
    const float *param = (const float *)(const void *)a->exec->arena[KOLO_ARENA_PARAM];
    if (a->runs) return 0;
    memcpy(a->own, param + a->first, (size_t)(a->last - a->first) * sizeof *param);
    a->updates = a->end = first;
    if (async_has_thread(a))
        KOLO_TRY(kolo_thread_start(&a->thread, exec_async_serve, a, "a server of weights"));
    a->runs = true;
    return 0;
}

/* Rank 0: places for what is reported of these steps. */
static int open_records(exec_async *a, int64_t first, int64_t end)
{
    const int64_t steps = (end - first) / a->workers;
    if (steps > a->capacity) {
        free(a->done);
        free(a->stale);
        a->capacity = steps;
        a->done = kolo_alloc((size_t)steps * sizeof *a->done);
        a->stale = kolo_alloc((size_t)(steps * a->workers) * sizeof *a->stale);
        if (!a->done || !a->stale) return KOLO_ENOMEM;
    }
    memset(a->done, 0, (size_t)steps * sizeof *a->done);
    a->base = a->reported = first / a->workers;
    async_order_open(&a->order, first, end);
    return 0;
}

int kolo_exec_open_blocks(kolo_exec *e, int64_t first, int64_t end, kolo_blocks *blocks)
{
    exec_async *a = e->async;
    KOLO_TRY(start(a, first));
    pthread_mutex_lock(&a->lock);
    a->end = end;
    const int rc = a->me ? 0 : open_records(a, first, end);
    pthread_cond_broadcast(&a->moved);
    pthread_mutex_unlock(&a->lock);
    KOLO_TRY(rc);
    *blocks = (kolo_blocks){0};
    return a->me < a->workers ? begin(a, first, blocks) : 0;
}

int kolo_exec_push(kolo_exec *e, int64_t block, const kolo_metrics *metrics, kolo_blocks *blocks)
{
    exec_async *a = e->async;
    const kolo_step *s = e->step;
    async_reply reply;
    const async_message ready = {.kind = ASYNC_READY,
                                 .block = block,
                                 .loss = metrics->loss,
                                 .top1 = metrics->top1,
                                 .top5 = metrics->top5,
                                 .rows = metrics->rows,
                                 .norm = metrics->grad_norm};
    KOLO_TRY(ask(a, &ready, &reply));
    const bool scales = e->options->staleness_lr && reply.staleness > 1;
    const async_message push = {.kind = ASYNC_PUSH,
                                .turn = reply.turn,
                                .update = reply.update,
                                .lr = scales ? s->lr / (float)reply.staleness : s->lr,
                                .momentum = s->momentum,
                                .weight_decay = s->weight_decay,
                                .ema_decay = s->ema_decay,
                                .clip = s->clip};
    KOLO_TRY(exchange(a, &push));
    give(&reply, blocks);
    blocks->held += blocks->given - 1;
    blocks->update = reply.update;
    blocks->staleness = reply.staleness;
    return blocks->held > 0 && !reply.begins ? begin(a, reply.update + 1, NULL) : 0;
}

int kolo_exec_pushed(kolo_exec *e, kolo_metrics *metrics, const int64_t **staleness)
{
    exec_async *a = e->async;
    pthread_mutex_lock(&a->lock);
    const int64_t i = a->reported - a->base;
    const bool is_whole = a->me == 0 && a->reported * a->workers < a->end && a->done[i].pushed == a->workers;
    if (is_whole) {
        *metrics = a->done[i].sum;
        metrics->step = a->reported++;
        metrics->loss_scale = 1;
        *staleness = a->stale + i * a->workers;
    }
    pthread_mutex_unlock(&a->lock);
    return is_whole;
}

/* ---- where all ranks meet ---- */

static bool is_over(const exec_async *a) { return a->updates == a->end || !async_is_part(a, a->me); }

static int share(exec_async *a, void *all, int64_t first, int64_t last, size_t size, int rank)
{
    return kolo_comm_broadcast(a->exec->comm, (char *)all + (size_t)first * size,
                               (size_t)(last - first) * size, rank);
}

/* Of one server all it has: to all ranks. */
static int share_part(exec_async *a, int rank)
{
    kolo_exec *e = a->exec;
    const kolo_plan *p = e->plan;
    const int64_t first = kolo_plan_served(p, rank), last = kolo_plan_served(p, rank + 1);
    KOLO_TRY(share(a, e->arena[KOLO_ARENA_PARAM], first, last, sizeof(float), rank));
    if (e->arena[KOLO_ARENA_EMA])
        KOLO_TRY(share(a, e->arena[KOLO_ARENA_EMA], first, last, sizeof(float), rank));
    for (int i = 0; i < kolo_plan_states(p); i++)
        KOLO_TRY(share(a, e->arena[KOLO_ARENA_STATE] + (size_t)i * kolo_plan_state_bytes(p), first, last,
                       sizeof(float), rank));
    for (int s = 0; s < p->segments && kolo_is_layerwise(p->config.optimizer); s++)
        if (p->segment[s].begin >= first && p->segment[s].begin < last)
            KOLO_TRY(share(a, e->arena[KOLO_ARENA_STATE] + kolo_plan_layers_offset(p), s, s + 1,
                           sizeof(kolo_layer), rank));
    return 0;
}

static int share_buffers(exec_async *a)
{
    const kolo_exec *e = a->exec;
    const size_t bytes = e->plan->arena_bytes[KOLO_ARENA_BUFFER];
    const int from = e->plan->config.first_server;
    if (!bytes) return 0;
    KOLO_TRY(kolo_comm_broadcast(e->comm, e->arena[KOLO_ARENA_BUFFER], bytes, from));
    if (!e->arena[KOLO_ARENA_EMA]) return 0;
    return kolo_comm_broadcast(e->comm, e->arena[KOLO_ARENA_EMA] + kolo_plan_stored_bytes(e->plan), bytes,
                               from);
}

int kolo_exec_close_blocks(kolo_exec *e)
{
    exec_async *a = e->async;
    pthread_mutex_lock(&a->lock);
    const int rc = await_thread(a, is_over);
    pthread_mutex_unlock(&a->lock);
    KOLO_TRY(fail_of_thread(a, rc));
    memcpy((float *)(void *)e->arena[KOLO_ARENA_PARAM] + a->first, a->own,
           (size_t)(a->last - a->first) * sizeof *a->own);
    for (int r = e->plan->config.first_server; r < a->ranks; r++) KOLO_TRY(share_part(a, r));
    KOLO_TRY(share_buffers(a));
    e->changes++;
    return 0;
}

/* ---- the end ---- */

static int send_goodbye(exec_async *a)
{
    const async_message m = {.kind = ASYNC_GOODBYE};
    for (int s = 0; s < a->ranks; s++)
        if (a->peer[s].to_head >= 0) KOLO_TRY(send_head(a, s, &m));
    for (int s = 0; s < a->ranks; s++)
        if (a->peer[s].to_head >= 0) KOLO_TRY(exec_await_ranks(a->exec, a->peer[s].to_head));
    return 0;
}

static void end_thread(exec_async *a, bool at_once)
{
    pthread_mutex_lock(&a->lock);
    a->left = true;
    a->stops = at_once;
    pthread_cond_broadcast(&a->moved);
    pthread_mutex_unlock(&a->lock);
    if (async_has_thread(a)) pthread_join(a->thread, NULL);
    a->runs = false;
}

int exec_async_finish(kolo_exec *e)
{
    exec_async *a = e->async;
    if (!a->runs) return 0;
    KOLO_TRY(send_goodbye(a));
    end_thread(a, false);
    return fail_of_thread(a, a->rc);
}

void exec_async_close(kolo_exec *e)
{
    exec_async *a = e->async;
    if (!a) return;
    if (a->runs) { /* other ranks may wait for this one */
        kolo_comm_abort(e->comm, KOLO_ELAUNCH);
        end_thread(a, true);
    }
    for (int r = 0; a->peer && r < a->ranks; r++) kolo_updater_destroy(&a->peer[r].updater);
    async_order_destroy(&a->order);
    free(a->peer);
    free(a->squares);
    free(a->done);
    free(a->stale);
    free(a);
    e->async = NULL;
}
