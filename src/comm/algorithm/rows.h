/* What the columns of algorithms.def name. */
#ifndef KOLO_COMM_ROWS_H
#define KOLO_COMM_ROWS_H

#include "comm/algorithm/algorithm.h"

/* it never settles on these lines */
/* clang-format off */
#define COMM_COSTS(COST) \
    COST(push) COST(doubling) COST(multiplying) COST(one_shot) COST(halving) COST(direct_allreduce) \
    COST(two_level) COST(butterfly) COST(elimination) COST(halving_far) COST(ring_allreduce) \
    COST(segmented_ring) COST(double_tree) COST(packed) COST(direct_half) COST(halving_half) COST(ring_half) \
    COST(ring_gather) COST(bruck_gather) COST(direct_gather) COST(binomial) COST(knomial) \
    COST(scatter_allgather) COST(scatter_doubling) COST(pipelined) COST(binomial_gather) COST(direct_rooted) \
    COST(direct_alltoall) COST(pairwise) COST(bruck_alltoall) COST(dissemination)
/* clang-format on */

#define COST(name) double comm_cost_##name(const comm_problem *problem, const comm_cost *cost);
COMM_COSTS(COST)
#undef COST

#endif
