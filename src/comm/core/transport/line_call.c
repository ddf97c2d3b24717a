/* Calls to one rank of every other node, and to the next one of a node where nobody answers in time. Before
 * the world is broken they ask how far the node's ranks came: that never waits, as others may ask at the
 * same time. Then they tell that it is broken, which the node sees in shared memory. Who was asked answers
 * for all ranks of its node and hangs up; who was told has read it and hangs up. */
#include <poll.h>
#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "comm/core/transport/lines.h"

/* seconds: until another rank of the node is called; until all is over */
static const double TRY = 0.3, ASKS = 0.9, TELLS = 1;

typedef struct call {
    int fd, candidate; /* local rank to be called next; fd -1: closed */
    bool sent, over;
    double since;
    size_t got;
    comm_position said; /* being read */
} call;

typedef struct line_calls {
    int nodes, but; /* but: a rank that is not called */
    double since;
    const char *why;     /* the world is broken; NULL: asks */
    call *of;            /* [nodes] */
    struct pollfd *fd;   /* [nodes] */
    comm_position *said; /* [size] rank -1: not answered */
} line_calls;

int line_rank_at(const kolo_launch *l, int node, int local)
{
    for (int r = 0; r < l->size; r++)
        if (l->node_of[r] == node && l->local_of[r] == local) return r;
    return -1;
}

void line_answer(const comm_router *router, int fd)
{
    comm_position said[ROUTER_MAX_LOCAL];
    for (int l = 0; l < router->ranks; l++) router_last_position(router, l, &said[l]);
    /* who hears nothing calls another rank */
    (void)send(fd, said, (size_t)router->ranks * sizeof *said, MSG_NOSIGNAL);
}

static void hang_up(call *c)
{
    if (c->fd >= 0) close(c->fd);
    c->fd = -1;
}

/* The next rank of that node; over: there is none. */
static void dial(const comm_router *router, call *c, int node, int but)
{
    hang_up(c);
    c->sent = false;
    c->got = 0;
    c->since = kolo_time();
    while (c->fd < 0 && !c->over) {
        int rank = line_rank_at(router->launch, node, c->candidate++);
        c->over = rank < 0;
        if (rank >= 0 && rank != but) c->fd = line_dial(router, rank);
    }
}

void line_calls_free(line_calls **out)
{
    line_calls *calls = *out;
    if (!calls) return;
    for (int n = 0; calls->of && n < calls->nodes; n++) hang_up(&calls->of[n]);
    free(calls->of);
    free(calls->fd);
    free(calls->said);
    free(calls);
    *out = NULL;
}

static line_calls *calls_open(const comm_router *router, int but, const char *why)
{
    const kolo_launch *l = router->launch;
    line_calls *calls = kolo_alloc(sizeof *calls);
    if (!calls) return NULL;
    *calls = (line_calls){.nodes = l->nodes, .but = but, .since = kolo_time(), .why = why};
    calls->of = kolo_alloc((size_t)l->nodes * sizeof *calls->of);
    calls->fd = kolo_alloc((size_t)l->nodes * sizeof *calls->fd);
    calls->said = kolo_alloc((size_t)l->size * sizeof *calls->said);
    if (!calls->of || !calls->fd || !calls->said) return line_calls_free(&calls), NULL;
    for (int r = 0; r < l->size; r++) calls->said[r].rank = -1;
    for (int n = 0; n < l->nodes; n++) {
        calls->of[n] = (call){.fd = -1, .over = n == l->node};
        dial(router, &calls->of[n], n, but);
    }
    return calls;
}

static bool say(const comm_router *router, const line_calls *calls, call *c)
{
    struct {
        line_hello hello;
        char text[COMM_TEXT];
    } word;
    int error = 0;
    socklen_t length = sizeof error;
    const size_t bytes = calls->why ? strlen(calls->why) : 0;
    getsockopt(c->fd, SOL_SOCKET, SO_ERROR, &error, &length);
    if (error) return false;
    line_greet(router, &word.hello, calls->why ? LINE_BREAK : LINE_ASK);
    if (bytes) memcpy(word.text, calls->why, bytes);
    c->sent =
        send(c->fd, &word, sizeof word.hello + bytes, MSG_NOSIGNAL) > 0 && shutdown(c->fd, SHUT_WR) == 0;
    return c->sent;
}

/* Takes what has come; false: the other side hung up, or nothing can come. */
static bool hear(const comm_router *router, const line_calls *calls, call *c)
{
    for (;;) {
        ssize_t n = recv(c->fd, (char *)&c->said + c->got, sizeof c->said - c->got, MSG_DONTWAIT);
        if (n <= 0) return n < 0 && (errno == EAGAIN || errno == EINTR);
        c->got += (size_t)n;
        if (c->got < sizeof c->said) continue;
        c->got = 0;
        c->said.operation[sizeof c->said.operation - 1] = 0;
        if (c->said.rank >= 0 && c->said.rank < router->launch->size) calls->said[c->said.rank] = c->said;
    }
}

static void go_on(const comm_router *router, const line_calls *calls, int node, bool happened)
{
    call *c = &calls->of[node];
    const bool told = c->sent;
    bool stands = true;
    if (happened) stands = told ? hear(router, calls, c) : say(router, calls, c);
    if (told && !stands && (calls->why || calls->said[line_rank_at(router->launch, node, 0)].rank >= 0)) {
        hang_up(c);
        c->over = true;
    } else if (!stands || kolo_time() - c->since > TRY) {
        dial(router, c, node, calls->but);
    }
}

/* Goes on with what happens within so many ms; false: all is over. */
static bool calls_go_on(const comm_router *router, line_calls *calls, int ms)
{
    bool waiting = false;
    for (int n = 0; n < calls->nodes; n++)
        calls->fd[n] = (struct pollfd){.fd = calls->of[n].fd, .events = calls->of[n].sent ? POLLIN : POLLOUT};
    const int any = poll(calls->fd, (nfds_t)calls->nodes, ms);
    for (int n = 0; n < calls->nodes; n++) {
        if (!calls->of[n].over) go_on(router, calls, n, any > 0 && calls->fd[n].revents);
        waiting |= !calls->of[n].over;
    }
    return waiting && kolo_time() - calls->since < (calls->why ? TELLS : ASKS);
}

int lines_inquire(comm_router *router, int but, const comm_position **said)
{
    tcp_lines *lines = router->lines;
    if (!lines->inquiry) lines->inquiry = calls_open(router, but, NULL);
    *said = lines->inquiry ? lines->inquiry->said : NULL;
    return !lines->inquiry || !calls_go_on(router, lines->inquiry, 0);
}

void lines_spread(comm_router *router)
{
    uint32_t nobody = 0;
    if (!router->lines || !atomic_compare_exchange_strong(&router->life[0]->spread, &nobody, 1)) return;
    line_calls *calls = calls_open(router, -1, comm_life_reason(router->life[0]));
    while (calls && calls_go_on(router, calls, 50)) continue;
    line_calls_free(&calls);
}
