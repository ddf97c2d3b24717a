/* What the algorithms write their actions with. A builder is one member's view of a team: all members of a
 * group, or some of them in an order of the algorithm's own. Places and ranges are in elements of the
 * vector. */
#ifndef KOLO_COMM_BUILD_H
#define KOLO_COMM_BUILD_H

#include "comm/algorithm/algorithm.h"
#include "comm/core/schedule.h"

typedef struct comm_range {
    int64_t from, to;
} comm_range;

typedef struct comm_build {
    comm_schedule *s;
    int me, n;
    const int *member; /* [n] numbers in the group; NULL: the team is the group */
    comm_place sum;    /* of element 0 of the running sum */
    int64_t spare;     /* scratch is free from here on */
    /* nothing was added yet: what this member brings stands in COMM_INPUT, and only there */
    bool brought;
    bool half;    /* of the problem */
    bool settled; /* half: results stand in COMM_OWN, rounded */
} comm_build;

/* What every member of a team brings or gets of one vector, which lies in the order of the group: by the
 * numbers of the team. */
typedef struct comm_parts {
    int64_t *at, *count; /* [n], [n] */
} comm_parts;

static inline int comm_member(const comm_build *b, int i) { return b->member ? b->member[i] : i; }
static inline comm_place comm_own(int64_t at) { return (comm_place){COMM_OWN, at}; }
static inline comm_place comm_input(int64_t at) { return (comm_place){COMM_INPUT, at}; }
static inline comm_place comm_scratch(int64_t at) { return (comm_place){COMM_SCRATCH, at}; }
static inline comm_place comm_shift(comm_place p, int64_t by) { return (comm_place){p.buffer, p.at + by}; }
static inline int64_t comm_length(comm_range r) { return r.to - r.from; }
static inline comm_range comm_part_range(const comm_parts *parts, int i)
{
    return (comm_range){parts->at[i], parts->at[i] + parts->count[i]};
}
static inline comm_range comm_both(comm_range a, comm_range b) /* what lies in both; may be empty */
{
    comm_range r = {a.from > b.from ? a.from : b.from, a.to < b.to ? a.to : b.to};
    return r.to > r.from ? r : (comm_range){r.from, r.from};
}
/* Part i of `parts` that differ by at most one element. */
static inline comm_range comm_cut(comm_range r, int parts, int i)
{
    int64_t each = comm_length(r) / parts, more = comm_length(r) % parts;
    int64_t from = r.from + each * i + (i < more ? i : more);
    return (comm_range){from, from + each + (i < more)};
}
static inline comm_range comm_half(comm_range r, bool high)
{
    int64_t middle = r.from + comm_length(r) / 2;
    return high ? (comm_range){middle, r.to} : (comm_range){r.from, middle};
}
/* Piece i of a range that is halved until there are d, a power of two: bit 0 of i chooses first. */
static inline comm_range comm_halved(comm_range r, int i, int d)
{
    for (int bit = 1; bit < d; bit *= 2) r = comm_half(r, (i & bit) != 0);
    return r;
}
static inline int comm_power_until(int n) /* largest power of two <= n, n >= 1 */
{
    int p = 1;
    while (p <= n / 2) p *= 2;
    return p;
}

/* Empties the schedule. The team is the group node by node (comm_number_members), so that those
 * near each other are on one node wherever the launcher put them; a root is number 0. Sums of the
 * problem go to COMM_OWN. */
comm_build comm_build_begin(comm_schedule *schedule, const comm_problem *problem);
/* Of a vector in place, by members in their own order. */
comm_build comm_build_in_place(comm_schedule *schedule, int me, int members);
/* Counts the team anew: the first member of every node, then the second, ... */
void comm_build_deal(comm_build *b, const comm_problem *problem);
/* A member that added nothing to its input copies it. Returns the schedule's status. */
int comm_build_end(comm_build *b, comm_range r);

/* Of nothing: no action. to, from: numbers in the team. */
void comm_build_send(comm_build *b, int to, comm_place at, int64_t count);
void comm_build_receive(comm_build *b, int from, comm_place at, int64_t count);
void comm_build_wait(comm_build *b, int64_t serial); /* until all requests up to this one are complete */
void comm_build_wait_all(comm_build *b);
void comm_build_combine(comm_build *b, comm_place out, comm_place left, comm_place right, int64_t count);
/* A copy that continues the one before is joined to it. */
void comm_build_copy(comm_build *b, comm_place out, comm_place from, int64_t count);
/* Arithmetic of the schedule's maker (comm_schedule.call); what: which. */
void comm_build_call(comm_build *b, int what, int64_t argument);
/* Where element `at` of this member's sum so far stands, and where it will. */
comm_place comm_build_mine(const comm_build *b, int64_t at);
comm_place comm_build_sum(const comm_build *b, int64_t at);
/* Results travel from here and to here, behind comm_build_settle. */
comm_place comm_build_result(const comm_build *b, int64_t at);
/* The sums of a range are complete. half: they are rounded to COMM_OWN, once, on the one member that owns
 * them. Every member calls it before results travel (comm_build_result); one that owns none with an empty
 * range, or it would round sums of its own at the end. */
