#include "comm/buckets/bucket_schedule.h"

#include "comm/algorithm/build.h"

static comm_build in_place(comm_schedule *schedule, int me, int members)
{
    const comm_problem problem = {.me = me, .members = members, .in_place = true};
    return comm_build_begin(schedule, &problem);
}

int comm_schedule_direct(comm_schedule *schedule, int me, int members, int64_t count, const comm_tree *tree)
{
    comm_build b = in_place(schedule, me, members);
    return members == 1 ? 0 : comm_direct(&b, (comm_range){0, count}, tree);
}

int comm_schedule_broadcast(comm_schedule *schedule, int me, int members, int root, int64_t count)
{
    comm_build b = in_place(schedule, me, members);
    comm_knomial(&b, root, NULL, 0, comm_own(0), count);
    return schedule->status;
}

int comm_schedule_gather(comm_schedule *schedule, int me, int root, int64_t count, int size,
                         const int *node_of, const int *local_of)
{
    comm_build b = in_place(schedule, me, size);
    int to = node_of[root];
    for (int r = 0; r < size; r++) {
        if (node_of[r] == me && me != to)
            comm_build_send(&b, to, (comm_place){COMM_PART + local_of[r], 0}, count);
        if (node_of[r] != me && me == to) comm_build_receive(&b, node_of[r], comm_own(r * count), count);
    }
    comm_build_wait_all(&b);
    return schedule->status;
}
