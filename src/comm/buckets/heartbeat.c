/* Heartbeats of the compiled half: what the ranks of this node do, and whom this rank waits for. Who
 * is dead, stopped or late is found, and reported to all nodes, as in the library half: by a router, here
 * one without messages. */
#include <stdio.h>
#include <string.h>

#include "base/memory.h"
#include "base/thread.h"
#include "comm/buckets/inside.h"

static uint64_t reached(const comm_node *node, int local, int bucket, uint64_t round)
{
    if (bucket >= 0) return atomic_load(&node->control[local]->slot[bucket].slice.started);
    uint32_t entered = atomic_load(&node->control[local]->entered);
    return round + (uint64_t)(int64_t)(int32_t)(entered - (uint32_t)round);
}

/* A rank of this node that has not come; or, as all have, one whose message a progress thread of
 * this node waits for. */
static int awaits(void *of, double *late)
{
    const kolo_comm *comm = of;
    const comm_node *world = &comm->world.node,
                    *node = atomic_load_explicit(&world->waits.of, memory_order_acquire);
    int64_t since = atomic_load_explicit(&world->waits.since, memory_order_relaxed);
    int bucket = atomic_load_explicit(&world->waits.bucket, memory_order_relaxed);
    uint64_t round = atomic_load_explicit(&world->waits.round, memory_order_relaxed);
    *late = since ? kolo_time() - 1e-9 * (double)since : 0;
    if (!since || !node) return -1;
    for (int l = 0; l < node->ranks; l++)
        if ((int64_t)(reached(node, l, bucket, round) - round) < 0) return node->rank_of[l];
    for (int l = 0; l < node->ranks; l++) {
        const comm_control *c = node->control[l];
        const _Atomic int32_t *lagging = bucket >= 0 ? &c->slot[bucket].slice.lagging : &c->lagging;
        const int rank = atomic_load_explicit(lagging, memory_order_relaxed);
        if (rank > 0) return rank - 1;
    }
    return -1;
}

/* "bucket 3", "bucket 3 of ranks 0, 2", "send 5 to rank 1", "receive 5 from rank 0": of rank `rank`. Until
 * all are declared their list may still move. */
static void name_bucket(const kolo_comm *comm, int number, int rank, char *text, size_t bytes)
{
    const bool there = comm->committed && number >= 0 && number < comm->buckets;
    const comm_bucket *b = there ? &comm->bucket[number] : NULL;
    const comm_group *group = b ? comm->group[b->declared] : &comm->world;
    const int *ranks = group->rank, size = group->launch->size;
    if (group->pair && ranks[0] == rank) snprintf(text, bytes, "send %d to rank %d", number, ranks[1]);
    else if (group->pair) snprintf(text, bytes, "receive %d from rank %d", number, ranks[0]);
    else if (group == &comm->world) snprintf(text, bytes, "bucket %d", number);
    else {
        snprintf(text, bytes, "bucket %d of ranks", number);
        for (int r = 0; r < size && strlen(text) < bytes - 16; r++)
            kolo_append(text, bytes, "%s %d", r ? "," : "", ranks[r]);
        if (strlen(text) >= bytes - 16) kolo_append(text, bytes, ", ...");
    }
}

/* Where a rank stands: in a step, by that rank's own program and its own words for the action, else by the
 * bucket it started last. Equal numbers of actions mean nothing, as ranks of a pipeline run different
 * programs. */
static void position(void *of, int local, comm_position *position)
{
    const kolo_comm *comm = of;
    const comm_node *node = &comm->world.node;
    const comm_control *c = node->control[local];
    const uint32_t doing = atomic_load_explicit(&c->doing, memory_order_relaxed);
    const int number = atomic_load_explicit(&c->number, memory_order_relaxed);
    const int64_t published = atomic_load_explicit(&c->published, memory_order_acquire),
                  reported = atomic_load_explicit(&c->life.reported_at, memory_order_relaxed);
    const long long step = atomic_load_explicit(&c->step, memory_order_relaxed),
                    action = atomic_load_explicit(&c->action, memory_order_relaxed);
    const int64_t at = published && action >= 0 ? published : reported > published ? reported : published;
    const bool bucket = doing > 0 && doing <= COMM_MAX_BUCKETS;
    char *text = position->operation, what[48] = "", own[8 * COMM_OPERATION_WORDS];
    const size_t bytes = sizeof position->operation;
    position->sequence = (uint64_t)step;
    position->age = at ? kolo_time() - 1e-9 * (double)at : -1;
    comm_life_get_text(&c->life, own);
    if (bucket) name_bucket(comm, number, node->rank_of[local], what, sizeof what);
    if (published && action >= 0 && (*own || bucket))
        snprintf(text, bytes, "%.52s, action %lld of step", *own ? own : what, action);
    else if (published && action >= 0) snprintf(text, bytes, "action %lld of step", action);
    else if (bucket && !published) {
        snprintf(text, bytes, "%s, round", what);
        position->sequence = atomic_load_explicit(&c->slot[doing - 1].slice.started, memory_order_relaxed);
    } else if (doing && !bucket && reported > published) {
        const char *meeting = comm_meeting_name((enum comm_meeting)(doing - COMM_MEETINGS));
        if (published) snprintf(text, bytes, "%s after step %lld,", meeting, step);
        else snprintf(text, bytes, "%s", meeting);
        position->sequence = atomic_load_explicit(&c->entered, memory_order_relaxed);
    } else snprintf(text, bytes, "what follows step");
}

int comm_open_router(kolo_comm *comm, const kolo_comm_config *config, int status)
{
    comm_node *node = &comm->world.node;
    const comm_router_config own = {.between = "mpi",
                                    .timeout = node->timeout,
                                    .heartbeat_timeout = config->heartbeat_timeout,
                                    .segments = &node->segments,
                                    .status = status,
                                    .awaits = awaits,
                                    .position = position,
                                    .of = comm};
    return comm_router_open(&comm->router, comm->launch, &own);
}
