/* The timeline of a world: begun and ended by all its ranks together, since their clocks are compared. */
#include <stdio.h>

#include "base/log.h"
#include "comm/library/parts.h"

int lib_timeline_begin(kolo_world *world, const char *folder)
{
    const kolo_launch *l = world->launch;
    lib_turn_take(world);
    if (lib_timeline_open(&world->timeline, folder, l->rank, l->host) < 0)
        kolo_warn("comm: no timeline of rank %d: %s", l->rank, kolo_error_text()); /* no reason to stop */
    int rc = lib_timeline_align(world->timeline, world);
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
    lib_turn_take(world);
    struct lib_timeline *timeline = world->timeline;
    world->timeline = NULL;
    lib_turn_give(world);
    lib_timeline_close(&timeline);
    return 0;
}
