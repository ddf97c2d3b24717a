/* The fixed order of a sum: a binary tree over 0 .. n-1 that splits at the largest power of two below n.
 * A fragment is a largest subtree whose ranks all live on one node; the node sums it alone, and the
 * merges join fragments. */
#ifndef KOLO_COMM_TREE_H
#define KOLO_COMM_TREE_H

#include <stdbool.h>
#include <stdint.h>

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
    /* one fragment a node, in node order, merged like the tree over nodes: any network algorithm will do */
    bool plain;
} comm_tree;

/* The tree over ranks with its fragments. */
int comm_tree_ranks(comm_tree *tree, int size, const int *node_of, int nodes);
/* The tree over nodes: each node is one fragment, however it sums within (always plain). */
int comm_tree_nodes(comm_tree *tree, int nodes);
void comm_tree_free(comm_tree *tree);

#endif
