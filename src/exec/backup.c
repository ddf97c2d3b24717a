/* Backup ranks (Chen et al., arXiv 1604.00981): the sum of a step is of the first gradients to come, and what
 * comes later is dropped. A thread of every rank agrees on which those are and takes part in all sums, so
 * that nobody waits for a rank that is slow, or asleep, until it lags plan->config.lag steps behind.
 *
 *     this rank's step                         its thread
 *     forward, backward: version 0
 *     REDUCE: a copy to version 1 + t % lag
 *     the last: "step t" to rank 0       --->  rank 0: the first so many are those that count, to all
 *                                              counts: version 1 + t % lag is summed; does not: zeros are
 *     WAIT: until the sums are there     <---  the next step's decision, up to `lag` steps ahead
 *     UPDATE from that version
 *
 * Others write into what is summed, so it is not what a rank that is late still computes. A rank that is told
 * that its gradients do not count leaves out what is left of them, and applies the sums that it has missed.
 * The order of a sum is that of all ranks; what was dropped is 0. The mean is over the rows that count. */
#include <inttypes.h>
#include <sched.h>
#include <stdatomic.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/failure.h"
#include "base/memory.h"
#include "base/thread.h"
#include "exec/parts.h"
#include "kolo/error.h"

enum { GOODBYE = -1, WORD_BITS = 64 };

struct exec_backup {
    kolo_exec *exec;
    int ranks, me, needed, lag, buckets;
    int64_t first; /* step that the thread began with */
    /* in comm's memory, and the numbers of their transfers: an arrival to rank 0, [ranks] of them there; a
     * decision from it, [ranks] of them */
    int64_t *arrival, *decision, *decided;
    char *arrivals;
    int *arrive, *decide;
    bool announced;   /* the last arrival was not waited for yet */
    int64_t *arrived; /* [ranks] at rank 0: the last step that each has come to */
    bool replays;     /* what counts stands in a record, which rank 0 has: [record_steps][words] */
    const uint64_t *record;
    int64_t record_steps;
    pthread_t thread;
    bool runs, left;
    pthread_mutex_t lock;
    pthread_cond_t moved;
    /* under the lock: steps below `limit` may be agreed on; this rank has applied those below `applied`, and
     * has its gradients of those up to `offered` in place; the sums of those below `summed` are there */
    int64_t limit, applied, offered, summed;
    int copied; /* buckets of the step at hand whose copies are in place */
    bool stops;
    kolo_failure why; /* of the thread */
    int rc;
    _Atomic int64_t dropped; /* the last step without this rank's gradients; -1: none yet */
    uint64_t *counted;       /* [lag + 2][words]: step t's in t % (lag + 2) */
};

static int words_of(int ranks) { return (ranks + WORD_BITS - 1) / WORD_BITS; }
static bool has(const uint64_t *set, int rank) { return set[rank / WORD_BITS] >> rank % WORD_BITS & 1; }
static void add(uint64_t *set, int rank) { set[rank / WORD_BITS] |= (uint64_t)1 << rank % WORD_BITS; }
static int version_of(const exec_backup *b, int64_t step) { return 1 + (int)(step % b->lag); }
static uint64_t *counted_of(const exec_backup *b, int64_t step)
{
    return b->counted + step % (b->lag + 2) * words_of(b->ranks);
}

/* ---- what is declared ---- */

static int declare_transfers(exec_backup *b, size_t at)
{
    const size_t decision = kolo_decision_bytes(b->ranks), mine = at, got = mine + KOLO_ARRIVAL_BYTES,
                 sent = got + decision, all = sent + decision;
    kolo_comm *comm = b->exec->comm;
    char *arena = kolo_comm_arena(comm);
    b->arrival = (int64_t *)(void *)(arena + mine);
    b->decided = (int64_t *)(void *)(arena + got);
    b->decision = (int64_t *)(void *)(arena + sent);
    b->arrivals = arena + all;
    for (int r = 1; r < b->ranks; r++) {
        b->arrive[r] =
            kolo_comm_transfer(comm, r, 0, mine, all + (size_t)r * KOLO_ARRIVAL_BYTES, KOLO_ARRIVAL_BYTES);
        b->decide[r] = kolo_comm_transfer(comm, 0, r, sent, got, decision);
        KOLO_TRY(b->arrive[r]);
        KOLO_TRY(b->decide[r]);
    }
    return 0;
}

