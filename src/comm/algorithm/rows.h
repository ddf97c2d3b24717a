/* What the columns of algorithms.def name. */
#ifndef KOLO_COMM_ROWS_H
#define KOLO_COMM_ROWS_H

#include "comm/algorithm/algorithm.h"

/* The head of a cost in seconds. */
#define COMM_COST(name) double comm_cost_##name(const comm_problem *p, const comm_cost *c)
/* Rows may share a cost: then this declares it again. */
#define ROW(collective, name, ordered, fits, cost, takes, help) COMM_COST(cost);
#include "comm/algorithm/algorithms.def"
#undef ROW

#endif
