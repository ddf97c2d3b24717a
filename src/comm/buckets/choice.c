/* How the owners of a slice sum it between the nodes: the selector's choice, as in the library half, but
 * always in the fixed order unless another one is asked for by name. */
#include <stdlib.h>
#include <string.h>

#include "base/memory.h"
#include "comm/algorithm/build.h"
#include "comm/buckets/group.h"
#include "comm/buckets/inside.h"
#include "kolo/error.h"

/* no line of a table is of -1 members */
static bool forced(const kolo_comm *comm)
{
    return comm_selector_asks(comm->choice.selector, KOLO_ALLREDUCE, -1, 0);
}

int comm_choice_open(kolo_comm *comm, const kolo_comm_config *config)
{
    comm_choice *c = &comm->choice;
    int nodes = comm->launch->nodes;
    KOLO_TRY(comm_allreduce_open(&c->selector, config->table, config->algorithm));
    KOLO_TRY(comm_selector_check(c->selector, nodes));
    c->apart = kolo_alloc((size_t)nodes * sizeof *c->apart);
    c->counts = kolo_alloc((size_t)nodes * sizeof *c->counts);
    for (int n = 0; c->apart && n < nodes; n++) c->apart[n] = n;
    return c->apart && c->counts ? 0 : KOLO_ENOMEM;
}

void comm_choice_close(kolo_comm *comm)
{
    comm_selector_close(&comm->choice.selector);
    free(comm->choice.apart);
    free(comm->choice.counts);
}

/* By all that it depends on: ranks of several groups ask in other orders than their peers. */
static const comm_algorithm_row *choice_choose(comm_choice *c, comm_problem *p)
{
    int64_t largest = 0;
    for (int n = 0; n < p->members; n++)
        if (p->counts[n] > largest) largest = p->counts[n];
    if (!c->row || c->largest != largest || c->chosen.what != p->what || c->chosen.members != p->members ||
        c->chosen.count * (int64_t)c->chosen.width != p->count * (int64_t)p->width) {
        c->largest = largest;
        c->chosen = *p;
        c->row = comm_algorithm_select(&c->chosen, c->selector);
    }
    p->radix = c->chosen.radix;
    p->segment = c->chosen.segment;
    p->links = c->chosen.links;
    return c->row;
}

int comm_choice_make(kolo_comm *comm, const comm_group *group, enum kolo_collective what,
                     comm_schedule *schedule, int64_t count, const int64_t *sizes, size_t width)
{
    const kolo_launch *l = group->launch;
    const comm_tree *tree = &group->tree;
    comm_problem p = {.what = what,
                      .me = l->node,
                      .members = l->nodes,
                      .in_place = what != KOLO_REDUCE_SCATTER,
                      .fixed = true,
                      .count = count,
                      .width = width,
                      .counts = comm->choice.counts,
                      .node_of = comm->choice.apart};
    for (int n = 0; n < l->nodes; n++)
        comm->choice.counts[n] =
            sizes ? sizes[n] : comm_part(count, l->nodes, n + 1) - comm_part(count, l->nodes, n);
    const comm_algorithm_row *row = choice_choose(&comm->choice, &p);
    if (what == KOLO_ALLGATHER) return row->make(schedule, &p);
    if (!tree->plain && (!forced(comm) || strcmp(row->name, "direct") == 0))
        return comm_schedule_direct(schedule, l->node, l->nodes, count, tree);
    if (comm->canonical && (!tree->plain || !row->ordered(&p)))
        return kolo_fail(KOLO_ECONFIG, "comm: algorithm %s has no canonical order%s", row->name,
                         tree->plain ? "; take auto" : " over this placement of ranks; take auto or direct");
    return row->make(schedule, &p);
}

int comm_choice_transfer(comm_schedule *schedule, bool sends, int64_t count)
{
    comm_build b = comm_build_in_place(schedule, !sends, 2);
    if (sends) comm_build_send(&b, 1, comm_own(0), count);
    else comm_build_receive(&b, 0, comm_own(0), count);
    comm_build_wait_all(&b);
    return schedule->status;
}
