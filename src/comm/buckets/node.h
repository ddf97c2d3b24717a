/* The ranks of one node: what they share, and how they reduce a bucket together without locks. Works on any
 * memory that all of them see. */
#ifndef KOLO_COMM_NODE_H
#define KOLO_COMM_NODE_H

#include <pthread.h>
#include <sched.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stdint.h>

#include "comm/buckets/trainer.h"
#include "comm/core/adasum.h"
#include "comm/core/kernel.h"
#include "comm/core/schedule.h"
#include "comm/core/transport/life.h"
#include "launch/launch.h"

enum {
    COMM_MAX_LOCAL = COMM_FOLD_MAX,    /* ranks on a node */
    COMM_BUCKETS = 4096,               /* of one rank, where it does not say how many it declares */
    COMM_MAX_BUCKETS = 32000,          /* of one rank, at most: their tags are below what MPI guarantees */
    COMM_MAX_DECLARED = 1 << 22,       /* of all groups */
    COMM_TICKETS = 2 * COMM_MAX_LOCAL, /* of ranks that wait for a core, and of cores that wait for one */
    COMM_STAGE = 262144,               /* bytes a rank brings to one round of a small collective */
    COMM_BLOCK = 16384,                /* elements (64 KiB of f32) that one thread reduces at a time */
};

/* Of one rank's share of one bucket. Counters only grow, so a round needs no reset: round g of a slice of b
 * blocks is reduced when g b are finished. */
typedef struct comm_slice {
    _Alignas(64) _Atomic uint64_t claimed; /* blocks, as comm_claim counts them */
    _Atomic uint64_t finished;             /* blocks, over all rounds */
    _Atomic uint64_t started;              /* rounds this rank has started: how far it came */
    /* this rank's caller polls the bucket now and will help */
    _Atomic uint32_t watching;
    /* 1 + rank of another node whose message this share waits for; 0: none */
    _Atomic int32_t lagging;
} comm_slice;

/* Of one bucket, in the leader's memory. */
typedef struct comm_shared_bucket {
    _Alignas(64) _Atomic uint64_t arrived; /* starts, over all rounds and local ranks */
    _Atomic uint64_t slices;               /* slices finished, over all rounds */
    _Atomic uint32_t done;                 /* last finished round */
    _Atomic uint32_t sleepers;
} comm_shared_bucket;

/* Of one slot. */
typedef struct comm_slot {
    comm_slice slice;
    comm_shared_bucket bucket; /* leader only */
} comm_slot;

/* Small collectives. */
enum comm_meeting {
    COMM_BARRIER,
    COMM_ALLREDUCE,
    COMM_BROADCAST,
    COMM_GATHER,
    COMM_MEETINGS = COMM_MAX_BUCKETS + 1
};

/* One rank's place in the queue for a core: 1 + the processor that it was given, or 0; who waits, by its
 * number in that namespace of processes (an inode). */
typedef struct comm_ticket {
    _Atomic uint32_t core;
    _Atomic int32_t thread;
    _Atomic uint64_t names;
} comm_ticket;

/* What each rank puts into shared memory, before its arena. */
typedef struct comm_control {
    comm_life life;
    _Alignas(64) _Atomic int64_t step, action; /* published */
    _Atomic int64_t published;                 /* nanoseconds */
    /* begun last: a bucket's slot + 1; COMM_MEETINGS + a meeting's kind; 0: nothing yet */
    _Atomic uint32_t doing;
    _Atomic int32_t number;                         /* of that bucket, as it was declared */
    _Alignas(64) _Atomic uint32_t doorbell, asleep; /* of the progress thread */
    /* 1 + rank of another node whose part of a small collective the progress thread waits for; 0: none */
    _Atomic int32_t lagging;
    _Alignas(64) _Atomic uint32_t entered; /* small collectives begun by this rank */
    _Alignas(64) _Atomic uint32_t gathered, released, result, sleepers; /* leader only: see collective.c */
    _Alignas(64) _Atomic uint32_t taken, given; /* leader only: tickets of ranks, and of cores */
    comm_ticket ticket[COMM_TICKETS];           /* leader only: number n is in [n % COMM_TICKETS] */
    _Alignas(64) char staging[2][COMM_STAGE];
    comm_slot slot[COMM_MAX_BUCKETS]; /* as many as the communicator has (kolo_comm_config) are there */
} comm_control;

typedef struct comm_members {
    int first, n; /* local ranks of a fragment: they follow one another, as its ranks do */
} comm_members;

typedef struct comm_node {
    const kolo_launch *launch;
    /* of the communicator, whose life and waits count: this one, or of a group the one that it is a part
     * of */
    struct comm_node *world;
    int me, ranks; /* local */
    int nodes;     /* of the job */
    /* slices of a large bucket: local ranks, or what every node has when there are several */
    int rails;
    int *rank_of;           /* [ranks] */
    comm_control **control; /* [ranks] */
    char **arena;           /* [ranks] */
    bool tree;              /* canonical */
    int fragments;          /* of this node; 1 unless canonical on several nodes */
    comm_members *fragment;
    int spin;
    double timeout;
    comm_segments segments;
    struct {
        _Atomic int64_t since; /* nanoseconds; 0: this rank waits for nobody, or has only begun to */
        _Atomic(const struct comm_node *) of; /* for these ranks */
        _Atomic int bucket;                   /* its slot; -1: a meeting */
        _Atomic uint64_t round;
    } waits;
    struct {
        int count;     /* of the node's processors; 0: every rank has one of its own */
        cpu_set_t all; /* them */
        uint64_t names;
        uint32_t own;     /* 1 + the processor that this rank was given; 0: none */
        pthread_t holder; /* its thread */
        double since;     /* when it was given */
        double turn;      /* seconds that it is given for, if others want it */
    } cores;
    size_t arena_offset, collect_offset;
} comm_node;

