/* One message between every two members: the owner of a part gets what all bring of it and
 * sums it in the tree. */
#include "comm/algorithm/build.h"

/* This member's part comes in from every fragment and is merged in the tree's order into COMM_OWN; fragments
 * stay as they are. */
static void reduce_fragments(comm_build *b, const comm_parts *parts, const comm_tree *tree)
{
    const int64_t from = parts->at[b->me], count = parts->count[b->me];
    int64_t slot = 0;
    comm_place *place = comm_build_memory(b, (size_t)tree->fragments * sizeof *place);
    if (!place) return;
    for (int f = 0; f < tree->fragments; f++) {
        const comm_fragment *fragment = &tree->fragment[f];
        const int32_t buffer = COMM_PART + fragment->index;
        if (fragment->node != b->me) {
            place[f] = comm_scratch(slot);
            slot += count;
            comm_build_receive(b, fragment->node, place[f], count);
            continue;
        }
        place[f] = (comm_place){buffer, from};
        for (int k = 1; k < b->n; k++) {
            int to = (b->me + k) % b->n;
            comm_build_send(b, to, (comm_place){buffer, parts->at[to]}, parts->count[to]);
        }
    }
    comm_build_wait_all(b);
    for (int m = 0; m < tree->merges; m++) {
        comm_place *left = &place[tree->merge[m].left], right = place[tree->merge[m].right];
        const bool last = m == tree->merges - 1, kept = left->buffer != COMM_SCRATCH;
        comm_place to = last ? comm_own(from) : kept ? comm_scratch(slot) : *left;
        if (kept && !last) slot += count;
        comm_build_combine(b, to, *left, right, count);
        *left = to;
    }
}

int comm_schedule_direct(comm_schedule *schedule, int me, int members, int64_t count, const comm_tree *tree)
{
    comm_build b = comm_build_in_place(schedule, me, members);
    const comm_parts parts = comm_parts_even(&b, count);
    const comm_subgroup all = comm_whole_team(&b, &parts);
    if (!parts.at || members == 1) return schedule->status;
    reduce_fragments(&b, &parts, tree);
    comm_subgroup_spread(&b, &all, (comm_range){0, count});
    return schedule->status;
}

COMM_MAKE(allreduce, direct)
{
    comm_build b = comm_build_begin(schedule, p);
    const comm_range whole = {0, p->count};
    const comm_parts parts = comm_parts_even(&b, p->count);
    const comm_subgroup all = comm_whole_team(&b, &parts);
    if (!parts.at) return schedule->status;
    comm_range mine = comm_subgroup_reduce(&b, &all, whole);
    if (b.n > 1) comm_build_settle(&b, mine);
    comm_subgroup_spread(&b, &all, whole);
    return comm_build_end(&b, whole);
}

COMM_MAKE(reduce_scatter, direct)
{
    comm_build b = comm_build_begin(schedule, p);
    const comm_parts parts = comm_parts_of(&b, p->counts);
    const comm_subgroup all = comm_whole_team(&b, &parts);
    if (!parts.at) return schedule->status;
    const int64_t from = parts.at[b.me], mine = parts.count[b.me];
    /* in place it may lie across its sources */
    b.sum = p->in_place ? comm_scratch((b.n - 1) * mine - from) : comm_own(-from);
    b.brought = true;
    comm_subgroup_reduce(&b, &all, (comm_range){0, 0});
    if (p->in_place != (b.n == 1)) comm_build_copy(&b, comm_own(0), comm_build_mine(&b, from), mine);
    return schedule->status;
}

COMM_MAKE(allgather, direct)
{
    comm_build b = comm_build_begin(schedule, p);
    const comm_parts parts = comm_parts_of(&b, p->counts);
    const comm_subgroup all = comm_whole_team(&b, &parts);
    if (!parts.at) return schedule->status;
    if (!p->in_place) comm_build_copy(&b, comm_own(parts.at[b.me]), comm_input(0), parts.count[b.me]);
    comm_subgroup_spread(&b, &all, (comm_range){0, 0});
    return schedule->status;
}

COMM_MAKE(gather, direct)
{
    comm_build b = comm_build_begin(schedule, p);
    comm_parts of = comm_parts_of(&b, p->counts);
    if (!of.at) return KOLO_ENOMEM;
    if (b.me) comm_build_send(&b, 0, comm_input(0), of.count[b.me]);
    else if (!p->in_place) comm_build_copy(&b, comm_own(of.at[0]), comm_input(0), of.count[0]);
    for (int i = 1; !b.me && i < b.n; i++) comm_build_receive(&b, i, comm_own(of.at[i]), of.count[i]);
    comm_build_wait_all(&b);
    return schedule->status;
}

COMM_MAKE(scatter, direct)
{
    comm_build b = comm_build_begin(schedule, p);
    comm_parts of = comm_parts_of(&b, p->counts);
    if (!of.at) return KOLO_ENOMEM;
    if (b.me) comm_build_receive(&b, 0, comm_own(0), of.count[b.me]);
    for (int i = 1; !b.me && i < b.n; i++) comm_build_send(&b, i, comm_input(of.at[i]), of.count[i]);
    comm_build_wait_all(&b);
    if (!b.me && !(p->in_place && of.at[0] == 0))
        comm_build_copy(&b, comm_own(0), comm_input(of.at[0]), of.count[0]);
    return schedule->status;
}
