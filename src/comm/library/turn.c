/* Turns: all that is under way moves on when somebody takes a turn. Who waits for a request takes them
 * himself, so that nobody has to be woken; the library's own thread does when nobody waits. */
#include "comm/library/parts.h"

#include <sched.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>

#include "base/failure.h"
#include "base/memory.h"
#include "base/thread.h"

enum resting { NOT, SHORTLY, UNTIL_RUNG };

struct lib_engine {
    pthread_t thread;
    bool running;
    /* set under world->lock: an entry that is taken under it finds it, or is failed by give_up */
    _Atomic bool broken;
    char text[1024]; /* of what broke the world */
    int status;      /* KOLO_ENOMEM: it was this rank's memory; else KOLO_ELAUNCH */
    pthread_mutex_t turn;
    _Atomic uint32_t bell;    /* something was submitted */
    _Atomic uint32_t waiters; /* callers that take turns */
    /* of them, those that sleep until somebody else's turn completes their request */
    _Atomic uint32_t sleepers;
    _Atomic uint32_t resting;    /* the thread waits for the bell: enum resting */
    _Atomic uint32_t stop, work; /* work: the last turn left something under way */
    _Atomic double polled;       /* kolo_time() of the last lib_poll */
};

void lib_turn_take(kolo_world *world) { pthread_mutex_lock(&world->engine->turn); }
void lib_turn_give(kolo_world *world) { pthread_mutex_unlock(&world->engine->turn); }

bool lib_broken(const kolo_world *world)
{
    const struct lib_engine *e = world->engine;
    if (!atomic_load(&e->broken)) return false;
    kolo_fail(e->status, "%s", e->text);
    return true;
}

/* The error text stands. */
static void give_up(kolo_world *world)
{
    struct lib_engine *e = world->engine;
    strncpy(e->text, kolo_error_text(), sizeof e->text - 1);
    e->status = kolo_error_status() == KOLO_ENOMEM ? KOLO_ENOMEM : KOLO_ELAUNCH;
    pthread_mutex_lock(&world->lock);
    atomic_store(&e->broken, true);
    pthread_mutex_unlock(&world->lock);
    if (e->status == KOLO_ENOMEM)
        comm_router_break_by(world->router, KOLO_ENOMEM); /* with this rank's name */
    else comm_router_break(world->router, e->text);
    comm_router_give_up(world->router);
    for (int i = 0; i < world->groups; i++)
        if (world->group[i] && world->group[i]->rank >= 0) {
            lib_gpu_abort(world->group[i]->unnamed);
            lib_gpu_abort(world->group[i]->named);
        }
    lib_entries_fail(world, e->status, e->text);
}

static int group_turn(kolo_group *group, bool *work)
{
    int moved = 0, rc;
    const lib_beginning *batch = NULL;
    bool busy = false;
    if (group->rank < 0) return 0;
    KOLO_TRY(rc = lib_negotiator_turn(group->negotiator, &batch, &busy));
    for (int i = 0; i < rc; i++) KOLO_TRY(lib_execute_begin(group, &batch[i]));
    moved |= rc > 0;
    *work |= busy;
    KOLO_TRY(rc = lib_stream_turn(group->unnamed, work));
    moved |= rc;
    KOLO_TRY(rc = lib_stream_turn(group->named, work));
    return moved | rc;
}

/* The turn is held. Returns whether anything moved. */
static bool turn(kolo_world *world)
{
    struct lib_engine *e = world->engine;
    bool work = false;
    int moved = 0;
    if (atomic_load(&e->broken)) return false;
    int rc = comm_router_status(world->router);
    for (int i = 0; rc >= 0 && i < world->groups; i++)
        if (world->group[i]) {
            rc = group_turn(world->group[i], &work);
            if (rc > 0) moved = 1;
        }
    if (rc < 0) give_up(world);
    atomic_store(&e->work, rc >= 0 && work);
    return moved;
}

/* Cores are shared with computing: first yield, then sleep a little longer each time. */
static void rest(kolo_world *world, bool work, int idle)
{
    enum { YIELDS = 50 };
    const double idle_seconds = world->launch->nodes > 1 ? 1e-3 : 0.1;
    if (idle < YIELDS && work) {
        sched_yield();
        return;
    }
    int more = (idle - YIELDS) / 8;
    comm_router_rest(world->router, work ? 1e-5 * (more < 9 ? more + 1 : 10) : idle_seconds);
}

