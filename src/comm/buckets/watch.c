/* The watchdog of a communicator on a device. Streams wait without looking whether the communicator is
 * broken, so a thread looks, ten times a second; when it finds something wrong it breaks both halves: the
 * streams run on, and every wait on the host ends. */
#include <unistd.h>

#include "base/failure.h"
#include "base/thread.h"
#include "comm/buckets/inside.h"

static const double LOOK_EVERY = 0.1, ABSENT = 2; /* seconds */

int kolo_comm_host_status(kolo_comm *comm)
{
    return comm_alone(comm) ? 0 : comm_node_check(&comm->world.node);
}

int kolo_comm_host_explain(kolo_comm *comm)
{
    const double until = kolo_time() + (comm_alone(comm) ? 0 : comm->launch->nodes > 1 ? 4 : 2);
    while (kolo_time() < until) {
        KOLO_TRY(kolo_comm_host_status(comm));
        usleep(2000);
    }
    return 0;
}

/* What keeps the ranks of a node: one that stands in the earliest step, that waits for no other rank, and of
 * those the one that has stood for longest: who depends on it went on until then. */
typedef struct position {
    int64_t step; /* between two steps: the one to come */
    bool waits;
    double age;
} position;

static bool is_behind(const position *a, const position *b)
{
    if (a->step != b->step) return a->step < b->step;
    if (a->waits != b->waits) return b->waits;
    return a->age > b->age;
}

/* Somebody of this node has stood within one step for longer than the timeout: names who keeps the others.
 * present: seconds since this process itself was last stopped, and maybe the whole job. */
static int look_for_standstill(kolo_comm *comm, double present)
{
    const comm_node *node = &comm->world.node;
    position last = {.step = 0};
    double longest = 0;
    int whom = -1;
    for (int l = 0; l < node->ranks; l++) {
        const comm_life *life = &node->control[l]->life;
        position at;
        int64_t action;
        kolo_comm_peer(comm, l, &at.step, &action, &at.age);
        /* has not begun, or is done */
        if (at.age == 0 || atomic_load(&life->head.departed)) continue;
        if (action >= 0 && at.age > longest) longest = at.age;
        at.step += action < 0;
        at.waits = atomic_load_explicit(&life->waits_for, memory_order_relaxed) >= 0;
        if (whom >= 0 && !is_behind(&at, &last)) continue;
        whom = l;
        last = at;
    }
    if (longest > present) longest = present;
    if (longest < node->timeout) return 0;
    char who[320];
    comm_router_describe(comm->router, node->rank_of[whom], who, sizeof who);
    return kolo_fail(KOLO_ELAUNCH,
                     "no progress for %.0f s: of the ranks on host %s, %s, is furthest behind; if all stand "
                     "there, a rank of another node keeps them waiting: "
                     "see its log; a slow but healthy job needs a larger comm_timeout=",
                     longest, node->launch->host, who);
}

static void *watch_main(void *of)
{
    kolo_comm *comm = of;
    kolo_failure why;
    int standing = 0;
    double since = kolo_time(), looked = since;
    while (!kolo_futex_wait(&comm->device.stop, 0, LOOK_EVERY, 0)) {
        if (kolo_comm_status(comm) < 0) return NULL; /* it has broken everything */
        const double now = kolo_time();
        if (now - looked > ABSENT) since = now;
        looked = now;
        standing = look_for_standstill(comm, now - since) < 0 ? standing + 1 : 0;
        if (standing < 2) continue; /* the first look may have come between a new position and its time */
        kolo_error_keep(&why);
        comm_device_abort(comm, why.text);
        return NULL;
    }
    return NULL;
}

int comm_watch_start(kolo_comm *comm)
{
    KOLO_TRY(kolo_thread_start(&comm->device.watch, watch_main, comm, "kolo-watch"));
    comm->device.watched = true;
    return 0;
}

void comm_watch_stop(kolo_comm *comm)
{
    if (!comm->device.watched) return;
    atomic_store(&comm->device.stop, 1);
    kolo_futex_wake(&comm->device.stop);
    pthread_join(comm->device.watch, NULL);
    comm->device.watched = false;
}
