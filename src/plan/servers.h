/* sync=async: every rank serves a part of the parameters, with the gradients and the optimizer's state that
 * belong to it, and works with a copy of all. Which part, and where in comm's memory that lies which goes to
 * and fro. */
#ifndef KOLO_PLAN_SERVERS_H
#define KOLO_PLAN_SERVERS_H

#include "plan/plan.h"

/* The first element of PARAM that `rank` serves, of plans with config.servers; those of all ranks follow one
 * another, and end with that of number `servers`. Where a factor belongs to a whole tensor, so do parts. */
int64_t kolo_plan_served(const kolo_plan *plan, int rank);
/* Of GRADIENT what a server is sent: bytes [*from, returned). Statistics and metrics belong to rank 0. */
size_t kolo_plan_pushed(const kolo_plan *plan, int rank, size_t *from);

/* Offsets from where LATE begins. [servers] of each but the last three; strides are the same on all ranks. */
enum { KOLO_MESSAGE_BYTES = 128 };
typedef struct kolo_servers {
    size_t heads, headed; /* what is sent in front of gradients, and what has come, from every rank */
    size_t replies;       /* of rank 0 to all */
    size_t gradients, gradient_stride; /* that have come */
    size_t weights, weight_stride;     /* to be sent back */
    size_t reply, own, bytes;          /* of rank 0 to this one; the newest weights of this rank's part */
} kolo_servers;
kolo_servers kolo_plan_servers(const kolo_plan *plan);

#endif
