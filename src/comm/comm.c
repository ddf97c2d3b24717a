#include <stdlib.h>
#include <string.h>

#include "base/hash.h"
#include "base/memory.h"
#include "base/thread.h"
#include "comm/inside.h"
#include "kolo/error.h"

/* A start whose whole traffic is below this is reduced at once by the last rank to come: a wake costs more. */
enum { INLINE_BYTES = 512 << 10 };

/* ---- the shape of the job ----------------------------------------------------------------------------------------- */

static int check_launch(const kolo_launch *l)
{
    if (l->size < 1 || l->rank < 0 || l->rank >= l->size || l->nodes < 1 || l->local_size < 1 || (l->size > 1 && (!l->node_of || !l->local_of)))
        return kolo_fail(KOLO_EINTERNAL, "comm: launch knows no node map (rank %d of %d)", l->rank, l->size);
    if (l->local_size > COMM_MAX_LOCAL)
        return kolo_fail(KOLO_ELAUNCH, "comm: %d ranks on host %s; at most %d are supported: use more threads a rank", l->local_size, l->host, COMM_MAX_LOCAL);
    return 0;
}

/* Smallest number of ranks on a node: so many slices have an owner on every node. */
static int count_rails(const kolo_launch *l, int *rails)
{
    int *ranks = kolo_alloc((size_t)l->nodes * sizeof *ranks);
    if (!ranks) return KOLO_ECONFIG;
    for (int r = 0; r < l->size; r++) ranks[l->node_of[r]]++;
    *rails = ranks[0];
    for (int n = 1; n < l->nodes; n++)
        if (ranks[n] < *rails) *rails = ranks[n];
    free(ranks);
    return 0;
}

static int add_fragment(comm_node *node, const int *local, int n)
{
    comm_members *m = &node->fragment[node->fragments++];
    m->local = kolo_alloc((size_t)n * sizeof *m->local);
    if (!m->local) return KOLO_ECONFIG;
    m->n = n;
    memcpy(m->local, local, (size_t)n * sizeof *local);
    return 0;
}

/* What this node sums on its own: everything, or with canonical its subtrees of the tree over ranks. */
static int make_order(kolo_comm *comm)
{
    const kolo_launch *l = comm->launch;
    comm_node *node = &comm->node;
    KOLO_TRY(comm->canonical ? comm_tree_ranks(&comm->tree, l->size, l->node_of, l->nodes) : comm_tree_nodes(&comm->tree, l->nodes));
    node->tree = comm->canonical;
    node->fragment = kolo_alloc((size_t)node->ranks * sizeof *node->fragment);
    if (!node->fragment) return KOLO_ECONFIG;
    int local[COMM_MAX_LOCAL];
    for (int i = 0; i < node->ranks; i++) local[i] = i;
    if (!comm->canonical) return add_fragment(node, local, node->ranks);
    for (int f = 0; f < comm->tree.fragments; f++) {
        const comm_fragment *fragment = &comm->tree.fragment[f];
        if (fragment->node != l->node) continue;
        for (int i = 0; i < fragment->count; i++) local[i] = l->local_of[fragment->first + i];
        KOLO_TRY(add_fragment(node, local, fragment->count));
    }
    return 0;
}

static int make_node(kolo_comm *comm, const kolo_comm_config *config)
{
    const kolo_launch *l = comm->launch;
    comm_node *node = &comm->node;
    node->launch = l;
    node->me = l->local_rank;
    node->ranks = l->local_size;
    node->nodes = l->nodes;
    node->timeout = config->timeout > 0 ? config->timeout : 300;
    node->spin = config->spin;
    node->rank_of = kolo_alloc((size_t)node->ranks * sizeof *node->rank_of);
    if (!node->rank_of) return KOLO_ECONFIG;
    for (int r = 0; r < l->size; r++)
        if (l->node_of[r] == l->node) node->rank_of[l->local_of[r]] = r;
    KOLO_TRY(count_rails(l, &node->rails));
    return make_order(comm);
}

static int make_peers(kolo_comm *comm)
{
    const kolo_launch *l = comm->launch;
    comm_engine *e = &comm->engine;
    e->rank_of = kolo_alloc((size_t)l->nodes * sizeof *e->rank_of);
    e->leader_of = kolo_alloc((size_t)l->nodes * sizeof *e->leader_of);
    if (!e->rank_of || !e->leader_of) return KOLO_ECONFIG;
    for (int r = 0; r < l->size; r++) {
        if (l->local_of[r] == l->local_rank) e->rank_of[l->node_of[r]] = r;
        if (l->local_of[r] == 0) e->leader_of[l->node_of[r]] = r;
    }
    return 0;
}

