/* Buckets, groups and transfers for programs that know their vectors before the first step: libkolo_comm.so,
 * `pkg-config kolo-comm`. (Collectives of any request: kolo/world.h, which this includes.)
 *
 * The compiled way in: one arena per rank, in memory that the ranks of a node share; fixed buckets, which are
 * slices of it; start and wait. No negotiation, no copy, no allocation after kolo_comm_commit.
 * One progress thread per rank owns all MPI calls; another sends heartbeats, to other nodes over sockets
 * (KOLO_COMM_INTERFACE). On a node: each rank owns a slice of the bucket, reduces it over all local arenas in
 * rank order in 64 KiB blocks, and writes the result into every arena. Between nodes: the owners of the same
 * slice reduce among themselves over MPI, by the algorithm that the library's selector chooses.
 *
 * Order of an element's sum: the ranks of a node in rank order, then the binary tree over nodes that splits
 * at the largest power of two below their number; with canonical that tree over ranks. Neither buckets,
 * counts nor algorithm change the bits, except for those (only by name) that have another order, such as
 * rings. All ranks get the same bits.
 *
 * MPI is at SERIALIZED: from start to wait, and within every call, the progress thread uses it; otherwise it
 * is free. So a process has at most one communicator over several nodes in use at a time. A communicator
 * whose peer died or was late stays broken: every further call returns that error at once. */
#ifndef KOLO_PUBLIC_COMM_H
#define KOLO_PUBLIC_COMM_H

#include "kolo/world.h"