int exec_backup_open(kolo_exec *e)
{
    const kolo_plan *p = e->plan;
    if (!p->config.lag || !p->config.optimizer) return 0;
    exec_backup *b = e->backup = kolo_alloc(sizeof *b);
    if (!b) return KOLO_ENOMEM;
    *b = (exec_backup){.exec = e,
                       .ranks = p->config.ranks,
                       .me = kolo_comm_launch(e->comm)->rank,
                       .needed = p->config.ranks - p->config.backup,
                       .lag = p->config.lag,
                       .buckets = p->buckets,
                       .offered = -1,
                       .lock = PTHREAD_MUTEX_INITIALIZER,
                       .moved = PTHREAD_COND_INITIALIZER};
    atomic_init(&b->dropped, -1);
    const size_t ranks = (size_t)b->ranks;
    b->arrive = kolo_alloc(ranks * sizeof *b->arrive);
    b->decide = kolo_alloc(ranks * sizeof *b->decide);
    b->arrived = kolo_alloc(ranks * sizeof *b->arrived);
    b->counted = kolo_alloc((size_t)(b->lag + 2) * (size_t)words_of(b->ranks) * sizeof *b->counted);
    if (!b->arrive || !b->decide || !b->arrived || !b->counted) return KOLO_ENOMEM;
    return declare_transfers(b, kolo_plan_comm_bytes(p) - kolo_agreement_bytes(b->ranks));
}

/* ---- the thread: agreement ---- */

/* Rank 0 takes what has come of rank r, and is ready for the next. 1: it has said goodbye. */
static int take_arrival(exec_backup *b, int r)
{
    int64_t step;
    KOLO_TRY(kolo_comm_wait(b->exec->comm, b->arrive[r]));
    memcpy(&step, b->arrivals + (size_t)r * KOLO_ARRIVAL_BYTES, sizeof step);
    if (step == GOODBYE) return 1;
    b->arrived[r] = step;
    return kolo_comm_start(b->exec->comm, b->arrive[r]);
}

static int look_for(exec_backup *b, int r)
{
    if (r == b->me) {
        pthread_mutex_lock(&b->lock);
        b->arrived[r] = b->offered;
        pthread_mutex_unlock(&b->lock);
        return 0;
    }
    const int there = kolo_comm_host_test(b->exec->comm, b->arrive[r]);
    return there > 0 ? take_arrival(b, r) : there;
}

static bool is_stopped(exec_backup *b)
{
    pthread_mutex_lock(&b->lock);
    const bool stops = b->stops;
    pthread_mutex_unlock(&b->lock);
    return stops;
}

/* The first that come. Of those that a look finds together, another rank goes first in every step. */
static int gather(exec_backup *b, int64_t step, uint64_t *set)
{
    enum { YIELDS = 20 };
    memset(set, 0, (size_t)words_of(b->ranks) * sizeof *set);
    for (int n = 0, idle = 0;; idle++) {
        for (int i = 0; i < b->ranks; i++) {
            const int r = (int)((step + i) % b->ranks);
            if (has(set, r)) continue;
            KOLO_TRY(look_for(b, r));
            if (b->arrived[r] < step) continue;
            add(set, r);
            if (++n == b->needed) return 0;
        }
        if (is_stopped(b)) return 1;
        if (idle < YIELDS) sched_yield();
        else usleep(50);
    }
}

