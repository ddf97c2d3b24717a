/* How the owners of a slice sum it between the nodes: the selector's choice, as in the library half, but always in the fixed order unless another one is asked for by name. */
#include <stdlib.h>
#include <string.h>

#include "base/memory.h"
#include "comm/algorithm/build.h"
#include "comm/inside.h"
#include "kolo/error.h"

static bool forced(const kolo_comm *comm) { return comm_selector_asks(comm->choice.selector, KOLO_ALLREDUCE, -1, 0); /* no line of a table is of -1 members */ }

int comm_choice_open(kolo_comm *comm, const kolo_comm_config *config)
{
    comm_choice *c = &comm->choice;
    int nodes = comm->launch->nodes;
    KOLO_TRY(comm_table_open(&c->selector, config->table, config->algorithm));
    if (config->algorithm && *config->algorithm && strcmp(config->algorithm, "auto") != 0 && !forced(comm))
        return kolo_fail(KOLO_ECONFIG, "comm: algorithm %s is none of allreduce; `kolo bench --algorithms` lists them", config->algorithm);
    KOLO_TRY(comm_selector_check(c->selector, nodes));
    c->apart = kolo_alloc((size_t)nodes * sizeof *c->apart);
    for (int n = 0; c->apart && n < nodes; n++) c->apart[n] = n;
    return c->apart ? 0 : KOLO_ECONFIG;
}

void comm_choice_close(kolo_comm *comm)
{
    comm_selector_close(&comm->choice.selector);
    free(comm->choice.apart);
    comm->choice.apart = NULL;
}

uint32_t comm_choice_digest(const kolo_comm *comm) { return comm_selector_digest(comm->choice.selector); }

static const comm_algorithm_row *choose(kolo_comm *comm, comm_problem *p)
{
    comm_choice *c = &comm->choice;
    int64_t bytes = p->count * (int64_t)p->width;
    if (c->row && c->bytes == bytes) {
        p->radix = c->radix;
        p->segment = c->segment;
        return c->row;
    }
    const comm_algorithm_row *row = comm_algorithm_select(p, c->selector);
    *c = (comm_choice){c->selector, c->apart, row, bytes, p->segment, p->radix};
    return row;
}

int comm_choice_make(kolo_comm *comm, comm_schedule *schedule, int64_t count, size_t width)
{
    const kolo_launch *l = comm->launch;
    comm_problem p = {.what = KOLO_ALLREDUCE,
                      .me = l->node,
                      .members = l->nodes,
                      .in_place = true,
                      .fixed = true,
                      .count = count,
                      .width = width,
                      .node_of = comm->choice.apart};
    const comm_algorithm_row *row = choose(comm, &p);
    if (!comm->tree.plain && (!forced(comm) || strcmp(row->name, "direct") == 0)) return comm_schedule_direct(schedule, l->node, l->nodes, count, &comm->tree);
    if (comm->canonical && (!comm->tree.plain || !row->ordered(&p)))
        return kolo_fail(KOLO_ECONFIG, "comm: algorithm %s has no canonical order%s", row->name,
                         comm->tree.plain ? "; take auto" : " over this placement of ranks; take auto or direct");
    return row->make(schedule, &p);
}
