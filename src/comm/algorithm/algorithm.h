/* The algorithms of the library half: each writes one member's list of actions for one collective into a
 * comm_schedule (schedule.h). Pure functions of their arguments: no state, no MPI, nothing mutable outside
 * the schedule, so they run unchanged under SimGrid SMPI with hundreds of ranks in one process, and a
 * schedule is made once and run any number of times.
 *
 * Buffers of a run: COMM_SCRATCH (schedule->scratch elements), COMM_OWN (where the result goes), COMM_INPUT
 * (what this member brings; never written when out of place). In place COMM_INPUT is the address in COMM_OWN
 * at which the contribution lies:
 *
 *                  COMM_INPUT              COMM_OWN                      in place, COMM_INPUT is COMM_OWN +
 *   allreduce      count                   count                         0
 *   reduce_scatter count = sum of counts   counts[me] (in place: count)  0; the result stands at 0
 *                                                                        (the rest is then undefined)
 *   allgather      counts[me]              sum of counts                 sum of counts before me
 *   broadcast      root: count             count                         0
 *   gather         counts[me]              root: sum of counts           root: sum of counts before me
 *                                                                        others: 0
 *   scatter        root: sum of counts     counts[me]                    root: 0; the result stands at 0
 *                                                                        (the rest is kept or lost)
 *   alltoall       sum of send             sum of receive                0 (room for the larger sum)
 *   barrier        nothing                 nothing
 *
 * Where the problem is `half`, COMM_INPUT and COMM_OWN are of 16 bits and COMM_SCRATCH is of f32, also in
 * place. All lengths in elements of the wire type; data is moved as count * width bytes, so byte blobs have
 * width 1. No message is empty; none is longer than COMM_MESSAGE_MAX elements. Messages between two members
 * are matched by their order. in_place may differ from member to member; all else of a problem but me, send
 * and receive must be the same on all. */
#ifndef KOLO_COMM_ALGORITHM_H
#define KOLO_COMM_ALGORITHM_H

#include "comm/core/schedule.h"
#include "kolo/world.h"

enum { COMM_STAGES = 32 };
/* k: radices, the nearest members' first, ended by 0. None: the algorithm's own choice; one: for all steps;
 * several: their product is the number of members. */
typedef struct comm_radices {
    int k[COMM_STAGES];
} comm_radices;

/* What k means for an algorithm. Several numbers: a step each, whatever the algorithm. One number k, or 4: */
enum comm_grouping {
    COMM_UNGROUPED, /* it takes no k */
    COMM_POWERS,    /* the power of two below it, until all are reached */
    COMM_DIGITS,    /* the same with k itself */
    COMM_FACTORS,   /* the factors of n, k first if it divides, then 4, then the primes ascending */
    COMM_LEVELS     /* k and n / k; none: 0, levels are the nodes' */
};

/* One collective of one group as one member sees it. */
typedef struct comm_problem {
    enum kolo_collective what;
    int me, members; /* in the group */
    int root;        /* broadcast, gather, scatter */
    bool in_place;
    /* allreduce: the transport can push (transport/router.h), where the members are of one node. Such a
     * choice has no schedule */
    bool shares;
    bool fixed; /* the order of sums must be the fixed one, even if the table says order free */
    /* allreduce, broadcast: elements; reduce_scatter: elements in all; alltoall: elements of every pair where
     * that is known to be one number on all members, else 0 */
    int64_t count;
    const int64_t *counts; /* [members] reduce_scatter, allgather, gather, scatter: every member's part */
    const int64_t *send, *receive; /* [members] alltoall: elements for, and from, every member */
    const int *node_of;            /* [members] node of every member; NULL: all on one */
    size_t width;
    /* allreduce of 16-bit elements (width 2), summed in f32: what is brought and what is done travel in 16
     * bits, partial sums in f32 */
    bool half;
    comm_radices radix; /* of algorithms that take them */
    int64_t segment;    /* elements a segment of pipelined algorithms; 0: own choice */
    /* [members][members] GB/s from, to, measured one pair at a time: packed_trees; NULL:
     * unknown. comm_selector_links */
    const double *links;
} comm_problem;

/* Seconds a message, seconds a byte, seconds a byte reduced; [0] within a node, [1] between nodes (of one
 * node's link, which its members share). */
typedef struct comm_cost {
    double alpha[2], beta[2], gamma;
} comm_cost;

/* The built-in costs between nodes, for every level. */
extern const comm_cost comm_cost_between;

