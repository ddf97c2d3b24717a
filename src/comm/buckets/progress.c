#include "comm/buckets/progress.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>

#include "base/memory.h"
#include "base/thread.h"
#include "comm/core/transport/router.h"
#include "kolo/error.h"

/* A slot holds the bucket's number + 1 in its low bits and the round above. */
enum { BUCKET_BITS = 24 };
_Static_assert(COMM_MAX_DECLARED < 1 << BUCKET_BITS, "a bucket number fits");

bool comm_engine_push(comm_engine *e, int bucket, uint64_t round)
{
    uint64_t at = atomic_load(&e->tail);
    do
        if (atomic_load(&e->ring[at % (uint64_t)e->ring_slots]) != 0) return false;
    while (!atomic_compare_exchange_weak(&e->tail, &at, at + 1));
    atomic_store(&e->ring[at % (uint64_t)e->ring_slots], round << BUCKET_BITS | (uint64_t)(bucket + 1));
    return true;
}

void comm_engine_small(comm_engine *e, uint32_t seq)
{
    atomic_store(&e->small_seq, seq);
    comm_node_ring(e->node, e->node->me);
}

static void drain(comm_engine *e)
{
    while (e->actives < e->ring_slots) {
        _Atomic uint64_t *slot = &e->ring[e->head % (uint64_t)e->ring_slots];
        uint64_t value = atomic_load(slot);
        if (!value) return;
        atomic_store(slot, 0);
        e->head++;
        int bucket = (int)(value & ((1 << BUCKET_BITS) - 1)) - 1;
        e->active[e->actives++] = (comm_entry){bucket, -1, COMM_LOCAL, value >> BUCKET_BITS};
    }
}

enum outcome { NOTHING, PROGRESS, FINISHED };

static enum outcome step_local(comm_entry *entry, const comm_bucket *b)
{
    comm_node *node = &b->group->node;
    if (node->nodes == 1 && comm_node_done(node, b, entry->round)) return FINISHED;
    if (!comm_node_arrived(node, b, entry->round)) return NOTHING;
    if (comm_node_work(node, b, entry->round)) return PROGRESS;
    if (node->nodes == 1) return FINISHED; /* others hold the last blocks */
    if (!comm_node_reduced(node, b, entry->round, node->me)) return NOTHING;
    entry->phase = COMM_QUEUED;
    return PROGRESS;
}

/* Where this rank's slice stands. */
static void place_slice(const comm_slice_lane *slice, const comm_bucket *b)
{
    char **buffer = slice->lane.buffer;
    const comm_node *node = &b->group->node;
    const size_t width = kolo_dtype_size(b->type);
    const bool receives = b->what == KOLO_BROADCAST && b->group->launch->rank > 0;
    const size_t at = (receives ? b->to : b->offset) + (size_t)comm_bucket_slice(b, node->me) * width;
    int64_t first, count;
    buffer[COMM_OWN] = b->apart ? slice->result : node->arena[node->me] + at;
    for (int f = 0; f < node->fragments; f++)
        buffer[COMM_PART + f] = node->arena[comm_node_sum_rank(node, f, node->me)] + at;
    if (b->what != KOLO_ALLGATHER) return;
    comm_bucket_part(b, node->nodes, b->group->launch->node, node->me, &first, &count);
    buffer[COMM_INPUT] = node->arena[node->me] + b->offset + (size_t)first * width;
}

/* A group's lanes are given in the order of its starts, which is the same on all its ranks, so that no two of
 * them wait crosswise. */
static enum outcome step_queued(comm_entry *entry, const comm_bucket *b)
{
    comm_group *group = b->group;
    int free_lane = 0;
    while (free_lane < COMM_LANES && group->lane[free_lane].taken) free_lane++;
    if (free_lane == COMM_LANES) return NOTHING;
    comm_slice_lane *slice = &group->lane[free_lane];
    slice->taken = true;
    place_slice(slice, b);
    comm_lane_begin(&slice->lane, b->codec ? comm_codec_begin(b->codec) : &b->schedule, group->rank_of,
                    b->type, KOLO_SUM, kolo_dtype_size(b->type), b->index);
    entry->lane = free_lane;
    entry->phase = COMM_NETWORK;
    return PROGRESS;
}

/* The slice has come from the other nodes: to the arenas of this one, or its part to its place. */
static void push_slice(const comm_bucket *b, const comm_slice_lane *slice)
{
    const comm_node *node = &b->group->node;
    int64_t from = comm_bucket_slice(b, node->me), end = comm_bucket_slice_end(b, node->me), count;
    size_t width = kolo_dtype_size(b->type);
    if (b->apart) {
        comm_bucket_part(b, node->nodes, b->group->launch->node, node->me, &from, &count);
        memcpy(node->arena[node->me] + b->offset + (size_t)from * width, slice->result,
               (size_t)count * width);
        return;
    }
    if (b->what != KOLO_ALLREDUCE && b->what != KOLO_ALLGATHER) return;
    for (int64_t at = from; at < end; at += COMM_BLOCK) {
        size_t bytes = (size_t)(end - at < COMM_BLOCK ? end - at : COMM_BLOCK) * width;
        size_t offset = b->offset + (size_t)at * width;
        for (int l = 0; l < node->ranks; l++)
            if (l != node->me) memcpy(node->arena[l] + offset, node->arena[node->me] + offset, bytes);
    }
}

