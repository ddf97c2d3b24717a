/* What every collective must give: what members bring, how much, and which element must
 * stand where afterwards. */
#ifndef TESTS_COMM_TRIAL_H
#define TESTS_COMM_TRIAL_H

#include "comm/algorithm/algorithm.h"

#ifndef TRIAL_MEMBERS
#define TRIAL_MEMBERS 17
#endif

typedef struct trial {
    const comm_algorithm_row *row;
    comm_problem p;                    /* me is filled in */
    int64_t counts[TRIAL_MEMBERS + 1]; /* of members, or sizes[from][to] follow from it */
    int places;                        /* 0: out of place, 1: in place, 2: by turns */
    const int *order;                  /* [members] in which they are summed; NULL: as they are */
    bool exact;                        /* whole numbers: any order gives the same sum */
} trial;

static inline float trial_value(int member, int64_t i, bool exact)
{
    uint32_t r = (uint32_t)(member * 2654435761u) ^ (uint32_t)(i * 40503u + 12345u);
    r = (r ^ (r >> 15)) * 2246822519u;
    r ^= r >> 13;
    if (exact) return (float)(int)(r % 8001) - 4000;
    return ((float)(r & 0xffff) - 30000.7f) * (float)(1 << ((r >> 16) % 14));
}

static inline float trial_tree(const trial *t, int first, int n, int64_t i)
{
    if (n == 1) return trial_value(t->order ? t->order[first] : first, i, t->exact);
    int half = 1;
    while (half * 2 < n) half *= 2;
    return trial_tree(t, first, half, i) + trial_tree(t, first + half, n - half, i);
}

/* alltoall: elements from one to another */
static inline int64_t trial_between(const trial *t, int from, int to)
{
    if (t->p.count > 0) return t->p.count;
    return t->counts[(from * 5 + to * 3) % TRIAL_MEMBERS] + (from + to) % 2;
}

static inline int64_t trial_sum(const int64_t *counts, int n)
{
    int64_t s = 0;
    for (int i = 0; i < n; i++) s += counts[i];
    return s;
}

static inline bool trial_in_place(const trial *t, int m)
{
    return t->places == 1 || (t->places == 2 && m % 2 == 0);
}

/* What member m brings, has room for, gets; and where its contribution lies in place. */
typedef struct trial_sizes {
    int64_t in, own, out, at;
} trial_sizes;

static inline trial_sizes trial_sizes_of(const trial *t, int m)
{
    const int n = t->p.members;
    const int64_t all = trial_sum(t->counts, n), before = trial_sum(t->counts, m), mine = t->counts[m];
    const bool root = m == t->p.root, in = trial_in_place(t, m);
    int64_t send = 0, receive = 0;
    switch (t->p.what) {
    case KOLO_REDUCE_SCATTER: return (trial_sizes){all, in ? all : mine, mine, 0};
    case KOLO_ALLGATHER: return (trial_sizes){mine, all, all, before};
    case KOLO_BROADCAST: return (trial_sizes){root ? t->p.count : 0, t->p.count, t->p.count, 0};
    case KOLO_GATHER:
        return (trial_sizes){mine, root ? all : in ? mine : 0, root ? all : 0, root ? before : 0};
    case KOLO_SCATTER: return (trial_sizes){root ? all : 0, root && in ? all : mine, mine, 0};
    case KOLO_ALLTOALL:
        for (int i = 0; i < n; i++) {
            send += trial_between(t, m, i);
            receive += trial_between(t, i, m);
        }
        return (trial_sizes){send, in && send > receive ? send : receive, receive, 0};
    case KOLO_BARRIER: return (trial_sizes){0};
    default: return (trial_sizes){t->p.count, t->p.count, t->p.count, 0};
    }
}

/* Element i of what member m must have. */
static inline float trial_wanted(const trial *t, int m, int64_t i)
{
    const int n = t->p.members;
    int from = 0;
    int64_t at = i, other = 0;
    switch (t->p.what) {
    case KOLO_ALLREDUCE: return trial_tree(t, 0, n, i);
    case KOLO_REDUCE_SCATTER: return trial_tree(t, 0, n, trial_sum(t->counts, m) + i);
    case KOLO_BROADCAST: return trial_value(t->p.root, i, t->exact);
    case KOLO_SCATTER: return trial_value(t->p.root, trial_sum(t->counts, m) + i, t->exact);
    case KOLO_ALLTOALL:
        while (at >= trial_between(t, from, m)) at -= trial_between(t, from++, m);
        for (int k = 0; k < m; k++) other += trial_between(t, from, k);
        return trial_value(from, other + at, t->exact);
    default:
        while (at >= t->counts[from]) at -= t->counts[from++];
        return trial_value(from, at, t->exact);
    }
}

static inline bool trial_counted(enum kolo_collective what)
{
    return what == KOLO_REDUCE_SCATTER || what == KOLO_ALLGATHER || what == KOLO_GATHER ||
           what == KOLO_SCATTER;
}

/* Parts of members that sum to about `count`: even, uneven, or most of them empty. */
static inline void trial_set_counts(trial *t, int64_t count, int how)
{
    for (int i = 0; i < TRIAL_MEMBERS; i++) {
        int64_t even = count / t->p.members + (i < count % t->p.members);
        t->counts[i] = how == 0 ? even : how == 1 ? (i * 7 % 5) * even / 2 : i % 3 == 1 ? 2 * even + 1 : 0;
    }
}

#endif
