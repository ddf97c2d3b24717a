/* What a rank shows of itself to the ranks of its node: that it lives, what it does, whom it waits for; and
 * the flag that the job cannot go on. It stands at the start of the rank's segment, the library half's
 * (router_control) as well as the compiled half's (comm_control); alive.c looks at it. */
#ifndef KOLO_COMM_LIFE_H
#define KOLO_COMM_LIFE_H

#include <stdatomic.h>
#include <stdbool.h>
#include <stdint.h>

#include "comm/core/segment.h"

enum { COMM_OPERATION_WORDS = 12 };

/* Written by its owner, except where noted. */
typedef struct comm_life {
    comm_segment_head head;
    /* anyone rings; asleep: threads of the owner that sleep */
    _Alignas(64) _Atomic uint32_t doorbell, asleep;
    _Atomic uint32_t nudged; /* asleep in epoll: it takes a datagram */
    _Atomic uint64_t nudge;  /* name of the socket that takes it; 0: none */
    /* kolo_time() in ns, of the owner's last look at the others */
    _Alignas(64) _Atomic int64_t beat;
    _Atomic int32_t waits_for; /* rank whose message the owner waits for; -1: none */
    _Atomic uint64_t sequence;
    _Atomic int64_t reported_at;                      /* likewise; 0: nothing was reported */
    _Atomic uint64_t operation[COMM_OPERATION_WORDS]; /* text, filled with zeros */
    /* leader's only; anyone: 0, 1 (being written), 2 (head.text stands) */
    _Alignas(64) _Atomic uint32_t broken;
    /* leader's only: the break is reported to the other nodes, or came from one */
    _Atomic uint32_t spread;
    /* leader's only: when a rank of this node began to ask the others before it breaks the world; 0 */
    _Atomic int64_t suspected_at;
} comm_life;

/* The operation that a rank has reported last, as other nodes hear it, too. */
typedef struct comm_position {
    char operation[8 * COMM_OPERATION_WORDS];
    uint64_t sequence;
    double age; /* seconds since it began; negative: nothing was reported */
    int32_t waits_for, rank;
} comm_position;

/* The text of `operation`; cut to what it holds. Relaxed: a reader may see parts of two. */
void comm_life_set_text(comm_life *own, const char *text);
void comm_life_get_text(const comm_life *c, char text[8 * COMM_OPERATION_WORDS]);

/* The text of the rank that broke it. It may be writing it, and have lost its CPU: waits, for a second at
 * most, for then it died, which is said instead. */
const char *comm_life_reason(const comm_life *leader);
int comm_life_text(const comm_life *leader); /* KOLO_ELAUNCH, with that text */
static inline bool comm_life_broken(const comm_life *leader)
{
    return atomic_load_explicit(&leader->broken, memory_order_acquire) != 0;
}
/* 0, or as comm_life_text. */
static inline int comm_life_check(const comm_life *leader)
{
    return comm_life_broken(leader) ? comm_life_text(leader) : 0;
}
/* True: nobody was faster. Who sleeps is to be woken by the caller. */
bool comm_life_break(comm_life *leader, const char *text);

#endif