/* 1 finished, 0 not yet; *lagging: as in comm_slice; *moved: something was done. A poll that took long moved
 * part of a message: MPI carries large ones piece by piece, a piece a call. */
static int advance(comm_engine *e, comm_run *run, _Atomic int32_t *lagging, bool *moved)
{
    const double long_poll = 1.5e-6;
    int64_t before = run->at;
    double begin = kolo_time();
    int rc = comm_run_poll(run);
    *moved = run->at != before || kolo_time() - begin > long_poll;
    if (rc < 0) {
        e->failed_at = kolo_time();
        snprintf(e->text, sizeof e->text, "%s", kolo_error_text());
    }
    atomic_store_explicit(lagging, rc == 0 ? 1 + comm_router_lane_lagging(run->lane) : 0,
                          memory_order_relaxed);
    return rc;
}

static enum outcome step_network(comm_engine *e, comm_entry *entry, const comm_bucket *b)
{
    comm_slice_lane *slice = &b->group->lane[entry->lane];
    comm_slice *share = &e->node->control[e->node->me]->slot[b->index].slice;
    bool moved;
    if (advance(e, &slice->lane.run, &share->lagging, &moved) <= 0) return moved ? PROGRESS : NOTHING;
    push_slice(b, slice);
    slice->taken = false;
    comm_node_slice_done(&b->group->node, b, entry->round);
    return FINISHED;
}

/* Returns whether anything moved; *waiting: messages are in flight. */
static bool step_all(comm_engine *e, bool *waiting)
{
    bool moved = false;
    int kept = 0;
    e->pass++;
    for (int i = 0; i < e->actives; i++) {
        comm_entry entry = e->active[i];
        const comm_bucket *b = &e->bucket[entry.bucket];
        enum outcome outcome = NOTHING;
        if (entry.phase == COMM_LOCAL) outcome = step_local(&entry, b);
        else if (entry.phase == COMM_NETWORK) outcome = step_network(e, &entry, b);
        else if (b->group->blocked != e->pass) outcome = step_queued(&entry, b);
        moved |= outcome != NOTHING;
        if (outcome == FINISHED) continue;
        if (entry.phase == COMM_NETWORK) *waiting = true;
        else b->group->blocked = e->pass;
        e->active[kept++] = entry;
    }
    e->actives = kept;
    return moved;
}

static bool step_small(comm_engine *e, bool *waiting)
{
    uint32_t seq = atomic_load(&e->small_seq);
    bool moved = false;
    if (!seq) return false;
    int rc = advance(e, &e->small.run, &e->node->control[e->node->me]->lagging, &moved);
    *waiting = true;
    if (rc <= 0) return moved;
    comm_control *leader = e->node->control[0];
    atomic_store(&e->small_seq, 0);
    comm_node_release(&leader->result, seq, &leader->sleepers);
    return true;
}

/* Cores are shared with computing: while messages are in flight, first yield, then sleep up
 * to 100 us at a time. */
static void rest(comm_engine *e, uint32_t bell, bool waiting, int idle)
{
    comm_control *own = e->node->control[e->node->me];
    enum { YIELDS = 100 };
    if (waiting && idle < YIELDS) {
        sched_yield();
        return;
    }
    int more = (idle - YIELDS) / 8;
    double seconds = waiting ? 1e-5 * (more < 9 ? more + 1 : 10) : 0.5;
    atomic_store(&own->asleep, 1);
    kolo_futex_wait(&own->doorbell, bell, seconds, 0);
    atomic_store(&own->asleep, 0);
}

/* MPI often notices first that a process is gone, but not which: heartbeats say it a moment later. */
static const double EXPLAIN_WITHIN = 4; /* seconds */

static void *engine_main(void *of)
{
    comm_engine *e = of;
    comm_control *own = e->node->control[e->node->me];
    prctl(PR_SET_TIMERSLACK, 1000); /* short sleeps mean what they say */
    for (int idle = 0;;) {
        uint32_t bell = atomic_load(&own->doorbell);
        bool waiting = false, moved = false;
        if (atomic_load(&e->stop)) break;
        drain(e);
        if (e->failed_at > 0) {
            if (kolo_time() - e->failed_at > EXPLAIN_WITHIN) comm_node_break(e->node, e->text);
        } else if (!comm_node_broken(e->node)) {
            moved = step_all(e, &waiting);
            if (step_small(e, &waiting)) moved = true;
        }
        if (moved) idle = 0;
        else rest(e, bell, waiting, idle++);
    }
    return NULL;
}

int comm_engine_start(comm_engine *e, int ring_slots)
{
    e->ring_slots = ring_slots;
    e->ring = kolo_alloc((size_t)ring_slots * sizeof *e->ring);
    e->active = kolo_alloc((size_t)ring_slots * sizeof *e->active);
    if (!e->ring || !e->active) return KOLO_ENOMEM;
    KOLO_TRY(kolo_thread_start(&e->thread, engine_main, e, "kolo-comm"));
    e->running = true;
    return 0;
}

void comm_engine_stop(comm_engine *e)
{
    if (!e->running) return;
    atomic_store(&e->stop, 1);
    comm_node_ring(e->node, e->node->me);
    pthread_join(e->thread, NULL);
    e->running = false;
}

void comm_engine_free(comm_engine *e, bool *busy)
{
    comm_lane_close(&e->small, busy);
    free(e->ring);
    free(e->active);
    free(e->leader_of);
}
