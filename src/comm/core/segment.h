/* Memory that the ranks of a node share: one segment a rank, mapped by all of them. A segment is named after
 * the job, 0600, locked by its living owner from birth to death (the kernel lets go of the lock however it
 * dies), and unlinked as soon as all have mapped it. */
#ifndef KOLO_COMM_SEGMENT_H
#define KOLO_COMM_SEGMENT_H

#include <sched.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "launch/launch.h"

enum { COMM_TEXT = 1024, COMM_LOCAL_MAX = 512 /* ranks on a node */ };

/* Every segment begins with it. */
typedef struct comm_segment_head {
    uint64_t magic;
    int32_t pid, rank, cpus;
    uint64_t used; /* bytes of its segment that take memory */
    unsigned char cpu_mask[128];
    _Atomic uint32_t stage;    /* of setting up */
    _Atomic uint32_t departed; /* closed in good order, or failed while it was set up */
    char text[COMM_TEXT];
} comm_segment_head;

typedef struct comm_segments {
    const kolo_launch *launch;
    const char *kind;   /* part of the name: several sets of one job are apart by it */
    int me, ranks;      /* local */
    const int *rank_of; /* [ranks] the caller's */
    double timeout;     /* seconds */
    size_t bytes;       /* of a segment, the same on all ranks */
    size_t head;        /* of them that take memory at once */
    size_t used;  /* and as soon as all are there, of this rank's segment; more by comm_segment_allocate */
    bool watched; /* peers are other processes */
    comm_segment_head *base[COMM_LOCAL_MAX];
    int fd[COMM_LOCAL_MAX]; /* -1: not open */
} comm_segments;

/* Collective over the node. The caller fills everything down to `used`. Allocates nothing, so that no rank
 * is left waiting for one that lacks memory: all others allocate before. */
int comm_segments_open(comm_segments *s);
/* What the ranks of a job that nobody opens any more have left on this node: its names go, whichever rank
 * lives. */
void comm_segments_forget(const kolo_launch *launch, const char *kind);
/* busy: the network may still use the memory; it stays mapped. */
void comm_segments_close(comm_segments *s, bool busy);
/* Memory for bytes of this rank's segment: a tmpfs that runs full later kills by SIGBUS.
 * KOLO_ECONFIG: it is full. */
int comm_segment_allocate(const comm_segments *s, size_t offset, size_t bytes);
bool comm_segment_alive(const comm_segments *s, int local);
/* Looks before who waits sleeps: of ranks of one node, of several, of ranks that share cores. */
enum { COMM_LOOKS = 20000, COMM_LOOKS_NODES = 300, COMM_LOOKS_SHARED = 50 };
/* Polls before a sleep: many where every rank has a CPU of its own, hardly any where they compete. */
int comm_segments_spin(const comm_segments *s);

#endif
