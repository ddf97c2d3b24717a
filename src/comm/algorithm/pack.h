/* Spanning trees packed into links of unlike speed, for the ranks of one node. */
#ifndef KOLO_COMM_PACK_H
#define KOLO_COMM_PACK_H

#include "comm/algorithm/algorithm.h"

enum { COMM_PACK_RANKS = 16, COMM_PACK_TREES = 96 };

typedef struct comm_packing {
    int trees, units; /* units: sum of weights */
    int weight[COMM_PACK_TREES];
    int parent[COMM_PACK_TREES][COMM_PACK_RANKS]; /* -1: the root */
} comm_packing;

/* The least of the largest flows from the root to each other rank, GB/s: what no broadcast can exceed. links:
 * [n][n], from, to; negative or no numbers count as 0. both: a link counts as its slower direction (sums flow
 * up the trees, results down). */
double comm_pack_bound(const double *links, int n, int root, bool both);
/* Seconds for which the busiest rank sends its shares of a vector of so many bytes, one link after the other;
 * negative: no memory, or no trees. both: sums up and results down. */
double comm_pack_seconds(const double *links, int n, int root, bool both, double bytes, int *deepest);

#endif
