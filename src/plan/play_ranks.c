#include "plan/play_ranks.h"

int kolo_play_rank_of(const kolo_play_input *in, int stage, int replica)
{
    return in->program ? kolo_grid_rank(in->program->grid, stage, replica) : replica;
}

static int node_of(const kolo_play_input *in, int stage, int replica)
{
    return kolo_play_rank_of(in, stage, replica) / (int)in->fabric->gpus;
}

/* Nodes of replicas [first, first + count), and the most of them on one. */
static int nodes_of(const kolo_play_input *in, int stage, int first, int count, int *most)
{
    int nodes = 1, here = 1;
    *most = 1;
    for (int r = first + 1; r < first + count; r++) {
        const bool same = node_of(in, stage, r) == node_of(in, stage, r - 1);
        nodes += !same;
        here = same ? here + 1 : 1;
        if (here > *most) *most = here;
    }
    return nodes;
}

kolo_fabric_group kolo_play_group(const kolo_play_input *in, int stage, int first, int count)
{
    const kolo_plan *plan = in->program ? in->program->plan[stage] : in->plan;
    kolo_fabric_group g = {.ranks = count};
    int most;
    g.nodes = nodes_of(in, stage, first, count, &most);
    const int here = kolo_play_here(in, stage, plan->config.ranks);
    g.beside = (here + most - 1) / most;
    return g;
}

int kolo_play_here(const kolo_play_input *in, int stage, int replicas)
{
    int most;
    nodes_of(in, stage, 0, replicas, &most);
    return most;
}

bool kolo_play_same_node(const kolo_play_input *in, int from, int to)
{
    return node_of(in, from, 0) == node_of(in, to, 0);
}
