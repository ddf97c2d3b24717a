/* The lines' beginning and end, and how a rank with lines sleeps: in epoll, where a datagram
 * of its node wakes it. */
#include "base/failure.h"
#include "comm/core/transport/lines.h"

#include <poll.h>
#include <stdlib.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/resource.h>
#include <sys/un.h>
#include <unistd.h>

/* ---- sleeping ------------------------------------------------------------------------------------------ */

/* Abstract: no file, gone with its process; the kernel chooses the name, of NUDGE_NAME characters. */
enum { NUDGE_NAME = 5 };
static const socklen_t nudge_length = offsetof(struct sockaddr_un, sun_path) + 1 + NUDGE_NAME;

static int nudge_open(comm_router *router)
{
    tcp_lines *lines = router->lines;
    struct sockaddr_un name = {.sun_family = AF_UNIX};
    socklen_t length = sizeof name;
    uint64_t word = 0;
    lines->nudge =
        (line_end){.kind = END_NUDGE, .fd = socket(AF_UNIX, SOCK_DGRAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0)};
    if (lines->nudge.fd < 0 || bind(lines->nudge.fd, (struct sockaddr *)&name, sizeof name.sun_family) < 0 ||
        getsockname(lines->nudge.fd, (struct sockaddr *)&name, &length) < 0 || length != nudge_length)
        return line_fail_system("a local socket");
    memcpy(&word, name.sun_path + 1, NUDGE_NAME);
    atomic_store(&router->life[router->me]->nudge, word);
    return line_watch(lines, &lines->nudge, EPOLLIN);
}

void lines_nudge(comm_router *router, int local)
{
    struct sockaddr_un name = {.sun_family = AF_UNIX};
    const uint64_t word = atomic_load(&router->life[local]->nudge);
    if (!router->lines || !word) return;
    memcpy(name.sun_path + 1, &word, NUDGE_NAME);
    sendto(router->lines->nudge.fd, "", 1, MSG_DONTWAIT | MSG_NOSIGNAL, (struct sockaddr *)&name,
           nudge_length);
}

void lines_listen(comm_router *router, double seconds)
{
    struct pollfd any = {.fd = router->lines->epoll, .events = POLLIN};
    struct timespec nap = {(time_t)seconds, (long)(1e9 * (seconds - (double)(time_t)seconds))};
    ppoll(&any, 1, &nap, NULL);
}

void lines_sleep(comm_router *router, uint32_t bell, double seconds)
{
    comm_life *own = router->life[router->me];
    atomic_store(&own->nudged, 1);
    if (atomic_load(&own->doorbell) == bell) lines_listen(router, seconds);
    atomic_store(&own->nudged, 0);
    router->lines->polled_at = 0;
}

/* ---- opening and closing ------------------------------------------------------------------------------- */

static int open_ends(comm_router *router, line_address *address)
{
    tcp_lines *lines = router->lines;
    struct rlimit files;
    if (getrlimit(RLIMIT_NOFILE, &files) == 0 && files.rlim_cur < files.rlim_max) { /* two a peer */
        files.rlim_cur = files.rlim_max;
        setrlimit(RLIMIT_NOFILE, &files);
    }
    lines->epoll = epoll_create1(EPOLL_CLOEXEC);
    if (lines->epoll < 0) return line_fail_system("epoll_create1");
    KOLO_TRY(line_find_address(address));
    lines->listener.kind = END_LISTENER;
    KOLO_TRY(line_listen(address, &lines->listener.fd));
    KOLO_TRY(line_watch(lines, &lines->listener, EPOLLIN));
    return nudge_open(router);
}

