/* Waiting for the ranks of the node: a few polls, then a futex; every quarter second a look at who is dead or late. */
#include <stdio.h>

#include "base/thread.h"
#include "comm/node.h"
#include "comm/rank_list.h"
#include "kolo/error.h"

static const double LOOK_EVERY = 0.25, ABSENT = 2; /* seconds */

bool comm_node_broken(const comm_node *node) { return atomic_load(&node->control[0]->broken) != 0; }

int comm_node_broken_text(const comm_node *node)
{
    for (int i = 0; i < 1000 && atomic_load(&node->control[0]->broken) == 1; i++) sched_yield();
    return kolo_fail(KOLO_ELAUNCH, "%.*s", COMM_TEXT - 1, node->control[0]->head.text);
}

int comm_node_break(comm_node *node, const char *text)
{
    comm_control *leader = node->control[0];
    uint32_t whole = 0;
    if (atomic_compare_exchange_strong(&leader->broken, &whole, 1)) {
        snprintf(leader->head.text, sizeof leader->head.text, "%s", text);
        atomic_store(&leader->broken, 2);
        for (int l = 0; l < node->ranks; l++) comm_node_ring(node, l);
    }
    return comm_node_broken_text(node);
}

bool comm_node_alive(const comm_node *node, int local) { return comm_segment_alive(&node->segments, local); }

const char *comm_node_host(const comm_node *node, int rank)
{
    const kolo_launch *launch = node->launch;
    return launch->host_of ? launch->host_of[launch->node_of[rank]] : launch->host;
}

/* What a wait is for. */
typedef struct cause {
    const char *what; /* small collective, or NULL: a bucket */
    const comm_bucket *bucket;
    uint64_t round; /* of the bucket, or number of the meeting */
    double looked_at, stood_up_at; /* stood_up_at: when this process was last away, or began to wait */
} cause;

static uint64_t reached(const comm_node *node, const cause *c, int local)
{
    if (c->bucket) return atomic_load(&node->control[local]->slice[c->bucket->index].started);
    uint32_t entered = atomic_load(&node->control[local]->entered);
    return c->round + (uint64_t)(int64_t)(int32_t)(entered - (uint32_t)c->round);
}

static void name(char *text, size_t bytes, const cause *c)
{
    if (c->bucket)
        snprintf(text, bytes, "the reduction of bucket %d, round %llu", c->bucket->index, (unsigned long long)c->round);
    else snprintf(text, bytes, "%s (collective %llu)", c->what, (unsigned long long)c->round);
}

/* "rank 0, 2: step 17, action 88; rank 1: step 16, action 90", of the ranks of this node. */
static void tell_all(const comm_node *node, const cause *c, char *list, size_t bytes)
{
    char said[COMM_MAX_LOCAL][64];
    for (int l = 0; l < node->ranks; l++)
        snprintf(said[l], sizeof said[l], "step %lld, action %lld, round %llu", (long long)atomic_load(&node->control[l]->step),
                 (long long)atomic_load(&node->control[l]->action), (unsigned long long)reached(node, c, l));
    comm_rank_list(list, bytes, node->rank_of, node->ranks, said[0], sizeof said[0]);
}

static int fail_peer(comm_node *node, const cause *c, int local, const char *how)
{
    char text[COMM_TEXT], operation[96], list[400];
    const comm_control *peer = node->control[local];
    int rank = node->rank_of[local];
    name(operation, sizeof operation, c);
    tell_all(node, c, list, sizeof list);
    snprintf(text, sizeof text,
             "rank %d on host %s (pid %d) %s: rank %d was waiting for it in %s; it had begun round %llu of it and last "
             "reported step %lld, action %lld (of this node %s); see that rank's own message, or its node's log",
             rank, comm_node_host(node, rank), peer->head.pid, how, node->launch->rank, operation,
             (unsigned long long)reached(node, c, local), (long long)atomic_load(&peer->step),
             (long long)atomic_load(&peer->action), list);
    return comm_node_break(node, text);
}

/* Its process gives no signs of life, while this one was here. */
static int look_for_stopped(comm_node *node, cause *c)
{
    char how[200];
    double now = kolo_time();
    if (now - c->looked_at > ABSENT) c->stood_up_at = now;
    c->looked_at = now;
    for (int l = 0; l < node->ranks; l++) {
        double beat = 1e-9 * (double)atomic_load_explicit(&node->control[l]->beat, memory_order_relaxed);
        double silent = now - (beat > c->stood_up_at ? beat : c->stood_up_at);
        if (l == node->me || beat == 0 || silent < node->patience || atomic_load(&node->control[l]->head.departed)) continue;
        snprintf(how, sizeof how,
                 "gave no sign of life for %.0f s, it is stopped, suspended, swapped out or in a debugger (KOLO_COMM_PATIENCE=SECONDS waits longer)", silent);
        return fail_peer(node, c, l, how);
    }
    return 0;
}

