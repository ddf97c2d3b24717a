/* How a schedule's messages travel. A lane carries one schedule at a time; its requests are numbered from 0
 * in the order in which they are posted. All calls come from the progress thread, but for those of a lane
 * that carries nothing, and none waits. */
#ifndef KOLO_COMM_TRANSPORT_H
#define KOLO_COMM_TRANSPORT_H

#include <stddef.h>
#include <stdint.h>

#include "comm/core/kernel.h"
#include "comm/core/schedule.h"
#include "launch/launch.h"

typedef struct comm_transport {
    int (*post)(void *lane, bool sends, int rank, int tag, void *data, size_t bytes); /* sends: only read */
    int (*done)(void *lane, int64_t serial); /* 1: all requests up to this number are complete; 0: not yet */
} comm_transport;

/* A schedule under way. */
typedef struct comm_run {
    const comm_schedule *schedule;
    const comm_transport *transport;
    void *lane;
    const int *rank_of; /* [members] */
    char **buffer;      /* [COMM_PART + parts] base of each buffer */
    size_t width;
    /* of a schedule with 16-bit ends: their type; what is brought is scaled where it widens, what is
     * done where it is rounded */
    const comm_folding *half;
    void (*combine)(void *out, const void *left, const void *right, int64_t count);
    int tag;
    int64_t at; /* next action */
} comm_run;

/* Does what can be done now: 1 finished, 0 not yet, negative on error. Never waits, never allocates. */
int comm_run_poll(comm_run *run);

/* ---- lane.c: what carries one schedule at a time ------------------------------------------------------- */
typedef struct comm_router comm_router;
typedef struct comm_lane {
    comm_router *router;
    void *lane; /* the router's */
    int64_t requests;
    size_t scratch_bytes;
    char *scratch; /* KOLO_ALIGN aligned */
    char **buffer; /* [COMM_PART + parts] as a run has them; all but COMM_SCRATCH are the caller's to fill */
    comm_run run;
} comm_lane;
int comm_lane_open(comm_lane *lane, comm_router *router, int parts);
/* So many requests and bytes of scratch, or more. No schedule is under way on it. */
int comm_lane_reserve(comm_lane *lane, int64_t requests, size_t scratch_bytes);
/* Sets up lane->run for a schedule, which then only has to be polled, and returns it. type, reduce: what
 * COMM_COMBINE does; width: bytes of an element. */
comm_run *comm_lane_begin(comm_lane *lane, const comm_schedule *schedule, const int *rank_of,
                          enum kolo_dtype type, enum kolo_reduce reduce, size_t width, int tag);
/* Of one that is not open: nothing. busy: messages may still be written to its scratch, which stays. */
void comm_lane_close(comm_lane *lane, bool *busy);

#endif