static int exchange_addresses(comm_router *router, const line_address *mine)
{
    tcp_lines *lines = router->lines;
    const comm_router_config *c = &router->config;
    if (c->exchange) KOLO_TRY(c->exchange(c->exchange_of, mine, sizeof *mine, lines->address));
    else if (router->mpi) KOLO_TRY(mpi_exchange(router->mpi, mine, sizeof *mine, lines->address));
    else KOLO_TRY(kolo_launch_exchange(router->launch, mine, sizeof *mine, lines->address));
    for (int r = 0; r < router->launch->size; r++)
        if (lines->address[r].status < 0 && mine->status == 0)
            return kolo_fail(lines->address[r].status,
                             "comm: rank %d on host %s could not set up; its own message says why", r,
                             kolo_launch_host(router->launch, r));
    return 0;
}

int lines_open(comm_router *router, int status)
{
    const kolo_launch *launch = router->launch;
    tcp_lines *lines = router->lines = kolo_alloc(sizeof *lines);
    line_address mine = {.status = status};
    kolo_failure own;
    if (!lines) return KOLO_ENOMEM;
    lines->epoll = lines->listener.fd = lines->nudge.fd = -1;
    for (int g = 0; g < LINE_PENDING_PEERS; g++) lines->pending[g].end.fd = -1;
    lines->address = kolo_alloc((size_t)launch->size * sizeof *lines->address);
    lines->line = kolo_alloc((size_t)launch->size * sizeof(tcp_line *));
    lines->dirty = kolo_alloc((size_t)launch->size * sizeof *lines->dirty);
    if (!lines->address || !lines->line || !lines->dirty) return KOLO_ENOMEM;
    if (mine.status == 0) mine.status = open_ends(router, &mine);
    kolo_error_keep(&own);
    int rc = exchange_addresses(router, &mine);
    if (mine.status < 0) return kolo_error_restore(&own, mine.status);
    KOLO_TRY(rc);
    if (launch->local_rank != 0) return 0;
    tcp_line *next = line_find(router, line_rank_at(launch, (launch->node + 1) % launch->nodes, 0));
    return next ? line_connect(router, next) : KOLO_ENOMEM;
}

/* The others learn that we leave, and that nothing was lost. */
static void take_leave(comm_router *router)
{
    tcp_lines *lines = router->lines;
    double until = kolo_time() + 1;
    bool waiting = true;
    router->now = kolo_time();
    for (int r = 0; r < router->launch->size; r++) {
        tcp_line *l = lines->line[r];
        if (!l) continue;
        if (l->in.fd >= 0) send(l->in.fd, "b", 1, MSG_NOSIGNAL);
        if (l->out.fd >= 0 && !l->out.connecting) {
            framing_put(&l->t, &(frame){.kind = FRAME_LEAVE}, NULL);
            line_flush(router, l);
            shutdown(l->out.fd, SHUT_WR);
        }
    }
    while (waiting && kolo_time() < until && !router_broken(router)) {
        waiting = false;
        router->now = kolo_time();
        if (line_poll(router) < 0) return;
        for (int r = 0; r < router->launch->size; r++)
            waiting = waiting || (lines->line[r] && lines->line[r]->in.fd >= 0 && !lines->line[r]->left);
        if (waiting) usleep(1000);
    }
}

static void line_free(tcp_line **at)
{
    tcp_line *l = *at;
    if (!l) return;
    line_hang_up(l);
    framing_close(&l->t);
    free(l->t.in);
    free(l->t.out);
    free(l);
    *at = NULL;
}

void lines_close(comm_router *router, bool orderly)
{
    tcp_lines *lines = router->lines;
    if (!lines) return;
    bool set_up = lines->address && lines->line && lines->dirty;
    if (set_up && router->segments && router_broken(router)) lines_spread(router);
    else if (set_up && orderly) take_leave(router);
    for (int r = 0; set_up && r < router->launch->size; r++) line_free(&lines->line[r]);
    for (int g = 0; g < LINE_PENDING_PEERS; g++) line_end_close(&lines->pending[g].end);
    line_end_close(&lines->listener);
    line_end_close(&lines->nudge);
    if (lines->epoll >= 0) close(lines->epoll);
    line_calls_free(&lines->inquiry);
    free(lines->address);
    free(lines->line);
    free(lines->dirty);
    free(lines);
    router->lines = NULL;
}