static int send_decision(exec_backup *b, int64_t step, const uint64_t *set)
{
    kolo_comm *comm = b->exec->comm;
    for (int r = 1; r < b->ranks && step > b->first; r++) KOLO_TRY(kolo_comm_wait(comm, b->decide[r]));
    b->decision[0] = step;
    memcpy(b->decision + 1, set, (size_t)words_of(b->ranks) * sizeof *set);
    for (int r = 1; r < b->ranks; r++) KOLO_TRY(kolo_comm_start(comm, b->decide[r]));
    return 0;
}

/* Which ranks count in the step; 1: the thread is to stop. */
static int agree(exec_backup *b, int64_t step, uint64_t *set)
{
    const size_t words = (size_t)words_of(b->ranks);
    if (b->me == 0) {
        if (b->replays && step >= b->record_steps)
            return kolo_fail(KOLO_EINPUT, "step %" PRId64 ": the replayed run has recorded %" PRId64 " steps",
                             step + 1, b->record_steps);
        if (b->replays) memcpy(set, b->record + (size_t)step * words, words * sizeof *set);
        else if (gather(b, step, set) != 0) return is_stopped(b) ? 1 : kolo_error_status();
        return send_decision(b, step, set);
    }
    KOLO_TRY(kolo_comm_start(b->exec->comm, b->decide[b->me]));
    KOLO_TRY(kolo_comm_wait(b->exec->comm, b->decide[b->me]));
    memcpy(set, b->decided + 1, words * sizeof *set);
    if (b->decided[0] == step) return 0;
    return kolo_fail(KOLO_EINTERNAL,
                     "executor: rank 0 has decided on step %" PRId64 ", this rank is at %" PRId64,
                     b->decided[0], step);
}

/* ---- the thread: sums ---- */

/* Until this rank's gradients are in their place, or until that place is free for zeros. false: it is to
 * stop. */
static bool await_place(exec_backup *b, int64_t step, bool counts)
{
    pthread_mutex_lock(&b->lock);
    if (!counts) atomic_store(&b->dropped, step);
    while (!b->stops && (counts ? b->offered < step : step >= b->applied + b->lag))
        pthread_cond_wait(&b->moved, &b->lock);
    const bool goes_on = !b->stops;
    pthread_mutex_unlock(&b->lock);
    return goes_on;
}

static int sum_step(exec_backup *b, int64_t step, bool counts)
{
    kolo_exec *e = b->exec;
    const int version = version_of(b, step), *number = &e->bucket_number[version * b->buckets];
    if (!counts) memset(exec_gradients(e, version), 0, kolo_plan_version_bytes(e->plan));
    for (int k = 0; k < b->buckets; k++) KOLO_TRY(kolo_comm_start(e->comm, number[k]));
    for (int k = 0; k < b->buckets; k++) KOLO_TRY(kolo_comm_wait(e->comm, number[k]));
    return 0;
}

/* 1: the thread is to stop */
static int carry_out(exec_backup *b, int64_t step)
{
    uint64_t *set = counted_of(b, step);
    const int rc = agree(b, step, set);
    if (rc != 0) return rc;
    const bool counts = has(set, b->me);
    return await_place(b, step, counts) ? sum_step(b, step, counts) : 1;
}

static void *backup_main(void *of)
{
    exec_backup *b = of;
    int rc = 0;
    for (int r = 1; r < b->ranks && b->me == 0 && rc == 0; r++)
        rc = kolo_comm_start(b->exec->comm, b->arrive[r]);
    pthread_mutex_lock(&b->lock);
    while (rc == 0) {
        while (!b->stops && b->summed >= b->limit) pthread_cond_wait(&b->moved, &b->lock);
        if (b->stops) break;
        const int64_t step = b->summed;
        pthread_mutex_unlock(&b->lock);
        rc = carry_out(b, step);
        pthread_mutex_lock(&b->lock);
        if (rc == 0) b->summed++;
        pthread_cond_broadcast(&b->moved);
    }
    if (rc < 0) kolo_error_keep(&b->why);
    b->rc = rc < 0 ? rc : 0;
    pthread_cond_broadcast(&b->moved);
    pthread_mutex_unlock(&b->lock);
    return NULL;
}

