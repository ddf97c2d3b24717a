#include <stddef.h>
#include <stdlib.h>
#include <string.h>

#include "base/failure.h"
#include "base/memory.h"
#include "base/thread.h"
#include "comm/buckets/inside.h"

/* A start whose whole traffic is below this is reduced at once by the last rank to come: a wake costs
 * more. */
enum { INLINE_BYTES = 512 << 10 };

/* ---- the shape of the job ------------------------------------------------------------------------------ */

static int check_launch(const kolo_launch *l)
{
    if (l->size < 1 || l->rank < 0 || l->rank >= l->size || l->nodes < 1 || l->local_size < 1 ||
        (l->size > 1 && (!l->node_of || !l->local_of)))
        return kolo_fail(KOLO_EINTERNAL, "comm: launch knows no node map (rank %d of %d)", l->rank, l->size);
    if (l->local_size > COMM_MAX_LOCAL)
        return kolo_fail(KOLO_ELAUNCH,
                         "comm: %d ranks on host %s; at most %d are supported: use more threads a rank",
                         l->local_size, l->host, COMM_MAX_LOCAL);
    return 0;
}

static int find_leaders(kolo_comm *comm)
{
    const kolo_launch *l = comm->launch;
    comm->engine.leader_of = kolo_alloc((size_t)l->nodes * sizeof *comm->engine.leader_of);
    if (!comm->engine.leader_of) return KOLO_ENOMEM;
    for (int r = 0; r < l->size; r++)
        if (l->local_of[r] == 0) comm->engine.leader_of[l->node_of[r]] = r;
    return 0;
}

/* ---- life ---------------------------------------------------------------------------------------------- */

/* Segments of control, collecting space and arena, of which the ranks of a node see each other's. */
static int open_memory(kolo_comm *comm)
{
    comm_node *node = &comm->world.node;
    node->control = kolo_alloc((size_t)node->ranks * sizeof *node->control);
    node->arena = kolo_alloc((size_t)node->ranks * sizeof *node->arena);
    if (!node->control || !node->arena) return KOLO_ENOMEM;
    node->collect_offset =
        kolo_round_up(offsetof(comm_control, slot) + (size_t)comm->slots * sizeof(comm_slot), 4096);
    node->arena_offset = kolo_round_up(node->collect_offset + comm->collect_bytes, 4096);
    const size_t arena = comm_on_host(comm) ? comm->arena_bytes : 0, used = arena ? comm->used_bytes : 0;
    node->segments = (comm_segments){.launch = node->launch,
                                     .kind = "",
                                     .me = node->me,
                                     .ranks = node->ranks,
                                     .rank_of = node->rank_of,
                                     .timeout = node->timeout,
                                     .bytes = kolo_round_up(node->arena_offset + arena, 4096),
                                     .head = node->arena_offset,
                                     .used = kolo_round_up(node->arena_offset + used, 4096)};
    KOLO_TRY(comm_segments_open(&node->segments));
    for (int l = 0; l < node->ranks; l++) {
        node->control[l] = (comm_control *)(void *)node->segments.base[l];
        node->arena[l] = (char *)node->control[l] + node->arena_offset;
    }
    if (node->spin < 0) node->spin = comm_segments_spin(&node->segments);
    comm_cores_open(node);
    return 0;
}

static int open_parts(kolo_comm *comm, const kolo_comm_config *config)
{
    comm->world.node.timeout = config->timeout > 0 ? config->timeout : 300;
    comm->world.node.spin = config->spin;
    KOLO_TRY(comm_group_world(&comm->world, comm->launch, comm->canonical));
    KOLO_TRY(find_leaders(comm));
    const size_t each = (size_t)comm->launch->size * 256;
    comm->collect_bytes = comm->launch->nodes == 1 ? 0 : each > (256 << 10) ? each : 256 << 10;
    return open_memory(comm);
}