/* ---- life --------------------------------------------------------------------------------------------------------- */

static int open_parts(kolo_comm *comm, const kolo_comm_config *config)
{
    KOLO_TRY(make_node(comm, config));
    KOLO_TRY(make_peers(comm));
    comm->collect_bytes = 0;
    if (comm->launch->nodes > 1) {
        size_t each = (size_t)comm->launch->size * 256;
        comm->collect_bytes = each > (256 << 10) ? each : 256 << 10;
    }
    return comm_shm_open(&comm->node, comm->host_bytes, comm->collect_bytes);
}

static int compare_declarations(kolo_comm *comm);

static int open_host(kolo_comm *comm, const kolo_comm_config *config)
{
    if (comm_alone(comm)) {
        comm->alone = comm_on_host(comm) ? kolo_pages_alloc(comm->host_bytes) : NULL;
        return comm->alone || !comm_on_host(comm) ? 0 : KOLO_ECONFIG;
    }
    int rc = open_parts(comm, config);
    comm->engine.node = &comm->node;
    if (comm->launch->nodes > 1) {
        rc = comm_mpi_open(comm->launch, rc, &comm->engine.network);
        comm->engine.transport = &comm_mpi;
    }
    KOLO_TRY(rc);
    KOLO_TRY(comm_signs_open(comm, config));
    if (comm->launch->nodes > 1) KOLO_TRY(comm_choice_make(comm, &comm->small, 1, 1)); /* can it serve at all? */
    KOLO_TRY(comm_collective_open(comm));
    KOLO_TRY(comm_engine_start(&comm->engine));
    return comm->launch->nodes > 1 ? compare_declarations(comm) : 0; /* sums between nodes that choose differently would wait for each other */
}

static int create(kolo_comm *comm, const kolo_comm_config *config, const kolo_comm_device *device)
{
    KOLO_TRY(check_launch(comm->launch));
    comm->arena_bytes = comm->host_bytes = config->arena_bytes;
    comm->canonical = config->canonical;
    KOLO_TRY(comm_choice_open(comm, config));
    if (!device) return open_host(comm, config);
    KOLO_TRY(comm_device_choose(comm, config, device));
    comm->host_bytes = comm_on_host(comm) ? kolo_round_up(comm->arena_bytes, KOLO_ALIGN) + KOLO_HOST_SUM * sizeof(double) : 0;
    KOLO_TRY(open_host(comm, config));
    return comm_device_open(comm, config, device);
}

int kolo_comm_create(kolo_comm **out, kolo_launch *launch, const kolo_comm_config *config) { return kolo_comm_create_on(out, launch, config, NULL); }

int kolo_comm_create_on(kolo_comm **out, kolo_launch *launch, const kolo_comm_config *config, const kolo_comm_device *device)
{
    *out = NULL;
    kolo_comm *comm = kolo_alloc(sizeof *comm);
    if (!comm) return KOLO_ECONFIG;
    comm->launch = launch;
    int rc = create(comm, config, device);
    if (rc < 0) kolo_comm_destroy(&comm);
    *out = comm;
    return rc;
}

void kolo_comm_destroy(kolo_comm **out)
{
    kolo_comm *comm = *out;
    if (!comm) return;
    comm_node *node = &comm->node;
    comm_engine *e = &comm->engine;
    bool busy = false, orderly = comm_alone(comm) || (e->running && !comm_node_broken(node));
    comm_device_close(comm, orderly);
    comm_engine_stop(e);
    comm_router_close(&comm->signs, orderly);
    comm_engine_free(e, &busy);
    comm_mpi_close(&e->network, orderly && !busy);
    comm_shm_close(node, busy);
    for (int64_t b = 0; e->schedule && b < comm->buckets; b++) comm_schedule_free(&e->schedule[b]);
    comm_combined_free(comm);
    comm_compressed_free(comm);
    free(e->schedule);
    comm_schedule_free(&comm->small);
    comm_choice_close(comm);
    comm_tree_free(&comm->tree);
    for (int f = 0; f < node->fragments; f++) free(node->fragment[f].local);
    free(node->fragment);
    free(node->rank_of);
    free(comm->bucket);
    kolo_pages_free(&comm->alone, comm->host_bytes);
    free(comm);
    *out = NULL;
}

