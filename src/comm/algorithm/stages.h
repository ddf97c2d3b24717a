/* How members are grouped: what algorithms, their costs and their fits must agree on. */
#ifndef KOLO_COMM_STAGES_H
#define KOLO_COMM_STAGES_H

#include "comm/algorithm/algorithm.h"

enum { COMM_STAGES = 32 };
/* The factors of n, k first if it divides, then 4, then the primes ascending; returns how many. */
int comm_radices(int n, int k, int radix[COMM_STAGES]);
/* Members by node, nodes in the order of their first members. order: [n], first: [nodes + 1]; least: members of the smallest node. Returns the nodes. */
int comm_group_nodes(const int *node_of, int n, int *order, int *first, int *least);
int comm_nodes(const int *node_of, int n); /* distinct ones */
/* Members as the algorithms count them: node by node; where there is a root, its node first, and itself first in that. order: [2 n + 1], of which n are the answer. */
void comm_number_members(const comm_problem *problem, int *order);
/* The first of every node, then the second of every node, ... order: [3 n + 1], of which n are the answer. */
void comm_deal_members(const comm_problem *problem, int *order);
/* Whether node_of cuts the tree over members into one whole subtree a node, in order: then sums by nodes have the bits of the tree. */
bool comm_nodes_plain(const int *node_of, int n);

#endif