/* ---- this rank's steps ---- */

static void raise_limit(exec_backup *b, int64_t limit)
{
    pthread_mutex_lock(&b->lock);
    if (limit > b->limit) b->limit = limit;
    pthread_cond_broadcast(&b->moved);
    pthread_mutex_unlock(&b->lock);
}

static int start(exec_backup *b, int64_t step)
{
    if (b->runs) return 0;
    b->first = b->summed = b->applied = b->limit = step;
    b->offered = step - 1;
    for (int r = 0; r < b->ranks; r++) b->arrived[r] = step - 1;
    atomic_store(&b->dropped, step - 1);
    KOLO_TRY(kolo_thread_start(&b->thread, backup_main, b, "which gradients count"));
    b->runs = true;
    return 0;
}

int kolo_exec_reach(kolo_exec *e, int64_t step, int64_t limit)
{
    if (!e->backup) return 0;
    KOLO_TRY(start(e->backup, step));
    raise_limit(e->backup, limit);
    return 0;
}

void kolo_exec_replay(kolo_exec *e, const uint64_t *counted, int64_t steps)
{
    if (!e->backup) return;
    e->backup->replays = true;
    e->backup->record = counted;
    e->backup->record_steps = steps;
}

int exec_backup_begin(kolo_exec *e, int64_t step)
{
    exec_backup *b = e->backup;
    KOLO_TRY(start(b, step));
    e->written_version = 0;
    e->applied_version = version_of(b, step);
    b->copied = 0;
    raise_limit(b, step + 1);
    return 0;
}

bool exec_backup_drops(const kolo_exec *e) { return atomic_load(&e->backup->dropped) >= e->backup->applied; }

/* Has rank 0 taken the last arrival? It looks for more as long as a step is open: 0, and this one's does not
 * count; or 1. */
static int await_taken(exec_backup *b, int64_t step)
{
    int taken = 0;
    while (b->announced && (taken = kolo_comm_host_test(b->exec->comm, b->arrive[b->me])) == 0) {
        if (step != GOODBYE && atomic_load(&b->dropped) >= step) return 0;
        usleep(50);
    }
    KOLO_TRY(taken);
    if (b->announced) KOLO_TRY(kolo_comm_wait(b->exec->comm, b->arrive[b->me]));
    return 1;
}

/* To rank 0: the gradients are there. */
static int announce(exec_backup *b, int64_t step)
{
    kolo_comm *comm = b->exec->comm;
    if (b->me == 0 || (b->replays && step != GOODBYE)) return 0;
    const int free = await_taken(b, step);
    if (free <= 0) return free;
    *b->arrival = step;
    b->announced = true;
    return kolo_comm_start(comm, b->arrive[b->me]);
}

int exec_backup_offer(kolo_exec *e, int bucket)
{
    exec_backup *b = e->backup;
    const kolo_bucket *k = &e->plan->bucket[bucket];
    const int64_t step = b->applied;
    pthread_mutex_lock(&b->lock);
    const bool drops = exec_backup_drops(e);
    if (!drops) {
        memcpy(exec_gradients(e, e->applied_version) + k->offset, exec_gradients(e, 0) + k->offset,
               (size_t)k->count * sizeof(float));
        if (++b->copied == b->buckets) b->offered = step;
    }
    const bool whole = !drops && b->offered == step;
    if (whole) pthread_cond_broadcast(&b->moved);
    pthread_mutex_unlock(&b->lock);
    return whole ? announce(b, step) : 0;
}

/* The loss was divided by the rows of all ranks; a scale of the gradients is what the update, norms and
 * clipping take back. */
