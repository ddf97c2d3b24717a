/* The timeline of a world: begun and ended by all its ranks together, since their clocks are compared. */
#include <stdio.h>

#include "base/log.h"
#include "comm/library/parts.h"

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
    if (lib_timeline_open(&timeline, folder, world->config.timeline_bytes, l->rank, l->host) < 0)
        kolo_warn("comm: no timeline of rank %d: %s", l->rank, kolo_error_text()); /* no reason to stop */
    lib_turn_take(world);
    int rc = lib_timeline_align(timeline, world);
    exchange(world, &timeline);
    lib_turn_give(world);
    return rc;
}

int kolo_timeline_start(kolo_world *world, const char *folder)
{
    char fault[LIB_TEXT] = "";
    if (!world) return kolo_fail(KOLO_EINPUT, "comm: no world is open");
    if (!folder || !*folder) snprintf(fault, sizeof fault, "no folder is given");
    else if (world->timeline) snprintf(fault, sizeof fault, "a timeline is being written already");
    KOLO_TRY(lib_agree(world->group[0], "the beginning of a timeline", fault));
    return lib_timeline_begin(world, folder);
}

int kolo_timeline_stop(kolo_world *world)
{
    if (!world) return kolo_fail(KOLO_EINPUT, "comm: no world is open");
    KOLO_TRY(lib_agree(world->group[0], "the end of the timeline", ""));
    struct lib_timeline *timeline = NULL;
    lib_turn_take(world);
    exchange(world, &timeline);
    lib_turn_give(world);
    lib_timeline_close(&timeline);
    return 0;
}
