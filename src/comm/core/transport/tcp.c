/* Bytes between the rings of a line and its sockets; messages by lines; heartbeats. */
#include <errno.h>
#include <stdio.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/uio.h>

#include "comm/core/transport/lines.h"
#include "kolo/error.h"

static const double BEAT_EVERY = 1, NEWS_EVERY = 0.1, EXPLAIN_WITHIN = 1, POLL_EVERY = 0.02; /* seconds */
/* rings of a line in one turn */
enum { AT_ONCE = 64 };

/* The part of the ring from `at` on, in one or two pieces. */
static int pieces(ring *r, uint64_t at, size_t count, struct iovec *v)
{
    size_t start = at & (LINE_RING - 1), first = count < LINE_RING - start ? count : LINE_RING - start;
    v[0] = (struct iovec){r->data + start, first};
    v[1] = (struct iovec){r->data, count - first};
    return count > first ? 2 : 1;
}

void line_mark(comm_router *router, tcp_line *l)
{
    if (l->dirty) return;
    tcp_lines *lines = router->lines;
    l->dirty = true;
    lines->dirty[(lines->first_dirty + lines->dirties++) % router->launch->size] = l->t.rank;
}

int line_lost(comm_router *router, tcp_line *l, const char *how)
{
    if (l->lost_at == 0) {
        l->lost_at = router->now > 0 ? router->now : kolo_time();
        snprintf(l->how, sizeof l->how, "%s", how);
    }
    line_hang_up(l);
    return 0;
}

int line_flush(comm_router *router, tcp_line *l)
{
    ring *out = l->t.out;
    struct iovec v[2];
    if (l->out.fd < 0 || l->out.connecting) return 0;
    for (;;) {
        uint64_t head = atomic_load_explicit(&out->head, memory_order_relaxed);
        size_t count = (size_t)(atomic_load_explicit(&out->tail, memory_order_relaxed) - head);
        if (count == 0) break;
        struct msghdr message = {.msg_iov = v, .msg_iovlen = (size_t)pieces(out, head, count, v)};
        ssize_t n = sendmsg(l->out.fd, &message, MSG_NOSIGNAL);
        if (n < 0 && errno == EINTR) continue;
        if (n < 0 && errno == EAGAIN) {
            line_wait_to_write(router, l, true);
            return 0;
        }
        if (n < 0) return line_lost(router, l, strerror(errno));
        atomic_store_explicit(&out->head, head + (uint64_t)n, memory_order_relaxed);
    }
    line_wait_to_write(router, l, false);
    return 0;
}

/* Reads until the socket is empty, handling frames as they become whole. A sender that is always faster has
 * to wait: others want their turn, and heartbeats. */
int line_fill(comm_router *router, tcp_line *l)
{
    ring *in = l->t.in;
    struct iovec v[2];
    for (int rings = 0; l->in.fd >= 0; rings++) {
        if (rings == AT_ONCE) {
            atomic_store_explicit(&router->restless, true, memory_order_relaxed);
            break;
        }
        uint64_t tail = atomic_load_explicit(&in->tail, memory_order_relaxed);
        size_t room = LINE_RING - (size_t)(tail - atomic_load_explicit(&in->head, memory_order_relaxed));
        struct msghdr message = {.msg_iov = v, .msg_iovlen = (size_t)pieces(in, tail, room, v)};
        ssize_t n = recvmsg(l->in.fd, &message, 0);
        if (n < 0 && errno == EINTR) continue;
        if (n < 0 && errno == EAGAIN) break;
        if (n <= 0) {
            if (!l->left) return line_lost(router, l, n < 0 ? strerror(errno) : "its connection closed");
            line_hang_up(l);
            return 0;
        }
        l->heard_at = router->now;
        atomic_store_explicit(&in->tail, tail + (uint64_t)n, memory_order_relaxed);
        KOLO_TRY(framing_read(&l->t));
        if ((size_t)n < room) break;
    }
    if (framing_wants_to_write(&l->t)) line_mark(router, l);
    return 0;
}

