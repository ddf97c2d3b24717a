/* A lane of the router, and what a schedule needs beside it: scratch, and where its buffers stand. */
#include <stdlib.h>

#include "base/memory.h"
#include "comm/core/transport/router.h"
#include "kolo/error.h"

int comm_lane_open(comm_lane *lane, comm_router *router, int parts)
{
    *lane = (comm_lane){.router = router};
    lane->buffer = kolo_alloc((size_t)(COMM_PART + parts) * sizeof *lane->buffer);
    return lane->buffer ? 0 : KOLO_ENOMEM;
}

/* One that grows once may do so again: twice as many. */
static int grow_requests(comm_lane *lane, int64_t requests)
{
    bool busy = false;
    if (lane->lane) {
        requests *= 2;
        comm_router_lane_free(&lane->lane, &busy);
    }
    if (busy) return kolo_fail(KOLO_EINTERNAL, "comm: a lane grows while it is in use");
    KOLO_TRY(comm_router_lane_make(lane->router, requests, &lane->lane));
    lane->requests = requests;
    return 0;
}

static int grow_scratch(comm_lane *lane, size_t bytes)
{
    void *memory;
    free(lane->scratch);
    lane->scratch = NULL;
    lane->scratch_bytes = 0;
    if (posix_memalign(&memory, KOLO_ALIGN, kolo_round_up(bytes + 1, KOLO_ALIGN)) != 0)
        return kolo_fail(KOLO_ENOMEM, "comm: out of memory for %zu bytes of a collective", bytes);
    lane->scratch = memory;
    lane->scratch_bytes = bytes;
    return 0;
}

int comm_lane_reserve(comm_lane *lane, int64_t requests, size_t scratch_bytes)
{
    if (!lane->lane || requests > lane->requests) KOLO_TRY(grow_requests(lane, requests));
    return !lane->scratch || scratch_bytes > lane->scratch_bytes ? grow_scratch(lane, scratch_bytes) : 0;
}

comm_run *comm_lane_begin(comm_lane *lane, const comm_schedule *schedule, const int *rank_of,
                          enum kolo_dtype type, enum kolo_reduce reduce, size_t width, int tag)
{
    lane->buffer[COMM_SCRATCH] = lane->scratch;
    lane->run = (comm_run){.schedule = schedule,
                           .transport = &comm_routed,
                           .lane = lane->lane,
                           .rank_of = rank_of,
                           .buffer = lane->buffer,
                           .width = width,
                           .combine = comm_combine_of(type, reduce),
                           .tag = tag};
    comm_router_lane_reset(lane->lane);
    return &lane->run;
}

void comm_lane_close(comm_lane *lane, bool *busy)
{
    bool in_use = false;
    comm_router_lane_free(&lane->lane, &in_use);
    if (!in_use) free(lane->scratch); /* else a message may still be written there */
    free(lane->buffer);
    *busy |= in_use;
    *lane = (comm_lane){0};
}
