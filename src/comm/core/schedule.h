/* What one member of a group of n sends, receives and combines, as a list of actions made before the first
 * step. Pure: no MPI, no state. Every reducing schedule but the ring forms, for each element, the tree over
 * members that splits at the largest power of two below n, so the bits depend neither on the
 * algorithm nor on the count. */
#ifndef KOLO_COMM_SCHEDULE_H
#define KOLO_COMM_SCHEDULE_H

#include <stdbool.h>
#include <stdint.h>

enum comm_action_kind { COMM_SEND, COMM_RECEIVE, COMM_WAIT, COMM_COMBINE, COMM_COPY, COMM_CALL };

/* Buffers: scratch, the vector itself, and the vector as summed in this node's fragment i. In the library
 * half (algorithm/) there are no parts, and COMM_INPUT is what the member brings. */
/* COMM_RAW: scratch, counted in 16-bit elements */
enum { COMM_RAW = -1, COMM_SCRATCH = 0, COMM_OWN = 1, COMM_PART = 2, COMM_INPUT = 2 };
/* elements; longer ones are cut */
enum { COMM_MESSAGE_MAX = 1 << 27 };

typedef struct comm_place {
    int32_t buffer;
    int64_t at;
} comm_place; /* at: elements */

typedef struct comm_action {
    int32_t kind, peer; /* peer: member of the group */
    /* send: left; receive: out; combine: out = left op right; copy: out = left */
    comm_place out, left, right;
    /* elements; wait: all requests up to this serial number, from 0; call (peer says which): an argument */
    int64_t count;
} comm_action;

struct comm_run;
typedef struct comm_schedule {
    comm_action *action;
    int64_t actions, capacity;
    int64_t posts;              /* sends and receives */
    int64_t scratch;            /* elements */
    struct comm_memory *memory; /* of its maker (comm_build_memory) */
    /* COMM_OWN, COMM_INPUT and COMM_RAW are of 16 bits, COMM_SCRATCH is f32, and a copy or sum
     * between them converts */
    bool half;
    /* COMM_CALL, arithmetic of the maker's own (compression, Adasum): 1, or negative. It may change counts of
     * actions still to come, as sender and receiver know them by then. */
    int (*call)(void *context, struct comm_run *run, const comm_action *action);
    void *context;
    int status; /* of the first failed allocation while it was made */
} comm_schedule;

/* Of a maker, one block behind the other. */
typedef struct comm_memory {
    struct comm_memory *before;
    _Alignas(16) char data[];
} comm_memory;

void comm_schedule_forget(comm_schedule *schedule); /* frees its maker's memory */
void comm_schedule_free(comm_schedule *schedule);

/* First element of part i of `parts`; parts differ by at most 16 elements and start on multiples of 16. */
static inline int64_t comm_part(int64_t count, int parts, int i)
{
    int64_t at = (count + 15) / 16 * i / parts * 16;
    return at < count ? at : count;
}

/* The fixed order of a sum: a binary tree over 0 .. n-1 that splits at the largest power of two below n.
 * A fragment is a largest subtree whose ranks all live on one node; the node sums it alone, and the
 * merges join fragments. */
typedef struct comm_fragment {
    int node;
    int first, count; /* ranks first .. first + count - 1 */
    int index;        /* among its node's fragments, in rank order */
} comm_fragment;

typedef struct comm_merge {
    int left, right;
} comm_merge; /* fragments; the sum stands in left's place afterwards */

typedef struct comm_tree {
    int fragments, merges; /* merges = fragments - 1; the last one leaves the total */
    comm_fragment *fragment;
    comm_merge *merge;
    /* the tree over nodes has its bits (comm_nodes_plain): any network algorithm will do */
    bool plain;
} comm_tree;

/* The tree over ranks with its fragments. */
int comm_tree_ranks(comm_tree *tree, int size, const int *node_of, int nodes);
void comm_tree_free(comm_tree *tree);

#endif
