/* Members of a group as runs in one process: a transport that delivers as late as it may, and a loop
 * that polls all in turn. */
#ifndef TESTS_COMM_MEMBERS_H
#define TESTS_COMM_MEMBERS_H

#include "comm/core/transport.h"
#include "tap.h"

enum { MEMBERS_MOST = 1024 };

typedef struct member_message {
    int peer, tag;
    bool send, complete;
    void *data;
    int64_t bytes;
} member_message;

typedef struct member_box {
    int me;
    int64_t posted, capacity, first;
    member_message *m;
    struct member_box *all;
} member_box;

static int members_mismatched;     /* messages of another length than was waited for */
static int64_t members_bytes_sent; /* by all since it was last set to 0 */

static inline int member_post(void *of, bool sending, int rank, int tag, void *data, size_t bytes)
{
    member_box *b = of;
    if (b->posted == b->capacity) {
        b->capacity = b->capacity ? 2 * b->capacity : 64;
        b->m = realloc(b->m, (size_t)b->capacity * sizeof *b->m);
    }
    b->m[b->posted++] = (member_message){rank, tag, sending, false, data, (int64_t)bytes};
    if (sending) members_bytes_sent += (int64_t)bytes;
    return 1;
}

/* A message moves only when its receiver asks for it, so a sender that touches the data too early is
 * caught. */
static inline void member_deliver(member_box *to, member_message *in)
{
    member_box *from = &to->all[in->peer];
    for (int64_t i = from->first; i < from->posted; i++) {
        member_message *out = &from->m[i];
        if (!out->send || out->complete || out->peer != to->me || out->tag != in->tag) continue;
        members_mismatched += out->bytes != in->bytes;
        memcpy(in->data, out->data, (size_t)(out->bytes < in->bytes ? out->bytes : in->bytes));
        in->complete = out->complete = true;
        return;
    }
}

static inline int member_done(void *of, int64_t serial)
{
    member_box *b = of;
    for (; b->first <= serial; b->first++) {
        member_message *m = &b->m[b->first];
        if (!m->send && !m->complete) member_deliver(b, m);
        if (!m->complete) return 0;
    }
    return 1;
}

static const comm_transport member_transport = {.post = member_post, .done = member_done};

/* begin(of, member, run) fills in what the run needs beside transport, lane, rank_of and tag. 0:
 * all came to their end. */
static inline int members_run(int members, void (*begin)(void *of, int member, comm_run *run), void *of)
{
    if (members < 1 || members > MEMBERS_MOST) return -1;
    member_box *box = calloc((size_t)members, sizeof *box);
    comm_run *run = calloc((size_t)members, sizeof *run);
    int *identity = malloc((size_t)members * sizeof *identity), left = members, rc = 0;
    char *done = calloc((size_t)members, 1);
    for (int v = 0; v < members; v++) {
        identity[v] = v;
        box[v].me = v;
        box[v].all = box;
        run[v] = (comm_run){.transport = &member_transport, .lane = &box[v], .rank_of = identity, .tag = 5};
        begin(of, v, &run[v]);
    }
    for (int rounds = 0; left && rc >= 0 && rounds < 100000; rounds++)
        for (int v = members - 1; v >= 0 && rc >= 0; v--) {
            if (done[v] || (rc = comm_run_poll(&run[v])) != 1) continue;
            done[v] = 1;
            left--;
        }
    for (int v = 0; v < members; v++) {
        for (int64_t i = 0; i < box[v].posted; i++) members_mismatched += !box[v].m[i].complete;
        if (box[v].posted > run[v].schedule->posts) members_mismatched++; /* more than a lane was made for */
        free(box[v].m);
    }
    free(box);
    free(run);
    free(identity);
    free(done);
    return rc < 0 ? rc : left ? -1 : 0;
}

#endif
