/* Waiting for the ranks of the node: a few polls, then a futex; four times a second a look whether somebody
 * has broken the communicator (heartbeat.c). */
#include <stdio.h>

#include "base/thread.h"
#include "comm/buckets/node.h"
#include "kolo/error.h"

static const double LOOK_EVERY = 0.25, ABSENT = 2; /* seconds */

int comm_node_break(comm_node *node, const char *text)
{
    comm_node *world = node->world;
    if (comm_life_break(&world->control[0]->life, text))
        for (int l = 0; l < world->ranks; l++) comm_node_ring(world, l);
    return comm_node_check(node);
}

const char *comm_meeting_name(enum comm_meeting what)
{
    static const char *const name[] = {"barrier", "allreduce", "broadcast", "gather"};
    return name[what & 3];
}

/* The heartbeat carries what this rank waits for since then, a bucket's round or (NULL) the meeting of that
 * number, and the rank at fault is named when it is time. 0: nobody is at fault yet. */
static int wait_look(comm_node *node, const comm_bucket *b, uint64_t round, double since)
{
    char text[COMM_TEXT], what[48];
    comm_node *world = node->world;
    KOLO_TRY(comm_node_check(node));
    atomic_store_explicit(&world->waits.of, node, memory_order_release); /* with all that was declared */
    atomic_store_explicit(&world->waits.bucket, b ? b->index : -1, memory_order_relaxed);
    atomic_store_explicit(&world->waits.round, round, memory_order_relaxed);
    atomic_store_explicit(&world->waits.since, (int64_t)(1e9 * since), memory_order_relaxed);
    /* who waits for a rank that itself waits gives it as long again; here no rank was named by then */
    if (kolo_time() - since < 2 * node->timeout + 5) return 0;
    if (!b) snprintf(what, sizeof what, "collective %llu", (unsigned long long)round);
    else snprintf(what, sizeof what, "bucket %d, round %llu,", b->number, (unsigned long long)round);
    snprintf(text, sizeof text,
             "%s did not end within %.0f s on host %s, and no rank is known to keep it from that", what,
             2 * node->timeout, world->launch->host);
    return comm_node_break(node, text);
}

static bool reached_value(_Atomic uint32_t *word, uint32_t value)
{
    return (int32_t)(atomic_load_explicit(word, memory_order_acquire) - value) >= 0;
}

/* Sleeps until *word has reached `value`, counting from wherever it stands (it may wrap). */
static int sleep_until(comm_node *node, _Atomic uint32_t *word, uint32_t value, _Atomic uint32_t *sleepers,
                       const comm_bucket *bucket, uint64_t round)
{
    double since = kolo_time(), looked = since;
    int rc = 0;
    comm_cores_release(node->world);
    atomic_fetch_add(sleepers, 1);
    while (rc == 0) {
        uint32_t now = atomic_load(word);
        if ((int32_t)(now - value) >= 0) break;
        const bool woken = kolo_futex_wait(word, now, LOOK_EVERY, 0);
        const double at = kolo_time();
        if (at - looked > ABSENT) since = at; /* this process was stopped, and maybe the whole job */
        looked = at;
        if (woken) continue;
        rc = wait_look(node, bucket, round, since);
        if (rc < 0 && reached_value(word, value)) rc = 0; /* it came in the meantime */
    }
    atomic_fetch_sub(sleepers, 1);
    atomic_store_explicit(&node->world->waits.since, 0, memory_order_relaxed);
    return rc;
}

static bool poll(comm_node *node, _Atomic uint32_t *word, uint32_t value)
{
    for (int i = 0; i < node->spin; i++) {
        if (reached_value(word, value)) return true;
        kolo_pause();
    }
    return reached_value(word, value);
}

int comm_node_wait(comm_node *node, const comm_bucket *b, uint64_t round)
{
    comm_shared_bucket *shared = &node->control[0]->slot[b->index].bucket;
    comm_slice *mine = &node->control[node->me]->slot[b->index].slice;
    atomic_store(&mine->watching, (uint32_t)round);
    for (int i = 0; i <= node->spin && !comm_node_done(node, b, round); i++) {
        while (comm_node_work(node, b, round)) i = 0;
        kolo_pause();
    }
    /* the last to arrive either still sees us watching, or we see here that it has arrived */
    atomic_store(&mine->watching, 0);
    while (comm_node_work(node, b, round)) continue;
    if (comm_node_done(node, b, round)) return 0;
    return sleep_until(node, &shared->done, (uint32_t)round, &shared->sleepers, b, round);
}

int comm_node_meet(comm_node *node, uint32_t seq, enum comm_meeting what)
{
    comm_control *leader = node->control[0], *own = node->control[node->me];
    atomic_store_explicit(&own->doing, COMM_MEETINGS + (uint32_t)what, memory_order_relaxed);
    atomic_store_explicit(&own->life.reported_at, (int64_t)(1e9 * kolo_time()), memory_order_relaxed);
    atomic_store(&own->entered, seq);
    if (atomic_fetch_add(&leader->gathered, 1) + 1 == seq * (uint32_t)node->ranks) {
        comm_node_release(&leader->released, seq, &leader->sleepers);
        return 0;
    }
    if (poll(node, &leader->released, seq)) return 0;
    return sleep_until(node, &leader->released, seq, &leader->sleepers, NULL, seq);
}

int comm_node_result(comm_node *node, uint32_t seq)
{
    comm_control *leader = node->control[0];
    return sleep_until(node, &leader->result, seq, &leader->sleepers, NULL, seq);
}