void comm_build_settle(comm_build *b, comm_range r);
/* half: behind the first exchange of a team all have f32; who added nothing yet widens what it brought. */
void comm_build_widen(comm_build *b, comm_range r);
/* This member's sum of a range: what it has op `other`, or the other way round. */
void comm_build_add(comm_build *b, comm_range r, bool mine_left, comm_place other);
/* Whether a team that has exchanged nothing yet does so in 16 bits. */
static inline bool comm_build_raw(const comm_build *b) { return b->half && b->brought; }
/* Scratch for `count` elements from element `at` on that come in: raw ones at the end of the room
 * that their sum takes. */
comm_place comm_build_slot(int64_t at, int64_t count, bool raw);
/* For the maker: zeros, good until the schedule is made anew. NULL: the schedule's status says so. */
void *comm_build_memory(comm_build *b, size_t bytes);
/* Sums n >= 1 places (which it changes) in the tree that splits at the largest power of two below n.
 * What place[mine] goes into is written to `out`, the rest to the places themselves, which must be
 * scratch (comm_build_slot). */
void comm_build_fold(comm_build *b, comm_place *place, int n, int mine, comm_place out, int64_t count);

/* Members first, first + stride, ... of the team; the first `owners` get a part each of what all bring. */
typedef struct comm_subgroup {
    int first, stride, size, owners, me; /* me: in the subgroup */
    const comm_parts *parts;             /* of the owners; NULL: they differ by at most one element */
} comm_subgroup;
static inline comm_subgroup comm_whole_team(const comm_build *b, const comm_parts *parts)
{
    return (comm_subgroup){0, 1, b->n, b->n, b->me, parts};
}
/* All at once; sums in the order of the subgroup. Returns this member's part, empty if it owns none. */
comm_range comm_subgroup_reduce(comm_build *b, const comm_subgroup *c, comm_range r);
/* The owners' parts go to all of the subgroup. */
void comm_subgroup_spread(comm_build *b, const comm_subgroup *c, comm_range r);

/* ---- algorithms that others consist of: allreduce of a range, in COMM_OWN at the end ------------------- */
void comm_double(comm_build *b, comm_range r); /* recursive multiplying by twos */
void comm_halve(comm_build *b, comm_range r);  /* Rabenseifner */

/* Parts are of COMM_OWN. Those of members i .. i + held[i] - 1 stand there already at
 * member i; NULL: its own. */
void comm_ring_gather(comm_build *b, const comm_parts *parts, const int *held);
/* counts: by the numbers of the group. In vain: zeros, and the schedule's status says so. */
comm_parts comm_parts_of(comm_build *b, const int64_t *counts);
/* About equal ones (comm_part); at[n]: their end. */
comm_parts comm_parts_even(comm_build *b, int64_t count);
/* Sums of counts[0 .. i - 1], n + 1 of them. NULL: the schedule's status says so. */
int64_t *comm_offsets(comm_build *b, const int64_t *counts, int n);

/* An allreduce in place over fragments of any tree: everybody sums a part; this member's fragment i stands in
 * COMM_PART + i. Replaces the actions of the schedule. */
int comm_schedule_direct(comm_schedule *schedule, int me, int members, int64_t count, const comm_tree *tree);

/* One member's place in a tree along which segments of a range flow, up to the root as sums,
 * down from it as results. */
enum { COMM_TREE_CHILDREN = 16 };
typedef struct comm_tree_node {
    int parent, children, child[COMM_TREE_CHILDREN]; /* parent: -1 at the root */
    int before;                                      /* children whose sums stand left of this member's */
    int depth;
    comm_range range;
} comm_tree_node;
/* Several trees side by side, segment by segment (0: a size of its own). deepest: no member of any
 * tree stands lower, and sums flow up first; -1: what the root has flows down only. from: element 0 of
 * what this member brings. */
void comm_flow(comm_build *b, const comm_tree_node *node, int trees, int64_t segment, int deepest,
               comm_place from);

/* The heads of what algorithms.def names: of a function that makes the schedules of a row, and of a cost in
 * seconds. Rows may share a cost. */
#define COMM_MAKE(collective, name) \
    int comm_make_##collective##_##name(comm_schedule *schedule, const comm_problem *p)
#define COMM_COST(name) double comm_cost_##name(const comm_problem *p, const comm_cost *c)
#define ROW(collective, name, ordered, fits, cost, takes, help) \
    COMM_MAKE(collective, name);                                \
    COMM_COST(cost);
#include "comm/algorithm/algorithms.def"
#undef ROW

#endif
