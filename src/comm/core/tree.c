#include "comm/core/schedule.h"

#include <stdlib.h>

#include "base/memory.h"
#include "kolo/error.h"

static bool on_one_node(const int *node_of, int first, int count)
{
    for (int i = 1; i < count; i++)
        if (node_of[first + i] != node_of[first]) return false;
    return true;
}

/* Returns the fragment in whose place the sum of ranks first .. first + count - 1 stands. */
static int grow(comm_tree *tree, const int *node_of, int first, int count)
{
    if (on_one_node(node_of, first, count)) {
        tree->fragment[tree->fragments] = (comm_fragment){node_of[first], first, count, 0};
        return tree->fragments++;
    }
    int half = 1;
    while (half * 2 < count) half *= 2;
    int left = grow(tree, node_of, first, half), right = grow(tree, node_of, first + half, count - half);
    tree->merge[tree->merges++] = (comm_merge){left, right};
    return left;
}

static int tree_make(comm_tree *tree, int size, const int *node_of)
{
    *tree = (comm_tree){0};
    tree->fragment = kolo_alloc((size_t)size * sizeof *tree->fragment);
    tree->merge = kolo_alloc((size_t)size * sizeof *tree->merge);
    if (!tree->fragment || !tree->merge) {
        comm_tree_free(tree);
        return KOLO_ENOMEM;
    }
    grow(tree, node_of, 0, size);
    return 0;
}

int comm_tree_nodes(comm_tree *tree, int nodes)
{
    int *each = kolo_alloc((size_t)nodes * sizeof *each);
    if (!each) return KOLO_ENOMEM;
    for (int i = 0; i < nodes; i++) each[i] = i;
    int rc = tree_make(tree, nodes, each);
    free(each);
    if (rc == 0) tree->plain = true;
    return rc;
}

static bool same_shape(const comm_tree *a, const comm_tree *b)
{
    if (a->fragments != b->fragments) return false;
    for (int i = 0; i < a->fragments; i++)
        if (a->fragment[i].node != b->fragment[i].node) return false;
    for (int i = 0; i < a->merges; i++)
        if (a->merge[i].left != b->merge[i].left || a->merge[i].right != b->merge[i].right) return false;
    return true;
}

int comm_tree_ranks(comm_tree *tree, int size, const int *node_of, int nodes)
{
    comm_tree over_nodes;
    KOLO_TRY(tree_make(tree, size, node_of));
    int *seen = kolo_alloc((size_t)nodes * sizeof *seen);
    int rc = seen ? comm_tree_nodes(&over_nodes, nodes) : KOLO_ENOMEM;
    if (rc < 0) {
        free(seen);
        comm_tree_free(tree);
        return rc;
    }
    for (int i = 0; i < tree->fragments; i++) tree->fragment[i].index = seen[tree->fragment[i].node]++;
    tree->plain = same_shape(tree, &over_nodes);
    free(seen);
    comm_tree_free(&over_nodes);
    return 0;
}

void comm_tree_free(comm_tree *tree)
{
    free(tree->fragment);
    free(tree->merge);
    *tree = (comm_tree){0};
}