void *kolo_comm_host_arena(kolo_comm *comm, size_t *bytes)
{
    *bytes = comm->host_bytes;
    return comm->alone ? comm->alone : comm->node.arena[comm->node.me];
}

void *kolo_comm_arena(kolo_comm *comm)
{
    size_t bytes;
    return comm->device.type ? comm->device.type->arena(comm->device.reducer) : kolo_comm_host_arena(comm, &bytes);
}

/* ---- buckets ------------------------------------------------------------------------------------------------------ */

static int add_bucket(kolo_comm *comm, size_t offset, int64_t count, enum kolo_dtype type)
{
    KOLO_TRY(kolo_grow(&comm->bucket, &comm->capacity, comm->buckets, sizeof *comm->bucket));
    comm_bucket *b = &comm->bucket[comm->buckets];
    memset(b, 0, sizeof *b);
    b->index = (int)comm->buckets++;
    b->offset = offset;
    b->count = count;
    b->type = type;
    b->slices = comm_alone(comm) ? 1 : comm_bucket_slices(count, comm->node.rails);
    return 0;
}

int kolo_comm_bucket(kolo_comm *comm, size_t offset, int64_t count)
{
    if (comm->committed) return kolo_fail(KOLO_EINTERNAL, "comm: bucket %lld declared after commit", (long long)comm->buckets);
    if (comm->buckets == COMM_MAX_BUCKETS - 1) /* one is the host half's own */
        return kolo_fail(KOLO_ECONFIG, "comm: more than %d buckets; raise bucket_mb", COMM_MAX_BUCKETS - 1);
    if (count < 0 || offset % sizeof(float) != 0 || offset > comm->arena_bytes || (size_t)count > (comm->arena_bytes - offset) / sizeof(float))
        return kolo_fail(KOLO_EINTERNAL, "comm: bucket %lld (offset %zu, %lld elements) is not within the arena of %zu bytes", (long long)comm->buckets, offset,
                         (long long)count, comm->arena_bytes);
    KOLO_TRY(add_bucket(comm, offset, count, KOLO_F32));
    int bucket = (int)comm->declared++;
    return comm->device.type ? comm->device.type->bucket(comm->device.reducer, bucket, offset, count) : 0;
}

/* How this rank sums `count` elements of bucket i, its slice, with the other nodes. */
static int make_schedule(kolo_comm *comm, int64_t i, int64_t from, int64_t count, const comm_schedule **made)
{
    comm_engine *e = &comm->engine;
    const comm_bucket *b = &comm->bucket[i];
    size_t width = kolo_dtype_size(b->type);
    if (b->tensor) return comm_combined_make(comm, b, made);
    if (comm->compress.kind != COMM_NONE && b->type == KOLO_F32 && count > 0) {
        KOLO_TRY(comm_compressed_make(comm, (int)i, (int64_t)(b->offset / width) + from, count));
        *made = comm_codec_schedule(e->codec[i]);
        return 0;
    }
    *made = &e->schedule[i];
    return comm_choice_make(comm, &e->schedule[i], count, width);
}

/* Schedules of the slices that this rank owns, and lanes that fit the largest. */
static int make_schedules(kolo_comm *comm)
{
    comm_engine *e = &comm->engine;
    int64_t posts = 0;
    size_t scratch = 0;
    int me = comm->node.me;
    e->schedule = kolo_alloc((size_t)(comm->buckets + 1) * sizeof *e->schedule);
    if (!e->schedule) return KOLO_ECONFIG;
    for (int64_t i = 0; i < comm->buckets; i++) {
        const comm_bucket *b = &comm->bucket[i];
        if (me >= b->slices) continue;
        int64_t from = comm_bucket_slice(b, me), count = comm_bucket_slice(b, me + 1) - from;
        size_t width = kolo_dtype_size(b->type);
        const comm_schedule *s = NULL;
        KOLO_TRY(make_schedule(comm, i, from, count, &s));
        if (s->posts > posts) posts = s->posts;
        if ((size_t)s->scratch * width > scratch) scratch = (size_t)s->scratch * width;
    }
    for (int i = 0; i < COMM_LANES; i++) KOLO_TRY(comm_engine_lane(e, &e->lane[i], posts, scratch));
    return 0;
}

