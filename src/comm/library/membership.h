/* Who is left: the ranks of a world that broke agree on it among themselves, without the launcher, MPI or
 * anything of that world. Every rank has a listener (a socket whose address all learn when the first world
 * opens, and a thread behind it that always answers), which goes from world to world and is closed with the
 * last. Ranks are numbered here as in the first world.
 *
 * The agreement is that of a rotating coordinator (Chandra, Toueg, "Unreliable failure detectors for reliable
 * distributed systems", J. ACM 43(2), 1996, for the detector; Hursey, Naughton, Vallee, Graham, "A
 * log-scaling fault tolerant agreement algorithm for a fault tolerant MPI", EuroMPI 2011, for its use in a
 * shrink), in two phases:
 *
 *   gather  The lowest rank that is not held to be dead coordinates. The others ask it again and again how
 *           things stand, which is how it knows them to be there; it asks those that do not come. When all
 *           others have come or are dead it decides: these are the members, this is the token of their world.
 *           Who knows a decision tells it to everybody who asks about that epoch, a later coordinator too,
 *           which then decides nothing itself.
 *   open    The members open their world. It is valid only when all have passed its first barrier: a rank
 *           that fails there (because another died meanwhile) goes back to gather with the new world's epoch
 *           and token, and so do in the end all others.
 *
 * A rank is dead when its listener is closed. A rank that does not answer there within the heartbeat_timeout
 * is asked for in every other way: has it asked us meanwhile, does its process run on our node, or on its
 * own, as another rank there sees it (unverified peers may crowd a listener, so silence is not death)?
 * Without a sign it is held to be dead, though it may only be stopped. What it asks when it wakes is about a
 * world that others have left: the answer is that it is out. Worlds of one epoch have tokens, so two
 * decisions, should there be two, are never mixed up: no rank is in two worlds, and a world with a rank that
 * is elsewhere does not open. */
#ifndef COMM_LIBRARY_MEMBERSHIP_H
#define COMM_LIBRARY_MEMBERSHIP_H

#include <pthread.h>
#include <stdatomic.h>

#include "comm/core/transport/lines.h"

enum { MEMBERSHIP_GIVEN = 1024 }; /* bytes of a rank in an exchange */

/* Questions, and answers. Every connection carries one of each. */
enum membership_kind {
    MEMBERSHIP_JOIN = 1, /* I gather, and you coordinate */
    MEMBERSHIP_LOOK,     /* are you there? */
    MEMBERSHIP_GIVE,     /* my bytes of an exchange follow */
    /* does the process of rank `round`, on your node, run? Busy: it does; out: it does not */
    MEMBERSHIP_RUNS,
    MEMBERSHIP_BUSY,    /* alive, but not gathering for that world (yet), or the exchange is not complete */
    MEMBERSHIP_HERE,    /* gathering for that world */
    MEMBERSHIP_DECIDED, /* a decision about that world follows */
    MEMBERSHIP_OUT,     /* the others went on without you */
    MEMBERSHIP_ALL,     /* the bytes of all members follow */
};

typedef struct membership_message {
    unsigned char magic[8], cookie[16];
    int32_t kind, from;
    uint32_t epoch, bytes; /* bytes: what follows */
    uint64_t token;        /* of the world that it is about */
    uint32_t round;        /* of an exchange */
    int32_t away;          /* the asking process was itself stopped for longer than the heartbeat_timeout */
} membership_message;

/* What was agreed on about the world of an epoch and token. */
typedef struct membership_decision {
    struct membership_decision *next;
    uint32_t epoch;
    uint64_t token;
    size_t bytes; /* of what follows, as it travels */
    struct {
        uint64_t token; /* of the new world */
        int32_t away;   /* all of them were */
        int32_t count;
        int32_t member[];
    } content;
} membership_decision;

typedef struct exchange_buffer {
    uint32_t round;
    int given;
    size_t bytes;
    bool *by;  /* [size] */
    char *all; /* [members * bytes] */
} exchange_buffer;

typedef struct lib_membership {
    int listener, bell; /* bell: an eventfd that ends the thread */
    pthread_t thread;
    bool runs;
    line_address address;    /* this rank's */
    line_address *addresses; /* [launch.size] */
    kolo_launch launch;      /* the map of the first world */
    double timeout, heartbeat_timeout;
    _Atomic int64_t beat; /* ns: the last look at the clock */
    _Atomic bool away;
    _Atomic int64_t called;    /* ns: when this rank last asked the others */
    kolo_admission unverified; /* the listener's */
    bool deaf;                 /* likewise: the listener is not polled */
    uint32_t round;            /* of exchanges; the caller's */
    pthread_mutex_t lock;      /* of what follows, which the listener looks at */
    uint32_t epoch;
    uint64_t token;
    bool gathering;
    int *member, members; /* ascending */
    double *joined;       /* [size] when it last asked; 0: never */
    bool *joined_away;    /* [size] */
    membership_decision *decisions;
    exchange_buffer board[2]; /* where this rank is the first member */
} lib_membership;

/* Listens, on one node at a socket without a network; needs no other rank. */
int lib_membership_open(lib_membership **membership, const kolo_launch *launch);
/* The addresses of all ranks, `stride` bytes apart. */
int lib_membership_begin(lib_membership *membership, const line_address *addresses, size_t stride,
                         double timeout, double heartbeat_timeout);
void lib_membership_close(lib_membership **membership);
/* Agrees on who is left: they are the members then. At least `least`, else KOLO_ELAUNCH. */
int lib_membership_gather(lib_membership *membership, int least);
/* A lib_exchange between the members. KOLO_ELAUNCH: somebody died or gave up, gather again. */
int lib_membership_exchange(void *membership, const void *mine, size_t bytes, void *all);
/* The members as a launch, for kolo_launch_finish. */
int lib_membership_launch(lib_membership *membership, kolo_launch *launch);

/* listener.c */
int listener_open(lib_membership *membership); /* a thread answers from now on */
void listener_close(lib_membership *membership);
void membership_greet(const lib_membership *membership, membership_message *word,
                      /* about the world of now; the lock is held, or no other thread changes it */
                      enum membership_kind kind);
/* it comes from a rank: the port of a dead one may be another program's by now */
bool membership_known(const lib_membership *membership, const membership_message *word);
/* Looks at the clock: a process that was away for longer than the heartbeat_timeout was held to be stopped,
 * if anybody looked. A rank that asks or decides looks by itself, as the listener's thread may wake later. */
bool membership_away(lib_membership *membership);
/* The lock is held. Notes what rank `from` gives; NULL: not complete, no memory, or no such round. */
const exchange_buffer *membership_give(lib_membership *membership, int from, uint32_t round, const void *data,
                                       size_t bytes);
/* Has that rank, of this node, a process that is neither stopped nor dead? */
bool membership_runs(const lib_membership *membership, int rank);
/* It is about the world of now, and the members are its from now on; takes it over. */
void membership_adopt(lib_membership *membership, membership_decision *decision);

#endif
