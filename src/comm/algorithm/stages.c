/* Reduce-scatter and allgather in stages, each within small subgroups of members: butterflies of mixed
 * radix (gloo's Bcube), and groups whose owners go on alone. Groups are nodes, or levels of any factors
 * (split rail; BlueConnect, Cho et al., SysML 2019), or twos and threes (3-2 elimination, Rabenseifner
 * and Träff, EuroPVM/MPI 2004). */
#include "comm/algorithm/build.h"

#include "comm/algorithm/stages.h"

COMM_MAKE(allreduce, butterfly)
{
    comm_build b = comm_build_begin(schedule, p);
    comm_range r = {0, p->count}, before[COMM_STAGES];
    comm_subgroup subgroup[COMM_STAGES];
    int radix[COMM_STAGES], stages = comm_radices_of(COMM_FACTORS, p->members, &p->radix, radix);
    for (int i = 0, stride = 1; i < stages; stride *= radix[i++]) {
        int digit = b.me / stride % radix[i];
        subgroup[i] = (comm_subgroup){b.me - digit * stride, stride, radix[i], radix[i], digit, NULL};
        before[i] = r;
        r = comm_subgroup_reduce(&b, &subgroup[i], r);
    }
    comm_build_widen(&b, r);
    comm_build_settle(&b, r);
    for (int i = stages - 1; i >= 0; i--) comm_subgroup_spread(&b, &subgroup[i], before[i]);
    return comm_build_end(&b, (comm_range){0, p->count});
}

/* The team is whole groups one after the other; first: [groups + 1] where each begins, NULL: groups of k[0].
 * The first members of each group, as many as in the least (owners), own the group's sums; what they own they
 * sum with those of the same place in all groups, a rail, by the levels k[1], k[2], ... The last rail has no
 * levels. memory: [twice the team] */
static void by_groups(comm_build *b, comm_range whole, size_t width, const int *first, int groups, int owners,
                      const int *k, int *memory)
{
    if (groups == 1 && !first) {
        if (comm_length(whole) * (int64_t)width <= COMM_RAIL_SMALL) {
            comm_double(b, whole);
            comm_build_settle(b, whole);
        } else {
            comm_halve(b, whole);
        }
        return;
    }
    int mine = first ? 0 : b->me / owners, start = mine * owners, size = owners;
    if (first) {
        while (first[mine + 1] <= b->me) mine++;
        start = first[mine];
        size = first[mine + 1] - start;
    }
    comm_subgroup subgroup = {start, 1, size, owners, b->me - start, NULL};
    comm_range part = comm_subgroup_reduce(b, &subgroup, whole);
    comm_build_widen(b, part);
    if (groups == 1) comm_build_settle(b, part);
    if (subgroup.me < owners && groups > 1) {
        comm_build r = *b;
        for (int g = 0; g < groups; g++)
            memory[g] = comm_member(b, (first ? first[g] : g * owners) + subgroup.me);
        r.member = memory;
        r.me = mine;
        r.n = groups;
        by_groups(&r, part, width, NULL, k[1] ? groups / k[1] : 1, k[1] ? k[1] : groups, &k[1],
                  memory + groups);
        b->brought = false;
    }
    b->settled = true;
    comm_subgroup_spread(b, &subgroup, whole);
}

COMM_MAKE(allreduce, elimination_32)
{
    comm_build b = comm_build_begin(schedule, p);
    int n = p->members, groups = n > 1 ? comm_power_until(n) / 2 : 1, extra = n - 2 * groups;
    int *first = comm_build_memory(&b, (size_t)(3 * n + 1) * sizeof *first);
    const int none[2] = {0};
    if (!first) return schedule->status;
    for (int g = 0; g < groups; g++) {
        int size = n == 1 ? 1 : 2 + extra / groups + (g < extra % groups);
        first[g + 1] = first[g] + size;
    }
    by_groups(&b, (comm_range){0, p->count}, p->width, first, groups, n > 1 ? 2 : 1, none, first + n + 1);
    return comm_build_end(&b, (comm_range){0, p->count});
}

int comm_group_nodes(const int *node_of, int n, int *order, int *first, int *least)
{
    int groups = 0, filled = 0;
    *least = n;
    for (int i = 0; i < n; i++) {
        bool seen = false;
        for (int g = 0; g < groups && !seen; g++) seen = !node_of || node_of[order[first[g]]] == node_of[i];
        if (seen) continue;
        first[groups] = filled;
        for (int k = i; k < n; k++)
            if (!node_of || node_of[k] == node_of[i]) order[filled++] = k;
        if (filled - first[groups] < *least) *least = filled - first[groups];
        first[++groups] = filled;
    }
    return groups;
}

void comm_number_members(const comm_problem *p, int *order)
{
    int n = p->members, *by_node = order + n, *first = by_node + n, least, at = 0, node = 0;
    comm_group_nodes(p->node_of, n, by_node, first, &least);
    if (comm_rooted(p->what)) {
        while (by_node[at] != p->root) at++;
        while (first[node + 1] <= at) node++;
    }
    const int from = first[node], size = first[node + 1] - from; /* of the root's node */
    for (int i = 0; i < n; i++) order[i] = by_node[i < size ? from + (at - from + i) % size : (from + i) % n];
}

void comm_deal_members(const comm_problem *p, int *order)
{
    int n = p->members, *by_node = order + n, *first = by_node + n, least;
    int nodes = comm_group_nodes(p->node_of, n, by_node, first, &least);
    for (int filled = 0, i = 0; filled < n; i++)
        for (int g = 0; g < nodes; g++)
            if (first[g] + i < first[g + 1]) order[filled++] = by_node[first[g] + i];
}

int comm_nodes(const int *node_of, int n)
{
    uint64_t seen[1024] = {0}; /* by their last 16 bits: costs may err where there are more nodes */
    int nodes = 0;
    for (int i = 0; i < n; i++) {
        unsigned node = node_of ? (unsigned)node_of[i] % 65536 : 0;
        nodes += !(seen[node / 64] >> node % 64 & 1);
        seen[node / 64] |= UINT64_C(1) << node % 64;
    }
    return nodes;
}

COMM_MAKE(allreduce, two_level)
{
    comm_build b = comm_build_begin(schedule, p);
    int n = p->members, owners, radix[COMM_STAGES + 1] = {0},
        steps = comm_radices_of(COMM_LEVELS, n, &p->radix, radix);
    int *order = comm_build_memory(&b, (size_t)(4 * n + 1) * sizeof *order),
        *first = order ? order + n : NULL;
    comm_range whole = {0, p->count};
    if (!order) return schedule->status;
    if (steps) {
        by_groups(&b, whole, p->width, NULL, steps > 1 ? n / radix[0] : 1, radix[0], radix, first + n + 1);
    } else { /* nodes may be of unlike sizes */
        int groups = comm_group_nodes(p->node_of, n, order, first, &owners);
        by_groups(&b, whole, p->width, first, groups, owners, radix, first + n + 1);
    }
    return comm_build_end(&b, whole);
}
