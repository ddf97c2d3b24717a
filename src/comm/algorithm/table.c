/* The table of algorithms, and for which groups they are. */
#include <string.h>

#include "base/memory.h"
#include "base/option.h"
#include "comm/algorithm/build.h"
#include "comm/algorithm/stages.h"
#include "kolo/error.h"

static int always(const comm_problem *p) { return p->members > 0; }
static int never(const comm_problem *p) { return p->members == 1; }
#define any always

bool comm_nodes_plain(const int *node_of, int n)
{
    /* members of the first node: a power of two, and so have all others, but the last may have fewer */
    int first = 0;
    while (first < n && (!node_of || node_of[first] == node_of[0])) first++;
    if (first == n) return true;
    if (first & (first - 1)) return false;
    for (int i = first; i < n; i++) {
        if (i % first) {
            if (node_of[i] != node_of[i - 1]) return false;
            continue;
        }
        for (int k = 0; k < i; k += first)
            if (node_of[k] == node_of[i]) return false;
    }
    return true;
}

/* Sums of groups continue the tree over members where all radices but the last are powers of two; those by
 * nodes where every node is a whole subtree of it, in order. */
static int plain(const comm_problem *p, enum comm_grouping how)
{
    int radix[COMM_STAGES], steps = comm_radices_of(how, p->members, &p->radix, radix);
    for (int i = 0; i < steps - 1; i++)
        if (radix[i] & (radix[i] - 1)) return 0;
    return how != COMM_LEVELS || steps || comm_nodes_plain(p->node_of, p->members);
}
static int plain_powers(const comm_problem *p) { return plain(p, COMM_POWERS); }
static int plain_factors(const comm_problem *p) { return plain(p, COMM_FACTORS); }
static int plain_levels(const comm_problem *p) { return plain(p, COMM_LEVELS); }

/* Levels are given, or there are several nodes, and some with several members. */
static int levelled(const comm_problem *p)
{
    int radix[COMM_STAGES];
    if (p->radix.k[0]) return comm_radices_of(COMM_LEVELS, p->members, &p->radix, radix) > 0;
    int nodes = comm_nodes(p->node_of, p->members);
    return nodes > 1 && nodes < p->members;
}

/* On one node, where the caller can push. */
static int shared(const comm_problem *p)
{
    return p->shares && p->members > 1 && comm_nodes(p->node_of, p->members) == 1;
}

static int power_of_two(const comm_problem *p) { return (p->members & (p->members - 1)) == 0; }
static int even(const comm_problem *p) { return p->count > 0; }
static int linked(const comm_problem *p)
{
    return p->links && p->members > 1 && p->members <= COMM_PACK_RANKS &&
           comm_pack_bound(p->links, p->members, p->what == KOLO_ALLREDUCE ? 0 : p->root,
                           p->what == KOLO_ALLREDUCE) > 0;
}

#define allreduce_collective KOLO_ALLREDUCE
#define reduce_scatter_collective KOLO_REDUCE_SCATTER
#define allgather_collective KOLO_ALLGATHER
#define broadcast_collective KOLO_BROADCAST
#define gather_collective KOLO_GATHER
#define scatter_collective KOLO_SCATTER
#define alltoall_collective KOLO_ALLTOALL
#define barrier_collective KOLO_BARRIER

const comm_algorithm_row comm_algorithm_table[] = {
#define TAKES_none COMM_UNGROUPED, false
#define TAKES_segment COMM_UNGROUPED, true
#define TAKES_powers COMM_POWERS, false
#define TAKES_digits COMM_DIGITS, false
#define TAKES_factors COMM_FACTORS, false
#define TAKES_levels COMM_LEVELS, false
#define ROW(collective, name, ordered, fits, cost, takes, help) \
    {#name,                                                     \
     help,                                                      \
     collective##_collective,                                   \
     ordered,                                                   \
     fits,                                                      \
     comm_make_##collective##_##name,                           \
     comm_cost_##cost,                                          \
     TAKES_##takes},
#include "comm/algorithm/algorithms.def"
#undef ROW
    {.name = NULL}};

COMM_MAKE(allreduce, push)
{
    (void)schedule, (void)p;
    return kolo_fail(KOLO_EINTERNAL, "comm: the push is carried out without a schedule");
}

bool comm_algorithm_pushes(const comm_algorithm_row *row) { return row->make == comm_make_allreduce_push; }

const char *comm_collective_name(enum kolo_collective what)
{
    static const char *const names[KOLO_COLLECTIVE_COUNT] = {
        [KOLO_ALLREDUCE] = "allreduce", [KOLO_REDUCE_SCATTER] = "reduce_scatter",
        [KOLO_ALLGATHER] = "allgather", [KOLO_BROADCAST] = "broadcast",
        [KOLO_GATHER] = "gather",       [KOLO_SCATTER] = "scatter",
        [KOLO_ALLTOALL] = "alltoall",   [KOLO_BARRIER] = "barrier",
        [KOLO_JOIN] = "join",           [KOLO_SPARSE_ALLREDUCE] = "sparse_allreduce"};
    /* what a program brings may be nothing of these */
    return (unsigned)what < KOLO_COLLECTIVE_COUNT ? names[what] : "request";
}

const comm_algorithm_row *comm_algorithm_named(enum kolo_collective what, const char *name)
{
    const char *known[64];
    int n = 0;
    for (const comm_algorithm_row *row = comm_algorithm_table; row->name; row++) {
        if (row->what != what) continue;
        if (strcmp(row->name, name) == 0) return row;
        known[n++] = row->name;
    }
    const char *near = kolo_nearest(name, known, n);
    char list[1024] = "";
    for (int i = 0; i < n; i++) kolo_append(list, sizeof list, "%s%s", i ? ", " : "", known[i]);
    kolo_fail(KOLO_ECONFIG, "comm: no algorithm \"%s\" for %s%s%s%s; known: %s", name,
              comm_collective_name(what), near ? "; did you mean \"" : "", near ? near : "",
              near ? "\"?" : "", list);
    return NULL;
}
