#include "comm/algorithm/stages.h"

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

int comm_tree_ranks(comm_tree *tree, int size, const int *node_of, int nodes)
{
    *tree = (comm_tree){.plain = comm_nodes_plain(node_of, size)};
    tree->fragment = kolo_alloc((size_t)size * sizeof *tree->fragment);
    tree->merge = kolo_alloc((size_t)size * sizeof *tree->merge);
    int *seen = kolo_alloc((size_t)nodes * sizeof *seen);
    if (!tree->fragment || !tree->merge || !seen) {
        free(seen);
        comm_tree_free(tree);
        return KOLO_ENOMEM;
    }
    grow(tree, node_of, 0, size);
    for (int i = 0; i < tree->fragments; i++) tree->fragment[i].index = seen[tree->fragment[i].node]++;
    free(seen);
    return 0;
}

void comm_tree_free(comm_tree *tree)
{
    free(tree->fragment);
    free(tree->merge);
    *tree = (comm_tree){0};
}
