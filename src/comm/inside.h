/* The communicator, for the files of this room. */
#ifndef KOLO_COMM_INSIDE_H
#define KOLO_COMM_INSIDE_H

#include "comm/comm.h"
#include "comm/engine.h"
#include "comm/shm.h"

struct kolo_comm {
    kolo_launch *launch; /* the caller's */
    comm_node node;
    comm_tree tree; /* between nodes */
    comm_engine engine;
    bool canonical, committed;
    int algorithm; /* enum comm_algorithm, as asked for */
    size_t arena_bytes, collect_bytes;
    void *alone; /* the arena when there is one rank */
    comm_bucket *bucket;
    int64_t buckets, capacity;
    uint32_t seq;        /* meetings so far; the same on all ranks of the node */
    comm_schedule small; /* of the network part of a small collective */
    _Atomic int64_t wait_ns, bytes, calls;
};

static inline bool comm_alone(const kolo_comm *comm) { return comm->launch->size == 1; }

/* Lanes for small collectives between nodes; the leader's only. */
int comm_collective_open(kolo_comm *comm);
/* The network algorithm that sums `bytes` in this communicator's order. */
int comm_pick_algorithm(const kolo_comm *comm, int64_t bytes);

#endif