uint64_t comm_declaration(const kolo_comm *comm)
{
    uint64_t hash = kolo_hash_number(kolo_hash_number(KOLO_HASH, comm->arena_bytes), comm->canonical);
    hash = kolo_hash_number(kolo_hash_number(hash, comm_choice_digest(comm)), (uint64_t)comm->buckets);
    for (int64_t i = 0; i < comm->buckets; i++)
        hash = comm_combined_hash(&comm->bucket[i], kolo_hash_number(kolo_hash_number(hash, comm->bucket[i].offset), (uint64_t)comm->bucket[i].count));
    return comm_compressed_hash(comm, hash);
}

static int compare_declarations(kolo_comm *comm)
{
    int size = comm->launch->size;
    int64_t other = -1;
    uint64_t mine = comm_declaration(comm), *all = kolo_alloc((size_t)size * sizeof *all);
    int rc = all ? kolo_comm_gather(comm, &mine, sizeof mine, all, 0) : KOLO_ECONFIG;
    for (int r = size - 1; rc == 0 && comm->launch->rank == 0 && r > 0; r--)
        if (all[r] != mine) other = r;
    free(all);
    KOLO_TRY(rc);
    KOLO_TRY(kolo_comm_broadcast(comm, &other, sizeof other, 0));
    if (other < 0) return 0;
    return kolo_fail(KOLO_ECONFIG,
                     "comm: rank %lld declared another arena, algorithm, table or list of buckets than rank 0 (rank "
                     "%d has %lld buckets): all ranks must run the same program with the same recipe",
                     (long long)other, comm->launch->rank, (long long)comm->declared);
}

int kolo_comm_commit(kolo_comm *comm)
{
    if (comm->committed) return kolo_fail(KOLO_EINTERNAL, "comm: committed twice");
    if (comm->device.type && comm_on_host(comm)) KOLO_TRY(add_bucket(comm, kolo_round_up(comm->arena_bytes, KOLO_ALIGN), KOLO_HOST_SUM, KOLO_F64));
    if (!comm_alone(comm)) {
        comm->engine.bucket = comm->bucket;
        int rc = comm->launch->nodes > 1 && comm_on_host(comm) ? make_schedules(comm) : 0;
        if (rc == 0) rc = compare_declarations(comm);
        if (rc == 0) rc = comm_compressed_agree(comm);
        else comm_node_break(&comm->node, kolo_error_text());
        KOLO_TRY(rc);
    }
    comm->committed = true;
    return comm->device.type ? comm_device_commit(comm) : 0;
}

int kolo_comm_host_sum(kolo_comm *comm, size_t *offset)
{
    *offset = comm->bucket[comm->declared].offset;
    return (int)comm->declared;
}

/* ---- a step ------------------------------------------------------------------------------------------------------- */

static comm_bucket *find(kolo_comm *comm, int bucket, int64_t buckets)
{
    if (comm->committed && bucket >= 0 && bucket < buckets) return &comm->bucket[bucket];
    kolo_fail(KOLO_EINTERNAL, "comm: bucket %d of %lld%s", bucket, (long long)buckets, comm->committed ? "" : " before commit");
    return NULL;
}

/* The last rank has come. Who watches will see it; the others' progress threads are woken. */
static void set_off(kolo_comm *comm, const comm_bucket *b, uint64_t round, bool at_once)
{
    comm_node *node = &comm->node;
    if (at_once) {
        while (comm_node_work(node, b, round)) continue;
        return;
    }
    for (int s = 0; s < b->slices; s++) {
        bool watching = atomic_load(&node->control[s]->slice[b->index].watching) == (uint32_t)round;
        if (node->nodes > 1 || !watching) comm_node_ring(node, s);
    }
}

static int64_t bucket_bytes(const comm_bucket *b) { return b->count * (int64_t)kolo_dtype_size(b->type); }

static void count_call(kolo_comm *comm, const comm_bucket *b)
{
    atomic_fetch_add_explicit(&comm->bytes, bucket_bytes(b), memory_order_relaxed);
    atomic_fetch_add_explicit(&comm->calls, 1, memory_order_relaxed);
}

