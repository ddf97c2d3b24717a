/* The progress thread of a rank: takes started buckets in their order, reduces on the node, owns every MPI
 * call. A ring without locks leads to it; when nothing is in flight it sleeps on a futex. */
#ifndef KOLO_COMM_ENGINE_H
#define KOLO_COMM_ENGINE_H

#include <pthread.h>

#include "comm/buckets/group.h"

enum comm_phase { COMM_LOCAL, COMM_QUEUED, COMM_NETWORK };
typedef struct comm_entry {
    int bucket, lane;
    enum comm_phase phase;
    uint64_t round;
} comm_entry;

typedef struct comm_engine {
    comm_node *node;
    comm_bucket *bucket; /* [buckets], from commit on */
    int *leader_of;      /* [nodes] local rank 0 of each node */
    pthread_t thread;
    bool running;
    _Atomic uint32_t stop;
    _Atomic uint64_t *ring, tail; /* bucket and round; 0: empty */
    uint64_t head;
    int ring_slots;
    comm_entry *active;
    int actives;
    uint64_t pass;
    comm_lane small;
    _Atomic uint32_t small_seq; /* meeting whose network part is asked for; 0: none */
    double failed_at;           /* the network has failed, as `text` says; 0: it has not */
    char text[COMM_TEXT];
} comm_engine;

/* ring_slots: more than can be started and not finished */
int comm_engine_start(comm_engine *engine, int ring_slots);
void comm_engine_stop(comm_engine *engine); /* waits for the thread; the lanes stay */
void comm_engine_free(comm_engine *engine, bool *busy);

/* False: the ring is full (the bucket is reduced by the thread that waits for it). */
bool comm_engine_push(comm_engine *engine, int bucket, uint64_t round);
/* small.run is set up: run it, then put up `seq` as the node's result. Leader only. */
void comm_engine_small(comm_engine *engine, uint32_t seq);

#endif