static void scale_to_counted(kolo_exec *e)
{
    const kolo_step *all = &e->in_flight[e->begun % e->flights].step;
    kolo_step *own = &e->step[e->applied_version];
    const char *from =
        (const char *)e->current->metrics + (exec_gradients(e, e->applied_version) - exec_gradients(e, 0));
    const float rows = ((const float *)(const void *)from)[3];
    memcpy(own, all, KOLO_STEP_HOST_BYTES);
    own->scaler.scale = rows > 0 ? rows / (float)all->valid_global : 1;
    own->clip = 1 / own->scaler.scale;
}

int exec_backup_wait(kolo_exec *e)
{
    exec_backup *b = e->backup;
    const double begin = kolo_time();
    pthread_mutex_lock(&b->lock);
    const bool first = !e->is_summed;
    while (b->rc == 0 && b->summed <= b->applied) pthread_cond_wait(&b->moved, &b->lock);
    const int rc = b->summed > b->applied ? 0 : b->rc;
    pthread_mutex_unlock(&b->lock);
    e->waiting += kolo_time() - begin;
    if (rc < 0) return kolo_error_restore(&b->why, rc);
    if (first) scale_to_counted(e);
    e->is_summed = true;
    return 0;
}

void exec_backup_end(kolo_exec *e)
{
    exec_backup *b = e->backup;
    e->step[e->applied_version].scaler.scale = 1; /* as it is reported */
    e->read_version = e->applied_version;
    e->is_summed = false;
    pthread_mutex_lock(&b->lock);
    b->applied++;
    pthread_cond_broadcast(&b->moved);
    pthread_mutex_unlock(&b->lock);
}

int kolo_exec_dropped(const kolo_exec *e, int64_t step, int *ranks)
{
    const exec_backup *b = e->backup;
    int n = 0;
    if (!b) return -1;
    for (int r = 0; r < b->ranks; r++)
        if (!has(counted_of(b, step), r)) ranks[n++] = r;
    return n;
}

/* ---- the end ---- */

static void stop(exec_backup *b)
{
    pthread_mutex_lock(&b->lock);
    b->stops = true;
    pthread_cond_broadcast(&b->moved);
    pthread_mutex_unlock(&b->lock);
    pthread_join(b->thread, NULL);
    b->runs = false;
}

/* What is on its way between the threads ends: rank 0's of decisions, everybody's arrivals. */
static int say_goodbye(exec_backup *b)
{
    kolo_comm *comm = b->exec->comm;
    if (b->me) {
        KOLO_TRY(announce(b, GOODBYE));
        return kolo_comm_wait(comm, b->arrive[b->me]);
    }
    for (int r = 1; r < b->ranks; r++) {
        if (b->summed > b->first) KOLO_TRY(kolo_comm_wait(comm, b->decide[r]));
        int gone;
        do gone = take_arrival(b, r);
        while (gone == 0);
        KOLO_TRY(gone);
    }
    return 0;
}

int kolo_exec_finish(kolo_exec *e)
{
    exec_backup *b = e->backup;
    if (e->async) return exec_async_finish(e);
    if (!b || !b->runs || b->left) return 0;
    if (b->limit > b->applied)
        return kolo_fail(KOLO_EINTERNAL,
                         "executor: steps up to %" PRId64
                         " were to be agreed on, this rank leaves at %" PRId64,
                         b->limit, b->applied);
    stop(b);
    b->left = true;
    return say_goodbye(b);
}

void exec_backup_close(kolo_exec *e)
{
    exec_backup *b = e->backup;
    if (!b) return;
    if (b->runs) { /* it may wait for ranks that wait for this one */
        kolo_comm_abort(e->comm, KOLO_ELAUNCH);
        stop(b);
    }
    free(b->arrive);
    free(b->decide);
    free(b->arrived);
    free(b->counted);
    free(b);
    e->backup = NULL;
}
