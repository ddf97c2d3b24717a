/* Who am I: rank, size, node map, and a small key-value exchange, whatever started this process.
 * Methods, first that fits: PMIx (srun --mpi=pmix), MPI (mpiexec, srun --mpi=pmi2), Slurm's
 * environment, single. */
#ifndef KOLO_LAUNCH_H
#define KOLO_LAUNCH_H

#include <stdbool.h>
#include <stddef.h>

typedef struct kolo_launch {
    const char *method;         /* "pmix", "mpi", "slurm", "single" */
    int rank, size;             /* in the job step */
    int node, nodes;            /* this rank's node, numbered by first appearance in rank order */
    int local_rank, local_size; /* among the ranks of this node, in rank order */
    char host[256];             /* Slurm node name where there is one, else host name */
    int *node_of;               /* [size] node of every rank */
    int *local_of;              /* [size] local rank of every rank */
    char **host_of;             /* [nodes] */
    /* MPI may be called: it is initialised (thread level SERIALIZED; where the program calls it too,
     * MULTIPLE), of our size */
    bool mpi;
    const void *mpi_comm; /* points to the MPI_Comm whose ranks these are; NULL: MPI_COMM_WORLD */
    /* unique to this job step on this machine: name for shared-memory segments; [A-Za-z0-9._-] */
    char job[128];
    void *state; /* of the method */
} kolo_launch;

/* Host of a rank. */
static inline const char *kolo_launch_host(const kolo_launch *l, int rank)
{
    return l->host_of ? l->host_of[l->node_of[rank]] : l->host;
}
/* Number of a rank where they are counted node by node. */
int kolo_launch_by_node(const kolo_launch *launch, int rank);

/* How long to wait for other ranks; seconds. */
typedef struct kolo_launch_limits {
    double start;             /* in the launch; 0: as long as they live */
    double later;             /* in an exchange or the end; likewise */
    double heartbeat_timeout; /* seconds without a heartbeat of a rank of this node; 0: 8 */
    /* From a thread of its own: says it and ends the job (kolo_launch_abort). text: which ranks are missing
     * or have stopped, on which hosts, and a cure. NULL: nobody is watched. */
    void (*end)(kolo_launch *launch, const char *text);
} kolo_launch_limits;

/* Finds the method (or takes `method`: "auto", "pmix", "mpi", "slurm", "single"), wires up, publishes the
 * node map, checks that launcher, PMIx and MPI agree on the number of ranks. Starts MPI only where size > 1.
 * Collective. limits may be NULL; *launch stays where it is until finish.
 * KOLO_ELAUNCH with the cure when, for example, every rank believes it is 0 of 1. On success
 * logs identify by rank. */
int kolo_launch_start(kolo_launch *launch, const char *method, const kolo_launch_limits *limits);

/* The ranks of a communicator (const MPI_Comm *; NULL: MPI_COMM_WORLD) of a program that has called MPI_Init,
 * which goes on using it: nothing of MPI is ended by finish. Collective over the communicator. */
int kolo_launch_adopt(kolo_launch *launch, const void *mpi_comm);
/* Somebody has called MPI_Init, and nobody MPI_Finalize. */
bool kolo_launch_mpi_runs(void);

/* Collective; the job ends well only after this. Idempotent. */
void kolo_launch_finish(kolo_launch *launch);

/* Some ranks of a launch (ascending, this one among them) as one of their own, without a launcher or MPI: a
 * map, and the name of a job; nothing can be exchanged over it. Not collective. */
int kolo_launch_part(kolo_launch *part, const kolo_launch *launch, const int *rank, int count,
                     const char *job);

/* Ends every rank of the job with this exit status (MPI_Abort, PMIx_Abort, _exit). Prints
 * nothing. Does not return. */
void kolo_launch_abort(kolo_launch *launch, int exit_status) __attribute__((noreturn));
/* The same of a process that ends before its launch began. Only Hydra (MPICH's mpiexec) has to be told: it
 * waits for the other ranks, while srun and Open MPI's mpiexec end them at the first bad exit. Returns. */
void kolo_launch_abort_unstarted(int exit_status);

/* Every rank gives `bytes` bytes, gets size * bytes in rank order. Wire-up only (PMIx or MPI); at most a
 * few KiB. Collective. */
int kolo_launch_exchange(kolo_launch *launch, const void *mine, size_t bytes, void *all);
/* Around collective calls of MPI that all ranks of the launch make: a rank that keeps the others waiting in
 * them is named, as in an exchange. where: a literal, for the message. All ranks, in the same order. */
void kolo_launch_wait_begin(kolo_launch *launch, const char *where);
void kolo_launch_wait_end(kolo_launch *launch);

/* A file in a folder that all nodes share, which is there: by it ranks that share no memory and exchange
 * nothing for hours see each other alive. Opened anew for each look, so that caches of network file systems
 * do not show old times. NULL: no more. The text is copied. Not collective, but all ranks should. Where it is
 * still named at kolo_launch_finish, rank 0 removes it. */
void kolo_launch_beat_at(kolo_launch *launch, const char *path);

/* Core binding by hwloc (not collective apart from the exchange inside): within the cpuset given to this
 * process, rank i of the L ranks that share it takes its share of cores; dropped (with a word) when two ranks
 * of one machine (boot id) would overlap. Collective. threads: 0 = chosen. Returns the number of compute
 * threads this rank should use (>= 1) or a negative status. */
int kolo_launch_bind(kolo_launch *launch, int threads, bool bind);

/* A library that launches or carries messages. */
typedef struct kolo_library {
    const char *name;           /* "MPI", "PMIx" */
    char built[64], loaded[64]; /* "MPICH 4.0.2": at build, and in this process */
    char server[32];            /* PMIx: of the launcher's server; "": not stated */
    bool differs;               /* another one was loaded than at build, or the server's major version is
                                   another */
} kolo_library;
/* Fills list[0..2), without starting any of them; their number. */
int kolo_launch_libraries(kolo_library list[2]);

/* Whether ranks of this machine may use some of each other's processors but not all of them, as a mask of the
 * launcher's that is wrong leaves them; *sharers: ranks that were given exactly this rank's. Collective. */
int kolo_launch_overlap(kolo_launch *launch, bool *overlap, int *sharers);

#endif
