/* Who is left: the ranks of a world that broke agree on it among themselves, without the launcher, MPI or anything of that world. Every rank has a door (a
 * socket whose address all learn when the first world opens, and a thread behind it that always answers), which goes from world to world and is closed with the
 * last. Ranks are numbered here as in the first world.
 *
 * The agreement is that of a rotating coordinator (Chandra, Toueg, "Unreliable failure detectors for reliable distributed systems", J. ACM 43(2), 1996, for the
 * detector; Hursey, Naughton, Vallee, Graham, "A log-scaling fault tolerant agreement algorithm for a fault tolerant MPI", EuroMPI 2011, for its use in
 * a shrink), in two phases:
 *
 *   gather  The lowest rank that is not held to be dead coordinates. The others ask it again and again how things stand, which is how it knows them to be there;
 *           it asks those that do not come. When all others have come or are dead it decides: these are the members, this is the token of their world. Who
 *           knows a decision tells it to everybody who asks about that epoch, a later coordinator too, which then decides nothing itself.
 *   open    The members open their world. It is valid only when all have passed its first barrier: a rank that fails there (because another died meanwhile) goes
 *           back to gather with the new world's epoch and token, and so do in the end all others.
 *
 * Dead is whose door is closed or who does not answer within the patience, so a rank may be held to be dead that was only stopped. What it asks when it wakes
 * is about a world that others have left: it is told that it is out. Worlds of one epoch have tokens, so two decisions, should there be two, are never mixed up:
 * no rank is in two worlds, and a world with a rank that is elsewhere does not open. */
#ifndef COMM_LIBRARY_MUSTER_H
#define COMM_LIBRARY_MUSTER_H

#include <pthread.h>
#include <stdatomic.h>

#include "comm/transport/lines.h"

enum { MUSTER_GIVEN = 1024 }; /* bytes of a rank in an exchange */

/* Questions, and answers. Every connection carries one of each. */
enum muster_kind {
    MUSTER_JOIN = 1, /* I gather, and you coordinate */
    MUSTER_LOOK,     /* are you there? */
    MUSTER_GIVE,     /* my bytes of an exchange follow */
    MUSTER_BUSY,     /* alive, but not gathering for that world (yet), or the exchange is not complete */
    MUSTER_HERE,     /* gathering for that world */
    MUSTER_DECIDED,  /* a decision about that world follows */
    MUSTER_OUT,      /* the others went on without you */
    MUSTER_ALL,      /* the bytes of all members follow */
};

typedef struct muster_word {
    unsigned char magic[8], cookie[16];
    int32_t kind, from;
    uint32_t epoch, bytes; /* bytes: what follows */
    uint64_t token;        /* of the world that it is about */
    uint32_t round;        /* of an exchange */
    int32_t away;          /* the asking process was itself stopped for longer than the patience */
} muster_word;

/* What was agreed on about the world of an epoch and token. */
typedef struct muster_decision {
    struct muster_decision *next;
    uint32_t epoch;
    uint64_t token;
    size_t bytes; /* of what follows, as it travels */
    struct {
        uint64_t token; /* of the new world */
        int32_t away;   /* all of them were */
        int32_t count;
        int32_t member[];
    } told;
} muster_decision;

typedef struct muster_board {
    uint32_t round;
    int given;
    size_t bytes;
    bool *by;  /* [size] */
    char *all; /* [members * bytes] */
} muster_board;

typedef struct lib_muster {
    int listener, bell; /* bell: an eventfd that ends the thread */
    pthread_t thread;
    bool runs;
    line_card card;     /* this rank's */
    line_card *cards;   /* [launch.size] */
    kolo_launch launch; /* the map of the first world */
    double timeout, patience;
    _Atomic int64_t beat; /* ns: the last look at the clock */
    _Atomic bool away;
    uint32_t round;       /* of exchanges; the caller's */
    pthread_mutex_t lock; /* of what follows, which the door looks at */
    uint32_t epoch;
    uint64_t token;
    bool gathering;
    int *member, members; /* ascending */
    double *joined;       /* [size] when it last asked; 0: never */
    bool *joined_away;    /* [size] */
    muster_decision *decisions;
    muster_board board[2]; /* where this rank is the first member */
} lib_muster;

/* Listens; needs no other rank. one_node: at a socket without a network. */
int lib_muster_open(lib_muster **muster, bool one_node);
/* The cards of all ranks, `stride` bytes apart. */
int lib_muster_begin(lib_muster *muster, const kolo_launch *launch, const line_card *cards, size_t stride, double timeout, double patience);
void lib_muster_close(lib_muster **muster);
/* Agrees on who is left: they are the members then. At least `least`, else KOLO_ELAUNCH. */
int lib_muster_gather(lib_muster *muster, int least);
/* A lib_exchange between the members. KOLO_ELAUNCH: somebody died or gave up, gather again. */
int lib_muster_exchange(void *muster, const void *mine, size_t bytes, void *all);
/* The members as a launch, for kolo_launch_finish. */
int lib_muster_launch(lib_muster *muster, kolo_launch *launch);

/* muster_door.c */
int muster_door_open(lib_muster *muster); /* a thread answers from now on */
void muster_door_close(lib_muster *muster);
void muster_greet(const lib_muster *muster, muster_word *word,
                  enum muster_kind kind);                             /* about the world of now; the lock is held, or no other thread changes it */
bool muster_known(const lib_muster *muster, const muster_word *word); /* it comes from a rank: the port of a dead one may be another program's by now */
/* Looks at the clock: a process that was away for longer than the patience was held to be stopped, if anybody looked. Whoever asks or decides looks by himself,
 * as the door's thread may wake after him. */
bool muster_away(lib_muster *muster);
/* The lock is held. Notes what rank `from` gives; NULL: not complete, no memory, or no such round. */
const muster_board *muster_give(lib_muster *muster, int from, uint32_t round, const void *data, size_t bytes);
void muster_adopt(lib_muster *muster, muster_decision *decision); /* the members are its from now on; takes it over */

#endif
