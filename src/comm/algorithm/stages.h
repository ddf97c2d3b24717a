/* How members are grouped: what algorithms, their costs and their fits must agree on. */
#ifndef KOLO_COMM_STAGES_H
#define KOLO_COMM_STAGES_H

#include "comm/algorithm/algorithm.h"

/* radix: a number for every step; returns the steps, 0: k does not fit. */
int comm_radices_of(enum comm_grouping how, int members, const comm_radices *k, int radix[COMM_STAGES]);
/* "4x8x16". KOLO_EINPUT: it is none. */
int comm_radices_read(comm_radices *k, const char *text);
enum { COMM_RADICES_TEXT = 128 };
const char *comm_radices_text(const comm_radices *k, char text[COMM_RADICES_TEXT]);
/* Try number i (from 0) of two or three factors of n; false: there are no more. */
bool comm_radices_try(int n, int i, comm_radices *k);
/* Whether the row can go by the problem's k. */
bool comm_radices_fit(const comm_algorithm_row *row, const comm_problem *problem);
/* Seconds of the row by the k that makes it cheapest, which is left in the problem; of equals its own choice.
 * Of those that keep the order, unless it is free. */
double comm_radices_cheapest(const comm_algorithm_row *row, comm_problem *problem, const comm_cost *cost,
                             bool free_order);

enum { COMM_RAIL_SMALL = 4096 }; /* bytes: below, a rail is summed by whole vectors */
/* Members by node, nodes in the order of their first members. order: [n], first: [nodes + 1]; least: members
 * of the smallest node. Returns the nodes. */
int comm_group_nodes(const int *node_of, int n, int *order, int *first, int *least);
int comm_nodes(const int *node_of, int n); /* distinct ones */
/* Whether node_of cuts the tree over members into one whole subtree a node, in order: then sums by nodes have
 * the bits of the tree. */
bool comm_nodes_plain(const int *node_of, int n);
/* Members as the algorithms count them: node by node; where there is a root, its node first, and itself first
 * in that. order: [3 n + 1], of which n are the answer. */
void comm_number_members(const comm_problem *problem, int *order);
/* The first of every node, then the second of every node, ... order: [3 n + 1], of which n are the answer. */
void comm_deal_members(const comm_problem *problem, int *order);

/* ---- pack.c: spanning trees packed into links of unlike speed, for the ranks of one node --------------- */
enum { COMM_PACK_RANKS = 16 };
/* The least of the largest flows from the root to each other rank, GB/s: what no broadcast can exceed. links:
 * [n][n], from, to; negative or no numbers count as 0. both: a link counts as its slower direction (sums flow
 * up the trees, results down). */
double comm_pack_bound(const double *links, int n, int root, bool both);
/* Seconds for which the busiest rank sends its shares of a vector of so many bytes, one link after the other;
 * negative: no memory, or no trees. both: sums up and results down. */
double comm_pack_seconds(const double *links, int n, int root, bool both, double bytes, int *deepest);

#endif
