/* sync=async, a rank's thread. It serves a part of the weights: gradients of all workers come to it, it
 * applies them in their order and sends back what the weights are then. At rank 0 it also says what that
 * order is (async_order.h). All servers apply all gradients in one order, so a rank always has weights that
 * were whole at some moment, and how many updates they lack is known. */
#include <errno.h>
#include <omp.h>
#include <string.h>
#include <time.h>

#include "exec/async.h"
#include "kolo/error.h"

/* ---- rank 0: the order of gradients ---- */

static int send_reply(exec_async *a, int rank, const async_reply *reply)
{
    async_peer *p = &a->peer[rank];
    p->request.kind = 0;
    if (rank == a->me) {
        a->reply = *reply;
        pthread_cond_broadcast(&a->moved);
        return 0;
    }
    if (p->replied) KOLO_TRY(kolo_comm_wait(a->exec->comm, p->reply));
    p->replied = true;
    memcpy(async_place(a, a->at.replies, KOLO_MESSAGE_BYTES, rank), reply, sizeof *reply);
    return kolo_comm_start(a->exec->comm, p->reply);
}

static void record(exec_async *a, const async_message *m, int64_t staleness)
{
    const int64_t block = m->block - a->base * a->workers, step = block / a->workers;
    kolo_metrics *sum = &a->done[step].sum;
    sum->loss += m->loss;
    sum->top1 += m->top1;
    sum->top5 += m->top5;
    sum->rows += m->rows;
    sum->grad_norm += m->norm / a->workers;
    a->stale[block] = staleness;
    a->done[step].pushed++;
}

/* The rank's gradients are applied next, and it goes on at once, where it may. */
static int take_ready(exec_async *a, int rank, bool *moved)
{
    const async_message m = a->peer[rank].request;
    async_reply reply = {0};
    if (!async_order_push(&a->order, rank, kolo_time(), &reply.update, &reply.staleness)) return 0;
    *moved = true;
    reply.turn = a->turns++;
    record(a, &m, reply.staleness);
    reply.given = async_order_give(&a->order, rank, reply.block);
    if (a->order.of[rank].held > 0) {
        async_order_ask(&a->order, rank);
        reply.begins = async_order_begin(&a->order, rank, kolo_time());
        a->order.of[rank].begins = false; /* else it asks when it has done this */
    }
    return send_reply(a, rank, &reply);
}

static int take_begin(exec_async *a, int rank, bool *moved)
{
    async_rank *r = &a->order.of[rank];
    async_reply *given = &a->peer[rank].answer;
    if (a->peer[rank].request.end != a->order.end) return 0; /* this rank has not come to those blocks */
    if (!r->begins) {
        *given = (async_reply){.update = -1};
        if (r->held == 0) given->given = async_order_give(&a->order, rank, given->block);
        if (r->held > 0) async_order_ask(&a->order, rank);
    }
    if (r->held > 0 && !async_order_begin(&a->order, rank, kolo_time())) return 0;
    *moved = true;
    given->begins = r->held > 0;
    given->turn = given->begins && a->order.updates > a->peer[rank].request.update ? a->turns++ : -1;
    return send_reply(a, rank, given);
}

static int decide(exec_async *a, bool *moved)
{
    for (int r = 0; r < a->workers; r++) {
        const int64_t kind = a->peer[r].request.kind;
        if (kind == ASYNC_READY) KOLO_TRY(take_ready(a, r, moved));
        if (kind == ASYNC_BEGIN) KOLO_TRY(take_begin(a, r, moved));
    }
    return 0;
}

/* ---- what comes ---- */

static int take_head(exec_async *a, int rank)
{
    async_peer *p = &a->peer[rank];
    kolo_comm *comm = a->exec->comm;
    memcpy(&p->message, async_place(a, a->at.headed, KOLO_MESSAGE_BYTES, rank), sizeof p->message);
    switch ((enum async_kind)p->message.kind) {
    case ASYNC_BEGIN:
    case ASYNC_READY: p->request = p->message; return kolo_comm_start(comm, p->head);
    case ASYNC_PUSH: p->state = ASYNC_GRADIENT; return kolo_comm_start(comm, p->gradient);
    case ASYNC_PULL: p->state = ASYNC_THERE; return 0;
    case ASYNC_GOODBYE: p->state = ASYNC_GONE; return 0;
    }
    return kolo_fail(KOLO_EINTERNAL, "executor: rank %d has sent what is no message", rank);
}

static int look_at(exec_async *a, int rank, bool *moved)
{
    async_peer *p = &a->peer[rank];
    if (p->state != ASYNC_HEAD && p->state != ASYNC_GRADIENT) return 0;
    const int number = p->state == ASYNC_HEAD ? p->head : p->gradient,
              there = kolo_comm_host_test(a->exec->comm, number);
    if (there <= 0) return there;
    *moved = true;
    KOLO_TRY(kolo_comm_wait(a->exec->comm, number));
    if (p->state == ASYNC_HEAD) return take_head(a, rank);
    p->state = ASYNC_THERE;
    return 0;
}

