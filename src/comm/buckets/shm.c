#include "comm/buckets/node.h"

#include <stddef.h>
#include <stdlib.h>

#include "base/memory.h"
#include "kolo/error.h"

int comm_shm_open(comm_node *node, int slots, size_t arena_bytes, size_t used_bytes, size_t collect_bytes)
{
    node->control = kolo_alloc((size_t)node->ranks * sizeof *node->control);
    node->arena = kolo_alloc((size_t)node->ranks * sizeof *node->arena);
    if (!node->control || !node->arena) return KOLO_ENOMEM;
    node->collect_offset =
        kolo_round_up(offsetof(comm_control, slot) + (size_t)slots * sizeof(comm_slot), 4096);
    node->arena_offset = kolo_round_up(node->collect_offset + collect_bytes, 4096);
    node->segments = (comm_segments){.launch = node->launch,
                                     .kind = "",
                                     .me = node->me,
                                     .ranks = node->ranks,
                                     .rank_of = node->rank_of,
                                     .timeout = node->timeout,
                                     .bytes = kolo_round_up(node->arena_offset + arena_bytes, 4096),
                                     .head = node->arena_offset,
                                     .used = kolo_round_up(node->arena_offset + used_bytes, 4096)};
    KOLO_TRY(comm_segments_open(&node->segments));
    for (int l = 0; l < node->ranks; l++) {
        node->control[l] = (comm_control *)(void *)node->segments.base[l];
        node->arena[l] = (char *)node->control[l] + node->arena_offset;
    }
    if (node->spin < 0) node->spin = comm_segments_spin(&node->segments);
    return 0;
}

void comm_shm_close(comm_node *node, bool busy)
{
    comm_segments_close(&node->segments, busy);
    free(node->control);
    free(node->arena);
    node->control = NULL;
    node->arena = NULL;
}