void line_other(framing *t, const frame *f, const char *payload)
{
    tcp_line *l = t->router->lines->line[t->rank];
    if (f->kind == FRAME_BEAT && f->length == sizeof l->beat) {
        memcpy(&l->beat, payload, sizeof l->beat);
        l->beat.operation[sizeof l->beat.operation - 1] = 0;
    }
    if (f->kind == FRAME_LEAVE) l->left = true;
}

void lines_last_position(const comm_router *router, int rank, comm_position *position, int *pid)
{
    const tcp_lines *lines = router->lines;
    *pid = lines ? lines->address[rank].pid : 0;
    const tcp_line *l = lines ? lines->line[rank] : NULL;
    if (!l || !l->beat.operation[0]) return;
    *position = l->beat;
    position->age += kolo_time() - l->heard_at;
}

void lines_want(comm_router *router, int rank)
{
    tcp_line *l = router->lines ? line_find(router, rank) : NULL;
    if (l) line_connect(router, l);
}

/* One line's part of a beat: says that we live, and looks whether the other side does. */
static int beat(comm_router *router, tcp_line *l, const comm_position *mine)
{
    char how[160];
    if (l->lost_at > 0 && !l->left && router->now - l->lost_at > EXPLAIN_WITHIN) {
        snprintf(how, sizeof how, "died, or its node is lost (%s)", l->how);
        return router_report_failed(router, l->t.rank, how);
    }
    bool news = mine->sequence != l->said || mine->waits_for != l->said_waits;
    double heartbeat_timeout = router->config.heartbeat_timeout,
           often = heartbeat_timeout < 4 * BEAT_EVERY ? heartbeat_timeout / 4 : BEAT_EVERY;
    if (l->out.fd >= 0 && !l->out.connecting && router->now - l->said_at >= (news ? NEWS_EVERY : often)) {
        l->said_at = router->now;
        l->said = mine->sequence;
        l->said_waits = mine->waits_for;
        frame f = {.kind = FRAME_BEAT, .length = sizeof *mine};
        if (atomic_load(&l->t.out->head) == atomic_load(&l->t.out->tail) && framing_put(&l->t, &f, mine))
            line_mark(router, l);
    }
    const double silent = router_since(router, router->now, l->heard_at);
    if (l->in.fd < 0 || l->left || silent < heartbeat_timeout) return 0;
    return router_report_silent(router, l->t.rank, silent);
}

int lines_beat(comm_router *router)
{
    comm_position mine;
    router_last_position(router, router->me, &mine);
    for (int r = 0; r < router->launch->size; r++)
        if (router->lines->line[r]) KOLO_TRY(beat(router, router->lines->line[r], &mine));
    return lines_expire(router);
}

/* ---- messages ------------------------------------------------------------------------------------------ */

int lines_post(comm_router *router, router_request *r)
{
    tcp_line *l = line_find(router, r->rank);
    if (!l) return KOLO_ENOMEM;
    KOLO_TRY(line_connect(router, l));
    KOLO_TRY(framing_post(&l->t, r));
    line_mark(router, l);
    return 0;
}

int lines_turn(comm_router *router)
{
    tcp_lines *lines = router->lines;
    if (!lines) return 0;
    if (!router->mpi || router->now - lines->polled_at > POLL_EVERY) KOLO_TRY(line_poll(router));
    for (int i = lines->dirties; i > 0; i--) { /* those that are marked meanwhile have their turn next time */
        tcp_line *l = lines->line[lines->dirty[lines->first_dirty]];
        lines->first_dirty = (lines->first_dirty + 1) % router->launch->size;
        lines->dirties--;
        l->dirty = false;
        KOLO_TRY(line_connect(router, l));
        bool more = true;
        /* the ring is filled as often as the socket empties it */
        for (int rings = 0; more && rings < AT_ONCE; rings++) {
            KOLO_TRY(framing_write(&l->t));
            KOLO_TRY(line_flush(router, l));
            /* an empty ring has room */
            more = framing_wants_to_write(&l->t) && l->out.fd >= 0 && !l->out.waits_to_write;
        }
        if (!more) continue;
        line_mark(router, l);
        atomic_store_explicit(&router->restless, true, memory_order_relaxed);
    }
    return 0;
}
