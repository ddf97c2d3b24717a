/* Collectives between the ranks of a job, for any C or C++ program: libkolo_comm.so, `pkg-config kolo-comm`.
 *
 * A world is all ranks of the job step, however it was started (srun with PMIx or pmi2, mpiexec, alone, or
 * from within a program that has called MPI_Init). A group is some of its ranks (a process set). A request is
 * one collective of one group.
 *
 * Two ways in. A request without a name is matched by order: the i-th unnamed request of a group on one
 * rank belongs to the i-th on every other, nothing is negotiated. A named request may be submitted in
 * any order on any rank: it begins when all ranks of the group have submitted that name, and small ones
 * that are ready together are fused. Both share the algorithms, and the bits of a result are the same on
 * all ranks of the group.
 *
 * Functions return 0 or a negative status (kolo/error.h) with a sentence in kolo_error_text(). Requests that
 * do not match (shape, type, operation, root, ...) fail on EVERY rank of the group with KOLO_EINPUT and a
 * text that names the ranks and what each brought; nothing was sent, and the world stays usable. A dead or
 * stopped peer fails what waits for it within the deadline with KOLO_ELAUNCH, naming rank, host, operation
 * and how far it came; the world is then broken: every later call returns the same. So it is where an
 * allocation fails on a rank: KOLO_ENOMEM there, KOLO_ELAUNCH on the others. Between nodes MPI may
 * still write into the vectors of what was under way: keep them until the process ends. The survivors may go
 * on as a smaller world (kolo_world_shrink), or close it, end, and start the job again from a checkpoint,
 * with fewer nodes if need be.
 *
 * Vectors lie in host memory (pinned and managed memory of CUDA are that, too), or all of a
 * request's vectors, on all ranks, on GPUs: see below kolo_request. Some here and some there are a
 * request that does not match.
 *
 * Any thread may call. Nothing is allocated per call once a request of the same kind has been seen (but for
 * results of more than 256 MiB that the library makes, and objects). */
#ifndef KOLO_PUBLIC_WORLD_H
#define KOLO_PUBLIC_WORLD_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "kolo/dtype.h"
#include "kolo/error.h"

