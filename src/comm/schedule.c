#include "comm/schedule.h"

#include <stdlib.h>
#include <string.h>

#include "comm/algorithm/build.h"
#include "kolo/error.h"

int64_t comm_part(int64_t count, int parts, int i)
{
    int64_t at = (count + 15) / 16 * i / parts * 16;
    return at < count ? at : count;
}

enum { RING_SEGMENT = 65536 }; /* elements */

static comm_build in_place(comm_schedule *schedule, int me, int members)
{
    const comm_problem problem = {.me = me, .members = members, .in_place = true};
    return comm_build_begin(schedule, &problem);
}

int comm_schedule_allreduce(comm_schedule *schedule, int algorithm, int me, int members, int64_t count,
                            const comm_tree *tree)
{
    comm_build b = in_place(schedule, me, members);
    comm_range whole = {0, count};
    if (members == 1) return 0;
    switch (algorithm) {
    case COMM_RECURSIVE_DOUBLING: comm_multiply(&b, whole, 2); break;
    case COMM_RABENSEIFNER: comm_halve(&b, whole); break;
    case COMM_RING: comm_ring(&b, whole, RING_SEGMENT); break;
    case COMM_DIRECT: KOLO_TRY(comm_direct(&b, whole, tree)); break;
    default: return kolo_fail(KOLO_EINTERNAL, "comm: algorithm %d has no schedule", algorithm);
    }
    return schedule->status;
}

int comm_schedule_broadcast(comm_schedule *schedule, int me, int members, int root, int64_t count)
{
    comm_build b = in_place(schedule, me, members);
    comm_knomial(&b, root, 2, comm_own(0), count);
    return schedule->status;
}

int comm_schedule_gather(comm_schedule *schedule, int me, int root, int64_t count, int size, const int *node_of,
                         const int *local_of)
{
    comm_build b = in_place(schedule, me, size);
    int to = node_of[root];
    for (int r = 0; r < size; r++) {
        if (node_of[r] == me && me != to) comm_build_send(&b, to, (comm_place){COMM_PART + local_of[r], 0}, count);
        if (node_of[r] != me && me == to) comm_build_receive(&b, node_of[r], comm_own(r * count), count);
    }
    comm_build_wait_all(&b);
    return schedule->status;
}

void comm_schedule_free(comm_schedule *schedule)
{
    free(schedule->action);
    free(schedule->place);
    free(schedule->order);
    *schedule = (comm_schedule){0};
}

static const char *const algorithms[] = {"auto", "recursive_doubling", "rabenseifner", "ring", "direct"};

int comm_algorithm_find(const char *name)
{
    if (!name) return COMM_AUTO;
    for (int i = 0; i < (int)(sizeof algorithms / sizeof *algorithms); i++)
        if (strcmp(name, algorithms[i]) == 0) return i;
    return kolo_fail(KOLO_ECONFIG,
                     "comm: unknown algorithm \"%s\"; known: auto, recursive_doubling, rabenseifner, ring, direct",
                     name);
}

const char *comm_algorithm_name(int algorithm) { return algorithms[algorithm]; }

int comm_algorithm_choose(int members, int64_t bytes)
{
    /* seconds a message, a byte moved, a byte combined: a 100 Gb/s network and one core */
    const double alpha = 2.5e-6, beta = 1 / 12.5e9, gamma = 1 / 20e9;
    double levels = 0, n = (double)bytes, share = 1 - 1.0 / members;
    for (int d = 1; d < members; d *= 2) levels++;
    double doubling = levels * (alpha + n * (beta + gamma));
    double halving = 2 * levels * alpha + share * n * (2 * beta + gamma);
    return doubling <= halving ? COMM_RECURSIVE_DOUBLING : COMM_RABENSEIFNER;
}
