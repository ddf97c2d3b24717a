#include "comm/core/transport/lines.h"

#include <errno.h>
#include <netinet/tcp.h>
#include <poll.h>
#include <stdlib.h>
#include <string.h>
#include <sys/epoll.h>
#include <unistd.h>

#include "base/log.h"
#include "kolo/error.h"

static const char magic[8] = "kolo-l1";
static const double HELLO_WITHIN = 2, TEXT_WITHIN = 60, CONNECT_WITHIN = 9; /* seconds */

int line_fail_system(const char *what)
{
    return kolo_fail(KOLO_ELAUNCH,
                     "comm: %s failed: %s; KOLO_COMM_INTERFACE chooses another network interface", what,
                     strerror(errno));
}

/* ---- ends ---------------------------------------------------------------------------------------------- */

int line_watch(tcp_lines *lines, line_end *end, uint32_t events)
{
    struct epoll_event event = {.events = events, .data.ptr = end};
    return epoll_ctl(lines->epoll, EPOLL_CTL_ADD, end->fd, &event) < 0 ? line_fail_system("epoll_ctl") : 0;
}

void line_wait_to_write(comm_router *router, tcp_line *l, bool wait)
{
    struct epoll_event event = {.events = EPOLLIN | (wait ? EPOLLOUT : 0u), .data.ptr = &l->out};
    if (wait == l->out.waits_to_write) return;
    l->out.waits_to_write = wait;
    epoll_ctl(router->lines->epoll, EPOLL_CTL_MOD, l->out.fd, &event);
}

void line_end_close(line_end *end)
{
    if (end->fd >= 0) close(end->fd); /* leaves the epoll set by itself */
    end->fd = -1;
    end->connecting = end->waits_to_write = false;
}

void line_hang_up(tcp_line *l)
{
    line_end_close(&l->in);
    line_end_close(&l->out);
}

/* Lost hosts and stopped processes show by their silence (tcp.c); a connection itself is given the
 * timeout. */
static void tune(const comm_router *router, int fd)
{
    int on = 1, idle = 3, every = 2, probes = 3;
    double heartbeat_timeout = router->config.timeout > 10 ? router->config.timeout : 10;
    unsigned ms = heartbeat_timeout < 1e6 ? (unsigned)(1000 * heartbeat_timeout) : 1000000000u;
    setsockopt(fd, IPPROTO_TCP, TCP_NODELAY, &on, sizeof on);
    setsockopt(fd, SOL_SOCKET, SO_KEEPALIVE, &on, sizeof on);
    setsockopt(fd, IPPROTO_TCP, TCP_KEEPIDLE, &idle, sizeof idle);
    setsockopt(fd, IPPROTO_TCP, TCP_KEEPINTVL, &every, sizeof every);
    setsockopt(fd, IPPROTO_TCP, TCP_KEEPCNT, &probes, sizeof probes);
    setsockopt(fd, IPPROTO_TCP, TCP_USER_TIMEOUT, &ms, sizeof ms);
}

static ring *make_ring(void)
{
    void *memory = aligned_alloc(64, ring_size(LINE_RING));
    if (!memory) kolo_no_memory(ring_size(LINE_RING));
    return memory ? ring_begin(memory, LINE_RING) : NULL;
}

tcp_line *line_find(comm_router *router, int rank)
{
    tcp_lines *lines = router->lines;
    tcp_line *l = lines->line[rank];
    if (l) return l;
    l = kolo_alloc(sizeof *l);
    if (!l) return NULL;
    l->in = (line_end){.kind = END_IN, .fd = -1, .rank = rank};
    l->out = (line_end){.kind = END_OUT, .fd = -1, .rank = rank};
    l->t = (framing){.router = router, .rank = rank};
    l->t.in = make_ring();
    l->t.out = make_ring();
    if (!l->t.in || !l->t.out || framing_open(&l->t, LINE_RING) < 0) {
        free(l->t.in);
        free(l->t.out);
        free(l);
        return NULL;
    }
    l->heard_at = kolo_time();
    return lines->line[rank] = l;
}

void line_greet(const comm_router *router, line_hello *hello, int purpose)
{
    memcpy(hello->magic, magic, sizeof magic);
    memcpy(hello->cookie, router->lines->address[0].cookie, sizeof hello->cookie);
    hello->rank = router->launch->rank;
    hello->purpose = purpose;
}

int line_dial(const comm_router *router, int rank)
{
    const line_address *address = &router->lines->address[rank];
    int fd = socket(address->address.ss_family, SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0);
    if (fd < 0) return -1;
    tune(router, fd);
    if (connect(fd, (const struct sockaddr *)&address->address, address->length) == 0 || errno == EINPROGRESS)
        return fd;
    close(fd);
    return -1;
}

/* Nobody answers there. Where the lines are not needed for messages the job goes on without that
 * one's heartbeats. */
