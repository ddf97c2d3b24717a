/* Who is dead, stopped or late; how all ranks learn of it; and how the engine sleeps. What is
 * said of them: failure_report.c. */
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#include "base/failure.h"
#include "base/log.h"
#include "comm/core/transport/inside.h"

/* seconds; ABSENT: at most, a fourth of the heartbeat timeout */
static const double LOOK_EVERY = 0.1, ABSENT = 2, SAID_WITHIN = 1;

static int64_t nanoseconds(double time) { return (int64_t)(1e9 * time); }

/* ---- breaking ------------------------------------------------------------------------------------------ */

const char *comm_life_reason(const comm_life *leader)
{
    const double until = kolo_time() + SAID_WITHIN;
    while (atomic_load(&leader->broken) == 1 && kolo_time() < until) sched_yield();
    return atomic_load(&leader->broken) == 1
               ? "a rank of this node ended the job, and died before it said why"
               : leader->head.text;
}

int comm_life_text(const comm_life *leader)
{
    return kolo_fail(KOLO_ELAUNCH, "%.*s", COMM_TEXT - 1, comm_life_reason(leader));
}

bool comm_life_break(comm_life *leader, const char *text)
{
    uint32_t whole = 0;
    if (!atomic_compare_exchange_strong(&leader->broken, &whole, 1)) return false;
    snprintf(leader->head.text, sizeof leader->head.text, "%s", text);
    atomic_store(&leader->broken, 2);
    return true;
}

void router_ring(comm_router *router, int local)
{
    comm_life *c = router->life[local];
    if (atomic_load(&c->asleep) == 0) return;
    atomic_fetch_add(&c->doorbell, 1);
    kolo_futex_wake(&c->doorbell);
    if (atomic_load(&c->nudged)) lines_nudge(router, local);
}

int comm_router_break(comm_router *router, const char *text)
{
    if (comm_life_break(router->life[0], text))
        for (int l = 0; l < router->ranks; l++) router_ring(router, l);
    return router_check(router);
}

int comm_router_break_by(comm_router *router, int rc)
{
    char text[COMM_TEXT];
    kolo_failure own;
    kolo_error_keep(&own);
    snprintf(text, sizeof text, "rank %d on host %s: %.*s", router->launch->rank,
             kolo_launch_host(router->launch, router->launch->rank), COMM_TEXT - 320, own.text);
    const int broken = comm_router_break(router, text);
    return rc == KOLO_ENOMEM ? kolo_error_restore(&own, rc) : broken;
}

/* ---- telling ------------------------------------------------------------------------------------------- */

void comm_life_set_text(comm_life *own, const char *text)
{
    uint64_t word[COMM_OPERATION_WORDS] = {0};
    const size_t bytes = strnlen(text, sizeof word - 1);
    memcpy(word, text, bytes);
    for (int i = 0; i < COMM_OPERATION_WORDS; i++)
        atomic_store_explicit(&own->operation[i], word[i], memory_order_relaxed);
}

void comm_life_get_text(const comm_life *c, char text[8 * COMM_OPERATION_WORDS])
{
    uint64_t word[COMM_OPERATION_WORDS];
    for (int i = 0; i < COMM_OPERATION_WORDS; i++)
        word[i] = atomic_load_explicit(&c->operation[i], memory_order_relaxed);
    memcpy(text, word, sizeof word);
    text[sizeof word - 1] = 0;
}

void comm_router_report(comm_router *router, const char *operation, uint64_t sequence)
{
    comm_life *own = router->life[router->me];
    if (operation != router->reported) {
        comm_life_set_text(own, operation ? operation : "");
        router->reported = operation;
    }
    atomic_store_explicit(&own->sequence, sequence, memory_order_relaxed);
    atomic_store_explicit(&own->reported_at, nanoseconds(kolo_time()), memory_order_relaxed);
}

/* What a rank of this node said last; reported_at 0: nothing. */
static void last_reported(const comm_life *c, comm_position *position)
{
    comm_life_get_text(c, position->operation);
    position->sequence = atomic_load_explicit(&c->sequence, memory_order_relaxed);
    int64_t at = atomic_load_explicit(&c->reported_at, memory_order_relaxed);
    position->age = at ? kolo_time() - 1e-9 * (double)at : -1;
}

void router_last_position(const comm_router *router, int local, comm_position *position)
{
    const comm_life *c = router->life[local];
    *position = (comm_position){.rank = router->rank_of[local]};
    if (router->config.position) router->config.position(router->config.of, local, position);
    else last_reported(c, position);
    position->waits_for = atomic_load_explicit(&c->waits_for, memory_order_relaxed);
}

