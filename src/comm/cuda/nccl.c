/* Buckets and transfers by NCCL. The group of all ranks has one communicator (link.h) on the communication
 * stream; every other group, and every pair in the direction of its transfers, has a communicator and a
 * stream of its own, since what NCCL does on one of them is done in order: so groups and pairs wait for
 * nothing of each other, as in host memory. They are joined by commit, one after the other in the order of
 * their declaration, which is the same on all ranks. One issuing thread.
 *
 * Kernels of communicators that are under way at once must find room on a GPU together: a receive holds
 * multiprocessors, as many as NCCL takes channels (NCCL_MAX_CTAS), from its start until the message has come.
 *
 * All ranks get the same bits, always. From run to run they are the same for the same ranks, machines and
 * settings, except where NVLink switches do the sums (NVLS), whose order is not fixed: deterministic=true
 * leaves those out. A reduce_scatter and an allgather need not make an allreduce's bits. Parts that the
 * caller cut go by a reduce or a broadcast each, grouped, unless they are what NCCL itself cuts. */
#include <stdlib.h>

#include "base/failure.h"
#include "base/log.h"
#include "base/memory.h"
#include "comm/cuda/link.h"
#include "comm/cuda/parts.h"

/* CALLS: in a group; NCCL's manual allows 2048 */
enum { RANKS_A_ROOT = 128, CLOSE_SECONDS = 20, CALLS = 1024 };

/* What carries one group's buckets. */
typedef struct nccl_channel {
    int group;
    bool used; /* by a bucket, of any rank */
    comm_link link;
    cudaStream_t stream;
} nccl_channel;

struct kolo_reducer {
    comm_cuda c;
    nccl_channel **channel; /* [channels] by the group's number; 0: all ranks */
    int64_t channels, room;
    comm_gpu_op move[CALLS];
    bool own_memory; /* the arena is NCCL's */
    void *registered;
};

static comm_link *world_link(const kolo_reducer *r) { return &r->channel[0]->link; }

/* Channels of groups up to this one are there, not joined yet. */
static int need_channel(kolo_reducer *r, int group)
{
    while (r->channels <= group) {
        KOLO_TRY(kolo_grow(&r->channel, &r->room, r->channels, sizeof *r->channel));
        nccl_channel *channel = kolo_alloc(sizeof *channel);
        if (!channel) return KOLO_ENOMEM;
        channel->group = (int)r->channels;
        comm_link_make(&channel->link);
        r->channel[r->channels++] = channel;
    }
    return 0;
}

/* ---- errors -------------------------------------------------------------------------------------------- */

/* NCCL often notices first that a process is gone, but not which: the host half finds it a moment later. */
static int fail(const kolo_reducer *r, const comm_link *link, const char *call, ncclResult_t rc)
{
    KOLO_TRY(kolo_comm_host_explain(r->c.comm));
    return comm_link_fail(link, call, rc);
}

static void nccl_abort(kolo_reducer *r, const char *text)
{
    comm_cuda_abort(r, text);
    for (int64_t i = 0; i < r->channels; i++) comm_link_abort(&r->channel[i]->link);
}

static int cuda_nccl_look(void *of)
{
    kolo_reducer *r = of;
    KOLO_TRY(comm_cuda_status(r));
    return kolo_comm_host_status(r->c.comm);
}

/* Until NCCL is done with `call`, which returned rc. Before that its stream may not be touched. */
static int cuda_nccl_settle(kolo_reducer *r, comm_link *link, const char *call, ncclResult_t rc)
{
    KOLO_TRY(comm_link_settle(link, call, &rc, r->c.timeout, cuda_nccl_look, r));
    return rc == ncclSuccess ? 0 : fail(r, link, call, rc);
}

static int link_status(kolo_reducer *r, comm_link *link)
{
    ncclResult_t state = ncclSuccess;
    if (pthread_mutex_trylock(&link->lock)) return 0; /* a call is under way: it will say itself */
    if (link->nccl && link->calls->CommGetAsyncError(link->nccl, &state) != ncclSuccess)
        state = ncclInternalError;
    pthread_mutex_unlock(&link->lock);
    if (state == ncclSuccess || state == ncclInProgress) return 0;
    kolo_failure why;
    fail(r, link, "AllReduce", state);
    kolo_error_keep(&why);
    nccl_abort(r, why.text);
    return comm_cuda_status(r);
}

static int nccl_status(kolo_reducer *r)
{
    KOLO_TRY(comm_cuda_status(r));
    for (int64_t i = 0; i < r->channels; i++) KOLO_TRY(link_status(r, &r->channel[i]->link));
    return 0;
}

/* ---- a step -------------------------------------------------------------------------------------------- */