static int no_way(comm_router *router, tcp_line *l, const char *how)
{
    line_end_close(&l->out);
    if (router->mpi && l->in.fd < 0) {
        if (!l->failed)
            kolo_warn("no connection to rank %d on host %s (%s): its death would be seen late; "
                      "KOLO_COMM_INTERFACE chooses another interface",
                      l->t.rank, kolo_launch_host(router->launch, l->t.rank), how);
        l->failed = true;
        return 0;
    }
    return line_lost(router, l, how);
}

static int connected(comm_router *router, tcp_line *l)
{
    int error = 0;
    socklen_t length = sizeof error;
    line_hello hello;
    getsockopt(l->out.fd, SOL_SOCKET, SO_ERROR, &error, &length);
    if (error) return no_way(router, l, strerror(error));
    line_greet(router, &hello, LINE_FRAMES);
    if (send(l->out.fd, &hello, sizeof hello, MSG_NOSIGNAL) != (ssize_t)sizeof hello)
        return no_way(router, l, strerror(errno));
    l->out.connecting = false;
    line_wait_to_write(router, l, false);
    line_mark(router, l);
    return 0;
}

int line_connect(comm_router *router, tcp_line *l)
{
    if (l->out.fd >= 0 || l->failed || l->left || l->lost_at > 0) return 0;
    int fd = line_dial(router, l->t.rank);
    if (fd < 0) return no_way(router, l, strerror(errno));
    l->out.fd = fd;
    l->out.connecting = l->out.waits_to_write = true;
    l->out.since = router->now;
    KOLO_TRY(line_watch(router->lines, &l->out, EPOLLIN | EPOLLOUT));
    /* mostly it is there at once; the greeting must not wait until this rank has its next turn, maybe
     * after long computing */
    struct pollfd soon = {.fd = fd, .events = POLLOUT};
    return poll(&soon, 1, 5) == 1 ? connected(router, l) : 0;
}

/* ---- pending peers ------------------------------------------------------------------------------------- */

static bool known(const comm_router *router, const line_hello *h)
{
    return memcmp(h->magic, magic, sizeof magic) == 0 &&
           line_same_cookie(h->cookie, router->lines->address[0].cookie) && h->rank >= 0 &&
           h->rank < router->launch->size && h->rank != router->launch->rank && h->purpose >= LINE_FRAMES &&
           h->purpose <= LINE_ASK;
}

/* The pending peer is a rank: its bytes are frames from now on. */
static int line_settle(comm_router *router, line_pending_peer *pending, int rank)
{
    tcp_line *l = line_find(router, rank);
    if (!l || l->in.fd >= 0) {
        line_end_close(&pending->end);
        return l ? 0 : KOLO_ENOMEM;
    }
    struct epoll_event event = {.events = EPOLLIN, .data.ptr = &l->in};
    tune(router, pending->end.fd);
    l->in.fd = pending->end.fd;
    pending->end.fd = -1;
    l->heard_at = router->now;
    if (epoll_ctl(router->lines->epoll, EPOLL_CTL_MOD, l->in.fd, &event) < 0)
        return line_fail_system("epoll_ctl");
    KOLO_TRY(line_connect(router, l)); /* heartbeats go back */
    return line_fill(router, l);
}

static int hear_pending(comm_router *router, line_pending_peer *pending)
{
    line_hello hello;
    /* frames stay in the socket */
    size_t most = pending->got < sizeof hello ? sizeof hello : sizeof pending->text - 1;
    ssize_t n = recv(pending->end.fd, pending->text + pending->got, most - pending->got, 0);
    if (n < 0 && (errno == EAGAIN || errno == EINTR)) return 0;
    if (n > 0) pending->got += (size_t)n;
    if (n > 0 && pending->got < sizeof hello) return 0;
    memcpy(&hello, pending->text, sizeof hello);
    bool friendly = pending->got >= sizeof hello && known(router, &hello);
    if (friendly && !pending->known) kolo_admission_give_back(&router->lines->unverified);
    pending->known = friendly;
    if (friendly && hello.purpose == LINE_FRAMES) return line_settle(router, pending, hello.rank);
    if (friendly && hello.purpose == LINE_ASK) {
        line_answer(router, pending->end.fd);
        line_end_close(&pending->end);
        return 0;
    }
    if (friendly && n > 0 && pending->got < sizeof pending->text - 1) return 0; /* more of the text */
    if (friendly) {
        pending->text[pending->got] = 0;
        atomic_store(&router->life[0]->spread, 1); /* who found it tells everybody */
        comm_router_break(router, pending->text + sizeof hello);
    }
    line_end_close(&pending->end);
    return 0;
}

/* A free one, else that of the unverified peer that has been silent for longest; NULL: all are ranks. */
static line_pending_peer *find_seat(tcp_lines *lines)
{
    line_pending_peer *oldest = NULL;
    for (int g = 0; g < LINE_PENDING_PEERS; g++) {
        line_pending_peer *pending = &lines->pending[g];
        if (pending->end.fd < 0) return pending;
        if (!pending->known && (!oldest || pending->end.since < oldest->end.since)) oldest = pending;
    }
    return oldest;
}

