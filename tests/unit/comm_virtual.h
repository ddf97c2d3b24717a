/* A cluster in one process: the schedules of all members of a group run side by side over messages in memory,
 * interleaved by a seed. Messages between two members match by their order. Early ones are delivered as soon
 * as both ends are posted, late ones when the receiver asks, eager ones leave the sender at once. */
#ifndef TESTS_COMM_VIRTUAL_H
#define TESTS_COMM_VIRTUAL_H

#include "base/philox.h"
#include "comm/core/kernel.h"
#include "comm/core/transport.h"
#include "tap.h"

enum { VIRTUAL_MEMBERS = 40, VIRTUAL_GUARD = 64, VIRTUAL_POISON = 0xcd };
enum virtual_delivery { VIRTUAL_LATE, VIRTUAL_EARLY, VIRTUAL_EAGER };

typedef struct virtual_post {
    bool send, complete;
    int peer;
    char *data;
    size_t bytes;
    int64_t next; /* posted for the same peer in the same direction */
    char *copy;   /* eager */
} virtual_post;

typedef struct virtual_member {
    struct virtual_cluster *cluster;
    int me;
    virtual_post *post;
    int64_t posts, room, waiting; /* waiting: all before are complete */
    /* [send][peer] of those not matched, -1: none */
    int64_t first[2][VIRTUAL_MEMBERS], last[2][VIRTUAL_MEMBERS];
} virtual_member;

typedef struct virtual_cluster {
    virtual_member member[VIRTUAL_MEMBERS];
    enum virtual_delivery delivery;
    uint64_t seed, draws;
    const comm_folding *half; /* of schedules with 16-bit ends */
    int64_t bytes;            /* sent by all in the last run */
    int64_t mismatches;       /* lengths of matched messages that differ, empty ones, ones left over */
} virtual_cluster;

static inline uint32_t virtual_draw(virtual_cluster *c) { return kolo_philox(c->seed, 77, c->draws++).v[0]; }

static inline bool virtual_match(virtual_member *to, int from)
{
    virtual_member *other = &to->cluster->member[from];
    int64_t r = to->first[0][from], s = other->first[1][to->me];
    if (r < 0 || s < 0) return false;
    virtual_post *in = &to->post[r], *out = &other->post[s];
    to->cluster->mismatches += in->bytes != out->bytes;
    memcpy(in->data, out->copy ? out->copy : out->data, in->bytes < out->bytes ? in->bytes : out->bytes);
    in->complete = out->complete = true;
    to->first[0][from] = in->next;
    other->first[1][to->me] = out->next;
    return true;
}

static inline int virtual_add(virtual_member *m, virtual_post post)
{
    if (m->posts == m->room) {
        m->room = m->room ? 2 * m->room : 64;
        m->post = realloc(m->post, (size_t)m->room * sizeof *m->post);
    }
    m->cluster->mismatches += post.bytes == 0 || post.peer == m->me;
    if (post.send) m->cluster->bytes += (int64_t)post.bytes;
    if (post.send && m->cluster->delivery == VIRTUAL_EAGER) {
        post.copy = memcpy(malloc(post.bytes), post.data, post.bytes);
        post.complete = true;
    }
    post.next = -1;
    if (m->first[post.send][post.peer] < 0) m->first[post.send][post.peer] = m->posts;
    else m->post[m->last[post.send][post.peer]].next = m->posts;
    m->last[post.send][post.peer] = m->posts;
    m->post[m->posts++] = post;
    if (m->cluster->delivery != VIRTUAL_LATE)
        virtual_match(post.send ? &m->cluster->member[post.peer] : m, post.send ? m->me : post.peer);
    return 0;
}

static inline int virtual_new(void *lane, bool sends, int rank, int tag, void *data, size_t bytes)
{
    return virtual_add(lane, (virtual_post){.send = sends, .peer = rank, .data = data, .bytes = bytes}) +
           tag * 0;
}

static inline int virtual_done(void *lane, int64_t serial)
{
    virtual_member *m = lane;
    bool all = true;
    for (int64_t i = m->waiting; i <= serial; i++) {
        virtual_post *p = &m->post[i];
        while (!p->complete && !p->send && virtual_match(m, p->peer)) continue;
        all = all && p->complete;
        if (all) m->waiting = i + 1;
    }
    return all;
}

static const comm_transport virtual_transport = {.post = virtual_new, .done = virtual_done};

/* buffer[m]: base addresses as comm_run takes them. False: nobody can go on. */
static inline bool virtual_run(virtual_cluster *c, const comm_schedule *schedule, char *(*buffer)[3],
                               int members, size_t width, comm_combine combine)
{
    static int self[VIRTUAL_MEMBERS];
    comm_run run[VIRTUAL_MEMBERS];
    c->bytes = 0;
    int left[VIRTUAL_MEMBERS], lefts = members, stuck = 0;
    for (int v = 0; v < members; v++) {
        virtual_member *m = &c->member[v];
        *m = (virtual_member){.cluster = c, .me = v, .post = m->post, .room = m->room};
        memset(m->first, -1, sizeof m->first);
        left[v] = self[v] = v;
        run[v] = (comm_run){.schedule = &schedule[v],
                            .transport = &virtual_transport,
                            .lane = m,
                            .rank_of = self,
                            .buffer = buffer[v],
                            .width = width,
                            .combine = combine,
                            .half = c->half};
    }
    while (lefts && stuck < 20 * members + 20) {
        int i = (int)(virtual_draw(c) % (uint32_t)lefts), v = left[i];
        int64_t at = run[v].at;
        int rc = comm_run_poll(&run[v]);
        if (rc < 0) return false;
        stuck = run[v].at == at ? stuck + 1 : 0;
        if (rc == 1) left[i] = left[--lefts];
        if (stuck == 20 * members + 20) { /* unlucky draws, or is it so? */
            for (int k = 0; k < lefts; k++) {
                at = run[left[k]].at;
                if (comm_run_poll(&run[left[k]]) == 1 || run[left[k]].at != at) stuck = 0;
            }
            for (int k = lefts - 1; k >= 0; k--)
                if (run[left[k]].at == schedule[left[k]].actions) left[k] = left[--lefts];
        }
    }
    for (int v = 0; v < members; v++)
        for (int64_t i = 0; i < c->member[v].posts; i++) {
            for (int s = 0; s < 2; s++)
                c->mismatches += i == 0 && c->member[v].first[s][c->member[v].post[i].peer] >= 0;
            c->mismatches += !c->member[v].post[i].complete;
            free(c->member[v].post[i].copy);
        }
    return lefts == 0;
}

static inline void virtual_close(virtual_cluster *c)
{
    for (int v = 0; v < VIRTUAL_MEMBERS; v++) free(c->member[v].post);
}

/* Memory with guards on both sides, filled with poison. Returned: its middle. */
static inline char *virtual_memory(size_t bytes)
{
    char *m = malloc(bytes + 2 * VIRTUAL_GUARD);
    memset(m, VIRTUAL_POISON, bytes + 2 * VIRTUAL_GUARD);
    return m + VIRTUAL_GUARD;
}

/* Frees it; the number of guard bytes that were changed. */
static inline int64_t virtual_release(char *memory, size_t bytes)
{
    int64_t bad = 0;
    for (int i = 1; i <= VIRTUAL_GUARD; i++) bad += (unsigned char)memory[-i] != VIRTUAL_POISON;
    for (int i = 0; i < VIRTUAL_GUARD; i++) bad += (unsigned char)memory[bytes + (size_t)i] != VIRTUAL_POISON;
    free(memory - VIRTUAL_GUARD);
    return bad;
}

#endif
