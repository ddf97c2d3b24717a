/* What the columns of algorithms.def name. */
#ifndef KOLO_COMM_ROWS_H
#define KOLO_COMM_ROWS_H

#include "comm/algorithm/algorithm.h"

/* Rows may share a cost: then this declares it again. */
#define ROW(collective, name, ordered, fits, cost, takes, help) \
    double comm_cost_##cost(const comm_problem *problem, const comm_cost *by);
#include "comm/algorithm/algorithms.def"
#undef ROW

#endif