/* A row of the table that `kolo bench --algorithms` prints: every algorithm callable by name. */
typedef struct comm_algorithm_row {
    const char *name, *help;
    enum kolo_collective what;
    /* 1: an element's sum is the binary tree over members that splits at the largest power of two below their
     * number (schedule.h), whatever its offset and the count: fused = unfused, and all such algorithms give
     * the same bits. Members count node by node, so the parts of a reduce_scatter are those of the allreduce.
     * Always 1 where nothing is reduced. */
    int (*ordered)(const comm_problem *problem);
    /* 1, or 0 where it cannot serve this group */
    int (*fits)(const comm_problem *problem);
    /* replaces the actions (memory is kept); 0 or negative */
    int (*make)(comm_schedule *schedule, const comm_problem *problem);
    double (*cost)(const comm_problem *problem, const comm_cost *cost); /* seconds; the same on all members */
    enum comm_grouping radices;                                         /* what k means */
    bool segments;                                                      /* takes segment= */
} comm_algorithm_row;

static inline bool comm_rooted(enum kolo_collective what)
{
    return what == KOLO_BROADCAST || what == KOLO_GATHER || what == KOLO_SCATTER;
}

extern const comm_algorithm_row comm_algorithm_table[]; /* ended by a row without a name */

/* NULL: error text, nearest offered */
const comm_algorithm_row *comm_algorithm_named(enum kolo_collective what, const char *name);
/* "allreduce", ... */
const char *comm_collective_name(enum kolo_collective what);

/* What was measured of a cluster: `kolo bench --tune` writes it, for the cluster (table_path.c) or where
 * KOLO_COMM_TABLE names it. Text, a fact a line, # begins a comment:
 *
 *   kolo-comm-table 1
 *   cost LEVEL ALPHA BETA                    LEVEL: node or network; seconds a message, seconds a byte
 *   cost reduce GAMMA                        seconds a byte reduced
 *   order free                               algorithms without the fixed order of sums may be chosen, too
 *                                            (default: order fixed)
 *   links N                                  then N lines of N numbers: GB/s from, to, between N ranks of a
 *                                            node
 *   use COLLECTIVE MEMBERS NODES BYTES NAME [k=RADIX[xRADIX...]] [segment=ELEMENTS]
 *                                            for groups of MEMBERS on NODES nodes, up to BYTES (* :
 *                                            beyond), where NAME fits
 *
 * Of several `use` lines that reach a problem the one with the least BYTES holds. */
typedef struct comm_selector comm_selector;
/* NULL path: built-in costs. forced: NAME[:k=RADIX[xRADIX...]][,segment=ELEMENTS], an algorithm for the
 * collectives that have one of that name, or NULL. KOLO_ECONFIG or KOLO_EINPUT: file, line and what is wrong
 * with it, or an unknown name with the nearest one. */
int comm_selector_open(comm_selector **selector, const char *path, const char *forced);
/* The same by the word of a user: NULL or "" is the table of this cluster, if there is one; "none": no
 * table. */
int comm_table_open(comm_selector **selector, const char *table, const char *forced);
/* The same where forced must be an allreduce, the option comm_algorithm. KOLO_ECONFIG: it is none. */
int comm_allreduce_open(comm_selector **selector, const char *table, const char *forced);
char *comm_table_path(void); /* of this cluster's; caller frees. NULL: no memory */
void comm_selector_close(comm_selector **selector);
const comm_cost *comm_selector_costs(const comm_selector *selector);
bool comm_selector_is_measured(const comm_selector *selector); /* they are a table's */
/* The measured links of a node, if `members` were measured; else NULL. For comm_problem.links. */
const double *comm_selector_links(const comm_selector *selector, int members);
/* Of all that the choice depends on: ranks whose digests differ would choose differently. */
uint32_t comm_selector_digest(const comm_selector *selector);
/* KOLO_ECONFIG: the k that is forced fits no group of so many; names what would. Groups of other sizes
 * fall back on a choice. */
int comm_selector_check(const comm_selector *selector, int members);
/* What is forced if it fits; else what the file's measurements say, where they reach; else the cheapest by
 * cost among the ordered. Sets radix and segment of the problem if the choice has its own and they are 0, and
 * links where a whole node of that many was measured and they are NULL: make wants them, too. Never NULL:
 * every collective has a row that fits any group. */
const comm_algorithm_row *comm_algorithm_select(comm_problem *problem, const comm_selector *selector);
/* False: nobody has forced or measured anything for such groups, so that the choice goes by the costs
 * alone. */
bool comm_selector_asks(const comm_selector *selector, enum kolo_collective what, int members, int nodes);
bool comm_algorithm_pushes(const comm_algorithm_row *row); /* it is the push */

#endif