/* ---- what is served ---- */

static int apply(exec_async *a, int rank)
{
    const async_message *m = &a->peer[rank].message;
    kolo_updater *updater = a->peer[rank].updater;
    kolo_step *s = &a->step;
    s->step = m->update;
    s->lr = m->lr;
    s->momentum = m->momentum;
    s->weight_decay = m->weight_decay;
    s->ema_decay = m->ema_decay;
    s->clip = m->clip;
    s->scaler.scale = 1;
    if (kolo_is_layerwise(a->exec->plan->config.optimizer)) {
        KOLO_TRY(kolo_updater_layers_measure(updater, s, a->squares));
        KOLO_TRY(kolo_updater_layers_decide(updater, s, a->squares));
    }
    KOLO_TRY(kolo_updater_update(updater, 0, updater->config.slices, KOLO_UPDATE, s));
    KOLO_TRY(kolo_updater_running(updater, s));
    a->updates++;
    return 0;
}

static int send_weights(exec_async *a, int rank)
{
    async_peer *p = &a->peer[rank];
    kolo_comm *comm = a->exec->comm;
    const size_t bytes = (size_t)(a->last - a->first) * sizeof(float);
    if (rank == a->me) {
        memcpy((float *)(void *)a->exec->arena[KOLO_ARENA_PARAM] + a->first, a->own, bytes);
        p->state = ASYNC_IDLE;
        pthread_cond_broadcast(&a->moved);
        return 0;
    }
    if (p->sent) KOLO_TRY(kolo_comm_wait(comm, p->weights));
    p->sent = true;
    memcpy(async_place(a, a->at.weights, a->at.weight_stride, rank), a->own, bytes);
    KOLO_TRY(kolo_comm_start(comm, p->weights));
    p->state = ASYNC_HEAD;
    return kolo_comm_start(comm, p->head);
}

static int serve(exec_async *a, int rank, bool *moved)
{
    const async_peer *p = &a->peer[rank];
    const bool push = p->message.kind == ASYNC_PUSH;
    if (p->state != ASYNC_THERE || p->message.turn != a->turn) return 0;
    if (push && p->message.update >= a->end) return 0; /* this rank has not come to those blocks */
    *moved = true;
    if (push) KOLO_TRY(apply(a, rank));
    a->turn++;
    if (a->updates == a->end) pthread_cond_broadcast(&a->moved);
    return send_weights(a, rank);
}

/* ---- the thread ---- */

static bool all_gone(const exec_async *a)
{
    for (int r = 0; r < a->ranks; r++)
        if (r != a->me && a->peer[r].head >= 0 && a->peer[r].state != ASYNC_GONE) return false;
    return a->left;
}

/* Until this rank has something for it, or for a moment. */
static void rest(exec_async *a, int idle)
{
    const long most = 200000, nanoseconds = idle < 20 ? 20000 : idle < 1000 ? 50000 : most;
    struct timespec until;
    clock_gettime(CLOCK_REALTIME, &until);
    until.tv_nsec += nanoseconds;
    if (until.tv_nsec >= 1000000000) until.tv_sec++, until.tv_nsec -= 1000000000;
    pthread_cond_timedwait(&a->moved, &a->lock, &until);
}

static int round_of(exec_async *a, bool *moved)
{
    for (int r = 0; r < a->workers; r++) KOLO_TRY(look_at(a, r, moved));
    if (a->me == 0) KOLO_TRY(decide(a, moved));
    for (int r = 0; r < a->workers; r++) KOLO_TRY(serve(a, r, moved));
    return 0;
}

/* All that was sent has come. */
static int end_transfers(exec_async *a)
{
    for (int r = 0; r < a->ranks; r++) {
        if (a->peer[r].sent) KOLO_TRY(kolo_comm_wait(a->exec->comm, a->peer[r].weights));
        if (a->peer[r].replied) KOLO_TRY(kolo_comm_wait(a->exec->comm, a->peer[r].reply));
    }
    return 0;
}

void *exec_async_serve(void *of)
{
    exec_async *a = of;
    int rc = 0;
    omp_set_num_threads(1); /* beside those that compute */
    pthread_mutex_lock(&a->lock);
    for (int r = 0; r < a->ranks && rc == 0; r++) {
        if (r == a->me || a->peer[r].head < 0) continue;
        a->peer[r].state = ASYNC_HEAD;
        rc = kolo_comm_start(a->exec->comm, a->peer[r].head);
    }
    for (int idle = 0; rc == 0 && !a->stops && !all_gone(a);) {
        bool moved = false;
        rc = round_of(a, &moved);
        idle = moved ? 0 : idle + 1;
        if (rc == 0 && !moved) rest(a, idle);
    }
    if (rc == 0 && !a->stops) rc = end_transfers(a);
    if (rc < 0) kolo_error_keep(&a->why);
    a->rc = rc < 0 ? rc : 0;
    pthread_cond_broadcast(&a->moved);
    pthread_mutex_unlock(&a->lock);
    return NULL;
}
