/* Lanes: schedules over the ranks of a group, carried by the router, each lane in a tag space of its own. */
#include <stdlib.h>

#include "base/memory.h"
#include "comm/library/parts.h"

struct lib_lane {
    kolo_group *group;
    void *lane; /* of the router */
    int64_t requests;
    size_t scratch_bytes;
    char *scratch, *buffer[COMM_INPUT + 1];
    comm_run run;
    int tag;
};

static int library_lane_make(lib_lane *lane, int64_t requests)
{
    bool busy = false;
    if (lane->lane) comm_routed.lane_free(&lane->lane, &busy);
    if (busy) return kolo_fail(KOLO_EINTERNAL, "comm: a lane grows while it is in use");
    KOLO_TRY(comm_routed.lane_make(lane->group->world->router, requests, &lane->lane));
    lane->requests = requests;
    return 0;
}

static int make_scratch(lib_lane *lane, size_t bytes)
{
    free(lane->scratch);
    lane->scratch = NULL;
    lane->scratch_bytes = 0;
    if (posix_memalign((void **)&lane->scratch, KOLO_ALIGN, kolo_round_up(bytes + 1, KOLO_ALIGN)) != 0) {
        lane->scratch = NULL;
        return kolo_fail(KOLO_ENOMEM, "comm: out of memory for %zu bytes of a collective", bytes);
    }
    lane->scratch_bytes = bytes;
    return 0;
}

int lib_lane_make(lib_lane **out, kolo_group *group, int64_t requests, size_t scratch_bytes)
{
    *out = NULL;
    if (group->channels == LIB_CHANNELS)
        return kolo_fail(KOLO_EINTERNAL, "comm: more than %d lanes in a group", LIB_CHANNELS);
    lib_lane *lane = kolo_alloc(sizeof *lane);
    if (!lane) return KOLO_ENOMEM;
    lane->group = group;
    lane->tag = group->id * LIB_CHANNELS + group->channels++;
    int rc = library_lane_make(lane, requests);
    if (rc == 0) rc = make_scratch(lane, scratch_bytes);
    if (rc < 0) lib_lane_free(&lane);
    *out = lane;
    return rc;
}

comm_run *lib_lane_run(lib_lane *lane, const comm_schedule *schedule, void *own, const void *input,
                       size_t width, enum kolo_dtype type, enum kolo_reduce reduce)
{
    size_t scratch = (size_t)schedule->scratch * (schedule->half ? sizeof(float) : width);
    if (schedule->posts > lane->requests && library_lane_make(lane, schedule->posts * 2) < 0) return NULL;
    if (scratch > lane->scratch_bytes && make_scratch(lane, scratch) < 0) return NULL;
    lane->buffer[COMM_SCRATCH] = lane->scratch;
    lane->buffer[COMM_OWN] = own;
    lane->buffer[COMM_INPUT] = (char *)(uintptr_t)input;
    lane->run = (comm_run){.schedule = schedule,
                           .transport = &comm_routed,
                           .lane = lane->lane,
                           .rank_of = lane->group->rank_of,
                           .buffer = lane->buffer,
                           .width = width,
                           .combine = comm_combine_of(type, reduce),
                           .tag = lane->tag};
    comm_routed.reset(lane->lane);
    return &lane->run;
}

void lib_lane_free(lib_lane **out)
{
    lib_lane *lane = *out;
    bool busy = false;
    if (!lane) return;
    if (lane->lane) comm_routed.lane_free(&lane->lane, &busy);
    if (!busy) free(lane->scratch); /* else a message may still be written there */
    free(lane);
    *out = NULL;
}