/* All local ranks have come, yet there is no result: the network keeps a progress thread of this node waiting. */
static int fail_remote(comm_node *node, const cause *c)
{
    char text[COMM_TEXT], operation[96];
    name(operation, sizeof operation, c);
    for (int l = 0; l < node->ranks; l++) {
        int rank = atomic_load(&node->control[l]->lagging);
        if (rank < 0) continue;
        snprintf(text, sizeof text,
                 "rank %d on host %s sent nothing for %.0f s: rank %d on host %s was waiting for it in %s; see that "
                 "rank's log; a slow but healthy job needs a larger timeout=",
                 rank, comm_node_host(node, rank), node->timeout, node->rank_of[l], node->launch->host, operation);
        return comm_node_break(node, text);
    }
    snprintf(text, sizeof text, "%s did not end within %.0f s on host %s although all its ranks came", operation,
             node->timeout, node->launch->host);
    return comm_node_break(node, text);
}

/* 0: nobody is at fault yet. */
static int look(comm_node *node, cause *c, double waited)
{
    if (comm_node_broken(node)) return comm_node_broken_text(node);
    for (int l = 0; l < node->ranks; l++) {
        if (comm_node_alive(node, l)) continue;
        bool left = atomic_load(&node->control[l]->head.departed);
        if (left && (int64_t)(reached(node, c, l) - c->round) >= 0) continue; /* it did its part and went home */
        return fail_peer(node, c, l, left ? "left before the end" : "died");
    }
    KOLO_TRY(look_for_stopped(node, c));
    if (waited < node->timeout) return 0;
    char how[64];
    snprintf(how, sizeof how, "is alive but did not come for %.0f s", waited);
    for (int l = 0; l < node->ranks; l++)
        if ((int64_t)(reached(node, c, l) - c->round) < 0) return fail_peer(node, c, l, how);
    return fail_remote(node, c);
}

static bool reached_value(_Atomic uint32_t *word, uint32_t value)
{
    return (int32_t)(atomic_load_explicit(word, memory_order_acquire) - value) >= 0;
}

/* Sleeps until *word has reached `value`, counting from wherever it stands (it may wrap). */
static int sleep_until(comm_node *node, _Atomic uint32_t *word, uint32_t value, _Atomic uint32_t *sleepers,
                       cause *c)
{
    double begin = kolo_time();
    int rc = 0;
    atomic_fetch_add(sleepers, 1);
    while (rc == 0) {
        uint32_t now = atomic_load(word);
        if ((int32_t)(now - value) >= 0) break;
        if (kolo_futex_wait(word, now, LOOK_EVERY, 0)) continue;
        rc = look(node, c, kolo_time() - begin);
        if (rc < 0 && reached_value(word, value)) rc = 0; /* it came in the meantime */
    }
    atomic_fetch_sub(sleepers, 1);
    return rc;
}

static void pause_briefly(void)
{
#if defined(__x86_64__)
    __builtin_ia32_pause();
#endif
}

static bool poll(comm_node *node, _Atomic uint32_t *word, uint32_t value)
{
    for (int i = 0; i < node->spin; i++) {
        if (reached_value(word, value)) return true;
        pause_briefly();
    }
    return reached_value(word, value);
}

int comm_node_wait(comm_node *node, const comm_bucket *b, uint64_t round)
{
    comm_shared_bucket *shared = &node->control[0]->bucket[b->index];
    comm_slice *mine = &node->control[node->me]->slice[b->index];
    atomic_store(&mine->watching, (uint32_t)round);
    for (int i = 0; i <= node->spin && !comm_node_done(node, b, round); i++) {
        while (comm_node_work(node, b, round)) i = 0;
        pause_briefly();
    }
    /* whoever arrives last either still sees us watching, or we see here that it has arrived */
    atomic_store(&mine->watching, 0);
    while (comm_node_work(node, b, round)) continue;
    if (comm_node_done(node, b, round)) return 0;
    cause c = {.bucket = b, .round = round};
    return sleep_until(node, &shared->done, (uint32_t)round, &shared->sleepers, &c);
}

int comm_node_meet(comm_node *node, uint32_t seq, const char *what)
{
    comm_control *leader = node->control[0];
    atomic_store(&node->control[node->me]->entered, seq);
    if (atomic_fetch_add(&leader->gathered, 1) + 1 == seq * (uint32_t)node->ranks) {
        comm_node_release(node, &leader->released, seq, &leader->sleepers);
        return 0;
    }
    if (poll(node, &leader->released, seq)) return 0;
    cause c = {.what = what, .round = seq};
    return sleep_until(node, &leader->released, seq, &leader->sleepers, &c);
}

int comm_node_result(comm_node *node, uint32_t seq, const char *what)
{
    comm_control *leader = node->control[0];
    cause c = {.what = what, .round = seq};
    return sleep_until(node, &leader->result, seq, &leader->sleepers, &c);
}