static int open_host(kolo_comm *comm, const kolo_comm_config *config)
{
    if (comm_alone(comm)) {
        KOLO_TRY(comm_group_world(&comm->world, comm->launch, comm->canonical));
        comm->alone = comm_on_host(comm) ? kolo_pages_alloc(comm->arena_bytes) : NULL;
        return comm->alone || !comm_on_host(comm) ? 0 : KOLO_ENOMEM;
    }
    comm->engine.node = &comm->world.node;
    KOLO_TRY(comm_open_router(comm, config, open_parts(comm, config)));
    /* can it serve at all? */
    if (comm->launch->nodes > 1)
        KOLO_TRY(comm_choice_make(comm, &comm->world, KOLO_ALLREDUCE, &comm->small, 1, NULL, 1));
    KOLO_TRY(comm_collective_open(comm));
    KOLO_TRY(comm_engine_start(&comm->engine, 2 * comm->slots));
    /* sums between nodes that choose differently would wait for each other */
    return comm->launch->nodes > 1 ? comm_declarations_compare(comm) : 0;
}

static int create(kolo_comm *comm, const kolo_comm_config *config, const kolo_comm_device *device)
{
    KOLO_TRY(check_launch(comm->launch));
    comm->arena_bytes = config->arena_bytes;
    comm->used_bytes = config->used_bytes ? config->used_bytes : config->arena_bytes;
    if (comm->used_bytes > comm->arena_bytes)
        return kolo_fail(KOLO_EINTERNAL, "comm: used_bytes %zu is more than arena_bytes %zu",
                         comm->used_bytes, comm->arena_bytes);
    comm->canonical = config->canonical;
    comm->slots = config->buckets ? config->buckets : COMM_BUCKETS;
    if (comm->slots > COMM_MAX_BUCKETS) comm->slots = COMM_MAX_BUCKETS;
    KOLO_TRY(comm_choice_open(comm, config));
    KOLO_TRY(comm_declare_open(comm));
    if (!device) return open_host(comm, config);
    KOLO_TRY(comm_device_choose(comm, config, device));
    KOLO_TRY(open_host(comm, config));
    return comm_device_open(comm, config, device);
}

int kolo_comm_create(kolo_comm **out, kolo_launch *launch, const kolo_comm_config *config)
{
    return kolo_comm_create_on(out, launch, config, NULL);
}

int kolo_comm_create_on(kolo_comm **out, kolo_launch *launch, const kolo_comm_config *config,
                        const kolo_comm_device *device)
{
    kolo_comm_config own;
    *out = NULL;
    KOLO_TRY(comm_config_take(&own, sizeof own, config, "kolo_comm_config"));
    kolo_comm *comm = kolo_alloc(sizeof *comm);
    if (!comm) return KOLO_ENOMEM;
    comm->launch = launch;
    int rc = create(comm, &own, device);
    if (rc < 0) kolo_comm_destroy(&comm);
    *out = comm;
    return rc;
}

void kolo_comm_destroy(kolo_comm **out)
{
    kolo_comm *comm = *out;
    if (!comm) return;
    kolo_failure before;
    kolo_error_keep(&before);
    comm_node *node = &comm->world.node;
    comm_engine *e = &comm->engine;
    bool busy = false, orderly = comm_alone(comm) || (e->running && !comm_node_broken(node));
    comm_device_close(comm, orderly);
    comm_engine_stop(e);
    comm_declare_close_lanes(comm, &busy);
    comm_engine_free(e, &busy);
    comm_router_close(&comm->router, orderly);
    comm_segments_close(&node->segments, busy); /* busy: the network may still use it */
    free(node->control);
    free(node->arena);
    comm_schedule_free(&comm->small);
    comm_choice_close(comm);
    comm_declare_close(comm);
    kolo_pages_free(&comm->alone, comm->arena_bytes);
    free(comm);
    *out = NULL;
    kolo_error_restore(&before, before.status);
}

void *kolo_comm_host_arena(kolo_comm *comm, size_t *bytes)
{
    *bytes = comm->used_bytes;
    return comm->alone ? comm->alone : comm->world.node.arena[comm->world.node.me];
}