static const char *const call_names[] = {
    [KOLO_ALLREDUCE] = "AllReduce", [KOLO_REDUCE_SCATTER] = "ReduceScatter", [KOLO_ALLGATHER] = "AllGather"};

/* In place: equal parts, and with the last member's what is left over (kolo_comm_equal_part). */
static int move_equal(const kolo_reducer_bucket *b, comm_gpu_op like, comm_gpu_op *op)
{
    const bool gathers = b->what == KOLO_ALLGATHER;
    const int64_t each = b->count / b->members, all = each * b->members;
    float *at = like.to, *mine = at + each * b->member;
    int n = 0;
    like.count = each;
    like.kind = gathers ? COMM_GPU_ALLGATHER : COMM_GPU_REDUCE_SCATTER;
    like.from = gathers ? mine : at;
    like.to = gathers ? at : mine;
    if (each) op[n++] = like;
    like.count = b->count - all;
    like.kind = gathers ? COMM_GPU_BROADCAST : COMM_GPU_REDUCE;
    like.from = like.to = at + all;
    like.peer = b->members - 1;
    if (like.count) op[n++] = like;
    return n;
}

/* In place: some of the parts that the caller cut, from *next on, each to its owner or from it. */
static int move_cut(const kolo_reducer_bucket *b, comm_gpu_op like, comm_gpu_op *op, int *next)
{
    float *at = like.to;
    int n = 0;
    like.kind = b->what == KOLO_ALLGATHER ? COMM_GPU_BROADCAST : COMM_GPU_REDUCE;
    for (; n < CALLS && *next < b->parts; ++*next) {
        like.from = like.to = at + b->first[*next];
        like.count = b->size[*next];
        like.peer = b->owner[*next];
        if (like.count) op[n++] = like;
    }
    return n;
}

/* What carries a bucket, or of parts that the caller cut some, from *next on: op[CALLS]; how many. */
static int moves_of(const kolo_reducer_bucket *b, char *arena, comm_gpu_op *op, int *next)
{
    void *at = arena + b->offset;
    comm_gpu_op like = {.type = b->type, .op = KOLO_SUM, .from = at, .to = at, .count = b->count};
    if (b->what != KOLO_ALLREDUCE && b->what != KOLO_BROADCAST)
        return b->parts ? move_cut(b, like, op, next) : move_equal(b, like, op);
    like.peer = b->member == 0; /* of a pair */
    like.kind = b->what == KOLO_ALLREDUCE ? COMM_GPU_ALLREDUCE
                : b->member == 0          ? COMM_GPU_SEND
                                          : COMM_GPU_RECEIVE;
    *op = like;
    return b->count > 0;
}

/* `b` with the base of what it lies in. */
static int nccl_enqueue(kolo_reducer *r, const kolo_reducer_bucket *b, char *base, cudaEvent_t ready,
                        cudaEvent_t done)
{
    comm_cuda *c = &r->c;
    nccl_channel *channel = r->channel[b->group];
    const char *call = b->what != KOLO_BROADCAST ? call_names[b->what] : b->member ? "Recv" : "Send";
    int next = 0;
    KOLO_TRY(comm_cuda_status(r));
    KOLO_TRY(comm_cuda_after(channel->stream, c->compute, ready));
    do {
        const int moves = moves_of(b, base, r->move, &next);
        pthread_mutex_lock(&channel->link.lock);
        ncclResult_t rc = ncclInternalError;
        if (channel->link.nccl) rc = comm_link_move(&channel->link, r->move, moves, channel->stream);
        pthread_mutex_unlock(&channel->link.lock);
        KOLO_TRY(comm_cuda_status(r));
        KOLO_TRY(cuda_nccl_settle(r, &channel->link, call, rc));
    } while (next < b->parts);
    return COMM_CUDA(cudaEventRecord(done, channel->stream));
}

static int nccl_start(kolo_reducer *r, int bucket)
{
    const comm_cuda_bucket *b = &r->c.bucket[bucket];
    return nccl_enqueue(r, &b->of, r->c.arena, b->ready, b->done);
}

static int nccl_sum(kolo_reducer *r, double *data, int64_t count)
{
    const kolo_reducer_bucket all = {.what = KOLO_ALLREDUCE, .count = count, .type = KOLO_F64};
    KOLO_TRY(nccl_enqueue(r, &all, (char *)data, r->c.sum_ready, r->c.sum_done));
    return COMM_CUDA(cudaStreamWaitEvent(r->c.compute, r->c.sum_done, 0));
}

/* ---- joining ------------------------------------------------------------------------------------------- */

/* The rank that makes id `i` of `roots`: NCCL cuts the ranks into as many runs, longer ones first, and asks
 * the first rank of each. */
static int root_rank(int i, int roots, int size)
{
    int longer = size % roots;
    return i * (size / roots) + (i < longer ? i : longer);
}

