/* The batches that a server holds: a loader's slots in a segment that jobs map, and a thread that
 * waits for the next one. */
#ifndef KOLO_DATA_SERVE_RING_H
#define KOLO_DATA_SERVE_RING_H

#include <pthread.h>
#include <semaphore.h>

#include "base/failure.h"
#include "data/serve/wire.h"

typedef struct serve_ring {
    kolo_loader *loader;
    int fd; /* of the segment */
    serve_segment *segment;
    size_t bytes, slot_bytes;
    int slots;
    int64_t steps;
    int news[2]; /* a pipe: readable when a batch is ready */
    sem_t free;  /* slots that the loader may fill */
    pthread_t thread;
    bool running;
    _Atomic bool stop;
    kolo_failure failure;         /* the loader's; read behind its news */
    kolo_batch held[SERVE_SLOTS]; /* batch p at [p % slots] */
    int64_t base, next;           /* batches [base, next) are held */
    int64_t decoded;              /* rows, since open */
} serve_ring;

/* On error everything is closed. KOLO_ECONFIG: it does not fit into memory; KOLO_EIO. */
int serve_ring_open(serve_ring *ring, const kolo_loader_config *config);
void serve_ring_close(serve_ring *ring);
/* Begins at `position`; stop forgets all that is held. */
int serve_ring_start(serve_ring *ring, int64_t position);
void serve_ring_stop(serve_ring *ring);
/* When `news` is readable: batch next - 1 has become ready, or the loader's error. */
int serve_ring_take(serve_ring *ring);
/* Gives up batch `base`. */
void serve_ring_release(serve_ring *ring);
static inline const kolo_batch *serve_ring_batch(const serve_ring *r, int64_t p)
{
    return &r->held[p % r->slots];
}

#endif
