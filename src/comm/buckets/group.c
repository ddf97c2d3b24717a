#include "comm/buckets/group.h"

#include <stdlib.h>
#include <string.h>

#include "base/memory.h"
#include "kolo/error.h"

/* Smallest number of ranks on a node: so many slices have an owner on every node. */
static int count_rails(const kolo_launch *l)
{
    int *ranks = kolo_alloc((size_t)l->nodes * sizeof *ranks);
    if (!ranks) return KOLO_ENOMEM;
    for (int r = 0; r < l->size; r++) ranks[l->node_of[r]]++;
    int rails = ranks[0];
    for (int n = 1; n < l->nodes; n++)
        if (ranks[n] < rails) rails = ranks[n];
    free(ranks);
    return rails;
}

int comm_group_owners(const kolo_launch *l, int *owner)
{
    if (l->size == 1) return owner[0] = 0, 1;
    const int rails = count_rails(l);
    KOLO_TRY(rails);
    for (int r = 0; r < l->size; r++)
        if (l->local_of[r] < rails) owner[l->local_of[r] * l->nodes + l->node_of[r]] = r;
    return rails * l->nodes;
}

int comm_group_own(comm_group *group)
{
    if (group->owner) return group->owners;
    group->owner = kolo_alloc((size_t)group->launch->size * sizeof *group->owner);
    return group->owner ? group->owners = comm_group_owners(group->launch, group->owner) : KOLO_ENOMEM;
}

/* What this node sums on its own: everything, or with canonical its subtrees of the tree over ranks. */
static int make_order(comm_group *group, bool canonical)
{
    const kolo_launch *l = group->launch;
    comm_node *node = &group->node;
    comm_tree *tree = &group->tree;
    node->tree = canonical;
    node->fragment = kolo_alloc((size_t)node->ranks * sizeof *node->fragment);
    if (!node->fragment) return KOLO_ENOMEM;
    if (!canonical) { /* each node is one fragment, however it sums within */
        tree->plain = true;
        node->fragment[node->fragments++] = (comm_members){0, node->ranks};
        return 0;
    }
    KOLO_TRY(comm_tree_ranks(tree, l->size, l->node_of, l->nodes));
    for (int f = 0; f < tree->fragments; f++) {
        const comm_fragment *fragment = &tree->fragment[f];
        if (fragment->node == l->node)
            node->fragment[node->fragments++] = (comm_members){l->local_of[fragment->first], fragment->count};
    }
    return 0;
}

static int make_node(comm_group *group)
{
    const kolo_launch *l = group->launch;
    comm_node *node = &group->node;
    node->launch = l;
    node->me = l->local_rank;
    node->ranks = l->local_size;
    node->nodes = l->nodes;
    node->rank_of = kolo_alloc((size_t)node->ranks * sizeof *node->rank_of);
    group->rank_of = kolo_alloc((size_t)l->nodes * sizeof *group->rank_of);
    if (!node->rank_of || !group->rank_of) return KOLO_ENOMEM;
    for (int r = 0; r < l->size; r++) {
        if (l->node_of[r] == l->node) node->rank_of[l->local_of[r]] = group->rank[r];
        if (l->local_of[r] == l->local_rank) group->rank_of[l->node_of[r]] = group->rank[r];
    }
    node->rails = count_rails(l);
    return node->rails < 0 ? node->rails : 0;
}

int comm_group_world(comm_group *group, const kolo_launch *launch, bool canonical)
{
    group->launch = launch;
    group->mine = true;
    group->node.world = &group->node;
    group->rank = kolo_alloc((size_t)launch->size * sizeof *group->rank);
    if (!group->rank) return KOLO_ENOMEM;
    for (int r = 0; r < launch->size; r++) group->rank[r] = r;
    if (launch->size == 1) return 0;
    KOLO_TRY(make_node(group));
    return make_order(group, canonical);
}

int comm_group_make(comm_group *group, comm_group *world, const int *rank, int count)
{
    const kolo_launch *all = world->launch;
    comm_node *node = &group->node;
    group->rank = kolo_alloc((size_t)count * sizeof *group->rank);
    if (!group->rank) return KOLO_ENOMEM;
    memcpy(group->rank, rank, (size_t)count * sizeof *rank);
    for (int r = 0; r < count; r++) group->mine |= rank[r] == all->rank;
    KOLO_TRY(kolo_launch_part(&group->part, all, rank, count, all->job));
    group->launch = &group->part;
    if (!group->mine || count == 1) return 0;
    node->world = &world->node;
    node->timeout = world->node.timeout;
    node->spin = world->node.spin;
    KOLO_TRY(make_node(group));
    node->control = kolo_alloc((size_t)node->ranks * sizeof *node->control);
    node->arena = kolo_alloc((size_t)node->ranks * sizeof *node->arena);
    if (!node->control || !node->arena) return KOLO_ENOMEM;
    for (int l = 0; l < node->ranks; l++) {
        node->control[l] = world->node.control[all->local_of[node->rank_of[l]]];
        node->arena[l] = world->node.arena[all->local_of[node->rank_of[l]]];
    }
    return make_order(group, world->node.tree);
}

void comm_group_free(comm_group *group)
{
    comm_node *node = &group->node;
    free(node->fragment);
    free(node->rank_of);
    if (node->world != node) free(node->control), free(node->arena);
    free(group->rank_of);
    free(group->owner);
    free(group->rank);
    comm_tree_free(&group->tree);
    free(group->matrix);
    if (group->launch == &group->part) kolo_launch_finish(&group->part);
}
