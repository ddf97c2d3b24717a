/* Lines between ranks of different nodes: sockets, one for each direction of a pair, made when first needed.
 * Who accepts a line makes one back, so that heartbeats go both ways. Leaders of nodes keep a line to the
 * next node's from the start: a ring in which every node has neighbours that see it die. They carry messages
 * where MPI does not (tcp.c), heartbeats every second, and the news that the world is broken. */
#ifndef KOLO_COMM_LINES_H
#define KOLO_COMM_LINES_H

#include <netinet/in.h>
#include <sys/socket.h>

#include "base/admission.h"
#include "comm/core/transport/framing.h"

/* What every rank tells of itself at the start. */
typedef struct line_address {
    int32_t status, pid;
    uint32_t length; /* of address */
    unsigned char cookie[16];
    struct sockaddr_storage address;
} line_address;

/* First bytes on every connection; who does not know the cookie is dropped. */
typedef struct line_hello {
    unsigned char magic[8], cookie[16];
    int32_t rank, purpose;
} line_hello;
/* Purpose. Break: a text follows, then the end. Ask: the words of the ranks of this node come back
 * (comm_position), then the end. */
enum { LINE_FRAMES = 1, LINE_BREAK = 2, LINE_ASK = 3 };

enum end_kind { END_LISTENER, END_NUDGE, END_PENDING_PEER, END_IN, END_OUT };

/* A file descriptor in the epoll set. Ends stay where they are: an event may come for one that
 * was closed just before. */
typedef struct line_end {
    enum end_kind kind;
    int fd;   /* -1: closed */
    int rank; /* END_PENDING_PEER: its place in tcp_lines.pending */
    bool connecting, waits_to_write;
    double since;
} line_end;

/* A peer that has connected, but has not yet said which rank it is. */
typedef struct line_pending_peer {
    line_end end;
    size_t got; /* bytes of hello and text */
    bool known; /* a rank */
    char text[sizeof(line_hello) + COMM_TEXT];
} line_pending_peer;

typedef struct tcp_line {
    framing t; /* rings are made with the ends */
    line_end in, out;
    uint64_t said; /* in the last beat: sequence, waits_for */
    int32_t said_waits;
    /* lost_at: the other end is gone without a word; a break may still explain it */
    double heard_at, lost_at, said_at;
    /* left: closed in good order; failed: there is no way to it (not an end of the world with MPI) */
    bool left, failed, dirty;
    char how[64]; /* it was lost */
    comm_position beat;
} tcp_line;

/* Pending peers: more than the bucket's burst, so that an unverified peer keeps its place for some tenths of
 * a second before it must make room. */
enum { LINE_PENDING_PEERS = 256, LINE_RING = 1 << 18 };

typedef struct tcp_lines {
    int epoll;
    line_end listener, nudge;
    kolo_admission unverified;
    bool deaf; /* the listener is not watched: too many unverified peers have come */
    line_pending_peer pending[LINE_PENDING_PEERS];
    line_address *address;            /* [size] */
    tcp_line **line;                  /* [size] NULL: none */
    int *dirty, first_dirty, dirties; /* a circle of [size]: ranks with something to write, each once */
    _Atomic double polled_at;
    struct line_calls *inquiry; /* under way; NULL: none */
} tcp_lines;

tcp_line *line_find(comm_router *router, int rank); /* NULL: no memory, broken */
int line_connect(comm_router *router, tcp_line *l);
int line_poll(comm_router *router); /* takes what the sockets have; cheap */
void line_mark(comm_router *router, tcp_line *l);
/* Moves bytes of the rings. */
int line_flush(comm_router *router, tcp_line *l);
int line_fill(comm_router *router, tcp_line *l);
int line_lost(comm_router *router, tcp_line *l, const char *how);
void line_calls_free(struct line_calls **calls);
void line_answer(const comm_router *router, int fd); /* to LINE_ASK: the words of this node's ranks */
int line_dial(const comm_router *router, int rank);  /* a socket that is being connected, or -1 */
void line_greet(const comm_router *router, line_hello *hello, int purpose);
int line_rank_at(const kolo_launch *launch, int node, int local); /* -1: there is none */
void line_wait_to_write(comm_router *router, tcp_line *l, bool wait);
void line_hang_up(tcp_line *l);
int line_watch(tcp_lines *lines, line_end *end, uint32_t events);
void line_end_close(line_end *end);
int line_fail_system(const char *what); /* of errno */
int lines_expire(comm_router *router);
/* of the interface that KOLO_COMM_INTERFACE names, or the first that fits */
int line_find_address(line_address *address);
/* A socket that listens there, not blocking; the address is as it was bound then, with pid and cookie. *fd:
 * also of a failure. */
int line_listen(line_address *address, int *fd);
bool line_same_cookie(const unsigned char left[16], const unsigned char right[16]);

#endif
