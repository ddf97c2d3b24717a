/* The library half, for the files of this folder: include/kolo/world.h in front, comm_schedule,
 * comm_algorithm and comm_router behind (README.md goes through the files). An unnamed request goes
 * straight to its group's queue, in the order of the calls. A blocking small unnamed allreduce or barrier
 * of a group that lies on one node is done by its caller (comm_push), without the engine, when nothing of
 * that group is under way. */
#ifndef KOLO_COMM_LIBRARY_H
#define KOLO_COMM_LIBRARY_H

#include <pthread.h>
#include <stdatomic.h>

#include "comm/algorithm/algorithm.h"
#include "comm/core/transport/router.h"
#include "kolo/world.h"

/* Things by their keys (negotiate.h): what is in a map begins with its link. */
typedef struct lib_link {
    struct lib_link *next;
    uint64_t hash;
    const void *key;
    size_t bytes;
} lib_link;
typedef struct lib_map {
    lib_link **bucket;
    int64_t buckets, count;
} lib_map;

enum lib_state { LIB_FREE, LIB_SUBMITTED, LIB_DONE };
/* A request that nobody has the handle of is free as soon as it is complete. */
static inline bool lib_is_over(uint32_t state) { return state == LIB_DONE || state == LIB_FREE; }

/* One request of this rank, from submit to release. Entries lie in chunks that never move; the handle is
 * index and generation. */
typedef struct lib_entry {
    lib_link link;  /* in its negotiator's names, while it is under way */
    kolo_request r; /* name, compression, splits: copies, in `keep` */
    void *keep;
    size_t keep_bytes;
    bool gpu;      /* its vectors lie in a GPU's memory */
    char word[32]; /* its name where it has none and members differ (lib_negotiator_differs) */
    char *fault;   /* what is wrong with the request in itself; NULL: nothing */
    /* of an agreement (a barrier of the library's own): what it is about; part of the signature; or NULL */
    char *note;
    bool detached; /* nobody has the handle: free when complete */
    int waiters;   /* in kolo_wait */
    kolo_group *group;
    uint64_t sequence;      /* of the group's unnamed requests; 0: named */
    int bundle_size;        /* > 0: submitted together with others: begins only with all of them */
    double submitted;       /* kolo_time() */
    _Atomic uint32_t state; /* enum lib_state; a futex */
    int status;             /* from LIB_DONE on: 0 or negative, then text */
    char *text;
    kolo_output output; /* and the memory behind it, kept from use to use */
    void *memory;
    size_t memory_bytes;
    int64_t *received; /* [world size] */
    uint32_t generation;
    int index; /* of the entry, in the world's table */
    struct lib_entry *next;
} lib_entry;

/* One request that begins. Those of a bundle have the same unit and stand together. */
typedef struct lib_begin {
    const kolo_request *r; /* as agreed: the entry's, or what is known of the name */
    lib_entry *entry;      /* NULL: this member has joined */
    int64_t unit, rows;    /* rows: first of its lib_row_numbers numbers in lib_beginning.rows; -1: none */
    int contributors;      /* ranks that bring data: the divisor of an average */
    bool gpu;              /* its vectors lie in GPUs' memory */
    int64_t bytes;         /* that count for fusion_bytes */
} lib_begin;

/* Requests to be carried out together, the same on all ranks of the group. Of all contributors and gpu are
 * the same. */
typedef struct lib_beginning {
    const lib_begin *begin; /* [entries] */
    int entries;
    const int64_t *rows;
    uint64_t number; /* of those of this group, from 1 */
} lib_beginning;

/* The same with what this rank brings, while it is carried out. Where it has joined, entry[] is NULL and
 * `stand_in` describes what the others bring. */
typedef struct lib_batch {
    lib_entry **entry;      /* [entries] */
    int entries;            /* more than one: one collective over all of them */
    kolo_request *stand_in; /* [entries] or NULL */
    bool gpu;
    int contributors;
    int64_t *rows;   /* [entries][lib_row_numbers] */
    uint64_t number; /* for messages */
} lib_batch;

struct kolo_group {
    kolo_world *world;
    int id, rank, size; /* rank: -1 if not a member */
    int *rank_of;       /* [size] world ranks, ascending */
    int *node_of;       /* [size] */
    bool one_node;
    /* on one node: the push is not a matter of course, as an algorithm was forced or
     * measured (lib_takes_push) */
    bool asks;
    lib_entry *first, *last;            /* unnamed, not begun yet */
    uint64_t submitted, finished;       /* unnamed */
    struct lib_negotiator *negotiator;  /* of this group */
    struct lib_stream *unnamed, *named; /* parts.h: what carries batches */
    int channels;                       /* of lanes, given out so far */
    int64_t *counts; /* [size] of a blocking gather that is being submitted (world->lock) */
};

struct kolo_world {
    kolo_launch *launch;
    bool own_launch;
    bool joined;              /* its ranks meet in the router: one that fails breaks it */
    kolo_world_config config; /* resolved: environment asked, strings owned */
    comm_router *router;
    comm_selector *selector;
    kolo_group *all;    /* the group of all ranks: any thread may ask for it while the table grows */
    kolo_group **group; /* [groups] by id; NULL: free id. The turn's */
    int groups;
    pthread_mutex_t lock; /* entries, queues, inboxes; never held while data moves */
    struct lib_entries *entries;
    lib_entry **bundle; /* [bundle_room] being submitted */
    int64_t bundle_room;
    struct lib_engine *engine;
    struct lib_timeline *timeline; /* NULL: off; written to under the turn or the lock, changed under both */
    _Atomic int gpu;               /* 1 + the number of this rank's, once a vector on one was brought */
    struct lib_membership *membership; /* NULL: cannot be shrunk (one rank, or MPI between the nodes) */
};

