/* Comm: moves and reduces bytes between ranks. Knows nothing of models. The host half is
 * public: include/kolo/buckets.h; here stands what is for this program alone: sums in a GPU's
 * memory, and the watchdog. */
#ifndef KOLO_COMM_COMM_H
#define KOLO_COMM_COMM_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "kolo/comm.h"
#include "launch/launch.h"
#include "comm/compress/compress.h"

/* Collective. kolo_comm_create with arena and sums in a GPU's memory (reducer.h; NULL: in host memory).
 * device is read by this call only; its streams must outlive the communicator. kolo_comm_commit then also
 * reduces every bucket once, so that what a library connects at first use is connected and a path that does
 * not work is found now: the arena must still be zero. */
typedef struct kolo_comm_device kolo_comm_device;
int kolo_comm_create_on(kolo_comm **comm, kolo_launch *launch, const kolo_comm_config *config,
                        const kolo_comm_device *device);

/* Before commit: as kolo_comm_bucket_of, a sum over the group of `count` f64. Its number. */
int kolo_comm_bucket_f64(kolo_comm *comm, int group, size_t offset, int64_t count);

/* Before commit, as kolo_comm_bucket_of: a bucket of f32 tensors of count[] elements, one behind the other
 * from byte `offset` on, that are combined by Adasum (adasum.h), each by itself; its number. First the
 * group's ranks of every node, in their order, then the nodes in theirs, both in the tree of adasum.h;
 * average: the ranks of a node are averaged instead. All ranks get the same bits. Not with canonical sums,
 * nor with a reducer that leaves host memory out (kolo_comm_device.host). */
int kolo_comm_bucket_adasum(kolo_comm *comm, int group, size_t offset, const int64_t *count, int tensors,
                            bool average);

/* kolo_comm_wait and kolo_comm_sum have the host wait: without a device, and with one whose sums go through
 * host memory. */
bool kolo_comm_host_waits(const kolo_comm *comm);
/* With a device, start, wait and sum come from one thread and go in the order of its compute stream; unless
 * the host waits they only enqueue, and may be captured into a graph that is replayed (in the same order on
 * all ranks). What goes wrong shows here: 0, or the first failure since create, from any thread. A failed
 * communicator lets the streams run on with wrong numbers, so that no host waits for ever: a caller that
 * waited for results must ask before believing them. Graphs go before the communicator. */
int kolo_comm_status(kolo_comm *comm);
/* This rank goes no further, for the reason that stands in the error text. Sums under way are given up, so
 * that nothing here waits for them on the way out, and the other ranks learn of it. Returns rc, with the same
 * text. */
int kolo_comm_abort(kolo_comm *comm, int rc);
/* Without a device: is a bucket or transfer that was started complete? 1: kolo_comm_wait returns at once;
 * 0: not yet; or the error that it would end with. */
int kolo_comm_host_test(kolo_comm *comm, int bucket);

/* Collective: 0 where all ranks gave 0; else each failing rank's own status, and on the others that
 * of the first, named. */
int kolo_comm_agree(kolo_comm *comm, int status);

/* The ranks that it was made for. */
const kolo_launch *kolo_comm_launch(const kolo_comm *comm);

/* Resident in this process of the memory that other ranks of the node own, bytes: theirs is counted there. */
size_t kolo_comm_peer_bytes(const kolo_comm *comm);

/* A rank that computes with one thread takes a core for it, where the ranks of its node are more than its
 * processors: acquired before it goes on computing, as often as it likes (when its turn is over the next rank
 * has it), and released when it computes no more. Waits for other ranks release it by themselves. So ranks
 * share processors evenly, which the kernel does only if they compute for some 100 ms at a time. Elsewhere
 * both do nothing. */
void kolo_comm_acquire_core(kolo_comm *comm);
void kolo_comm_release_core(kolo_comm *comm);
/* How long a turn is, of so many ranks on fewer cores. */
double kolo_comm_turn_seconds(int ranks, int cores);
/* How long a rank of one node looks for what it waits for before it sleeps, about. */
double kolo_comm_poll_seconds(int ranks, int cores);

/* Where every rank stands, for the watchdog and for failure reports: each rank publishes a step, the number
 * of an action in its own program (-1: between steps), and what that action is in words (at most 52 bytes;
 * "": its number alone); readable by the ranks of the same node at any time, without locks. Steps of ranks
 * are compared, actions are not: who waits for whom follows from buckets and transfers. With a device a
 * thread looks ten times a second: a rank of the node that died, or that stands within a step for longer than
 * the timeout, breaks the communicator. */
void kolo_comm_publish(kolo_comm *comm, int64_t step, int64_t action);
void kolo_comm_publish_text(kolo_comm *comm, int64_t step, int64_t action, const char *text);
/* Of local peer `local_rank`: last published, and seconds since (by that rank's clock on the same
 * machine). */
void kolo_comm_peer(kolo_comm *comm, int local_rank, int64_t *step, int64_t *action, double *age);

/* The compiled half with compressed sums between nodes: what a rank's slice of a bucket becomes on its
 * node is summed over nodes by a codec (compress/compress.h). Within a node nothing changes. It covers the
 * allreduces and reduce_scatters of f32 of the groups that ask for it (these send as many bytes as those), no
 * allgathers and no transfers. A communicator without it takes none of these paths. */
/* Before commit, with the same arguments on all ranks, for any number of groups (0: all ranks) with one
 * config. matrix: elements of the whole arena of the group's members, ascending; copied. KOLO_ECONFIG:
 * sums that are canonical, or of a reducer that does not go through host memory, between nodes. COMM_NONE:
 * nothing happens. */
int kolo_comm_compress(kolo_comm *comm, int group, const comm_compress *config, const comm_matrix *matrix,
                       int matrices);

/* After commit: memory of this rank that is no arena and that its sums will have touched: scratch of lanes
 * between nodes, and codecs. */
size_t kolo_comm_own_bytes(const kolo_comm *comm);
/* The same before there is a communicator, about: of a rank that is one of `local` on each of `nodes`, for
 * buckets of count[] f32 that begin with element at[]. *state: of it what compression carries, or 0. */
int kolo_comm_plan_own_bytes(const comm_compress *config, int local, int nodes, const int64_t *at,
                             const int64_t *count, int buckets, const comm_matrix *matrix, int matrices,
                             size_t *bytes, size_t *state);

/* After commit, while no bucket is under way. Bytes of what a rank carries from step to step, the same on
 * all ranks; 0: nothing. */
size_t kolo_comm_rank_state_bytes(const kolo_comm *comm);
void kolo_comm_rank_state_save(const kolo_comm *comm, void *to);
/* KOLO_EINPUT: it is of another rank, grid or recipe; nothing was changed. */
int kolo_comm_rank_state_load(kolo_comm *comm, const void *from);

#endif