#ifdef __cplusplus
extern "C" {
#endif

typedef struct kolo_comm kolo_comm;
typedef struct kolo_launch kolo_launch;

/* The ranks that a world stands on, for kolo_comm_create: the communicator goes before the world. On several
 * nodes only one of them may be in use at a time, as both call MPI. */
kolo_launch *kolo_world_launch(kolo_world *world);

/* `size` set and all else zero, but arena_bytes, is good. */
typedef struct kolo_comm_config {
    /* sizeof(kolo_comm_config): which fields the program that was compiled knows; later ones are as 0. 0, or
     * more than the library knows: KOLO_ECONFIG */
    size_t size;
    size_t arena_bytes; /* equal on all ranks */
    /* sum in the fixed binary tree over ranks (split at the largest power of two below n), whatever the
     * nodes: the same bits as one process that sums the ranks' parts in that tree */
    bool canonical;
    /* seconds a wait may last before it fails with KOLO_ELAUNCH and names the rank that lags */
    double timeout; /* 0: 300 */
    int spin;       /* polls before a futex wait; -1: chosen from CPUs and local ranks */
    /* between nodes: NULL or "auto", or the name of one (`kolo bench --algorithms`), which
     * may have another order */
    const char *algorithm;
    /* file of measured costs (`kolo bench --tune`), equal on all ranks; NULL or "": this cluster's, if it was
     * measured; "none". Never changes the order of sums */
    const char *table;
    /* seconds without a heartbeat until a rank is held to be stopped, at most the timeout; 0: 8. A rank that
     * computes gives them */
    double heartbeat_timeout;
    /* of arena_bytes, from the front, those in which this rank's buckets and transfers lie: only they take
     * memory. 0: all */
    size_t used_bytes;
    /* most buckets and transfers that a rank is in, at most 32000, equal on all ranks: each takes 128 bytes
     * of memory of its node. 0: 4096 */
    int buckets;
} kolo_comm_config;

/* Collective. With size 1 everything below is immediate. */
int kolo_comm_create(kolo_comm **comm, kolo_launch *launch, const kolo_comm_config *config);
/* Collective unless the job is failing. Removes its shared segments (they are also unlinked right after
 * mapping, so a killed job leaves nothing behind). */
void kolo_comm_destroy(kolo_comm **comm);

/* This rank's arena: used_bytes, zeroed, touched, aligned to 64 bytes. Owned by comm. */
void *kolo_comm_arena(kolo_comm *comm);

/* Before commit: declares bucket number 0, 1, ...: `count` f32 elements at byte `offset` of the arena, to be
 * summed over ranks. Same calls on all ranks. */
int kolo_comm_bucket(kolo_comm *comm, size_t offset, int64_t count);

/* Some of the ranks, ascending, as a group with buckets of its own; returns its number from 1 on (0: all
 * ranks), the same for the same ranks, or a negative status. Any number of groups may overlap; one of a
 * single rank costs nothing. What a group starts is ordered by itself: its ranks start its buckets in one
 * order, whatever the order in which they start those of other groups. Like everything that is declared:
 * before commit, the same calls with the same arguments on all ranks, members or not. */
int kolo_comm_group(kolo_comm *comm, const int *ranks, int count);
/* A bucket of a group: KOLO_ALLREDUCE; KOLO_REDUCE_SCATTER: every member has its part (kolo_comm_part) of the
 * sum, and elsewhere in the bucket undefined numbers; KOLO_ALLGATHER: of members' parts. A reduce_scatter and
 * an allgather make the bits of an allreduce (but by NCCL, whose orders are its own). Members have it at the
 * same offset of their arenas. Returns its number (they are counted on with those of kolo_comm_bucket), or a
 * negative status. */
int kolo_comm_bucket_of(kolo_comm *comm, int group, enum kolo_collective what, size_t offset, int64_t count);
/* Ranks that can own parts of a group's buckets, in the order of these parts; returns how many. ranks: the
 * members, ascending; owner: [count]. Without a communicator, of the ranks that one stands on; not
 * collective. Where nodes have different numbers of members, those of a node above the smallest number own
 * nothing. KOLO_EINTERNAL: ranks that are not ascending, or not of the launch. */
int kolo_comm_owners(const kolo_launch *launch, const int *ranks, int count, int *owner);
/* As kolo_comm_bucket_of for KOLO_REDUCE_SCATTER or KOLO_ALLGATHER, but owner i of kolo_comm_owners has the
 * elements from first[i] on, size[i] of them, maybe none. Parts cover the bucket and do not overlap; those of
 * owners with the same place on their nodes, also where they are empty, follow one another in the order of
 * nodes, which is the order of owners. Anything else: KOLO_EINTERNAL, and nothing is declared. first, size:
 * copied. Buckets may lie on the same bytes, where they are used in turns. */
int kolo_comm_bucket_cut(kolo_comm *comm, int group, enum kolo_collective what, size_t offset, int64_t count,
                         const int64_t *first, const int64_t *size);
/* `bytes` from rank to rank, arena to arena; its number among the buckets, or a negative status. Start: the
 * sender's bytes are written; the receiver's place is free. It never waits for the other. Wait: the sender
 * may write there again; the receiver has them. Any number in flight; transfers from one rank to another
 * begin in the order of their starts, the same on both. On a node one copy, between nodes MPI; on GPUs NCCL,
 * or copies through page-locked memory. */
int kolo_comm_transfer(kolo_comm *comm, int from, int to, size_t from_offset, size_t to_offset, size_t bytes);
/* Of a bucket that this rank has a share in: the elements that `rank`, a member, owns; maybe none. */
int kolo_comm_part(const kolo_comm *comm, int bucket, int rank, int64_t *first, int64_t *count);
/* Collective: checks that all ranks declared the same. */
int kolo_comm_commit(kolo_comm *comm);

/* The bucket's last gradient of this rank is written: the reduction may begin. Returns at once. A group's
 * buckets must be started in the same order on all its ranks (any order). */
int kolo_comm_start(kolo_comm *comm, int bucket);
/* Returns when the reduced values are in this rank's arena. Error: a peer is dead, stopped or late: named
 * within 10 s (of the deadline), with how far every rank came. */
int kolo_comm_wait(kolo_comm *comm, int bucket);

/* Sum of `count` f64 over ranks, in place, identical on all; after commit. data: memory of the
 * communicator's device. */
int kolo_comm_sum(kolo_comm *comm, double *data, int64_t count);

/* "nccl 2.28.9", "staged", "shared memory", "shared memory + MPI", "none" */
const char *kolo_comm_name(const kolo_comm *comm);

/* Small blocking collectives in host memory, run by the progress thread in the order of the calls; same order
 * on all ranks, not while a bucket is in flight on another thread's behalf unless that order is the same
 * everywhere. In place. Sums are formed in the same order as a bucket's, identical on all ranks. Data of a
 * broadcast is NULL on a rank that does not want it and only takes part. */
int kolo_comm_allreduce(kolo_comm *comm, void *data, int64_t count, enum kolo_dtype type,
                        enum kolo_reduce op);
int kolo_comm_broadcast(kolo_comm *comm, void *data, size_t bytes, int root);
/* all: size * bytes at root */
int kolo_comm_gather(kolo_comm *comm, const void *mine, size_t bytes, void *all, int root);
int kolo_comm_barrier(kolo_comm *comm);

/* Totals since create: bytes reduced (by NCCL: as enqueued, replays not counted), seconds the host waited in
 * kolo_comm_wait; transfers from this rank that are over, and their bytes. */
typedef struct kolo_comm_stats {
    double wait_seconds;
    int64_t bytes, calls;
    int64_t sent, sent_bytes;
} kolo_comm_stats;
void kolo_comm_get_stats(const kolo_comm *comm, kolo_comm_stats *stats);

#ifdef __cplusplus
}
#endif
#endif