/* ---- negotiate: which named entries begin, and in which order ------------------------------------------ */
typedef struct lib_negotiator lib_negotiator;
int lib_negotiator_open(lib_negotiator **negotiator, kolo_group *group);
void lib_negotiator_close(lib_negotiator **negotiator);
/* A named entry, all entries of a bundle, or a join (KOLO_JOIN comes here with or without a name, and is
 * completed by the negotiator itself, with output.last; it makes no batch). Batches of named requests and
 * unnamed ones have lanes of their own, so their orders are independent. Duplicate name under way:
 * KOLO_EINPUT, none is taken. world->lock is held. */
int lib_negotiator_add(lib_negotiator *negotiator, lib_entry *const *entry, int entries);
/* The entry, which was added, is complete. world->lock is held. */
void lib_negotiator_over(lib_negotiator *negotiator, lib_entry *entry);
/* An unnamed request that members have brought unlike one another: fails on all of them, with what each has
 * brought. */
int lib_negotiator_differs(lib_entry *entry);
/* One step of the state machine, by the engine; never waits. Returns how many batches begin, *batch (memory
 * of the negotiator, good until the next turn), or negative when the world is broken. Entries that
 * do not match are completed here (lib_complete) with the text on every rank. *busy: messages are under
 * way, poll again soon. */
int lib_negotiator_turn(lib_negotiator *negotiator, const lib_beginning **batch, bool *busy);

/* ---- execute ------------------------------------------------------------------------------------------- */
typedef struct lib_execution lib_execution;
/* Takes a batch (copies what it needs): it is carried out after those that were taken before it. Engine. */
int lib_execute_begin(kolo_group *group, const lib_beginning *batch);

/* The entry ends: wakes who waits. text: NULL for success. Engine, or negotiate's turn. */
void lib_complete(lib_entry *entry, int status, const char *text);

/* A tag for messages of the group that nothing else of it has: by the order of the calls, which is the same
 * on all members. KOLO_EINTERNAL: it has LIB_CHANNELS already. */
int lib_group_tag(kolo_group *group);

/* What a request brings, as mismatches and texts name it: "allreduce of 17 x 1311 f32, sum". */
void lib_describe(const lib_entry *entry, char *text, size_t bytes);
static inline bool lib_is_negotiated(const kolo_request *r) { return r->name || r->what == KOLO_JOIN; }
/* What collectives have: a bit set. */
enum {
    LIB_VECTOR = 1,
    LIB_REDUCES = 2,
    LIB_ROOT = 4,
    LIB_FREE_FIRST = 8, /* dim[0] may differ from member to member */
    LIB_ROWS = 16,      /* a scalar will not do */
    LIB_FUSES = 32,     /* several may be carried as one */
    LIB_GATHERS = 64    /* its splits, if given, are everybody's counts, the same on all members */
};
bool lib_is(enum kolo_collective what, unsigned trait);
/* The counts of a gather are more than its description shows. */
bool lib_describes_part(const kolo_request *request, int members);
/* Of all that must be equal on the members of a group (type, shape without a free first dimension,
 * operation, root, factors, compression); never 0. A request that is wrong in itself has a fault, which
 * is part of both: it goes the way of all others, so that every rank learns of it (execute fails it where
 * all brought the same). */
uint64_t lib_signature(const lib_entry *entry);

/* Numbers that all members must learn of a request, since they may bring others; 0: none. Allgather, gather,
 * sparse: every member's dim[0]. Scatter: the rows that root deals to every member, then 1 + those that each
 * has room for, 0: any number. Alltoall: [members][members] rows from, to. */
int64_t lib_row_numbers(enum kolo_collective what, int members);
/* What one member knows of them: `count` numbers from `first` on. The sum over members, with 0 for the rest,
 * is all of them. */
typedef struct lib_rows {
    int64_t first, count;
    const int64_t *list; /* NULL: they are `all` cut evenly */
    int64_t all;
} lib_rows;
lib_rows lib_rows_brought(const kolo_request *request, int me, int members);
int64_t lib_rows_at(const lib_rows *rows, int64_t i);

/* ---- timeline ------------------------------------------------------------------------------------------ */
/* Events of this rank into a ring, written by a thread of its own to FOLDER/rank-N.json (Chrome trace); cheap
 * enough to leave on: some 20 ns for the thread that has an event, 170 ns of the thread. Beyond `most` bytes
 * the older half goes: that is rank-N.older.json. `host` stays the caller's. */
int lib_timeline_open(struct lib_timeline **timeline, const char *folder, size_t most, int rank,
                      const char *host);
void lib_timeline_close(struct lib_timeline **timeline);
/* phase: a constant such as "negotiate", "pack", "allreduce", "unpack", "wait"; name: of the tensor or NULL;
 * algorithm: a constant that carried it, or NULL; times by kolo_time(). */
void lib_timeline_carried(struct lib_timeline *timeline, const char *phase, const char *name,
                          const char *algorithm, double begin, double end, int64_t bytes);
static inline void lib_timeline_add(struct lib_timeline *timeline, const char *phase, const char *name,
                                    double begin, double end, int64_t bytes)
{
    lib_timeline_carried(timeline, phase, name, NULL, begin, end, bytes);
}

#endif