/* One bucket as this process sees it. */
typedef struct comm_bucket {
    int index;  /* its slot in comm_control, and tag: the same on all its ranks */
    int number; /* as it was declared */
    int slices;
    int declared;             /* its group's number */
    struct comm_group *group; /* whose ranks reduce it; NULL: of others than this rank */
    /* KOLO_ALLREDUCE; KOLO_REDUCE_SCATTER, KOLO_ALLGATHER: parts as comm_bucket_part says; KOLO_BROADCAST: a
     * transfer from local or node 0 to the other one */
    enum kolo_collective what;
    size_t offset; /* bytes in the arena */
    size_t to;     /* of a transfer: in the receiver's */
    bool apart;    /* between nodes a reduce_scatter's part is formed in its lane's memory */
    int64_t count; /* elements */
    enum kolo_dtype type;
    int64_t *tensor; /* [tensors + 1] Adasum: the element where each begins; NULL: the bucket is summed */
    int *first;      /* [slices + 1] Adasum: the tensor with which each slice begins */
    int tensors;
    int64_t *part; /* [2][parts] cut by the caller: where each owner's part begins, and its elements */
    int parts;
    bool average; /* Adasum: between nodes only */
    /* How the slice that this rank owns goes between nodes, from commit on: by the schedule, or by the
     * codec's, round by round. On one node both are empty. */
    comm_schedule schedule;
    comm_codec *codec;
    _Atomic uint64_t round; /* started by this rank */
    uint64_t waited;
} comm_bucket;

/* Slices of a bucket: the same on every node. */
int comm_bucket_slices(int64_t count, int rails);
/* The element with which slice s begins, and the one behind it. Slices of an Adasum bucket are of whole
 * tensors. */
int64_t comm_bucket_slice(const comm_bucket *bucket, int s);
int64_t comm_bucket_slice_end(const comm_bucket *bucket, int s);
/* What member (node, local) has of it after a reduce_scatter, and before an allgather. */
void comm_bucket_part(const comm_bucket *bucket, int nodes, int node, int local, int64_t *first,
                      int64_t *count);

/* This rank's part of the round is written. True: it was the last of the node, the reduction may begin. */
bool comm_node_arrive(comm_node *node, comm_bucket *bucket, uint64_t round);
/* Reduces one free block, own slice first. False: not all have arrived, or nothing is left to take. */
bool comm_node_work(comm_node *node, const comm_bucket *bucket, uint64_t round);
bool comm_node_arrived(const comm_node *node, const comm_bucket *bucket, uint64_t round);
/* All blocks of slice s are reduced (several nodes: into this node's part of the sum). */
bool comm_node_reduced(const comm_node *node, const comm_bucket *bucket, uint64_t round, int s);
/* Slice s holds the whole sum in every local arena; the last slice of the round ends it. */
void comm_node_slice_done(comm_node *node, const comm_bucket *bucket, uint64_t round);
bool comm_node_done(const comm_node *node, const comm_bucket *bucket, uint64_t round);
/* Where fragment f of this node is summed: the arena of this local rank. */
int comm_node_sum_rank(const comm_node *node, int f, int slice);
/* Helps, then sleeps until the round is done. */
int comm_node_wait(comm_node *node, const comm_bucket *bucket, uint64_t round);

/* cores.c: where its ranks share fewer processors, all the same ones. */
void comm_cores_open(comm_node *node);
/* By the thread that has a core, before it sleeps; by others it does nothing. */
void comm_cores_release(comm_node *node);

/* Wakes the progress thread of a local rank. */
void comm_node_ring(comm_node *node, int local);

/* All local ranks meet; seq counts meetings from 1, equal on all. */
int comm_node_meet(comm_node *node, uint32_t seq, enum comm_meeting what);
/* Waits until the leader has put up the result of meeting seq. */
int comm_node_result(comm_node *node, uint32_t seq);
const char *comm_meeting_name(enum comm_meeting what);
void comm_node_release(_Atomic uint32_t *word, uint32_t value, _Atomic uint32_t *sleepers);

/* Breaks the communicator for all ranks of the node; the first text wins. Returns status
 * with the winning text. */
int comm_node_break(comm_node *node, const char *text);
static inline bool comm_node_broken(const comm_node *node)
{
    return comm_life_broken(&node->world->control[0]->life);
}
/* 0, or KOLO_ELAUNCH with the winning text. */
static inline int comm_node_check(const comm_node *node)
{
    return comm_life_check(&node->world->control[0]->life);
}

/* The leader's space for gathering. */
static inline char *comm_shm_collect(const comm_node *node)
{
    return (char *)node->control[0] + node->collect_offset;
}

#endif
