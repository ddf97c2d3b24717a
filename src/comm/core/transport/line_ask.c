/* Asking the other nodes how far their ranks came, before the world is broken: a connection to one rank of
 * each, which tells of all ranks of its node and hangs up. Never waits: the turns go on meanwhile, as others
 * may ask at the same time. */
#include <errno.h>
#include <poll.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

#include "base/thread.h"
#include "comm/core/transport/lines.h"

/* seconds: until another rank of the node is asked; until all is over */
static const double TRY = 0.3, GIVE_UP = 0.9;

typedef struct question {
    int fd, candidate; /* local rank to be asked next; fd -1: closed */
    bool asked, over;
    double since;
    size_t got;
    line_beat said; /* being read */
} question;

typedef struct line_inquiry {
    double since;
    int nodes;
    question *of;    /* [nodes] */
    line_beat *said; /* [size] rank -1: not answered */
} line_inquiry;

void line_answer(const comm_router *router, int fd)
{
    line_beat said[ROUTER_MAX_LOCAL];
    for (int l = 0; l < router->ranks; l++) said[l] = line_word(router, l);
    /* who hears nothing asks another rank */
    (void)send(fd, said, (size_t)router->ranks * sizeof *said, MSG_NOSIGNAL);
}

static void hang_up(question *q)
{
    if (q->fd >= 0) close(q->fd);
    q->fd = -1;
}

/* The next rank of that node; over: there is none. */
static void dial(const comm_router *router, question *q, int node, int but)
{
    hang_up(q);
    q->asked = false;
    q->got = 0;
    q->since = kolo_time();
    while (q->fd < 0 && !q->over) {
        int rank = line_rank_at(router->launch, node, q->candidate++);
        q->over = rank < 0;
        if (rank >= 0 && rank != but) q->fd = line_dial(router, rank);
    }
}

void line_inquiry_free(line_inquiry **out)
{
    line_inquiry *i = *out;
    if (!i) return;
    for (int n = 0; i->of && n < i->nodes; n++) hang_up(&i->of[n]);
    free(i->of);
    free(i->said);
    free(i);
    *out = NULL;
}

static line_inquiry *line_ask_begin(comm_router *router, int but)
{
    const kolo_launch *l = router->launch;
    line_inquiry *i = router->lines->inquiry = kolo_alloc(sizeof *i);
    if (!i) return NULL;
    i->since = kolo_time();
    i->nodes = l->nodes;
    i->of = kolo_alloc((size_t)l->nodes * sizeof *i->of);
    i->said = kolo_alloc((size_t)l->size * sizeof *i->said);
    if (!i->of || !i->said) {
        line_inquiry_free(&router->lines->inquiry);
        return NULL;
    }
    for (int r = 0; r < l->size; r++) i->said[r].rank = -1;
    for (int n = 0; n < l->nodes; n++) {
        i->of[n].fd = -1;
        i->of[n].over = n == l->node;
        if (n != l->node) dial(router, &i->of[n], n, but);
    }
    return i;
}

/* Takes what has come; false: the other side hung up, or nothing can come. */
static bool line_ask_hear(const comm_router *router, line_inquiry *i, question *q)
{
    for (;;) {
        ssize_t n = recv(q->fd, (char *)&q->said + q->got, sizeof q->said - q->got, MSG_DONTWAIT);
        if (n <= 0) return n < 0 && (errno == EAGAIN || errno == EINTR);
        q->got += (size_t)n;
        if (q->got < sizeof q->said) continue;
        q->got = 0;
        q->said.operation[sizeof q->said.operation - 1] = 0;
        if (q->said.rank >= 0 && q->said.rank < router->launch->size) i->said[q->said.rank] = q->said;
    }
}

static bool line_ask_ask(const comm_router *router, const question *q)
{
    line_hello hello;
    line_greet(router, &hello, LINE_ASK);
    return send(q->fd, &hello, sizeof hello, MSG_NOSIGNAL | MSG_DONTWAIT) == (ssize_t)sizeof hello;
}

static void go_on(const comm_router *router, line_inquiry *i, int node, int but)
{
    question *q = &i->of[node];
    struct pollfd ready = {.fd = q->fd, .events = q->asked ? POLLIN : POLLOUT};
    bool stands = true, answered = false;
    if (poll(&ready, 1, 0) == 1) {
        stands = q->asked ? line_ask_hear(router, i, q) : line_ask_ask(router, q);
        answered = q->asked && !stands;
        q->asked = true;
    }
    int someone = line_rank_at(router->launch, node, 0);
    if (answered && i->said[someone].rank >= 0) {
        hang_up(q);
        q->over = true;
    } else if (!stands || kolo_time() - q->since > TRY) {
        dial(router, q, node, but);
    }
}

int lines_inquire(comm_router *router, int but, const line_beat **said)
{
    line_inquiry *i = router->lines->inquiry ? router->lines->inquiry : line_ask_begin(router, but);
    bool waiting = false;
    *said = i ? i->said : NULL;
    for (int n = 0; i && n < i->nodes; n++) {
        if (!i->of[n].over) go_on(router, i, n, but);
        waiting = waiting || !i->of[n].over;
    }
    return !waiting || !i || kolo_time() - i->since > GIVE_UP;
}