#ifdef __cplusplus
extern "C" {
#endif

/* Sums of f16 and bf16 are formed in f32 and rounded once, whatever the number of ranks: partial sums travel
 * between nodes as f32. Half the bytes: vectors of f32 with compression "bf16" or "fp16", whose owners add up
 * in f32 what came in 16 bits. Integer sums wrap; an integer average is the exact quotient, rounded toward
 * zero. NaN wins min and max. Of bools sum and max are "or", product and min are "and". */
enum kolo_reduce { KOLO_SUM, KOLO_AVERAGE, KOLO_MIN, KOLO_MAX, KOLO_PRODUCT, KOLO_ADASUM, KOLO_REDUCE_COUNT };

enum kolo_collective {
    KOLO_ALLREDUCE,
    /* cuts dim[0]; the first dim[0] mod n ranks get one row more; sum and average, min, max, product */
    KOLO_REDUCE_SCATTER,
    KOLO_ALLGATHER, /* dim[0] may differ from rank to rank; joined by rank */
    KOLO_BROADCAST,
    KOLO_GATHER, /* as allgather, at root only */
    /* root's dim[0] is cut by `splits` (NULL: as reduce_scatter); who gives an `out` brings the same dim[0]
     * and splits, by which it is known how much it holds */
    KOLO_SCATTER,
    KOLO_ALLTOALL, /* dim[0] is cut by `splits` (NULL: evenly, must divide) */
    KOLO_BARRIER,
    KOLO_JOIN,             /* this rank has no more data: see kolo_join */
    KOLO_SPARSE_ALLREDUCE, /* (index, row) pairs; see kolo_request */
    KOLO_COLLECTIVE_COUNT
};

typedef struct kolo_world kolo_world;
typedef struct kolo_group kolo_group;
typedef int64_t kolo_handle; /* of a submitted request; 0 is none. A handle that was released is recognised */

/* ---- the world ----------------------------------------------------------------------------------------- */

/* How a world begins. `size` set and all else zero is good: a field of 0, NULL or false asks the environment
 * variable that is named beside it, and then takes the value in brackets. */
typedef struct kolo_world_config {
    /* sizeof(kolo_world_config): which fields the program that was compiled knows; later ones are as 0. 0, or
     * more than the library knows: KOLO_ECONFIG */
    size_t size;
    /* -- who takes part -- */
    /* KOLO_COMM_METHOD ["auto"]: "pmix", "mpi", "slurm", "single" */
    const char *method;
    /* NULL, or an MPI_Comm * of a program that has called MPI_Init: the world is its ranks. Over several
     * nodes the library uses MPI where the program has thread level MULTIPLE, else (SERIALIZED) sockets. No
     * environment variable */
    const void *mpi_comm;

    /* -- how bytes travel -- */
    /* KOLO_COMM_TRANSPORT ["auto"], between nodes: "mpi", "tcp" (KOLO_COMM_INTERFACE: name or address of
     * its network interface) */
    const char *transport;
    /* KOLO_COMM_ALGORITHM [what the table or the model chooses]: forces one that `kolo bench --algorithms`
     * lists: NAME, or with its radices, whose product is the number of ranks, NAME:k=4x8x16 */
    const char *algorithm;
    /* KOLO_COMM_TABLE ["": this cluster's, if it was measured]: file of measured costs, written by `kolo
     * bench --tune`; "none" */
    const char *table;
    /* KOLO_COMM_SHARED [64 MiB]: this rank's part of the node's shared memory, for kolo_world_alloc */
    size_t shared_bytes;

    /* -- named requests -- */
    /* KOLO_COMM_FUSION [64 MiB]: bytes up to which those that are ready together are fused; 1: not at all */
    size_t fusion_bytes;
    /* KOLO_COMM_CYCLE [0: as they come]: seconds that the engine lets them gather */
    double cycle;
    /* KOLO_COMM_CACHE [1024]: names that a group remembers, so that asking again costs
     * one bit; negative: none */
    int cache;
    /* KOLO_COMM_AUTOTUNE: fusion_bytes and cycle are tuned while running */
    bool autotune;
    /* KOLO_COMM_FIXED_ORDER: they begin in the order in which the group's first member submits them, and only
     * what was submitted grouped is fused, so every run forms the same batches */
    bool fixed_order;

    /* -- seconds until a report -- */
    /* KOLO_COMM_TIMEOUT [300]: until a wait gives up */
    double timeout;
    /* KOLO_COMM_HEARTBEAT_TIMEOUT [8, at most the timeout]; KOLO_COMM_PATIENCE, its earlier name: without a
     * heartbeat until a rank is held to be stopped. A rank that computes gives them */
    double heartbeat_timeout;
    /* KOLO_COMM_STALL_WARNING [60]: until a name that some rank has not submitted is
     * reported; negative: never */
    double stall_warning;
    /* KOLO_COMM_STALL_END [0: never]: until that is an error on all ranks, also on those that submit it
     * later. The world stays usable */
    double stall_end;

    /* -- the trace -- */
    /* KOLO_COMM_TIMELINE [none]: folder for a Chrome trace of every rank */
    const char *timeline;
    /* KOLO_COMM_TIMELINE_BYTES [256 MiB]: that the trace of a rank takes; beyond that its older half goes */
    size_t timeline_bytes;
} kolo_world_config;

/* Collective over the job. One world a process at a time. config may be NULL. */
int kolo_world_open(kolo_world **world, const kolo_world_config *config);
/* Collective unless the world is broken. Requests still under way are completed first. What open began of MPI
 * or PMIx ends with the process, so that another world may be opened; MPI that the program began is left
 * alone. A program that ends (exit, return from main) without it does well if all ranks do; if others wait,
 * the world breaks after the heartbeat timeout, and they are notified. */
void kolo_world_close(kolo_world **world);
/* This rank cannot go on: every rank's waits end with `reason`. Not collective. */
void kolo_world_abort(kolo_world *world, const char *reason);

/* The survivors of a broken world go on: *world is closed, and becomes a new world of those that are left, in
 * their old order (its sockets and shared memory are new, and nothing of the old ones stays). Collective over
 * the survivors, who learn of the break at different times: a rank that lives is waited for up to the
 * timeout, one that is dead not at all, one that is stopped for the heartbeat timeout. If more die meanwhile,
 * the others agree anew, until all that are left have opened one world. After a break without a death
 * (kolo_world_abort) it is of all ranks that call.
 *
 * Requests that were under way have ended with the text of the break. Handles, groups, memory of
 * kolo_world_alloc and what compression held back go with the old world; no other thread may be in a call
 * about it. A timeline that was configured goes on in FOLDER/shrunk.
 *
 * least: with fewer survivors KOLO_ELAUNCH on all of them; the same everywhere. 0: more than half of the old
 * world's ranks, which excludes that a network that fell apart leaves two worlds. Who asks for half or less
 * takes that risk.
 *
 * KOLO_EINPUT: the world is whole, or of one rank; KOLO_ECONFIG: its nodes talk over MPI, which cannot
 * shrink: open it with transport=tcp (one node needs neither). Then nothing was changed. After any other
 * error *world is NULL: KOLO_ELAUNCH, for one, where the others went on without this rank, since it was
 * stopped and woke too late (it disturbs nobody), or where all that are left were stopped themselves.
 *
 * The launcher must not end the survivors: srun --no-kill --kill-on-bad-exit=0 (against KillOnBadExit=1 of
 * slurm.conf); MPICH's mpiexec -disable-auto-cleanup, which passes on nothing of what they print then. It
 * knows of no shrink: PMIx and MPI are not finalized after it, and a program that called MPI_Init itself must
 * not finalize it either, and ends by _exit. */
int kolo_world_shrink(kolo_world **world, int least);

/* A Chrome trace of every rank in FOLDER/rank-N.json (and its older half in rank-N.older.json), written anew,
 * from here to stop or close; what a killed rank did up to its last quarter of a second is there. `kolo
 * timeline merge` joins them. Collective over the world; what is under way goes on. A rank that cannot write
 * there warns, and goes on without. Start where a timeline is being written, or without a folder on some
 * rank: KOLO_EINPUT on all. Stop without a start does nothing. */
int kolo_timeline_start(kolo_world *world, const char *folder);
int kolo_timeline_stop(kolo_world *world);

int kolo_world_rank(const kolo_world *world);
int kolo_world_size(const kolo_world *world);
int kolo_world_local_rank(const kolo_world *world);
int kolo_world_local_size(const kolo_world *world);
int kolo_world_node(const kolo_world *world);
int kolo_world_nodes(const kolo_world *world);

/* Memory that the ranks of the node share: vectors that lie in it are reduced in place, without a copy.
 * KOLO_ECONFIG when shared_bytes is used up. Not collective. */
int kolo_world_alloc(kolo_world *world, size_t bytes, void **memory);
void kolo_world_free(kolo_world *world, void *memory);

/* ---- groups -------------------------------------------------------------------------------------------- */

/* All ranks; id 0; cannot be freed. */
kolo_group *kolo_world_group(kolo_world *world);
/* Collective over ALL ranks of the world, with the same list everywhere (members are numbered by world
 * rank). A rank twice, a rank out of range, the same set again, a rank whose node has no shared memory left
 * for it: KOLO_EINPUT on all ranks, and nothing is left of it; where an allocation fails on a rank, likewise,
 * but KOLO_ENOMEM on that rank. A rank that is no member gets a group too, which it may only free. */
int kolo_group_create(kolo_group **group, kolo_world *world, const int *ranks, int count);
/* The groups that an MPI communicator of the program cuts out: every rank brings its own communicator.
 * Collective over all ranks. */
int kolo_group_create_mpi(kolo_group **group, kolo_world *world, const void *mpi_comm);
/* collective over all ranks; requests under way are completed first */
int kolo_group_free(kolo_group **group);
int kolo_group_rank(const kolo_group *group); /* -1: not a member */
int kolo_group_size(const kolo_group *group);
int kolo_group_id(const kolo_group *group); /* the same on all ranks; used again after a free */

/* ---- requests ------------------------------------------------------------------------------------------ */

enum { KOLO_REQUEST_DIMS = 8 };

/* One collective. Fields that mean nothing to `what` are not read. */
typedef struct kolo_request {
    enum kolo_collective what;
    const char *name; /* NULL: matched by order. Copied */
    enum kolo_dtype type;
    enum kolo_reduce reduce;
    int root; /* member of the group */
    /* factors on what goes in and what comes out; 0 counts as 1. Integers are scaled in f64 */
    double prescale, postscale;

    /* stays untouched; NULL: in place: what this rank brings stands at the beginning of `out`, where
     * the result then begins */
    const void *in;
    /* of what this rank brings; dims 0: one element. Broadcast: the same on all ranks (kolo_broadcast_object
     * sends what only root knows). Scatter: others than root bring as many dimensions; without an `out`
     * their dim[0] is not read */
    int dims;
    int64_t dim[KOLO_REQUEST_DIMS];
    /* NULL: the library makes it, see kolo_output (the only way where its size is not known before) */
    void *out;
    const int64_t *splits; /* [group size] rows of dim[0] for every member. Copied */

    const char *compression; /* of allreduce of f32 (sum, average), see below; NULL: none */

    /* Sparse: [dim[0]] row numbers of `in` (dim[0] rows of dim[1] elements); rows named twice add up.
     * All members' rows go to all, so what is sent grows with the group, but is never more than an
     * allreduce of all `rows` */
    const int64_t *index;
    /* sparse: rows of the dense matrix; up to 2^63 - 1 where no `out` asks for all of them, so row
     * numbers may be hashes */
    int64_t rows;
} kolo_request;

/* Vectors on GPUs. What lies in a GPU's memory alone (cudaMalloc) on all ranks of the group is moved and
 * reduced there by NCCL 2.18 or later: all collectives but sparse ones, of all types (u16 and i16 are moved,
 * not reduced), without Adasum and compression; unnamed, named, fused, grouped, scaled, in any groups, some
 * of them at the same time. That takes libkolo_comm_cuda.so (`make CUDA=1`) beside this library, or named by
 * KOLO_CUDA_LIBRARY. Otherwise, and where ranks share a GPU or one lacks NCCL, such a request fails on every
 * rank of the group, and the world stays usable.
 *
 * `out` must be given wherever there is a result. What the program has enqueued on the vectors must be done
 * before it submits them; a complete request is done on the GPU, too. A rank is served on one GPU, that of
 * the first vector which it brings; one that has joined takes part there, if it has brought one. All ranks
 * get the same bits, but not those of host memory: sums are formed in NCCL's order, f16 and bf16 rounded on
 * the way, and NaN in min and max is as NCCL has it. Factors and averages are as above. The first request
 * of a group, and its first named one, wait for NCCL to connect the ranks; closing a group or the world
 * waits for it as well.
 *
 * Order: within a group that of the requests, which the library sees to; between groups none, so ranks may
 * submit to several groups in any order, each in its own, and need not wait for one before the other. For a
 * group has two communicators of NCCL, for its unnamed and its named requests, with a CUDA stream each, which
 * wait for nothing of the program's or of another group. What NCCL asks of communicators that are used at
 * once is left to the program: that their kernels find room on a GPU together. One whose blocks do not fit
 * waits for others to end, and those perhaps for ranks where it came first, for ever (KOLO_COMM_TIMEOUT
 * tells). Each takes as many multiprocessors as NCCL has channels in it: with many groups under way at once
 * lower NCCL_MAX_CTAS, until their sum is less than the GPU has, or wait for one group's requests before the
 * next one's. Nor may a rank wait for its whole GPU (cudaDeviceSynchronize, cudaFree) before it has submitted
 * what others wait for there.
 *
 * Run so far on a stand-in for GPUs and NCCL only (tests/standin), not on real ones. */

/* Compression, between all members, also those of one node:
 *
 *   bf16, fp16        summed in f32: one rounding in, one out. Groups of up to 512
 *   int8              with a scale for 256 elements, rounded stochastically
 *   topk[:DENSITY]    the share of largest elements [0.01]
 *   powersgd[:RANK]   the vector as a matrix of dim[0] rows, row by row, of that rank [4]
 *
 * Behind topk, with commas between: momentum=M, which each member accumulates before it chooses, in the place
 * of the optimizer's (Deep Gradient Compression, arXiv:1712.01887); clip=C: the norm of what a member brings
 * is held at C / sqrt(members); warmup=N: calls over which the density falls from 1/4. Behind topk and
 * powersgd: start=N calls that are not compressed yet. For example
 * "topk:0.001,momentum=0.9,clip=4,warmup=1000".
 *
 * topk and powersgd send later what they leave out now: they need a name, and what waits is kept under it (as
 * many bytes as the vector has, with momentum twice) until the group is freed, or the name comes back with
 * another shape or compression. */

/* The vectors (in, out, index) stay the library's until the request is complete. handle may be NULL only for
 * barriers. A request that is wrong in itself (no such root, splits that sum up to too much) goes the way of
 * all others, so that every rank of the group learns of it: kolo_wait says so. */
int kolo_submit(kolo_group *group, const kolo_request *request, kolo_handle *handle);
/* Some named allreduces (or allgathers, reduce-scatters, broadcasts) that begin only when all of them
 * are ready on all ranks, and are fused together (broadcasts of one root; of any types). Either all
 * are submitted or none. */
int kolo_submit_grouped(kolo_group *group, const kolo_request *request, int count, kolo_handle *handle);
/* 1: complete (or failed: wait says how); 0: not yet; KOLO_EINPUT: no such handle. */
int kolo_test(kolo_world *world, kolo_handle handle);
/* Waits, and says how it ended. A handle of a request with an `out` of the caller's is released by this;
 * otherwise kolo_release does. Threads may wait for one handle together: all of them get the same answer, and
 * the last one releases it; a later call fails: there is no such handle. */
int kolo_wait(kolo_world *world, kolo_handle handle);

typedef struct kolo_output {
    const void *data; /* of the library, until kolo_release */
    int dims;
    int64_t dim[KOLO_REQUEST_DIMS];
    /* [group size] rows that came from every member (allgather, gather, alltoall); NULL otherwise */
    const int64_t *splits;
    /* sparse: [dim[0]] row numbers, ascending; NULL: the result is dense, dim[0] = rows */
    const int64_t *index;
    int last; /* join: the last rank that joined */
} kolo_output;
/* After kolo_wait has returned 0. */
int kolo_result(kolo_world *world, kolo_handle handle, kolo_output *output);
void kolo_release(kolo_world *world, kolo_handle handle);

/* What compressed sums of the group hold back on this rank (errors, momentum, factors, the count of calls;
 * of named requests), for a checkpoint. A run that goes on from it has the bits of one that was not
 * stopped, if all members save after the same request and restore before the next. Not collective; what the
 * rank has under way in the group is completed first. *state is the library's, until kolo_release_object;
 * its bytes are of this machine's order and of this rank. restore: what is held back is then what `state`
 * (at a multiple of 8 bytes) says, under the names it had, and nothing else. KOLO_EINPUT, and nothing was
 * changed: it is damaged, or of another member or group size; or named requests of others are carried while
 * this rank has joined. */
int kolo_group_state_save(kolo_group *group, void **state, size_t *bytes);
int kolo_group_state_restore(kolo_group *group, const void *state, size_t bytes);

/* ---- blocking, matched by order ------------------------------------------------------------------------ */
/* Collective over the group, in the same order on all members, so two threads of a rank must not race with
 * unnamed calls of one group. in may be NULL: in place, as in a request. */

/* count: elements. */
int kolo_allreduce(kolo_group *group, const void *in, void *out, int64_t count, enum kolo_dtype type,
                   enum kolo_reduce reduce);
/* count: elements in all; this member's part (first (count mod n) members: one more) goes to out. */
int kolo_reduce_scatter(kolo_group *group, const void *in, void *out, int64_t count, enum kolo_dtype type,
                        enum kolo_reduce reduce);
/* counts: [group size] elements of every member, the same on all, or NULL: `count` each. */
int kolo_allgather(kolo_group *group, const void *in, void *out, int64_t count, const int64_t *counts,
                   enum kolo_dtype type);
int kolo_broadcast(kolo_group *group, void *data, int64_t count, enum kolo_dtype type, int root);
int kolo_gather(kolo_group *group, const void *in, void *out, int64_t count, const int64_t *counts,
                enum kolo_dtype type, int root);
int kolo_scatter(kolo_group *group, const void *in, void *out, int64_t count, const int64_t *counts,
                 enum kolo_dtype type, int root);
/* send[i]: elements for member i; receive[i]: from member i. Parts lie one behind the other. */
int kolo_alltoall(kolo_group *group, const void *in, const int64_t *send, void *out, const int64_t *receive,
                  enum kolo_dtype type);
int kolo_barrier(kolo_group *group);
/* No more data on this rank. Until all ranks of the group have joined, it takes part in the others' named
 * allreduces with the neutral element of the reduction (sum 0, product 1, min the largest, ...), and an
 * average counts the ranks that brought data; other named collectives fail on the ranks that ask for them.
 * *last: the last rank that joined, the same on all. */
int kolo_join(kolo_group *group, int *last);
/* Root's bytes, whose number the others need not know: *data is the library's, until kolo_release_object. */
int kolo_broadcast_object(kolo_group *group, const void *mine, size_t bytes, int root, void **data,
                          size_t *got);
void kolo_release_object(void **data);

#ifdef __cplusplus
}
#endif
#endif
