/* sync=async: ranks serve a part of the parameters each, with the gradients and the optimizer's state that
 * belong to it, and workers have a copy of all. Every rank is both, or the first are workers and the others
 * servers (config.first_server). Which part, and where in comm's memory that lies which goes to and fro. */
#ifndef KOLO_PLAN_SERVERS_H
#define KOLO_PLAN_SERVERS_H

#include "plan/plan.h"

static inline int kolo_workers(const kolo_plan_config *c)
{
    return c->first_server ? c->first_server : c->servers;
}
/* The first element of PARAM that `rank` serves, of plans with config.servers; those of all ranks follow one
 * another, and end with that of the rank behind the last. Where a factor belongs to a whole tensor, so do
 * parts. */
int64_t kolo_plan_served(const kolo_plan *plan, int rank);
/* Of GRADIENT what a server is sent: bytes [*from, returned). Statistics and metrics belong to the first. */
size_t kolo_plan_pushed(const kolo_plan *plan, int rank, size_t *from);

/* Offsets from where LATE begins; strides are the same on all ranks. */
enum { KOLO_MESSAGE_BYTES = 128 };
typedef struct kolo_servers {
    size_t heads;   /* [ranks] what is sent to a server in front of gradients, or to rank 0 */
    size_t headed;  /* [workers] what has come of them */
    size_t replies; /* [workers] of rank 0 to them */
    size_t reply;   /* of rank 0 to this one */
    /* from here on of servers */
    size_t gradients, gradient_stride; /* [workers] that have come */
    size_t weights, weight_stride;     /* [workers] to be sent back */
    size_t own, bytes;                 /* the newest weights of this rank's part */
} kolo_servers;
kolo_servers kolo_plan_servers(const kolo_plan *plan);
/* What `rank`, which only computes, has no use for at the end of that. */
size_t kolo_plan_spared(const kolo_plan *plan, int rank);

#endif