void router_position(const comm_router *router, int rank, comm_position *position, int *pid)
{
    int local = router_local(router, rank);
    *position = (comm_position){.age = -1, .waits_for = -1, .rank = rank};
    *pid = local >= 0 ? router->life[local]->head.pid : 0;
    if (local >= 0) router_last_position(router, local, position);
    else lines_last_position(router, rank, position, pid);
}

/* ---- looking ------------------------------------------------------------------------------------------- */

static int look_at(comm_router *router, int local, double now)
{
    comm_life *c = router->life[local];
    if (!comm_segment_alive(router->segments, local)) {
        /* in this order: a rank that leaves says so before it is gone */
        return atomic_load(&c->head.departed) ? 0
                                              : router_report_failed(router, router->rank_of[local], "died");
    }
    double beat = 1e-9 * (double)atomic_load_explicit(&c->beat, memory_order_relaxed);
    if (beat == 0 || atomic_load(&c->head.departed)) return 0;
    const double silent = router_since(router, now, beat);
    return silent < router->config.heartbeat_timeout
               ? 0
               : router_report_silent(router, router->rank_of[local], silent);
}

/* This process itself was away for so long that others' silence may be its own; heartbeats come twice as
 * often (pulse_rest). Others know only that it is late, so it says so, if it was long. A program of somebody
 * else's may have its reasons. */
static void stand_up(comm_router *router, double now, double away)
{
    if (away <= ABSENT && away <= router->config.heartbeat_timeout / 4) return;
    atomic_store_explicit(&router->stood_up_at, now, memory_order_relaxed);
    if (away <= ABSENT || router->looked_at == 0 || !router->config.position) return;
    kolo_warn("this rank (pid %d) stood still for %.1f s, and kept the others waiting: it was stopped, or "
              "found no CPU or memory",
              (int)getpid(), away);
}

int router_check_peers(comm_router *router)
{
    int rc = 0;
    if (pthread_mutex_trylock(&router->look) != 0) return 0;
    _Atomic int64_t *beat = &router->life[router->me]->beat;
    double now = kolo_time();
    stand_up(router, now, now - 1e-9 * (double)atomic_load_explicit(beat, memory_order_relaxed));
    /* a rank that looks is alive */
    atomic_store_explicit(beat, nanoseconds(now), memory_order_relaxed);
    if (now - router->looked_at >= LOOK_EVERY) {
        for (int l = 0; l < router->ranks && rc == 0; l++)
            if (l != router->me) rc = look_at(router, l, now);
        router->looked_at = now;
    }
    pthread_mutex_unlock(&router->look);
    return rc;
}

/* Rank that keeps a lane with a timeout waiting longest, and for how long. */
static int latest(const comm_router *router, double *late)
{
    int rank = -1;
    *late = 0;
    for (const router_lane *lane = router->lanes; lane; lane = lane->next) {
        int whom =
            lane->no_timeout || router->now - lane->moved_at < *late ? -1 : comm_router_lane_lagging(lane);
        if (whom < 0) continue;
        *late = router->now - lane->moved_at;
        rank = whom;
    }
    return rank;
}

/* A rank that itself waits for another is not at fault: the rank that waits for the one that is will say
 * so; but not for ever. */
static int check_late(comm_router *router)
{
    double late;
    int rank =
        router->config.segments ? router->config.awaits(router->config.of, &late) : latest(router, &late);
    late = router_since(router, router->now, router->now - late);
    comm_position position;
    int pid;
    atomic_store_explicit(&router->life[router->me]->waits_for, late > 2 * LOOK_EVERY ? rank : -1,
                          memory_order_relaxed);
    if (rank < 0 || rank == router->launch->rank) return router->left = 0;
    int local = router_local(router, rank);
    if (local < 0 && (late > ABSENT || late > router->config.timeout / 2)) lines_want(router, rank);
    bool left = local >= 0 ? atomic_load(&router->life[local]->head.departed) : lines_left(router, rank);
    const bool known = left && router->left == rank + 1;
    router->left = left ? rank + 1 : 0;
    if (known && late > ABSENT) return router_report_failed(router, rank, "left before the end");
    if (late < router->config.timeout) return 0;
    router_position(router, rank, &position, &pid);
    if (position.waits_for >= 0 && position.waits_for != router->launch->rank &&
        late < 2 * router->config.timeout)
        return 0;
    return router_report_late(router, rank, late);
}

/* Of the engine's turn. */
int router_watch(comm_router *router)
{
    if (router_broken(router)) {
        if (router->lines && !atomic_load(&router->life[0]->spread)) lines_spread(router);
        return router_check(router);
    }
    KOLO_TRY(router_inquire(router));
    if (router->now - router->turned_at < LOOK_EVERY / 4) return 0;
    router->turned_at = router->now;
    KOLO_TRY(router_check_peers(router));
    if (router->lines) KOLO_TRY(lines_beat(router));
    return check_late(router);
}

