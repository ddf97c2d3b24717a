/* Inside launch/: what a method of launching must bring, and the parts that methods share. */
#ifndef KOLO_LAUNCH_METHOD_H
#define KOLO_LAUNCH_METHOD_H

#include "launch/launch.h"

#include <stdint.h>

/* What every rank publishes at the start. Two ranks are on one node if name and group are equal. */
typedef struct kolo_identity {
    char name[256];
    int32_t group; /* of ranks that share memory, as the launcher says; -1: go by the name alone */
    uint32_t pid;
    uint64_t token; /* random; rank 0's names the job */
} kolo_identity;

typedef struct kolo_method {
    const char *name;
    bool (*fits)(void); /* by the environment only */
    /* Sets rank, size, the name and group of `me`, and `own`. A disagreement that all ranks see alike is
     * undone before the error; after any other error the connection stays, so that the exit of this
     * process ends the job. */
    int (*start)(kolo_launch *launch);
    int (*wired)(kolo_launch *launch); /* once the node map is known; may be NULL */
    int (*exchange)(kolo_launch *launch, const void *mine, size_t bytes, void *all);
    void (*finish)(kolo_launch *launch);
    void (*abort)(kolo_launch *launch, int exit_status); /* may return; the caller exits then */
    /* For the watchdog's thread, while this rank waits; NULL: there is no such way. Tells that it waits for
     * the `wait`th time; asks which ranks of other nodes (not here[rank]) do not; the host of one before it
     * is known. */
    void (*call)(kolo_launch *launch, uint32_t wait);
    bool (*absent)(kolo_launch *launch, uint32_t wait, const bool *here, bool *absent);
    void (*host)(kolo_launch *launch, int rank, char *text, size_t bytes);
} kolo_method;

typedef struct launch_watch launch_watch;

typedef struct kolo_launch_state { /* launch->state */
    const kolo_method *method;
    void *own; /* of the method */
    kolo_identity me;
    launch_watch *watch;       /* NULL: there is none */
    kolo_launch_limits limits; /* zeros: none were given */
    bool broken;               /* start failed: nothing may be closed in an orderly way */
} kolo_launch_state;

static inline kolo_launch_state *kolo_state(kolo_launch *launch) { return launch->state; }

extern const kolo_method kolo_method_pmix, kolo_method_mpi, kolo_method_slurm, kolo_method_single;

/* ---- node_map.c: pure ---- */
/* Fills node, nodes, local_*, node_of, local_of, host_of, host of `launch` (rank and size are
 * set) from all: [size]. */
int kolo_node_map(kolo_launch *launch, const kolo_identity *all);
void kolo_node_map_free(kolo_launch *launch);
/* "(vector,(node,nodes,ranks per node),...)" as MPICH reads it, or NULL if longer than
 * `longest`; caller frees. */
char *kolo_node_vector(const int *node_of, int size, size_t longest);

/* ---- environment.c: what the environment says ---- */
/* True inside a task that srun started directly; rank and size of that step. */
bool kolo_slurm_step(int *rank, int *size);
int kolo_env_int(const char *name, int otherwise); /* a whole number from 0 on, else `otherwise` */
void kolo_env_host(char *name, size_t bytes);      /* host name */
/* "start it by srun --mpi=pmix", as this build can. */
const char *kolo_launch_cure(void);

/* ---- watch.c ---- */
/* This rank waits for all others, in what the text (a literal) says, until end: for those that live as long
 * as that one of its limits says. watch may be NULL. */
enum launch_limit { LAUNCH_START, LAUNCH_LATER, LAUNCH_PATIENT };
void launch_watch_begin(launch_watch *watch, const char *where, enum launch_limit limit);
void launch_watch_end(launch_watch *watch);
/* For its own thread: sleeps, with heartbeats. */
void launch_watch_nap(launch_watch *watch, double seconds);

/* ---- mpi.c ---- */
bool kolo_mpi_built(void);
/* MPI_Init_thread(SERIALIZED), unless somebody did. Its own failure ends the process in the midst of it:
 * limits.end is called then, where there is one. */
int kolo_mpi_start(kolo_launch *launch, int *rank, int *size);
/* MPI cannot start, and has said why: ends the job. Returns where there is no job to end. */
void kolo_mpi_failed(void *launch);
int kolo_mpi_adopt(kolo_launch *launch, const void *mpi_comm); /* in the place of method mpi's start */
void kolo_mpi_finish(void);

#endif
