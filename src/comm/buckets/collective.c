/* Small blocking collectives. Every rank brings a chunk to its staging buffer, all meet, and on one node
 * each takes what it needs straight from there; on several, the leader's progress thread carries it to the
 * other leaders. The staging buffers alternate: who comes to meeting n + 1 is done with reading what was
 * brought to meeting n. */
#include <string.h>

#include "base/memory.h"
#include "comm/algorithm/build.h"
#include "comm/buckets/group.h"
#include "comm/buckets/inside.h"
#include "kolo/error.h"

enum { SMALL_TAG = COMM_MAX_BUCKETS + 1 };

static char *stage_of(kolo_comm *comm, int local)
{
    return comm->world.node.control[local]->staging[comm->seq & 1];
}

static int meet(kolo_comm *comm, enum comm_meeting what)
{
    KOLO_TRY(comm_node_check(&comm->world.node));
    return comm_node_meet(&comm->world.node, comm->seq, what);
}

/* The leader asks for the network part, everyone waits for its end. own: the vector's place on the leader. */
static int across(kolo_comm *comm, char *own, int type, int op)
{
    comm_engine *e = &comm->engine;
    if (comm->world.node.me == 0) {
        e->small.buffer[COMM_OWN] = own;
        comm_lane_begin(&e->small, &comm->small, e->leader_of, type, op, kolo_dtype_size(type), SMALL_TAG);
        comm_engine_small(e, comm->seq);
    }
    return comm_node_result(&comm->world.node, comm->seq);
}

static void fold_fragment(kolo_comm *comm, int f, void *sum, int64_t count, int type, int op)
{
    const comm_node *node = &comm->world.node;
    const comm_members *m = &node->fragment[f];
    const comm_folding how = {.type = type, .op = op, .tree = node->tree};
    const void *source[COMM_MAX_LOCAL];
    for (int i = 0; i < m->n; i++) source[i] = stage_of(comm, m->first + i);
    comm_fold(&how, &sum, 1, source, m->n, count);
}

/* Sums this node's fragments, each at one rank, and starts the schedule between the leaders. */
static int reduce_across(kolo_comm *comm, int64_t count, int type, int op)
{
    comm_node *node = &comm->world.node;
    size_t width = kolo_dtype_size(type);
    for (int f = 0; node->me == 0 && f < node->fragments; f++) {
        char *sum = comm->engine.small.buffer[COMM_PART + f] = stage_of(comm, comm_node_sum_rank(node, f, 0));
        fold_fragment(comm, f, sum, count, type, op);
    }
    if (node->me == 0)
        KOLO_TRY(comm_choice_make(comm, &comm->world, KOLO_ALLREDUCE, &comm->small, count, NULL, width));
    return across(comm, stage_of(comm, 0), type, op);
}

static int allreduce_chunk(kolo_comm *comm, enum comm_meeting what, char *data, int64_t count, int type,
                           int op)
{
    comm_node *node = &comm->world.node;
    size_t bytes = (size_t)count * kolo_dtype_size(type);
    comm->seq++;
    memcpy(stage_of(comm, node->me), data, bytes);
    KOLO_TRY(meet(comm, what));
    if (node->nodes > 1) {
        KOLO_TRY(reduce_across(comm, count, type, op));
        memcpy(data, stage_of(comm, 0), bytes);
        return 0;
    }
    fold_fragment(comm, 0, data, count, type, op);
    return 0;
}

int kolo_comm_allreduce(kolo_comm *comm, void *data, int64_t count, enum kolo_dtype type, enum kolo_reduce op)
{
    if (count < 0 || !comm_combine_of(type, op))
        return kolo_fail(KOLO_EINTERNAL, "kolo_comm_allreduce: count %lld, type %d, op %d", (long long)count,
                         (int)type, (int)op);
    if (comm_alone(comm)) return 0;
    int64_t most = COMM_STAGE / (int64_t)kolo_dtype_size(type);
    for (int64_t at = 0; at < count; at += most) {
        char *chunk = (char *)data + (size_t)at * kolo_dtype_size(type);
        KOLO_TRY(allreduce_chunk(comm, COMM_ALLREDUCE, chunk, count - at < most ? count - at : most,
                                 (int)type, (int)op));
    }
    if (op == KOLO_AVERAGE) comm_scale(data, data, count, type, comm->launch->size, 1);
    return 0;
}

int kolo_comm_barrier(kolo_comm *comm)
{
    char token = 0;
    return comm_alone(comm) ? 0 : allreduce_chunk(comm, COMM_BARRIER, &token, 1, KOLO_U8, KOLO_MAX);
}