int comm_router_status(comm_router *router)
{
    pthread_mutex_lock(&router->turn);
    int rc = router_turn(router);
    pthread_mutex_unlock(&router->turn);
    return rc;
}

/* ---- the pulse: turns of nobody's, so that who sums or copies for long, or waits for something else, is
 * not held to be stopped */

/* Where messages do not wake it, a question or bad news does, as nobody else may have a turn soon. */
static void pulse_rest(comm_router *router)
{
    const bool listens = router->lines && router->config.segments;
    const double often = router->config.heartbeat_timeout / 8, most = listens ? 0.25 : 0.5, soon = 0.01;
    double nap = often < most ? often : most;
    if (atomic_load_explicit(&router->suspected.state, memory_order_relaxed) == 2 && !router_broken(router))
        nap = soon;
    if (listens) lines_listen(router, nap);
    else kolo_futex_wait(&router->pulse.stop, 0, nap, 0);
}

static void *pulse_main(void *of)
{
    comm_router *router = of;
    while (!atomic_load(&router->pulse.stop)) {
        pulse_rest(router);
        comm_router_status(router);
    }
    return NULL;
}

int router_pulse_start(comm_router *router)
{
    atomic_store(&router->life[router->me]->beat, nanoseconds(kolo_time())); /* from now on it is missed */
    KOLO_TRY(kolo_thread_start(&router->pulse.thread, pulse_main, router, "kolo-pulse"));
    router->pulse.runs = true;
    return 0;
}

void router_pulse_stop(comm_router *router)
{
    if (!router->pulse.runs) return;
    atomic_store(&router->pulse.stop, 1);
    kolo_futex_wake(&router->pulse.stop);
    lines_nudge(router, router->me);
    pthread_join(router->pulse.thread, NULL);
    router->pulse.runs = false;
}

/* ---- sleeping ------------------------------------------------------------------------------------------ */

enum { YIELDS = 100 };
/* seconds; no rank sleeps longer than a nap: it sends heartbeats */
static const double SPIN = 50e-6, NAP = 0.25;

static bool awaits_mpi(const router_lane *lane)
{
    int64_t i = lane->first;
    while (i < lane->posted && (lane->request[i].complete || !lane->request[i].by_mpi)) i++;
    return i < lane->posted;
}

/* MPI tells nobody when a message comes: while one is awaited, first yield, then sleep up to 100 us (1 ms for
 * messages that may be late) at a time. */
static double nap_with_mpi(comm_router *router)
{
    bool pending = false, untimed = true;
    for (const router_lane *lane = router->lanes; lane; lane = lane->next) {
        if (!awaits_mpi(lane)) continue;
        pending = true;
        untimed = untimed && lane->no_timeout;
    }
    if (!pending) return NAP;
    int more = (router->idle - YIELDS) / 8;
    double most = untimed ? 1e-3 : 1e-4, nap = 1e-5 * (more < 0 ? 1 : more + 1);
    return router->idle < YIELDS ? 0 : nap < most ? nap : most;
}

/* How long to sleep now; 0: not at all, but what is armed is to be looked at again; negative: not at all,
 * others may have the core. */
static double prepare_to_rest(comm_router *router, double seconds)
{
    enum { YIELD = -1 };
    comm_life *own = router->life[router->me];
    double now = kolo_time();
    if (now - router->active_at < SPIN && !router->crowded) return YIELD;
    double nap = nap_with_mpi(router);
    if (seconds >= 0 && seconds < nap) nap = seconds;
    router->idle = now - router->active_at < 0.01 ? router->idle + 1 : YIELDS + 80;
    if (nap == 0) return YIELD;
    if (router->armed) {
        router->armed = false;
        return nap;
    }
    /* who does something for us from now on rings; what was done before, the caller finds when it looks
     * again */
    router->bell = atomic_load(&own->doorbell);
    atomic_fetch_add(&own->asleep, 1);
    router->armed = true;
    return 0;
}

void comm_router_rest(comm_router *router, double seconds)
{
    comm_life *own = router->life[router->me];
    if (atomic_exchange_explicit(&router->restless, false, memory_order_relaxed)) return;
    pthread_mutex_lock(&router->turn);
    double nap = prepare_to_rest(router, seconds);
    uint32_t bell = router->bell;
    pthread_mutex_unlock(&router->turn);
    if (nap < 0) sched_yield(); /* the core may be that of a thread which has more to do */
    if (nap <= 0) return;
    if (router->lines) lines_sleep(router, bell, nap);
    else kolo_futex_wait(&own->doorbell, bell, nap, 0);
    atomic_fetch_sub(&own->asleep, 1);
}

void comm_router_wake(comm_router *router) { router_ring(router, router->me); }