static int make_id(const kolo_reducer *r, ncclUniqueId *id)
{
    const ncclResult_t rc = world_link(r)->calls->GetUniqueId(id);
    return rc == ncclSuccess ? 0 : fail(r, world_link(r), "GetUniqueId", rc);
}

static int cuda_nccl_join(kolo_reducer *r, comm_link *link, int size, int rank, ncclUniqueId *ids, int roots)
{
    return cuda_nccl_settle(r, link, roots > 1 ? "CommInitRankScalable" : "CommInitRankConfig",
                            comm_link_join(link, size, rank, ids, roots));
}

/* Ids go to all over the host half: a rank that does not come this far is named by it. */
static int connect(kolo_reducer *r, int rc)
{
    comm_link *link = world_link(r);
    const int rank = kolo_comm_launch(r->c.comm)->rank, size = kolo_comm_launch(r->c.comm)->size;
    const int roots =
        link->calls && link->calls->CommInitRankScalable ? (size + RANKS_A_ROOT - 1) / RANKS_A_ROOT : 1;
    ncclUniqueId *ids = kolo_alloc((size_t)roots * sizeof *ids);
    if (rc == 0 && !ids) rc = KOLO_ENOMEM;
    for (int i = 0; rc == 0 && i < roots; i++)
        if (root_rank(i, roots, size) == rank) rc = make_id(r, &ids[i]);
    KOLO_TRY_GOTO(rc, kolo_comm_agree(r->c.comm, rc));
    for (int i = 0; i < roots; i++)
        KOLO_TRY_GOTO(rc, kolo_comm_broadcast(r->c.comm, &ids[i], sizeof *ids, root_rank(i, roots, size)));
    rc = cuda_nccl_join(r, link, size, rank, ids, roots);
    if (rc < 0) rc = kolo_comm_host_fail(r->c.comm, rc); /* others wait for this rank within NCCL */
    rc = kolo_comm_agree(r->c.comm, rc);
fail:
    free(ids);
    return rc;
}

/* ---- groups -------------------------------------------------------------------------------------------- */

/* The cut is the one that NCCL makes by itself. */
static bool is_equal_cut(const kolo_reducer_bucket *of)
{
    const int64_t each = of->count / of->members;
    bool equal = of->parts == of->members && of->count % of->members == 0;
    for (int i = 0; equal && i < of->parts; i++)
        equal = of->size[i] == each && of->first[i] == each * of->owner[i];
    return equal;
}

static int nccl_bucket(kolo_reducer *r, int bucket, const kolo_reducer_bucket *of)
{
    kolo_reducer_bucket b = *of;
    KOLO_TRY(need_channel(r, b.group));
    r->channel[b.group]->used |= b.members > 1 && b.count > 0;
    if (is_equal_cut(&b)) b.parts = 0;
    return comm_cuda_add(r, bucket, &b);
}

/* Member of a group that this rank is; -1: none. *size: of the group. */
static int member_of(const kolo_reducer *r, int group, int rank, int *size)
{
    const int *ranks;
    *size = kolo_comm_group_ranks(r->c.comm, group, &ranks);
    for (int m = 0; m < *size; m++)
        if (ranks[m] == rank) return m;
    return -1;
}

/* Ids of all groups that are used, made by their first members; [channels]. */
static int share_ids(kolo_reducer *r, int rank, ncclUniqueId *ids)
{
    int rc = 0, size;
    for (int64_t g = 1; g < r->channels && rc == 0; g++)
        if (r->channel[g]->used && member_of(r, (int)g, rank, &size) == 0) rc = make_id(r, &ids[g]);
    KOLO_TRY(kolo_comm_agree(r->c.comm, rc));
    for (int64_t g = 1; g < r->channels; g++) {
        const int *ranks;
        kolo_comm_group_ranks(r->c.comm, (int)g, &ranks);
        if (r->channel[g]->used) KOLO_TRY(kolo_comm_broadcast(r->c.comm, &ids[g], sizeof *ids, ranks[0]));
    }
    return 0;
}

static int join_group(kolo_reducer *r, nccl_channel *channel, int rank, ncclUniqueId *id)
{
    int size, priority = 0;
    const int member = channel->used ? member_of(r, channel->group, rank, &size) : -1;
    if (member < 0) return 0;
    KOLO_TRY(COMM_CUDA(cudaStreamGetPriority(r->c.side, &priority)));
    KOLO_TRY(COMM_CUDA(cudaStreamCreateWithPriority(&channel->stream, cudaStreamNonBlocking, priority)));
    KOLO_TRY(comm_link_open(&channel->link));
    return cuda_nccl_join(r, &channel->link, size, member, id, 1);
}