int kolo_comm_broadcast(kolo_comm *comm, void *data, size_t bytes, int root)
{
    const kolo_launch *launch = comm->launch;
    if (root < 0 || root >= launch->size)
        return kolo_fail(KOLO_EINTERNAL, "kolo_comm_broadcast: root %d of %d", root, launch->size);
    if (comm_alone(comm)) return 0;
    int from = launch->node_of[root] == launch->node ? launch->local_of[root] : 0;
    for (size_t at = 0; at < bytes; at += COMM_STAGE) {
        size_t some = bytes - at < COMM_STAGE ? bytes - at : COMM_STAGE;
        comm->seq++;
        if (launch->rank == root) memcpy(stage_of(comm, from), (char *)data + at, some);
        KOLO_TRY(meet(comm, COMM_BROADCAST));
        if (comm->world.node.nodes > 1) {
            const comm_problem p = {.what = KOLO_BROADCAST,
                                    .me = launch->node,
                                    .members = launch->nodes,
                                    .root = launch->node_of[root],
                                    .in_place = true,
                                    .count = (int64_t)some,
                                    .width = 1};
            if (comm->world.node.me == 0) KOLO_TRY(comm_make_broadcast_binomial(&comm->small, &p));
            KOLO_TRY(across(comm, stage_of(comm, from), KOLO_U8, KOLO_MAX));
        }
        if (launch->rank != root && data) memcpy((char *)data + at, stage_of(comm, from), some);
    }
    return 0;
}

/* Every rank's bytes, COMM_PART + local rank here, go to the root's node, rank after rank in COMM_OWN;
 * not those of the root's own node. */
static int gather_across(kolo_comm *comm, size_t some, int root)
{
    const kolo_launch *l = comm->launch;
    const int to = l->node_of[root];
    const int64_t count = (int64_t)some;
    comm_build b = comm_build_in_place(&comm->small, l->node, l->nodes);
    for (int r = 0; r < l->size && comm->world.node.me == 0; r++) {
        const int from = l->node_of[r], local = l->local_of[r];
        if (from == l->node) comm->engine.small.buffer[COMM_PART + local] = stage_of(comm, local);
        if (from == l->node && from != to) comm_build_send(&b, to, (comm_place){COMM_PART + local, 0}, count);
        if (from != l->node && l->node == to) comm_build_receive(&b, from, comm_own(r * count), count);
    }
    comm_build_wait_all(&b);
    KOLO_TRY(comm->small.status);
    return across(comm, comm_shm_collect(&comm->world.node), KOLO_U8, KOLO_MAX);
}

int kolo_comm_gather(kolo_comm *comm, const void *mine, size_t bytes, void *all, int root)
{
    const kolo_launch *launch = comm->launch;
    if (root < 0 || root >= launch->size)
        return kolo_fail(KOLO_EINTERNAL, "kolo_comm_gather: root %d of %d", root, launch->size);
    if (comm_alone(comm)) {
        if (bytes) memmove(all, mine, bytes);
        return 0;
    }
    size_t most = COMM_STAGE;
    if (comm->world.node.nodes > 1 && comm->collect_bytes / (size_t)launch->size < most)
        most = comm->collect_bytes / (size_t)launch->size;
    for (size_t at = 0; at < bytes; at += most) {
        size_t some = bytes - at < most ? bytes - at : most;
        comm->seq++;
        memcpy(stage_of(comm, comm->world.node.me), (const char *)mine + at, some);
        KOLO_TRY(meet(comm, COMM_GATHER));
        if (comm->world.node.nodes > 1) KOLO_TRY(gather_across(comm, some, root));
        for (int r = 0; launch->rank == root && r < launch->size; r++) {
            const char *from = launch->node_of[r] == launch->node
                                   ? stage_of(comm, launch->local_of[r])
                                   : comm_shm_collect(&comm->world.node) + (size_t)r * some;
            memcpy((char *)all + (size_t)r * bytes + at, from, some);
        }
    }
    return 0;
}

int comm_collective_open(kolo_comm *comm)
{
    const kolo_launch *launch = comm->launch;
    if (launch->nodes == 1 || launch->local_rank != 0) return 0;
    int64_t nodes = launch->nodes, fragments = comm->canonical ? comm->world.tree.fragments : nodes;
    int64_t requests = comm->world.node.fragments * nodes + fragments + 4 * nodes + launch->size + 64;
    /* shares of all fragments of one part */
    size_t direct = (size_t)fragments * (COMM_STAGE / (size_t)nodes + 256);
    comm_engine *e = &comm->engine;
    KOLO_TRY(comm_lane_open(&e->small, comm->router, comm->world.node.ranks));
    return comm_lane_reserve(&e->small, requests, direct > COMM_STAGE ? direct : COMM_STAGE);
}