/* Who comes while the listener is deaf waits in the kernel's queue. */
static void turn_deaf(tcp_lines *lines, bool deaf)
{
    struct epoll_event event = {.events = deaf ? 0 : EPOLLIN, .data.ptr = &lines->listener};
    if (deaf == lines->deaf) return;
    lines->deaf = deaf;
    epoll_ctl(lines->epoll, EPOLL_CTL_MOD, lines->listener.fd, &event);
}

/* The greeting of most ranks is there already: they are heard at once. */
static int accept_all(comm_router *router)
{
    tcp_lines *lines = router->lines;
    while (kolo_admission_take(&lines->unverified, router->now)) {
        line_pending_peer *pending = find_seat(lines);
        int fd = pending ? accept4(lines->listener.fd, NULL, NULL, SOCK_NONBLOCK | SOCK_CLOEXEC) : -1;
        if (fd < 0) {
            kolo_admission_give_back(&lines->unverified);
            return 0;
        }
        line_end_close(&pending->end);
        pending->end = (line_end){.kind = END_PENDING_PEER,
                                  .fd = fd,
                                  .rank = (int)(pending - lines->pending),
                                  .since = router->now};
        pending->got = 0;
        pending->known = false;
        if (line_watch(lines, &pending->end, EPOLLIN) < 0) line_end_close(&pending->end);
        else KOLO_TRY(hear_pending(router, pending));
    }
    turn_deaf(lines, true);
    return 0;
}

/* ---- turns --------------------------------------------------------------------------------------------- */

/* Anybody of this machine can send here: some at a time, so that a turn has an end. */
static void drain_nudges(const tcp_lines *lines)
{
    char bytes[64];
    for (int i = 0; i < 64 && recv(lines->nudge.fd, bytes, sizeof bytes, MSG_DONTWAIT) >= 0; i++) continue;
}

/* The other side says nothing here but that it leaves. */
static int hear_out(comm_router *router, tcp_line *l)
{
    char word[16];
    ssize_t n = recv(l->out.fd, word, sizeof word, 0);
    if (n < 0 && (errno == EAGAIN || errno == EINTR)) return 0;
    if (n > 0) {
        l->left = true;
        return 0;
    }
    const char *how = n < 0 ? strerror(errno) : "its connection closed";
    if (!l->left) return line_lost(router, l, how);
    line_end_close(&l->out);
    return 0;
}

static int handle(comm_router *router, line_end *end, uint32_t events)
{
    tcp_line *l = end->kind >= END_IN ? router->lines->line[end->rank] : NULL;
    if (end->fd < 0) return 0;
    switch (end->kind) {
    case END_LISTENER: return accept_all(router);
    case END_NUDGE: drain_nudges(router->lines); return 0;
    case END_PENDING_PEER: return hear_pending(router, &router->lines->pending[end->rank]);
    case END_IN: return line_fill(router, l);
    case END_OUT: break;
    }
    if (end->connecting) return events & (EPOLLOUT | EPOLLERR | EPOLLHUP) ? connected(router, l) : 0;
    if (events & EPOLLOUT) line_mark(router, l);
    return events & (EPOLLIN | EPOLLERR | EPOLLHUP) ? hear_out(router, l) : 0;
}

int line_poll(comm_router *router)
{
    struct epoll_event event[32];
    tcp_lines *lines = router->lines;
    lines->polled_at = router->now;
    int n = epoll_wait(lines->epoll, event, 32, 0);
    for (int i = 0; i < n; i++) KOLO_TRY(handle(router, event[i].data.ptr, event[i].events));
    return 0;
}

static double waited(const comm_router *router, const line_end *end)
{
    return router_since(router, router->now, end->since);
}

/* Pending peers that say nothing, connections that do not come about. */
int lines_expire(comm_router *router)
{
    tcp_lines *lines = router->lines;
    if (lines->deaf && kolo_admission_wait(&lines->unverified, router->now) == 0) turn_deaf(lines, false);
    for (int g = 0; g < LINE_PENDING_PEERS; g++) {
        line_pending_peer *pending = &lines->pending[g];
        if (pending->end.fd < 0) continue;
        if (waited(router, &pending->end) > (pending->known ? TEXT_WITHIN : HELLO_WITHIN))
            line_end_close(&pending->end);
    }
    for (int r = 0; r < router->launch->size; r++) {
        tcp_line *l = lines->line[r];
        if (l && l->out.connecting && waited(router, &l->out) > CONNECT_WITHIN)
            KOLO_TRY(no_way(router, l, "no answer"));
    }
    return 0;
}

/* ---- what others ask ----------------------------------------------------------------------------------- */

double lines_heard(const comm_router *router, int rank)
{
    const tcp_line *l = router->lines ? router->lines->line[rank] : NULL;
    return l && l->in.fd >= 0 ? l->heard_at : 0;
}

bool lines_left(const comm_router *router, int rank)
{
    return router->lines && router->lines->line[rank] && router->lines->line[rank]->left;
}