static int nccl_commit(kolo_reducer *r)
{
    const int rank = kolo_comm_launch(r->c.comm)->rank;
    ncclUniqueId *ids = kolo_alloc((size_t)r->channels * sizeof *ids);
    int rc = kolo_comm_agree(r->c.comm, ids ? 0 : KOLO_ENOMEM);
    if (rc == 0) rc = share_ids(r, rank, ids);
    for (int64_t g = 1; rc == 0 && g < r->channels; g++) rc = join_group(r, r->channel[g], rank, &ids[g]);
    free(ids);
    return rc;
}

/* NCCL's own memory, registered, or on all ranks none of it registered. */
static int make_arena(kolo_reducer *r)
{
    comm_link *link = world_link(r);
    const comm_nccl_calls *calls = link->calls;
    void *arena = NULL;
    int64_t registered = 0;
    if (calls->MemAlloc && calls->MemFree && calls->CommRegister && calls->CommDeregister &&
        calls->MemAlloc(&arena, r->c.bytes) == ncclSuccess) {
        r->own_memory = true;
        r->c.arena = arena;
        registered = calls->CommRegister(link->nccl, arena, r->c.bytes, &r->registered) == ncclSuccess;
    }
    int rc = r->own_memory ? comm_cuda_zero(&r->c) : comm_cuda_alloc(&r->c);
    KOLO_TRY(kolo_comm_agree(r->c.comm, rc));
    KOLO_TRY(kolo_comm_allreduce(r->c.comm, &registered, 1, KOLO_I64, KOLO_MIN));
    if (!registered && r->registered) {
        calls->CommDeregister(link->nccl, r->registered);
        r->registered = NULL;
    }
    kolo_debug("gradients: %zu bytes, %s", r->c.bytes,
               registered ? "registered with NCCL" : "not registered with NCCL");
    return 0;
}

/* ---- life ---------------------------------------------------------------------------------------------- */

static void close_channels(kolo_reducer *r, bool orderly)
{
    const double seconds = r->c.timeout < CLOSE_SECONDS ? r->c.timeout : CLOSE_SECONDS;
    for (int64_t i = 0; i < r->channels; i++) {
        comm_link_close(&r->channel[i]->link, orderly, seconds, cuda_nccl_look, r);
        if (i > 0 && r->channel[i]->stream) cudaStreamDestroy(r->channel[i]->stream);
        free(r->channel[i]);
    }
    free(r->channel);
}

static void nccl_close(kolo_reducer **out, bool orderly)
{
    kolo_reducer *r = *out;
    const comm_link *link = r->channels ? world_link(r) : NULL;
    const comm_nccl_calls *calls = link ? link->calls : NULL;
    if (orderly && r->registered && link->nccl) calls->CommDeregister(link->nccl, r->registered);
    if (!orderly) nccl_abort(r, "the communicator was closed");
    close_channels(r, orderly);
    if (r->own_memory) {
        calls->MemFree(r->c.arena);
        r->c.arena = NULL;
    }
    comm_cuda_close(&r->c);
    free(r);
    *out = NULL;
}

static int cuda_nccl_prepare(kolo_reducer *r, kolo_comm *comm, const kolo_comm_device *device, size_t bytes,
                             double timeout)
{
    KOLO_TRY(comm_link_open(world_link(r)));
    r->channel[0]->stream = device->comm;
    if (device->deterministic && setenv("NCCL_NVLS_ENABLE", "0", 0) == 0)
        kolo_debug("deterministic=true: NCCL_NVLS_ENABLE=%s", getenv("NCCL_NVLS_ENABLE"));
    return comm_cuda_open(&r->c, comm, device, bytes, timeout);
}

static int nccl_open(kolo_reducer **out, kolo_comm *comm, const kolo_comm_device *device, size_t bytes,
                     double timeout)
{
    kolo_reducer *r = *out = kolo_alloc(sizeof *r);
    if (!r) return kolo_comm_agree(comm, KOLO_ENOMEM);
    r->c.comm = comm;
    int rc = kolo_comm_agree(comm, need_channel(r, 0));
    if (rc == 0) rc = connect(r, cuda_nccl_prepare(r, comm, device, bytes, timeout));
    if (rc == 0) rc = make_arena(r);
    if (rc < 0) nccl_close(out, false);
    return rc;
}

const kolo_reducer_type comm_cuda_nccl = {.name = "nccl",
                                          .own_gpu = true,
                                          .equal_parts = true,
                                          .ready = comm_link_version,
                                          .open = nccl_open,
                                          .close = nccl_close,
                                          .arena = comm_cuda_arena,
                                          .bucket = nccl_bucket,
                                          .commit = nccl_commit,
                                          .start = nccl_start,
                                          .wait = comm_cuda_wait,
                                          .sum = nccl_sum,
                                          .finish = comm_cuda_finish,
                                          .status = nccl_status,
                                          .abort = nccl_abort};