int kolo_comm_host_start(kolo_comm *comm, int bucket)
{
    comm_bucket *b = find(comm, bucket, comm->buckets);
    if (!b) return KOLO_EINTERNAL;
    uint64_t round = atomic_load_explicit(&b->round, memory_order_relaxed) + 1;
    if (round != b->waited + 1) return kolo_fail(KOLO_EINTERNAL, "comm: bucket %d started twice without a wait", bucket);
    if (!comm_alone(comm) && comm_node_broken(&comm->node)) return comm_node_broken_text(&comm->node);
    atomic_store_explicit(&b->round, round, memory_order_relaxed);
    if (comm_alone(comm) || b->count == 0) return 0;
    comm_node *node = &comm->node;
    comm_control *own = node->control[node->me];
    atomic_store_explicit(&own->doing, (uint32_t)bucket + 1, memory_order_relaxed);
    if (atomic_load_explicit(&own->published, memory_order_relaxed) == 0) /* else the step says when */
        atomic_store_explicit(&own->life.told_at, (int64_t)(1e9 * kolo_time()), memory_order_relaxed);
    bool at_once = node->nodes == 1 && bucket_bytes(b) * node->ranks <= INLINE_BYTES;
    if (!at_once && node->me < b->slices && !comm_engine_push(&comm->engine, bucket, round) && node->nodes > 1)
        return kolo_fail(KOLO_EINTERNAL, "comm: no room to start bucket %d", bucket);
    if (comm_node_arrive(node, b, round)) set_off(comm, b, round, at_once);
    return 0;
}

int kolo_comm_host_wait(kolo_comm *comm, int bucket)
{
    comm_bucket *b = find(comm, bucket, comm->buckets);
    if (!b) return KOLO_EINTERNAL;
    uint64_t round = atomic_load_explicit(&b->round, memory_order_relaxed);
    if (round != b->waited + 1) return kolo_fail(KOLO_EINTERNAL, "comm: wait for bucket %d, which was not started", bucket);
    if (!comm_alone(comm) && b->count > 0) {
        if (!comm_node_done(&comm->node, b, round)) {
            double begin = kolo_time();
            if (comm_node_broken(&comm->node)) return comm_node_broken_text(&comm->node);
            KOLO_TRY(comm_node_wait(&comm->node, b, round));
            atomic_fetch_add_explicit(&comm->wait_ns, (int64_t)(1e9 * (kolo_time() - begin)), memory_order_relaxed);
        }
        count_call(comm, b);
    }
    b->waited = round;
    return 0;
}

int kolo_comm_start(kolo_comm *comm, int bucket)
{
    const comm_device *d = &comm->device;
    if (!d->type) return kolo_comm_host_start(comm, bucket);
    const comm_bucket *b = find(comm, bucket, comm->declared);
    if (!b) return KOLO_EINTERNAL;
    if (!d->type->through_host && !comm_alone(comm)) count_call(comm, b);
    return b->count ? d->type->start(d->reducer, bucket) : 0;
}

int kolo_comm_wait(kolo_comm *comm, int bucket)
{
    const comm_device *d = &comm->device;
    if (!d->type) return kolo_comm_host_wait(comm, bucket);
    const comm_bucket *b = find(comm, bucket, comm->declared);
    if (!b) return KOLO_EINTERNAL;
    return b->count ? d->type->wait(d->reducer, bucket) : 0;
}

void kolo_comm_get_stats(const kolo_comm *comm, kolo_comm_stats *stats)
{
    stats->wait_seconds = 1e-9 * (double)atomic_load(&comm->wait_ns);
    stats->bytes = atomic_load(&comm->bytes);
    stats->calls = atomic_load(&comm->calls);
}

/* ---- where everybody stands --------------------------------------------------------------------------------------- */

void kolo_comm_publish(kolo_comm *comm, int64_t step, int64_t action)
{
    if (comm_alone(comm)) return;
    comm_control *own = comm->node.control[comm->node.me];
    atomic_store_explicit(&own->step, step, memory_order_relaxed);
    atomic_store_explicit(&own->action, action, memory_order_relaxed);
    atomic_store_explicit(&own->published, (int64_t)(1e9 * kolo_time()), memory_order_release);
}

void kolo_comm_peer(kolo_comm *comm, int local_rank, int64_t *step, int64_t *action, double *age)
{
    *step = *action = 0;
    *age = 0;
    if (comm_alone(comm) || local_rank < 0 || local_rank >= comm->node.ranks) return;
    const comm_control *peer = comm->node.control[local_rank];
    int64_t at = atomic_load_explicit(&peer->published, memory_order_acquire);
    *step = atomic_load_explicit(&peer->step, memory_order_relaxed);
    *action = atomic_load_explicit(&peer->action, memory_order_relaxed);
    if (at) *age = kolo_time() - 1e-9 * (double)at;
}