void *kolo_comm_arena(kolo_comm *comm)
{
    size_t bytes;
    return comm->device.type ? comm->device.type->arena(comm->device.reducer)
                             : kolo_comm_host_arena(comm, &bytes);
}

/* ---- a step -------------------------------------------------------------------------------------------- */

static comm_bucket *comm_find(kolo_comm *comm, int bucket)
{
    const bool there = comm->committed && bucket >= 0 && bucket < comm->buckets;
    if (there && comm->bucket[bucket].group) return &comm->bucket[bucket];
    kolo_fail(KOLO_EINTERNAL, "comm: bucket %d of %lld%s", bucket, (long long)comm->buckets,
              !comm->committed ? " before commit"
              : there          ? ", of a group that this rank is not in"
                               : "");
    return NULL;
}

/* Nobody takes part in it but this rank. */
static bool is_alone(const comm_bucket *b) { return b->group->launch->size == 1 || b->count == 0; }

/* The last rank has come. Who watches will see it; the others' progress threads are woken. */
static void set_off(const comm_bucket *b, uint64_t round, bool at_once)
{
    comm_node *node = &b->group->node;
    if (at_once) {
        while (comm_node_work(node, b, round)) continue;
        return;
    }
    for (int s = 0; s < b->slices; s++) {
        bool watching = atomic_load(&node->control[s]->slot[b->index].slice.watching) == (uint32_t)round;
        if (node->nodes > 1 || !watching) comm_node_ring(node, s);
    }
}

static int64_t bucket_bytes(const comm_bucket *b) { return b->count * (int64_t)kolo_dtype_size(b->type); }

static void count_call(kolo_comm *comm, const comm_bucket *b)
{
    atomic_fetch_add_explicit(&comm->bytes, bucket_bytes(b), memory_order_relaxed);
    atomic_fetch_add_explicit(&comm->calls, 1, memory_order_relaxed);
    if (b->what != KOLO_BROADCAST || b->group->launch->rank != 0) return; /* a transfer is from its first */
    atomic_fetch_add_explicit(&comm->sent_bytes, bucket_bytes(b), memory_order_relaxed);
    atomic_fetch_add_explicit(&comm->sent, 1, memory_order_relaxed);
}

int kolo_comm_host_start(kolo_comm *comm, int bucket)
{
    comm_bucket *b = comm_find(comm, bucket);
    if (!b) return KOLO_EINTERNAL;
    uint64_t round = atomic_load_explicit(&b->round, memory_order_relaxed) + 1;
    if (round != b->waited + 1)
        return kolo_fail(KOLO_EINTERNAL, "comm: bucket %d started twice without a wait", bucket);
    KOLO_TRY(kolo_comm_host_status(comm));
    atomic_store_explicit(&b->round, round, memory_order_relaxed);
    if (is_alone(b)) return 0;
    comm_node *node = &b->group->node;
    comm_control *own = node->control[node->me];
    atomic_store_explicit(&own->number, bucket, memory_order_relaxed);
    atomic_store_explicit(&own->doing, (uint32_t)b->index + 1, memory_order_relaxed);
    if (atomic_load_explicit(&own->published, memory_order_relaxed) == 0) /* else the step says when */
        atomic_store_explicit(&own->life.reported_at, (int64_t)(1e9 * kolo_time()), memory_order_relaxed);
    bool at_once = node->nodes == 1 && bucket_bytes(b) * node->ranks <= INLINE_BYTES;
    if (!at_once && node->me < b->slices && !comm_engine_push(&comm->engine, bucket, round) &&
        node->nodes > 1)
        return kolo_fail(KOLO_EINTERNAL, "comm: no room to start bucket %d", bucket);
    if (comm_node_arrive(node, b, round)) set_off(b, round, at_once);
    return 0;
}

int kolo_comm_host_test(kolo_comm *comm, int bucket)
{
    const comm_bucket *b = comm_find(comm, bucket);
    if (!b) return KOLO_EINTERNAL;
    if (is_alone(b) || comm_node_done(&b->group->node, b, atomic_load(&b->round))) return 1;
    return kolo_comm_host_status(comm);
}