void lib_wait(kolo_world *world, lib_entry *entry)
{
    enum { TRIES = 20 };
    struct lib_engine *e = world->engine;
    atomic_fetch_add(&e->waiters, 1);
    for (int idle = 0, tries = 0; !lib_is_over(atomic_load(&entry->state)); idle++) {
        if (pthread_mutex_trylock(&e->turn) != 0) {
            /* most turns are short, and the library's thread stops taking them when somebody waits */
            if (tries++ < TRIES) {
                sched_yield();
                continue;
            }
            atomic_fetch_add(&e->sleepers, 1);
            uint32_t now = atomic_load(&entry->state);
            if (!lib_is_over(now)) kolo_futex_wait(&entry->state, now, 1e-3, 0);
            atomic_fetch_sub(&e->sleepers, 1);
            continue;
        }
        if (turn(world)) idle = 0;
        lib_turn_give(world);
        if (idle && !lib_is_over(atomic_load(&entry->state))) rest(world, true, idle);
    }
    if (atomic_fetch_sub(&e->waiters, 1) == 1 && atomic_load(&e->work)) lib_engine_wake(world);
}

/* Somebody asks again and again, so the thread rests; it looks up when that is over. */
static const double POLLED = 1e-3;
static bool is_polled(const struct lib_engine *e)
{
    const double at = atomic_load_explicit(&e->polled, memory_order_relaxed);
    return at > 0 && kolo_time() - at < POLLED;
}

int lib_poll(kolo_world *world, kolo_handle handle)
{
    enum { TURNS = 16 };
    struct lib_engine *e = world->engine;
    int done = kolo_test(world, handle);
    bool moved = true;
    for (int i = 0; done == 0 && moved && i < TURNS; i++) {
        moved = pthread_mutex_trylock(&e->turn) == 0;
        if (!moved) break;
        moved = turn(world);
        lib_turn_give(world);
        done = kolo_test(world, handle);
    }
    if (done == 0 && !moved) sched_yield();
    atomic_store_explicit(&e->polled, kolo_time(), memory_order_relaxed);
    return done;
}

void lib_engine_wake(kolo_world *world)
{
    struct lib_engine *e = world->engine;
    atomic_fetch_add(&e->bell, 1);
    const uint32_t resting = atomic_load(&e->resting);
    if (resting == UNTIL_RUNG || (resting == SHORTLY && !is_polled(e))) kolo_futex_wake(&e->bell);
    comm_router_wake(world->router);
}

/* The entry may be another request already; only its address counts. */
void lib_entry_wake(kolo_world *world, lib_entry *entry)
{
    if (atomic_load(&world->engine->sleepers)) kolo_futex_wake(&entry->state);
}

static void *engine_main(void *of)
{
    kolo_world *world = of;
    struct lib_engine *e = world->engine;
    prctl(PR_SET_TIMERSLACK, 1000); /* short sleeps mean what they say */
    for (int idle = 0; !atomic_load(&e->stop);) {
        uint32_t bell = atomic_load(&e->bell);
        const bool polled = is_polled(e);
        /* others take the turns; the last of them rings, but who polls does not */
        if (atomic_load(&e->waiters) > 0 || atomic_load(&e->broken) || polled) {
            atomic_store(&e->resting, polled ? SHORTLY : UNTIL_RUNG);
            kolo_futex_wait(&e->bell, bell, polled ? POLLED : 0.05, 0);
            atomic_store(&e->resting, NOT);
            continue;
        }
        lib_turn_take(world);
        bool moved = turn(world), work = atomic_load(&e->work);
        lib_turn_give(world);
        if (moved) idle = 0;
        else if (atomic_load(&e->bell) == bell) rest(world, work, idle++);
        else idle = 0;
    }
    return NULL;
}

int lib_engine_open(kolo_world *world)
{
    world->engine = kolo_alloc(sizeof *world->engine);
    if (!world->engine) return KOLO_ENOMEM;
    pthread_mutex_init(&world->engine->turn, NULL);
    return 0;
}

int lib_engine_start(kolo_world *world)
{
    struct lib_engine *e = world->engine;
    KOLO_TRY(kolo_thread_start(&e->thread, engine_main, world, "kolo-comm"));
    e->running = true;
    return 0;
}

void lib_engine_stop(kolo_world *world)
{
    struct lib_engine *e = world->engine;
    if (!e || !e->running) return;
    atomic_store(&e->stop, 1);
    lib_engine_wake(world);
    pthread_join(e->thread, NULL);
    e->running = false;
}

void lib_engine_close(kolo_world *world)
{
    if (world->engine) pthread_mutex_destroy(&world->engine->turn);
    free(world->engine);
    world->engine = NULL;
}
