/* Schedules between nodes for the half of the buckets, which sums within a node by itself: members are
 * nodes. */
#ifndef KOLO_COMM_BUCKET_SCHEDULE_H
#define KOLO_COMM_BUCKET_SCHEDULE_H

#include "comm/core/schedule.h"
#include "comm/core/tree.h"

/* Each replaces the actions of `schedule` (memory is kept). In place on COMM_OWN. Returns 0 or negative.
 *
 * An allreduce over fragments of any tree: everybody sums a part; this member's fragment i stands in
 * COMM_PART + i. Those over whole vectors: algorithm/. */
int comm_schedule_direct(comm_schedule *schedule, int me, int members, int64_t count, const comm_tree *tree);
int comm_schedule_broadcast(comm_schedule *schedule, int me, int members, int root, int64_t count);
/* Every rank's `count` elements, COMM_PART + local rank here, go to the root's node, rank after rank in
 * COMM_OWN (ranks of the root's own node excepted). */
int comm_schedule_gather(comm_schedule *schedule, int me, int root, int64_t count, int size,
                         const int *node_of, const int *local_of);

#endif
