/* The compiled half's segments: control, collecting space, arena. */
#ifndef KOLO_COMM_SHM_H
#define KOLO_COMM_SHM_H

#include "comm/buckets/node.h"

/* Collective over the node. collect_bytes: for gathering on the leader. Needs node->{launch, me, ranks,
 * rank_of, timeout}; fills control, arena, segments, spin (if negative) and the offsets. */
int comm_shm_open(comm_node *node, int slots, size_t arena_bytes, size_t used_bytes, size_t collect_bytes);
/* busy: the network may still use the memory; it stays mapped. */
void comm_shm_close(comm_node *node, bool busy);
static inline char *comm_shm_collect(const comm_node *node)
{
    return (char *)node->control[0] + node->collect_offset;
}

#endif
