/* The communicator, for the files of this room. */
#ifndef KOLO_COMM_INSIDE_H
#define KOLO_COMM_INSIDE_H

#include "comm/algorithm/algorithm.h"
#include "comm/buckets/trainer.h"
#include "comm/compress/compress.h"
#include "comm/buckets/progress.h"
#include "comm/buckets/reducer.h"
#include "comm/buckets/node.h"
#include "comm/core/config.h"
#include "comm/core/transport/router.h"
#include "comm/core/schedule.h"

/* The half that sums in a GPU's memory, and the thread that watches it: device.c, watch.c. */
typedef struct comm_device {
    const kolo_reducer_type *type; /* NULL: arena and buckets lie in host memory */
    kolo_reducer *reducer;
    char name[64];
    pthread_t watch;
    bool watched;
    _Atomic uint32_t stop;
} comm_device;

/* Which algorithm sums between nodes; the last choice is kept. */
typedef struct comm_choice {
    comm_selector *selector;
    int *apart;      /* [nodes] the node of every member: its own */
    int64_t *counts; /* [nodes] elements of every node's part */
    const comm_algorithm_row *row;
    comm_problem chosen; /* what it was chosen for, as it was left by the choice */
    int64_t largest;     /* part of a node then */
} comm_choice;

struct kolo_comm {
    kolo_launch *launch; /* the caller's */
    comm_group world;    /* all ranks: group 0 */
    comm_group **group;  /* [groups] those that were declared, the world first */
    int64_t groups, groups_room;
    int *slot; /* [size] buckets of every rank so far */
    comm_engine engine;
    comm_router *router; /* of life, and between nodes of messages; heartbeat.c */
    comm_device device;
    bool canonical;
    _Atomic bool committed; /* nothing is declared any more: other threads may read what is */
    int slots;              /* of one rank: buckets and transfers that it can be in */
    comm_choice choice;
    size_t arena_bytes, collect_bytes;
    size_t used_bytes; /* of the arena that are this rank's, and take memory */
    void *alone;       /* the host arena when there is one rank */
    comm_bucket *bucket;
    int64_t buckets, capacity;
    bool published_text;    /* the last position that was published has a text */
    uint32_t seq;           /* meetings so far; the same on all ranks of the node */
    comm_schedule small;    /* of the network part of a small collective */
    comm_compress compress; /* between nodes; compressed.c */
    size_t carried_bytes;   /* from step to step, the largest of all ranks */
    _Atomic int64_t wait_ns, bytes, calls, sent, sent_bytes;
};

static inline bool comm_alone(const kolo_comm *comm) { return comm->launch->size == 1; }
/* Buckets are summed in host memory, for the caller or for a reducer. */
static inline bool comm_on_host(const kolo_comm *comm)
{
    return !comm->device.type || comm->device.type->through_host;
}

/* Lanes for small collectives between nodes; the leader's only. */
int comm_collective_open(kolo_comm *comm);

/* Collective; before the first wait. status: of what this rank did before; one that failed fails all. */
int comm_open_router(kolo_comm *comm, const kolo_comm_config *config, int status);

/* declare.c. Close: the lanes first, while the transport is there. */
int comm_declare_open(kolo_comm *comm);
void comm_declare_close_lanes(kolo_comm *comm, bool *busy);
void comm_declare_close(kolo_comm *comm);
/* Of all that must be equal on all ranks, from the buckets on; compare: collective. */
uint64_t comm_declaration(const kolo_comm *comm);
int comm_declarations_compare(kolo_comm *comm);

/* The codec of this rank's slice of a bucket: elements from .. from + count of the arena. */
int comm_compressed_make(const kolo_comm *comm, comm_bucket *bucket, int64_t from, int64_t count);
int comm_compressed_agree(kolo_comm *comm); /* collective, at the end of commit */
uint64_t comm_compressed_hash(const kolo_comm *comm, uint64_t hash);

/* combined.c. make: the schedule between nodes of this rank's slice. */
int comm_combined_make(comm_bucket *bucket);

/* choice.c. make: the schedule between a group's nodes, in the communicator's order of sums. KOLO_ALLREDUCE
 * of `count` elements in place on COMM_OWN; KOLO_REDUCE_SCATTER: from COMM_INPUT to this node's part in
 * COMM_OWN, but in the place of all where the order of sums is not that over nodes (tree.plain);
 * KOLO_ALLGATHER of the parts in place. sizes: [nodes] elements of every node's part; NULL: even. transfer:
 * of COMM_OWN, from member 0 to member 1. */
int comm_choice_open(kolo_comm *comm, const kolo_comm_config *config);
void comm_choice_close(kolo_comm *comm);
int comm_choice_make(kolo_comm *comm, const comm_group *group, enum kolo_collective what,
                     comm_schedule *schedule, int64_t count, const int64_t *sizes, size_t width);
int comm_choice_transfer(comm_schedule *schedule, bool sends, int64_t count);

/* Collective: which row all ranks can use; sets device.type and name. Before the host half is opened. */
int comm_device_choose(kolo_comm *comm, const kolo_comm_config *config, const kolo_comm_device *device);
int comm_device_open(kolo_comm *comm, const kolo_comm_config *config, const kolo_comm_device *device);
int comm_device_commit(kolo_comm *comm);
void comm_device_close(kolo_comm *comm, bool orderly);
void comm_device_abort(kolo_comm *comm, const char *text); /* breaks both halves */

int comm_watch_start(kolo_comm *comm);
void comm_watch_stop(kolo_comm *comm);

#endif
