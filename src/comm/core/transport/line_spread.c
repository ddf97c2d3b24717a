/* Telling the other nodes that the world is broken: a connection for this one word to one rank of each; its
 * node sees it in shared memory. Who has read it hangs up; one that is stopped does not, and another rank
 * of its node is notified. */
#include <poll.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "comm/core/transport/lines.h"

/* seconds: until another rank of the node is notified; until all is over */
static const double TRY = 0.3, GIVE_UP = 1;

typedef struct herald {
    int fd, node, candidate; /* local rank that is notified next; fd -1: over */
    bool sent;
    double since;
    const char *why; /* the world is broken */
} herald;

int line_rank_at(const kolo_launch *l, int node, int local)
{
    for (int r = 0; r < l->size; r++)
        if (l->node_of[r] == node && l->local_of[r] == local) return r;
    return -1;
}

static void hang_up(herald *h)
{
    if (h->fd >= 0) close(h->fd);
    h->fd = -1;
}

/* The next rank of that node, if there is one. */
static void dial_next(const comm_router *router, herald *h)
{
    hang_up(h);
    h->sent = false;
    h->since = kolo_time();
    for (int rank; h->fd < 0 && (rank = line_rank_at(router->launch, h->node, h->candidate)) >= 0;
         h->candidate++)
        h->fd = line_dial(router, rank);
}

static bool deliver(const comm_router *router, herald *h)
{
    struct {
        line_hello hello;
        char text[COMM_TEXT];
    } word;
    int error = 0;
    socklen_t length = sizeof error;
    getsockopt(h->fd, SOL_SOCKET, SO_ERROR, &error, &length);
    if (error) return false;
    line_greet(router, &word.hello, LINE_BREAK);
    const size_t bytes = strlen(h->why);
    memcpy(word.text, h->why, bytes);
    h->sent =
        send(h->fd, &word, sizeof word.hello + bytes, MSG_NOSIGNAL) > 0 && shutdown(h->fd, SHUT_WR) == 0;
    return h->sent;
}

static void go_on(const comm_router *router, herald *h, short happened)
{
    if (happened && h->sent) hang_up(h); /* so did the peer */
    else if (happened ? !deliver(router, h) : kolo_time() - h->since > TRY) dial_next(router, h);
}

static void notify_nodes(comm_router *router, herald *h, struct pollfd *fds, int nodes)
{
    double until = kolo_time() + GIVE_UP;
    for (int left = 1; left > 0 && kolo_time() < until;) {
        left = 0;
        for (int n = 0; n < nodes; n++) {
            fds[n] = (struct pollfd){.fd = h[n].fd, .events = h[n].sent ? POLLIN : POLLOUT};
            left += h[n].fd >= 0;
        }
        if (left == 0 || poll(fds, (nfds_t)nodes, 50) < 0) continue;
        for (int n = 0; n < nodes; n++)
            if (h[n].fd >= 0) go_on(router, &h[n], fds[n].revents);
    }
    for (int n = 0; n < nodes; n++) hang_up(&h[n]);
}

void lines_spread(comm_router *router)
{
    uint32_t nobody = 0;
    int nodes = router->launch->nodes;
    if (!router->lines || !atomic_compare_exchange_strong(&router->life[0]->spread, &nobody, 1)) return;
    const char *why = comm_life_reason(router->life[0]);
    herald *h = kolo_alloc((size_t)nodes * sizeof *h);
    struct pollfd *fds = kolo_alloc((size_t)nodes * sizeof *fds);
    for (int n = 0; h && fds && n < nodes; n++) {
        h[n] = (herald){.fd = -1, .node = n, .why = why};
        if (n != router->launch->node) dial_next(router, &h[n]);
    }
    if (h && fds) notify_nodes(router, h, fds, nodes);
    free(h);
    free(fds);
}
