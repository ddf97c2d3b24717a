/* The timeline of a world: begun and ended by all its ranks together, since their clocks are compared. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/folder.h"
#include "base/log.h"
#include "base/memory.h"
#include "comm/library/parts.h"
#include "comm/library/timeline.h"
#include "base/thread.h"

/* ---- the files of a folder ----------------------------------------------------------------------------- */

/* -1: the name is another's. */
static int rank_of(const char *name)
{
    static const char *const forms[] = {"rank-%9d.json%n", "rank-%9d.older.json%n"};
    for (int i = 0; i < 2; i++) {
        int rank, end = 0;
        if (sscanf(name, forms[i], &rank, &end) == 1 && end && !name[end] && rank >= 0) return rank;
    }
    return -1;
}

int lib_timeline_ranks(const char *folder, int **list)
{
    kolo_folder_names files;
    int64_t count = 0, kept = 0;
    *list = NULL;
    KOLO_TRY(kolo_folder_list(folder, &files));
    int *rank = *list = kolo_alloc((size_t)(files.count + 1) * sizeof *rank);
    for (int64_t i = 0; rank && i < files.count; i++)
        if ((rank[count] = rank_of(files.list[i])) >= 0) count++;
    kolo_folder_free(&files);
    if (count) qsort(rank, (size_t)count, sizeof *rank, lib_ascending);
    for (int64_t i = 0; i < count; i++)
        if (!kept || rank[i] != rank[kept - 1]) rank[kept++] = rank[i];
    return rank ? (int)kept : KOLO_ENOMEM;
}

/* Files of ranks that an earlier, larger job had there: they would be taken for this one's. */
static void remove_others(const char *folder, int size)
{
    int *list, count = lib_timeline_ranks(folder, &list);
    for (int i = 0; i < count; i++)
        for (int older = 0; older < 2 && list[i] >= size; older++) {
            char *path = kolo_format("%s/rank-%d%s.json", folder, list[i], older ? ".older" : "");
            if (path) remove(path);
            free(path);
        }
    free(list);
}

/* ---- clocks -------------------------------------------------------------------------------------------- */

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
    comm_router_lane_reset(l->lane);
    int rc = comm_routed.post(l->lane, sends, rank, TAG, value, bytes);
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

/* Collective over the world; the turn is held: measures by pings how far this rank's clock is from rank 0's,
 * for `kolo timeline merge`. timeline may be NULL. */
static int align(struct lib_timeline *timeline, kolo_world *world)
{
    const kolo_launch *launch = world->launch;
    line l = {.world = world};
    double offset[2] = {0, 0};
    bool busy = false;
    KOLO_TRY(comm_router_lane_make(world->router, 1, &l.lane));
    int rc = 0;
    if (launch->rank > 0) rc = answer(&l, offset);
    for (int rank = 1; launch->rank == 0 && rank < launch->size && rc == 0; rank++)
        rc = timeline_clock_ask(&l, rank);
    comm_router_lane_free(&l.lane, &busy);
    KOLO_TRY(rc);
    /* what has to be added to this rank's times */
    lib_timeline_clock(timeline, -offset[0], offset[1]);
    return 0;
}

/* ---- beginning and end --------------------------------------------------------------------------------- */

/* The turn is held. */
static void exchange(kolo_world *world, struct lib_timeline **timeline)
{
    struct lib_timeline *was = world->timeline;
    pthread_mutex_lock(&world->lock);
    world->timeline = *timeline;
    pthread_mutex_unlock(&world->lock);
    *timeline = was;
}

int lib_timeline_begin(kolo_world *world, const char *folder)
{
    const kolo_launch *l = world->launch;
    struct lib_timeline *timeline;
    if (l->rank == 0) remove_others(folder, l->size);
    if (lib_timeline_open(&timeline, folder, world->config.timeline_bytes, l->rank, l->host) < 0)
        kolo_warn("comm: no timeline of rank %d: %s", l->rank, kolo_error_text()); /* no reason to stop */
    lib_turn_take(world);
    int rc = align(timeline, world);
    exchange(world, &timeline);
    lib_turn_give(world);
    return rc;
}

void lib_timeline_next(const char **folder)
{
    char *next = *folder && **folder ? kolo_format("%s/shrunk", *folder) : NULL;
    if (!next) return;
    free((char *)(uintptr_t)*folder);
    *folder = next;
}

int kolo_timeline_start(kolo_world *world, const char *folder)
{
    char fault[LIB_TEXT] = "";
    if (!world) return kolo_fail(KOLO_EINPUT, "comm: no world is open");
    if (!folder || !*folder) snprintf(fault, sizeof fault, "no folder is given");
    else if (world->timeline) snprintf(fault, sizeof fault, "a timeline is being written already");
    KOLO_TRY(lib_agree(world->all, "the beginning of a timeline", fault));
    return lib_timeline_begin(world, folder);
}

int kolo_timeline_stop(kolo_world *world)
{
    if (!world) return kolo_fail(KOLO_EINPUT, "comm: no world is open");
    KOLO_TRY(lib_agree(world->all, "the end of the timeline", ""));
    struct lib_timeline *timeline = NULL;
    lib_turn_take(world);
    exchange(world, &timeline);
    lib_turn_give(world);
    lib_timeline_close(&timeline);
    return 0;
}
