/* The algorithms of the library half: each writes one member's list of actions for one collective into a comm_schedule (schedule.h).
 * Pure functions of their arguments: no state, no MPI, nothing mutable outside the schedule, so they run unchanged under SimGrid SMPI with
 * hundreds of ranks in one process, and a schedule is made once and run any number of times.
 *
 * Buffers of a run: COMM_SCRATCH (schedule->scratch elements), COMM_OWN (the output, count_out elements; in place also the input), COMM_INPUT
 * (the input, never written; the same address as COMM_OWN's part of it where the request is in place: then the schedule is made with
 * in_place). All lengths in elements of the wire type; data is moved as count * width bytes, so byte blobs have width 1. */
#ifndef KOLO_COMM_ALGORITHM_H
#define KOLO_COMM_ALGORITHM_H

#include "comm/schedule.h"
#include "kolo/comm.h"

/* One collective of one group as one member sees it. */
typedef struct comm_problem {
    enum kolo_collective what;
    int me, members;       /* in the group */
    int root;              /* broadcast, gather, scatter */
    bool in_place;
    int64_t count;         /* allreduce, broadcast: elements; reduce_scatter: elements in all */
    const int64_t *counts; /* [members] reduce_scatter, allgather, gather, scatter: every member's part */
    const int64_t *send, *receive; /* [members] alltoall: elements for, and from, every member */
    const int *node_of;    /* [members] node of every member; NULL: all on one */
    size_t width;
    int radix;             /* k of recursive multiplying, butterfly, knomial; 0: the algorithm's own choice */
    int64_t segment;       /* elements a segment of pipelined algorithms; 0: own choice */
} comm_problem;

/* Seconds a message, seconds a byte, seconds a byte reduced; [0] within a node, [1] between nodes. */
typedef struct comm_cost {
    double alpha[2], beta[2], gamma;
} comm_cost;

/* A row of the table that `kolo bench --algorithms` prints: every algorithm callable by name. */
typedef struct comm_algorithm_row {
    const char *name, *help;
    enum kolo_collective what;
    bool ordered;  /* an element's sum does not depend on its offset nor on the count: fused = unfused, bit by bit */
    int (*fits)(const comm_problem *problem); /* 1, or 0 where it cannot serve this number of members */
    int (*make)(comm_schedule *schedule, const comm_problem *problem);
    double (*cost)(const comm_problem *problem, const comm_cost *cost); /* seconds */
} comm_algorithm_row;

extern const comm_algorithm_row comm_algorithm_table[]; /* ended by a row without a name */

const comm_algorithm_row *comm_algorithm_named(enum kolo_collective what, const char *name); /* NULL: error text, nearest offered */
/* Measured costs of a cluster: `kolo bench --tune` writes them, KOLO_COMM_TABLE names the file. */
typedef struct comm_selector comm_selector;
int comm_selector_open(comm_selector **selector, const char *path, const char *forced); /* NULL path: built-in costs; forced: name of an algorithm or NULL */
void comm_selector_close(comm_selector **selector);
/* The cheapest ordered row by the table file's measurements where they reach, else by cost. Never NULL: every collective has a row that fits any group. */
const comm_algorithm_row *comm_algorithm_select(const comm_problem *problem, const comm_selector *selector);

#endif
