#include "comm/library/timeline.h"

#include "base/memory.h"
#include "base/thread.h"
#include "comm/library/parts.h"

enum { PINGS = 12, TAG = LIB_CHANNELS - 1 }; /* the last channel of group 0, which has fewer lanes */

typedef struct line {
    kolo_world *world;
    void *lane;
} line;

/* One message, waited for. */
static int carry(line *l, bool sends, int rank, double *value, int count)
{
    enum { POLLS = 2000 };
    size_t bytes = (size_t)count * sizeof *value;
    int rc;
    comm_routed.reset(l->lane);
    if (sends) rc = comm_routed.send(l->lane, rank, TAG, value, 1, bytes);
    else rc = comm_routed.receive(l->lane, rank, TAG, value, 1, bytes);
    for (int polls = 0; rc == 0; polls++) {
        KOLO_TRY(rc = comm_routed.done(l->lane, 0));
        KOLO_TRY(comm_router_status(l->world->router));
        if (rc == 0 && polls > POLLS) comm_router_rest(l->world->router, 1e-4);
    }
    return rc < 0 ? rc : 0;
}

/* Rank 0: the peer's time lies between the times of asking and of hearing; the quickest answer says most. */
static int timeline_clock_ask(line *l, int rank)
{
    double best[2] = {0, -1}, other;
    for (int i = 0; i < PINGS; i++) {
        double asked = kolo_time();
        KOLO_TRY(carry(l, true, rank, &asked, 1));
        KOLO_TRY(carry(l, false, rank, &other, 1));
        double heard = kolo_time();
        if (best[1] >= 0 && (heard - asked) / 2 >= best[1]) continue;
        best[0] = other - (asked + heard) / 2;
        best[1] = (heard - asked) / 2;
    }
    return carry(l, true, rank, best, 2);
}

static int answer(line *l, double *result)
{
    double word;
    for (int i = 0; i < PINGS; i++) {
        KOLO_TRY(carry(l, false, 0, &word, 1));
        word = kolo_time();
        KOLO_TRY(carry(l, true, 0, &word, 1));
    }
    return carry(l, false, 0, result, 2);
}

int lib_timeline_align(struct lib_timeline *timeline, kolo_world *world)
{
    const kolo_launch *launch = world->launch;
    line l = {.world = world};
    double offset[2] = {0, 0};
    bool busy = false;
    KOLO_TRY(comm_routed.lane_make(world->router, 1, &l.lane));
    int rc = 0;
    if (launch->rank > 0) rc = answer(&l, offset);
    for (int rank = 1; launch->rank == 0 && rank < launch->size && rc == 0; rank++)
        rc = timeline_clock_ask(&l, rank);
    comm_routed.lane_free(&l.lane, &busy);
    KOLO_TRY(rc);
    /* what has to be added to this rank's times */
    lib_timeline_clock(timeline, -offset[0], offset[1]);
    return 0;
}