int kolo_comm_host_wait(kolo_comm *comm, int bucket)
{
    comm_bucket *b = comm_find(comm, bucket);
    if (!b) return KOLO_EINTERNAL;
    uint64_t round = atomic_load_explicit(&b->round, memory_order_relaxed);
    if (round != b->waited + 1)
        return kolo_fail(KOLO_EINTERNAL, "comm: wait for bucket %d, which was not started", bucket);
    if (!is_alone(b)) {
        comm_node *node = &b->group->node;
        if (!comm_node_done(node, b, round)) {
            double begin = kolo_time();
            KOLO_TRY(comm_node_check(node));
            KOLO_TRY(comm_node_wait(node, b, round));
            atomic_fetch_add_explicit(&comm->wait_ns, (int64_t)(1e9 * (kolo_time() - begin)),
                                      memory_order_relaxed);
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
    const comm_bucket *b = comm_find(comm, bucket);
    if (!b) return KOLO_EINTERNAL;
    if (is_alone(b)) return d->type->status(d->reducer);
    if (!d->type->through_host) count_call(comm, b);
    return d->type->start(d->reducer, bucket);
}

int kolo_comm_wait(kolo_comm *comm, int bucket)
{
    const comm_device *d = &comm->device;
    if (!d->type) return kolo_comm_host_wait(comm, bucket);
    const comm_bucket *b = comm_find(comm, bucket);
    if (!b) return KOLO_EINTERNAL;
    return is_alone(b) ? d->type->status(d->reducer) : d->type->wait(d->reducer, bucket);
}

void kolo_comm_get_stats(const kolo_comm *comm, kolo_comm_stats *stats)
{
    stats->wait_seconds = 1e-9 * (double)atomic_load(&comm->wait_ns);
    stats->bytes = atomic_load(&comm->bytes);
    stats->calls = atomic_load(&comm->calls);
    stats->sent = atomic_load(&comm->sent);
    stats->sent_bytes = atomic_load(&comm->sent_bytes);
}

size_t kolo_comm_peer_bytes(const kolo_comm *comm)
{
    const comm_segments *s = &comm->world.node.segments;
    size_t bytes = 0;
    for (int l = 0; !comm_alone(comm) && l < s->ranks; l++)
        if (l != s->me) bytes += kolo_memory_resident_at(s->base[l], s->bytes);
    return bytes;
}

/* ---- where everybody stands ---------------------------------------------------------------------------- */

void kolo_comm_publish(kolo_comm *comm, int64_t step, int64_t action)
{
    kolo_comm_publish_text(comm, step, action, "");
}

void kolo_comm_publish_text(kolo_comm *comm, int64_t step, int64_t action, const char *text)
{
    if (comm_alone(comm)) return;
    comm_control *own = comm->world.node.control[comm->world.node.me];
    if (*text || comm->published_text) comm_life_set_text(&own->life, text);
    comm->published_text = *text != 0;
    atomic_store_explicit(&own->step, step, memory_order_relaxed);
    atomic_store_explicit(&own->action, action, memory_order_relaxed);
    atomic_store_explicit(&own->published, (int64_t)(1e9 * kolo_time()), memory_order_release);
}

void kolo_comm_peer(kolo_comm *comm, int local_rank, int64_t *step, int64_t *action, double *age)
{
    *step = *action = 0;
    *age = 0;
    if (comm_alone(comm) || local_rank < 0 || local_rank >= comm->world.node.ranks) return;
    const comm_control *peer = comm->world.node.control[local_rank];
    int64_t at = atomic_load_explicit(&peer->published, memory_order_acquire);
    *step = atomic_load_explicit(&peer->step, memory_order_relaxed);
    *action = atomic_load_explicit(&peer->action, memory_order_relaxed);
    if (at) *age = kolo_time() - 1e-9 * (double)at;
}
