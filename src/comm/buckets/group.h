/* Some ranks of a communicator, or all of them, that sum buckets among themselves. A group has no memory of
 * its own: it is a view of the communicator's nodes with the others left out, so any number of groups may
 * overlap. Its buckets begin in the order of their starts, whatever other groups do meanwhile. */
#ifndef KOLO_COMM_GROUP_H
#define KOLO_COMM_GROUP_H

#include "comm/buckets/node.h"
#include "comm/compress/compress.h"
#include "comm/core/transport.h"
#include "comm/core/schedule.h"

enum { COMM_LANES = 4 };

/* What carries one slice at a time between nodes. */
typedef struct comm_slice_lane {
    comm_lane lane; /* its parts are the fragments of this node */
    char *result;   /* of a reduce_scatter, behind the scratch */
    bool taken;
} comm_slice_lane;

typedef struct comm_group {
    const kolo_launch *launch; /* its ranks and nodes, numbered within the group */
    kolo_launch part;          /* what launch is of, but for the group of all ranks */
    int *rank;                 /* [launch->size] in the communicator */
    bool mine;                 /* this rank is a member: what follows is filled */
    bool pair;                 /* of transfers from member 0 to member 1 */
    comm_node node;            /* its ranks of this node */
    comm_tree tree;            /* between its nodes */
    int *rank_of;              /* [nodes] owners of the same slice, in the communicator */
    int *owner, owners;        /* members that own parts which the caller cuts; NULL: it cut none */
    comm_matrix *matrix;       /* [matrices] of its members' arenas; NULL: its sums are not compressed */
    int matrices;
    comm_slice_lane lane[COMM_LANES];
    uint64_t blocked; /* progress thread: the pass in which one of its buckets found no lane */
} comm_group;

/* Fills the group of all ranks, but for memory (buckets.c). canonical: sums in the tree over ranks. Needs
 * node.timeout and node.spin. */
int comm_group_world(comm_group *group, const kolo_launch *launch, bool canonical);
/* Of these ranks of `world`, whose memory is open. Not collective. */
int comm_group_make(comm_group *group, comm_group *world, const int *rank, int count);
/* Members that can own parts, in the order of slices, and within one of nodes; returns how many, or negative.
 * owner: [launch->size]. */
int comm_group_owners(const kolo_launch *launch, int *owner);
/* Fills group->owner, of any group; returns group->owners. */
int comm_group_own(comm_group *group);
/* All but lanes. */
void comm_group_free(comm_group *group);

#endif
